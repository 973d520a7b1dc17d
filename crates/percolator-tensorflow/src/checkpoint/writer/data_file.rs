//! A data file that is being written: the bytes of tensors, one after the other.

use std::io::{self, Write};
use std::path::PathBuf;

use percolator_files::checksum::Crc32c;
use percolator_files::whole_file::{Existing, WholeFile};

/// Bytes that are gathered before the system is asked to write them.
const BUFFER_BYTES: usize = 1 << 20;
/// Long pieces are written in parts that are still in the processor's cache when their checksum is known.
const PART_BYTES: usize = 256 << 10;

/// Where the bytes of tensors go.
pub(super) trait Sink {
    /// Appends bytes.
    fn put_unsummed(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Appends bytes, and adds them to a checksum.
    fn put(&mut self, bytes: &[u8], checksum: &mut Crc32c) -> io::Result<()> {
        for part in bytes.chunks(PART_BYTES) {
            checksum.update(part);
            self.put_unsummed(part)?;
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct DataFile {
    /// Its path when it is whole.
    pub(super) path: PathBuf,
    file: WholeFile,
    /// Bytes that are not in the file yet.
    buffer: Vec<u8>,
    /// The length of the file, with the buffer.
    bytes: u64,
}

impl DataFile {
    pub(super) fn create(path: PathBuf) -> io::Result<Self> {
        let file = WholeFile::create(&path)?;
        Ok(DataFile { path, file, buffer: Vec::new(), bytes: 0 })
    }

    /// Where the next byte goes.
    pub(super) fn offset(&self) -> u64 {
        self.bytes
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Syncs all bytes to the disk; the file has no name yet.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        self.buffer = Vec::new();
        self.file.file().sync_all()
    }

    /// Gives the synced file its name.
    pub(super) fn finish_over(self, existing: Existing) -> io::Result<()> {
        self.file.finish_over(existing)
    }
}

impl Sink for DataFile {
    fn put_unsummed(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES || bytes.len() >= PART_BYTES {
            self.flush()?;
        }
        if bytes.len() >= PART_BYTES {
            self.file.write_all(bytes)?;
        } else {
            self.buffer.extend_from_slice(bytes);
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}
