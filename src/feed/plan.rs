//! From what was asked for to a running feed: checked whole before a thread is started.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_channel::{Sender, bounded};

use super::builder::{FeedBuilder, Seed};
use super::empty::EmptyBatches;
use super::first_record::FirstRecord;
use super::lane::{Lane, PrefetchThread};
use super::net::NetPlace;
use super::open::Opened;
use super::origin::Origin;
use super::placement::Placement;
use super::progress::{About, Progress};
use super::sizing::Sizing;
use super::{Clock, Feed, FeedCanceller, Gauges};
use crate::base::cache_lines;
use crate::base::first_error::FirstError;
use crate::base::numa::{Cpus, Topology};
use crate::base::offload::{Helpers, OFFLOADED_MAX};
use crate::base::return_queue::ReturnQueue;
use crate::base::shape::Phase;
use crate::base::slot_account::SlotAccount;
use crate::batch::field::Field;
use crate::batch::{BatchLayout, Capacity, LayoutError};
use crate::config::{BudgetTerms, ConfigError, MemoryBudget};
use crate::decoder::image::ImageDecoder;
use crate::device::{Device, DeviceError};
use crate::error::FeedError;
use crate::order::OrderError;
use crate::prefetch::consumer_task::Consumer;
use crate::prefetch::{Depth, LaneMeters, Prefetcher, RingKeeper, State};
use crate::reader::DataReader;
use crate::reader::queue_pair;
use crate::reader::schedule_slice::ScheduleSlice;
use crate::reader::thread::{Pool, Share, Terms};
use crate::receipt::content::ContentHash;
use crate::snapshot::DealtBy;
use crate::source::{CHECKSUM_BYTES, COMPANION_BYTES, LENDERS_BYTES, PLACE_BYTES, Source};
use crate::transform::{
    CaffeEra, Draws, LayerKind, LayerSeeds, Randomness, SetUp, Taken, Transform, TransformPlace,
};
use crate::workers::processor::Processor;
use crate::workers::{Governor, Task, TaskQueue, WorkerMeters, Workers};

/// The most workers, and the most lanes: starting threads without end aborts a process in the system's own
/// library, where no error can be made of it.
pub(super) const THREADS_MAX: usize = 1024;

/// The most records whose numbers are drawn again where Caffe's sequence goes on: some seconds' work.
const DRAWN_AGAIN_MAX: u64 = 1 << 31;

/// What a run takes up in `free`, `full` and the workers' queue, beside its records.
const QUEUED_RUN_BYTES: usize =
    2 * size_of::<queue_pair::Slot>() + size_of::<Task>() + 3 * size_of::<usize>();

/// Tells feeds of one process apart, so that two feeds of one database never share a reader.
static FEEDS: AtomicU64 = AtomicU64::new(0);

impl FeedBuilder {
    /// What the lanes agree on with their reader.
    fn terms(&self, sizing: &Sizing) -> Terms {
        Terms {
            consumers: self.devices.len(),
            batch_size: self.batch_size,
            prefetch: sizing.prefetch,
            passes: self.passes,
            schedule_slice: self.schedule_slice.clone(),
            share: self.ranks_of_job(),
            is_for_workers: true,
            drops_behind: self.drops_behind,
        }
    }

    /// Which ranks of a larger job the lanes are. Caffe deals by rank in TRAIN; in TEST, whoever tests sees every record.
    pub(super) fn ranks_of_job(&self) -> Option<Share> {
        if self.net.is_some() && self.phase == Phase::Test { None } else { self.share }
    }

    /// What is left to choose of how much the feed takes, the best first. There is at least one.
    fn choices(&self) -> Vec<Sizing> {
        // Memory of a device's own is for the program that trains on it.
        let may_deepen = self.devices.iter().all(|device| !device.backend().has_own_memory());
        let mut choices = Sizing::choices(self.threads, self.prefetch, may_deepen);
        if choices.iter().any(|sizing| self.terms(sizing).check().is_ok()) {
            choices.retain(|sizing| self.terms(sizing).check().is_ok());
        }
        choices
    }

