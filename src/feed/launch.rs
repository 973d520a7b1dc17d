//! Launches a resolved feed: allocates its memory and starts its threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::config::ConfigError;
use super::empty::EmptyBatches;
use super::error::FeedError;
use super::handle::{FeedHandle, Running, RunningInput};
use super::lane::{Lane, PrefetchThread};
use super::placement::Placement;
use super::progress::{LaneProgress, SnapshotFacts};
use super::resolve::{ResolvedFeed, of_device, of_source};
use super::sizing::Sizing;
use super::spec::FeedSpec;
use super::{Clock, Feed};
use crate::base::first_error::FirstError;
use crate::base::memory_limit::MemoryLimit;
use crate::base::numa::Cpus;
use crate::base::offload::Helpers;
use crate::base::return_queue::ReturnQueue;
use crate::base::slot_account::SlotAccount;
use crate::base::sync::{Sender, bounded, thread};
use crate::batch::mix::MixedFields;
use crate::device::{Capacity, Device, DeviceError};
use crate::order::OrderError;
use crate::prefetch::frontier::{Frontier, LaneFrontier};
use crate::prefetch::{
    BatchInput, ConsumerQueues, Dealt, Depth, FeedLinks, LaneBatches, LaneMeters, Prefetcher, RingKeeper,
    Start, State, Tolerance, lane_queues,
};
use crate::reader::schedule_slice::ScheduleSlice;
use crate::reader::thread::{Pool, Terms};
use crate::reader::{DataReader, ReaderWatch, Registry};
use crate::transform::{Draws, Mixing, TransformPlace};
use crate::workers::{Governor, TaskQueue, WorkerMeters, Workers};
use percolator_files::shown;

/// The most records whose random numbers are drawn again when Caffe's sequence resumes: some seconds' work.
const DRAWN_AGAIN_MAX: u64 = 1 << 31;

/// Distinguishes the feeds of one process in traces. They count from 1.
static FEEDS: AtomicU64 = AtomicU64::new(1);

/// The number of the next feed of this process.
pub(super) fn next_number() -> u64 {
    FEEDS.fetch_add(1, Relaxed)
}

/// What all lanes of a feed share.
struct Shared {
    workers: Arc<Workers>,
    governor: Arc<Governor>,
    first_error: FirstError<FeedError>,
    clock: Arc<Clock>,
}

impl ResolvedFeed {
    /// Allocates the memory and starts the threads.
    pub(super) fn start(self) -> Result<Feed, FeedError> {
        let clock = Arc::new(Clock::start(self.devices.len()));
        // First, so that the transform on a device has its memory before the free memory is checked.
        let devices = self.lane_devices()?;
        check_devices(&self.devices, self.sizing.prefetch, self.capacity)?;
        let queue = TaskQueue::with_room(self.sizing.threads, self.devices.len() * self.runs());
        let feed = next_number();
        let readers = of_source(|| self.open_readers(feed, &queue.helpers()))?;
        let meters = Arc::new(WorkerMeters::default());
        let of_lane = |_| Arc::new(LaneMeters { feed, ..LaneMeters::default() });
        let lane_meters: Vec<Arc<LaneMeters>> = devices.iter().map(of_lane).collect();
        let threads = self.sizing.threads;
        let governor = Arc::new(if self.sizing.are_threads_chosen {
            let consumers = lane_meters.iter().map(|lane| lane.for_batch.clone());
            Governor::choosing(threads, &meters, consumers.collect())
        } else {
            Governor::of(threads)
        });
        let placement = self.placement()?;
        let near = placement.workers.as_ref();
        let first_error = FirstError::new();
        let lost = {
            let first_error = first_error.clone();
            move |name, message| {
                first_error.set(FeedError::Panicked { name, message });
            }
        };
        let workers = Workers::start(queue, governor.clone(), &self.processor, &meters, near, feed, lost)
            .map_err(|error| FeedError::Thread { name: "worker".to_owned(), source: error.into() })?;
        let shared = Shared { workers: Arc::new(workers), governor, first_error, clock };
        let watch = readers[0].watch();
        let (facts, records) = of_source(|| Ok((Arc::new(self.facts()), self.source.records())))?;
        let progress = self.progress(&facts)?;
        let frontier = Frontier::of(progress.iter().map(|lane| lane.next().1));
        let parts = readers.into_iter().zip(progress.iter().cloned()).zip(frontier);
        let lanes = parts
            .zip(devices.iter().zip(&lane_meters).zip(placement.lanes))
            .enumerate()
            .map(|(lane, (part, ((device, meters), near)))| {
                of_device(lane, || self.start_lane(part, device, meters, near, &shared))
            })
            .collect::<Result<Vec<Lane>, FeedError>>()?;
        let lane_meters = lanes.iter().map(|lane| lane.device.clone()).zip(lane_meters).collect();
        let running = self.running(&shared, watch, meters, lane_meters, &progress, &facts);
        tracing::info!(
            source = %shown::path(&facts.source),
            records,
            layout = %self.layout,
            lanes = lanes.len(),
            sizing = %self.sizing,
            budget_bytes = self.budget.total_bytes(),
            "the feed starts"
        );
        Ok(Feed {
            lanes: Ok(lanes),
            records,
            layout: self.layout,
            input_shape: self.first.input.map(|input| input.shape),
            sizing: self.sizing,
            budget: self.budget,
            handle: FeedHandle::new(running),
            progress,
            empty_epoch: None,
            facts,
            builder: self.builder,
            supply: None,
        })
    }

