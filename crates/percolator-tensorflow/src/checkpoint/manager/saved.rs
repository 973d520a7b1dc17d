//! What became of a save.

use std::path::PathBuf;

use percolator_files::shown;

use crate::checkpoint::{StateError, WriteError};

/// A checkpoint that is whole, on the disk, and listed as the latest, and what became of older ones.
///
/// What could not be removed is no failure of the save: a training may go on, and the next save tries again.
/// Each case is also logged as a warning (by `tracing`).
#[derive(Debug)]
#[non_exhaustive]
pub struct Saved {
    /// The checkpoint's prefix.
    pub prefix: PathBuf,
    /// The prefixes of the old checkpoints that were removed.
    pub removed: Vec<PathBuf>,
    /// The old checkpoints that were to be removed, and could not.
    pub not_removed: Vec<NotRemoved>,
    /// Why the list still names what was removed, if it does.
    pub outdated_list: Option<StateError>,
}

/// An old checkpoint that cannot be removed. Some of its files may be gone, its index first.
#[derive(Debug)]
#[non_exhaustive]
pub struct NotRemoved {
    /// Its prefix.
    pub prefix: PathBuf,
    /// Why.
    pub error: WriteError,
}

impl Saved {
    pub(super) fn warn(&self) {
        for NotRemoved { prefix, error } in &self.not_removed {
            let (prefix, error) = (shown::path(prefix), shown::with_sources(error));
            tracing::warn!(%prefix, %error, "an old checkpoint cannot be removed; the next save tries again");
        }
        if let Some(error) = &self.outdated_list {
            let error = shown::with_sources(error);
            tracing::warn!(%error, "the list of checkpoints still names what was removed");
        }
    }
}
