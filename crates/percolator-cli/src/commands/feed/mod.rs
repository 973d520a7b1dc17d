//! `percolator feed`: runs the pipeline with consumers that only count batches.

mod observe;
mod report;

use std::fs::{File, TryLockError};
use std::io::Write;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use clap::{Args, ValueEnum};
use percolator::BadRecords;
use percolator::feed::{ConfigError, Receipts};
use percolator::order::{BatchSize, JobWorker, World};
use percolator::receipt::DataDigest;
use percolator::source::IndexPlace;
use percolator::{Epochs, FeedBuilder, FeedError, Receipt, Snapshot};
use percolator_distribute::Process;
use percolator_files::{shown, whole_file};
use percolator_observe::metrics::Endpoint;

use crate::args::durations::{seconds, step};
use crate::args::input::InputArgs;
use crate::args::job::JobArgs;
use crate::args::source::Source;
use crate::args::with;
use crate::output::{self, FileKind, Output};
use crate::run::consumer::Consumer;
use crate::run::stop::{Enough, Signals};
use crate::terminal::out::{stdout, tell};
use observe::{ObserveArgs, Observers};

#[derive(Debug, Args)]
pub(crate) struct Feed {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    job: JobArgs,
    #[command(flatten)]
    observe: ObserveArgs,
    /// Records per step, of all replicas of the job together; replaces the batch size of each device.
    #[arg(long, value_name = "RECORDS", conflicts_with = "batch_size")]
    global_batch_size: Option<usize>,
    /// Simulate training: each consumer takes this many milliseconds, or a time with a unit (5ms), per
    /// batch (on a GPU, with a kernel).
    #[arg(long, value_name = "MS", value_parser = step)]
    step_ms: Option<Duration>,
    /// Feed every record once, then stop.
    #[arg(long, conflicts_with_all = ["batches", "seconds", "epochs"])]
    once: bool,
    /// Feed this many epochs, then stop; 0 sets no limit. Whatever divides or orders the data set (--shuffle,
    /// --mix, --policy, --assignment, --last-batch, and being one of several workers) needs it.
    #[arg(long, value_name = "N")]
    epochs: Option<u64>,
    /// Where to keep the index of a database that is shuffled or shared: beside, memory, or a folder
    /// [default: beside].
    #[arg(long, value_name = "PLACE", value_parser = index_place)]
    index: Option<IndexPlace>,
    /// The number of workers in the job. This process is one of them, and its devices are its replicas.
    #[arg(long, value_name = "W", requires = "worker", conflicts_with = "job_from_environment")]
    workers: Option<usize>,
    /// The number of this worker, from 0.
    #[arg(long, value_name = "N", requires = "workers")]
    worker: Option<usize>,
    /// Take --workers and --worker from the launcher: torchrun, SLURM, Open MPI, or a Kubernetes Indexed Job.
    #[arg(long)]
    job_from_environment: bool,
    /// With --job-from-environment: the number of processes, if the launcher does not give it.
    #[arg(long, value_name = "N", requires = "job_from_environment")]
    processes: Option<usize>,
    /// Resume the run of this snapshot. If that run was killed while it wrote its receipt, the receipt is
    /// written now.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Write a snapshot to resume from when the run stops: at its end, or on SIGINT or SIGTERM.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// Write a receipt of what was delivered, for verify-run, when the run stops. Each rank needs its own
    /// file; a resumed run adds to the existing one, which no other run may do meanwhile.
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,
    /// Also keep the hashes of the records' bytes in the receipt, for verify-run --digest.
    #[arg(long, requires = "receipt")]
    receipt_contents: bool,
    /// What to do with a record that cannot be used: end the run, let its batch go without it, or put the
    /// batch's next good record in its place.
    #[arg(long, value_enum, value_name = "ACTION", default_value_t)]
    bad_records: BadActionArg,
    /// End the run if more than N records of an epoch are bad, in a lane.
    #[arg(long, value_name = "N", requires = "bad_records")]
    bad_at_most: Option<u64>,
    /// End the run if more than this part of an epoch's records are bad, in a lane: from 0 to 1 [default:
    /// 0.01].
    #[arg(long, value_name = "SHARE", requires = "bad_records")]
    bad_rate: Option<f64>,
    /// Name the bad records in this TFRecord file, with their bytes, for verify --quarantine.
    #[arg(long, value_name = "FILE", requires = "bad_records")]
    quarantine: Option<PathBuf>,
    /// The digest of the data set, from percolator digest. A run cannot resume with another one.
    #[arg(long, value_name = "FILE")]
    digest: Option<PathBuf>,
    /// Stop after this many batches per lane.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    batches: Option<u64>,
    /// Stop after this many seconds, or a time with a unit (2m), without those for which --watch has paused
    /// the run [default: 5; no limit with --watch, --once, --batches, or --epochs of 1 or more].
    #[arg(long, value_parser = seconds)]
    seconds: Option<Duration>,
    /// Print what the run was as one JSON object, at its end.
    #[arg(long, conflicts_with = "watch")]
    json: bool,
}

