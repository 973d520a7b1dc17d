//! Where records are stored: [`Lmdb`], [`LevelDb`], [`TfRecord`], [`ImageList`], several of them [`Joined`],
//! a function ([`FnSource`]), or a type of your own.
//!
//! A [`Source`] is opened once and shared. Each [`Cursor`] reads it independently, in key order or by
//! position, and lends or copies a record's key and value ([`Entry`]). A source does not know what the bytes
//! mean: that is the decoder's part. The crate's own sources also read ahead, defer checksums to the workers,
//! and keep an index of where each record is ([`IndexPlace`]).

mod checksum;
mod entry;
pub(crate) mod files;
mod from_fn;
mod identity;
pub(crate) mod image_list;
mod in_memory;
mod index;
pub(crate) mod internals;
pub(crate) mod joined;
mod lenders;
pub mod leveldb;
pub(crate) mod lmdb;
mod page_cache;
pub(crate) mod paired;
pub(crate) mod run;
pub(crate) mod samples;
pub mod tfrecord;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use self::leveldb::LevelDbError;
use self::tfrecord::TfRecordError;
use crate::record::Key;
use percolator_files::shown;
use percolator_files::what;

pub(crate) use self::checksum::{CHECKSUM_BYTES, TableChecksum, TableKeeper, UnverifiedTable};
pub(crate) use self::entry::Damage;
pub use self::entry::Entry;
pub use self::from_fn::FnSource;
pub use self::identity::Identity;
pub(crate) use self::identity::{FIRST, INDEX, LAST};
pub use self::image_list::{ImageList, ImageListError, ListedFile};
pub use self::index::IndexPlace;
pub(crate) use self::internals::VerifiesLater;
pub use self::joined::Joined;
pub(crate) use self::lenders::LENDERS_BYTES;
pub use self::lenders::Lender;
pub use self::leveldb::LevelDb;
pub use self::lmdb::{Lmdb, LmdbError, LmdbOptions};
pub use self::paired::Matching;
pub(crate) use self::run::{COMPANION_BYTES, NUMBER_BYTES, PLACE_BYTES};
pub use self::run::{Record, Run};
pub use self::tfrecord::TfRecord;
pub use percolator_files::Access;

/// How far ahead of a cursor its files are read when they are not in memory.
const READ_AHEAD_BYTES: u64 = 64 << 20;

/// A source of records, opened for reading.
///
/// A source is cheap to share; each [`Cursor`] reads it independently.
pub trait Source: Send + Sync + fmt::Debug {
    /// The source's path, which names it in messages and in the registry.
    fn path(&self) -> &Path;

    /// The number of records, if known without reading them. A [plan](crate::order::Plan) is made for this
    /// number: if a cursor then has more, or fewer, the feed ends with an error.
    fn records(&self) -> Option<u64>;

    /// Distinguishes this data set from others, and from its own earlier states. A
    /// [`Snapshot`](crate::Snapshot) recognises its data set by this. The path and the modification time are
    /// not part of it: a copy is the same data set. A feed adds the first record.
    fn identity(&self) -> Identity {
        match self.records() {
            Some(records) => Identity::new().with("records", records),
            None => Identity::new(),
        }
    }

    /// How passes over the source differ. Nearly every source has the same records in the same order in each
    /// pass.
    fn passes(&self) -> Passes {
        Passes::Alike
    }

    /// The number of records in each of the consecutive files that make up the source, if known.
    /// [`AutoShardPolicy::File`](crate::order::AutoShardPolicy::File) distributes these files. By default a
    /// source is one file.
    fn file_records(&self) -> Option<Vec<u64>> {
        Some(vec![self.records()?])
    }

    /// Bytes kept in memory outside the page cache, as far as known before a cursor is opened. A feed's
    /// memory budget counts them.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Opens a cursor before the first record.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the database cannot be read.
    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError>;

    /// Whether a cursor seeks to any position directly ([`Cursor::seek`]) instead of scanning up to it.
    /// Shuffling a source that has to scan would read most of it for each record.
    fn is_seekable(&self) -> bool {
        false
    }

