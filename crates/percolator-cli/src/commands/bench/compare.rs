//! `percolator bench --compare`: two results side by side.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::ensure;
use percolator_files::shown;
use percolator_measure::Ratio;
use percolator_measure::compare::{Comparison, Results, Row, Verdict};

use super::Bench;
use super::report::grouped;
use crate::run::exit;
use crate::terminal::out::{json_line, stdout, tell};

impl Bench {
    /// Compares; the exit code is 1 if the new one is slower beyond the noise.
    pub(super) fn compare(&self, paths: [&Path; 2]) -> anyhow::Result<ExitCode> {
        let measures = !self.synthetic.is_empty() || self.input.source.is_given();
        ensure!(!measures, "--compare measures nothing: leave out what to measure");
        let [old, new] = [Results::load(paths[0])?, Results::load(paths[1])?];
        let names = paths.map(|path| shown::path(path).to_string());
        let mut out = stdout();
        let (mut is_well, mut compared) = (true, 0);
        for one in old.jobs() {
            let Some(other) = new.partner(one) else { continue };
            let names = [&*names[0], &*names[1]];
            let Some(comparison) = Comparison::of(names, one, other) else { continue };
            compared += 1;
            is_well &= comparison.records_per_s.verdict != Verdict::Worse;
            let text = match self.json {
                true => json_line("percolator.bench.compare/1", &comparison)?,
                false => table(&comparison),
            };
            writeln!(out, "{text}")?;
        }
        out.finish()?;
        ensure!(compared > 0, "{} and {}: the two have no job in common", names[0], names[1]);
        for (results, others, name) in [(&old, &new, &names[0]), (&new, &old, &names[1])] {
            for one in results.jobs().iter().filter(|one| others.partner(one).is_none()) {
                tell(&format!("only {name} has the job {}", one.job));
            }
        }
        Ok(exit::found(is_well))
    }
}

/// A job's figures side by side, 100 columns wide at most, but for names of files.
fn table(compared: &Comparison) -> String {
    let mut said = String::new();
    // Writing to a string cannot fail.
    let _ = write(compared, &mut said);
    said
}

fn write(compared: &Comparison, out: &mut String) -> std::fmt::Result {
    writeln!(out, "{}", shown::message(&compared.job))?;
    for (what, side) in [("old", &compared.old), ("new", &compared.new)] {
        writeln!(out, "  {what}: {}, {} round(s)", side.name, side.rounds)?;
    }
    for (what, [old, new]) in &compared.setup_differs {
        let (old, new) = (shown::message(old), shown::message(new));
        writeln!(out, "  not the same job: {}: {old}, now {new}", what.replace('_', " "))?;
    }
    let head = ["", "old", "new", "ratio", "99 % interval"];
    writeln!(out, "\n  {:<26} {:>14} {:>14} {:>8} {:>19}", head[0], head[1], head[2], head[3], head[4])?;
    line(out, "records/s", &compared.records_per_s, &grouped)?;
    line(out, "CPU s per 1,000 records", &compared.cpu_s_per_1000, &|value| format!("{value:.4}"))?;
    line(out, "first batch, ms", &compared.first_batch_ms, &|value| format!("{value:.1}"))?;
    for (name, row) in &compared.share_of {
        line(out, &format!("share of {name}"), row, &|value| format!("{value:.3}"))?;
    }
    for (name, row) in &compared.limits {
        let (unit, scale) = if name == "decode" { ("records/s", 1.0) } else { ("GB/s", 1e9) };
        let digits = if name == "decode" { 0 } else { 2 };
        line(out, &format!("machine: {name}, {unit}"), row, &|value| format!("{:.digits$}", value / scale))?;
    }
    writeln!(out, "\n  {}", sentence(compared))
}

fn sentence(compared: &Comparison) -> String {
    let Row { ratio, low, high, verdict, .. } = &compared.records_per_s;
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
    match compared.limits.values().any(|row| row.verdict == Verdict::Differs) {
        true => said + "\n  The machine itself was not the same for both: compare the shares.",
        false => said,
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
    use std::collections::BTreeMap;

    use percolator_measure::compare::{JobResult, RoundFigures};

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

    fn compared(old: &JobResult, new: &JobResult) -> String {
        table(&Comparison::of(["old.json", "new.json"], old, new).unwrap())
    }

    const RATES: [f64; 5] = [100.0, 101.0, 102.0, 103.0, 104.0];

    #[test]
    fn a_table_says_what_is_better() {
        let old = result(&RATES, 1e3, "2");
        let table = compared(&old, &result(&RATES.map(|rate| rate * 1.5), 1e3, "2"));
        assert!(table.contains("Faster: 1.500 times"), "{table}");
        assert!(table.lines().all(|line| line.len() <= 100), "{table}");
    }

    #[test]
    fn another_machine_and_another_job_are_said() {
        let old = result(&RATES, 1e3, "2");
        let table = compared(&old, &result(&RATES.map(|rate| rate * 2.0), 2e3, "4"));
        assert!(table.contains("not the same job: threads: 2, now 4"), "{table}");
        assert!(table.contains("The machine itself was not the same"), "{table}");
    }

    #[test]
    fn too_few_rounds_are_said() {
        let table = compared(&result(&RATES, 1e3, "2"), &result(&RATES[..4], 1e3, "2"));
        assert!(table.contains("5 of each are needed"), "{table}");
    }
}
