//! The processes of a job agree over MPI: a [`Collective`](percolator_distribute::Collective) on a
//! communicator, for [`percolator_distribute`].
//!
//! A round is one `MPI_Iallgather` of 256 bytes; a round of more than 28 words is two. All processes get all
//! numbers, and add them in the order of ranks, so sums are the same bit for bit in each process, and for any
//! number of nodes. `MPI_Allreduce` promises no order.
//!
//! # What happens when a process fails
//!
//! - One that leaves with a reason ([`resign`](percolator_distribute::Collective::resign), or an error of its
//!   feed): the others' next round is an error that has the reason.
//! - One that is killed, or ends without `MPI_Finalize`: mpirun ends the job. MPI does this itself, and other
//!   processes get no error.
//! - One that hangs: after the timeout, the others' round is an error
//!   ([`Late`](percolator_distribute::CollectiveError::Late)).
//!
//! `MPI_Finalize`, which dropping the `Universe` calls, waits for all processes. So after an error other than
//! one that all have seen, end the job with `universe.world().abort(1)`: a process that hangs would keep it
//! waiting. [`ends_the_job`] says which errors these are.
//!
//! # Errors of MPI
//!
//! The collective has its own communicator, a duplicate, whose errors are returned (`MPI_ERRORS_RETURN`) and
//! become [`MpiError::Call`]. Errors of the communicator that is duplicated are handled as MPI is set to: by
//! default it aborts.

mod collective;
mod error;
mod exchange;
mod raw;

pub use collective::{MpiCollective, ends_the_job};
pub use error::MpiError;

/// The README's code compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
