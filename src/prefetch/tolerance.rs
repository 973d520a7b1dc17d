//! After how many bad records a lane goes on.

use crate::bad::{BadCount, BadRecords, TooManyBad};
use crate::batch::Filled;
use crate::feed::FeedError;

/// A lane's policy for bad records, and how many it had.
pub(crate) struct Tolerance<'a> {
    pub(super) policy: &'a BadRecords,
    pub(super) count: &'a mut BadCount,
    pub(super) lane: usize,
    /// In a mixture: the epoch of the batch's step.
    pub(super) mixed: Option<u64>,
}

impl Tolerance<'_> {
    /// Counts the records of a complete batch. It is an error if too many of an epoch are bad.
    pub(super) fn count(self, filled: &Filled) -> Result<(), FeedError> {
        let Tolerance { policy, count, lane, mixed } = self;
        let mut excess = None;
        count.add(filled.ids(), filled.bad(), mixed, |count, last| {
            let (BadCount { epoch, records, bad }, allowed) = (*count, count.allowed(policy));
            if bad > allowed && excess.is_none() {
                let record = Box::new(last.clone());
                excess = Some(TooManyBad { lane, epoch, records, bad, allowed, record });
            }
        });
        excess.map_or(Ok(()), |excess| Err(excess.into()))
    }
}
