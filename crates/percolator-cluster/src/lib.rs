//! What the processes of a training job keep together, so that nothing is lost when one of them is.
//!
//! [`metadata`] holds small records under keys, changed by transactions, which leases may hold: in etcd, in a
//! folder of one machine, or in memory for threads and tests. [`leases`] deals an epoch's blocks of steps to
//! workers that come and go.

pub mod clock;
pub mod leases;
pub mod metadata;
