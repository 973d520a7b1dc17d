//! Starts a feed whose batches are made elsewhere.

use std::sync::Arc;

use super::budget::MemoryBudget;
use super::builder::FeedBuilder;
use super::config::ConfigError;
use super::error::FeedError;
use super::handle::{FeedHandle, Running, RunningInput};
use super::lane::Lane;
use super::launch::{LaneEnd, check_devices, next_number};
use super::placement::Placement;
use super::progress::{LaneProgress, SnapshotFacts};
use super::resolve::of_device;
use super::sizing::Sizing;
use super::spec::Receipts;
use super::supply::{BatchRoom, LaneSupplier, SuppliedBatch, Supply, SupplyError};
use super::{Clock, Feed};
use crate::bad::{BadAction, BadCount};
use crate::base::first_error::FirstError;
use crate::base::memory_limit::MemoryLimit;
use crate::base::numa::Topology;
use crate::batch::{BatchLayout, Capacity, LayoutError};
use crate::device::Device;
use crate::order::Plan;
use crate::prefetch::frontier::Frontier;
use crate::prefetch::{BatchInput, LaneBatches, LaneMeters, SupplyGate, SupplyLine};
use crate::record::StepId;
use crate::snapshot::{DealtBy, SnapshotError};
use crate::source::Passes;
use crate::transform::TransformPlace;
use percolator_files::shown;

/// How many batches a ring has, unless it is set: as where they are made here.
const PREFETCH: usize = 4;

/// Supplies nothing: for a lane whose run has ended.
struct Nothing;

impl LaneSupplier for Nothing {
    fn fill(&mut self, _: BatchRoom) -> Result<Option<SuppliedBatch>, SupplyError> {
        Ok(None)
    }

    fn closer(&self) -> Box<dyn Fn() + Send> {
        Box::new(|| {})
    }
}

impl FeedBuilder {
    /// Builds the feed with batches that somebody else makes, in place of a reader and workers: another
    /// process, on this machine or elsewhere. Its options describe the batches, as they do for whoever makes
    /// them; what they say of sources, decoders and transforms is not looked at here. The devices, the ring,
    /// the waits, [receipts](Self::receipts) and the snapshot to [resume](Self::resume) from are this feed's
    /// own. Of receipts, it keeps which records came, and in which steps.
    ///
    /// Such a feed has no workers, [replays](Feed::replay) nothing, and resumes only as the job that it began
    /// as.
    ///
    /// # Errors
    ///
    /// [`FeedError`] if the options cannot be met, if the snapshot to resume from is of another run, or if a
    /// device or the memory limit has no room for its batches.
    pub fn build_supplied(mut self, supply: Supply) -> Result<Feed, FeedError> {
        self.check_supplied()?;
        let devices = self.named_devices()?;
        let named = |(lane, device): (usize, &Device)| of_device(lane, || Ok(device.name()));
        self.spec.devices = devices.iter().enumerate().map(named).collect::<Result<_, _>>()?;
        self.attached.devices = Some(devices.clone());
        let sizing = self.supplied_sizing()?;
        let (layout, capacity) = self.supplied_layout(&supply, sizing.prefetch)?;
        let limit = MemoryLimit::lowest(self.spec.memory_limit);
        let budget = MemoryBudget::of_batches(devices.len() * sizing.prefetch, layout.bytes(), layout.rows());
        budget.check(limit.as_ref())?;
        check_devices(&devices, sizing.prefetch, capacity)?;
        let (facts, first_replica) = (self.supplied_facts(&supply)?, self.replica_span()?.first_replica);
        let starts = self.supplied_starts(&supply, &facts, first_replica)?;
        let running = Supplying {
            clock: Arc::new(Clock::start(devices.len())),
            gate: Arc::default(),
            first_error: FirstError::new(),
            facts: Arc::new(facts),
            builder: self,
            supply,
            devices,
            sizing,
            layout,
            capacity,
            budget,
            limit,
        };
        running.start(&starts, first_replica)
    }

