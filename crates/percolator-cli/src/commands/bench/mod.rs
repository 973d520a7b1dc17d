//! `percolator bench`: measures the pipeline next to this machine's limits.
//!
//! ```text
//! job         what is measured                         data, synthetic, photos, dice: synthetic data
//! rounds      limits and pipeline in turn              measure (by the package percolator-measure)
//! figures     medians, shares, which limit binds       figures
//! output      for people, for programs                 report, JSON
//! comparison  of two results                           compare
//! ```

mod compare;
mod data;
mod dice;
mod figures;
mod job;
mod measure;
mod photos;
mod report;
mod synthetic;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::Resettable;
use clap::{Args, Id};

use crate::args::durations::seconds;
use crate::args::input::InputArgs;
use crate::args::source::WHAT_TO_READ;
use crate::commands::convert::BackendArg;
use crate::terminal::out::{Out, json_line};
use crate::terminal::progress::{counted, watched};
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
    mut_arg("paths", |arg| arg.required_unless_present(Resettable::<Id>::Reset)))]
pub(crate) struct Bench {
    #[command(flatten)]
    input: InputArgs,
    /// Synthetic data to make and keep, with their own transform; several are measured one after the other.
    #[arg(long, value_enum, value_delimiter = ',', conflicts_with_all = WHAT_TO_READ,
        conflicts_with_all = ["level", "stage", "layer", "top", "root", "allow_log_gaps", "database",
        "fields", "image"])]
    synthetic: Vec<Kind>,
    /// The database format of synthetic data [default: lmdb].
    #[arg(long = "as", value_enum, value_name = "FORMAT", conflicts_with_all = WHAT_TO_READ)]
    format: Option<BackendArg>,
    /// Make this many records [default: depends on the kind].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=RECORDS_MAX),
        conflicts_with_all = WHAT_TO_READ)]
    records: Option<u32>,
    /// Where synthetic data are kept [default: percolator, in the user's cache folder].
    #[arg(long, value_name = "DIR", conflicts_with_all = WHAT_TO_READ)]
    cache: Option<PathBuf>,
    /// How long a round measures the pipeline, in seconds, or with a unit (500ms); it warms up for at most as
    /// long before.
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
    #[arg(short, long)]
    quiet: bool,
    /// Compare two results: each is a file with what bench --json printed, once or several times. The exit
    /// code is 1 if NEW delivers fewer records per second, beyond the noise of the rounds.
    #[arg(long, value_names = ["OLD", "NEW"], num_args = 2)]
    compare: Vec<PathBuf>,
}

impl Bench {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if let [old, new] = &*self.compare {
            return self.compare([old, new]);
        }
        let mut out = Out::new(std::io::stdout().lock());
        for job in self.jobs()? {
            let message = counted(format!("{}: run", job.name));
            let figures = watched(self.quiet, message, |progress, _| self.measure(&job, progress))?;
            match self.json {
                true => writeln!(out, "{}", json_line("percolator.bench/1", &figures)?)?,
                false => write!(out, "{}", report::of(&figures))?,
            }
            out.flush()?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}
