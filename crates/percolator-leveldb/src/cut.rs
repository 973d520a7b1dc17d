//! Where a log ends before its file does.

use std::fmt;
use std::path::{Path, PathBuf};

use percolator_files::shown;

use crate::log::{Cut, LogTail};

/// A log or a MANIFEST that ends inside a record, or in zeros: its writer died. The part before the cut is
/// read. For a MANIFEST, that is an earlier list of the database's tables, so an older list may be in use.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogCut {
    /// The file.
    pub file: PathBuf,
    /// Where the record without an end starts.
    pub offset: u64,
    /// How many bytes there are from there to the end of the file. None of them is served.
    pub dropped_bytes: u64,
    /// What those bytes are.
    pub tail: LogTail,
    /// Whether it is the MANIFEST.
    pub(crate) is_manifest: bool,
}

impl LogCut {
    pub(crate) fn new(file: &Path, cut: Cut) -> Self {
        let (offset, dropped_bytes) = (cut.offset as u64, cut.dropped_bytes as u64);
        LogCut { file: file.to_owned(), offset, dropped_bytes, tail: cut.tail, is_manifest: false }
    }

    /// What the cut means for the records.
    pub(crate) fn consequence(&self) -> &'static str {
        match self.is_manifest {
            true => "an older list of tables may be in use; copy the database again if there is another copy",
            false => "what is before the cut is served",
        }
    }
}

impl fmt::Display for LogCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LogCut { file, offset, dropped_bytes, tail, is_manifest } = self;
        let file = shown::path(file);
        if *tail == LogTail::Zeros {
            return write!(
                f,
                "{file}: from byte {offset} on there are {dropped_bytes} zeros: space that its writer \
                 reserved, or data that did not reach the disk"
            );
        }
        write!(
            f,
            "{file}: cut inside the record at byte {offset}: {dropped_bytes} bytes, {tail}, are dropped"
        )?;
        if *is_manifest { write!(f, "; {}", self.consequence()) } else { Ok(()) }
    }
}
