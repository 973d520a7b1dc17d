//! The activity of each stage during one round.

use std::time::{Duration, Instant};

use percolator::Stats;
use percolator::feed::Waits;

/// The length of a slice.
const SLICE: Duration = Duration::from_millis(50);
/// A round with more slices than this shows only its beginning.
const SLICES_MAX: usize = 1200;

/// The share of time that every stage was at work, slice by slice.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Timeline {
    /// The reader, the workers, and the consumer of each lane.
    pub stages: Vec<String>,
    /// In the order of time.
    pub slices: Vec<Slice>,
    last: Look,
    due: Instant,
}

/// A slice of a round.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Slice {
    /// Seconds since the pipeline was built.
    pub start: f64,
    /// The same, of its end.
    pub end: f64,
    /// The share of each stage, in the order of the stages.
    pub at_work: Vec<f64>,
}

/// How long the stages had waited at one moment, and their numbers of threads.
#[derive(Clone, Debug)]
struct Look {
    at: Duration,
    waits: Vec<(Duration, usize)>,
}

impl Look {
    fn at(stats: &Stats) -> Self {
        let of = |waits: Waits, threads: usize| (waits.time, threads);
        let shared = [
            of(stats.reader.waits_for_free, 1),
            of(stats.workers.waits_for_records, stats.workers.threads.max(1)),
        ];
        let lanes = stats.lanes.iter().map(|lane| of(lane.waits_for_batch, 1));
        Look { at: stats.elapsed, waits: shared.into_iter().chain(lanes).collect() }
    }
}

impl Timeline {
    pub(crate) fn new(stats: &Stats) -> Self {
        let lanes = stats.lanes.iter().map(|lane| lane.device.clone());
        Timeline {
            stages: ["reader".to_owned(), "workers".to_owned()].into_iter().chain(lanes).collect(),
            slices: Vec::new(),
            last: Look::at(stats),
            due: Instant::now() + SLICE,
        }
    }

    pub(crate) fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// Ends a slice.
    pub(crate) fn look(&mut self, stats: &Stats) {
        self.due = Instant::now() + SLICE;
        let now = Look::at(stats);
        let length = now.at.saturating_sub(self.last.at).as_secs_f64();
        if length <= 0.0 || self.slices.len() >= SLICES_MAX {
            return;
        }
        let before = self.last.waits.iter();
        let at_work = now.waits.iter().zip(before).map(|(&(now, threads), &(before, _))| {
            let waited = now.saturating_sub(before).as_secs_f64() / threads as f64;
            (1.0 - waited / length).clamp(0.0, 1.0)
        });
        let at_work = at_work.collect();
        self.slices.push(Slice { start: self.last.at.as_secs_f64(), end: now.at.as_secs_f64(), at_work });
        self.last = now;
    }
}
