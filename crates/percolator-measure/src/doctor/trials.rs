//! What a change of the settings gives: measured by trying it.

use percolator::FeedBuilder;
use serde::Serialize;

use super::Options;
use crate::error::MeasureError;
use crate::job::Job;
use crate::noise::Ratio;
use crate::shares::Round;

/// A change that gains less than this is not worth its cost.
const WORTH: f64 = 1.02;

/// A change of the settings, and what it gave.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// What was changed.
    pub change: String,
    /// The option of the command that changes it.
    pub option: String,
    /// The rate with the change, divided by the rate without it.
    pub ratio: f64,
    /// Where the 99 % confidence interval of the ratio begins.
    pub low: f64,
    /// Where it ends.
    pub high: f64,
    /// What it comes to.
    pub verdict: Verdict,
}

/// What a change comes to.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It gains more than 2 %.
    Helps,
    /// It gains 2 % at the most.
    NotWorthIt,
    /// It loses.
    Slower,
    /// The measurements differ too much to tell.
    Unclear,
}

impl Verdict {
    fn of(low: f64, high: f64) -> Self {
        match () {
            () if low > WORTH => Verdict::Helps,
            () if high < 1.0 => Verdict::Slower,
            () if high <= WORTH => Verdict::NotWorthIt,
            () => Verdict::Unclear,
        }
    }
}

/// The measurements of the feed as it is, and what the changes gave.
pub(super) struct Measured {
    pub(super) rounds: Vec<Round>,
    pub(super) trials: Vec<Trial>,
}

/// Batches in a lane's ring at the end of the rounds.
pub(super) fn ring(rounds: &[Round]) -> usize {
    rounds.iter().flat_map(|round| &round.run.stats.lanes).map(|lane| lane.ring).max().unwrap_or(0)
}

/// A change that is tried, and the rates that it gave.
struct Change {
    change: String,
    option: String,
    feed: FeedBuilder,
    rates: Vec<f64>,
}

/// Measures the feed and its changes in turns, so that whatever disturbs this machine disturbs all alike.
/// Each turn has the machine's limits first, then the feed and its changes, in another order each time.
pub(super) fn measure(job: &Job, batch_bytes: usize, options: &Options) -> Result<Measured, MeasureError> {
    // The first round warms the machine up, and says how deep the rings are. It is not counted.
    let first = job.round(batch_bytes, options.length)?;
    let mut changes = changes(job, ring(std::slice::from_ref(&first)));
    let mut rounds = Vec::new();
    for number in 0..options.rounds.max(1) {
        let limits = job.limits(batch_bytes, options.length)?;
        let mut own = None;
        // The feed itself is as one more change.
        for turn in 0..=changes.len() {
            match (number + turn) % (changes.len() + 1) {
                0 => own = Some(job.run(&job.feed, options.length)?),
                change => {
                    let change = &mut changes[change - 1];
                    let run = job.run(&change.feed, options.length)?;
                    change.rates.push(run.stats.records_per_second());
                }
            }
        }
        rounds.extend(own.map(|run| Round { limits, run }));
    }
    let rates: Vec<f64> = rounds.iter().map(Round::records_per_s).collect();
    let trial = |Change { change, option, rates: changed, .. }| {
        let Ratio { middle, low, high } = Ratio::of(&rates, &changed)?;
        Some(Trial { change, option, ratio: middle, low, high, verdict: Verdict::of(low, high) })
    };
    Ok(Measured { trials: changes.into_iter().filter_map(trial).collect(), rounds })
}

/// The changes that this feed can have.
fn changes(job: &Job, ring: usize) -> Vec<Change> {
    let (threads, deeper) = (job.threads + 1, (2 * ring).max(2));
    let (workers, batches) = (job.threads, ring);
    let changes = [
        (
            format!("{threads} workers instead of {workers}"),
            format!("--threads {threads}"),
            job.feed.clone().threads(threads),
        ),
        (
            format!("rings of {deeper} batches instead of {batches}"),
            format!("--prefetch {deeper}"),
            job.feed.clone().prefetch(deeper),
        ),
    ];
    // A change that the feed refuses, for want of memory perhaps, is no choice.
    let is_possible = |feed: &FeedBuilder| feed.clone().resolve().is_ok();
    let possible = changes.into_iter().filter(|(_, _, feed)| is_possible(feed));
    possible.map(|(change, option, feed)| Change { change, option, feed, rates: Vec::new() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_says_no_more_than_is_known() {
        assert_eq!(Verdict::of(1.03, 1.2), Verdict::Helps);
        assert_eq!(Verdict::of(0.7, 0.99), Verdict::Slower);
        assert_eq!(Verdict::of(0.99, 1.01), Verdict::NotWorthIt);
        assert_eq!(Verdict::of(0.95, 1.9), Verdict::Unclear);
    }
}
