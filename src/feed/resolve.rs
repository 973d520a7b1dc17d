//! Resolves a feed: from the options to what would run, all of it checked before a thread is started.

use std::fmt;
use std::sync::Arc;

use super::Feed;
use super::budget::{BudgetTerms, MemoryBudget};
use super::builder::FeedBuilder;
use super::config::ConfigError;
use super::error::FeedError;
use super::first_record::FirstRecord;
use super::net::NetLayer;
use super::open::Opened;
use super::sizing::Sizing;
use super::sources;
use super::spec::{FeedSpec, Receipts, Seed, SourceSpec};
use crate::bad::{BadAction, BadRecords};
use crate::base::cache_lines;
use crate::base::memory_limit::MemoryLimit;
use crate::base::numa::Topology;
use crate::base::offload::OFFLOADED_MAX;
use crate::base::shape::{ImageShape, Phase};
use crate::batch::field::Field;
use crate::batch::{BatchLayout, Capacity, LayoutError};
use crate::decoder::image::ImageDecoder;
use crate::device::{Device, DeviceError};
use crate::order::{MEMBERS_MAX, Plan, Ranks};
use crate::reader::queue_pair;
use crate::reader::schedule_slice::ScheduleSlice;
use crate::reader::thread::{Pool, Share, Terms};
use crate::receipt::content::ContentHash;
use crate::record::StepId;
use crate::source::{
    CHECKSUM_BYTES, COMPANION_BYTES, LENDERS_BYTES, NUMBER_BYTES, PLACE_BYTES, Passes, Source,
};
use crate::transform::{CaffeEra, LayerSeeds, Randomness, SetUp, Taken, Transform};
use crate::workers::Task;
use crate::workers::processor::Processor;
use percolator_files::shown;

/// The most workers, and the most lanes. Starting threads without a limit aborts the process in the system's
/// own library, where it cannot become an error.
pub(super) const THREADS_MAX: usize = 1024;

/// What a run takes up in `free`, `full` and the workers' queue, beside its records.
const QUEUED_RUN_BYTES: usize =
    2 * size_of::<queue_pair::RunSlot>() + size_of::<Task>() + 3 * size_of::<usize>();

/// A feed that has been checked but not yet started: its source is open, its first record has been read, and
/// everything that would run is determined.
///
/// ```no_run
/// use percolator::Feed;
///
/// let resolved = Feed::builder().lmdb("mnist_train_lmdb").batch_size(64).epochs(3).resolve()?;
/// println!("{}\n{}\n{}", resolved.layout(), resolved.sizing(), resolved.memory_budget());
/// if let Some(plan) = resolved.plan() {
///     println!("{} steps an epoch", plan.steps(0)?);
/// }
/// let feed = resolved.launch()?;
/// # Ok::<(), percolator::FeedError>(())
/// ```
#[must_use = "a resolved feed runs when it is launched"]
pub struct ResolvedFeed {
    /// The options: a seek and a replay start from them.
    pub(super) builder: FeedBuilder,
    pub(super) devices: Vec<Device>,
    pub(super) batch_size: usize,
    pub(super) schedule_slice: Option<ScheduleSlice>,
    pub(super) sizing: Sizing,
    pub(super) budget: MemoryBudget,
    pub(super) source: Arc<dyn Source>,
    pub(super) first: FirstRecord,
    pub(super) layout: Arc<BatchLayout>,
    pub(super) image: Option<Arc<ImageDecoder>>,
    /// The capacity of one batch.
    pub(super) capacity: Capacity,
    pub(super) randomness: Randomness,
    /// A test may change, before the launch, whether batches are written past the caches.
    pub(super) processor: Arc<Processor>,
    /// The machine's; a test may set its own before the launch.
    pub(super) topology: Topology,
}

impl fmt::Debug for ResolvedFeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResolvedFeed")
            .field("spec", &self.builder.spec)
            .field("layout", &self.layout)
            .field("plan", &self.plan())
            .field("sizing", &self.sizing)
            .field("budget_bytes", &self.budget.total_bytes())
            .finish_non_exhaustive()
    }
}

/// Turns a panic of a lane's device into an error.
pub(super) fn of_device<T>(lane: usize, work: impl FnOnce() -> Result<T, FeedError>) -> Result<T, FeedError> {
    FeedError::of_panic(|| format!("the device of lane {lane}"), work)
}

