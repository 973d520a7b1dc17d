//! TFRecord, TensorFlow's file of records.
//!
//! A file is a sequence of records, each with its length and two masked CRC-32Cs, one of the length and one
//! of the data. It may be compressed as a whole, with GZIP or ZLIB.
//!
//! ```text
//! find         which files a path means: a file, a folder, a pattern
//!   v
//! mod          opens a file; packed: how it is compressed
//!   v
//! frame        how a record is framed
//!   v
//! plain, walk  a file that is not compressed, mapped or read, from record to record; open_files: only some
//! packed_walk  a compressed file, unpacked in order (inflate); buffer: for values of any length
//!   v
//! cursor       reads in order, or a plain file by position (index); key: a record's key
//! writer       writes a file
//! ```
//!
//! - Both checksums of each record are verified. The cursor verifies the length's before it uses the length.
//!   The data's is verified by the worker that uses the data, if they are lent from a map and the cursor is a
//!   feed's; otherwise by the cursor. A record that a cursor skips is not read, and its data are not
//!   verified.
//! - A stored length alone never causes an allocation: a plain file must have that many bytes, and a
//!   compressed one is unpacked piece by piece.
//! - A record has at most 4 GiB - 1 of data, as in an LMDB: a file with holes may be longer than its disk.
//! - A record's key is its position in its file, in decimal, with at least eight digits.

mod buffer;
mod cursor;
mod error;
mod find;
mod frame;
mod index;
mod inflate;
mod key;
mod open_files;
mod packed;
mod packed_walk;
mod plain;
mod walk;
mod writer;

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use percolator_files::checksum::crc32c;

pub use self::error::{RecordAt, TfRecordError};
pub use self::writer::{TfRecordWriter, write_record};

use self::cursor::{TfRecordCursor, Verify};
pub(crate) use self::frame::{FrameFault, HEAD_BYTES, read_frame};
use self::index::Indexed;
use self::packed::Packed;
use self::plain::Plain;
pub(crate) use self::writer::frame_around;
use super::joined::Joined;
use super::{Cursor, Identity, IndexPlace, NOT_WRITTEN, Source, SourceError, VerifiesLater};
use percolator_files::Access;
use percolator_files::shown;
use percolator_files::what::Kind;
use percolator_files::what::begins_with_record;

/// How a TFRecord file is compressed: TensorFlow's `compression_type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Compression {
    /// Not compressed: `""` or `"NONE"`.
    #[default]
    Plain,
    /// `"GZIP"`.
    Gzip,
    /// `"ZLIB"`.
    Zlib,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::Plain => "a plain file",
            Compression::Gzip => "GZIP",
            Compression::Zlib => "ZLIB",
        })
    }
}

/// A TFRecord file, opened for reading.
///
/// A plain file is mapped ([`Access`]), and its records are lent. A compressed one is unpacked as it is read,
/// in order only: [`Source::index`] refuses it, and a cursor that seeks in it unpacks what comes before.
///
/// A record's key is its position in its file, in decimal: `00000042`. Its data have at most 4 GiB - 1.
///
/// ```no_run
/// use percolator::source::{Source, TfRecord};
///
/// let records = TfRecord::open("train-00000-of-01024.tfrecord")?;
/// let mut cursor = records.cursor()?;
/// while let Some(entry) = cursor.advance()? {
///     println!("{} bytes", entry.value().len());
/// }
/// # Ok::<(), percolator::source::SourceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TfRecord {
    /// As the caller gave it.
    path: PathBuf,
    body: Body,
    /// How the file is recognised.
    facts: Identity,
    /// The number of records, once it is known. Clones share it.
    records: Arc<OnceCell<u64>>,
    /// The index of the records, once it was requested. Clones share it.
    indexed: Arc<Mutex<Option<Indexed>>>,
}

#[derive(Clone, Debug)]
enum Body {
    Plain(Arc<Plain>),
    Packed(Arc<Packed>),
}

/// How a [`TfRecord`] is opened.
///
/// ```no_run
/// use percolator::tfrecord::{Compression, TfRecordOptions};
///
/// let options = TfRecordOptions::default().compression(Compression::Gzip);
/// let train = options.open_all(["train-*.tfrecord.gz"])?;
/// # Ok::<(), percolator::source::SourceError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct TfRecordOptions {
    access: Access,
    compression: Option<Compression>,
}

impl TfRecordOptions {
    /// Sets how the file is read (default: [`Access::Auto`]). With [`Access::Read`], and for a compressed
    /// file, records are copied, and the cursor verifies their data.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// States how the file is compressed. By default that is detected: a file whose first record has a length
    /// with the right checksum is plain; any other that begins with GZIP's two bytes is GZIP; one that begins
    /// like ZLIB, and unpacks to a record, is ZLIB. Everything else is read as plain.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.compression = Some(compression);
        self
    }

    /// Opens a file.
    ///
    /// # Errors
    ///
    /// As [`TfRecord::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<TfRecord, SourceError> {
        TfRecord::open_with(path.as_ref(), self)
    }

    /// Opens several files as one data set. Each path is a file, a folder, all of whose files are read, or a
    /// pattern with `*`, `?` and `[...]`. The files of a folder or a pattern are sorted by the bytes of their
    /// names, as a shell sorts them in the C locale. Hidden files of a folder are left out.
    ///
    /// # Errors
    ///
    /// As [`TfRecord::open`], and [`TfRecordError::NoFiles`] if a folder or a pattern has no file.
    pub fn open_all(&self, paths: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Joined, SourceError> {
        let mut sources: Vec<Arc<dyn Source>> = Vec::new();
        for path in paths {
            sources.extend(self.open_each(Path::new(""), path.as_ref())?);
        }
        if sources.is_empty() {
            let (path, message) = (PathBuf::new(), "no path was given");
            return Err(TfRecordError::NoFiles { path, message }.into());
        }
        Ok(Joined::of(sources))
    }

    /// Opens the files that a path means.
    pub(crate) fn open_each(&self, root: &Path, path: &Path) -> Result<Vec<Arc<dyn Source>>, SourceError> {
        let open = |path: PathBuf| Ok(Arc::new(self.open(path)?) as Arc<dyn Source>);
        find::files(root, path)?.into_iter().map(open).collect()
    }
}

