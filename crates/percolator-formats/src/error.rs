//! Why data cannot be read.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use percolator_files::{IoCause, shown};

/// Why a shard cannot be opened or read.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    /// The system refuses.
    #[error("{}: cannot {action}", shown::path(file))]
    Io {
        /// The file or folder.
        file: PathBuf,
        /// The action that failed.
        action: &'static str,
        /// The system's error.
        #[source]
        cause: IoCause,
    },
    /// The file is damaged, incomplete, or contradicts another one.
    #[error("{}{at}: {what}", shown::path(file))]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Where in it.
        at: At,
        /// What was found, what was expected, and what to do.
        what: String,
    },
    /// The file is whole, and has something that is not read.
    #[error("{}{at}: {what}", shown::path(file))]
    Refused {
        /// The file.
        file: PathBuf,
        /// Where in it.
        at: At,
        /// What it has, why it is refused, and what to do.
        what: String,
    },
}

/// A place in a file, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct At {
    /// The record's number in its file, from 0.
    pub record: Option<u64>,
    /// The byte, from 0.
    pub byte: Option<u64>,
    /// The line of a text file, from 1.
    pub line: Option<u64>,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = [("record", self.record), ("line", self.line), ("byte", self.byte)];
        named.iter().try_for_each(|(name, number)| match number {
            Some(number) => write!(f, ", {name} {number}"),
            None => Ok(()),
        })
    }
}

impl FormatError {
    /// The system refused an action, which reads on from "cannot".
    #[must_use]
    pub fn io(file: &Path, action: &'static str, cause: io::Error) -> Self {
        FormatError::Io { file: file.to_owned(), action, cause: cause.into() }
    }

    /// A file is damaged.
    #[must_use]
    pub fn damaged(file: &Path, what: impl Into<String>) -> Self {
        FormatError::Damaged { file: file.to_owned(), at: At::default(), what: what.into() }
    }

    /// A file has something that is not read.
    #[must_use]
    pub fn refused(file: &Path, what: impl Into<String>) -> Self {
        FormatError::Refused { file: file.to_owned(), at: At::default(), what: what.into() }
    }

    /// With the record's number in its file, from 0.
    #[must_use]
    pub fn record(self, record: u64) -> Self {
        self.with(|at| at.record = Some(record))
    }

    /// With the byte in the file, from 0.
    #[must_use]
    pub fn byte(self, byte: u64) -> Self {
        self.with(|at| at.byte = Some(byte))
    }

    /// With the line of a text file, from 1.
    #[must_use]
    pub fn line(self, line: u64) -> Self {
        self.with(|at| at.line = Some(line))
    }

    fn with(mut self, set: impl FnOnce(&mut At)) -> Self {
        match &mut self {
            FormatError::Damaged { at, .. } | FormatError::Refused { at, .. } => set(at),
            FormatError::Io { .. } => {}
        }
        self
    }
}

/// What is wrong with one record's bytes. Whoever knows its file and number adds them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);

impl Fault {
    /// Creates a fault: what was found, and what was expected.
    pub fn new(what: impl Into<String>) -> Self {
        Fault(what.into())
    }
}
