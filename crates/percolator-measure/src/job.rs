//! What is measured.

use std::path::PathBuf;
use std::time::Duration;

use percolator::example::ExampleImage;
use percolator::feed::{DecoderSpec, ResolvedFeed};
use percolator::transform::TransformPlace;
use percolator::{ColorMode, FeedBuilder};

use crate::error::MeasureError;
use crate::limits::PageCache;
use crate::machine::Limits;
use crate::run::{Rule, Run, run};
use crate::shares::Round;
use crate::{files, stored};
use percolator::Progress;

/// What a feed's records are, as far as they are looked into.
#[derive(Clone, Debug)]
pub(crate) enum Records {
    /// Caffe's.
    Datums,
    /// TensorFlow's, with an image.
    Examples(ExampleImage),
    /// Anything else.
    Other,
}

/// A feed to measure, and how.
///
/// ```no_run
/// use std::time::Duration;
///
/// use percolator::Feed;
/// use percolator_measure::{Job, Progress, binding};
///
/// let job = Job::new(Feed::builder().lmdb("train_lmdb").batch_size(64))?;
/// let rounds = job.rounds(5, Duration::from_secs(1), &Progress::new())?;
/// let binding = binding(&rounds);
/// println!("{} of {} is used", binding.share, binding.limit.name());
/// # Ok::<(), percolator_measure::MeasureError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Job {
    feed: FeedBuilder,
    // What follows is derived from the feed.
    pub(crate) files: Vec<PathBuf>,
    threads: usize,
    batch_bytes: usize,
    place: TransformPlace,
    /// What its records are.
    pub(crate) records: Records,
    /// The channels that encoded images are decoded to.
    pub(crate) color: ColorMode,
    // What follows is how it is measured.
    /// Whether a net learns from its labels.
    pub(crate) has_labels: bool,
    is_cold: bool,
    step: Duration,
}

impl Job {
    /// A job of this feed, which must not end by itself: it has 0 epochs, or is in
    /// [round-robin order](percolator::Epochs::RoundRobin). The feed is [resolved](FeedBuilder::resolve), and
    /// not started.
    ///
    /// # Errors
    ///
    /// [`MeasureError`] if the feed cannot be built, or its files cannot be found.
    pub fn new(feed: FeedBuilder) -> Result<Self, MeasureError> {
        let resolved = feed.clone().resolve()?;
        Self::of(feed, &resolved)
    }

    fn of(feed: FeedBuilder, resolved: &ResolvedFeed) -> Result<Self, MeasureError> {
        let spec = resolved.spec();
        Ok(Job {
            files: stored::files(spec)?,
            threads: resolved.sizing().threads,
            batch_bytes: resolved.layout().bytes(),
            place: spec.transform_on,
            records: match &spec.decoder {
                DecoderSpec::Image => Records::Datums,
                DecoderSpec::Example { image: Some(image), .. } => Records::Examples(image.clone()),
                _ => Records::Other,
            },
            color: spec.transform.decoded_to(),
            has_labels: true,
            is_cold: false,
            step: Duration::ZERO,
            feed,
        })
    }

    /// Whether a net learns from the labels of the records, which is assumed. A Caffe layer with one top has
    /// none.
    #[must_use]
    pub fn has_labels(self, has_labels: bool) -> Self {
        Job { has_labels, ..self }
    }

    /// Whether the files are dropped from memory before each round, which is then one pass at most.
    #[must_use]
    pub fn cold(self, is_cold: bool) -> Self {
        Job { is_cold, ..self }
    }

    /// How long a consumer holds each batch, as if it trained on it. Without a step, the feed is as fast as
    /// it can be.
    #[must_use]
    pub fn step(self, step: Duration) -> Self {
        Job { step, ..self }
    }

    /// The feed.
    pub fn feed(&self) -> &FeedBuilder {
        &self.feed
    }

    /// The number of its workers.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The bytes of one of its batches.
    #[must_use]
    pub fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    /// Where its transform runs.
    #[must_use]
    pub fn place(&self) -> TransformPlace {
        self.place
    }

    /// Whether its files are dropped from memory before each round.
    #[must_use]
    pub fn is_cold(&self) -> bool {
        self.is_cold
    }

    /// Whether its consumers hold each batch.
    pub(crate) fn has_step(&self) -> bool {
        !self.step.is_zero()
    }

    /// Reads the files into memory if they fit in what is free. Returns whether they did.
    ///
    /// # Errors
    ///
    /// [`MeasureError::File`] if one cannot be read.
    pub fn load(&self) -> Result<bool, MeasureError> {
        files::load(&self.files)
    }

    /// The rate at which the job's threads read its files from memory, in bytes per second, as a round of
    /// this length measures it.
    ///
    /// # Errors
    ///
    /// [`MeasureError::Map`] if the files cannot be mapped.
    pub fn read_rate(&self, length: Duration) -> Result<f64, MeasureError> {
        let cache = PageCache::open(&self.files).map_err(MeasureError::Map)?;
        Ok(cache.bytes_per_second(self.threads, limit_time(length)))
    }

    /// Measures so many rounds: each time the machine's limits, then the pipeline for about `length`. The
    /// progress is in rounds.
    ///
    /// # Errors
    ///
    /// [`MeasureError`] if the feed or the machine fails, or it was asked to stop.
    pub fn rounds(
        &self,
        count: usize,
        length: Duration,
        progress: &Progress,
    ) -> Result<Vec<Round>, MeasureError> {
        progress.begin(count as u64);
        (0..count)
            .map(|_| {
                let round = self.round(length, progress)?;
                progress.add_done(1);
                Ok(round)
            })
            .collect()
    }

    pub(crate) fn round(&self, length: Duration, progress: &Progress) -> Result<Round, MeasureError> {
        let limits = self.limits(length)?;
        let run = self.run(&self.feed, length, progress)?;
        self.of_round(limits, run)
    }

    /// A round of these parts. What needs a batch's size on its device is measured now.
    pub(crate) fn of_round(&self, mut limits: Limits, run: Run) -> Result<Round, MeasureError> {
        limits.measure_pinned_copy(&run.stats)?;
        Ok(Round { limits, run, threads: self.threads, place: self.place })
    }

    /// Measures the limits that need no batch.
    pub(crate) fn limits(&self, length: Duration) -> Result<Limits, MeasureError> {
        self.evict()?;
        Limits::measure(self, limit_time(length))
    }

    /// Measures this feed, of the same records.
    pub(crate) fn run(
        &self,
        feed: &FeedBuilder,
        length: Duration,
        progress: &Progress,
    ) -> Result<Run, MeasureError> {
        self.evict()?;
        run(feed.clone(), Rule { length, is_cold: self.is_cold, step: self.step }, progress)
    }

    fn evict(&self) -> Result<(), MeasureError> {
        if self.is_cold { files::evict(&self.files) } else { Ok(()) }
    }
}

/// How long each limit is measured: a smaller part of a round than the pipeline.
fn limit_time(length: Duration) -> Duration {
    (length / 4).clamp(Duration::from_millis(10), Duration::from_millis(250))
}
