//! Two results side by side: each figure, the ratio of the two, and whether they differ beyond their noise.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::figures::RoundFigures;
use super::results::JobResult;
use crate::{Ratio, median};

/// A figure of both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The median of the old rounds.
    pub old: f64,
    /// The median of the new rounds.
    pub new: f64,
    /// The new one divided by the old one; none if there are too few rounds.
    pub ratio: Option<f64>,
    /// The lower end of the ratio's 99 % confidence interval.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// What that comes to.
    pub verdict: Verdict,
}

/// What a row comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The new one is better, beyond the noise.
    Better,
    /// The new one is worse, beyond the noise.
    Worse,
    /// They differ beyond the noise, and neither is better.
    Differs,
    /// They do not differ beyond the noise.
    WithinNoise,
    /// There are fewer than [`Ratio::VALUES_MIN`] rounds of one of the two.
    TooFewRounds,
}

/// A job's figures, side by side.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The job's name.
    pub job: String,
    /// The old result.
    pub old: Side,
    /// The new result.
    pub new: Side,
    /// What the two were measured on, where it differs: the old one, the new one.
    pub setup_differs: BTreeMap<String, [String; 2]>,
    /// Records per second.
    pub records_per_s: Row,
    /// Processor time for 1,000 records, in seconds.
    pub cpu_s_per_1000: Row,
    /// The time to the first batch, in milliseconds.
    pub first_batch_ms: Row,
    /// The share of each limit of the machine that was reached.
    pub share_of: BTreeMap<String, Row>,
    /// What the machine can do, in bytes or records per second.
    pub limits: BTreeMap<String, Row>,
}

/// One of the two.
#[derive(Clone, Debug, Serialize)]
pub struct Side {
    /// What it is called.
    pub name: String,
    /// How many rounds it has.
    pub rounds: usize,
}

/// What is good about a figure.
#[derive(Clone, Copy)]
enum Good {
    More,
    Less,
    Neither,
}

impl Row {
    fn of(old: &[f64], new: &[f64], good: Good) -> Option<Self> {
        let [old_middle, new_middle] = [old, new].map(|values| median(values.iter().copied()));
        let ratio = Ratio::of(old, new);
        let verdict = match (ratio, good) {
            (None, _) => Verdict::TooFewRounds,
            (Some(ratio), _) if !ratio.differs() => Verdict::WithinNoise,
            (_, Good::Neither) => Verdict::Differs,
            (Some(ratio), good) if (ratio.middle > 1.0) == matches!(good, Good::More) => Verdict::Better,
            _ => Verdict::Worse,
        };
        Some(Row {
            old: old_middle?,
            new: new_middle?,
            ratio: ratio.map(|ratio| ratio.middle),
            low: ratio.map(|ratio| ratio.low),
            high: ratio.map(|ratio| ratio.high),
            verdict,
        })
    }
}

impl Comparison {
    /// Compares two results of a job, with their names; `None` if one of them has no round.
    #[must_use]
    pub fn of([old_name, new_name]: [&str; 2], old: &JobResult, new: &JobResult) -> Option<Self> {
        let row = |figure: &dyn Fn(&RoundFigures) -> Option<f64>, good| {
            let [old, new] = [old, new].map(|one| {
                let positive = one.rounds.iter().filter_map(figure);
                positive.map(|value| value.max(f64::MIN_POSITIVE)).collect::<Vec<_>>()
            });
            Row::of(&old, &new, good)
        };
        let by_limit = |of: &dyn Fn(&RoundFigures) -> &BTreeMap<String, f64>, good| {
            let rounds = old.rounds.iter().chain(&new.rounds);
            let names: BTreeSet<&String> = rounds.flat_map(|round| of(round).keys()).collect();
            let rows = names
                .into_iter()
                .filter_map(|name| Some((name.clone(), row(&|round| of(round).get(name).copied(), good)?)));
            rows.collect::<BTreeMap<_, _>>()
        };
        let mut limits = by_limit(&|round| &round.limits, Good::Neither);
        // The number of threads is no rate.
        limits.remove("cpu");
        let mut share_of = by_limit(&|round| &round.share_of, Good::More);
        // A larger share of the processors may be more work done, or more work for the same.
        share_of.remove("cpu");
        let differs = |(name, before): (&String, &String)| {
            let after = new.setup.get(name).filter(|after| *after != before)?;
            Some((name.clone(), [before.clone(), after.clone()]))
        };
        Some(Comparison {
            job: old.job.clone(),
            old: Side { name: old_name.to_owned(), rounds: old.rounds.len() },
            new: Side { name: new_name.to_owned(), rounds: new.rounds.len() },
            setup_differs: old.setup.iter().filter_map(differs).collect(),
            records_per_s: row(&|round| Some(round.records_per_s), Good::More)?,
            cpu_s_per_1000: row(&|round| Some(round.cpu_s_per_1000), Good::Less)?,
            first_batch_ms: row(&|round| Some(round.first_batch_ms), Good::Less)?,
            share_of,
            limits,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(rates: &[f64], limit: f64, threads: &str) -> JobResult {
        let round = |&rate: &f64| RoundFigures {
            records_per_s: rate,
            cpu_s_per_1000: 1.0 / rate,
            first_batch_ms: 0.0,
            limits: BTreeMap::from([("store_n".to_owned(), limit), ("cpu".to_owned(), 2.0)]),
            share_of: BTreeMap::from([("store_n".to_owned(), rate / limit), ("cpu".to_owned(), 1.0)]),
        };
        JobResult {
            job: "raw256".to_owned(),
            setup: BTreeMap::from([("threads".to_owned(), threads.to_owned())]),
            rounds: rates.iter().map(round).collect(),
        }
    }

    fn compared(old: &JobResult, new: &JobResult) -> Comparison {
        Comparison::of(["old.json", "new.json"], old, new).unwrap()
    }

    const RATES: [f64; 5] = [100.0, 101.0, 102.0, 103.0, 104.0];

    #[test]
    fn what_is_better_is_so_by_the_kind_of_figure() {
        let old = result(&RATES, 1e3, "2");
        let faster = compared(&old, &result(&RATES.map(|rate| rate * 1.5), 1e3, "2"));
        let verdicts = |one: &Comparison| {
            [&one.records_per_s, &one.cpu_s_per_1000, &one.first_batch_ms, &one.share_of["store_n"]]
                .map(|row| row.verdict)
        };
        use Verdict::{Better, WithinNoise, Worse};
        assert_eq!(verdicts(&faster), [Better, Better, WithinNoise, Better]);
        assert_eq!((faster.share_of.len(), faster.limits.len()), (1, 1), "processors are no rate");
        let slower = compared(&old, &result(&RATES.map(|rate| rate / 1.5), 1e3, "2"));
        assert_eq!(verdicts(&slower), [Worse, Worse, WithinNoise, Worse]);
        assert_eq!(verdicts(&compared(&old, &old)), [WithinNoise; 4]);
    }

    #[test]
    fn another_setup_and_too_few_rounds_are_told() {
        let old = result(&RATES, 1e3, "2");
        let other = compared(&old, &result(&RATES.map(|rate| rate * 2.0), 2e3, "4"));
        assert_eq!(other.setup_differs["threads"], ["2", "4"]);
        assert_eq!(other.limits["store_n"].verdict, Verdict::Differs);
        let few = compared(&old, &result(&RATES[..4], 1e3, "2"));
        assert_eq!(few.records_per_s.verdict, Verdict::TooFewRounds);
        assert!(Comparison::of(["old", "new"], &old, &result(&[], 1e3, "2")).is_none());
    }
}
