//! What a change of the settings gives: measured by trying it.

use percolator::FeedBuilder;
use serde::Serialize;

use super::Options;
use crate::error::MeasureError;
use crate::job::Job;
use crate::noise::Ratio;
use crate::run::{Rule, run};
use crate::shares::Round;

/// A change that gains less than this is not worth its cost.
const WORTH: f64 = 1.02;

/// A change of the settings, and what it gave.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// What was changed.
    pub change: String,
    /// The option that changes it.
    pub option: String,
    /// The rate with the change, divided by the rate without it, and the interval that has it with 99 %.
    pub ratio: f64,
    /// Where the interval begins.
    pub low: f64,
    /// Where it ends.
    pub high: f64,
    /// Whether the change is worth it: the interval begins above 1.02.
    pub helps: bool,
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
pub(super) fn measure(job: &Job, batch_bytes: usize, options: &Options) -> Result<Measured, MeasureError> {
    // The first round also says how deep the rings are.
    let first = job.round(batch_bytes, options.length)?;
    let mut changes = changes(job, ring(std::slice::from_ref(&first)));
    let mut rounds = vec![first];
    let rule = Rule { length: options.length, is_cold: job.is_cold, step: job.step };
    for number in 0..options.rounds.max(1) {
        if number > 0 {
            rounds.push(job.round(batch_bytes, options.length)?);
        }
        for change in &mut changes {
            let run = run(change.feed.clone(), rule)?;
            change.rates.push(run.stats.records_per_second());
        }
        changes.reverse();
    }
    let rates: Vec<f64> = rounds.iter().map(Round::records_per_s).collect();
    changes.sort_by(|one, other| one.option.cmp(&other.option).reverse());
    let trial = |Change { change, option, rates: changed, .. }| {
        let Ratio { middle, low, high } = Ratio::of(&rates, &changed)?;
        Some(Trial { change, option, ratio: middle, low, high, helps: low > WORTH })
    };
    Ok(Measured { trials: changes.into_iter().filter_map(trial).collect(), rounds })
}

fn changes(job: &Job, ring: usize) -> Vec<Change> {
    let (threads, deeper) = (job.threads + 1, (2 * ring).max(2));
    vec![
        Change {
            change: format!("{threads} workers instead of {}", job.threads),
            option: format!("--threads {threads}"),
            feed: job.feed.clone().threads(threads),
            rates: Vec::new(),
        },
        Change {
            change: format!("rings of {deeper} batches instead of {ring}"),
            option: format!("--prefetch {deeper}"),
            feed: job.feed.clone().prefetch(deeper),
            rates: Vec::new(),
        },
    ]
}
