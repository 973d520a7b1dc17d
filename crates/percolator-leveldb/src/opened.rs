//! Tables that are read instead of mapped: open files, which stay readable if a writer deletes them.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use percolator_files::file_id::FileState;
use percolator_files::{Reading, shown};

use crate::error::LevelDbError;
use crate::map::{FileBytes, open_table, read_at};

/// The most tables that stay open, over all databases: a process is often limited to 1,024 open files.
const KEPT_MAX: usize = 512;

/// How many tables stay open now.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// An open table.
#[derive(Debug)]
pub(crate) struct OpenTable {
    file: File,
    _kept: Option<Kept>,
}

/// One of the tables that `KEPT` counts.
#[derive(Debug)]
struct Kept;

impl Drop for Kept {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OpenTable {
    pub(crate) fn open(path: &Path, state: FileState) -> Result<Self, LevelDbError> {
        Ok(OpenTable { file: open_table(path, state)?, _kept: None })
    }

    /// Reads all of the table, which must have `wanted` bytes.
    pub(crate) fn read(&self, path: &Path, wanted: u64) -> Result<FileBytes, LevelDbError> {
        FileBytes::of(&self.file, path, Some(wanted), Reading::Read)
    }

    /// Fills `buffer` with a part of the table, which must be within its `wanted` bytes.
    pub(crate) fn read_part(
        &self,
        path: &Path,
        wanted: u64,
        part: Range<u64>,
        buffer: &mut Vec<u8>,
    ) -> Result<(), LevelDbError> {
        let io = |error: io::Error| LevelDbError::io(path, "read the file", &error);
        buffer.clear();
        let bytes = part.end.saturating_sub(part.start);
        read_at(&self.file, part.start, bytes, buffer).map_err(io)?;
        if buffer.len() as u64 == bytes {
            return Ok(());
        }
        let read_to = part.start.saturating_add(buffer.len() as u64);
        let found = self.file.metadata().map_or(read_to, |metadata| metadata.len());
        Err(LevelDbError::Length { file: path.to_owned(), found, wanted })
    }

    /// Asks the kernel to read the first bytes, at most `bytes_max`, without waiting for them.
    pub(crate) fn will_need(&self, bytes_max: u64) {
        #[cfg(all(target_os = "linux", not(miri)))]
        {
            use std::num::NonZeroU64;

            use rustix::fs::{Advice, fadvise};

            use crate::map::PIECE_BYTES;

            let len = NonZeroU64::new(PIECE_BYTES as u64);
            for start in (0..bytes_max).step_by(PIECE_BYTES) {
                if let Err(error) = fadvise(&self.file, start, len, Advice::WillNeed) {
                    tracing::debug!(%error, start, "the kernel does not read ahead");
                }
            }
        }
        #[cfg(not(all(target_os = "linux", not(miri))))]
        let _ = bytes_max;
    }
}

/// The tables of a database that stay open, by their number in the store. Cursors open the others for
/// themselves.
#[derive(Debug, Default)]
pub(crate) struct OpenTables(Vec<Arc<OpenTable>>);

impl OpenTables {
    /// Keeps the next table open; returns `false` if no more can be.
    pub(crate) fn keep(&mut self, path: &Path, state: FileState) -> Result<bool, LevelDbError> {
        let one_more = |kept: usize| (kept < KEPT_MAX).then_some(kept + 1);
        if KEPT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_err() {
            return Ok(false);
        }
        let kept = Kept;
        match open_table(path, state) {
            Ok(file) => {
                self.0.push(Arc::new(OpenTable { file, _kept: Some(kept) }));
                Ok(true)
            }
            // The process may be out of files. Cursors need one at a time, and report it if even that is too
            // many.
            Err(LevelDbError::Io { kind, message, .. }) if is_of_the_process(kind) => {
                tracing::debug!(message, table = %shown::path(path), "no more tables stay open");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn get(&self, slot: usize) -> Option<&Arc<OpenTable>> {
        self.0.get(slot)
    }

    pub(crate) fn held_bytes(&self) -> usize {
        self.0.capacity() * size_of::<Arc<OpenTable>>() + self.0.len() * size_of::<OpenTable>()
    }
}

/// Returns whether an error on opening a file may have a cause other than the file.
fn is_of_the_process(kind: io::ErrorKind) -> bool {
    !matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use super::*;

    /// A table that no cursor had open when its database was made anew.
    #[test]
    #[cfg_attr(miri, ignore = "it sets a file's time")]
    fn a_table_that_another_has_replaced_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("000005.ldb");
        fs::write(&path, "a table").unwrap();
        let state = FileState::of(&fs::metadata(&path).unwrap());
        OpenTable::open(&path, state).unwrap();
        // It may have the inode of the one before, as here.
        fs::write(&path, "another").unwrap();
        let later = SystemTime::now() + Duration::from_secs(1);
        File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        let error = OpenTable::open(&path, state).unwrap_err();
        assert!(matches!(error, LevelDbError::Replaced { .. }), "{error}");
        fs::write(&path, "longer than it was").unwrap();
        let error = OpenTable::open(&path, state).unwrap_err();
        assert!(matches!(error, LevelDbError::Length { found: 18, .. }), "{error}");
    }
}
