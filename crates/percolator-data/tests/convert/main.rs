//! Conversions: what Caffe's tools make of the same files, what is skipped, and how a conversion that was
//! ended is gone on with.
#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

mod damage;
mod golden;
#[path = "../../../../tests/common/damage/mod.rs"]
mod harness;
mod inputs;
mod records;
mod resumed;

use std::fs;
use std::path::{Path, PathBuf};

use percolator::leveldb::LevelDb;
use percolator::source::{Lmdb, Source, TfRecord};
use percolator_data::store::Backend;

type Records = Vec<(Vec<u8>, Vec<u8>)>;

const BACKENDS: [Backend; 3] = [Backend::Lmdb, Backend::LevelDb, Backend::TfRecord];

/// A database that Caffe's own tools made.
fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/golden").join(name)
}

fn all(source: &dyn Source) -> Records {
    let (mut cursor, mut records) = (source.cursor().unwrap(), Vec::new());
    while let Some(entry) = cursor.advance().unwrap() {
        records.push((entry.key().to_vec(), entry.value().to_vec()));
    }
    records
}

fn read(backend: Backend, path: &Path) -> Records {
    match backend {
        Backend::Lmdb => all(&Lmdb::open_without_lock(path).unwrap()),
        Backend::LevelDb => all(&LevelDb::open(path).unwrap()),
        _ => all(&TfRecord::open(path).unwrap()),
    }
}

/// The records of a golden database.
fn golden_records(name: &str) -> Records {
    read(Backend::Lmdb, &golden(name))
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
