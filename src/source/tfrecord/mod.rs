//! TFRecord files as sources of records. [`percolator_tfrecord`] reads and writes the files; its
//! documentation has the format and what is promised.
//!
//! ```text
//! TfRecord -> RecordFile: a plain file, mapped or read, or a compressed one
//!             TfRecordCursor -> PlainWalk, PackedWalk: in order, or a plain file by position (index)
//!                            -> Mapped: what is lent of a map (lending); key: a record's key
//! ```
//!
//! - Both checksums of each record are verified. The cursor verifies the length's before it uses the length.
//!   The data's is verified by the worker that uses the data, if they are lent from a map and the cursor is a
//!   feed's; otherwise by the cursor. A record that a cursor skips is not read, and its data are not
//!   verified.
//! - A record's key is its position in its file, in decimal, with at least eight digits.

mod cursor;
mod index;
mod key;
mod lending;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use once_cell::sync::OnceCell;
use parking_lot::Mutex;
use percolator_files::Access;
use percolator_tfrecord::{Options, RecordFile, files_in};

pub use percolator_tfrecord::{
    Compression, RecordAt, TfRecordError, TfRecordWriter, files, is_among, write_record,
};

use self::cursor::{TfRecordCursor, Verify};
use self::index::Indexed;
use super::joined::Joined;
use super::{Cursor, Identity, IndexPlace, NOT_WRITTEN, Source, SourceError, VerifiesLater};

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
    file: RecordFile,
    /// How the file is recognised.
    facts: Identity,
    /// The number of records, once it is known. Clones share it.
    records: Arc<OnceCell<u64>>,
    /// The index of the records, once it was requested. Clones share it.
    indexed: Arc<Mutex<Option<Indexed>>>,
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
pub struct TfRecordOptions(Options);

impl TfRecordOptions {
    /// Sets how the file is read (default: [`Access::Auto`]). With [`Access::Read`], and for a compressed
    /// file, records are copied, and the cursor verifies their data.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.0.access = access;
        self
    }

    /// States how the file is compressed. By default that is detected: a file whose first record has a length
    /// with the right checksum is plain; any other that begins with GZIP's two bytes is GZIP; one that begins
    /// like ZLIB, and unpacks to a record, is ZLIB. Everything else is read as plain.
    #[must_use]
    pub fn compression(mut self, compression: Compression) -> Self {
        self.0.compression = Some(compression);
        self
    }

    /// Opens a file.
    ///
    /// # Errors
    ///
    /// As [`TfRecord::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<TfRecord, SourceError> {
        let path = path.as_ref().to_owned();
        let file = RecordFile::open(&path, &self.0)?;
        let kind = Identity::new().with("kind", "TFRecord");
        let facts = file.facts().into_iter().fold(kind, |facts, (name, fact)| facts.with(name, fact));
        Ok(TfRecord { path, file, facts, records: Arc::default(), indexed: Arc::default() })
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
        files_in(root, path)?.into_iter().map(open).collect()
    }
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

    fn indexed(&self) -> Option<Indexed> {
        self.indexed.lock().clone()
    }
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