/// What to do with a record that cannot be used.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum BadActionArg {
    #[default]
    Fail,
    Skip,
    Replace,
}

impl Feed {
    pub(crate) fn run(&self, verbose: u8) -> anyhow::Result<ExitCode> {
        self.observe.check_terminal().context("--watch")?;
        let observers = self.observe.begin(verbose)?;
        self.run_watched(observers)
    }

    fn run_watched(&self, observers: Observers<'_>) -> anyhow::Result<ExitCode> {
        let source = self.input.found(self.json)?;
        // Files that appear at their paths while the feed is built belong to others.
        let outputs = self.check_places(&source)?;
        // Before the snapshot is read: a run that holds the receipt will write a later one.
        let before = self.hold_receipt()?;
        let described = self.input.describe(&source)?;
        let mut feed = self
            .with_options(&source, described.feed)?
            .build()
            .map_err(|error| self.in_words_of_the_command(error))?;
        if self.snapshot.is_some() {
            // Fails now, rather than after the run, if no snapshot can be taken of this feed.
            feed.snapshot()?;
        }
        // The receipt of a run that is resumed may only just have been completed: that is another file.
        drop(before);
        let (earlier, _held) = self.earlier_receipt(&feed)?.unzip();
        let outputs = outputs.map_or_else(|| self.outputs(), Ok)?;
        // Until here nothing would be saved, so a signal ends the process at once.
        let signals = if self.observe.watch { Signals::catch_beside_view() } else { Signals::catch() }?;
        let mut out = report::text(self.json);
        write!(out, "{}: ", shown::path(&described.origin))?;
        report::say_what_runs(&feed, self.input.example.is_given(), &mut out)?;
        let endpoint = self.publish(&feed, &mut out)?;
        out.flush()?;
        let enough = Enough::new(self.batches, self.until(Instant::now()), &signals);
        let consumers = feed.take_lanes()?.into_iter().map(|lane| Consumer::new(lane, self.step_ms));
        let (counted, viewed) = self.observe.consume(&feed, consumers.collect::<Result<_, _>>()?, &enough);
        let stats = feed.stats();
        drop(endpoint);
        // Even if the run ended with an error: what was delivered was delivered.
        let taken_down = output::both(take_down(&feed, earlier, &outputs), viewed);
        let traced = observers.finish();
        writeln!(out, "\n{stats}")?;
        let bad: u64 = stats.lanes.iter().map(|lane| lane.bad_records).sum();
        if bad > 0 {
            writeln!(out, "batches went without {}", shown::count(bad, "bad record"))?;
        }
        let trace = traced.as_ref().ok().copied().flatten();
        if let Some(trace) = trace {
            writeln!(out, "the trace has {} slices, of {} batches", trace.slices, trace.batches)?;
        }
        let (waited, errors): (Vec<_>, Vec<_>) = counted.into_iter().partition(Result::is_ok);
        let gpu_steps: Vec<_> = waited.into_iter().flatten().flatten().collect();
        // The first error is kept.
        let ended = errors.into_iter().next().map_or(Ok(()), |error| error.map(drop));
        for waited in &gpu_steps {
            writeln!(out, "{waited}")?;
        }
        let ended = match (ended, output::both(taken_down, traced.map(drop))) {
            (Err(error), Err(also)) => {
                Err(error.context(format!("{also:#}; and the feed ended with an error")))
            }
            (ended, taken_down) => ended.and(taken_down),
        };
        let stopped_by = signals.caught().map(|(name, _)| name);
        let report =
            report::json(&described.origin, &feed, trace, &gpu_steps, ended.as_ref().err(), stopped_by);
        if enough.is_hung() {
            // Its threads would be waited for, and the process ends without them.
            std::mem::forget(feed);
        }
        if self.json {
            stdout().json("percolator.feed/1", &report)?;
        }
        ended?;
        out.finish()?;
        Ok(match signals.caught() {
            None => ExitCode::SUCCESS,
            Some((name, code)) => {
                tell(&format!("stopped by {name}"));
                ExitCode::from(code)
            }
        })
    }

    /// Publishes the feed's metrics, if requested, and says where.
    fn publish(&self, feed: &percolator::Feed, out: &mut impl Write) -> anyhow::Result<Option<Endpoint>> {
        let endpoint = self.observe.publish(feed)?;
        if let Some(endpoint) = &endpoint {
            let said = format!("metrics: http://{}/metrics", endpoint.address());
            match self.json {
                true => tell(&said),
                false => writeln!(out, "{said}")?,
            }
        }
        Ok(endpoint)
    }

