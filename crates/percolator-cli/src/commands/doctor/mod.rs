//! `percolator doctor`: what holds a feed up, what would help, and what looks wrong in the data.
//!
//! ```text
//! measurements   by the package percolator-measure
//! options        the command's options that do what would help    options
//! output         for people, and for programs                     report, JSON
//! ```

mod options;
mod report;

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use percolator_measure::doctor::{Diagnosis, Options, examine};
use percolator_measure::{Job, Ratio};
use serde_json::Value;

use crate::args::durations::{seconds, some_seconds, step};
use crate::args::input::InputArgs;
use crate::args::job::JobArgs;
use crate::run::exit;
use crate::terminal::out::{Out, json_line};
use crate::terminal::progress::{counted, watched};

/// The least number of rounds: fewer tell nothing from noise.
const ROUNDS_MIN: i64 = Ratio::VALUES_MIN as i64;
const ROUNDS_MAX: i64 = 1000;

#[derive(Debug, Args)]
pub(super) struct Doctor {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    job: JobArgs,
    /// How long a training step takes, in milliseconds, or with a unit (5ms); 0 asks how fast the feed
    /// can be.
    #[arg(long, value_name = "MS", value_parser = step, default_value = "0")]
    step_ms: Duration,
    /// How long each measurement is, in seconds, or with a unit (500ms); it warms up for at most as long
    /// before.
    #[arg(long, value_parser = some_seconds, default_value = "0.3",
        allow_negative_numbers = true)]
    seconds: Duration,
    /// How long all measurements may take, in seconds, or with a unit (2m). Changes for which there is no
    /// time are not tried.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60",
        allow_negative_numbers = true)]
    at_most: Duration,
    /// How many times the feed, and each change of it, is measured.
    #[arg(long, default_value_t = Ratio::VALUES_MIN as u32,
        value_parser = clap::value_parser!(u32).range(ROUNDS_MIN..=ROUNDS_MAX))]
    rounds: u32,
    /// The most records to look at.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    samples: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    /// Print no progress.
    #[arg(short, long)]
    quiet: bool,
}

impl Doctor {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let job = self.job()?;
        let mut options = Options::default();
        options.length = self.seconds;
        options.rounds = self.rounds as usize;
        options.samples = self.samples as usize;
        options.time_max = self.at_most;
        let message = counted("examining: run".to_owned());
        let diagnosis = watched(self.quiet, message, |progress, _| Ok(examine(job, &options, progress)?))?;
        let stdout = std::io::stdout();
        let columns = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok()).flatten();
        let mut out = Out::new(stdout.lock());
        match self.json {
            true => writeln!(out, "{}", json_line("percolator.doctor/1", &json(&diagnosis)?)?)?,
            false => {
                let width = report::width(columns.map(|size| size.ws_col.into()));
                write!(out, "{}", report::text(&diagnosis, width))?;
            }
        }
        out.finish()?;
        Ok(exit::found(!diagnosis.is_wrong()))
    }

    /// What is examined.
    fn job(&self) -> anyhow::Result<Job> {
        let source = self.input.found(self.quiet || self.json)?;
        let described = self.input.describe(&source)?;
        let mut feed = self.job.of_feed(self.input.with_batch_size(&source, described.feed));
        if self.job.needs_plan() {
            // Without an end.
            feed = feed.epochs(0);
        }
        Ok(Job::new(feed)?.has_labels(described.has_labels).step(self.step_ms))
    }
}

/// The diagnosis for programs, with the options of the command.
fn json(diagnosis: &Diagnosis) -> anyhow::Result<Value> {
    let mut value = serde_json::to_value(diagnosis)?;
    let Some(pipeline) = &diagnosis.pipeline else { return Ok(value) };
    let options: Vec<_> = pipeline.advice.iter().filter_map(|&advice| options::of_advice(advice)).collect();
    value["pipeline"]["options"] = options.into();
    for (number, trial) in pipeline.trials.iter().enumerate() {
        value["pipeline"]["trials"][number]["option"] = options::of_change(trial.change).into();
    }
    Ok(value)
}
