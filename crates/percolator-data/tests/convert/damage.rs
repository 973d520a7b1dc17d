//! Inputs on the damage harness, through whole conversions: class folders, MNIST's files, CIFAR's.
//!
//! None of them has a checksum, so other pixels and labels come where the bytes say so; no image is lost or
//! doubled unseen. A folder of classes holds whatever files are in it, and a file that is no image is skipped
//! and counted.

use std::path::Path;

use percolator::proto::Datum;
use percolator::tfrecord::TfRecord;
use percolator_data::convert::{Convert, ConvertError, Progress};
use percolator_data::input::{Cifar, CifarKind, CifarSplit, ClassFolders, Idx, Input, InputError};
use percolator_data::store::Backend;
use prost::Message as _;

use crate::all;
use crate::harness::process::this_test;
use crate::harness::{self, Case, Format, Guard, Number, Reading, Stated, Way};

const BARE: Guard = Guard::Bare("the format has no checksums");

/// Key, label, pixels.
type Image = (Vec<u8>, i32, Vec<u8>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Images {
    /// A folder of images for each class.
    Folders,
    /// MNIST's two files.
    Idx,
    /// A file of CIFAR's.
    Cifar,
}

const CLASSES: [&str; 3] = ["cat/a.png", "cat/b.png", "dog/c.png"];

fn pixels(seed: u8, count: usize) -> Vec<u8> {
    (0..count).map(|at| (at as u8).wrapping_mul(31) ^ seed).collect()
}

fn png(seed: u8) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, 4, 3);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&pixels(seed, 36)).unwrap();
    file
}

/// A PNG file, chunk by chunk: each has a checksum.
fn png_file(name: &str, bytes: Vec<u8>) -> Stated {
    let mut file = Stated::of(name, bytes, Guard::Structure);
    let mut at = 8;
    file.mark("signature", Guard::Structure, 0..8);
    while at < file.bytes.len() {
        let length = u32::from_be_bytes(file.bytes[at..at + 4].try_into().unwrap()) as usize;
        file.mark_number("length", Guard::Structure, Number::Big, at..at + 4);
        file.mark("kind", Guard::Structure, at + 4..at + 8);
        file.mark("data", Guard::Structure, at + 8..at + 8 + length);
        file.mark("checksum", Guard::Structure, at + 8 + length..at + 12 + length);
        at += 12 + length;
    }
    file
}

impl Images {
    fn stated(self, seed: u8) -> Vec<Stated> {
        match self {
            Images::Folders => (seed..).zip(CLASSES).map(|(seed, name)| png_file(name, png(seed))).collect(),
            Images::Cifar => {
                let mut file = Stated::new("test_batch.bin");
                for number in 0..3 {
                    file.add("label", BARE, &[number + seed]);
                    file.add("pixels", BARE, &pixels(number + seed, 3072));
                }
                vec![file]
            }
            Images::Idx => {
                let (mut images, mut labels) = (Stated::new("images"), Stated::new("labels"));
                for (file, magic) in [(&mut images, 0x803_u32), (&mut labels, 0x801)] {
                    file.add_number("magic", Guard::Structure, Number::Big, &magic.to_be_bytes());
                    file.add_number("count", Guard::Structure, Number::Big, &3_u32.to_be_bytes());
                }
                images.add_number("rows", Guard::Structure, Number::Big, &4_u32.to_be_bytes());
                images.add_number("columns", Guard::Structure, Number::Big, &5_u32.to_be_bytes());
                for number in 0..3 {
                    images.add("pixels", BARE, &pixels(number + seed, 20));
                    labels.add("label", BARE, &[number + seed]);
                }
                vec![images, labels]
            }
        }
    }

    fn convert(self, input: impl Input + 'static, folder: &Path) -> Result<Vec<Image>, String> {
        let output = folder.join("made");
        let convert = Convert::new(input, &output, Backend::TfRecord).threads(1);
        let text = |error: ConvertError| format!("{}: {error}", folder.display());
        let summary = convert.run(&Progress::new()).map_err(text)?;
        let stored = all(&TfRecord::open(&output).unwrap());
        let images = stored.into_iter().map(|(key, value)| {
            let datum = Datum::decode(&value[..]).unwrap();
            (key, datum.label.unwrap_or_default(), datum.data.unwrap())
        });
        let images: Vec<_> = images.collect();
        match summary.skipped {
            0 => Ok(images),
            skipped => Err(format!("{}: {skipped} skipped of {images:?}", folder.display())),
        }
    }
}

