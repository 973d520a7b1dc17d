//! The index of a source of another package: two numbers a record, whose meaning is the source's.

use std::path::Path;

use super::{IndexPlace, Kind, RecordIndex, Subject};
use crate::source::{Identity, SourceError};
use percolator_files::shown;

/// Where the records of a source are stored: two numbers a record, such as offset and length. It is kept in a
/// sidecar, as the indexes of the crate's own sources are.
///
/// What it says is not to be trusted: a source checks that there is a record at the place.
#[derive(Debug)]
pub struct PlaceIndex(RecordIndex);

impl PlaceIndex {
    /// Finds the index of this state of a data set, or builds it and stores it. `identity` says of which
    /// format and state the data set is, and `path` where it is.
    ///
    /// # Errors
    ///
    /// What `build` returns.
    pub fn find_or_build(
        path: &Path,
        identity: Identity,
        place: &IndexPlace,
        build: impl FnOnce() -> Result<Vec<[u64; 2]>, SourceError>,
    ) -> Result<Self, SourceError> {
        let database = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let subject = Subject { kind: Kind::Other, database: database.into(), identity, place };
        if let Some(index) = RecordIndex::find(&subject) {
            return Ok(PlaceIndex(index));
        }
        Ok(PlaceIndex(RecordIndex::keep(&subject, build()?.into_flattened())))
    }

    /// The number of records.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.0.records()
    }

    /// A checksum of all places.
    #[must_use]
    pub fn checksum(&self) -> u32 {
        self.0.checksum()
    }

    /// The memory that it uses, or may use later.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.0.held_bytes()
    }

    /// The place of the record at a position; `None` past the last one.
    ///
    /// # Errors
    ///
    /// [`SourceError`] if the sidecar, at which `path` has its data, was damaged after it was opened.
    pub fn place(&self, path: &Path, position: u64) -> Result<Option<[u64; 2]>, SourceError> {
        self.0.place(position).map_err(|damage| {
            let message = format!("its record index cannot be used ({damage}); remove it, it is built again");
            tracing::debug!(path = %shown::path(path), position, "a record index is damaged");
            SourceError::other(path, message)
        })
    }
}
