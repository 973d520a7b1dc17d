//! A collective on a communicator of MPI. Its exchange is `MPI_Iallgather`: `MPI_Allreduce` promises no
//! order.
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

mod engine;
mod error;
mod raw;

use std::time::Duration;

use ::mpi::topology::SimpleCommunicator;
use percolator_distribute::{CollectiveError, GatherCollective};

pub use self::engine::MpiEngine;
pub use self::error::MpiError;

/// A [`Collective`](percolator_distribute::Collective) over MPI. When it is dropped, it waits until the
/// others leave as well, or hear that it has left, but no longer than a round may take. Drop it before the
/// `Universe`.
///
/// MPI must run at the thread level `Serialized` or above. At `Serialized`, other code must not call MPI
/// during a round.
pub type MpiCollective = GatherCollective<MpiEngine>;

/// Makes a collective of all processes of a communicator, which all of them must do. It has a communicator of
/// its own, so its rounds do not mix with other messages. A round may take as long as `timeout`: longer than
/// the longest step.
///
/// # Errors
///
/// [`MpiError::NotRunning`], [`MpiError::Threads`]; [`MpiError::Late`] if not all processes do the same in
/// time; [`MpiError::Call`] if MPI fails.
pub fn collective(of: &SimpleCommunicator, timeout: Duration) -> Result<MpiCollective, MpiError> {
    Ok(GatherCollective::new(MpiEngine::new(of, timeout)?, timeout))
}

/// Whether the job must be ended by `MPI_Abort` after this error, since `MPI_Finalize` might wait for ever:
/// a process hangs, or MPI failed. All other errors are seen by all processes, which then end by themselves.
#[must_use]
pub fn ends_the_job(error: &CollectiveError) -> bool {
    matches!(error, CollectiveError::Late { .. } | CollectiveError::Failed(_))
}