    /// Divides a step's records among the ranks of the job.
    fn divide(&mut self) -> Result<(), ConfigError> {
        if self.schedule.is_planned() {
            self.batch_size = self.planned_batch_size()?;
            return Ok(());
        }
        let Some(records) = self.global_batch_size else { return Ok(()) };
        let ranks = self.share.map_or(self.devices.len(), |share| share.of);
        match records.checked_div(ranks) {
            Some(each) if each * ranks == records => self.batch_size = each,
            // No rank at all is another error.
            None => {}
            Some(_) => return Err(ConfigError::GlobalBatch { records, ranks }),
        }
        Ok(())
    }

    /// Says where smaller decoding was asked for that nothing can come of.
    fn warn_of_scaling_in_vain(&self) {
        let target = self.target.as_ref().map(|target| &target.transform);
        for (of, transform) in [("records", Some(&self.transform)), ("targets", target)] {
            if transform.is_some_and(Transform::scales_in_vain) {
                tracing::warn!(layer = %self.layer, of, "scaled_decode has no effect: nothing is resized");
            }
        }
    }

    /// What lies where in a batch, and the room that it takes. Choices whose rings no memory could hold are left out.
    fn batch_layout(
        &self,
        first: &FirstRecord,
        choices: &mut Vec<Sizing>,
    ) -> Result<(Arc<BatchLayout>, Capacity), ConfigError> {
        let too_large = || ConfigError::BatchTooLarge {
            batch_size: self.batch_size,
            record: first.fields.first().map(Field::to_string).unwrap_or_default(),
        };
        let layout =
            BatchLayout::new(first.fields.clone(), self.batch_size).map_err(|error| match error {
                LayoutError::Fields(error) => ConfigError::Fields(error),
                LayoutError::TooLarge => too_large(),
            })?;
        let capacity = layout.capacity();
        choices.retain(|sizing| {
            let slots = sizing.prefetch_max.checked_mul(self.devices.len());
            slots.and_then(|slots| capacity.checked_device_bytes(slots)).is_some()
        });
        if choices.is_empty() { Err(too_large()) } else { Ok((Arc::new(layout), capacity)) }
    }

    /// What needs no look at a source.
    fn check(&self, best: &Sizing) -> Result<(), FeedError> {
        self.check_decoding()?;
        if let Some(target) = &self.target {
            target.check(&self.transform, self.source.as_ref(), self.phase)?;
        }
        if self.devices.is_empty() {
            return Err(ConfigError::NoDevice.into());
        }
        if best.threads == 0 {
            return Err(ConfigError::Zero { option: "threads" }.into());
        }
        for (option, found) in [("threads", best.threads), ("devices", self.devices.len())] {
            if found > THREADS_MAX {
                return Err(ConfigError::TooMany { option, found, allowed: THREADS_MAX }.into());
            }
        }
        if self.net.is_some() && self.phase == Phase::Test && self.devices.len() > 1 {
            return Err(ConfigError::TestOnSeveral { devices: self.devices.len() }.into());
        }
        if let (Some(passes), Some(epochs)) = (self.passes, self.schedule.epochs)
            && epochs != passes.get()
        {
            return Err(ConfigError::OnceAndEpochs { epochs }.into());
        }
        if self.receipts && !self.schedule.is_planned() {
            return Err(ConfigError::ReceiptsOfRing.into());
        }
        if self.receipts && !self.schedule.mix.is_empty() {
            return Err(ConfigError::ReceiptsOfMixture.into());
        }
        // Even where the phase makes nothing of them, ranks that cannot be are a slip.
        Terms { share: self.share, ..self.terms(best) }.check()?;
        Ok(())
    }

    /// How the feed's layer is set up in its net.
    pub(super) fn set_up(&self) -> SetUp {
        let kind = self.source.as_ref().map_or(LayerKind::Data, Origin::layer_kind);
        SetUp { kind, is_random: self.transform.takes(self.phase).any() }
    }

    /// The random numbers that the layer takes then. What is not the transformer's is Caffe's in either
    /// mode: there is no sequence of our own for it.
    pub(super) fn layer_seeds(&self) -> LayerSeeds {
        let (seed, era) = match self.seed {
            Seed::Caffe(seed, era) => (seed, era),
            Seed::Indexed(seed) => {
                let folded = u32::try_from((seed ^ (seed >> 32)) & u64::from(u32::MAX));
                (folded.expect("32 bits are left"), CaffeEra::default())
            }
        };
        let taken = self.net.as_ref().map_or(Taken::default(), |place| place.taken);
        self.set_up().seeds(seed, era, taken)
    }
}

