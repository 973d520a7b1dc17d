//! Small records under keys, which the processes of a job share.
//!
//! The interface is only what etcd offers: records in the order of their keys, transactions that compare
//! before they change, leases that take their records with them when they end. All agreement is by
//! transactions, never by a clock or by the name of a file.
//!
//! | implementation | for |
//! |---|---|
//! | [`MemoryMetadata`] | threads of one process, and tests |
//! | [`FolderMetadata`] | processes of one machine, with nothing to install |
//! | `EtcdMetadata` (feature `etcd`) | processes on any machine, through an etcd cluster |

mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod folder;
mod lease;
mod memory;
mod records;
mod transaction;

use std::fmt;
use std::time::Duration;

pub use self::error::MetadataError;
#[cfg(feature = "etcd")]
pub use self::etcd::EtcdMetadata;
pub use self::folder::{FolderMetadata, FolderOptions};
pub use self::lease::Lease;
pub use self::memory::MemoryMetadata;
pub use self::records::{LeaseId, Record, Records, Revision};
pub use self::transaction::{
    Change, Condition, KEY_BYTES_MAX, OPERATIONS_MAX, Outcome, Transaction, VALUE_BYTES_MAX, VALUES_BYTES_MAX,
};

/// Records that processes share.
///
/// Every call ends: an implementation that asks another process has a limit for that, and returns
/// [`MetadataError::Unreachable`] when it has passed. What was asked for may have happened all the same. A
/// caller that tries again must find out, which conditions make easy.
pub trait Metadata: Send + Sync + fmt::Debug {
    /// Returns the records whose keys begin with `prefix`, in the order of their keys, all of them as they
    /// were at one moment.
    ///
    /// # Errors
    ///
    /// [`MetadataError`].
    fn read(&self, prefix: &str) -> Result<Records, MetadataError>;

    /// Makes the changes of a transaction, all of them or none: only if each of its conditions holds.
    ///
    /// # Errors
    ///
    /// [`MetadataError`]; [`MetadataError::LeaseExpired`] if a record was to be put under a lease that has
    /// ended. Conditions that do not hold are no error, but [`Outcome::Refused`].
    fn transact(&self, transaction: &Transaction) -> Result<Outcome, MetadataError>;

    /// Grants a lease, which ends after `ttl`, unless it is kept alive. Implementations may round `ttl` up,
    /// to whole seconds and to the shortest that they have. [`Lease::keep`] keeps one alive on a thread.
    ///
    /// # Errors
    ///
    /// [`MetadataError`].
    fn grant(&self, ttl: Duration) -> Result<LeaseId, MetadataError>;

    /// Lets a lease last for its whole time again, counted from now. Returns that time.
    ///
    /// # Errors
    ///
    /// [`MetadataError::LeaseExpired`] if it has ended.
    fn keep_alive(&self, lease: LeaseId) -> Result<Duration, MetadataError>;

    /// Ends a lease. Its records are removed. Ending one that has ended is no error.
    ///
    /// # Errors
    ///
    /// [`MetadataError`].
    fn revoke(&self, lease: LeaseId) -> Result<(), MetadataError>;

    /// Waits until a record whose key begins with `prefix` was put or removed after `revision`, but no longer
    /// than `at_most`, or than an answer of another process may take, if that is longer. Returns whether one
    /// was. It may return earlier, and say that one was where none was.
    ///
    /// # Errors
    ///
    /// [`MetadataError`].
    fn wait(&self, prefix: &str, revision: Revision, at_most: Duration) -> Result<bool, MetadataError>;

    /// Says where the records are, for messages: endpoints, or a folder.
    fn place(&self) -> String;
}
