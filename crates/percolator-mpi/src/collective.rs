//! The collective that users hold.

use std::time::Duration;

use mpi::topology::SimpleCommunicator;
use percolator_distribute::{Collective, CollectiveError, GatherCollective};

use crate::error::MpiError;
use crate::exchange::Exchange;

/// A [`Collective`] over MPI. When it is dropped, it waits until the others leave as well, or hear that it
/// has left, but no longer than a round may take. Drop it before the `Universe`.
///
/// MPI must run at the thread level `Serialized` or above. At `Serialized`, other code must not call MPI
/// during a round.
#[derive(Debug)]
pub struct MpiCollective(GatherCollective<Exchange>);

impl MpiCollective {
    /// Makes a collective of all processes of a communicator, which all of them must do. It has a
    /// communicator of its own, so its rounds do not mix with other messages. A round may take as long as
    /// `timeout`: longer than the longest step.
    ///
    /// # Errors
    ///
    /// [`MpiError::NotRunning`], [`MpiError::Threads`]; [`MpiError::Late`] if not all processes do the same
    /// in time; [`MpiError::Call`] if MPI fails.
    pub fn new(of: &SimpleCommunicator, timeout: Duration) -> Result<Self, MpiError> {
        Ok(MpiCollective(GatherCollective::new(Exchange::new(of, timeout)?, timeout)))
    }
}

impl Collective for MpiCollective {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn all_gather(&self, words: &[u64]) -> Result<Vec<u64>, CollectiveError> {
        self.0.all_gather(words)
    }

    fn resign(&self, reason: &str) {
        self.0.resign(reason);
    }
}

/// Whether the job must be ended by `MPI_Abort` after this error, since `MPI_Finalize` might wait for ever:
/// a process hangs, or MPI failed. All other errors are seen by all processes, which then end by themselves.
#[must_use]
pub fn ends_the_job(error: &CollectiveError) -> bool {
    matches!(error, CollectiveError::Late { .. } | CollectiveError::Failed(_))
}
