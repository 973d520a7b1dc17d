//! The diagnosis for people: 100 columns at most, but for paths.

use std::fmt;

use percolator::shown;

use super::{Diagnosis, Trial};

/// In columns.
const WIDTH: usize = 100;

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let records = self.records.map_or(String::new(), |records| format!(": {records} records"));
        writeln!(f, "{}{records}", shown::path(&self.source))?;
        let (threads, ring, devices) = (self.threads, self.ring, self.devices.join(", "));
        let megabytes = self.memory_bytes as f64 / 1e6;
        write_wrapped(
            f,
            "  ",
            &format!(
                "batches of {} to {devices}; {threads} worker(s), rings of {ring} batches, {megabytes:.1} MB \
                 of memory at most",
                self.batch
            ),
        )?;
        writeln!(f, "\n  {:.0} records/s\n", self.records_per_s)?;
        write_wrapped(f, "What binds: ", &format!("{}.", self.binds))?;
        write_wrapped(f, "What would help: ", &format!("{}.", self.advice))?;
        if !self.trials.is_empty() {
            writeln!(f, "\nTried:")?;
        }
        for Trial { change, option, ratio, low, high, helps } in &self.trials {
            let verdict = match (helps, *high < 1.0) {
                (true, _) => format!("it helps: set {option}"),
                (false, true) => "it is slower".to_owned(),
                (false, false) => "not worth it".to_owned(),
            };
            write_wrapped(
                f,
                "  ",
                &format!("{change}: {ratio:.2} times the rate ({low:.2} to {high:.2} with 99 %); {verdict}"),
            )?;
        }
        writeln!(f)?;
        match (self.looked_at, &*self.findings) {
            (0, _) => write_wrapped(f, "", "The records are not Caffe's, so nothing is said of the data."),
            (looked_at, []) => {
                write_wrapped(f, "", &format!("Nothing looks wrong in the {looked_at} records looked at."))
            }
            (looked_at, findings) => {
                writeln!(f, "What looks wrong, by {looked_at} records:")?;
                findings.iter().try_for_each(|finding| {
                    write_wrapped(f, "  - ", &shown::message(&format!("{finding}.")).to_string())
                })
            }
        }
    }
}

/// Writes a text after what begins its first line; the others are indented as much.
fn write_wrapped(f: &mut fmt::Formatter<'_>, begin: &str, text: &str) -> fmt::Result {
    let indent = " ".repeat(begin.len().min(4));
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
