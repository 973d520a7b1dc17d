//! A bad record, as its batch names it.

use std::fmt;
use std::path::PathBuf;

use crate::record::{Key, RecordId};
use percolator_files::shown;

/// A bad record that its batch leaves out.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRecord {
    /// The database or file that has it, even if several form one data set.
    pub path: PathBuf,
    /// Which record of the data set it is.
    pub id: RecordId,
    /// Its key.
    pub key: Key,
    /// Why it cannot be used.
    pub reason: String,
    /// The record whose row was copied into its place, if it was [replaced](super::BadAction).
    pub replaced_by: Option<RecordId>,
    /// The row that it would have.
    pub(crate) row: usize,
}

impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BadRecord { path, id, key, reason, .. } = self;
        write!(f, "{}: {id}, key {key}: {reason}", shown::path(path))
    }
}

/// A lane had more bad records than its [policy](super::BadRecords) allows.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "lane {lane}: {bad} of the first {records} records of epoch {epoch} are bad, and {allowed} may be; the \
     last is {record}; look at the data (percolator verify), or allow more (at_most, at_most_rate)"
)]
pub struct TooManyBad {
    /// The lane's number in its feed.
    pub lane: usize,
    /// The epoch.
    pub epoch: u64,
    /// How many of its records the lane had.
    pub records: u64,
    /// How many of these are bad.
    pub bad: u64,
    /// How many may be.
    pub allowed: u64,
    /// The last one.
    pub record: Box<BadRecord>,
}
