//! The key that identifies a reader.

use std::fmt;
use std::path::PathBuf;

use crate::base::shape::Phase;
use percolator_files::shown;

/// Handles of one registry with equal keys share one reader.
///
/// Caffe's key is the text `layer:source`. Either part may contain a colon, and the phase is missing, so
/// training and testing on one database block each other for ever (BVLC/caffe#3037, #3108). This key is a
/// tuple, and includes a group to separate two otherwise identical nets in one process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReaderKey {
    /// The layer's name.
    pub layer: String,
    /// The source's path; canonical if it exists on disk. For many joined sources, their name and a checksum
    /// of their paths.
    pub source: PathBuf,
    /// Training or testing.
    pub phase: Phase,
    /// The consumers that share the reader: a net, for example.
    pub group: String,
}

impl fmt::Display for ReaderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} ({}", self.layer, shown::path(&self.source), self.phase)?;
        if !self.group.is_empty() {
            write!(f, ", group {}", self.group)?;
        }
        f.write_str(")")
    }
}