    /// What a handle reads and changes.
    fn running(
        &self,
        Shared { workers, first_error, clock, .. }: &Shared,
        reader: ReaderWatch,
        meters: Arc<WorkerMeters>,
        lanes: Vec<(String, Arc<LaneMeters>)>,
        progress: &[Arc<LaneProgress>],
        facts: &Arc<SnapshotFacts>,
    ) -> Running {
        Running {
            clock: clock.clone(),
            input: RunningInput::Dealt {
                reader,
                roster: workers.roster().clone(),
                queue: workers.queue_watch(),
                workers: meters,
            },
            lanes,
            progress: progress.to_vec(),
            facts: facts.clone(),
            budget: self.budget.clone(),
            memory_limit: MemoryLimit::lowest(self.builder.spec.memory_limit),
            first_error: first_error.clone(),
        }
    }

    /// One handle for each lane, in the order of the lanes: record `g` goes to lane `g mod N`. The reader is
    /// the feed's own, in a registry of its own.
    fn open_readers(&self, feed: u64, helpers: &Arc<dyn Helpers>) -> Result<Vec<DataReader>, FeedError> {
        let registry = Registry::new();
        let open = |_| {
            DataReader::builder_shared(&*self.builder.spec.layer, self.source.clone())
                .phase(self.builder.spec.phase)
                .terms(Terms { feed, ..self.terms() })
                .helpers(helpers.clone())
                .open_in(&registry)
        };
        Ok(self.devices.iter().map(open).collect::<Result<_, _>>()?)
    }

    /// The processors that the lanes and the workers are bound to.
    fn placement(&self) -> Result<Placement, FeedError> {
        let place = || Ok(Placement::of(&self.topology, &self.devices, self.sizing.threads));
        FeedError::of_panic(|| "a device".to_owned(), place)
    }

    /// The random numbers of a lane's records, from the first one that comes.
    fn draws(&self, lane: usize) -> Result<Draws, OrderError> {
        let mut draws = self.draws_from_start(lane);
        draws.pass(self.drawn_again(lane)?);
        Ok(draws)
    }

    /// The random numbers of a lane's records, from the first record of the run.
    fn draws_from_start(&self, lane: usize) -> Draws {
        let takes = self.builder.spec.transform.takes(self.builder.spec.phase);
        // In round-robin order, the seed that was set is the first lane's.
        let replica = match &self.schedule_slice {
            Some(slice) if !slice.is_round_robin => slice.first_replica + lane,
            _ => lane,
        };
        self.randomness.lane(replica, takes)
    }