/// What the memory of a feed is counted from.
struct Needs<'a> {
    asked: &'a FeedBuilder,
    source: &'a dyn Source,
    first: &'a FirstRecord,
    processor: &'a Processor,
    image: Option<&'a ImageDecoder>,
    layout: &'a BatchLayout,
    /// Of one batch.
    capacity: Capacity,
}

impl Needs<'_> {
    /// The best choice that keeps to the memory limit, known before anything is set aside, so that a feed over its
    /// limit costs nothing.
    fn choose(&self, choices: &[Sizing]) -> Result<(Sizing, MemoryBudget), ConfigError> {
        let mut over = None;
        for sizing in choices {
            let budget = self.budget(sizing);
            match self.asked.memory_limit {
                Some(allowed) if budget.total_bytes() > allowed => over = Some((allowed, budget)),
                _ => return Ok((*sizing, budget)),
            }
        }
        let (allowed, budget) = over.expect("there is a choice, and it was over the limit");
        Err(ConfigError::OverBudget { needed: budget.total_bytes(), allowed, budget: budget.to_string() })
    }

    fn budget(&self, sizing: &Sizing) -> MemoryBudget {
        let pool = Pool::cut(&self.asked.terms(sizing), self.first.value_bytes);
        let is_paired = self.image.is_some_and(ImageDecoder::is_paired);
        let companion_bytes = if is_paired { COMPANION_BYTES } else { 0 };
        let seal_bytes = if self.first.is_unverified { CHECKSUM_BYTES } else { 0 };
        let lenders_bytes = if self.source.has_several_lenders() { LENDERS_BYTES } else { 0 };
        MemoryBudget::of(&BudgetTerms {
            lanes: self.asked.devices.len(),
            prefetch: sizing.prefetch_max,
            threads: sizing.threads,
            records: self.asked.batch_size,
            first_field_bytes: self.layout.first_field_bytes(),
            memory_bytes: self.capacity.bytes,
            is_of_images: self.image.is_some(),
            hash_bytes: if self.processor.hashes_contents { size_of::<ContentHash>() } else { 0 },
            runs: pool.runs,
            run_records: pool.run_records,
            place_bytes: PLACE_BYTES + companion_bytes + seal_bytes + lenders_bytes,
            run_bytes: QUEUED_RUN_BYTES,
            offloaded: OFFLOADED_MAX,
            offloaded_bytes: size_of::<Task>(),
            copied_bytes: self.first.copied_bytes,
            held_bytes: self.source.held_bytes() + self.first.walk_bytes,
            scratch_bytes: &self.first.scratch_bytes,
            mean_elements: self.image.map_or(0, ImageDecoder::mean_elements),
        })
    }
}

/// What all lanes of a feed have in common.
struct Shared {
    workers: Arc<Workers>,
    governor: Arc<Governor>,
    first_error: FirstError<FeedError>,
    clock: Arc<Clock>,
}

/// A feed that has been checked and not yet started.
pub(super) struct Plan {
    /// As it was said.
    said: FeedBuilder,
    /// With what has come of it.
    asked: FeedBuilder,
    sizing: Sizing,
    budget: MemoryBudget,
    source: Arc<dyn Source>,
    first: FirstRecord,
    layout: Arc<BatchLayout>,
    image: Option<Arc<ImageDecoder>>,
    /// Of one batch.
    capacity: Capacity,
    randomness: Randomness,
    /// A test may have batches written past the caches that would not be, or the other way round, before the start.
    pub(super) processor: Arc<Processor>,
    /// The machine's; a test's own, where it puts one here before the start.
    pub(super) topology: Topology,
}