/// Turns a panic of the source into an error.
pub(super) fn of_source<T>(work: impl FnOnce() -> Result<T, FeedError>) -> Result<T, FeedError> {
    FeedError::of_panic(|| "the source".to_owned(), work)
}

impl ResolvedFeed {
    /// Checks everything that can be checked before a thread is started.
    pub(super) fn of(mut builder: FeedBuilder) -> Result<Self, FeedError> {
        builder.check_order()?;
        let batch_size = builder.lane_batch_size()?;
        builder.warn_of_useless_scaling();
        // The system is queried once: it takes as long as opening a database.
        let mut choices = builder.choices(batch_size);
        builder.check(batch_size, &choices[0])?;
        let devices = builder.named_devices()?;
        let looked = devices
            .iter()
            .enumerate()
            .map(|(lane, device)| of_device(lane, || Ok((device.name(), device.backend().has_own_memory()))));
        let (names, have_own_memory): (_, Vec<bool>) =
            looked.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        // A seek uses the same devices, by the names that they give themselves.
        builder.spec.devices = names;
        builder.attached.devices = Some(devices.clone());
        if have_own_memory.contains(&true) {
            // A device's own memory is for the program that trains on it.
            choices.retain(|sizing| !sizing.may_deepen());
        }
        of_source(|| Self::with_devices(builder, devices, choices))
    }

    /// The same, with its devices and the sizings to choose from.
    fn with_devices(
        builder: FeedBuilder,
        devices: Vec<Device>,
        mut choices: Vec<Sizing>,
    ) -> Result<Self, FeedError> {
        let (batch_size, best) = (builder.lane_batch_size()?, choices[0]);
        let spec = &builder.spec;
        let seeds = builder.layer_seeds();
        if let (Seed::Caffe { .. }, Some(NetLayer { preceded_by_other: true, .. })) = (spec.seed, &spec.net) {
            tracing::warn!(
                layer = %spec.layer,
                "layers before this one may draw random numbers when Caffe sets them up: the sequence is \
                 Caffe's, but starts from another seed"
            );
        }
        let randomness = match spec.seed {
            Seed::Indexed(seed) => Randomness::Indexed { seed },
            Seed::Caffe { .. } => Randomness::Caffe(seeds.transformer),
        };
        let Opened { source, mut processor, image } = builder.open(&seeds)?;
        let image_decoder = image.as_deref();
        let commit = builder.make_ready(&*source)?;
        let limit = MemoryLimit::lowest(spec.memory_limit);
        let (threads, seed, limit) = (best.threads, spec.seed.of_order(), limit.as_ref());
        let mut first = FirstRecord::look(&*source, &processor, image_decoder, threads, seed, limit)?;
        builder.know_digest(&*source, &mut first.identity)?;
        let schedule_slice =
            builder.schedule_slice(&*source, commit, &first.identity, first.value_bytes, batch_size)?;
        if first.input.is_some_and(|input| !input.is_encoded) && spec.transform.forces_color() {
            // The words are Caffe's, and like Caffe the feed runs.
            tracing::warn!(
                source = %shown::path(source.path()), "force_color and force_gray only for encoded datum"
            );
        }
        if first.input.is_some_and(|input| !input.is_encoded) && spec.transform.wants_rgb() {
            tracing::warn!(
                source = %shown::path(source.path()),
                "records that are not encoded stay in the order of their channels: RGB is wanted"
            );
        }
        let (layout, capacity) = builder.batch_layout(batch_size, &first, &mut choices)?;
        let inputs = BudgetInputs {
            builder: &builder,
            batch_size,
            schedule_slice: schedule_slice.as_ref(),
            source: &*source,
            first: &first,
            processor: &processor,
            image: image_decoder,
            layout: &layout,
            capacity,
        };
        let (sizing, budget) = inputs.choose(&choices, limit)?;
        // Counts all batches of the rings as they are at the start: before a slot is filled again, all others
        // have been.
        processor.setup.is_past_caches =
            capacity.bytes.saturating_mul(sizing.prefetch * devices.len()) > cache_lines::cache_bytes();
        let (processor, topology) = (Arc::new(processor), Topology::of_machine());
        Ok(ResolvedFeed {
            builder,
            devices,
            batch_size,
            schedule_slice,
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
        })
    }

    /// Refuses a run whose random numbers would take too long to draw again.
    pub(super) fn checked(self) -> Result<Self, FeedError> {
        for lane in 0..self.devices.len() {
            self.drawn_again(lane)?;
        }
        Ok(self)
    }

