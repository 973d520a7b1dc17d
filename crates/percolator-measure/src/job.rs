//! What is measured.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use percolator::source::{Source, SourceError};
use percolator::transform::TransformPlace;
use percolator::{ColorMode, FeedBuilder};

use crate::error::MeasureError;
use crate::files;
use crate::machine::Limits;
use crate::run::{Rule, Run, run};
use crate::shares::Round;

/// Opens a source apart from any feed.
pub type Open = Box<dyn Fn() -> Result<Box<dyn Source>, SourceError> + Send + Sync>;

/// A feed to measure.
pub struct Job {
    /// The feed, which must not end.
    pub feed: FeedBuilder,
    /// The files that its records are stored in.
    pub files: Vec<PathBuf>,
    /// Opens its source, if its records hold images as Caffe's do.
    pub datums: Option<Open>,
    /// Whether a net learns from their labels, as far as is known.
    pub has_labels: bool,
    /// The channels that encoded records are decoded to.
    pub color: ColorMode,
    /// The number of its workers.
    pub threads: usize,
    /// Whether its files are evicted from memory before each round, which is then one pass at most.
    pub is_cold: bool,
    /// How long its consumers hold each batch, as if they trained on it.
    pub step: Duration,
    /// Where its transform runs.
    pub place: TransformPlace,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("feed", &self.feed).field("files", &self.files).finish_non_exhaustive()
    }
}

impl Job {
    /// Measures the limits, then the pipeline for about `length`, with batches of so many bytes.
    ///
    /// # Errors
    ///
    /// [`MeasureError`] if the feed or the machine fails.
    pub fn round(&self, batch_bytes: usize, length: Duration) -> Result<Round, MeasureError> {
        let mut limits = self.limits(batch_bytes, length)?;
        let run = self.run(&self.feed, length)?;
        limits.measure_pinned_copy(&run.stats)?;
        Ok(Round { limits, run })
    }

    /// Measures the limits that need no batch.
    pub(crate) fn limits(&self, batch_bytes: usize, length: Duration) -> Result<Limits, MeasureError> {
        self.evict()?;
        Limits::measure(self, batch_bytes, limit_time(length))
    }

    /// Measures this feed, of the same records.
    pub(crate) fn run(&self, feed: &FeedBuilder, length: Duration) -> Result<Run, MeasureError> {
        self.evict()?;
        run(feed.clone(), Rule { length, is_cold: self.is_cold, step: self.step })
    }

    fn evict(&self) -> Result<(), MeasureError> {
        if self.is_cold { files::evict(&self.files) } else { Ok(()) }
    }
}

/// How long each limit is measured: a smaller part of a round than the pipeline.
#[must_use]
pub fn limit_time(length: Duration) -> Duration {
    (length / 4).clamp(Duration::from_millis(10), Duration::from_millis(250))
}
