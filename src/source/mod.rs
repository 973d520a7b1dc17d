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
use percolator_files::caller::words;
use percolator_files::shown;
use percolator_files::what;

pub(crate) use self::checksum::{CHECKSUM_BYTES, Keeper, TableChecksum, UnverifiedTable};
pub(crate) use self::entry::Damage;
pub use self::entry::Entry;
pub use self::from_fn::FnSource;
pub use self::identity::Identity;
pub(crate) use self::identity::{FIRST, INDEX};
pub use self::image_list::{ImageList, ListedFile};
pub use self::index::IndexPlace;
pub(crate) use self::internals::VerifiesLater;
pub use self::joined::Joined;
pub(crate) use self::lenders::LENDERS_BYTES;
pub use self::lenders::Lender;
pub use self::leveldb::LevelDb;
pub use self::lmdb::{Lmdb, LmdbOptions};
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
    /// The file is not an LMDB data file.
    #[error("{}: not an LMDB data file: found {found}", shown::path(path))]
    NotLmdb {
        /// The database.
        path: PathBuf,
        /// What the file is instead.
        found: String,
    },
    /// The file is shorter than the pages its newest commit uses.
    #[error(
        "{}: the file is cut short: it has {found_bytes} bytes, and its last page (number {last_page}, \
         {page_bytes} bytes a page) ends at byte {needed_bytes}; copy it again from where it came",
        shown::path(path)
    )]
    Truncated {
        /// The data file.
        path: PathBuf,
        /// Its length.
        found_bytes: u64,
        /// The length its pages need.
        needed_bytes: u64,
        /// The number of the last page in use.
        last_page: u64,
        /// The length of a page.
        page_bytes: u64,
    },
    /// The database holds no record, so there is nothing to feed.
    #[error("{}: there is no record: a feed needs at least 1", shown::path(path))]
    Empty {
        /// The database.
        path: PathBuf,
    },
    /// The database library refused.
    #[error("{}: {call} failed: {message}{hint}", shown::path(path))]
    Library {
        /// The database.
        path: PathBuf,
        /// The library's call that failed.
        call: &'static str,
        /// The library's message.
        message: String,
        /// What to do about it; may be empty.
        hint: &'static str,
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
    /// A page of the database is invalid.
    #[error(
        "{}: page {page} {message}{}; the file is damaged: copy it again from where it came",
        shown::path(path),
        Behind(before)
    )]
    BrokenPage {
        /// The database.
        path: PathBuf,
        /// The number of the page.
        page: u64,
        /// What was found.
        message: String,
        /// The last key before that page, if the cursor reached one.
        before: Option<Key>,
    },
    /// The database was written to, and nothing protected the pages that were read.
    #[error(
        "{}: {} transaction {transaction} was read without a lock; {}",
        shown::path(path),
        match found > transaction {
            true => format!("transaction {found} was committed to it while"),
            false => format!("another database, of transaction {found}, was written over it while"),
        },
        match found > transaction {
            true => "read it when nobody writes to it, or read a copy (mdb_copy), or map it with its lock \
                     (access mapped, on a local disk), which keeps writers from the pages that are read",
            false => "read it again; replace a database by renaming, and not by writing over it",
        }
    )]
    WrittenTo {
        /// The database.
        path: PathBuf,
        /// The transaction that was read.
        transaction: u64,
        /// The newest transaction.
        found: u64,
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
    /// The newest commit of an LMDB cannot be determined.
    #[error(
        "{}: {found}; open it when nobody writes to it; if nobody does, the file was overwritten while a \
         program had it open: end that program",
        shown::path(path)
    )]
    Busy {
        /// The database.
        path: PathBuf,
        /// What was found.
        found: String,
    },
    /// Another file replaced the database while it was being opened.
    #[error("{}: another file took its place while it was opened; open it again", shown::path(path))]
    Replaced {
        /// The database.
        path: PathBuf,
    },
    /// The file holds named databases instead of records.
    #[error(
        "{}: it holds databases and not records: {}; name one of them{}",
        shown::path(path),
        Names(names),
        words(" (lmdb_named, or LmdbOptions::name)", " with --database NAME", " with lmdb_name=")
    )]
    HoldsDatabases {
        /// The file.
        path: PathBuf,
        /// The first few names.
        names: Vec<String>,
    },
    /// The file holds no database of this name.
    #[error("{}: there is no database {name:?} in it; {}", shown::path(path), Others(names))]
    NoSuchDatabase {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// The first few names that it holds.
        names: Vec<String>,
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
    /// A line of a list of files is empty.
    #[error("{}: line {line} is empty; each line is a file's name, a space and a label", shown::path(path))]
    EmptyLine {
        /// The list.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
    /// A line of a list of files has no label that is a number.
    #[error(
        "{}: line {line}: {}; each line is a file's name, a space and a label, a whole number{hint}",
        shown::path(path),
        match found.as_str() {
            "" => "there is no label".to_owned(),
            found => format!("the label {found} is no number"),
        }
    )]
    Label {
        /// The list.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is in the place of the label; may be empty.
        found: String,
        /// What to do about it; may be empty.
        hint: &'static str,
    },
    /// A label in a list of files does not fit a 32-bit integer.
    #[error(
        "{}: line {line}: the label {found} does not fit 32 bits; labels are whole numbers from \
         -2147483648 to 2147483647",
        shown::path(path)
    )]
    LabelRange {
        /// The list.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The label.
        found: String,
    },
    /// A list of files has too few lines to skip this many.
    #[error(
        "{}: not enough points to skip: {skip} of {found}; lower rand_skip to {found} or less",
        shown::path(path)
    )]
    NotEnoughToSkip {
        /// The list.
        path: PathBuf,
        /// The number of lines in the list.
        found: usize,
        /// The number of lines to skip.
        skip: usize,
    },
    /// A file named by a list cannot be read.
    #[error("{}: line {line}: cannot read {}: {message}", shown::path(path), shown::path(file))]
    ListedFile {
        /// The list.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The file.
        file: PathBuf,
        /// The operating system's message.
        message: String,
        /// Whether the fault lies with the file, so that trying again would fail too.
        is_of_file: bool,
    },
    /// A LevelDB cannot be read.
    #[error(transparent)]
    LevelDb(LevelDbError),
    /// A TFRecord file cannot be read.
    #[error(transparent)]
    TfRecord(#[from] TfRecordError),
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

/// Displays the key after which something was found.
struct Behind<'a>(&'a Option<Key>);

