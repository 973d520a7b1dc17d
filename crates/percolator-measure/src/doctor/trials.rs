//! What a change of the settings gives: measured by trying it.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::Options;
use super::changes::{Change, changes};
use crate::error::MeasureError;
use crate::job::Job;
use crate::noise::Ratio;
use crate::shares::Round;
use percolator::Progress;

/// A change that gains less than this is not worth its cost.
const WORTH: f64 = 1.02;

/// A change of the settings, and what it gave.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// What was changed.
    pub change: Change,
    /// The rate with the change, divided by the rate without it.
    pub ratio: f64,
    /// Where the 99 % confidence interval of the ratio begins.
    pub low: f64,
    /// Where it ends.
    pub high: f64,
    /// What it comes to.
    pub verdict: TrialVerdict,
}

/// What a change comes to.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialVerdict {
    /// It gains more than 2 %.
    Helps,
    /// It gains 2 % at the most, or no more than a smaller change that was tried too.
    NotWorthIt,
    /// It loses.
    Slower,
    /// The measurements differ too much to tell.
    Unclear,
}

impl TrialVerdict {
    fn of(ratio: &Ratio) -> Self {
        match () {
            () if ratio.low > WORTH => TrialVerdict::Helps,
            () if ratio.high < 1.0 => TrialVerdict::Slower,
            () if ratio.high <= WORTH => TrialVerdict::NotWorthIt,
            () => TrialVerdict::Unclear,
        }
    }
}

/// The measurements of the feed as it is, and what the changes gave.
pub(super) struct Measured {
    pub(super) rounds: Vec<Round>,
    pub(super) trials: Vec<Trial>,
    pub(super) not_tried: Vec<Change>,
    pub(super) took: Duration,
}

/// Batches in a lane's ring at the end of the rounds.
pub(super) fn ring(rounds: &[Round]) -> usize {
    rounds.iter().flat_map(|round| &round.run.stats.lanes).map(|lane| lane.ring).max().unwrap_or(0)
}

/// Measures the feed and its changes in turns, so that whatever disturbs this machine disturbs all alike.
/// Each turn has the machine's limits first, then the feed and its changes, in another order each time.
pub(super) fn measure(job: &Job, options: &Options, progress: &Progress) -> Result<Measured, MeasureError> {
    let start = Instant::now();
    // The first round warms the machine up, and says how deep the rings are, and how long a run takes. It is
    // not counted.
    let limits = job.limits(options.length)?;
    let limits_took = start.elapsed();
    let run = job.run(job.feed(), options.length, progress)?;
    let run_took = start.elapsed().saturating_sub(limits_took);
    let first = job.of_round(limits, run)?;
    let mut tried = changes(job, &job.feed().clone().resolve()?, ring(std::slice::from_ref(&first)));
    let left = options.time_max.saturating_sub(start.elapsed());
    let plan = Plan::within(left, [limits_took, run_took], options.rounds.max(1), tried.len());
    let not_tried = tried.split_off(plan.changes);
    progress.begin(1 + (plan.rounds * (1 + plan.changes)) as u64);
    progress.add_done(1);
    let (mut rounds, mut rates) = (Vec::new(), vec![Vec::new(); plan.changes]);
    for number in 0..plan.rounds {
        let limits = job.limits(options.length)?;
        let mut own = None;
        // The feed itself is as one more change.
        for turn in 0..=plan.changes {
            match (number + turn) % (plan.changes + 1) {
                0 => own = Some(job.run(job.feed(), options.length, progress)?),
                change => {
                    let feed = tried[change - 1].of(job.feed());
                    let run = job.run(&feed, options.length, progress)?;
                    rates[change - 1].push(run.stats.records_per_second());
                }
            }
            progress.add_done(1);
        }
        if let Some(run) = own {
            rounds.push(job.of_round(limits, run)?);
        }
    }
    let base: Vec<f64> = rounds.iter().map(Round::records_per_s).collect();
    Ok(Measured { trials: trials(&tried, &base, &rates), rounds, not_tried, took: start.elapsed() })
}

/// What is measured in the time that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    rounds: usize,
    changes: usize,
}

