//! After how many bad records a lane goes on.

use crate::bad::{BadCount, BadRecords, TooManyBad};
use crate::batch::Filled;
use crate::feed::FeedError;
use crate::record::StepEnd;

/// A lane's policy for bad records, and how many it had.
pub(crate) struct Tolerance {
    pub(crate) policy: BadRecords,
    pub(crate) count: BadCount,
    pub(crate) lane: usize,
    /// Whether databases are mixed: records then count by the epoch of their batch's step.
    pub(crate) is_mixed: bool,
}

impl Tolerance {
    /// Counts the records of the complete batch of a step. It is an error if too many of an epoch are bad.
    pub(super) fn count(&mut self, filled: &Filled, step: Option<StepEnd>) -> Result<(), FeedError> {
        let Tolerance { policy, count, lane, is_mixed } = self;
        let mixed = step.filter(|_| *is_mixed).map(|step| step.epoch);
        let mut excess = None;
        count.add(filled.ids(), filled.bad(), mixed, |count, last| {
            let (BadCount { epoch, records, bad }, allowed) = (*count, count.allowed(policy));
            if bad > allowed && excess.is_none() {
                let record = Box::new(last.clone());
                excess = Some(TooManyBad { lane: *lane, epoch, records, bad, allowed, record });
            }
        });
        excess.map_or(Ok(()), |excess| Err(excess.into()))
    }
}
