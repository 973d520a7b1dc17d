//! Two results side by side: each figure, the ratio of the two, and whether they differ beyond their noise.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use percolator::shown;
use percolator_measure::{Ratio, median};
use serde::Serialize;

use super::results::JobResult;
use crate::bench::figures::RoundFigures;
use crate::bench::report::grouped;

/// A figure of both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) old: f64,
    pub(super) new: f64,
    /// The new one divided by the old one, with its 99 % confidence interval; none if there are too few
    /// rounds.
    pub(super) ratio: Option<f64>,
    pub(super) low: Option<f64>,
    pub(super) high: Option<f64>,
    pub(super) verdict: Verdict,
}

/// What a row comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    Better,
    Worse,
    /// They differ, and neither is better.
    Differs,
    WithinNoise,
    TooFewRounds,
}

/// A job's figures, side by side.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Comparison {
    pub(super) job: String,
    pub(super) old: Side,
    pub(super) new: Side,
    /// What the two were measured on, where it differs: the old one, the new one.
    pub(super) setup_differs: BTreeMap<&'static str, [String; 2]>,
    pub(super) records_per_s: Row,
    pub(super) cpu_s_per_1000: Row,
    pub(super) first_batch_ms: Row,
    pub(super) share_of: BTreeMap<String, Row>,
    /// What the machine can do, in bytes or records per second.
    pub(super) limits: BTreeMap<String, Row>,
}

/// One of the two.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Side {
    pub(super) name: String,
    pub(super) rounds: usize,
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
    /// Both have a round.
    pub(super) fn of([old_name, new_name]: [&str; 2], old: &JobResult, new: &JobResult) -> Option<Self> {
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
        let differs = |(name, before): (&&'static str, &String)| {
            let after = new.setup.get(name).filter(|after| *after != before)?;
            Some((*name, [before.clone(), after.clone()]))
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

    /// For people, 100 columns wide at most, but for names of files.
    pub(super) fn table(&self) -> String {
        let mut said = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut said);
        said
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "{}", shown::message(&self.job))?;
        for (what, side) in [("old", &self.old), ("new", &self.new)] {
            writeln!(out, "  {what}: {}, {} round(s)", side.name, side.rounds)?;
        }
        for (what, [old, new]) in &self.setup_differs {
            let (old, new) = (shown::message(old), shown::message(new));
            writeln!(out, "  not the same job: {}: {old}, now {new}", what.replace('_', " "))?;
        }
        let head = ["", "old", "new", "ratio", "99 % interval"];
        writeln!(out, "\n  {:<26} {:>14} {:>14} {:>8} {:>19}", head[0], head[1], head[2], head[3], head[4])?;
        line(out, "records/s", &self.records_per_s, &grouped)?;
        line(out, "CPU s per 1,000 records", &self.cpu_s_per_1000, &|value| format!("{value:.4}"))?;
        line(out, "first batch, ms", &self.first_batch_ms, &|value| format!("{value:.1}"))?;
        for (name, row) in &self.share_of {
            line(out, &format!("share of {name}"), row, &|value| format!("{value:.3}"))?;
        }
        for (name, row) in &self.limits {
            let (unit, scale) = if name == "decode" { ("records/s", 1.0) } else { ("GB/s", 1e9) };
            let digits = if name == "decode" { 0 } else { 2 };
            line(out, &format!("machine: {name}, {unit}"), row, &|value| {
                format!("{:.digits$}", value / scale)
            })?;
        }
        writeln!(out, "\n  {}", self.sentence())
    }

    fn sentence(&self) -> String {
        let Row { ratio, low, high, verdict, .. } = &self.records_per_s;
        let (Some(ratio), Some(low), Some(high)) = (ratio, low, high) else {
            return format!(
                "Too few rounds to tell a difference from the noise: {} of each are needed.",
                Ratio::VALUES_MIN
            );
        };
        let interval = format!("99 % interval {low:.3} to {high:.3}");
        let said = match verdict {
            Verdict::Better => format!("Faster: {ratio:.3} times the records per second, {interval}."),
            Verdict::Worse => format!("Slower: {ratio:.3} times the records per second, {interval}."),
            _ => format!("No difference in records per second beyond the noise: {interval}."),
        };
        match self.limits.values().any(|row| row.verdict == Verdict::Differs) {
            true => said + "\n  The machine itself was not the same for both: compare the shares.",
            false => said,
        }
    }
}

fn line(out: &mut String, name: &str, row: &Row, shown: &dyn Fn(f64) -> String) -> std::fmt::Result {
    let (ratio, interval) = match (row.ratio, row.low, row.high) {
        (Some(ratio), Some(low), Some(high)) => (format!("{ratio:.3}"), format!("{low:.3} to {high:.3}")),
        _ => ("-".to_owned(), "-".to_owned()),
    };
    let verdict = match row.verdict {
        Verdict::Better => "   better",
        Verdict::Worse => "   worse",
        Verdict::Differs => "   differs",
        Verdict::WithinNoise | Verdict::TooFewRounds => "",
    };
    let (old, new) = (shown(row.old), shown(row.new));
    writeln!(out, "  {name:<26} {old:>14} {new:>14} {ratio:>8} {interval:>19}{verdict}")
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
            setup: BTreeMap::from([("threads", threads.to_owned())]),
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
        let table = faster.table();
        assert!(table.contains("Faster: 1.500 times"), "{table}");
        assert!(table.lines().all(|line| line.len() <= 100), "{table}");
    }

    #[test]
    fn another_machine_and_another_job_are_said() {
        let old = result(&RATES, 1e3, "2");
        let table = compared(&old, &result(&RATES.map(|rate| rate * 2.0), 2e3, "4")).table();
        assert!(table.contains("not the same job: threads: 2, now 4"), "{table}");
        assert!(table.contains("The machine itself was not the same"), "{table}");
    }

    #[test]
    fn too_few_rounds_are_said() {
        let one = compared(&result(&RATES, 1e3, "2"), &result(&RATES[..4], 1e3, "2"));
        assert_eq!(one.records_per_s.verdict, Verdict::TooFewRounds);
        assert!(one.table().contains("5 of each are needed"), "{}", one.table());
    }
}
