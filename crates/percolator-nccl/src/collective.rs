//! The collective that users hold.

use std::time::Duration;

use percolator_distribute::{Collective, CollectiveError, GatherCollective};

use crate::engine::Engine;
use crate::error::NcclError;

/// A [`Collective`] over NCCL. When it is dropped, it waits until the others leave as well, or hear that it
/// has left, but no longer than a round may take.
#[derive(Debug)]
pub struct NcclCollective(GatherCollective<Engine>);

impl NcclCollective {
    /// Makes a collective of all processes of another one, which all of them must do; it is used for one
    /// round, in which they agree where NCCL is to meet. Each process has a GPU of its own: `device` is its
    /// number in this process. A round may take as long as `timeout`: longer than the longest step.
    ///
    /// # Errors
    ///
    /// [`NcclError`]: in each process, if one of them has no NCCL or no such GPU.
    pub fn new(device: usize, others: &dyn Collective, timeout: Duration) -> Result<Self, NcclError> {
        Ok(NcclCollective(GatherCollective::new(Engine::new(device, others, timeout)?, timeout)))
    }
}

impl Collective for NcclCollective {
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
