//! What is shown of a feed, taken from the feed itself or from another program's endpoint.

mod family;
mod parse;
mod render;

pub use self::family::{FAMILIES, Family, Kind};
pub use self::parse::{ParseError, parse};
pub use self::render::render;

pub(crate) use self::family::{Labels, visit};

use percolator::Stats;
use percolator::feed::FeedWatch;
use percolator::record::StepId;

/// One number of a feed.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its metric.
    pub family: &'static Family,
    /// Its labels, beside the feed's name.
    pub labels: Vec<(&'static str, String)>,
    /// The number if it is whole by its nature: exact.
    pub whole: Option<u64>,
    /// The number in the metric's unit.
    pub value: f64,
}

/// The most lanes of one feed that a text may have.
const LANES_MAX: usize = 4096;

/// The state of a feed at one moment: everything that is published and drawn.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Numbers {
    /// What has been done so far, who waited for whom, and what is in the queues.
    pub stats: Stats,
    /// Whether the feed is paused.
    pub is_paused: bool,
    /// The next step of each lane, in the order of the lanes.
    pub next: Vec<StepId>,
    /// The memory that the feed uses, in bytes, by holder.
    pub budget: Vec<(String, u64)>,
}

impl Numbers {
    /// Returns the present state of a feed.
    #[must_use]
    pub fn of(watch: &FeedWatch) -> Self {
        let budget = watch.memory_budget();
        let line = |line: &percolator::feed::BudgetLine| (line.holder.to_owned(), line.bytes() as u64);
        Numbers {
            stats: watch.stats(),
            is_paused: watch.is_paused(),
            next: watch.next_steps(),
            budget: budget.lines.iter().map(line).collect(),
        }
    }

    /// Returns all numbers under the names of their metrics, in the order of [`FAMILIES`].
    #[must_use]
    pub fn samples(&self) -> Vec<Sample> {
        let mut samples = Vec::new();
        visit(self, |family, labels, number| {
            let (labels, whole, value) = (labels.pairs(), number.whole(), number.float());
            samples.push(Sample { family, labels, whole, value });
        });
        samples
    }

    /// Returns the memory that all holders use together, in bytes.
    #[must_use]
    pub fn budget_bytes(&self) -> u64 {
        self.budget.iter().fold(0, |total, (_, bytes)| total.saturating_add(*bytes))
    }

    /// Makes room for this lane; returns whether that is possible.
    fn reach_lane(&mut self, lane: usize) -> bool {
        if lane >= LANES_MAX {
            return false;
        }
        let lanes = self.stats.lanes.len().max(lane + 1);
        self.stats.lanes.resize_with(lanes, Default::default);
        self.next.resize_with(lanes, Default::default);
        true
    }
}
