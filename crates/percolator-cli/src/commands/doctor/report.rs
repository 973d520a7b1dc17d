//! The diagnosis for people: as wide as the terminal, and 100 columns at most, but for paths.

use percolator_files::shown::{self, count};
use percolator_measure::doctor::{Binds, Diagnosis, Pipeline, Trial, TrialVerdict};

use super::options;
use crate::terminal::wrap::{self, WIDTH};

/// The least columns: a narrower terminal wraps the lines itself.
const WIDTH_MIN: usize = 30;

/// How wide the text is on a terminal of so many columns, or without one.
pub(super) fn width(columns: Option<usize>) -> usize {
    // A terminal that does not know its width says 0.
    columns.filter(|&columns| columns > 0).map_or(WIDTH, |columns| columns.clamp(WIDTH_MIN, WIDTH))
}

/// The diagnosis, in lines of this width.
pub(super) fn text(diagnosis: &Diagnosis, width: usize) -> String {
    let mut lines = Lines { text: String::new(), width };
    let records =
        diagnosis.records.map_or(String::new(), |records| format!(": {}", count(records, "record")));
    lines.whole(&format!("{}{records}", shown::path(&diagnosis.source)));
    let (devices, megabytes) = (diagnosis.devices.join(", "), diagnosis.memory_bytes as f64 / 1e6);
    let batch = &diagnosis.batch;
    lines.wrapped("  ", &format!("batches of {batch} to {devices}; {megabytes:.1} MB of memory at most"));
    if let Some(pipeline) = &diagnosis.pipeline {
        write_pipeline(&mut lines, pipeline);
    }
    if let Some(failed) = &diagnosis.failed {
        lines.whole("");
        lines.wrapped("The feed fails: ", &shown::message(failed).to_string());
    }
    write_findings(&mut lines, diagnosis);
    lines.text
}

fn write_pipeline(lines: &mut Lines, pipeline: &Pipeline) {
    let Pipeline { threads, ring, is_cold, binds, advice, .. } = pipeline;
    let cold = if *is_cold { "; read from storage, because the files do not fit in memory" } else { "" };
    lines.wrapped("  ", &format!("{}, rings of {ring} batches{cold}", count(*threads, "worker")));
    lines.whole(&format!("\n  {} records/s\n", rate(pipeline.records_per_s)));
    lines.wrapped("What binds: ", &format!("{binds}."));
    let advice = advice.iter().map(|&advice| match options::of_advice(advice) {
        Some(option) => format!("{advice} ({option})"),
        None => advice.to_string(),
    });
    let advice = match binds {
        Binds::Consumer => "nothing: the feed waits for the training step".to_owned(),
        _ => advice.collect::<Vec<_>>().join("; "),
    };
    if !advice.is_empty() {
        lines.wrapped("What would help: ", &format!("{advice}."));
    }
    if !pipeline.trials.is_empty() {
        lines.whole(&format!("\nTried, in {:.0} s:", pipeline.seconds.ceil()));
    }
    for Trial { change, ratio, low, high, verdict, .. } in &pipeline.trials {
        let verdict = match verdict {
            TrialVerdict::Helps => format!("it helps: set {}", options::of_change(*change)),
            TrialVerdict::NotWorthIt => "not worth it".to_owned(),
            TrialVerdict::Slower => "it is slower".to_owned(),
            _ => "unclear: more --rounds, or longer --seconds, would tell".to_owned(),
        };
        lines.wrapped(
            "  ",
            &format!("{change}: {ratio:.2} times the rate ({low:.2} to {high:.2}); {verdict}"),
        );
    }
    let not_tried: Vec<_> = pipeline.not_tried.iter().map(|&change| options::of_change(change)).collect();
    if !not_tried.is_empty() {
        let (took, left_out) = (pipeline.seconds.ceil(), not_tried.join(", "));
        lines.whole("");
        lines.wrapped(
            "Not tried: ",
            &format!("{left_out}. The measurements took {took:.0} s; a larger --at-most leaves time."),
        );
    }
}

fn write_findings(lines: &mut Lines, diagnosis: &Diagnosis) {
    lines.whole("");
    let Some(looked_at) = diagnosis.looked_at else {
        let text =
            "The records are neither Caffe's nor Examples with encoded images: nothing is said of the data.";
        return lines.wrapped("", text);
    };
    let which = if diagnosis.is_spread { "spread over all" } else { "the first" };
    if diagnosis.findings.is_empty() {
        let text = format!("Nothing looks wrong in the {} looked at, {which}.", count(looked_at, "record"));
        return lines.wrapped("", &text);
    }
    lines.wrapped("", &format!("What was found in {}, {which}:", count(looked_at, "record")));
    for finding in &diagnosis.findings {
        let option = options::of_finding(finding).map_or(String::new(), |option| format!(" ({option})"));
        lines.wrapped("  - ", &shown::message(&format!("{finding}{option}.")).to_string());
    }
}

/// Slow feeds have decimals.
fn rate(records_per_s: f64) -> String {
    if records_per_s < 100.0 { format!("{records_per_s:.2}") } else { format!("{records_per_s:.0}") }
}

/// Lines that are wrapped at a width.
struct Lines {
    text: String,
    width: usize,
}

impl Lines {
    /// Adds a line that is not wrapped.
    fn whole(&mut self, line: &str) {
        self.text += line;
        self.text.push('\n');
    }

    /// Adds a text after what begins its first line; the others are indented as much.
    fn wrapped(&mut self, begin: &str, text: &str) {
        self.text += &wrap::wrapped(begin, text, self.width);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_as_wide_as_the_terminal() {
        assert_eq!([None, Some(0), Some(7), Some(40), Some(300)].map(width), [100, 100, 30, 40, 100]);
        for width in [30, 40, 100] {
            let mut lines = Lines { text: String::new(), width };
            lines.wrapped("What binds: ", &"a word and another ".repeat(20));
            assert!(lines.text.lines().count() > 3);
            assert!(lines.text.lines().all(|line| line.chars().count() <= width), "{}", lines.text);
            assert!(lines.text.lines().skip(1).all(|line| line.starts_with("    ")), "{}", lines.text);
        }
    }
}
