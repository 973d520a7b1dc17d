//! What the processes of a training job keep together, so that nothing is lost when one of them is.
//!
//! [`metadata`] holds small records under keys, changed by transactions, which leases may hold: in etcd, in a
//! folder of one machine, or in memory for threads and tests.

pub mod clock;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod metadata;
