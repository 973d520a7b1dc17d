//! CIFAR's binary files.
//!
//! ```text
//! CIFAR-10:  label | 3072 pixels: the red plane, the green one, the blue one, of 32x32 bytes each
//! CIFAR-100: coarse label | fine label | 3072 pixels
//! ```

use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

use percolator_files::input_file;

use super::identity;
use super::idx::{ended, pass};
use super::{Input, InputError, Item, ItemReader};

const SIDE: u16 = 32;
const PIXELS: usize = 3 * 32 * 32;

/// Which of the two data sets.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CifarKind {
    /// CIFAR-10.
    Ten,
    /// CIFAR-100, and which of its labels is taken.
    Hundred(CifarLabel),
}

/// The labels of CIFAR-100.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CifarLabel {
    /// One of 100 classes.
    #[default]
    Fine,
    /// One of 20 groups of classes.
    Coarse,
}

/// The two parts of a data set.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CifarSplit {
    /// The 50,000 images to train on.
    #[default]
    Train,
    /// The 10,000 images to test with.
    Test,
}

/// The images of CIFAR-10 or CIFAR-100, as Caffe's `convert_cifar_data` takes them: the planes stay in the
/// files' order, red, green, blue. A record's key is its number, with at least five digits.
#[derive(Clone, Debug)]
pub struct Cifar {
    path: PathBuf,
    kind: CifarKind,
    /// Each file, and its number of images.
    files: Vec<(PathBuf, u64)>,
    identity: String,
}

impl Cifar {
    /// Opens a file, or the files of a folder: of CIFAR-10, `data_batch_1.bin` to `data_batch_5.bin`, or
    /// `test_batch.bin`; of CIFAR-100, `train.bin`, or `test.bin`.
    ///
    /// # Errors
    ///
    /// [`InputError`] if a file cannot be opened, or does not consist of whole records.
    pub fn open(path: &Path, kind: CifarKind, split: CifarSplit) -> Result<Self, InputError> {
        let names: &[&str] = match (kind, split) {
            _ if !path.is_dir() => &[],
            (CifarKind::Ten, CifarSplit::Train) => &[
                "data_batch_1.bin",
                "data_batch_2.bin",
                "data_batch_3.bin",
                "data_batch_4.bin",
                "data_batch_5.bin",
            ],
            (CifarKind::Ten, CifarSplit::Test) => &["test_batch.bin"],
            (CifarKind::Hundred(_), CifarSplit::Train) => &["train.bin"],
            (CifarKind::Hundred(_), CifarSplit::Test) => &["test.bin"],
        };
        let paths: Vec<_> = match names {
            [] => vec![path.to_owned()],
            names => names.iter().map(|name| path.join(name)).collect(),
        };
        let (mut files, mut identity) = (Vec::new(), format!("{kind:?}"));
        for path in paths {
            let (_, bytes) = input_file::open(&path).map_err(InputError::io(&path, "open the file"))?;
            let record = record_bytes(kind) as u64;
            if bytes == 0 || bytes % record != 0 {
                let found = format!(
                    "its {bytes} bytes are no whole number of records of {record} bytes: it is cut short, or \
                     of another format"
                );
                return Err(InputError::format(&path, found));
            }
            let facts = identity::of_file(&path).map_err(InputError::io(&path, "look at the file"))?;
            identity = format!("{identity}, {facts}");
            files.push((path, bytes / record));
        }
        Ok(Cifar { path: path.to_owned(), kind, files, identity })
    }
}

impl Input for Cifar {
    fn path(&self) -> &Path {
        &self.path
    }

    fn files(&self) -> Vec<PathBuf> {
        self.files.iter().map(|(path, _)| path.clone()).collect()
    }

    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn items(&self) -> Option<u64> {
        Some(self.files.iter().map(|(_, items)| items).sum())
    }

    fn reader(&self, from: u64) -> Result<ItemReader<'_>, InputError> {
        // The number of the first image of each file.
        let starts = self.files.iter().scan(0, |start, (path, items)| {
            *start += items;
            Some((path, *start - items, *items))
        });
        let files = starts.filter(move |(_, start, items)| from < start + items);
        Ok(Box::new(files.flat_map(move |(path, start, items)| {
            let first = from.saturating_sub(start);
            let opened = Self::open_at(path, first * record_bytes(self.kind) as u64);
            let (mut file, failed) = match opened {
                Ok(file) => (Some(file), None),
                Err(error) => (None, Some(Err(error))),
            };
            let images = (first..items)
                .map_while(move |image| Some(self.read(file.as_mut()?, path, image, start + image)));
            failed.into_iter().chain(images)
        })))
    }
}

impl Cifar {
    fn open_at(path: &Path, offset: u64) -> Result<BufReader<std::fs::File>, InputError> {
        let failed = |action| InputError::io(path, action);
        let (file, _) = input_file::open(path).map_err(failed("open the file"))?;
        let mut file = BufReader::with_capacity(1 << 18, file);
        pass(&mut file, offset).map_err(failed("read it"))?;
        Ok(file)
    }

    fn read(
        &self,
        file: &mut BufReader<std::fs::File>,
        path: &Path,
        image: u64,
        number: u64,
    ) -> Result<Item, InputError> {
        let mut record = vec![0; record_bytes(self.kind)];
        file.read_exact(&mut record).map_err(|error| ended(path, image, "image", error))?;
        let pixels = record.split_off(record.len() - PIXELS);
        let label = match self.kind {
            CifarKind::Ten | CifarKind::Hundred(CifarLabel::Coarse) => record.first(),
            CifarKind::Hundred(CifarLabel::Fine) => record.last(),
        };
        let label = label.copied().unwrap_or_default().into();
        let key = format!("{number:05}").into_bytes();
        Ok(Item::Pixels { key, shape: [3, SIDE, SIDE], pixels, label })
    }
}

/// The bytes of an image and its labels.
fn record_bytes(kind: CifarKind) -> usize {
    match kind {
        CifarKind::Ten => 1 + PIXELS,
        CifarKind::Hundred(_) => 2 + PIXELS,
    }
}