impl Plan {
    /// Checks everything that can be checked before a thread is started.
    pub(super) fn of(mut asked: FeedBuilder) -> Result<Self, FeedError> {
        let said = asked.clone();
        asked.divide()?;
        asked.transform = asked.whole_transform();
        asked.warn_of_scaling_in_vain();
        // Asked of the system once: it takes as long as to open a database.
        let mut choices = asked.choices();
        let best = choices[0];
        asked.check(&best)?;
        let seeds = asked.layer_seeds();
        if let (Seed::Caffe(..), Some(NetPlace { preceded_by_other: true, .. })) = (asked.seed, &asked.net) {
            tracing::warn!(
                layer = %asked.layer,
                "layers before this one may draw random numbers when Caffe sets them up: the sequence is Caffe's, \
                 but from another seed on"
            );
        }
        let randomness = match asked.seed {
            Seed::Indexed(seed) => Randomness::Indexed { seed },
            Seed::Caffe(..) => Randomness::Caffe(seeds.transformer),
        };
        let Opened { source, mut processor, image } = asked.open(&seeds)?;
        let image_decoder = image.as_deref();
        asked.make_ready(&*source)?;
        let mut first =
            FirstRecord::look(&*source, &processor, image_decoder, best.threads, asked.order_seed())?;
        asked.know_digest(&*source, &mut first.identity)?;
        asked.schedule_slice = asked.schedule_slice(&*source, &first.identity, first.value_bytes)?;
        if first.input.is_some_and(|input| !input.is_encoded) && asked.transform.forces_color() {
            // Caffe's words, and like Caffe we go on.
            tracing::warn!(source = %source.path().display(), "force_color and force_gray only for encoded datum");
        }
        let (layout, capacity) = asked.batch_layout(&first, &mut choices)?;
        let needs = Needs {
            asked: &asked,
            source: &*source,
            first: &first,
            processor: &processor,
            image: image_decoder,
            layout: &layout,
            capacity,
        };
        let (sizing, budget) = needs.choose(&choices)?;
        // The ring's batches together, as many as it begins with: by the time that a slot is filled again, all others
        // have been.
        processor.setup.is_past_caches =
            capacity.bytes.saturating_mul(sizing.prefetch * asked.devices.len()) > cache_lines::cache_bytes();
        let (processor, topology) = (Arc::new(processor), Topology::of_machine());
        Ok(Plan {
            said,
            sizing,
            budget,
            source,
            first,
            layout,
            image,
            capacity,
            randomness,
            processor,
            topology,
            asked,
        })
    }

    /// Sets the memory aside and starts the threads.
    pub(super) fn start(self) -> Result<Feed, FeedError> {
        let clock = Arc::new(Clock::start(self.asked.devices.len()));
        // First, so that what transforms has taken its room before it is looked how much is left.
        let devices = self.lane_devices()?;
        self.check_devices()?;
        let queue = TaskQueue::with_room(self.sizing.threads, self.asked.devices.len() * self.runs());
        let readers = self.open_readers(&queue.helpers())?;
        let meters = Arc::new(WorkerMeters::default());
        let lane_meters: Vec<Arc<LaneMeters>> = devices.iter().map(|_| Arc::default()).collect();
        let threads = self.sizing.threads;
        let governor = Arc::new(if self.sizing.are_threads_chosen {
            let consumers = lane_meters.iter().map(|lane| lane.for_batch.clone());
            Governor::choosing(threads, &meters, consumers.collect())
        } else {
            Governor::of(threads)
        });
        let placement = Placement::of(&self.topology, &self.asked.devices, threads);
        let near = placement.workers.as_ref();
        let first_error = FirstError::new();
        let lost = {
            let first_error = first_error.clone();
            move |name, message| {
                first_error.set(FeedError::Panicked { name, message });
            }
        };
        let workers = Workers::start(queue, governor.clone(), &self.processor, &meters, near, lost)
            .map_err(|error| FeedError::Thread { name: "worker".to_owned(), message: error.to_string() })?;
        let shared = Shared { workers: Arc::new(workers), governor, first_error, clock };
        let watch = readers[0].watch();
        let about = Arc::new(About::of(&*self.source, self.first.identity.clone(), &self.asked));
        let progress = self.asked.progress(&about)?;
        let ways = readers.into_iter().zip(progress.iter().cloned());
        let lanes = ways
            .zip(devices.iter().zip(&lane_meters).zip(placement.lanes))
            .map(|(way, ((device, meters), near))| self.start_lane(way, device, meters, near, &shared))
            .collect::<Result<Vec<Lane>, FeedError>>()?;
        let Shared { governor, first_error, clock, .. } = shared;
        let gauges = Gauges {
            clock,
            reader: watch,
            governor,
            workers: meters,
            lanes: lanes.iter().map(|lane| lane.device.clone()).zip(lane_meters).collect(),
        };
        let records = self.source.records();
        tracing::info!(
            source = %self.source.path().display(),
            records,
            layout = %self.layout,
            lanes = lanes.len(),
            sizing = %self.sizing,
            budget_bytes = self.budget.total_bytes(),
            "the feed starts"
        );
        let canceller = FeedCanceller::new(first_error);
        Ok(Feed {
            lanes: Some(lanes),
            records,
            layout: self.layout,
            plan: match self.asked.dealt_by() {
                DealtBy::Plan(plan) => Some(plan),
                DealtBy::Ring(_) => None,
            },
            input_shape: self.first.input.map(|input| input.shape),
            sizing: self.sizing,
            budget: self.budget,
            canceller,
            gauges: Arc::new(gauges),
            progress,
            about,
            asked: self.said,
        })
    }