    /// The records before a lane's first one whose random numbers have to be drawn again, because a place in
    /// Caffe's sequence cannot be computed directly.
    ///
    /// # Errors
    ///
    /// [`OrderError::TooMany`] if drawing them would take minutes.
    pub(super) fn drawn_again(&self, lane: usize) -> Result<u64, OrderError> {
        let Some(ScheduleSlice { plan, first_replica, starts, .. }) = &self.schedule_slice else {
            return Ok(0);
        };
        if !self.draws_from_start(lane).are_in_turn() {
            return Ok(0);
        }
        let records = plan.records_given(starts[lane], first_replica + lane)?;
        if records > DRAWN_AGAIN_MAX {
            let what = "records whose random numbers Caffe's sequence draws again";
            return Err(OrderError::TooMany { what, allowed: DRAWN_AGAIN_MAX });
        }
        Ok(records)
    }

    /// The number of runs that circulate between the reader and a lane.
    fn runs(&self) -> usize {
        Pool::cut(&self.terms(), self.first.value_bytes).runs
    }

    /// The devices as the lanes use them. Lanes that share a device share the transforming one, too.
    fn lane_devices(&self) -> Result<Vec<Device>, FeedError> {
        let named = &self.devices;
        if self.builder.spec.transform_on == TransformPlace::Host {
            return Ok(named.clone());
        }
        let Some(image) = &self.image else { return Ok(named.clone()) };
        let transform = image.transformer.on_device();
        let mut devices: Vec<Device> = Vec::with_capacity(named.len());
        for (lane, device) in named.iter().enumerate() {
            let known = named.iter().zip(&devices).find(|(known, _)| known.is(device));
            let made = match known {
                Some((_, made)) => made.clone(),
                None => of_device(lane, || Ok(device.transforming(&transform)?))?,
            };
            devices.push(made);
        }
        Ok(devices)
    }

    /// How batches are mixed, and which of their fields.
    fn mixing(&self) -> Option<(Mixing, MixedFields)> {
        self.builder.spec.mixing.zip(self.image.as_ref()?.mixed_fields())
    }

    /// `near` are the processors that the lane is bound to, if any.
    fn start_lane(
        &self,
        ((reader, progress), frontier): ((DataReader, Arc<LaneProgress>), LaneFrontier),
        device: &Device,
        meters: &Arc<LaneMeters>,
        near: Option<Cpus>,
        shared: &Shared,
    ) -> Result<Lane, FeedError> {
        let (number, watch) = (reader.number(), reader.watch());
        let pads = self.schedule_slice.as_ref().is_some_and(|schedule_slice| schedule_slice.plan.pads());
        let (draws, can_repeat) = (self.draws(number).map_err(ConfigError::Order)?, self.can_repeat());
        let start = can_repeat.then(|| Start { next: progress.next().1, draws: draws.clone() });
        let spec = &self.builder.spec;
        let tolerance = Tolerance {
            policy: spec.bad_records.clone(),
            count: progress.bad_count(),
            lane: number,
            is_mixed: !spec.schedule.mix.is_empty(),
        };
        let input = BatchInput::Dealt(Box::new(Dealt {
            reader,
            processor: self.processor.clone(),
            draws,
            governor: shared.governor.clone(),
            tasks: shared.workers.tasks(),
            tolerance,
            start,
        }));
        let batches = LaneBatches {
            layout: self.layout.clone(),
            first_layout: self.layout.clone(),
            capacity: self.capacity,
            pads,
            mixing: self.mixing().map(|(mixing, fields)| (mixing, fields, self.processor.seed)),
            keeps_contents: self.processor.hashes_contents,
        };
        let end = LaneEnd {
            number,
            device,
            near,
            spec,
            sizing: self.sizing,
            meters,
            progress,
            frontier,
            first_error: &shared.first_error,
            clock: &shared.clock,
            can_repeat,
            watch: Some(watch),
            workers: Some(shared.workers.clone()),
        };
        end.start(input, batches)
    }
}

/// What a lane is started with, beside what fills its batches.
pub(super) struct LaneEnd<'a> {
    pub(super) number: usize,
    pub(super) device: &'a Device,
    /// The processors that the lane is bound to, if any.
    pub(super) near: Option<Cpus>,
    pub(super) spec: &'a FeedSpec,
    pub(super) sizing: Sizing,
    pub(super) meters: &'a Arc<LaneMeters>,
    pub(super) progress: Arc<LaneProgress>,
    pub(super) frontier: LaneFrontier,
    pub(super) first_error: &'a FirstError<FeedError>,
    pub(super) clock: &'a Arc<Clock>,
    pub(super) can_repeat: bool,
    pub(super) watch: Option<ReaderWatch>,
    pub(super) workers: Option<Arc<Workers>>,
}

