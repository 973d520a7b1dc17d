//! The diagnosis for people: 100 columns at most, but for paths.

use std::fmt;

use percolator::shown;

use super::{Diagnosis, Pipeline, Trial, Verdict};

/// In columns.
const WIDTH: usize = 100;

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let records = self.records.map_or(String::new(), |records| format!(": {records} records"));
        writeln!(f, "{}{records}", shown::path(&self.source))?;
        let (devices, megabytes) = (self.devices.join(", "), self.memory_bytes as f64 / 1e6);
        let batch = &self.batch;
        write_wrapped(
            f,
            "  ",
            &format!("batches of {batch} to {devices}; {megabytes:.1} MB of memory at most"),
        )?;
        if let Some(pipeline) = &self.pipeline {
            pipeline.fmt(f)?;
        }
        if let Some(failed) = &self.failed {
            write_wrapped(f, "\nThe feed fails: ", &shown::message(failed).to_string())?;
        }
        let Some(looked_at) = self.looked_at else {
            return write_wrapped(f, "\n", "The records are not Caffe's, so nothing is said of the data.");
        };
        let which = if self.is_spread { "spread over all" } else { "the first" };
        if self.findings.is_empty() {
            let text = format!("Nothing looks wrong in the {looked_at} records looked at, {which}.");
            return write_wrapped(f, "\n", &text);
        }
        writeln!(f, "\nWhat was found in {looked_at} records, {which}:")?;
        self.findings.iter().try_for_each(|finding| {
            write_wrapped(f, "  - ", &shown::message(&format!("{finding}.")).to_string())
        })
    }
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cold =
            if self.is_cold { "; read from storage, because the files do not fit in memory" } else { "" };
        writeln!(f, "  {} worker(s), rings of {} batches{cold}", self.threads, self.ring)?;
        writeln!(f, "\n  {} records/s\n", rate(self.records_per_s))?;
        write_wrapped(f, "What binds: ", &format!("{}.", self.binds))?;
        write_wrapped(f, "What would help: ", &format!("{}.", self.advice))?;
        if !self.trials.is_empty() {
            writeln!(f, "\nTried:")?;
        }
        for Trial { change, option, ratio, low, high, verdict } in &self.trials {
            let verdict = match verdict {
                Verdict::Helps => format!("it helps: set {option}"),
                Verdict::NotWorthIt => "not worth it".to_owned(),
                Verdict::Slower => "it is slower".to_owned(),
                Verdict::Unclear => "unclear: more --rounds, or longer --seconds, would tell".to_owned(),
            };
            let text = format!("{change}: {ratio:.2} times the rate ({low:.2} to {high:.2}); {verdict}");
            write_wrapped(f, "  ", &text)?;
        }
        Ok(())
    }
}

/// Slow feeds have decimals.
fn rate(records_per_s: f64) -> String {
    if records_per_s < 100.0 { format!("{records_per_s:.2}") } else { format!("{records_per_s:.0}") }
}

/// Writes a text after what begins its first line; the others are indented as much.
fn write_wrapped(f: &mut fmt::Formatter<'_>, begin: &str, text: &str) -> fmt::Result {
    let indent = " ".repeat(begin.trim_start_matches('\n').len().min(4));
    let mut line = begin.to_owned();
    let mut is_empty = true;
    for word in text.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            writeln!(f, "{line}")?;
            line.clone_from(&indent);
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    writeln!(f, "{line}")
}
