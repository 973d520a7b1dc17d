//! Where records lie: one file a kind of database, one small trait for all.

pub(crate) mod access;
mod checksum;
mod file_id;
pub(crate) mod files;
mod from_fn;
mod identity;
pub(crate) mod image_list;
mod in_memory;
mod index;
pub(crate) mod joined;
mod lenders;
pub mod leveldb;
pub(crate) mod lmdb;
mod page_cache;
pub(crate) mod paired;
pub(crate) mod run;
pub(crate) mod samples;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use self::files::Files;
use self::leveldb::{LevelDbError, Pool};
use crate::base::offload::Helpers;
use crate::base::shown;
use crate::record::{Key, RecordId};

pub use self::access::Access;
pub(crate) use self::checksum::{CHECKSUM_BYTES, Keeper, TableChecksum, UnverifiedTable};
pub use self::from_fn::FnSource;
pub use self::identity::Identity;
pub(crate) use self::identity::{FIRST, INDEX};
pub use self::image_list::ImageList;
pub use self::index::IndexPlace;
pub use self::joined::Joined;
pub(crate) use self::lenders::LENDERS_BYTES;
pub use self::lenders::Lender;
pub use self::leveldb::LevelDb;
pub use self::lmdb::{Lmdb, LmdbOptions};
pub use self::paired::Matching;
pub(crate) use self::run::{COMPANION_BYTES, PLACE_BYTES};
pub use self::run::{Entry, Record, Run};

/// How far ahead of a walk its files are read, where they are not in memory.
const READ_AHEAD_BYTES: u64 = 64 << 20;

/// A database of records, opened for reading.
///
/// A source is cheap to share; each walk over it is a [`Cursor`] of its own.
pub trait Source: Send + Sync + fmt::Debug {
    /// Where it lies: the name of the source in messages and in the registry.
    fn path(&self) -> &Path;

    /// How many records it holds, where that is known without reading them.
    fn records(&self) -> Option<u64>;

    /// What tells its data set from others, and from itself before it was written to: by this a
    /// [`Snapshot`](crate::Snapshot) is known to be of it. Not the path, nor the time of the last change: a copy is the
    /// same data set. A feed adds its first record.
    fn identity(&self) -> Identity {
        match self.records() {
            Some(records) => Identity::new().with("records", records),
            None => Identity::new(),
        }
    }

    /// Whether each pass has the same records in the same order, which nearly all sources' have.
    fn passes(&self) -> Passes {
        Passes::Alike
    }

    /// How many records each of the files has that it consists of, one behind the other, where that is known: what
    /// [`AutoShardPolicy::File`](crate::order::AutoShardPolicy::File) shares out. A source that says nothing of it is one file.
    fn file_records(&self) -> Option<Vec<u64>> {
        Some(vec![self.records()?])
    }

    /// The names of these files, for messages. Nobody outside has to provide it.
    #[doc(hidden)]
    fn files(&self) -> Files {
        Files::of([self.path()])
    }

    /// Whether neighbouring records may be lent by several: whoever holds some of them makes room for the lenders. Nobody
    /// outside has to provide it.
    #[doc(hidden)]
    fn has_several_lenders(&self) -> bool {
        false
    }

    /// Bytes that it keeps in memory beside the page cache, as far as it knows them before a walk: part of a
    /// feed's memory budget.
    fn held_bytes(&self) -> usize {
        0
    }

    /// Starts a walk before the first record.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the database cannot be read.
    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError>;

    /// Whether a walk comes to any position at once ([`Cursor::seek`]), or has to walk there. Shuffling a source that
    /// has to walk would read most of it for each record.
    fn is_seekable(&self) -> bool {
        false
    }

    /// Makes the source seekable, where that takes an index of its records: finds the index at `place`, or makes it
    /// there, which may take seconds. A source that needs none, or for which there is none, is left as it is;
    /// [`is_seekable`](Self::is_seekable) says which. Walks that have begun come to know of it at their next seek.
    ///
    /// An index that is damaged, or is of the database as it was at another time, is made anew, and an event says so.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the database cannot be read, is damaged, or has records without positions.
    fn index(&self, _place: &IndexPlace) -> Result<(), SourceError> {
        Ok(())
    }

    /// Shows the last record, its key and its value, where a source that is not seekable comes to it at once
    /// and can read it. Nobody outside has to provide it.
    #[doc(hidden)]
    fn look_at_last(&self, _look: &mut dyn FnMut(&[u8], &[u8])) {}

    /// A checksum of the index of its records, where there is one, and where it is the same as long as the
    /// data set is. Nobody outside has to provide it.
    #[doc(hidden)]
    fn index_checksum(&self) -> Option<u32> {
        None
    }

    /// As [`cursor`](Self::cursor), for whoever checks the seals of records before using their values. Nobody
    /// outside can: there is no need to provide it.
    ///
    /// # Errors
    ///
    /// As [`cursor`](Self::cursor).
    #[doc(hidden)]
    fn deferring_cursor(&self, _promise: VerifiesLater) -> Result<Box<dyn Cursor>, SourceError> {
        self.cursor()
    }
}

