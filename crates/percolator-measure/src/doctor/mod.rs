//! Opens what a training run would open, runs it for some seconds, and says what holds it up, what would
//! help, and what looks wrong in the data.

mod binds;
mod findings;
mod report;
mod sample;
mod trials;

use std::path::{Path, PathBuf};
use std::time::Duration;

use percolator::feed::ResolvedFeed;
use percolator::order::{BatchSize, ShuffleSpec};
use percolator::source::Passes;
use percolator::{Phase, Shuffle};
use serde::Serialize;

pub use self::binds::Binds;
pub use self::findings::Finding;
pub use self::trials::Trial;

use self::binds::Evidence;
use self::findings::{Use, channels, findings};
use self::sample::{Samples, samples};
use self::trials::Measured;
use crate::error::MeasureError;
use crate::job::Job;
use crate::noise::{VALUES_MIN, median};
use crate::shares::Round;

/// How a feed is examined.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Options {
    /// How long a measurement is; each is preceded by as long a warm-up at most.
    pub length: Duration,
    /// How often the feed, and each change of it, is measured: 5 times or more, to tell a change from noise.
    pub rounds: usize,
    /// The most records that are looked at.
    pub samples: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { length: Duration::from_millis(300), rounds: VALUES_MIN, samples: 512 }
    }
}

/// What was found.
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    /// Where the records are.
    pub source: PathBuf,
    /// The number of records, if known.
    pub records: Option<u64>,
    /// What a batch is.
    pub batch: String,
    /// The devices.
    pub devices: Vec<String>,
    /// The number of workers.
    pub threads: usize,
    /// The number of batches in a lane's ring, at the end.
    pub ring: usize,
    /// The most memory that the feed takes, in bytes.
    pub memory_bytes: usize,
    /// Records per second: the median of the measurements.
    pub records_per_s: f64,
    /// What holds the feed up.
    pub binds: Binds,
    /// What would help, beyond what was tried.
    pub advice: &'static str,
    /// What was tried, and what it gave.
    pub trials: Vec<Trial>,
    /// The records that were looked at; 0 if they are not Caffe's.
    pub looked_at: usize,
    /// The mean of each channel's pixels, of those that were looked at.
    pub channel_means: Vec<f64>,
    /// What looks wrong in the data.
    pub findings: Vec<Finding>,
}

/// Examines a feed. It is built several times, each time with all that a training run opens. A relative path
/// of a mean file starts from `root`.
///
/// # Errors
///
/// [`MeasureError`] if the feed cannot be built, or fails.
pub fn examine(job: &Job, root: &Path, options: &Options) -> Result<Diagnosis, MeasureError> {
    // What a run would refuse is refused before anything is measured.
    let feed = job.feed.clone().resolve()?;
    let used = used(&feed, root)?;
    let source = feed.source().path().to_owned();
    let records = feed.source().records();
    let (batch, memory_bytes) = (feed.layout().to_string(), feed.memory_budget().total_bytes());
    let batch_bytes = feed.layout().bytes();
    let devices = feed.spec().devices.clone();
    drop(feed);
    let samples = match &job.datums {
        Some(open) => samples(&*open()?, job.color, options.samples, job.threads)?,
        None => Samples::default(),
    };
    let Measured { rounds, trials } = trials::measure(job, batch_bytes, options)?;
    let binds = Evidence::of(&rounds, job).binds(!job.step.is_zero());
    Ok(Diagnosis {
        source,
        records,
        batch,
        devices,
        threads: job.threads,
        ring: trials::ring(&rounds),
        memory_bytes,
        records_per_s: median(rounds.iter().map(Round::records_per_s)).unwrap_or(0.0),
        binds,
        advice: binds.advice(),
        trials,
        looked_at: samples.good.len() + samples.bad.len(),
        channel_means: channels(&samples.good).unwrap_or_default().iter().map(|one| one.mean()).collect(),
        findings: findings(&samples, &used),
    })
}

/// What the feed does with its records.
fn used(feed: &ResolvedFeed, root: &Path) -> Result<Use, MeasureError> {
    let spec = feed.spec();
    let is_shuffled = match spec.schedule.shuffle {
        None | Some(ShuffleSpec::By(Shuffle::No)) => feed.source().passes() == Passes::Shuffled,
        Some(_) => true,
    };
    Ok(Use {
        is_shuffled,
        is_training: spec.phase == Phase::Train,
        batch_size: match spec.batch_size {
            BatchSize::PerReplica(records) | BatchSize::Global(records) => records,
            // More than one, as nearly all are.
            _ => 2,
        },
        crop: spec.transform.crop_side(),
        resize: spec.transform.resized_to(),
        mean: spec.transform.mean_of_channels(root).map_err(|error| MeasureError::Mean(error.to_string()))?,
    })
}
