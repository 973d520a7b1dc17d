//! What a conversion did.

use std::path::PathBuf;

use serde::Serialize;

/// What a conversion wrote.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The stores.
    pub outputs: Vec<PathBuf>,
    /// The records of all stores. Keys that came twice count twice.
    pub records: u64,
    /// The bytes of their values.
    pub bytes: u64,
    /// The number of items that an earlier run had done, with which this one went on.
    pub done_before: u64,
    /// The number of items that were skipped, those of an earlier run included.
    pub skipped: u64,
    /// The first of those that this run skipped, at most [`SKIPPED_MAX`](Self::SKIPPED_MAX).
    pub first_skipped: Vec<Skipped>,
    /// The file with all that were skipped, if there are any: the item's number, its key and the reason in a
    /// line each, with tabs between them.
    pub skipped_list: Option<PathBuf>,
    /// The file with the classes' names, if they have any: a line each, in the order of their labels.
    pub labels: Option<PathBuf>,
}

impl Summary {
    /// How many skipped items a summary has.
    pub const SKIPPED_MAX: usize = 1000;
}

/// An item that was skipped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its number, counted from 0.
    pub item: u64,
    /// Its key, with bytes that are not printable ASCII escaped.
    pub key: String,
    /// Why it was skipped.
    pub reason: String,
}
