//! Opens what a training run would open, runs it for some seconds, and says what holds it up, what would
//! help, and what looks wrong in the data.

mod advice;
mod binds;
mod changes;
mod findings;
mod sample;
mod trials;

use std::path::{Path, PathBuf};
use std::time::Duration;

use percolator::example::ExampleImage;
use percolator::feed::ResolvedFeed;
use percolator::order::{BatchSize, ShuffleSpec};
use percolator::source::{IndexPlace, Passes};
use percolator::{Phase, Shuffle};
use percolator_files::shown;
use serde::{Serialize, Serializer};

pub use self::advice::Advice;
pub use self::binds::Binds;
pub use self::changes::Change;
pub use self::findings::Finding;
pub use self::trials::{Trial, TrialVerdict};

use self::binds::Evidence;
use self::findings::{Mixing, Use, channels, findings};
use self::sample::{Samples, samples};
use self::trials::Measured;
use crate::error::MeasureError;
use crate::files;
use crate::job::{Job, Records};
use crate::noise::{Ratio, median};
use crate::shares::Round;
use percolator::Progress;

/// How a feed is examined.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a measurement is; each is preceded by as long a warm-up at most.
    pub length: Duration,
    /// How often the feed, and each change of it, is measured: 5 times or more, to tell a change from noise.
    pub rounds: usize,
    /// The most records that are read.
    pub samples: usize,
    /// How long the measurements may take. Changes for which there is no time are not tried; the feed itself
    /// is measured once at least.
    pub time_max: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            length: Duration::from_millis(300),
            rounds: Ratio::VALUES_MIN,
            samples: 512,
            time_max: Duration::from_secs(60),
        }
    }
}

/// What was found.
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// Where the records are.
    #[serde(serialize_with = "as_text")]
    pub source: PathBuf,
    /// The number of records, if known.
    pub records: Option<u64>,
    /// What a batch is.
    pub batch: String,
    /// The devices.
    pub devices: Vec<String>,
    /// The most memory that the feed takes, in bytes.
    pub memory_bytes: usize,
    /// The records that were looked at; `None` if they are neither Caffe's nor Examples with encoded images.
    pub looked_at: Option<usize>,
    /// Whether these are spread over the whole source; otherwise they are its first.
    pub is_spread: bool,
    /// The mean of each channel's pixels, of those that were looked at.
    pub channel_means: Vec<f64>,
    /// What looks wrong in the data.
    pub findings: Vec<Finding>,
    /// How the feed ran; `None` if it failed.
    pub pipeline: Option<Pipeline>,
    /// Why it failed.
    pub failed: Option<String>,
}

/// How a feed ran.
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct Pipeline {
    /// The number of workers.
    pub threads: usize,
    /// The number of batches in a lane's ring, at the end.
    pub ring: usize,
    /// Whether its files were read from storage each time, because they do not fit in memory.
    pub is_cold: bool,
    /// Records per second: the median of the measurements.
    pub records_per_s: f64,
    /// What holds the feed up.
    pub binds: Binds,
    /// What would help, beyond what was tried; nothing if the feed keeps up, or does all of it already.
    pub advice: Vec<Advice>,
    /// What was tried, and what it gave.
    pub trials: Vec<Trial>,
    /// What was not tried, because there was no time.
    pub not_tried: Vec<Change>,
    /// How long all measurements took, in seconds.
    pub seconds: f64,
}

/// A path need not be UTF-8, and JSON is.
fn as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

impl Diagnosis {
    /// Whether anything is wrong: the feed failed, or a run would fail or learn worse from these data.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        self.failed.is_some() || self.findings.iter().any(Finding::is_wrong)
    }
}

