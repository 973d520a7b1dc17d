//! What is shown about a feed, taken from the feed itself or from another program's endpoint.

mod family;
mod parse;
mod render;

pub use self::family::{FAMILIES, Family, Kind};
pub use self::parse::{ParseError, parse};
pub use self::render::render;

pub(crate) use self::family::{Labels, visit};

use percolator::Stats;
use percolator::feed::FeedHandle;
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

/// The state of a feed at one moment: everything that is published and drawn.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Numbers {
    /// What has been done so far, who waited for whom, and what is in the queues.
    pub stats: Stats,
    /// Whether the feed is paused.
    pub is_paused: bool,
    /// Whether all lanes of the feed have ended: nothing more is delivered.
    pub has_ended: bool,
    /// The next step of each lane, in the order of the lanes.
    pub next: Vec<StepId>,
    /// The memory that the feed uses, in bytes, by holder. What holders of one name use is added up.
    pub budget: Vec<(String, u64)>,
}

impl Numbers {
    /// Returns the present state of a feed.
    #[must_use]
    pub fn of(handle: &FeedHandle) -> Self {
        let budget = handle.memory_budget();
        let lines = budget.lines.iter().map(|line| (line.holder, line.bytes() as u64));
        // First: what is not yet over is not called final.
        let has_ended = handle.has_ended();
        Numbers {
            stats: handle.stats(),
            is_paused: handle.is_paused(),
            has_ended,
            next: handle.next_steps(),
            budget: sums(lines),
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
}

/// Adds up the bytes of each holder, in the order in which they come.
fn sums<'a>(lines: impl IntoIterator<Item = (&'a str, u64)>) -> Vec<(String, u64)> {
    let mut sums: Vec<(String, u64)> = Vec::new();
    for (holder, bytes) in lines {
        match sums.iter_mut().find(|(known, _)| known == holder) {
            Some((_, sum)) => *sum = sum.saturating_add(bytes),
            None => sums.push((holder.to_owned(), bytes)),
        }
    }
    sums
}
