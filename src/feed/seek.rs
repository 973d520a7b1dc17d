//! Other steps than the next.

use super::Feed;
use super::batch::Batch;
use crate::device::Device;
use crate::error::FeedError;
use crate::order::{OrderError, World};
use crate::reader::body::Share;
use crate::record::StepId;
use crate::snapshot::{Course, Ring, SnapshotError};
use crate::transform::Place;

impl Feed {
    /// Goes to a step, forwards or backwards: the next batch of every lane is its share of it. [Lanes](Self::lanes) that were handed over before
    /// end, and new ones are to be taken. In [Caffe's ring](crate::FeedBuilder::epochs), steps are counted from the start, and their epoch is 0.
    ///
    /// It is done as a run [goes on](crate::FeedBuilder::resume), with new threads and buffers: in milliseconds, for any step. Statistics and receipts begin anew.
    ///
    /// # Errors
    ///
    /// [`FeedError`] if there is no such step, or the feed cannot be built again: it has no lanes then.
    pub fn seek(&mut self, step: impl Into<StepId>) -> Result<(), FeedError> {
        let id = step.into();
        self.check_step(id)?;
        let lanes = self.progress.iter().map(|lane| (lane.replica, id));
        let builder = self.asked.clone().resume(&self.about.snapshot(lanes)?);
        // Before the new ones, so that there is never the memory of both.
        self.lanes.clear();
        self.canceller.cancel();
        *self = builder.build_again()?;
        Ok(())
    }

    /// One batch alone, as any replica of the job, here or elsewhere, gets it: on the host, and bit for bit. The feed goes on meanwhile as if
    /// nothing were, and the memory of another batch is used.
    ///
    /// # Errors
    ///
    /// [`FeedError`] if there is no such step or replica, or the records cannot be read.
    pub fn replay(&self, step: impl Into<StepId>, replica: usize) -> Result<Batch, FeedError> {
        let id = step.into();
        self.check_step(id)?;
        let mut builder = self.asked.clone().resume(&self.about.snapshot([(replica, id)])?);
        builder = builder.devices([Device::host(0)]).transform_on(Place::Host).threads(1).prefetch(1);
        let of = match &self.about.course {
            Course::Plan(plan) => {
                builder.alone = Some((plan.world(), replica));
                plan.world().replicas()
            }
            Course::Ring(Ring { ranks, .. }) => {
                builder.alone = Some((World::new(1, *ranks).map_err(SnapshotError::Order)?, replica));
                builder.share = Some(Share { first: replica, of: *ranks });
                *ranks
            }
        };
        if replica >= of {
            let error = OrderError::NoSuchMember { kind: "replica", found: replica, of };
            return Err(SnapshotError::Order(error).into());
        }
        let mut alone = builder.build_again()?;
        let batch = alone.steps().next().transpose()?.and_then(|mut batches| batches.pop());
        batch.ok_or_else(|| {
            let StepId { epoch, step } = id;
            SnapshotError::Order(OrderError::NoSuchStep { epoch, step, steps: step }).into()
        })
    }

    /// That a step is one of the plan's. In the ring, there is hardly any that is not.
    fn check_step(&self, id: StepId) -> Result<(), SnapshotError> {
        match &self.about.course {
            Course::Plan(plan) => plan.share(id.epoch, id.step, 0).map(drop)?,
            Course::Ring(_) if id.epoch == 0 => {}
            Course::Ring(_) => {
                let StepId { epoch, step } = id;
                return Err(OrderError::NoSuchStep { epoch, step, steps: 0 }.into());
            }
        }
        Ok(())
    }
}
