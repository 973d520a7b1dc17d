//! What the processes of a training job share, so that nothing is lost when a process is.
//!
//! [`metadata`] holds small records under keys, changed by transactions and, if wanted, tied to leases: in
//! etcd, in a folder of one machine, or in memory for threads and tests. [`leases`] hands out an epoch's
//! blocks of steps to workers that come and go. [`collective`] lets processes agree in rounds.
//!
//! [`checkpoint`] writes the state of a process into a [`store`] while it trains, records that in metadata,
//! and finds it again after the process has moved.

pub mod checkpoint;
pub mod clock;
pub mod collective;
#[cfg(feature = "etcd")]
pub mod etcd;
mod hexadecimal;
pub mod leases;
pub mod metadata;
mod patience;
pub mod store;

pub use checkpoint::Checkpointer;

/// The guide's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/checkpoints.md")]
pub struct Guide;

/// So does that of the page on workers that come and go.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/elastic-workers.md")]
pub struct ElasticWorkers;

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