    /// Makes the source seekable if that takes an index of its records: loads the index from `place`, or
    /// builds it and stores it there, which may take seconds. A source that needs no index, or cannot have
    /// one, stays as it is; [`is_seekable`](Self::is_seekable) tells which. Open cursors use the index from
    /// their next seek on.
    ///
    /// An index that is damaged, or is of another state of the database, is rebuilt; an event reports it.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the database cannot be read, is damaged, has records without positions, or is a
    /// compressed file ([`TfRecordError::InOrderAlone`]).
    fn index(&self, _place: &IndexPlace) -> Result<(), SourceError> {
        Ok(())
    }

    /// What the crate's own sources can do in addition. Other crates cannot provide it.
    #[doc(hidden)]
    fn internals(&self) -> Option<&dyn internals::SourceInternals> {
        None
    }
}

/// How the passes over a source differ from one another.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Passes {
    /// They do not differ.
    #[default]
    Alike,
    /// The first pass starts after some records: a list with a `rand_skip`. A [plan](crate::order::Plan),
    /// which knows records by position, is not affected; a run in round-robin order cannot be resumed.
    FirstIsShorter,
    /// Each pass has its own order: a list that shuffles itself. No plan can tell which record comes when.
    Shuffled,
}

/// Reads a source in key order, or seeks by position. A cursor stays on the thread that created it.
pub trait Cursor {
    /// Reads the next record; `None` past the last one.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the record cannot be read. Reading ends there.
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError>;

    /// Skips the next record without returning its bytes; `false` past the last one.
    ///
    /// # Errors
    ///
    /// As [`advance`](Self::advance).
    fn skip(&mut self) -> Result<bool, SourceError> {
        Ok(self.advance()?.is_some())
    }

    /// Goes back before the first record.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the database cannot be read any more.
    fn rewind(&mut self) -> Result<(), SourceError>;

    /// Seeks to a position: the next step returns the record of that number, counted from 0 in the cursor's
    /// order. Reading then continues from there. Seeking past the end is allowed; [`advance`](Self::advance)
    /// then returns `None`.
    ///
    /// The default implementation takes time proportional to the position: it rewinds and skips all records
    /// before it. A source that can do better ([`Source::is_seekable`]) should override it. So should a
    /// source whose passes differ, because the default rewinds.
    ///
    /// # Errors
    ///
    /// As [`advance`](Self::advance) and [`rewind`](Self::rewind).
    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        self.rewind()?;
        for _ in 0..position {
            if !self.skip()? {
                break;
            }
        }
        Ok(())
    }

    /// What the crate's own cursors can do in addition. Other crates cannot provide it.
    #[doc(hidden)]
    fn internals(&mut self) -> Option<&mut dyn internals::CursorInternals> {
        None
    }
}

