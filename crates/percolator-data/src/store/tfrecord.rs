//! Writes a TFRecord file.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use percolator_tfrecord::{FRAME_BYTES, write_record};

use super::{Mark, StoreError, StoreWriter, shortened};

/// Bytes that are gathered before the system is asked to write them.
const BUFFER_BYTES: usize = 256 << 10;

/// As many bytes are put on the disk together.
const COMMIT_BYTES: u64 = 64 << 20;

/// Appends records to a file. The keys are left out: a record's key is its position.
#[derive(Debug)]
pub(super) struct TfRecordStore {
    path: PathBuf,
    file: BufWriter<File>,
    /// The bytes of all records so far, and of those at the last commit.
    bytes: u64,
    committed: u64,
}

impl TfRecordStore {
    pub(super) fn create(path: &Path) -> Result<Self, StoreError> {
        let file = File::create_new(path).map_err(StoreError::io(path, "create the file"))?;
        Ok(Self::of(path, file, 0))
    }

    /// What was written after the mark is dropped.
    pub(super) fn reopen(path: &Path, bytes: u64) -> Result<Self, StoreError> {
        let opened = File::options().write(true).open(path);
        let file = opened.map_err(StoreError::io(path, "open the file"))?;
        Ok(Self::of(path, shortened(file, path, bytes)?, bytes))
    }

    fn of(path: &Path, file: File, bytes: u64) -> Self {
        let file = BufWriter::with_capacity(BUFFER_BYTES, file);
        TfRecordStore { path: path.to_owned(), file, bytes, committed: bytes }
    }
}

impl StoreWriter for TfRecordStore {
    fn put(&mut self, _key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        write_record(&mut self.file, value).map_err(StoreError::io(&self.path, "write the file"))?;
        self.bytes += value.len() as u64 + FRAME_BYTES;
        Ok(())
    }

    fn is_due(&self) -> bool {
        self.bytes - self.committed >= COMMIT_BYTES
    }

    fn commit(&mut self) -> Result<Mark, StoreError> {
        let failed = |action| StoreError::io(&self.path, action);
        if self.bytes > self.committed {
            self.file.flush().map_err(failed("write the file"))?;
            self.file.get_ref().sync_data().map_err(failed("write the file"))?;
            self.committed = self.bytes;
        }
        Ok(Mark::TfRecord { bytes: self.bytes })
    }

    fn finish(mut self: Box<Self>) -> Result<(), StoreError> {
        self.commit()?;
        // A file without records is whole, too.
        fs::metadata(&self.path).map(drop).map_err(StoreError::io(&self.path, "write the file"))
    }
}
