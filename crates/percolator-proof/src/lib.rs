//! Proves from the receipts of a training run that each epoch had every record exactly once.
//!
//! ```text
//!  Receipt (of each rank, before and after each resume)      DataDigest
//!      |  the steps that were given                              |  from digest(): a pass over the data set
//!      |  the sums of the records that were delivered            |
//!      v                                                         v
//!  Verdict::of  ------------------------------------->  Verdict::with_digest
//!      |
//!      v
//!  Verdict: epoch by epoch, what is missing, came too often, or has other bytes
//! ```
//!
//! The core, `percolator`, writes receipts, and knows nothing of proofs. A proof needs of it:
//!
//! - what was delivered of each epoch ([`EpochAccount`](percolator::receipt::EpochAccount)), and an account
//!   of what was due, which names the records by which the two differ;
//! - what should have come ([`Plan`](percolator::order::Plan));
//! - what a feed would read ([`FeedBuilder::open_source`](percolator::FeedBuilder::open_source)).
//!
//! The core also hashes each part of what is read, as a lane does
//! ([`DataDigest::of_run`](percolator::receipt::DataDigest::of_run)): so a receipt and a digest cannot differ
//! by how they were made.

mod coverage;
mod digest;
mod error;
mod gaps;
mod progress;
#[cfg(test)]
mod tests;
mod verdict;
mod verify;

pub use crate::digest::{digest, digest_watched};
pub use crate::error::ProofError;
pub use crate::verdict::{
    AbsentReplicas, ContentsDeviation, ContentsVerdict, Deviation, DoubledSteps, EpochState, EpochVerdict,
    GivenSteps, MissingSteps, Positions, Verdict,
};

#[cfg(test)]
#[allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "shared by tests, each of which uses a part of it"
)]
#[path = "../../../tests/common/process.rs"]
mod process;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
