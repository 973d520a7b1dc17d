//! Changes the files of a case at many places, and reads what comes of it.
#![allow(dead_code, reason = "every test file uses its own part of this")]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::panic, reason = "shared by tests only")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator_files::Access;
use percolator_formats::{FormatError, Options, Seeks, Shard, notation};
use serde_json::Value as Json;

use crate::common;

/// Files up to this length are changed at every byte, longer ones at as many places.
const PLACES: usize = 1000;

/// More records than any changed file may have. Each takes a byte of its file at least, or a list entry.
const RECORDS_MAX: usize = 1_000_000;

/// Opens the files below a folder, in which they lie as in the golden one.
pub type OpenBelow<'a> = &'a dyn Fn(&Path, &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError>;

/// Flips bits of each file of a case and cuts it, at many places, and reads all that is left.
pub fn survives(case: &'static Json, open: OpenBelow<'_>) {
    let folder = memory_folder();
    let paths = common::files_of(case);
    let names = case["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap());
    let copies: Vec<PathBuf> = names.map(|name| folder.path().join(name)).collect();
    for (path, copy) in paths.iter().zip(&copies) {
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(path, copy).unwrap();
    }
    for copy in &copies {
        let bytes = fs::read(copy).unwrap();
        for (turn, at) in places(&bytes).into_iter().enumerate() {
            let mut options = Options::default();
            options.access = if turn % 2 == 0 { Access::Mapped } else { Access::Read };
            let mut changed = bytes.clone();
            changed[at] ^= [0x80, 0x01, 0x10, 0xff][turn % 4];
            fs::write(copy, &changed).unwrap();
            read(folder.path(), &options, open);
            fs::write(copy, &bytes[..at]).unwrap();
            read(folder.path(), &options, open);
        }
        fs::write(copy, &bytes).unwrap();
    }
}

/// A folder in memory where there is one: files are written thousands of times.
fn memory_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// At most so many places, of which none is inside a long run of zeros, which is padding.
fn places(bytes: &[u8]) -> Vec<usize> {
    let padding = |at: usize| bytes[at.saturating_sub(48)..bytes.len().min(at + 48)].iter().all(|b| *b == 0);
    let places: Vec<usize> = (0..bytes.len()).filter(|at| !padding(*at)).collect();
    places.iter().copied().step_by(places.len().div_ceil(PLACES).max(1)).collect()
}

/// Reads all records and goes to some again. An error is fine, and comes again; nothing else may happen.
fn read(folder: &Path, options: &Options, open: OpenBelow<'_>) {
    let Ok(shards) = open(folder, options) else { return };
    for shard in shards {
        read_shard(&shard);
    }
}

fn read_shard(shard: &Arc<dyn Shard>) {
    let grammar = shard.grammar();
    let Ok(mut cursor) = Arc::clone(shard).cursor() else { return };
    let mut places = Vec::new();
    let failed = loop {
        match cursor.advance() {
            Ok(None) => break None,
            Err(error) => break Some(error),
            Ok(Some(record)) => {
                let bytes = record.value.bytes();
                for (name, value) in grammar.parts(bytes).unwrap_or_default() {
                    let part = grammar.part(bytes, &name).unwrap();
                    // Numbers may be NaN, which does not equal itself.
                    assert!(part.is_some_and(|part| format!("{part:?}") == format!("{value:?}")), "{name}");
                }
                places.push(record.place);
                assert!(places.len() <= RECORDS_MAX, "the records have no end");
            }
        }
    };
    match &failed {
        Some(error) => assert_eq!(cursor.advance().unwrap_err(), *error, "the same error"),
        None => assert!(cursor.advance().unwrap().is_none(), "the end is the end"),
    }
    let mut passed = Arc::clone(shard).cursor().unwrap();
    for place in &places {
        assert_eq!(passed.skip().unwrap(), Some(*place), "skipping finds the same places");
    }
    if matches!(shard.seeks(), Seeks::InOrder(_)) {
        return;
    }
    for (position, place) in places.iter().enumerate().rev().step_by(1 + places.len() / 8) {
        cursor.seek(*place, position as u64).unwrap();
        assert_eq!(cursor.advance().unwrap().map(|record| record.place), Some(*place));
    }
    // Places that no pass has found.
    for place in [[1, 1], [3, u64::MAX], [u64::MAX, u64::MAX], [u64::MAX - 511, 512]] {
        if cursor.seek(place, 7).is_ok() {
            let _ = cursor.advance().map(|record| record.map(|record| record.place));
        }
    }
}

/// Files in a folder of their own.
pub struct Made {
    folder: tempfile::TempDir,
}

impl Made {
    pub fn new(files: &[(&str, &[u8])]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            fs::write(folder.path().join(name), bytes).unwrap();
        }
        Made { folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Options with settings, for one way of access.
pub fn options(access: Access, settings: &[(&str, &str)]) -> Options {
    let mut options = Options::default();
    options.access = access;
    options.settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    options
}

/// The parts of all records as JSON; or the error's words.
pub fn records(shards: Result<Vec<Arc<dyn Shard>>, FormatError>) -> Result<Vec<Json>, String> {
    let shown = |error: FormatError| percolator_files::shown::with_sources(&error);
    let mut records = Vec::new();
    for shard in shards.map_err(shown)? {
        let grammar = shard.grammar();
        let mut cursor = shard.cursor().map_err(shown)?;
        while let Some(record) = cursor.advance().map_err(shown)? {
            let parts = grammar.parts(record.value.bytes()).map_err(|fault| fault.to_string())?;
            records.push(notation::record(0, &record.key, &parts)["parts"].take());
        }
    }
    Ok(records)
}

/// Asserts that nothing is read, and that the error has all of these words.
pub fn fails(shards: Result<Vec<Arc<dyn Shard>>, FormatError>, words: &[&str]) {
    match records(shards) {
        Ok(records) => panic!("{} records are read, but {words:?} is expected", records.len()),
        Err(error) => {
            for word in words {
                assert!(error.contains(word), "no {word:?} in {error:?}");
            }
        }
    }
}