impl fmt::Display for Behind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |key| write!(f, ", after the record with the key {key}"))
    }
}

/// Displays names of databases.
struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, name) in self.0.iter().enumerate() {
            write!(f, "{}{name:?}", if position == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// Displays the databases that exist instead.
struct Others<'a>(&'a [String]);

impl fmt::Display for Others<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [] => f.write_str("it holds none: open it without a name"),
            names => write!(f, "it holds {}", Names(names)),
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
            | SourceError::NotLmdb { path, .. }
            | SourceError::Truncated { path, .. }
            | SourceError::Empty { path }
            | SourceError::Library { path, .. }
            | SourceError::Broken { path, .. }
            | SourceError::BrokenPage { path, .. }
            | SourceError::WrittenTo { path, .. }
            | SourceError::Committed { path }
            | SourceError::Busy { path, .. }
            | SourceError::Replaced { path }
            | SourceError::HoldsDatabases { path, .. }
            | SourceError::NoSuchDatabase { path, .. }
            | SourceError::NoPositions { path, .. }
            | SourceError::KeysDiffer { path, .. }
            | SourceError::Unpaired { path, .. }
            | SourceError::EmptyLine { path, .. }
            | SourceError::Label { path, .. }
            | SourceError::LabelRange { path, .. }
            | SourceError::NotEnoughToSkip { path, .. } => Some(path),
            SourceError::ListedFile { file, .. } => Some(file),
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