/// An error of a source, or of one of its records or files.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// An error of a caller-implemented source.
    #[error("{}: {message}", shown::path(path))]
    Other {
        /// The source.
        path: PathBuf,
        /// The source's message.
        message: String,
    },
    /// The system refuses: nothing is at the path, or it cannot be read or mapped.
    #[error("{}: cannot {action}: {message}", shown::path(path))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        /// The operating system's message.
        message: String,
        /// The kind of that error.
        kind: io::ErrorKind,
        /// The operating system's number of that error (`errno`), if it is the system's.
        code: Option<i32>,
    },
    /// Something is at the path, but not a database of this kind.
    #[error("{}: not {kind}: there is no {missing} in it{hint}", shown::path(path))]
    NotADatabase {
        /// The folder, or the file.
        path: PathBuf,
        /// The kind of database expected, with its article.
        kind: &'static str,
        /// The file that is missing.
        missing: &'static str,
        /// What to do instead; may be empty.
        hint: &'static str,
    },
    /// Something else is at the path, and its kind is known.
    #[error("{}: not {wanted}: it is {thing}", shown::path(path))]
    Instead {
        /// The path.
        path: PathBuf,
        /// What was wanted, with its article.
        wanted: &'static str,
        /// What is there, and what to do about it.
        thing: String,
    },
    /// The database holds no record, so there is nothing to feed.
    #[error("{}: there is no record: a feed needs at least 1", shown::path(path))]
    Empty {
        /// The database.
        path: PathBuf,
    },
    /// The database ended or changed where it must not.
    #[error("{}: record {index}: {message}", shown::path(path))]
    Broken {
        /// The database.
        path: PathBuf,
        /// The position of the record that could not be read.
        index: u64,
        /// What was found.
        message: String,
    },
    /// The database was written to after its records were counted, and before they were read.
    #[error(
        "{}: it was written to while the feed was built, so its records are not those of the feed's plan; \
         build the feed again; if its databases were joined, join them again first",
        shown::path(path)
    )]
    Committed {
        /// The database.
        path: PathBuf,
    },
    /// The database's records cannot be indexed.
    #[error("{}: its records cannot be addressed by position: {found}; {hint}", shown::path(path))]
    NoPositions {
        /// The database.
        path: PathBuf,
        /// What prevents it.
        found: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// A record and its companion have different keys.
    #[error(
        "{}: record {index} has the key {key}, but its companion in {} has the key {found}; pair databases \
         that were written together, or match them by order",
        shown::path(path),
        shown::path(companions)
    )]
    KeysDiffer {
        /// The source.
        path: PathBuf,
        /// The source of its companions.
        companions: PathBuf,
        /// The position of both records.
        index: u64,
        /// The record's key.
        key: Key,
        /// The companion's key.
        found: Key,
    },
    /// A source ended before the one it is paired with.
    #[error(
        "{}: it ends after {records} records, but {}, with which it is paired, continues; pair databases \
         with the same number of records",
        shown::path(path),
        shown::path(longer)
    )]
    Unpaired {
        /// The source that ended.
        path: PathBuf,
        /// How many records it has.
        records: u64,
        /// The source that continues.
        longer: PathBuf,
    },
    /// A LevelDB cannot be read.
    #[error(transparent)]
    LevelDb(LevelDbError),
    /// A TFRecord file cannot be read.
    #[error(transparent)]
    TfRecord(#[from] TfRecordError),
    /// An LMDB cannot be read.
    #[error(transparent)]
    Lmdb(#[from] LmdbError),
    /// A list of images cannot be read.
    #[error(transparent)]
    ImageList(#[from] ImageListError),
}

/// Errors that other sources can have, too, are reported as theirs.
impl From<LevelDbError> for SourceError {
    fn from(error: LevelDbError) -> Self {
        match error {
            LevelDbError::Io { path, action, message, kind, code } => {
                SourceError::Io { path, action, message, kind, code }
            }
            LevelDbError::NotADatabase { path, hint } => {
                SourceError::NotADatabase { path, kind: "a LevelDB database", missing: "CURRENT", hint }
            }
            LevelDbError::Instead { path, thing } => {
                SourceError::Instead { path, wanted: "a LevelDB", thing }
            }
            error => SourceError::LevelDb(error),
        }
    }
}

impl SourceError {
    /// Creates the error of a caller-implemented source, from the source's path and a message or another
    /// error.
    pub fn other(path: impl Into<PathBuf>, message: impl fmt::Display) -> Self {
        SourceError::Other { path: path.into(), message: message.to_string() }
    }

    /// Returns the file or folder in which something was found, if that is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            SourceError::Other { path, .. }
            | SourceError::Io { path, .. }
            | SourceError::NotADatabase { path, .. }
            | SourceError::Instead { path, .. }
            | SourceError::Empty { path }
            | SourceError::Broken { path, .. }
            | SourceError::Committed { path }
            | SourceError::NoPositions { path, .. }
            | SourceError::KeysDiffer { path, .. }
            | SourceError::Unpaired { path, .. } => Some(path),
            SourceError::Lmdb(error) => Some(error.path()),
            SourceError::ImageList(error) => Some(error.path()),
            SourceError::LevelDb(error) => Some(error.file()),
            SourceError::TfRecord(error) => Some(error.file()),
        }
    }

    /// What is at a path instead of what was wanted, if that is known; `None` if it may be a damaged
    /// database.
    pub(crate) fn instead(path: &Path, wanted: &'static str, kinds: &[what::Kind]) -> Option<Self> {
        let thing = what::instead_of(kinds, path)?.to_string();
        Some(SourceError::Instead { path: path.to_owned(), wanted, thing })
    }

    pub(crate) fn io(path: &Path, action: &'static str, error: &io::Error) -> Self {
        let (path, message) = (path.to_owned(), error.to_string());
        SourceError::Io { path, action, message, kind: error.kind(), code: error.raw_os_error() }
    }
}