    /// Returns the options.
    #[must_use]
    pub fn spec(&self) -> &FeedSpec {
        &self.builder.spec
    }

    /// Returns the source, which is open.
    #[must_use]
    pub fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// Returns which record comes when, and to which replica, if the feed follows a plan and not [round-robin
    /// order](FeedBuilder::epochs).
    #[must_use]
    pub fn plan(&self) -> Option<&Plan> {
        let slice = self.schedule_slice.as_ref().filter(|slice| !slice.is_round_robin)?;
        Some(&slice.plan)
    }

    /// Returns the fields of a batch, as the first record of the source has them, and where each is in the
    /// batch's memory.
    #[must_use]
    pub fn layout(&self) -> &BatchLayout {
        &self.layout
    }

    /// Returns the shape of the source's first record, before the transform, if records are images.
    #[must_use]
    pub fn input_shape(&self) -> Option<ImageShape> {
        self.first.input.map(|input| input.shape)
    }

    /// Returns the number of threads and of batches.
    #[must_use]
    pub fn sizing(&self) -> Sizing {
        self.sizing
    }

    /// Returns the memory that the feed will use, holder by holder.
    #[must_use]
    pub fn memory_budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Returns everything that decides which record comes at which step, and to which replica, from the start
    /// of the training run: a text for processes to compare. If it is the same for two feeds, the records of
    /// their steps are the same.
    #[must_use]
    pub fn schedule_text(&self) -> String {
        self.facts().schedule_text(StepId::default())
    }

    /// What the lanes agree on with their reader.
    pub(super) fn terms(&self) -> Terms {
        let terms = self.builder.terms(self.batch_size, self.schedule_slice.as_ref(), &self.sizing);
        Terms { value_bytes: Some(self.first.value_bytes), can_repeat: self.can_repeat(), ..terms }
    }

    /// Whether the run can begin again, in place, as [`Feed::epoch`] does it: if it has one lane, begins with
    /// the first step, ends, and is the same each time.
    pub(super) fn can_repeat(&self) -> bool {
        let (is_whole, has_end) = match &self.schedule_slice {
            None => (true, self.builder.spec.schedule.passes().is_some()),
            Some(slice) => {
                let is_whole = slice.start() == StepId::default() && !slice.plan.is_resumed();
                (is_whole && slice.blocks.is_none(), slice.end.is_some())
            }
        };
        self.devices.len() == 1 && is_whole && has_end && self.source.passes() == Passes::Alike
    }

    /// Allocates the memory and starts the threads.
    ///
    /// # Errors
    ///
    /// [`FeedError`] if a device has no memory or cannot transform, if the source cannot be read any more, or
    /// if a thread cannot be started. Nothing is left running.
    pub fn launch(self) -> Result<Feed, FeedError> {
        let net = self.builder.spec.net.clone();
        FeedError::of_panic(|| "something that the feed called".to_owned(), || self.start())
            .map_err(|error| NetLayer::with_origin(net.as_ref(), error))
    }
}

impl FeedBuilder {
    /// What the lanes agree on with their reader.
    fn terms(&self, batch_size: usize, schedule_slice: Option<&ScheduleSlice>, sizing: &Sizing) -> Terms {
        Terms {
            consumers: self.spec.devices.len(),
            batch_size,
            prefetch: sizing.prefetch,
            passes: self.spec.schedule.passes(),
            schedule_slice: schedule_slice.cloned(),
            share: self.ranks_of_job().map(Share::from),
            is_for_workers: true,
            feed: 0,
            value_bytes: None,
            can_repeat: false,
        }
    }

    /// The sizings to choose from, the best first. There is at least one.
    fn choices(&self, batch_size: usize) -> Vec<Sizing> {
        let mut choices = Sizing::choices(self.spec.threads, self.spec.prefetch);
        if choices.iter().any(|sizing| self.terms(batch_size, None, sizing).check().is_ok()) {
            choices.retain(|sizing| self.terms(batch_size, None, sizing).check().is_ok());
        }
        choices
    }

    /// Warns if `scaled_decode` is set and has no effect.
    fn warn_of_useless_scaling(&self) {
        let whole = self.spec.whole_transform();
        let target = self.spec.target.as_ref().map(|target| &target.transform);
        for (of, transform) in [("records", Some(&whole)), ("targets", target)] {
            if transform.is_some_and(Transform::scales_in_vain) {
                tracing::warn!(
                    layer = %self.spec.layer,
                    of,
                    "scaled_decode has no effect: nothing is resized, or by operations alone"
                );
            }
        }
    }

