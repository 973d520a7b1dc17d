//! The part of a plan that a reader deals.

use std::fmt;
use std::sync::Arc;

use super::dealer::Step;
use crate::order::{BlockSource, OrderError, Plan, ReplicaShare};
use crate::record::{StepEnd, StepId};

/// The steps that a reader deals, and to whom: consumer `i` is replica `first_replica + i` of the plan's job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScheduleSlice {
    pub(crate) plan: Arc<Plan>,
    pub(crate) first_replica: usize,
    /// The first step of each consumer. Another reader dealt it the earlier steps.
    pub(crate) starts: Vec<StepId>,
    /// The first step that is not dealt, if there is one.
    pub(crate) end: Option<StepId>,
    /// The source of the steps, block by block. Without one, the steps follow one another.
    pub(crate) blocks: Option<BlockSource>,
    /// The source's commit when the plan was made, if it says so.
    pub(crate) commit: Option<u64>,
    /// Whether this resumes Caffe's round-robin order. That order counts steps from the start, has no epochs,
    /// and has no batches without records.
    pub(crate) is_round_robin: bool,
}

impl ScheduleSlice {
    /// The first step of all.
    pub(crate) fn start(&self) -> StepId {
        self.starts.iter().copied().min().unwrap_or_default()
    }

    /// A consumer's share of a step, unless it already had it.
    pub(super) fn share(&self, id: StepId, consumer: usize) -> Result<Option<ReplicaShare<'_>>, OrderError> {
        if self.starts.get(consumer).is_some_and(|start| id < *start) {
            return Ok(None);
        }
        self.plan.share(id.epoch, id.step, self.first_replica + consumer).map(Some)
    }

    /// How a share of this many records ends.
    pub(super) fn end_of(
        &self,
        id: StepId,
        is_last: bool,
        records: usize,
    ) -> Result<Option<StepEnd>, OrderError> {
        Ok(match self.is_round_robin {
            false => Some(StepEnd { epoch: id.epoch, step: id.step, is_last }),
            // The round-robin order ends here.
            true if (records as u64) < self.plan.batch_size_max() => None,
            true => Some(StepEnd { epoch: 0, step: self.plan.step_number(id)?, is_last: false }),
        })
    }
}

/// What is left of a consumer's share of a step, and how the step ends.
pub(super) struct StepShare<'a> {
    pub(super) share: ReplicaShare<'a>,
    pub(super) end: Option<StepEnd>,
}

impl StepShare<'_> {
    /// The next record's place in the step, with `follow` more records after it.
    pub(super) fn step(&self, follow: usize) -> Step {
        match self.end {
            Some(end) if follow == 0 => Step::EndsWith(end),
            _ => Step::Continues,
        }
    }
}

impl fmt::Display for ScheduleSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StepId { epoch, step } = self.start();
        write!(
            f,
            "by a plan for {} replicas, from replica {}",
            self.plan.world().replicas(),
            self.first_replica
        )?;
        if self.blocks.is_some() {
            return f.write_str(", block by block");
        }
        write!(f, ", step {step} of epoch {epoch} on")?;
        match self.end {
            Some(end) => write!(f, " and before {end}"),
            None => Ok(()),
        }
    }
}
