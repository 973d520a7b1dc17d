//! Other steps than the next.

use super::Feed;
use super::batch::Batch;
use super::builder::FeedBuilder;
use super::spec::Seed;
use crate::device::Device;
use crate::error::FeedError;
use crate::order::{OrderError, Ranks, World};
use crate::record::StepId;
use crate::snapshot::{DealtBy, RoundRobin, SnapshotError};
use crate::transform::TransformPlace;

impl Feed {
    /// Goes to a step, forwards or backwards: the next batch of every lane is its share of it. [Lanes](Self::take_lanes) that
    /// were handed over before end, and new ones are to be taken. In [Caffe's ring](crate::FeedBuilder::epochs), steps
    /// are counted from the start, and their epoch is 0.
    ///
    /// It is done as a run [goes on](crate::FeedBuilder::resume), with new threads and buffers: in milliseconds, for any
    /// step, but for [Caffe's random sequence](crate::FeedBuilder::caffe_random), which is drawn again up to there.
    /// Statistics and receipts begin anew. A lane that was handed over gives what it has complete, and then
    /// [`FeedError::Cancelled`]; its memory is in use until it is [closed](crate::Lane::close), so close it before,
    /// where a device has no room for both. Lanes that were not are closed here.
    ///
    /// # Errors
    ///
    /// [`FeedError`] if there is no such step: the feed is as it was then. Or if it cannot be built again: then it has no lanes.
    pub fn seek(&mut self, step: impl Into<StepId>) -> Result<(), FeedError> {
        let id = step.into();
        self.check_step(id)?;
        let lanes = self.progress.iter().map(|lane| (lane.replica, id));
        let builder = self.builder.clone().resume(&self.about.snapshot(lanes)?);
        self.canceller.end_lanes();
        // Before there are new ones, whose memory comes on top.
        self.close_lanes();
        let canceller = self.canceller.clone();
        *self = builder.resolve_again()?.launch()?;
        // Whoever has one cancels what there is now.
        canceller.goes_for(&self.canceller);
        self.canceller = canceller;
        Ok(())
    }

    /// One batch alone, as any replica of the job, here or elsewhere, gets it: on the host, and bit for bit. The feed
    /// goes on meanwhile as if nothing were, and the memory of another batch is used.
    ///
    /// # Errors
    ///
    /// [`FeedError`] if there is no such step or replica, or the records cannot be read.
    pub fn replay(&self, step: impl Into<StepId>, replica: usize) -> Result<Batch, FeedError> {
        let id = step.into();
        self.check_step(id)?;
        let builder = self.builder.clone().devices([Device::host(0)]).transform_on(TransformPlace::Host);
        let mut builder = builder.threads(1).prefetch(1).receipts(false);
        let of = self.replicas();
        if replica >= of {
            let error = OrderError::NoSuchMember { kind: "replica", found: replica, of };
            return Err(SnapshotError::Order(error).into());
        }
        builder.stand_for(replica, of, self.progress[0].replica)?;
        let snapshot = self.about.snapshot_of(builder.drawn_from(), [(replica, id)])?;
        let mut alone = builder.resume(&snapshot).resolve_again()?.launch()?;
        let batch = alone.steps().next().transpose()?.and_then(|mut batches| batches.pop());
        // Of the ring, which ends where the records do.
        batch.ok_or_else(|| no_such_step(id, id.step))
    }

    fn replicas(&self) -> usize {
        match &self.about.dealt_by {
            DealtBy::Plan(plan) => plan.world().replicas(),
            DealtBy::RoundRobin(RoundRobin { ranks, .. }) => *ranks,
        }
    }

    /// That a step is one of the run's. In the ring, there is hardly any that is not.
    fn check_step(&self, id: StepId) -> Result<(), FeedError> {
        match &self.about.dealt_by {
            DealtBy::Plan(_) if self.about.end.is_some_and(|end| id >= end) => Err(no_such_step(id, 0)),
            DealtBy::Plan(plan) => {
                Ok(plan.share(id.epoch, id.step, 0).map(drop).map_err(SnapshotError::Order)?)
            }
            DealtBy::RoundRobin(_) if id.epoch > 0 => Err(no_such_step(id, 0)),
            DealtBy::RoundRobin(_) => Ok(()),
        }
    }
}

/// Of an epoch that has so many, or, as far as this run goes, none.
fn no_such_step(id: StepId, steps: u64) -> FeedError {
    let StepId { epoch, step } = id;
    SnapshotError::Order(OrderError::NoSuchStep { epoch, step, steps }).into()
}

impl FeedBuilder {
    /// Makes a feed of one lane the replica of a job that others are of, too, the first of which this was to be.
    fn stand_for(&mut self, replica: usize, of: usize, first: usize) -> Result<(), FeedError> {
        if self.spec.schedule.is_planned() {
            let world =
                self.spec.schedule.worker.map_or_else(|| World::new(1, of), |worker| Ok(worker.world));
            self.attached.alone = Some((world.map_err(SnapshotError::Order)?, replica));
            return Ok(());
        }
        self.spec.schedule.ranks = Some(Ranks { first: replica, of });
        if let Seed::Caffe { seed, .. } = &mut self.spec.seed {
            // In the ring, what was said is the first lane's.
            let ahead = u32::try_from(replica).unwrap_or(u32::MAX);
            *seed = seed.wrapping_add(ahead).wrapping_sub(u32::try_from(first).unwrap_or(u32::MAX));
        }
        Ok(())
    }
}
