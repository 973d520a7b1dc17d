//! What can be wrong with a data file. The file's name is added later.

use std::io;

/// Why a page is refused, or a walk cannot continue.
#[derive(Debug)]
pub(super) enum Fault {
    /// The page is damaged.
    Page { number: u64, message: String },
    /// The file ends before this page does.
    Cut { number: u64, page_bytes: u64 },
    /// There are databases where records should be.
    Databases,
    /// A key has several values.
    SeveralValues,
    /// Another process has written to the file, and nothing protected the pages of the walk.
    WrittenTo { transaction: u64, found: u64 },
    /// The meta pages change each time that they are read.
    Busy,
    /// The tree ends before it has as many records as it states.
    TooFew { records: u64, entries: u64 },
    /// The file cannot be read.
    Io(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Fault::Io(error)
    }
}

pub(super) fn fault(number: u64, message: impl Into<String>) -> Fault {
    Fault::Page { number, message: message.into() }
}
