//! `percolator bench`: measures the pipeline next to this machine's limits.
//!
//! ```text
//! job         what is measured                         data, write, synthetic, photos, dice: synthetic data
//! rounds      limits and pipeline in turn              measure (by the package percolator-measure)
//! figures     medians, shares, which limit binds       figures
//! output      for people, for programs, as a picture   report, JSON, plot
//! comparison  of two results, or of two builds         compare
//! ```

mod compare;
mod data;
mod dice;
mod figures;
mod job;
mod measure;
mod photos;
mod plot;
mod report;
mod synthetic;
mod write;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgGroup, Args};
use percolator_files::whole_file::Existing;

use super::args::seconds;
use super::input::InputArgs;
use super::measured::measured;
use super::out::Out;
use super::output::{FileKind, Output};
use super::watch::Ended;
use data::Format;
use measure::Measured;
use synthetic::Kind;

/// The figures of all rounds are kept in memory.
const ROUNDS_MAX: i64 = 100_000;
/// Keys of eight digits are in order up to this number of records.
const RECORDS_MAX: i64 = 99_999_999;

/// Measure the pipeline next to this machine's own limits, and say which of them binds
///
/// Every round measures the limits, then the pipeline with consumers that only count batches. A share is the
/// part of a limit that the pipeline reached in the same round. The result is the median over the rounds:
///
/// copy_1, copy_n: output bytes, as a share of what one thread, or all of them, copy from memory to memory;
/// copy_n can bind only if no more is written than read;
/// store_n: output bytes, as a share of what all threads store past the caches;
/// read_n: bytes of records, as a share of what all threads read from the page cache;
/// decode: records, as a share of the whole images that all threads decode when they do nothing else;
/// pinned_copy: bytes of batches, as a share of what the GPUs copy from page-locked memory;
/// cpu: processor time, as a share of what all threads have.
///
/// The largest share binds, except those of copy_1 and cpu, which are only reported. But if none reaches a
/// half while the workers are at work four fifths of the time, cpu binds. GB are 10^9 bytes, and copies are
/// counted in bytes written. The measurement starts once the pipeline has been through its source, or has run
/// as long as a round lasts. With --cold it starts when the pipeline is built, and ends with the first pass.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment,
    group = ArgGroup::new("work").args(["net", "lmdb", "leveldb", "tfrecord", "synthetic", "compare"])
        .required(true).multiple(true))]
pub(crate) struct Bench {
    #[command(flatten)]
    input: InputArgs,
    /// Synthetic data to make and keep, with their own transform; several are measured one after the other.
    #[arg(long, value_enum, value_delimiter = ',',
        conflicts_with_all = ["net", "lmdb", "leveldb", "tfrecord", "level", "stage", "layer", "top", "root",
        "allow_log_gaps", "fields", "image"])]
    synthetic: Vec<Kind>,
    /// The database format of synthetic data [default: lmdb].
    #[arg(long = "as", value_enum, value_name = "FORMAT",
        conflicts_with_all = ["net", "lmdb", "leveldb", "tfrecord"])]
    format: Option<Format>,
    /// Make this many records [default: depends on the kind].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=RECORDS_MAX),
        conflicts_with_all = ["net", "lmdb", "leveldb", "tfrecord"])]
    records: Option<u32>,
    /// Where synthetic data are kept [default: percolator, in the user's cache folder].
    #[arg(long, value_name = "DIR", conflicts_with_all = ["net", "lmdb", "leveldb", "tfrecord"])]
    cache: Option<PathBuf>,
    /// How long a round measures the pipeline, in seconds; it warms up for at most as long before.
    #[arg(long, value_parser = seconds, default_value = "1", allow_negative_numbers = true)]
    seconds: Duration,
    /// The number of rounds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=ROUNDS_MAX))]
    rounds: u32,
    /// Drop the source's files from the page cache before each round, which is then at most one pass.
    #[arg(long)]
    cold: bool,
    /// Print one line of JSON per job, and nothing else.
    #[arg(long)]
    json: bool,
    /// Print no progress.
    #[arg(long)]
    quiet: bool,
    /// Compare two results, or two builds: each is a file with what bench --json printed, or a program. A
    /// program measures, with the other arguments, in turns with the other one. The exit code is 1 if NEW
    /// delivers fewer records per second, beyond the noise of the rounds.
    #[arg(long, value_names = ["OLD", "NEW"], num_args = 2, conflicts_with = "plot")]
    compare: Vec<PathBuf>,
    /// Plot the activity of each stage over the last round, and the shares of the limits.
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Replace a plot that exists.
    #[arg(long, requires = "plot")]
    force: bool,
    /// The share of a limit at which the plot has a line.
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "0.9", requires = "plot")]
    goal: f64,
}

impl Bench {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if let [old, new] = &*self.compare {
            return self.compare([old, new]);
        }
        // Fails now, rather than after minutes, if the file cannot be written.
        let existing = Existing::replaced_if(self.force);
        let plot =
            self.plot.as_ref().map(|path| Output::check(path, FileKind::Plot, existing)).transpose()?;
        let mut out = Out::new(std::io::stdout().lock());
        let mut jobs = Vec::new();
        let wanted = match self.jobs()? {
            Ended::Done(wanted) => wanted,
            Ended::Stopped(code) => return Ok(code),
        };
        for job in wanted {
            let work = |progress: &_| self.measure(&job, progress);
            let one = match measured(self.quiet, &job.name, work)? {
                Ended::Done(one) => one,
                Ended::Stopped(code) => return Ok(code),
            };
            self.print(&one, &mut out)?;
            jobs.push(one);
        }
        if let Some(plot) = plot {
            plot.write(plot::draw(&jobs, self.goal).as_bytes())?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }

    fn has_source(&self) -> bool {
        !self.synthetic.is_empty() || self.input.source.is_given()
    }

    fn print(&self, measured: &Measured, out: &mut impl Write) -> anyhow::Result<()> {
        let text = if self.json {
            serde_json::to_string(&measured.figures)? + "\n"
        } else {
            report::of(&measured.figures)
        };
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }
}

fn share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "not a number")?;
    if share > 0.0 && share <= 100.0 {
        Ok(share)
    } else {
        Err("must be more than 0 and at most 100".to_owned())
    }
}
