//! safetensors, NumPy's arrays and archives on the damage harness.
//!
//! Of the three, only archives have checksums. What the others say is read: the crate `safetensors` judges
//! what its files say, and an array has the bytes behind its header.

#![allow(clippy::cast_possible_truncation, reason = "a test's files are small")]

use std::path::Path;

use percolator_tensorflow::convert::{ConvertError, Format as Kind, Model};
use percolator_tensorflow::{DataType, Tensor};
use safetensors::SafeTensors;
use tempfile::tempdir;

use crate::harness::process::this_test;
use crate::harness::{self, Case, Format, Guard, Number, Reading, Stated, Way};
use crate::tensors::{self, Named};

const OPENED: &str = "opened";
const BARE: Guard = Guard::Bare("the format has no checksums");

struct Files(Kind);

impl Files {
    fn written(&self, value: u8) -> Vec<u8> {
        let folder = tempdir().unwrap();
        let mut named = vec![
            ("a/W".to_owned(), Tensor::new(DataType::Float32, [2, 3], vec![value; 24]).unwrap()),
            ("b".to_owned(), Tensor::new(DataType::Int64, [], vec![2, 0, 0, value, 0, 0, 0, 0]).unwrap()),
        ];
        if self.0 == Kind::Npy {
            named.truncate(1);
        }
        let model = tensors::checkpoint(folder.path(), &named);
        std::fs::read(tensors::convert(&model, folder.path(), self.0).unwrap()).unwrap()
    }

    fn stated(&self, value: u8) -> Vec<Stated> {
        let bytes = self.written(value);
        let end = bytes.len();
        let mut file = Stated::of(self.file(), bytes, Guard::Structure);
        match self.0 {
            Kind::Safetensors => {
                let header = u64::from_le_bytes(file.bytes[..8].try_into().unwrap()) as usize;
                file.mark_number("length of the header", Guard::Structure, Number::Little, 0..8);
                json(&mut file, 8, 8 + header);
                file.mark("data", BARE, 8 + header..end);
            }
            Kind::Npy => {
                let header = usize::from(u16::from_le_bytes(file.bytes[8..10].try_into().unwrap()));
                file.mark("magic and version", Guard::Structure, 0..8);
                file.mark_number("length of the header", BARE, Number::Little, 8..10);
                json(&mut file, 10, 10 + header);
                file.mark("data", BARE, 10 + header..end);
            }
            _ => archive(&mut file),
        }
        vec![file]
    }

    fn file(&self) -> String {
        format!(
            "model.{}",
            match self.0 {
                Kind::Safetensors => "safetensors",
                Kind::Npy => "npy",
                _ => "npz",
            }
        )
    }
}

/// The words and the numbers of a header.
fn json(file: &mut Stated, start: usize, end: usize) {
    let is_digit = |file: &Stated, at: usize| file.bytes[at].is_ascii_digit();
    let mut at = start;
    while at < end {
        let digits = is_digit(file, at);
        let to = (at..end).find(|&to| is_digit(file, to) != digits).unwrap_or(end);
        match digits {
            true => file.mark_number("number", BARE, Number::Decimal, at..to),
            false => file.mark("words", BARE, at..to),
        }
        at = to;
    }
}

/// The numbers in the heads of an archive's members, in its directory, and at its end.
fn archive(file: &mut Stated) {
    const LOCAL: (&[u8], usize, &[(usize, usize)]) =
        (b"PK\x03\x04", 30, &[(4, 2), (6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)]);
    const CENTRAL: (&[u8], usize, &[(usize, usize)]) =
        (b"PK\x01\x02", 46, &[(8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (42, 4)]);
    const END: (&[u8], usize, &[(usize, usize)]) =
        (b"PK\x05\x06", 22, &[(4, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2)]);

    let mut at = 0;
    while at < file.bytes.len() {
        let heads = [LOCAL, CENTRAL, END];
        let Some((_, length, numbers)) =
            heads.into_iter().find(|(magic, ..)| file.bytes[at..].starts_with(magic))
        else {
            at += 1;
            continue;
        };
        for &(offset, bytes) in numbers {
            let start = at + offset;
            file.mark_number("number of a head", Guard::Structure, Number::Little, start..start + bytes);
        }
        at += length;
    }
}

impl Format for Files {
    type Item = Named;

    fn name(&self) -> String {
        format!("tensors, {}", self.0)
    }

    fn files(&self) -> Vec<Stated> {
        self.stated(1)
    }

    fn donor(&self) -> Vec<Stated> {
        self.stated(7)
    }

    fn others(&self) -> Vec<Vec<Stated>> {
        let archive = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/article_ref_io.npz");
        let archive = Stated::of(self.file(), std::fs::read(archive).unwrap(), Guard::Structure);
        let is_archive = self.0 == Kind::Npz;
        [self.donor()].into_iter().chain(is_archive.then(|| vec![archive])).collect()
    }

    fn ways(&self) -> Vec<Way> {
        vec![Way::of(OPENED)]
    }

    fn read(&self, folder: &Path, _way: &'static str) -> Reading<Named> {
        Reading::of(|items| {
            let model = Model::open_as(folder.join(self.file()), self.0)?;
            for place in 0..model.tensors().len() {
                items.push((model.tensors()[place].name.clone(), model.read(place)?.into_owned()));
            }
            Ok::<(), ConvertError>(())
        })
    }

    fn allows(&self, case: &Case, _way: &'static str, found: &Reading<Named>) -> bool {
        let Some(bytes) = case.bytes(&self.file()) else { return false };
        match (self.0, &found.error) {
            // A dtype that only we refuse, or a shape.
            (_, Some(_)) => found.items.is_empty(),
            (Kind::Safetensors, None) => SafeTensors::deserialize(bytes).is_ok_and(|due| {
                found.items.len() == due.len()
                    && found.items.iter().all(|(name, tensor)| {
                        due.tensor(name).is_ok_and(|due| {
                            due.shape() == tensor.shape() && Some(due.data()) == tensor.bytes()
                        })
                    })
            }),
            (Kind::Npy, None) => {
                // In whatever order the header says.
                let sorted = |bytes: &[u8]| {
                    let mut bytes = bytes.to_vec();
                    bytes.sort_unstable();
                    bytes
                };
                let [(_, tensor)] = &found.items[..] else { return false };
                let Some(data) = tensor.bytes() else { return false };
                bytes
                    .len()
                    .checked_sub(data.len())
                    .is_some_and(|start| sorted(&bytes[start..]) == sorted(data))
            }
            _ => false,
        }
    }
}

#[test]
fn safetensors() {
    harness::check(this_test!(), 1200, || Files(Kind::Safetensors));
}

#[test]
fn numpys_arrays() {
    harness::check(this_test!(), 1200, || Files(Kind::Npy));
}

#[test]
fn numpys_archives() {
    harness::check(this_test!(), 1500, || Files(Kind::Npz));
}