impl LaneEnd<'_> {
    /// Allocates the lane's ring and starts its thread.
    pub(super) fn start(self, input: BatchInput, batches: LaneBatches) -> Result<Lane, FeedError> {
        let Sizing { prefetch, prefetch_max, .. } = self.sizing;
        let (queues, of_consumer) = lane_queues(prefetch_max);
        let ConsumerQueues { full, consumer, free, stop, is_left } = of_consumer;
        let (number, spec, together) = (self.number, self.spec, self.frontier.shared().clone());
        let account = SlotAccount::open();
        let empties = EmptyBatches::new(self.device, &batches.layout, batches.pads, number);
        let mut prefetcher = Prefetcher {
            ring: RingKeeper(account.clone()),
            lane: number,
            input,
            device: self.device.clone(),
            near: self.near,
            batches,
            depth: Depth::of(prefetch, prefetch_max),
            meters: self.meters.clone(),
            feed: FeedLinks {
                first_error: self.first_error.clone(),
                frontier: self.frontier,
                counts_batches: spec.schedule.blocks,
            },
            queues,
            state: State::with_capacity(prefetch_max, self.progress.next().1),
        };
        prefetcher.add_slots(prefetch)?;
        Ok(Lane {
            number,
            device: self.device.name(),
            empties,
            full,
            arrived: None,
            wait: None,
            returns: ReturnQueue::new(free, &account),
            meters: self.meters.clone(),
            consumer,
            #[cfg(feature = "stream")]
            task_wait: None,
            error: None,
            clock: self.clock.clone(),
            watch: self.watch,
            warn_after: spec.warn_after,
            give_up_after: spec.give_up_after,
            progress: self.progress,
            first_error: self.first_error.clone(),
            frontier: together,
            ended: false,
            rest: None,
            can_repeat: self.can_repeat,
            is_left,
            thread: Some(spawn(prefetcher, stop)?),
            _workers: self.workers,
        })
    }
}

/// Checks that each device has room for the batches of all its lanes, of this number and capacity.
pub(super) fn check_devices(devices: &[Device], prefetch: usize, batch: Capacity) -> Result<(), FeedError> {
    let named = |(lane, device): (usize, &Device)| of_device(lane, || Ok(device.name()));
    let names: Vec<String> = devices.iter().enumerate().map(named).collect::<Result<_, _>>()?;
    for (number, (device, name)) in devices.iter().zip(&names).enumerate() {
        // One check covers all lanes of a device.
        if names[..number].contains(name) {
            continue;
        }
        let Some(free) = of_device(number, || Ok(device.backend().free_bytes()?))? else { continue };
        let lanes = names.iter().filter(|other| *other == name).count();
        let batches = lanes * prefetch;
        let bytes =
            batch.checked_device_bytes(batches).expect("the lanes' batches were found to be countable");
        if bytes > free {
            let message = format!(
                "{free} bytes are free, for {batches} batches of {}; \
                 lower the batch size or the prefetch",
                bytes / batches
            );
            return Err(DeviceError::OutOfMemory { device: name.clone(), bytes, message }.into());
        }
    }
    Ok(())
}

/// Starts the prefetch thread. Dropping `stop` ends it.
fn spawn(prefetcher: Prefetcher, stop: Sender<()>) -> Result<PrefetchThread, FeedError> {
    let name = format!("prefetch:{}", prefetcher.lane);
    let keeps_batches = prefetcher.device.keeps_batches();
    // Room for a message that never comes, as for `stop`.
    let (through_sender, through) = bounded(1);
    let (empties, empties_receiver) = bounded(1);
    let thread_name = name.clone();
    let thread = thread::Builder::new()
        .name(name.clone())
        .spawn(move || prefetcher.run_to_end(thread_name, through_sender, &empties_receiver))
        .map_err(|error| FeedError::Thread { name, source: error.into() })?;
    Ok(PrefetchThread { stop, through, empties, thread, keeps_batches })
}
