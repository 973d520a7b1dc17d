//! Records, and the numbers that distinguish them.

use std::fmt;

/// A moment in the history of all records: it grows with each transaction that changes something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub i64);

/// The number of a lease. It is never 0, and is not given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for LeaseId {
    /// As etcd's own command shows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its key.
    pub key: String,
    /// Its bytes.
    pub value: Vec<u8>,
    /// When it was put where none was.
    pub created: Revision,
    /// When it was last put.
    pub modified: Revision,
    /// The lease that it is removed with.
    pub lease: Option<LeaseId>,
}

/// Records, as they were at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// The moment.
    pub revision: Revision,
    /// The records, in the order of their keys.
    pub records: Vec<Record>,
}

impl Records {
    /// Returns the record of this key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Record> {
        let place = self.records.binary_search_by(|record| record.key.as_str().cmp(key)).ok()?;
        self.records.get(place)
    }
}