    /// Refuses what such a feed cannot do.
    fn check_supplied(&self) -> Result<(), ConfigError> {
        self.check_order()?;
        if self.spec.devices.is_empty() {
            return Err(ConfigError::NoDevice);
        }
        let spec = &self.spec;
        let refused = [
            ("blocks", spec.schedule.blocks),
            ("a layer of a net", spec.net.is_some()),
            ("only_lane", self.attached.alone.is_some()),
            ("TransformPlace::Device", spec.transform_on == TransformPlace::Device),
            ("bad records that are left out", spec.bad_records.action != BadAction::Fail),
            ("receipts of contents", spec.receipts == Receipts::Contents),
        ];
        if let Some((option, _)) = refused.into_iter().find(|(_, is_set)| *is_set) {
            return Err(ConfigError::WithSupply { option });
        }
        if spec.receipts > Receipts::Off && !spec.schedule.is_planned() {
            return Err(ConfigError::ReceiptsOfRoundRobin);
        }
        if spec.receipts > Receipts::Off && !spec.schedule.mix.is_empty() {
            return Err(ConfigError::ReceiptsOfMixture);
        }
        Ok(())
    }

    fn supplied_sizing(&self) -> Result<Sizing, ConfigError> {
        let prefetch = self.spec.prefetch.unwrap_or(PREFETCH);
        if prefetch == 0 {
            return Err(ConfigError::Zero { option: "prefetch" });
        }
        Ok(Sizing {
            threads: 0,
            are_threads_chosen: false,
            prefetch,
            prefetch_max: prefetch,
            is_prefetch_chosen: self.spec.prefetch.is_none(),
        })
    }

    fn supplied_layout(
        &self,
        supply: &Supply,
        prefetch: usize,
    ) -> Result<(Arc<BatchLayout>, Capacity), ConfigError> {
        let batch_size = self.lane_batch_size()?;
        if batch_size == 0 {
            return Err(ConfigError::Zero { option: "batch_size" });
        }
        let too_large = || {
            let record = supply.fields.first().map(ToString::to_string).unwrap_or_default();
            ConfigError::BatchTooLarge { batch_size, record }
        };
        let layout = BatchLayout::new(supply.fields.clone(), batch_size).map_err(|error| match error {
            LayoutError::Fields(error) => ConfigError::Fields(error),
            LayoutError::TooLarge => too_large(),
        })?;
        let capacity = layout.capacity();
        let slots = prefetch.checked_mul(self.spec.devices.len());
        slots.and_then(|slots| capacity.checked_device_bytes(slots)).ok_or_else(too_large)?;
        Ok((Arc::new(layout), capacity))
    }

    /// What all snapshots have in common: what those have of whoever makes the batches.
    fn supplied_facts(&self, supply: &Supply) -> Result<SnapshotFacts, FeedError> {
        let (start, schedule) = (&supply.start, &self.spec.schedule);
        let is_planned = matches!(start.dealt_by(), DealtBy::Plan(_));
        if is_planned != schedule.is_planned() {
            let what = "a supplied feed whose start is of another order than its options";
            return Err(SupplyError::new(what).into());
        }
        start.check_draws(self.drawn_from())?;
        let epochs = schedule.epochs.filter(|&epochs| is_planned && epochs > 0);
        Ok(SnapshotFacts {
            source: start.source().to_owned(),
            identity: start.identity().clone(),
            passes: Passes::Alike,
            dealt_by: start.dealt_by().clone(),
            draws: start.draws(),
            end: epochs.map(|epoch| StepId { epoch, step: 0 }),
            has_blocks: false,
            on_bad: BadAction::Fail,
        })
    }

    /// Where each lane begins.
    fn supplied_starts(
        &self,
        supply: &Supply,
        facts: &SnapshotFacts,
        first_replica: usize,
    ) -> Result<Vec<StepId>, FeedError> {
        let lanes = first_replica..first_replica + self.spec.devices.len();
        let replicas = supply.start.replicas();
        if lanes.end > replicas {
            let (first, of) = (first_replica, replicas);
            let what = format!("a supplied feed of {of} replicas, of which the lanes are {first} and more");
            return Err(SupplyError::new(what).into());
        }
        let from = self.attached.resume.as_deref().unwrap_or(&supply.start);
        let starts = from.next_in(&supply.start, lanes)?;
        match facts.plan() {
            Some(plan) => starts.into_iter().map(|start| existing(plan, start)).collect(),
            None => Ok(starts),
        }
    }
}