impl Plan {
    /// As many of the changes as there is time for. If there is time for none, as many rounds of the feed
    /// alone, and at least one.
    fn within(left: Duration, [limits, run]: [Duration; 2], rounds: usize, changes: usize) -> Self {
        let times =
            |length: Duration, count: usize| length.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        let fits =
            |plan: &Plan| times(limits.saturating_add(times(run, 1 + plan.changes)), plan.rounds) <= left;
        let with_changes = (0..=changes).rev().map(|changes| Plan { rounds, changes });
        let alone = (1..rounds).rev().map(|rounds| Plan { rounds, changes: 0 });
        with_changes.chain(alone).find(fits).unwrap_or(Plan { rounds: 1, changes: 0 })
    }
}

/// Judges the changes by the rates that they gave. A change of what another one changes less, such as one
/// more worker beside as many that are always active, must gain more than that one.
fn trials(tried: &[Change], base: &[f64], rates: &[Vec<f64>]) -> Vec<Trial> {
    let mut trials: Vec<Trial> = Vec::new();
    for (number, (&change, changed)) in tried.iter().zip(rates).enumerate() {
        let Some(ratio) = Ratio::of(base, changed) else { continue };
        let mut verdict = TrialVerdict::of(&ratio);
        let smaller = tried[..number].iter().position(|other| is_smaller(*other, change));
        if let (TrialVerdict::Helps, Some(smaller)) = (verdict, smaller)
            && trials.iter().any(|one| one.change == tried[smaller] && one.verdict == TrialVerdict::Helps)
            && Ratio::of(&rates[smaller], changed)
                .is_none_or(|beside| TrialVerdict::of(&beside) != TrialVerdict::Helps)
        {
            verdict = TrialVerdict::NotWorthIt;
        }
        let Ratio { middle, low, high, .. } = ratio;
        trials.push(Trial { change, ratio: middle, low, high, verdict });
    }
    trials
}

/// Whether both set the number of workers, and the first one sets fewer.
fn is_smaller(one: Change, other: Change) -> bool {
    match (one, other) {
        (Change::Workers { threads: one, .. }, Change::Workers { threads: other, .. }) => one < other,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(low: f64, high: f64) -> TrialVerdict {
        // Five equal values on each side have an interval of one point, so noise is added at its ends.
        let new = [low, low, (low + high) / 2.0, high, high];
        TrialVerdict::of(&Ratio::of(&[1.0; 5], &new).unwrap())
    }

    #[test]
    fn a_verdict_says_no_more_than_is_known() {
        assert_eq!(verdict(1.03, 1.2), TrialVerdict::Helps);
        assert_eq!(verdict(0.7, 0.99), TrialVerdict::Slower);
        assert_eq!(verdict(0.99, 1.01), TrialVerdict::NotWorthIt);
        assert_eq!(verdict(0.95, 1.9), TrialVerdict::Unclear);
    }

    #[test]
    fn one_more_worker_must_gain_more_than_active_ones() {
        let workers = |threads| Change::Workers { threads, instead_of: 2, was_chosen: true };
        let ring = Change::Ring { batches: 8, instead_of: 4 };
        let verdicts = |rates: [f64; 3]| {
            let rates = rates.map(|rate| vec![rate; 5]);
            let trials = trials(&[workers(2), workers(3), ring], &[1.0; 5], &rates);
            <[TrialVerdict; 3]>::try_from(trials.iter().map(|trial| trial.verdict).collect::<Vec<_>>())
                .unwrap()
        };
        let (helps, not) = (TrialVerdict::Helps, TrialVerdict::NotWorthIt);
        assert_eq!(verdicts([1.3, 1.3, 1.3]), [helps, not, helps]);
        assert_eq!(verdicts([1.3, 1.5, 1.0]), [helps, helps, not]);
        assert_eq!(verdicts([0.9, 1.1, 0.9]), [TrialVerdict::Slower, helps, TrialVerdict::Slower]);
    }

    #[test]
    fn the_time_is_kept() {
        let second = Duration::from_secs(1);
        let plan = |left| Plan::within(left * second, [second, second], 5, 3);
        assert_eq!(plan(25), Plan { rounds: 5, changes: 3 }, "5 rounds of limits and 4 runs");
        assert_eq!(plan(24), Plan { rounds: 5, changes: 2 });
        assert_eq!(plan(14), Plan { rounds: 5, changes: 0 });
        assert_eq!(plan(5), Plan { rounds: 2, changes: 0 });
        assert_eq!(plan(0), Plan { rounds: 1, changes: 0 });
        assert_eq!(Plan::within(second, [Duration::ZERO; 2], 5, 0), Plan { rounds: 5, changes: 0 });
    }
}
