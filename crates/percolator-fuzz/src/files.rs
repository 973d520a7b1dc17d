//! Inputs as files, and sources read to their ends.

use std::fs;
use std::path::{Path, PathBuf};

use percolator::source::{Access, IndexPlace, Source, SourceError};
use tempfile::TempDir;

use crate::accepted::accepted;
use crate::memory::{Budget, uncounted, within};

/// A folder of files, which lasts as long as this value: in memory where the system has such a place.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
        Folder(folder.expect("a folder can be made"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file, whose name may have folders, and returns its path.
    pub(crate) fn with(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path().join(name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).expect("a folder can be made");
        }
        fs::write(&path, bytes).expect("a file can be written");
        path
    }
}

type Pair = (Vec<u8>, Vec<u8>);

/// The records of a source, up to its end or to an error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Walked {
    pub(crate) records: Vec<Pair>,
    pub(crate) is_whole: bool,
}

/// What is kept of a walk: a key may be longer than the bytes that state it.
const KEPT_BYTES_MAX: usize = 16 << 20;

/// Reads a source to its end, or as far as what is read can be kept.
///
/// # Panics
///
/// If there are more records than `most`.
pub(crate) fn walk(source: &dyn Source, most: usize) -> Walked {
    let mut records = Vec::new();
    let is_whole = read_on(source, most, &mut records).is_ok_and(|is_at_end| is_at_end);
    Walked { records, is_whole }
}

fn read_on(source: &dyn Source, most: usize, records: &mut Vec<Pair>) -> Result<bool, SourceError> {
    let mut cursor = source.cursor()?;
    let mut kept = 0;
    while let Some(entry) = cursor.advance()? {
        uncounted(|| records.push((entry.key().to_vec(), entry.value().to_vec())));
        assert!(records.len() <= most, "there are more than {most} records");
        kept += entry.key().len() + entry.value().len();
        if kept > KEPT_BYTES_MAX {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads a source that is mapped, and one that is read: both have the same records, which an index finds
/// again.
///
/// # Panics
///
/// If they have others, or more than `most`.
pub(crate) fn walk_both<S: Source, E>(
    bytes: &[u8],
    budget: Budget,
    most: usize,
    open: impl Fn(Access) -> Result<S, E>,
) {
    let [mapped, read] = [Access::Mapped, Access::Read].map(|access| {
        within(bytes, budget, || {
            let source = open(access).ok()?;
            let walked = walk(&source, most);
            check_positions(&source, &IndexPlace::Memory, &walked);
            Some(walked)
        })
    });
    assert_eq!(mapped, read);
    if mapped.is_some_and(|walked| walked.is_whole) {
        accepted();
    }
}

/// Indexes a source, seeks its records from the last to the first, and compares them with those of a walk.
///
/// # Panics
///
/// If a position has another record than the walk.
pub(crate) fn check_positions(source: &dyn Source, place: &IndexPlace, walked: &Walked) {
    if source.index(place).is_err() {
        return;
    }
    let Ok(mut cursor) = source.cursor() else { return };
    for (position, (key, value)) in walked.records.iter().enumerate().rev().take(64) {
        let Ok(()) = cursor.seek(position as u64) else { continue };
        if let Ok(entry) = cursor.advance() {
            let entry = entry.expect("the walk has a record at this position");
            assert!(entry.key() == key && entry.value() == value, "record {position} is another one");
        }
    }
}
