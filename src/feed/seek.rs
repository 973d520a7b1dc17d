//! Seeking to steps other than the next one, and running one lane without the others.

use super::Feed;
use super::batch::Batch;
use super::builder::FeedBuilder;
use super::config::ConfigError;
use super::error::FeedError;
use super::resolve::ResolvedFeed;
use super::schedule::ReplicaSpan;
use super::spec::Seed;
use crate::device::Device;
use crate::order::{COUNTED_MAX, OrderError, Ranks, World};
use crate::record::StepId;
use crate::snapshot::{DealtBy, RoundRobin, SnapshotError};
use crate::transform::TransformPlace;

impl Feed {
    /// Seeks to a step, forwards or backwards: the next batch of every lane is its share of that step.
    /// [Lanes](Self::take_lanes) that were taken end, and new ones must be taken. In [round-robin
    /// order](crate::FeedBuilder::epochs), steps are counted from the start, and their epoch is 0.
    ///
    /// It works as a run [resumes](crate::FeedBuilder::resume), with new threads and buffers. It takes
    /// milliseconds for any step, except that [Caffe's random sequence](crate::Seed::Caffe) is drawn again up
    /// to there, and that compressed files are unpacked, once to count their records and again up to there.
    /// Statistics and receipts start over; [handles](Self::handle) stay valid. A lane that was taken delivers
    /// what it has complete, then [`FeedError::Cancelled`]. Its memory is in use until it is
    /// [closed](crate::Lane::close), so close it first if a device has no room for both. Lanes that were not
    /// taken are closed here.
    ///
    /// # Errors
    ///
    /// [`FeedError`] if there is no such step (the feed is then unchanged), or if it cannot be built again
    /// with the threads that were [set](super::FeedHandle::set_threads): it then has no lanes, and every call
    /// that needs them returns this error, until another seek succeeds.
    pub fn seek(&mut self, step: impl Into<StepId>) -> Result<(), FeedError> {
        let id = step.into();
        self.check_step(id)?;
        if self.facts.has_blocks {
            return Err(ConfigError::WithBlocks { option: "seek" }.into());
        }
        let lanes = self.progress.iter().map(|lane| (lane.replica, id));
        let builder = self.builder.clone().resume(&self.facts.snapshot(lanes)?);
        self.handle.begin_seek();
        // Before new ones are created: their memory would be needed in addition.
        self.close_lanes();
        let launched = match &self.supply {
            Some(supply) => builder.build_supplied(supply.clone()),
            None => builder.resolve_again().and_then(ResolvedFeed::launch),
        };
        let switched = launched.and_then(|feed| match self.handle.switch_to(&feed.handle) {
            Ok(()) => Ok(feed),
            Err(error) => {
                feed.close();
                Err(error)
            }
        });
        match switched {
            Ok(feed) => {
                *self = Feed { handle: self.handle.clone(), ..feed };
                Ok(())
            }
            Err(error) => {
                self.handle.end_seek();
                self.lanes = Err(error.clone());
                Err(error)
            }
        }
    }

    /// Returns one batch alone, as any replica of the job, here or elsewhere, gets it: on the host, and bit
    /// for bit. The feed continues unaffected, and the memory of one more batch is used.
    ///
    /// # Errors
    ///
    /// [`FeedError`] if there is no such step or replica, if the records cannot be read, or if the feed's
    /// batches are made [elsewhere](FeedBuilder::build_supplied).
    pub fn replay(&self, step: impl Into<StepId>, replica: usize) -> Result<Batch, FeedError> {
        let id = step.into();
        self.check_step(id)?;
        if self.supply.is_some() {
            return Err(ConfigError::WithSupply { option: "replay" }.into());
        }
        let builder = self.builder.clone().devices([Device::host(0)]).transform_on(TransformPlace::Host);
        let mut builder = builder.threads(1).prefetch(1).receipts(false);
        builder.forget_blocks();
        let of = self.replicas();
        if replica >= of {
            let error = OrderError::NoSuchMember { kind: "replica", found: replica, of };
            return Err(SnapshotError::Order(error).into());
        }
        builder.stand_for(replica, of, self.progress[0].replica)?;
        let snapshot = self.facts.snapshot_of(builder.drawn_from(), [(replica, id)])?;
        let mut alone = builder.resume(&snapshot).resolve_again()?.launch()?;
        let batch = alone.steps().next().transpose()?.and_then(|mut batches| batches.pop());
        // In round-robin order there is no batch past the last record of a single pass.
        batch.ok_or_else(|| no_such_step(id, id.step))
    }