    /// Returns where each array is in a batch, and the batch's capacity. Removes the choices whose rings no
    /// memory could hold.
    fn batch_layout(
        &self,
        batch_size: usize,
        first: &FirstRecord,
        choices: &mut Vec<Sizing>,
    ) -> Result<(Arc<BatchLayout>, Capacity), ConfigError> {
        let too_large = || ConfigError::BatchTooLarge {
            batch_size,
            record: first.fields.first().map(Field::to_string).unwrap_or_default(),
        };
        let layout = BatchLayout::new(first.fields.clone(), batch_size).map_err(|error| match error {
            LayoutError::Fields(error) => ConfigError::Fields(error),
            LayoutError::TooLarge => too_large(),
        })?;
        let capacity = layout.capacity();
        choices.retain(|sizing| {
            let slots = sizing.prefetch_max.checked_mul(self.spec.devices.len());
            slots.and_then(|slots| capacity.checked_device_bytes(slots)).is_some()
        });
        if choices.is_empty() { Err(too_large()) } else { Ok((Arc::new(layout), capacity)) }
    }

    /// Checks what can be checked without a source.
    fn check(&self, batch_size: usize, best: &Sizing) -> Result<(), FeedError> {
        let FeedSpec { sources, schedule, receipts, .. } = &self.spec;
        self.attached_decoder()?;
        let BadRecords { at_most_rate: found, quarantine, .. } = &self.spec.bad_records;
        if !(0.0..=1.0).contains(found) {
            return Err(ConfigError::BadRate { found: *found }.into());
        }
        if quarantine.is_some() && self.spec.bad_records.fails() {
            return Err(ConfigError::UselessQuarantine.into());
        }
        if self.spec.bad_records.fails() && self.spec.bad_records.is_limited() {
            return Err(ConfigError::UselessLimit.into());
        }
        if let Some(target) = &self.spec.target {
            target.check(&self.spec.whole_transform(), sources, self.spec.phase)?;
        }
        if let Some(SourceSpec::ImageList { list, .. }) = sources.iter().skip(1).find(|list| list.is_random())
        {
            return Err(ConfigError::RandomListNotFirst { list: list.clone() }.into());
        }
        if self.spec.devices.is_empty() {
            return Err(ConfigError::NoDevice.into());
        }
        if best.threads == 0 {
            return Err(ConfigError::Zero { option: "threads" }.into());
        }
        for (option, found) in [("threads", best.threads), ("devices", self.spec.devices.len())] {
            if found > THREADS_MAX {
                return Err(ConfigError::TooMany { option, found, allowed: THREADS_MAX }.into());
            }
        }
        if self.spec.net.is_some() && self.spec.phase == Phase::Test && self.spec.devices.len() > 1 {
            return Err(ConfigError::TestOnSeveral { devices: self.spec.devices.len() }.into());
        }
        if let (Some(passes), Some(epochs)) = (schedule.passes(), schedule.epochs)
            && epochs != passes.get()
        {
            return Err(ConfigError::OnceAndEpochs { epochs }.into());
        }
        self.check_blocks()?;
        if *receipts > Receipts::Off && !schedule.is_planned() {
            return Err(ConfigError::ReceiptsOfRoundRobin.into());
        }
        if *receipts > Receipts::Off && !schedule.mix.is_empty() {
            return Err(ConfigError::ReceiptsOfMixture.into());
        }
        // Impossible ranks are a mistake even if the phase ignores them.
        if let Some(Ranks { of: found, .. }) = schedule.ranks.filter(|ranks| ranks.of > MEMBERS_MAX) {
            return Err(ConfigError::TooMany { option: "ranks", found, allowed: MEMBERS_MAX }.into());
        }
        Terms { share: schedule.ranks.map(Share::from), ..self.terms(batch_size, None, best) }.check()?;
        Ok(())
    }

    /// The devices, one for each lane: those attached, or those of these names. Equal names mean one device.
    pub(super) fn named_devices(&self) -> Result<Vec<Device>, FeedError> {
        if let Some(devices) = &self.attached.devices {
            return Ok(devices.clone());
        }
        let mut devices: Vec<Device> = Vec::with_capacity(self.spec.devices.len());
        for name in &self.spec.devices {
            let device = name.parse::<Device>().map_err(|error| match error {
                DeviceError::Unknown { device } => ConfigError::NoSuchDevice { device }.into(),
                error => FeedError::from(error),
            })?;
            let known = devices.iter().find(|known| known.name() == device.name()).cloned();
            devices.push(known.unwrap_or(device));
        }
        Ok(devices)
    }

