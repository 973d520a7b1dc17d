//! What data sets are made from: MNIST, CIFAR; and what a file is when nobody says.

use percolator_data::input::{Cifar, CifarKind, CifarLabel, CifarSplit, Idx, Input, Item};
use percolator_data::{Found, OpenOptions};

use crate::accepted::accepted;
use crate::files::{Folder, walk};
use crate::memory::{Budget, within};

/// A file may be compressed by a factor of 1,032, and is read through a buffer; an image has its own memory.
const INPUT: Budget = Budget::mebibytes(4, 1_032 * 2);

/// MNIST's two files: the length of the one with images (two bytes), that file, and the one with labels.
pub(crate) fn idx(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk() else { return };
    let (images, labels) = rest.split_at(usize::from(u16::from_le_bytes(*length)).min(rest.len()));
    let folder = Folder::new();
    let (images, labels) = (folder.with("images", images), folder.with("labels", labels));
    within(bytes, INPUT, || {
        let Ok(input) = Idx::open(&images, &labels) else { return };
        read_items(&input, 1_032 * bytes.len());
    });
}

/// A file of CIFAR-10 or CIFAR-100.
pub(crate) fn cifar(bytes: &[u8]) {
    let folder = Folder::new();
    let path = folder.with("data.bin", bytes);
    for kind in [CifarKind::Ten, CifarKind::Hundred(CifarLabel::Fine), CifarKind::Hundred(CifarLabel::Coarse)]
    {
        within(bytes, INPUT, || {
            if let Ok(input) = Cifar::open(&path, kind, CifarSplit::Train) {
                read_items(&input, bytes.len());
            }
        });
    }
}

fn read_items(input: &dyn Input, most: usize) {
    let Ok(reader) = input.reader(0) else { return };
    let mut items = 0;
    for item in reader.map_while(Result::ok) {
        items += 1;
        accepted();
        assert!(items <= most, "there are more than {most} items");
        if let Item::Pixels { shape: [channels, height, width], pixels, .. } = item {
            assert_eq!(usize::from(channels) * usize::from(height) * usize::from(width), pixels.len());
        }
    }
}

/// A file of any kind, which is found out and read: a list of images is not, for its files are others'.
pub(crate) fn any_file(bytes: &[u8]) {
    let folder = Folder::new();
    let path = folder.with("file", bytes);
    let Ok(Found::DataSet(data)) = within(bytes, INPUT, || OpenOptions::default().find(&path)) else {
        return;
    };
    accepted();
    if data.kind() != percolator_data::Kind::ImageList {
        for source in data.sources() {
            within(bytes, INPUT, || walk(&**source, 2000 * bytes.len() + 1));
        }
    }
}