    /// Checks now that the files of the run's end can be written: the end may be days away. Returns the
    /// outputs of a run that resumes none.
    fn check_places(&self, source: &Source) -> anyhow::Result<Option<[Option<Output<'_>>; 2]>> {
        let places = [
            (self.snapshot.as_deref(), "--snapshot"),
            (self.receipt.as_deref(), "--receipt"),
            (self.quarantine.as_deref(), "--quarantine"),
            (self.observe.trace.as_deref(), "--trace"),
        ];
        for (path, option) in places {
            if let Some(path) = path {
                source.check_output(path, self.input.state.root()).context(option)?;
            }
        }
        let mut places = places.into_iter().filter_map(|(path, option)| Some((path?, option)));
        while let Some((path, option)) = places.next() {
            // A path to which nothing can be written is named below.
            let is_same = |(other, _): &(&Path, _)| whole_file::is_same_place(path, other).unwrap_or(false);
            if let Some((at, other)) = places.clone().find(is_same) {
                bail!("{option} and {other} are both {}: give each a file of its own", shown::path(at));
            }
        }
        for (path, kind) in [(&self.snapshot, FileKind::Snapshot), (&self.receipt, FileKind::Receipt)] {
            if let Some(path) = path {
                output::check(path, kind)?;
            }
        }
        self.resume.is_none().then(|| self.outputs()).transpose()
    }

    /// Locks the receipt that a run adds to if it resumes, for as long as the result lives: another run that
    /// resumes as the same rank would add the same records.
    fn hold_receipt(&self) -> anyhow::Result<Option<File>> {
        let (Some(path), Some(_)) = (&self.receipt, &self.resume) else { return Ok(None) };
        let named = || shown::path(path).to_string();
        // An empty file, as `mktemp` creates it, is not a receipt.
        while std::fs::metadata(path).is_ok_and(|found| found.len() > 0) {
            let held = File::open(path).with_context(named)?;
            // Without locks of the file system, this is unknown.
            if matches!(held.try_lock(), Err(TryLockError::WouldBlock)) {
                bail!(
                    "{}: another run that has resumed adds to this receipt, and delivers the same records: \
                     wait for its end, or stop it",
                    named()
                );
            }
            // A run that has just ended may have put another file in its place.
            let (locked, there) = (held.metadata()?, std::fs::metadata(path).with_context(named)?);
            if (locked.dev(), locked.ino()) == (there.dev(), there.ino()) {
                return Ok(Some(held));
            }
        }
        Ok(None)
    }

    /// The receipt of what was delivered before, if the run adds to one, and the file, which is locked.
    fn earlier_receipt(&self, feed: &percolator::Feed) -> anyhow::Result<Option<(Receipt, File)>> {
        let (Some(path), Some(receipt)) = (&self.receipt, feed.receipt()) else { return Ok(None) };
        let Some(held) = self.hold_receipt()? else { return Ok(None) };
        let refused =
            |error| anyhow!("{}; give this run a --receipt of its own", shown::with_sources(&error));
        let mut earlier = Receipt::load(path).map_err(refused)?;
        // Fails before the run, rather than after it.
        earlier.merge(&receipt).map_err(refused)?;
        Ok(Some((earlier, held)))
    }

    /// The snapshot and the receipt that are to be written, if requested.
    fn outputs(&self) -> anyhow::Result<[Option<Output<'_>>; 2]> {
        let places = [(&self.snapshot, FileKind::Snapshot), (&self.receipt, FileKind::Receipt)];
        let [snapshot, receipt] =
            places.map(|(path, kind)| path.as_deref().map(|path| Output::of_run(path, kind)).transpose());
        Ok([snapshot?, receipt?])
    }

