//! `percolator doctor`: what holds a feed up, what would help, and what looks wrong in the data.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgGroup, Args};
use indicatif::{ProgressBar, ProgressStyle};
use percolator_measure::doctor::{Options, examine};
use percolator_measure::{Job, VALUES_MIN};

use crate::args::{millis, seconds};
use crate::input::InputArgs;
use crate::job::JobArgs;
use crate::measured;
use crate::out::Out;

/// The least number of rounds: fewer tell nothing from noise.
const ROUNDS_MIN: i64 = VALUES_MIN as i64;
const ROUNDS_MAX: i64 = 1000;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("source").args(["net", "lmdb", "leveldb", "tfrecord"])
    .required(true).multiple(true))]
pub(super) struct Doctor {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    job: JobArgs,
    /// How long a training step takes, in milliseconds; 0 asks how fast the feed can be.
    #[arg(long, value_name = "MS", value_parser = millis, default_value = "0")]
    step_ms: Duration,
    /// How long each measurement is, in seconds; it warms up for at most as long before.
    #[arg(long, value_parser = some_seconds, default_value = "0.3",
        allow_negative_numbers = true)]
    seconds: Duration,
    /// How often the feed, and each change of it, is measured.
    #[arg(long, default_value_t = VALUES_MIN as u32,
        value_parser = clap::value_parser!(u32).range(ROUNDS_MIN..=ROUNDS_MAX))]
    rounds: u32,
    /// The most records to look at.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    samples: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        let (job, root) = self.job()?;
        let mut options = Options::default();
        options.length = self.seconds;
        options.rounds = self.rounds as usize;
        options.samples = self.samples as usize;
        let bar = ProgressBar::new_spinner().with_message("examining");
        bar.set_style(ProgressStyle::default_spinner());
        bar.enable_steady_tick(Duration::from_millis(100));
        let examined = examine(job, &root, &options);
        bar.finish_and_clear();
        let diagnosis = examined?;
        let mut out = Out::new(std::io::stdout().lock());
        match self.json {
            true => writeln!(out, "{}", serde_json::to_string(&diagnosis)?)?,
            false => write!(out, "{diagnosis}")?,
        }
        out.finish()?;
        Ok(if diagnosis.is_wrong() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// What is examined, and the folder that relative paths start from.
    fn job(&self) -> anyhow::Result<(Job, std::path::PathBuf)> {
        let described = self.input.describe()?;
        let feed = self.input.with_batch_size(described.feed.clone());
        let mut feed = self.job.of_feed(feed);
        if self.job.needs_plan() {
            // Without an end.
            feed = feed.epochs(0);
        }
        let database = self.input.state.database().map(str::to_owned);
        let root = described.root.clone();
        let job =
            measured::job(described, feed, &self.input.pipeline, database, !self.input.example.is_given())?;
        Ok((Job { step: self.step_ms, ..job }, root))
    }
}

/// Parses a duration that something can be measured in.
fn some_seconds(text: &str) -> Result<Duration, String> {
    seconds(text).and_then(|length| match length.is_zero() {
        true => Err("nothing can be measured in no time: give more than 0 seconds".to_owned()),
        false => Ok(length),
    })
}
