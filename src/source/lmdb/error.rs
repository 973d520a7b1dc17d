//! Why an LMDB cannot be read.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::record::Key;
use percolator_files::caller::words;
use percolator_files::shown;

/// An LMDB that cannot be read.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LmdbError {
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
        words(" (SourceSpec::Lmdb, or LmdbOptions::name)", " with --database NAME", " with lmdb_name=")
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

impl LmdbError {
    /// Returns the database in which it was found.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            LmdbError::NotLmdb { path, .. }
            | LmdbError::Truncated { path, .. }
            | LmdbError::Library { path, .. }
            | LmdbError::BrokenPage { path, .. }
            | LmdbError::WrittenTo { path, .. }
            | LmdbError::Busy { path, .. }
            | LmdbError::Replaced { path }
            | LmdbError::HoldsDatabases { path, .. }
            | LmdbError::NoSuchDatabase { path, .. } => path,
        }
    }
}