impl Format for Images {
    type Item = Image;

    const BYTES_MAX: usize = 400;

    fn name(&self) -> String {
        format!("images, {self:?}")
    }

    fn files(&self) -> Vec<Stated> {
        self.stated(1)
    }

    fn donor(&self) -> Vec<Stated> {
        self.stated(5)
    }

    /// An image of another kind is an image, whatever its name.
    fn foreign(&self) -> Vec<(&'static str, Vec<u8>)> {
        let files = harness::foreign::files().into_iter();
        let is_image = |what: &str| what.starts_with("a JPEG") || what.starts_with("a PNG");
        files.filter(|(what, _)| *self != Images::Folders || !is_image(what)).collect()
    }

    fn ways(&self) -> Vec<Way> {
        vec![Way::of("converted")]
    }

    fn read(&self, folder: &Path, _way: &'static str) -> Reading<Image> {
        let path = |name: &str| folder.join(name);
        let text = |error: InputError| format!("{error}");
        let images = match self {
            Images::Folders => {
                ClassFolders::open(folder).map_err(text).and_then(|input| self.convert(input, folder))
            }
            Images::Idx => Idx::open(&path("images"), &path("labels"))
                .map_err(text)
                .and_then(|input| self.convert(input, folder)),
            Images::Cifar => Cifar::open(&path("test_batch.bin"), CifarKind::Ten, CifarSplit::Test)
                .map_err(text)
                .and_then(|input| self.convert(input, folder)),
        };
        Reading::of(|items| images.map(|images| items.extend(images)))
    }

    /// Exactly the images that the bytes have.
    fn allows(&self, case: &Case, _way: &'static str, found: &Reading<Image>) -> bool {
        if found.error.is_some() {
            return true;
        }
        let found: Vec<_> = found.items.iter().map(|(_, label, pixels)| (*label, pixels.clone())).collect();
        let due: Vec<(i32, Vec<u8>)> = match self {
            Images::Cifar => {
                let file = case.bytes("test_batch.bin").unwrap();
                file.chunks(3073).map(|image| (image[0].into(), image[1..].to_vec())).collect()
            }
            Images::Idx => {
                let (images, labels) = (case.bytes("images").unwrap(), case.bytes("labels").unwrap());
                let pixels = images[16..].chunks(20).map(<[u8]>::to_vec);
                labels[8..].iter().map(|&label| label.into()).zip(pixels).collect()
            }
            Images::Folders => {
                // Whole files that are there, in whatever place: each is one of the two data sets' images.
                let classes: std::collections::BTreeSet<&str> =
                    CLASSES.iter().filter(|name| case.bytes(name).is_some()).map(|name| &name[..3]).collect();
                let label =
                    |name: &str| classes.iter().position(|class| name.starts_with(class)).unwrap() as i32;
                let known: Vec<(Vec<u8>, u8)> = (1..9).map(|seed| (png(seed), seed)).collect();
                let image = |name: &&str| {
                    let bytes = case.bytes(name)?;
                    let (_, seed) = known.iter().find(|(file, _)| bytes.starts_with(file))?;
                    Some((label(name), planes(&pixels(*seed, 36))))
                };
                CLASSES.iter().filter_map(image).collect()
            }
        };
        found == due
    }
}

/// What Caffe's images are: planes, blue first.
fn planes(rgb: &[u8]) -> Vec<u8> {
    (0..3).rev().flat_map(|channel| rgb.iter().skip(channel).step_by(3).copied()).collect()
}

#[test]
fn class_folders() {
    harness::check(this_test!(), 150, || Images::Folders);
}

#[test]
fn mnists_files() {
    harness::check(this_test!(), 150, || Images::Idx);
}

#[test]
fn cifars_files() {
    harness::check(this_test!(), 100, || Images::Cifar);
}