    /// One handle a lane, in the order of the lanes: record `g` goes to lane `g mod N`.
    fn open_readers(&self, helpers: &Arc<dyn Helpers>) -> Result<Vec<DataReader>, FeedError> {
        let group = format!("feed {}", FEEDS.fetch_add(1, Ordering::Relaxed));
        let open = |_| {
            DataReader::builder_shared(&*self.asked.layer, self.source.clone())
                .phase(self.asked.phase)
                .group(&*group)
                .terms(self.asked.terms(&self.sizing))
                .helpers(helpers.clone())
                .open_in(&self.asked.registry)
        };
        Ok(self.asked.devices.iter().map(open).collect::<Result<_, _>>()?)
    }

    /// The random numbers of a lane's records, from the first one that comes.
    fn draws(&self, lane: usize) -> Result<Draws, OrderError> {
        let takes = self.asked.transform.takes(self.asked.phase);
        let Some(schedule_slice) = &self.asked.schedule_slice else {
            return Ok(self.randomness.lane(lane, takes));
        };
        let ScheduleSlice { plan, first_replica, starts, is_ring, .. } = schedule_slice;
        // In the ring, the seed that was said is the first lane's.
        let mut draws = self.randomness.lane(if *is_ring { lane } else { first_replica + lane }, takes);
        if draws.are_in_turn() {
            let records = plan.records_given(starts[lane], first_replica + lane)?;
            if records > DRAWN_AGAIN_MAX {
                let what = "records whose random numbers Caffe's sequence draws again";
                return Err(OrderError::TooMany { what, allowed: DRAWN_AGAIN_MAX });
            }
            draws.pass(records);
        }
        Ok(draws)
    }

    /// The runs that go round between the reader and a lane.
    fn runs(&self) -> usize {
        Pool::cut(&self.asked.terms(&self.sizing), self.first.value_bytes).runs
    }

    /// Whether each device has room for the batches of all its lanes.
    fn check_devices(&self) -> Result<(), FeedError> {
        let names: Vec<String> = self.asked.devices.iter().map(Device::name).collect();
        for (number, (device, name)) in self.asked.devices.iter().zip(&names).enumerate() {
            // One answer is for all lanes of the device.
            if names[..number].contains(name) {
                continue;
            }
            let Some(free) = device.backend().free_bytes()? else { continue };
            let lanes = names.iter().filter(|other| *other == name).count();
            let batches = lanes * self.sizing.prefetch;
            let bytes = self
                .capacity
                .checked_device_bytes(batches)
                .expect("the lanes' batches were found to be countable");
            if bytes > free {
                let message = format!(
                    "{free} bytes are free, for {batches} batches of {}; lower the batch size or the prefetch",
                    bytes / batches
                );
                return Err(DeviceError::OutOfMemory { device: name.clone(), bytes, message }.into());
            }
        }
        Ok(())
    }

