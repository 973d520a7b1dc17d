//! Changes files at many places, and reads what comes of it.
#![allow(dead_code, reason = "every test file uses its own part of this")]
#![allow(unreachable_pub, clippy::unwrap_used, clippy::panic, reason = "shared by tests only")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator_files::Access;
use percolator_formats::{FormatError, Options, Seeks, Shard};

/// Files up to this length are changed at every byte, longer ones at as many places.
const PLACES: usize = 500;

/// Opens a file.
pub type OpenFile<'a> = &'a dyn Fn(&Path, &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError>;

/// Options for one way of access.
pub fn options(access: Access, settings: &[(&str, &str)]) -> Options {
    let mut options = Options::default();
    options.access = access;
    options.settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    options
}

/// Flips bits of a file and cuts it, at many places, and reads all that is left. A fault is an error, which
/// comes again; nothing else may happen.
pub fn survives(file: &Path, settings: &[(&str, &str)], open: OpenFile<'_>) {
    let bytes = fs::read(file).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join(file.file_name().unwrap());
    let places: Vec<usize> = (0..bytes.len()).step_by(bytes.len().div_ceil(PLACES).max(1)).collect();
    for (turn, &at) in places.iter().enumerate() {
        let access = if turn % 2 == 0 { Access::Mapped } else { Access::Read };
        let mut changed = bytes.clone();
        changed[at] ^= [0x80, 0x01, 0x10, 0xff][turn % 4];
        read(&copy, &changed, &options(access, settings), open);
        read(&copy, &bytes[..at], &options(access, settings), open);
    }
}

fn read(copy: &Path, bytes: &[u8], options: &Options, open: OpenFile<'_>) {
    fs::write(copy, bytes).unwrap();
    // Every record of these formats takes a byte of its file at least, plain or unpacked to a few megabytes.
    let records_max = 1_000_000;
    let Ok(shards) = open(copy, options) else { return };
    for shard in shards {
        read_shard(&shard, records_max);
    }
}

fn read_shard(shard: &Arc<dyn Shard>, records_max: usize) {
    let grammar = shard.grammar();
    let Ok(mut cursor) = Arc::clone(shard).cursor() else { return };
    let mut places = Vec::new();
    let failed = loop {
        match cursor.advance() {
            Ok(None) => break None,
            Err(error) => break Some(error),
            Ok(Some(record)) => {
                let parts = grammar.parts(record.value.bytes());
                assert!(!matches!(grammar.part(record.value.bytes(), "no such part"), Ok(Some(_))));
                for (name, value) in parts.unwrap_or_default() {
                    let part = grammar.part(record.value.bytes(), &name).unwrap();
                    assert!(part.is_some_and(|part| format!("{part:?}") == format!("{value:?}")), "{name}");
                }
                places.push(record.place);
                assert!(places.len() <= records_max, "the records have no end");
            }
        }
    };
    match &failed {
        Some(error) => assert_eq!(cursor.advance().unwrap_err(), *error, "the same error"),
        None => assert!(cursor.advance().unwrap().is_none(), "the end is the end"),
    }
    let Ok(mut passed) = Arc::clone(shard).cursor() else { panic!("a second cursor") };
    for place in &places {
        assert_eq!(passed.skip().unwrap(), Some(*place), "skipping finds the same places");
    }
    assert_eq!(passed.skip().err(), failed, "skipping ends as reading does");
    if !matches!(shard.seeks(), Seeks::InOrder(_)) {
        for (position, place) in places.iter().enumerate().rev().step_by(1 + places.len() / 20) {
            cursor.seek(*place, position as u64).unwrap();
            assert_eq!(cursor.advance().unwrap().map(|record| record.place), Some(*place));
        }
        // Places that no pass has found.
        for place in [[1, 1], [0, 0], [u64::MAX, u64::MAX], [3, u64::MAX], [u64::MAX - 511, 512]] {
            if cursor.seek(place, 7).is_ok() {
                let _ = cursor.advance().map(|record| record.map(|record| record.place));
            }
        }
    }
}

/// A file with this text or these bytes, in a folder of its own.
pub struct Made {
    folder: tempfile::TempDir,
    pub path: PathBuf,
}

/// Makes a file of this name.
pub fn made(name: &str, bytes: impl AsRef<[u8]>) -> Made {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    fs::write(&path, bytes).unwrap();
    Made { folder, path }
}

impl Made {
    /// The folder, for files beside it.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

/// The records of a file, as JSON without their numbers and keys; or the error.
pub fn records(path: &Path, options: &Options, open: OpenFile<'_>) -> Result<Vec<serde_json::Value>, String> {
    let shown = |error: FormatError| percolator_files::shown::with_sources(&error);
    let mut records = Vec::new();
    for shard in open(path, options).map_err(shown)? {
        let grammar = shard.grammar();
        let mut cursor = shard.cursor().map_err(shown)?;
        while let Some(record) = cursor.advance().map_err(shown)? {
            let parts = grammar.parts(record.value.bytes()).map_err(|fault| fault.to_string())?;
            let mut shown = percolator_formats::notation::record(0, &record.key, &parts);
            records.push(shown["parts"].take());
        }
    }
    Ok(records)
}
