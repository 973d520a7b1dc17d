//! Measures a job round by round.

use std::time::Duration;

use percolator::batch::{BatchShape, ImageShape};
use percolator_measure::{Progress, median};

use super::Bench;
use super::figures::Figures;
use super::job::NamedJob;
use crate::terminal::out::tell;

/// The facts of a job that are known before it is measured.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) records: Option<u64>,
    /// The first record, if it is an image.
    pub(super) image: Option<ImageShape>,
    pub(super) batch: BatchShape,
    /// What a batch consists of, if its records are not images.
    pub(super) layout: String,
    pub(super) devices: Vec<String>,
    pub(super) rounds: usize,
    pub(super) length: Duration,
    /// Whether the system dropped the files from memory, if it was asked to.
    pub(super) is_evicted: Option<bool>,
}

impl Bench {
    pub(super) fn measure(&self, named: &NamedJob, progress: &Progress) -> anyhow::Result<Figures> {
        // Builds the feed first, so that a job that cannot be fed fails at once, with the feed's own error.
        let mut known = self.look_at(named)?;
        let warm_rate = self.bring_in(named)?;
        let rounds = named.job.rounds(known.rounds, self.seconds, progress)?;
        if let Some(warm_rate) = warm_rate {
            let rates = rounds.iter().filter_map(|round| round.limits.read_n);
            known.is_evicted = Some(median(rates).is_some_and(|rate| rate < warm_rate / 2.0));
        }
        Ok(Figures::of(named, &known, &rounds))
    }

    fn look_at(&self, named: &NamedJob) -> anyhow::Result<Known> {
        let feed = named.job.feed().clone().build()?;
        Ok(Known {
            records: feed.records(),
            image: feed.input_shape(),
            batch: feed.batch_shape(),
            layout: feed.layout().to_string(),
            devices: feed.stats().lanes.into_iter().map(|lane| lane.device).collect(),
            rounds: self.rounds as usize,
            length: self.seconds,
            is_evicted: None,
        })
    }

    /// Loads the files into memory. If they are to be dropped from it, returns the rate at which they are
    /// read from memory.
    fn bring_in(&self, NamedJob { name, job, .. }: &NamedJob) -> anyhow::Result<Option<f64>> {
        let fits = job.load()?;
        if !fits && !job.is_cold() {
            let why = "its files are larger than the free memory, so they are not all cached";
            tell(&format!("{name}: {why}"));
        }
        if !(fits && job.is_cold()) {
            return Ok(None);
        }
        Ok(Some(job.read_rate(self.seconds)?))
    }
}