    /// The devices as the lanes use them. One that several lanes have is one for all of them.
    fn lane_devices(&self) -> Result<Vec<Device>, FeedError> {
        let asked = &self.asked.devices;
        if self.asked.place == TransformPlace::Host {
            return Ok(asked.clone());
        }
        let Some(image) = &self.image else { return Ok(asked.clone()) };
        let transform = image.transformer.on_device();
        let mut devices: Vec<Device> = Vec::with_capacity(asked.len());
        for device in asked {
            let known = asked.iter().zip(&devices).find(|(known, _)| known.is(device));
            let transforming =
                known.map_or_else(|| device.transforming(&transform), |(_, made)| Ok(made.clone()));
            devices.push(transforming?);
        }
        Ok(devices)
    }

    /// `near` are the processors that the lane keeps to, if any.
    fn start_lane(
        &self,
        (reader, progress): (DataReader, Arc<Progress>),
        device: &Device,
        meters: &Arc<LaneMeters>,
        near: Option<Cpus>,
        shared: &Shared,
    ) -> Result<Lane, FeedError> {
        let (asked, Sizing { prefetch, prefetch_max, .. }) = (&self.asked, self.sizing);
        let (free_sender, free) = bounded(prefetch_max);
        // One message more than there are batches: the error.
        let (full, full_receiver) = bounded(prefetch_max + 1);
        // Room for a message that never comes: a wait on a queue without room allocates.
        let (stop_sender, stop) = bounded(1);
        let (done_sender, done) = bounded(prefetch_max);
        let (number, watch) = (reader.number(), reader.watch());
        let draws = self.draws(number).map_err(ConfigError::Order)?;
        let pads = asked.schedule_slice.as_ref().is_some_and(|schedule_slice| schedule_slice.plan.pads());
        let account = SlotAccount::open();
        let consumer = Arc::new(Consumer::default());
        let mut prefetcher = Prefetcher {
            consumer: consumer.clone(),
            ring: RingKeeper(account.clone()),
            reader,
            processor: self.processor.clone(),
            draws,
            device: device.clone(),
            near,
            layout: self.layout.clone(),
            capacity: self.capacity,
            pads,
            depth: Depth::of(prefetch, prefetch_max),
            governor: shared.governor.clone(),
            meters: meters.clone(),
            first_error: shared.first_error.clone(),
            tasks: shared.workers.tasks(),
            done,
            done_sender,
            free,
            full,
            stop,
            state: State::with_capacity(prefetch_max),
        };
        {
            // Page-locked memory lies where the thread runs that asks for it: it is touched there first. What a device
            // leaves untouched (`PageMemory`) lies where the workers run. The thread is its own again before it starts
            // another, which would be bound as it is.
            let _bound = prefetcher.near.as_ref().and_then(Cpus::bind);
            for _ in 0..prefetch {
                prefetcher.add_slot()?;
            }
        }
        Ok(Lane {
            number,
            device: device.name(),
            empties: EmptyBatches::new(device, &self.layout, pads, number),
            full: full_receiver,
            home: ReturnQueue::new(free_sender, &account),
            meters: meters.clone(),
            consumer,
            #[cfg(feature = "stream")]
            task_wait: None,
            error: None,
            clock: shared.clock.clone(),
            watch,
            warn_after: asked.warn_after,
            give_up_after: asked.give_up_after,
            progress,
            first_error: shared.first_error.clone(),
            ended: false,
            thread: Some(spawn(prefetcher, stop_sender)?),
            _workers: Some(shared.workers.clone()),
        })
    }
}

/// Starts the prefetch thread, which `stop` ends when it is dropped.
fn spawn(prefetcher: Prefetcher, stop: Sender<()>) -> Result<PrefetchThread, FeedError> {
    let name = format!("prefetch:{}", prefetcher.reader.number());
    let keeps_batches = prefetcher.device.keeps_batches();
    // Room for a message that never comes, as for `stop`.
    let (through_sender, through) = bounded(1);
    let (empties, empties_receiver) = bounded(1);
    let thread_name = name.clone();
    let thread = std::thread::Builder::new()
        .name(name.clone())
        .spawn(move || prefetcher.stay(thread_name, through_sender, &empties_receiver))
        .map_err(|error| FeedError::Thread { name, message: error.to_string() })?;
    Ok(PrefetchThread { stop, through, empties, thread, keeps_batches })
}
