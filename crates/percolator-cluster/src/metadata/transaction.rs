//! What is changed at once, and under which conditions.

use std::collections::BTreeSet;

use super::error::MetadataError;
use super::records::{LeaseId, Record, Records, Revision};

/// The most bytes of a key.
pub const KEY_BYTES_MAX: usize = 480;
/// The most bytes of a value: etcd takes one and a half times as many in a request.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// The most bytes of all values of a transaction: with as many keys as there can be, and what is before each,
/// that is as much as etcd takes by default.
pub const VALUES_BYTES_MAX: usize = VALUE_BYTES_MAX + (1 << 17);
/// The most conditions, and the most changes, of a transaction: as many as etcd takes by default.
pub const OPERATIONS_MAX: usize = 128;

/// What must be so for a transaction to change anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// There is no record of this key.
    Missing(String),
    /// The record of this key was last put at this revision.
    Modified(String, Revision),
    /// The record of this key is there, and is removed with this lease.
    HeldBy(String, LeaseId),
}

impl Condition {
    /// Returns the key that it is about.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Condition::Missing(key) | Condition::Modified(key, _) | Condition::HeldBy(key, _) => key,
        }
    }

    /// Whether it is so, if this is the record of its key.
    pub(super) fn holds(&self, record: Option<&Record>) -> bool {
        match self {
            Condition::Missing(_) => record.is_none(),
            Condition::Modified(_, revision) => record.is_some_and(|record| record.modified == *revision),
            Condition::HeldBy(_, lease) => record.is_some_and(|record| record.lease == Some(*lease)),
        }
    }
}

/// A change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The record is put, and replaces an existing one.
    Put {
        /// Its key.
        key: String,
        /// Its bytes.
        value: Vec<u8>,
        /// The lease that it is removed with.
        lease: Option<LeaseId>,
    },
    /// The record is removed, if it is there.
    Remove {
        /// Its key.
        key: String,
    },
}

impl Change {
    /// Returns the key of the record.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Change::Put { key, .. } | Change::Remove { key } => key,
        }
    }
}

/// Changes that are made together, if conditions hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Transaction {
    conditions: Vec<Condition>,
    changes: Vec<Change>,
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its changes were made, at this revision.
    Committed(Revision),
    /// A condition did not hold. The records of the conditions' keys, as they were then.
    Refused(Records),
}

impl Transaction {
    /// Returns a transaction without conditions or changes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a condition.
    pub fn when(mut self, condition: Condition) -> Self {
        self.conditions.push(condition);
        self
    }

    /// Asks that there is no record of this key.
    pub fn when_missing(self, key: impl Into<String>) -> Self {
        self.when(Condition::Missing(key.into()))
    }

    /// Asks that the record of this key was last put at this revision.
    pub fn when_modified(self, key: impl Into<String>, revision: Revision) -> Self {
        self.when(Condition::Modified(key.into(), revision))
    }

    /// Asks that the record of this key is removed with this lease.
    pub fn when_held_by(self, key: impl Into<String>, lease: LeaseId) -> Self {
        self.when(Condition::HeldBy(key.into(), lease))
    }

    /// Asks that the record of this key is as it was seen: last put at this revision, or missing.
    pub(crate) fn when_seen(self, key: impl Into<String>, seen: Option<Revision>) -> Self {
        match seen {
            Some(revision) => self.when_modified(key, revision),
            None => self.when_missing(key),
        }
    }

    /// Puts a record.
    pub fn put(mut self, key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.changes.push(Change::Put { key: key.into(), value: value.into(), lease: None });
        self
    }

    /// Puts a record that is removed with a lease.
    pub fn put_under(mut self, lease: LeaseId, key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        self.changes.push(Change::Put { key: key.into(), value: value.into(), lease: Some(lease) });
        self
    }

    /// Removes a record.
    pub fn remove(mut self, key: impl Into<String>) -> Self {
        self.changes.push(Change::Remove { key: key.into() });
        self
    }

    /// Returns its conditions.
    #[must_use]
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// Returns its changes.
    #[must_use]
    pub fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// Checks that every implementation can take it. Implementations call this first.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Transaction`] if it is too large, changes a record twice, or has a key that no record
    /// can have.
    pub fn check(&self) -> Result<(), MetadataError> {
        let refused = |message: String| Err(MetadataError::Transaction { message });
        for (what, count) in [("conditions", self.conditions.len()), ("changes", self.changes.len())] {
            if count > OPERATIONS_MAX {
                return refused(format!("it has {count} {what}, and at most {OPERATIONS_MAX} are allowed"));
            }
        }
        let mut changed = BTreeSet::new();
        let mut values_bytes = 0;
        for change in &self.changes {
            if !changed.insert(change.key()) {
                return refused(format!("it changes the record {:?} twice", change.key()));
            }
            let Change::Put { key, value, .. } = change else { continue };
            let bytes = value.len();
            if bytes > VALUE_BYTES_MAX {
                return refused(format!(
                    "the record {key:?} has {bytes} bytes, and at most {VALUE_BYTES_MAX} are allowed"
                ));
            }
            values_bytes += bytes;
        }
        if values_bytes > VALUES_BYTES_MAX {
            return refused(format!(
                "its records have {values_bytes} bytes together, and at most {VALUES_BYTES_MAX} are allowed"
            ));
        }
        for key in changed.into_iter().chain(self.conditions.iter().map(Condition::key)) {
            if key.is_empty() || key.len() > KEY_BYTES_MAX || key.contains('\0') {
                return refused(format!(
                    "the key {key:?} has {} bytes: a key has 1 to {KEY_BYTES_MAX}, none of them zero",
                    key.len()
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_implementation_can_take_is_refused() {
        let refused = |transaction: Transaction, due: &str| {
            let message = transaction.check().unwrap_err().to_string();
            assert!(message.contains(due), "{message}");
        };
        refused(Transaction::new().put("a", "1").remove("a"), "changes the record \"a\" twice");
        refused(Transaction::new().put("", "1"), "has 0 bytes");
        refused(Transaction::new().when_missing("a\0"), "none of them zero");
        refused(Transaction::new().put("k".repeat(KEY_BYTES_MAX + 1), "1"), "a key has 1 to 480");
        refused(Transaction::new().put("a", vec![0; VALUE_BYTES_MAX + 1]), "at most 1048576");
        let together =
            Transaction::new().put("a", vec![0; VALUE_BYTES_MAX]).put("b", vec![0; VALUE_BYTES_MAX]);
        refused(together, "2097152 bytes together, and at most 1179648");
        let many = (0..=OPERATIONS_MAX).fold(Transaction::new(), |all, key| all.remove(key.to_string()));
        refused(many, "129 changes, and at most 128");
        let largest = Transaction::new().put("k".repeat(KEY_BYTES_MAX), vec![0; VALUE_BYTES_MAX]);
        assert!(largest.when_missing("k").check().is_ok());
    }
}