    fn with_options(&self, source: &Source, feed: FeedBuilder) -> anyhow::Result<FeedBuilder> {
        let feed = match self.global_batch_size {
            Some(records) => feed.batch_size(BatchSize::Global(records as u64)),
            None => self.input.with_batch_size(source, feed),
        };
        let mut feed = with(self.job.of_feed(feed), self.epochs, FeedBuilder::epochs);
        if let (Some(workers), Some(worker)) = (self.workers, self.worker) {
            // Saturating: no machine feeds that many.
            let replicas = workers.saturating_mul(self.input.pipeline.devices.len());
            feed = feed.share(JobWorker { world: World::new(workers, replicas)?, number: worker });
        }
        if self.job_from_environment {
            let Some(process) = Process::from_environment(None, self.processes)? else {
                bail!("no launcher says which process this is: give --workers and --worker");
            };
            let (world, worker) = process.worker(self.input.pipeline.devices.len())?;
            feed = feed.share(JobWorker { world, number: worker });
        }
        feed = with(feed, self.index.clone(), FeedBuilder::index);
        if let Some(path) = &self.resume {
            feed = feed.resume(&Snapshot::recover(path)?);
        }
        feed = feed.receipts(match self.receipt_contents {
            true => Receipts::Contents,
            false => self.receipt.is_some().into(),
        });
        feed = feed.bad_records(self.bad_records());
        if let Some(path) = &self.digest {
            feed = feed.with_digest(&DataDigest::load(path)?);
        }
        Ok(if self.once { feed.epochs(Epochs::OnePass) } else { feed })
    }

    fn bad_records(&self) -> BadRecords {
        let mut policy = match self.bad_records {
            BadActionArg::Fail => BadRecords::fail(),
            BadActionArg::Skip => BadRecords::skip(),
            BadActionArg::Replace => BadRecords::replace(),
        };
        policy.at_most = self.bad_at_most;
        policy.quarantine.clone_from(&self.quarantine);
        match self.bad_rate {
            Some(share) => policy.at_most_rate(share),
            None => policy,
        }
    }

    /// Replaces an error of the library by one that names the command's options.
    fn in_words_of_the_command(&self, error: FeedError) -> anyhow::Error {
        match (error, &self.receipt) {
            (FeedError::Config(ConfigError::ReceiptsOfRoundRobin), Some(_)) => anyhow!(
                "--receipt needs a plan, and this feed has none: give --epochs N, or, for the same \
                 round-robin order, --epochs 0 --assignment caffe"
            ),
            (error, _) => error.into(),
        }
    }

    fn until(&self, start: Instant) -> Option<Instant> {
        match self.seconds {
            None if self.observe.watch => None,
            None if self.once || self.batches.is_some() || self.epochs.is_some_and(|epochs| epochs > 0) => {
                None
            }
            seconds => start.checked_add(seconds.unwrap_or(Duration::from_secs(5))),
        }
    }
}

/// Writes the snapshot and the receipt, if requested. The receipt includes what was delivered before. What
/// has come to one of their paths and is not to be replaced stays, and is an error.
fn take_down(
    feed: &percolator::Feed,
    earlier: Option<Receipt>,
    outputs: &[Option<Output<'_>>; 2],
) -> anyhow::Result<()> {
    let mut receipt = feed.receipt();
    if let (Some(receipt), Some(earlier)) = (&mut receipt, &earlier) {
        receipt.merge(earlier)?;
    }
    let places = outputs.each_ref().map(|output| output.as_ref().map(Output::place));
    let [snapshot_path, receipt_path] = places.each_ref().map(|place| Some(&place.as_ref()?.path));
    let save = || {
        match (snapshot_path, receipt_path.zip(receipt)) {
            (Some(path), Some((receipt_path, receipt))) => {
                feed.snapshot()?.save_with_receipt(path, &receipt, receipt_path)?;
            }
            (Some(path), None) => feed.snapshot()?.save(path)?,
            (None, Some((path, receipt))) => receipt.save(path)?,
            (None, None) => {}
        }
        Ok(())
    };
    let saved = save();
    output::ended(saved, places.into_iter().flatten())
}

#[expect(clippy::unnecessary_wraps, reason = "an option's parser may fail")]
fn index_place(text: &str) -> Result<IndexPlace, String> {
    Ok(match text {
        "beside" => IndexPlace::Beside,
        "memory" => IndexPlace::Memory,
        folder => IndexPlace::Folder(folder.into()),
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        feed: Feed,
    }

    #[test]
    fn a_run_that_nobody_limits_ends_after_5_seconds_unless_somebody_watches_it() {
        let start = Instant::now();
        let until = |more: &[&str]| {
            let args = [&["feed", "db"], more].concat();
            let until = Command::try_parse_from(args).unwrap().feed.until(start);
            until.map(|until| until.duration_since(start).as_secs())
        };
        assert_eq!(until(&[]), Some(5));
        assert_eq!(until(&["--epochs", "0"]), Some(5));
        for unlimited in [&["--watch"][..], &["--once"], &["--batches", "3"], &["--epochs", "1"]] {
            assert_eq!(until(unlimited), None, "{unlimited:?}");
        }
        assert_eq!(until(&["--watch", "--seconds", "7"]), Some(7));
        let both = Command::try_parse_from(["feed", "db", "--json", "--watch"]).unwrap_err();
        assert!(both.to_string().contains("cannot be used with"), "{both}");
    }
}
