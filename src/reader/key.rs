//! What a reader is known by.

use std::fmt;
use std::path::PathBuf;

use crate::base::shape::Phase;
use crate::base::shown;

/// What makes two handles share one reader.
///
/// Caffe's key is the text `layer:source`. Both parts may hold a colon, and it lacks the phase, so that
/// training and testing on one database hang each other (BVLC/caffe#3037, #3108). Ours is a tuple, and
/// has a group beside it for two nets in one process that are otherwise alike.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReaderKey {
    /// The layer's name.
    pub layer: String,
    /// The source's path, canonical where it is on disk.
    pub source: PathBuf,
    /// Training or testing.
    pub phase: Phase,
    /// The consumers that share: a net, a feed.
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
