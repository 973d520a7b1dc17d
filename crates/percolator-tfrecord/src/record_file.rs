//! Opens a file of either form: plain or compressed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use percolator_files::checksum::crc32c;
use percolator_files::what::{self, Kind, begins_with_record};
use percolator_files::{Access, shown};

use crate::compression::Compression;
use crate::error::TfRecordError;
use crate::frame::HEAD_BYTES;
use crate::open_files;
use crate::packed::{PackedFile, detect};
use crate::plain::PlainFile;

/// How a file is opened.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether it is mapped or read. A compressed file is always read.
    pub access: Access,
    /// How it is compressed. `None` detects it: a file whose first record has a length with the right
    /// checksum is plain; any other that begins with GZIP's two bytes is GZIP; one that begins like ZLIB, and
    /// unpacks to a record, is ZLIB. Everything else is read as plain.
    pub compression: Option<Compression>,
}

/// A fact that identifies the state of a file: its name, and what is known.
pub type Fact = (&'static str, String);

/// A TFRecord file, opened for reading. Clones share it.
#[derive(Clone, Debug)]
pub enum RecordFile {
    /// A file that is not compressed.
    Plain(Arc<PlainFile>),
    /// A compressed file.
    Packed(Arc<PackedFile>),
}

impl RecordFile {
    /// Opens a file.
    ///
    /// # Errors
    ///
    /// [`TfRecordError`] if there is no such file, or if it is known to be of another kind. Damage is an
    /// error of the walk that reaches it.
    pub fn open(path: &Path, options: &Options) -> Result<Self, TfRecordError> {
        let (file, state) = open_files::open(path)?;
        let bytes = state.bytes;
        let failed = |error: io::Error| TfRecordError::io(path, "read the file", &error);
        let mut head = [0; HEAD_BYTES];
        let read = bytes.min(HEAD_BYTES as u64);
        let head = &mut head[..usize::try_from(read).unwrap_or(HEAD_BYTES)];
        file.read_exact_at(head, 0).map_err(failed)?;
        let compression = options.compression.unwrap_or_else(|| detect(head, &file));
        // Damage is left to the walk that reaches it; this is about files that never were TFRecord files.
        let is_detected = options.compression.is_none() && compression == Compression::Plain;
        if is_detected
            && bytes > 0
            && !begins_with_record(head, bytes)
            && let Some(thing) = what::instead_of(&[Kind::TfRecord, Kind::Damaged], path)
        {
            let (path, thing) = (path.to_owned(), thing.to_string());
            return Err(TfRecordError::Instead { path, wanted: "a TFRecord file", thing });
        }
        let ends = checksum_of_ends(&file, bytes).map_err(failed)?;
        let opened = match compression {
            Compression::Plain => {
                let reading = options.access.of(&file);
                RecordFile::Plain(Arc::new(PlainFile::open(path, (&file, state), ends, reading)?))
            }
            compression => {
                RecordFile::Packed(Arc::new(PackedFile { path: path.to_owned(), state, ends, compression }))
            }
        };
        tracing::debug!(path = %shown::path(path), bytes, ?compression, "opened a TFRecord file");
        Ok(opened)
    }

    /// Returns the file for access to its records by their places.
    ///
    /// # Errors
    ///
    /// [`TfRecordError::InOrderAlone`] if it is compressed.
    pub fn plain(&self) -> Result<&Arc<PlainFile>, TfRecordError> {
        match self {
            RecordFile::Plain(plain) => Ok(plain),
            RecordFile::Packed(packed) => Err(TfRecordError::InOrderAlone { file: packed.path.clone() }),
        }
    }

    /// Returns what identifies the state of the file: how it is compressed, its length, and a checksum of its
    /// beginning and its end. A compressed file ends with a checksum of all that it unpacks to.
    #[must_use]
    pub fn facts(&self) -> Vec<Fact> {
        let (compression, state, ends) = match self {
            RecordFile::Plain(plain) => (None, plain.state, plain.ends),
            RecordFile::Packed(packed) => (Some(packed.compression), packed.state, packed.ends),
        };
        let mut facts = Vec::new();
        facts.extend(compression.map(|compression| ("compression", compression.to_string())));
        facts.push(("bytes", state.bytes.to_string()));
        facts.push(("ends", format!("checksum {ends:08x}")));
        facts
    }
}

/// The checksum of a file's beginning and its end.
fn checksum_of_ends(file: &File, bytes: u64) -> io::Result<u32> {
    const PART_BYTES: u64 = 512;

    let mut ends = Vec::new();
    let part = bytes.min(PART_BYTES);
    for start in [0, bytes - part] {
        let mut end = vec![0; usize::try_from(part).unwrap_or_default()];
        file.read_exact_at(&mut end, start)?;
        ends.extend_from_slice(&end);
    }
    Ok(crc32c(&ends))
}