/// How the passes over a source differ from one another.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Passes {
    /// Not at all.
    #[default]
    Alike,
    /// The first one begins behind some records: a list with a `rand_skip`. In a [plan](crate::order::Plan), which knows records
    /// by their positions, that makes no difference; a run in Caffe's ring cannot be gone on from.
    FirstIsShorter,
    /// Each has an order of its own: a list that shuffles itself. No plan can say which record comes when.
    Shuffled,
}

/// The promise to check the seals of a run's records before their values are used, and who helps the walk meanwhile.
/// Only this crate can give it; it is good for one walk, and for those that it consists of: they share their helpers.
#[derive(Clone, Debug)]
pub struct VerifiesLater {
    pool: Option<Rc<Pool>>,
}

impl VerifiesLater {
    /// For the stages of a feed, whose workers do both.
    pub(crate) fn promised(helpers: Option<Arc<dyn Helpers>>) -> Self {
        VerifiesLater { pool: helpers.map(Pool::new) }
    }

    /// What they unpack ahead of the walk.
    pub(self) fn pool(self) -> Option<Rc<Pool>> {
        self.pool
    }
}

/// A walk over a source, in key order. It stays on the thread that made it.
pub trait Cursor {
    /// Steps to the next record; `None` past the last one.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the record cannot be read. The walk is over then.
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError>;

    /// Passes over the next record, of which nobody needs the bytes; `false` past the last one.
    ///
    /// # Errors
    ///
    /// As [`advance`](Self::advance).
    fn skip(&mut self) -> Result<bool, SourceError> {
        Ok(self.advance()?.is_some())
    }

    /// From now on has the system drop from its memory what the walk has passed and nobody uses any more, as far as
    /// [`dealt`](Self::dealt) says so; `false` if it does not know how. To be asked before the first step. Nobody
    /// outside has to provide it.
    #[doc(hidden)]
    fn drop_behind(&mut self) -> bool {
        false
    }

    /// How far the runs are that hold the walk's records, if it was asked to drop what is behind them: said before
    /// the next step whenever a run was begun.
    #[doc(hidden)]
    fn dealt(&mut self, _dealt: Dealt) {}

    /// The walk is elsewhere from now on, in another database: where it stands may be dropped as well, once that is used.
    #[doc(hidden)]
    fn leave(&mut self) {}

    /// Goes back before the first record.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the database cannot be read any more.
    fn rewind(&mut self) -> Result<(), SourceError>;

    /// Goes to a position: the next step comes to the record of that number, counted from 0 in the order of the walk.
    /// Past the last one, there is none to come to. Where the walk goes on to is as ever.
    ///
    /// As it stands here this takes time in proportion to the position: the walk goes back and passes over all records
    /// before it. A source that knows better ([`Source::is_seekable`]) should provide it, and so should one whose passes
    /// differ, for it rewinds.
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

    /// A hint: soon the walk will be sent to this position. Nobody outside has to provide it.
    #[doc(hidden)]
    fn foresee(&mut self, _position: u64) {}

    /// A hint: from where it is sent next, the walk goes on from record to record up to this position, and then elsewhere;
    /// `u64::MAX` where it goes on. What is read ahead of it is to end there. Nobody outside has to provide it.
    #[doc(hidden)]
    fn goes_on_until(&mut self, _position: u64) {}

    /// Adds the record of the last step to an empty run, together with the buffer that its value fills, so that a large
    /// value need not be copied. Only of an entry that says so (`is_whole`), which none of a caller's own does; the
    /// entry's bytes are gone then. `false` if nothing was added.
    #[doc(hidden)]
    fn give(&mut self, _id: RecordId, _run: &mut Run) -> bool {
        false
    }

    /// Bytes that the walk will keep in memory, as far as it knows them: part of a feed's memory budget, which asks at the
    /// first record. Those of a caller's own source belong to [`Source::held_bytes`].
    #[doc(hidden)]
    fn held_bytes(&self) -> usize {
        0
    }
}

/// How far the runs of a walk's records are. Runs are counted as they are begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dealt {
    /// How many have been begun.
    pub(crate) begun: u64,
    /// How many of the first ones are used, all of them.
    pub(crate) used: u64,
}