/// A step of the plan, or the one that comes next if its epoch has no further ones.
fn existing(plan: &Plan, start: StepId) -> Result<StepId, FeedError> {
    Ok(plan.normalized(start).map_err(SnapshotError::Order)?)
}

/// A feed that is about to start.
struct Supplying {
    builder: FeedBuilder,
    supply: Supply,
    devices: Vec<Device>,
    sizing: Sizing,
    layout: Arc<BatchLayout>,
    capacity: Capacity,
    budget: MemoryBudget,
    limit: Option<MemoryLimit>,
    facts: Arc<SnapshotFacts>,
    clock: Arc<Clock>,
    gate: Arc<SupplyGate>,
    first_error: FirstError<FeedError>,
}

impl Supplying {
    fn start(self, starts: &[StepId], first_replica: usize) -> Result<Feed, FeedError> {
        let spec = &self.builder.spec;
        let number = next_number();
        let keeps_receipts = spec.receipts > Receipts::Off;
        let progress = |(lane, start): (usize, &StepId)| {
            LaneProgress::new(&self.facts, first_replica + lane, *start, keeps_receipts, BadCount::default())
        };
        let progress: Vec<_> = starts.iter().enumerate().map(progress).collect();
        let meters: Vec<Arc<LaneMeters>> = (0..self.devices.len())
            .map(|_| Arc::new(LaneMeters { feed: number, ..LaneMeters::default() }))
            .collect();
        let lanes = self.lanes(&progress, &meters)?;
        tracing::info!(
            source = %shown::path(&self.facts.source),
            layout = %self.layout,
            lanes = lanes.len(),
            sizing = %self.sizing,
            budget_bytes = self.budget.total_bytes(),
            "the feed starts; its batches are made elsewhere"
        );
        let running = Running {
            clock: self.clock,
            input: RunningInput::Supplied(self.gate),
            lanes: lanes.iter().map(|lane| lane.device.clone()).zip(meters).collect(),
            progress: progress.clone(),
            facts: self.facts.clone(),
            budget: self.budget.clone(),
            memory_limit: self.limit,
            first_error: self.first_error,
        };
        Ok(Feed {
            lanes: Ok(lanes),
            records: self.supply.records,
            input_shape: self.supply.input_shape,
            layout: self.layout,
            sizing: self.sizing,
            budget: self.budget,
            handle: FeedHandle::new(running),
            progress,
            empty_epoch: None,
            facts: self.facts,
            builder: self.builder,
            supply: Some(self.supply),
        })
    }

    fn lanes(
        &self,
        progress: &[Arc<LaneProgress>],
        meters: &[Arc<LaneMeters>],
    ) -> Result<Vec<Lane>, FeedError> {
        let place = || Ok(Placement::of(&Topology::of_machine(), &self.devices, 0));
        let placement = FeedError::of_panic(|| "a device".to_owned(), place)?;
        let pads = self.facts.plan().is_some_and(|plan| plan.pads());
        let end = match (self.facts.end, self.facts.plan()) {
            (Some(end), Some(plan)) => Some(existing(plan, end).unwrap_or(end)),
            _ => None,
        };
        let frontiers = Frontier::of(progress.iter().map(|lane| lane.next().1));
        let mut lanes = Vec::with_capacity(progress.len());
        for (number, (frontier, near)) in frontiers.into_iter().zip(placement.lanes).enumerate() {
            let from = progress[number].next().1;
            let supplier = match end.is_some_and(|end| from >= end) {
                true => Box::new(Nothing),
                false => self.supply.lanes.supplier(number, from)?,
            };
            let line = SupplyLine::start(format!("supply:{number}"), supplier, &self.gate)?;
            let batches = LaneBatches {
                layout: self.layout.clone(),
                first_layout: self.layout.clone(),
                capacity: self.capacity,
                pads,
                mixing: None,
                keeps_contents: false,
            };
            let end = LaneEnd {
                number,
                device: &self.devices[number],
                near,
                spec: &self.builder.spec,
                sizing: self.sizing,
                meters: &meters[number],
                progress: progress[number].clone(),
                frontier,
                first_error: &self.first_error,
                clock: &self.clock,
                can_repeat: false,
                watch: None,
                workers: None,
            };
            lanes.push(of_device(number, || end.start(BatchInput::Supplied(line), batches))?);
        }
        Ok(lanes)
    }
}
