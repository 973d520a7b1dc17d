//! Where records lie: one file a kind of database, one small trait for all.

pub(crate) mod lmdb;
pub(crate) mod run;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use self::run::PLACE_BYTES;
pub use self::run::{Entry, Lender, Record, Run};

/// A database of records, opened for reading.
///
/// A source is cheap to share; each walk over it is a [`Cursor`] of its own.
pub trait Source: Send + Sync + fmt::Debug {
    /// Where it lies: the name of the source in messages and in the registry.
    fn path(&self) -> &Path;

    /// How many records it holds, where that is known without reading them.
    fn records(&self) -> Option<u64>;

    /// Starts a walk before the first record.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the database cannot be read.
    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError>;
}

/// A walk over a source, in key order. It stays on the thread that made it.
pub trait Cursor {
    /// Steps to the next record; `None` past the last one.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the record cannot be read. The walk is over then.
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError>;

    /// Goes back before the first record.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the database cannot be read any more.
    fn rewind(&mut self) -> Result<(), SourceError>;
}

/// What can be wrong with a database as a whole.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// There is nothing at the path, or it may not be looked at.
    #[error("{}: cannot {action}: {message}", path.display())]
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
    /// The path is a folder, but not one that holds a database of this kind.
    #[error("{}: not {kind}: the folder has no {missing}{hint}", path.display())]
    NotADatabase {
        /// The folder.
        path: PathBuf,
        /// The kind of database that was looked for, with its article.
        kind: &'static str,
        /// The file whose absence shows it.
        missing: &'static str,
        /// What to do instead, or nothing.
        hint: &'static str,
    },
    /// The file is not an LMDB's.
    #[error("{}: not an LMDB data file: found {found}", path.display())]
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
        path.display()
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
    #[error("{}: the database is empty: a feed needs at least 1 record", path.display())]
    Empty {
        /// The database.
        path: PathBuf,
    },
    /// The database library refused.
    #[error("{}: {call} failed: {message}{hint}", path.display())]
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
    #[error("{}: {message} at record {index}", path.display())]
    Broken {
        /// The database.
        path: PathBuf,
        /// The position of the record that could not be read.
        index: u64,
        /// What was found.
        message: String,
    },
    /// A kind of database that this version does not read.
    #[error("{}: {what} is not read yet; what is: LMDB databases of Caffe Datum records", path.display())]
    NotYet {
        /// The database.
        path: PathBuf,
        /// What it seems to be.
        what: &'static str,
    },
}

impl SourceError {
    pub(crate) fn io(path: &Path, action: &'static str, error: &io::Error) -> Self {
        SourceError::Io { path: path.to_owned(), action, message: error.to_string(), kind: error.kind() }
    }
}