    /// How the feed's layer is set up in its net.
    pub(super) fn set_up(&self) -> SetUp {
        let kind = sources::layer_kind(&self.spec.sources);
        SetUp { kind, is_random: self.spec.transform.takes(self.spec.phase).any() }
    }

    /// The random numbers that the layer then takes. Those that are not the transformer's are Caffe's in
    /// either mode: we have no sequence of our own for them.
    pub(super) fn layer_seeds(&self) -> LayerSeeds {
        let (seed, era) = match self.spec.seed {
            Seed::Caffe { seed, era } => (seed, era),
            Seed::Indexed(seed) => {
                let folded = u32::try_from((seed ^ (seed >> 32)) & u64::from(u32::MAX));
                (folded.expect("32 bits are left"), CaffeEra::default())
            }
        };
        let taken = self.spec.net.as_ref().map_or(Taken::default(), |place| place.taken);
        self.set_up().seeds(seed, era, taken)
    }
}

/// What the memory budget of a feed is derived from.
struct BudgetInputs<'a> {
    builder: &'a FeedBuilder,
    batch_size: usize,
    schedule_slice: Option<&'a ScheduleSlice>,
    source: &'a dyn Source,
    first: &'a FirstRecord,
    processor: &'a Processor,
    image: Option<&'a ImageDecoder>,
    layout: &'a BatchLayout,
    /// The capacity of one batch.
    capacity: Capacity,
}

impl BudgetInputs<'_> {
    /// Returns the best choice within the memory limit. It is determined before the rings are allocated;
    /// until then, memory was used for at most one record, which was tried.
    fn choose(
        &self,
        choices: &[Sizing],
        limit: Option<&MemoryLimit>,
    ) -> Result<(Sizing, MemoryBudget), ConfigError> {
        let mut over = None;
        for sizing in choices {
            let budget = self.budget(sizing);
            match (budget.check(limit), &over) {
                (Err(error), _) => over = Some(error),
                (Ok(()), None) => return Ok((*sizing, budget)),
                (Ok(()), Some(over)) => {
                    tracing::info!(%sizing, "chosen less than usual: {over}");
                    return Ok((*sizing, budget));
                }
            }
        }
        Err(over.expect("there is a choice, and it was over the limit"))
    }

    fn budget(&self, sizing: &Sizing) -> MemoryBudget {
        let pool = Pool::cut(
            &self.builder.terms(self.batch_size, self.schedule_slice, sizing),
            self.first.value_bytes,
        );
        let is_paired = self.image.is_some_and(ImageDecoder::is_paired);
        let companion_bytes = if is_paired { COMPANION_BYTES } else { 0 };
        let checksum_bytes = if self.first.is_unverified { CHECKSUM_BYTES } else { 0 };
        let number_bytes = if self.source.passes() == Passes::Alike { 0 } else { NUMBER_BYTES };
        let lenders_bytes = if self.source.has_several_lenders() { LENDERS_BYTES } else { 0 };
        let fails = self.processor.on_bad.action == BadAction::Fail;
        let tried_bytes = if fails { 0 } else { self.first.alone_bytes };
        MemoryBudget::of(&BudgetTerms {
            lanes: self.builder.spec.devices.len(),
            prefetch: sizing.prefetch_max,
            threads: sizing.threads,
            records: self.batch_size,
            first_field_bytes: self.layout.first_field_bytes(),
            memory_bytes: self.capacity.bytes,
            is_of_images: self.image.is_some(),
            hash_bytes: if self.processor.hashes_contents { size_of::<ContentHash>() } else { 0 },
            runs: pool.runs,
            run_records: pool.run_records,
            place_bytes: PLACE_BYTES + companion_bytes + checksum_bytes + number_bytes + lenders_bytes,
            run_bytes: QUEUED_RUN_BYTES,
            offloaded: OFFLOADED_MAX,
            offloaded_bytes: size_of::<Task>(),
            copied_bytes: self.first.copied_bytes,
            held_bytes: self.source.held_bytes() + self.first.cursor_bytes,
            tried_bytes,
            scratch_bytes: &self.first.scratch_bytes,
            mean_elements: self.image.map_or(0, ImageDecoder::mean_elements),
        })
    }
}