/// Returns the files that a path means, sorted: the file itself, all files of a folder, or those that match a
/// pattern. See [`TfRecordOptions::open_all`].
///
/// # Errors
///
/// [`SourceError`] if there are none.
pub fn files(path: impl AsRef<Path>) -> Result<Vec<PathBuf>, SourceError> {
    find::files(Path::new(""), path.as_ref())
}

/// Returns whether a file would be one of [those](files) that a path means, if it existed: its contents would
/// be taken for records. A relative path begins at `root`, which is not part of a pattern.
#[must_use]
pub fn is_among(file: impl AsRef<Path>, root: impl AsRef<Path>, path: impl AsRef<Path>) -> bool {
    find::is_among(file.as_ref(), root.as_ref(), path.as_ref())
}

impl TfRecord {
    /// Opens a file.
    ///
    /// The file is mapped, unless it is on a network file system ([`Access`]). If it is truncated while it is
    /// mapped, or cannot be read from its disk, the operating system ends the process (SIGBUS).
    ///
    /// # Errors
    ///
    /// [`SourceError`] if there is no such file. Damage is an error of the cursor that reaches it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, SourceError> {
        Self::options().open(path)
    }

    /// Returns options, all at their defaults.
    #[must_use]
    pub fn options() -> TfRecordOptions {
        TfRecordOptions::default()
    }

    fn open_with(path: &Path, options: &TfRecordOptions) -> Result<Self, SourceError> {
        let (file, state) = open_files::open(path)?;
        let bytes = state.bytes;
        let failed = |error: std::io::Error| SourceError::io(path, "read the file", &error);
        let mut head = [0; HEAD_BYTES];
        let read = bytes.min(HEAD_BYTES as u64);
        let head = &mut head[..usize::try_from(read).unwrap_or(HEAD_BYTES)];
        file.read_exact_at(head, 0).map_err(failed)?;
        let compression = options.compression.unwrap_or_else(|| packed::detect(head, &file));
        // Damage is left to the cursor that reaches it; this is about files that never were TFRecord files.
        let is_detected = options.compression.is_none() && compression == Compression::Plain;
        if is_detected
            && bytes > 0
            && !begins_with_record(head, bytes)
            && let Some(error) =
                SourceError::instead(path, "a TFRecord file", &[Kind::TfRecord, Kind::Damaged])
        {
            return Err(error);
        }
        let facts = facts(&file, bytes, compression).map_err(failed)?;
        let body = match compression {
            Compression::Plain => {
                let reading = options.access.of(&file);
                Body::Plain(Arc::new(Plain::open(path, (&file, state), reading)?))
            }
            compression => Body::Packed(Arc::new(Packed { path: path.to_owned(), state, compression })),
        };
        tracing::debug!(path = %shown::path(path), bytes, ?compression, "opened a TFRecord file");
        let (path, records, indexed) = (path.to_owned(), Arc::default(), Arc::default());
        Ok(TfRecord { path, body, facts, records, indexed })
    }

    fn indexed(&self) -> Option<Indexed> {
        self.indexed.lock().clone()
    }
}

/// How a file is recognised: its length, and a checksum of its beginning and its end. A compressed file ends
/// with a checksum of all that it unpacks to.
fn facts(file: &File, bytes: u64, compression: Compression) -> std::io::Result<Identity> {
    const PART_BYTES: u64 = 512;

    let mut ends = Vec::new();
    let part = bytes.min(PART_BYTES);
    for start in [0, bytes - part] {
        let mut end = vec![0; usize::try_from(part).unwrap_or_default()];
        file.read_exact_at(&mut end, start)?;
        ends.extend_from_slice(&end);
    }
    let facts = Identity::new().with("kind", "TFRecord");
    let facts = match compression {
        Compression::Plain => facts,
        packed => facts.with("compression", packed),
    };
    Ok(facts.with("bytes", bytes).with("ends", format_args!("checksum {:08x}", crc32c(&ends))))
}

impl Source for TfRecord {
    fn path(&self) -> &Path {
        &self.path
    }

    /// Known once the file is indexed, or was read to its end.
    fn records(&self) -> Option<u64> {
        self.records.get().copied()
    }

    fn identity(&self) -> Identity {
        self.facts.clone()
    }

    /// The memory of the index.
    fn held_bytes(&self) -> usize {
        self.indexed.lock().as_ref().map_or(0, |indexed| indexed.index.held_bytes())
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(TfRecordCursor::new(self, Verify::ByCursor)))
    }

    fn is_seekable(&self) -> bool {
        self.indexed.lock().is_some()
    }

    fn index(&self, place: &IndexPlace) -> Result<(), SourceError> {
        self.make_seekable(place)
    }

    fn count(&self, place: &IndexPlace) -> Result<(), SourceError> {
        self.count_records(place)
    }

    fn commit(&self) -> Result<Option<u64>, SourceError> {
        Ok(Some(NOT_WRITTEN))
    }

    fn index_checksum(&self) -> Option<u32> {
        self.indexed.lock().as_ref().map(|indexed| indexed.index.checksum())
    }

    fn deferring_cursor(&self, _promise: VerifiesLater) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(TfRecordCursor::new(self, Verify::ByUser)))
    }
}