/// Examines a feed. It is built several times, each time with all that a training run opens. A feed that
/// fails while it runs is a part of the diagnosis. The progress is in runs of the feed; stopped, it ends at
/// the next batch.
///
/// # Errors
///
/// [`MeasureError`] if the feed cannot be built, its files cannot be examined, or it was asked to stop.
pub fn examine(mut job: Job, options: &Options, progress: &Progress) -> Result<Diagnosis, MeasureError> {
    // What a run would refuse is refused before anything is measured.
    let feed = job.feed().clone().resolve()?;
    let used = used(&feed, &job)?;
    // The records are read as the feed reads them: from all of its databases, with its way of access.
    let place = match &feed.spec().index {
        IndexPlace::Folder(folder) => IndexPlace::Folder(feed.spec().root.join(folder)),
        // A mere diagnosis writes nothing beside the data.
        _ => IndexPlace::Memory,
    };
    let most = options.samples as u64;
    let samples = match &job.records {
        Records::Other => None,
        _ => Some(samples(feed.source(), &place, &job, most, progress)?),
    };
    let good = samples.iter().flat_map(Samples::good);
    let mut diagnosis = Diagnosis {
        source: feed.source().path().to_owned(),
        records: feed.source().records(),
        batch: feed.layout().to_string(),
        devices: feed.spec().devices.clone(),
        memory_bytes: feed.memory_budget().total_bytes(),
        looked_at: samples.as_ref().map(Samples::looked_at),
        is_spread: samples.as_ref().is_some_and(|samples| samples.is_spread),
        channel_means: channels(good).unwrap_or_default().iter().map(|one| one.mean()).collect(),
        findings: samples.as_ref().map(|samples| findings(samples, &used)).unwrap_or_default(),
        pipeline: None,
        failed: None,
    };
    drop(feed);
    // What does not fit in memory comes from storage in each pass.
    let is_cold = job.is_cold() || !files::fit(&job.files)?;
    job = job.cold(is_cold);
    match trials::measure(&job, options, progress) {
        Ok(measured) => diagnosis.pipeline = Some(pipeline(&job, measured)),
        Err(MeasureError::Stopped) => return Err(MeasureError::Stopped),
        Err(error) => diagnosis.failed = Some(shown::with_sources(&error)),
    }
    Ok(diagnosis)
}

fn pipeline(job: &Job, Measured { rounds, trials, not_tried, took }: Measured) -> Pipeline {
    let binds = Evidence::of(&rounds).binds(job.has_step());
    Pipeline {
        threads: job.threads(),
        ring: trials::ring(&rounds),
        is_cold: job.is_cold(),
        records_per_s: median(rounds.iter().map(Round::records_per_s)).unwrap_or(0.0),
        binds,
        advice: Advice::of(binds, job.feed()),
        trials,
        not_tried,
        seconds: took.as_secs_f64(),
    }
}

/// What the feed does with its records.
fn used(feed: &ResolvedFeed, job: &Job) -> Result<Use, MeasureError> {
    let spec = feed.spec();
    let mixing = match spec.schedule.shuffle {
        _ if feed.source().passes() == Passes::Shuffled => Mixing::Whole,
        Some(ShuffleSpec::By(Shuffle::Global)) => Mixing::Whole,
        Some(ShuffleSpec::By(Shuffle::Window { records })) => Mixing::Within(records.get()),
        // A window in bytes means many records.
        Some(ShuffleSpec::WindowsOfBytes(_)) => Mixing::Whole,
        // Files are parted, and not what is in them.
        _ => Mixing::None,
    };
    let image = match &job.records {
        Records::Examples(image) => Some(image),
        _ => None,
    };
    Ok(Use {
        shuffle: mixing,
        // A second array beside the images is what is learned from, and so is nothing in a test.
        has_labels: job.has_labels
            && spec.target.is_none()
            && spec.phase == Phase::Train
            && image.is_none_or(ExampleImage::has_labels),
        has_examples: image.is_some(),
        is_interleaved: image.is_some_and(ExampleImage::is_interleaved),
        batch_size: match spec.batch_size {
            BatchSize::PerReplica(records) | BatchSize::Global(records) => records,
            // More than one, as nearly all are.
            _ => 2,
        },
        crop: spec.transform.cropped_to(),
        is_sized: spec.transform.operations_fix_size(),
        resize: spec.transform.resized_to(),
        mean: spec.transform.mean_of_channels(&spec.root)?,
    })
}
