//! What can be wrong with a data file, before it is said of which.

use std::io;

/// Why a page is no good, or a walk cannot go on.
#[derive(Debug)]
pub(super) enum Fault {
    /// It is damaged.
    Page { number: u64, message: String },
    /// The file ends before this page does.
    Cut { number: u64, page_bytes: u64 },
    /// There are databases where records are looked for.
    Databases,
    /// A key has several values.
    SeveralValues,
    /// Somebody has written to the file, whom nothing keeps from the pages of the walk.
    WrittenTo { transaction: u64, found: u64 },
    /// The meta pages change each time they are read.
    Busy,
    /// It ends before as many records have come as there are said to be.
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
