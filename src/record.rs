//! A record's names: which it is, and its key.

use std::fmt;

/// Which record of which pass over the database.
///
/// Whatever a feed decides about a record (its crop, its mirroring) is a function of this and the seed,
/// never of the thread that handled it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RecordId {
    /// The pass over the database, from 0.
    pub epoch: u64,
    /// The record's position in key order, from 0.
    pub index: u64,
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}, record {}", self.epoch, self.index)
    }
}

/// A key, printed as text as far as it is text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key(pub Vec<u8>);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}