    fn replicas(&self) -> usize {
        match &self.facts.dealt_by {
            DealtBy::Plan(plan) => plan.world().replicas(),
            DealtBy::RoundRobin(RoundRobin { ranks, .. }) => *ranks,
        }
    }

    /// Checks that the run has this step. In round-robin order, every step exists that can be counted.
    fn check_step(&self, id: StepId) -> Result<(), FeedError> {
        match &self.facts.dealt_by {
            DealtBy::Plan(_) if self.facts.end.is_some_and(|end| id >= end) => Err(no_such_step(id, 0)),
            DealtBy::Plan(plan) => {
                Ok(plan.share(id.epoch, id.step, 0).map(drop).map_err(SnapshotError::Order)?)
            }
            DealtBy::RoundRobin(_) if id.epoch > 0 => Err(no_such_step(id, 0)),
            DealtBy::RoundRobin(RoundRobin { batch_size, ranks, .. }) => {
                let records =
                    batch_size.checked_mul(*ranks as u64).and_then(|each| each.checked_mul(id.step));
                if records.is_some_and(|records| records <= COUNTED_MAX) {
                    return Ok(());
                }
                let what = "records before this step";
                Err(SnapshotError::Order(OrderError::TooMany { what, allowed: COUNTED_MAX }).into())
            }
        }
    }
}

/// `steps` is how many the epoch has; 0 if the run does not reach it.
fn no_such_step(id: StepId, steps: u64) -> FeedError {
    let StepId { epoch, step } = id;
    SnapshotError::Order(OrderError::NoSuchStep { epoch, step, steps }).into()
}

impl FeedBuilder {
    /// Makes this a feed of only one of its lanes, at that lane's device. It delivers, bit for bit, what the
    /// lane gets when it is one of many, and reads nothing for the others. Use it for devices that are not in
    /// step with each other: lanes of one feed wait for each other, because one reader deals to all of them,
    /// but feeds do not. Each feed has its own threads and memory. The [spec](Self::spec) does not contain
    /// this setting, just as it does not contain what a program attaches. Set [epochs](Self::epochs),
    /// [share](Self::share) and devices before it.
    ///
    /// ```no_run
    /// use percolator::{Device, Feed};
    ///
    /// let both = Feed::builder().lmdb("train_lmdb").epochs(10).devices([Device::host(0), Device::host(1)]);
    /// let mut first = both.clone().only_lane(0)?.build()?;
    /// let mut second = both.only_lane(1)?.build()?;
    /// # Ok::<(), percolator::FeedError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`FeedError`] if there is no such lane, if the lanes have no place in the job that is described, or if
    /// what is set needs epochs.
    pub fn only_lane(mut self, lane: usize) -> Result<Self, FeedError> {
        let lanes = self.spec.devices.len();
        if lane >= lanes {
            return Err(
                ConfigError::from(OrderError::NoSuchMember { kind: "lane", found: lane, of: lanes }).into()
            );
        }
        self.check_order()?;
        let ReplicaSpan { world, first_replica } = self.replica_span()?;
        self.stand_for(first_replica + lane, world.replicas(), first_replica)?;
        self.spec.devices = vec![self.spec.devices.swap_remove(lane)];
        self.attached.devices = self.attached.devices.map(|mut devices| vec![devices.swap_remove(lane)]);
        Ok(self)
    }

    /// Makes the feed deliver the steps of its plan as they follow one another.
    fn forget_blocks(&mut self) {
        let schedule = &mut self.spec.schedule;
        if std::mem::take(&mut schedule.blocks) {
            // It still follows a plan.
            schedule.epochs.get_or_insert(0);
            self.attached.blocks = None;
        }
    }

    /// Makes a feed of one lane stand for replica `replica` of the job. `first` is the replica that its first
    /// lane was to be.
    fn stand_for(&mut self, replica: usize, of: usize, first: usize) -> Result<(), FeedError> {
        if self.spec.schedule.is_planned() {
            let world =
                self.spec.schedule.worker.map_or_else(|| World::new(1, of), |worker| Ok(worker.world));
            self.attached.alone = Some((world.map_err(SnapshotError::Order)?, replica));
            return Ok(());
        }
        self.spec.schedule.ranks = Some(Ranks { first: replica, of });
        if let Seed::Caffe { seed, .. } = &mut self.spec.seed {
            // In round-robin order, the seed that was set is the first lane's.
            let ahead = u32::try_from(replica).unwrap_or(u32::MAX);
            *seed = seed.wrapping_add(ahead).wrapping_sub(u32::try_from(first).unwrap_or(u32::MAX));
        }
        Ok(())
    }
}