/// What can be wrong with a database as a whole.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// What a source of a caller's own says.
    #[error("{}: {message}", shown::path(path))]
    Other {
        /// The source.
        path: PathBuf,
        /// Its words.
        message: String,
    },
    /// There is nothing at the path, or it may not be looked at.
    #[error("{}: cannot {action}: {message}", shown::path(path))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// What the operating system said.
        message: String,
        /// The kind of that error.
        kind: io::ErrorKind,
    },
    /// There is something at the path, but no database of this kind.
    #[error("{}: not {kind}: there is no {missing} in it{hint}", shown::path(path))]
    NotADatabase {
        /// The folder, or the file.
        path: PathBuf,
        /// The kind of database that was looked for, with its article.
        kind: &'static str,
        /// The file whose absence shows it.
        missing: &'static str,
        /// What to do instead, or nothing.
        hint: &'static str,
    },
    /// The file is not an LMDB's.
    #[error("{}: not an LMDB data file: found {found}", shown::path(path))]
    NotLmdb {
        /// The database.
        path: PathBuf,
        /// What it is instead.
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
    #[error("{}: the database is empty: a feed needs at least 1 record", shown::path(path))]
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
        /// What it said.
        message: String,
        /// What to do about it, or nothing.
        hint: &'static str,
    },
    /// The database ended, or changed, where it must not.
    #[error("{}: {message} at record {index}", shown::path(path))]
    Broken {
        /// The database.
        path: PathBuf,
        /// The position of the record that could not be read.
        index: u64,
        /// What was found.
        message: String,
    },
    /// A page of the database is not what it must be.
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
        /// The last key before that page, if the walk came to one.
        before: Option<Key>,
    },
    /// Somebody wrote to the database, and nothing kept them from the pages that were read.
    #[error(
        "{}: transaction {found} was committed to it while transaction {transaction} was read without a lock; read it \
         when nobody writes to it, or with its lock",
        shown::path(path)
    )]
    WrittenTo {
        /// The database.
        path: PathBuf,
        /// The transaction that was read.
        transaction: u64,
        /// The newest one.
        found: u64,
    },
    /// An LMDB's newest commit cannot be known.
    #[error(
        "{}: {found}; open it when nobody writes to it; if nobody does, the file was overwritten while a program had it \
         open: end that program",
        shown::path(path)
    )]
    Busy {
        /// The database.
        path: PathBuf,
        /// What is seen of it.
        found: String,
    },
    /// Another file took the database's place while it was opened.
    #[error("{}: another file took its place while it was opened; open it again", shown::path(path))]
    Replaced {
        /// The database.
        path: PathBuf,
    },
    /// The file holds databases where records are looked for.
    #[error(
        "{}: it holds databases and not records: {}; name one of them (lmdb_named, or LmdbOptions::name)",
        shown::path(path),
        Names(names)
    )]
    HoldsDatabases {
        /// The file.
        path: PathBuf,
        /// The names of the first ones.
        names: Vec<String>,
    },
    /// The file holds no database of this name.
    #[error("{}: there is no database {name:?} in it; {}", shown::path(path), Others(names))]
    NoSuchDatabase {
        /// The file.
        path: PathBuf,
        /// The name.
        name: String,
        /// The names of the first ones that it holds.
        names: Vec<String>,
    },
    /// There can be no index of the database's records.
    #[error("{}: its records cannot be told by their positions: {found}; {hint}", shown::path(path))]
    NoPositions {
        /// The database.
        path: PathBuf,
        /// What is in the way.
        found: String,
        /// What to do about it.
        hint: &'static str,
    },
    /// A record and its companion have different keys.
    #[error(
        "{}: record {index} has the key {key}, and its companion in {} the key {found}; pair databases that \
         were written together, or match them by order",
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
        /// Its companion's.
        found: Key,
    },
    /// A source ended before the one it is paired with.
    #[error(
        "{}: it ends after {records} records, and {}, with which it is paired, does not; pair databases of as \
         many records",
        shown::path(path),
        shown::path(longer)
    )]
    Unpaired {
        /// The source that ended.
        path: PathBuf,
        /// How many records it has.
        records: u64,
        /// The source that goes on.
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
    /// A label in a list of files is no 32-bit integer.
    #[error(
        "{}: line {line}: the label {found} does not fit 32 bits; labels are whole numbers from -2147483648 to \
         2147483647",
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
    /// A list of files has too few lines to begin so far down.
    #[error(
        "{}: not enough points to skip: {skip} of {found}; lower rand_skip to {found} or less",
        shown::path(path)
    )]
    NotEnoughToSkip {
        /// The list.
        path: PathBuf,
        /// How many lines it has.
        found: usize,
        /// How many were to be passed over.
        skip: usize,
    },
    /// A file that a list names cannot be read.
    #[error("{}: line {line}: cannot read {}: {message}", shown::path(path), shown::path(file))]
    ListedFile {
        /// The list.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The file.
        file: PathBuf,
        /// What the operating system said.
        message: String,
    },
    /// A LevelDB cannot be read.
    #[error(transparent)]
    LevelDb(#[from] LevelDbError),
}

/// After which key something was found.
struct Behind<'a>(&'a Option<Key>);

impl fmt::Display for Behind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |key| write!(f, ", behind the record with the key {key}"))
    }
}

/// Names of databases.
struct Names<'a>(&'a [String]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, name) in self.0.iter().enumerate() {
            write!(f, "{}{name:?}", if position == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

/// What there is instead.
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
    /// The error of a source of a caller's own: which source, and what is wrong, in words or as another error.
    pub fn other(path: impl Into<PathBuf>, message: impl fmt::Display) -> Self {
        SourceError::Other { path: path.into(), message: message.to_string() }
    }

    pub(crate) fn io(path: &Path, action: &'static str, error: &io::Error) -> Self {
        SourceError::Io { path: path.to_owned(), action, message: error.to_string(), kind: error.kind() }
    }
}
