//! Compressed files: detecting the format, and unpacking.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;

use percolator_files::file_id::FileState;

use crate::compression::Compression;
use crate::error::TfRecordError;
use crate::frame::{HEAD_BYTES, length_in};
use crate::inflate::Inflate;
use crate::open_files::open_again;

/// How much of the compressed file is read at a time.
const READ_BYTES: usize = 128 << 10;
/// The most bytes that deflate can produce from one byte.
const RATIO_MAX: u64 = 1032;

/// A compressed file. Its records are read in order only.
#[derive(Debug)]
pub struct PackedFile {
    /// As messages name it.
    pub(crate) path: PathBuf,
    /// The state of the whole file.
    pub(crate) state: FileState,
    /// The checksum of its beginning and its end.
    pub(crate) ends: u32,
    pub(crate) compression: Compression,
}

impl PackedFile {
    /// The most bytes that the file can unpack to.
    pub(crate) fn unpacked_bytes_max(&self) -> u64 {
        self.bytes().saturating_mul(RATIO_MAX)
    }

    /// The length of the file.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.bytes
    }

    /// What the file unpacks to, from the start.
    pub(crate) fn stream(&self) -> Result<Stream, TfRecordError> {
        Ok(Stream::new(open_again(&self.path, self.state)?, self.compression))
    }
}

/// Detects how a file that begins like this is compressed.
///
/// If the first record's length has the right checksum, the file is plain: by chance, that happens once in
/// four billion times. Otherwise two bytes identify GZIP. ZLIB's header has only 5 fixed bits, so its first
/// record is unpacked too; if there is none, the file is taken for a damaged plain one.
pub(crate) fn detect(head: &[u8], file: &File) -> Compression {
    match head {
        [] => Compression::Plain,
        // The record itself may be truncated.
        head if head.first_chunk().is_some_and(|head| length_in(head).is_ok()) => Compression::Plain,
        [0x1f, 0x8b, ..] => Compression::Gzip,
        [first, second, ..]
            if first & 0xf == 8
                && u16::from_be_bytes([*first, *second]) % 31 == 0
                && unpacks_to_record(file) =>
        {
            Compression::Zlib
        }
        _ => Compression::Plain,
    }
}

/// Whether a file, read as ZLIB, unpacks to nothing or to a record's head.
fn unpacks_to_record(file: &File) -> bool {
    let Ok(file) = file.try_clone() else { return false };
    if io::Seek::rewind(&mut &file).is_err() {
        return false;
    }
    let mut head = [0; HEAD_BYTES];
    match Stream::new(file, Compression::Zlib).fill(&mut head) {
        Ok(0) => true,
        Ok(_) => length_in(&head).is_ok(),
        Err(_) => false,
    }
}

/// What a compressed file unpacks to. It may consist of several members one after the other, which unpack to
/// one sequence of bytes, and may end with zeros.
pub(crate) struct Stream {
    file: Counted,
    inflate: Inflate,
    compression: Compression,
    is_inside_member: bool,
    is_behind_member: bool,
}

impl Stream {
    fn new(file: File, compression: Compression) -> Self {
        let file = Counted { file: BufReader::with_capacity(READ_BYTES, file), taken: 0 };
        Stream {
            file,
            inflate: Inflate::new(),
            compression,
            is_inside_member: false,
            is_behind_member: false,
        }
    }

    /// The memory that a stream takes, about: the decompressor's window and tables, and a buffer.
    pub(crate) const HELD_BYTES: usize = READ_BYTES + (64 << 10);

    /// How many bytes of the file were consumed.
    pub(crate) fn packed_offset(&self) -> u64 {
        self.file.taken
    }

    /// Fills a buffer as far as there are bytes; returns their number.
    pub(crate) fn fill(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.read(rest) {
                Ok(0) => break,
                Ok(read) => filled = filled.saturating_add(read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.is_inside_member {
                match self.file.fill_buf()?.first() {
                    None => return Ok(0),
                    Some(0) if self.is_behind_member => return self.pass_zeros().map(|()| 0),
                    Some(_) => {}
                }
                self.inflate.begin(&mut self.file, self.compression != Compression::Zlib)?;
                self.is_inside_member = true;
            }
            let read = self.inflate.read(&mut self.file, into)?;
            if read > 0 {
                return Ok(read);
            }
            (self.is_inside_member, self.is_behind_member) = (false, true);
        }
    }

    /// Skips the zeros that fill a file up after its last member: tapes and some file systems add them, and
    /// `gunzip` skips them.
    fn pass_zeros(&mut self) -> io::Result<()> {
        loop {
            let bytes = self.file.fill_buf()?;
            let (zeros, all) = (bytes.iter().take_while(|byte| **byte == 0).count(), bytes.len());
            self.file.consume(zeros);
            if zeros < all {
                let message = "after the zeros behind a member there are other bytes";
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            if all == 0 {
                return Ok(());
            }
        }
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream").field("packed_offset", &self.packed_offset()).finish_non_exhaustive()
    }
}

/// A file, and how many bytes of it were consumed.
struct Counted {
    file: BufReader<File>,
    taken: u64,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.taken = self.taken.saturating_add(read as u64);
        Ok(read)
    }
}

impl BufRead for Counted {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.file.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_add(bytes as u64);
        self.file.consume(bytes);
    }
}
