//! `percolator feed`: the pipeline against consumers that only count.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use clap::{ArgGroup, Args};
#[cfg(feature = "cuda-driver")]
use percolator::device::CudaDevice;
use percolator::feed::ConfigError;
use percolator::order::{Process, World};
use percolator::receipt::DataDigest;
use percolator::source::IndexPlace;
use percolator::{FeedBuilder, FeedError, Receipt, Snapshot, Stats, limits, shown, whole_file};

use super::args::{SourceArgs, StateArgs, TransformArgs, seconds};
use super::consumer::{self, Consumer};
use super::job::JobArgs;
use super::out::Out;
use super::pipeline::{DtypeArg, PipelineArgs};
use super::stop::{Enough, Signals};

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("source").args(["net", "lmdb", "leveldb"]).required(true))]
pub(crate) struct Feed {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    transform: TransformArgs,
    #[command(flatten)]
    pipeline: PipelineArgs,
    #[command(flatten)]
    job: JobArgs,
    /// Records in a step, divided among the devices, in place of a batch size of each.
    #[arg(long, value_name = "RECORDS", conflicts_with = "batch_size")]
    global_batch_size: Option<usize>,
    /// What stands for a training step: each consumer takes so many milliseconds for a batch; on a GPU, a kernel does.
    #[arg(long, value_name = "MS", value_parser = millis)]
    step_ms: Option<Duration>,
    /// Feed every record once, and stop.
    #[arg(long, conflicts_with_all = ["batches", "seconds", "epochs"])]
    once: bool,
    /// Feed so many epochs, and stop; 0 has no end of its own.
    #[arg(long, value_name = "N")]
    epochs: Option<u64>,
    /// Where the index lies of a database that is shuffled or shared: beside, memory, or a folder [default: beside].
    #[arg(long, value_name = "PLACE", value_parser = index_place)]
    index: Option<IndexPlace>,
    /// Be one worker of so many, whose replicas are the devices.
    #[arg(long, value_name = "W", requires = "worker", conflicts_with = "job_from_environment")]
    workers: Option<usize>,
    /// Which worker this is, from 0.
    #[arg(long, value_name = "N", requires = "workers")]
    worker: Option<usize>,
    /// Be the worker that torchrun, SLURM, Open MPI or a Kubernetes Indexed Job says this process is.
    #[arg(long)]
    job_from_environment: bool,
    /// With --job-from-environment: how many processes there are, where the launcher does not say it.
    #[arg(long, value_name = "N", requires = "job_from_environment")]
    processes: Option<usize>,
    /// Go on from where the run was that this snapshot is of. If that run was killed while it wrote its
    /// receipt, the receipt is written now.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Write where the run is when it stops, to go on from: at its end, or on SIGINT or SIGTERM.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// When it stops, write to this file what was delivered, for verify-run. Each rank has a file of its own;
    /// a run that goes on adds to the one that is there.
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,
    /// Have the receipt say of each record's bytes, too, what was delivered, for verify-run --digest.
    #[arg(long, requires = "receipt")]
    receipt_contents: bool,
    /// The digest of the data set, as percolator digest wrote it: a run does not go on with another.
    #[arg(long, value_name = "FILE")]
    digest: Option<PathBuf>,
    /// Stop after this many batches a lane.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    batches: Option<u64>,
    /// Stop after this many seconds [default: 5, unless --once, --epochs or --batches].
    #[arg(long, value_parser = seconds)]
    seconds: Option<Duration>,
}

impl Feed {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        self.check_places()?;
        let described = self.source.describe(&self.state, &self.transform)?;
        let mut feed = self
            .with_options(described.feed)?
            .build()
            .map_err(|error| self.in_words_of_the_command(error))?;
        if self.snapshot.is_some() {
            // What none can be taken of is said now, and not when it has run.
            feed.snapshot()?;
        }
        let earlier = self.earlier_receipt(&feed)?;
        // Before, there is nothing to take down: a signal ends the process at once.
        let signals = Signals::catch()?;
        let mut out = Out::new(std::io::stdout().lock());
        write!(out, "{}: ", shown::path(&described.origin))?;
        if let Some(records) = feed.records() {
            write!(out, "{records} records, ")?;
        }
        if let Some(first) = feed.input_shape() {
            write!(out, "the first {first}; ")?;
        }
        writeln!(out, "batches of {}", feed.batch_shape())?;
        writeln!(out, "{}", feed.sizing())?;
        writeln!(out, "{}", feed.memory_budget())?;
        out.flush()?;
        let enough = Enough::new(self.batches, self.until(Instant::now()), &signals);
        let consumers = feed.lanes().into_iter().map(|lane| Consumer::new(lane, self.step_ms));
        let counted = consumer::consume(consumers.collect::<Result<_, _>>()?, &enough);
        let stats = feed.stats();
        // Also where it ended with an error: what was delivered was delivered.
        let mut ended = Ok(());
        let taken_down = self.take_down(&feed, earlier);
        writeln!(out, "\n{stats}")?;
        for waited in counted {
            match waited {
                Ok(Some(waited)) => writeln!(out, "{waited}")?,
                Ok(None) => {}
                // The first stays.
                Err(error) if ended.is_ok() => ended = Err(error),
                Err(_) => {}
            }
        }
        match (ended, taken_down) {
            (Err(error), Err(also)) => {
                return Err(error.context(format!("{also:#}; and the feed ended with an error")));
            }
            (ended, taken_down) => ended.and(taken_down)?,
        }
        if signals.caught().is_none() {
            let budget = feed.memory_budget().total_bytes();
            // What is measured now fits into what the feed had.
            drop(feed);
            say_written_share(&stats, budget, &mut out)?;
            #[cfg(feature = "cuda-driver")]
            Self::say_copy_shares(&stats, &mut out)?;
        }
        out.finish()?;
        Ok(match signals.caught() {
            None => ExitCode::SUCCESS,
            Some((name, code)) => {
                // Whether anybody reads it or not.
                let _ = writeln!(std::io::stderr(), "percolator: stopped by {name}");
                ExitCode::from(code)
            }
        })
    }

    /// That what is to be written when the run ends can be: minutes or days may go by until then.
    fn check_places(&self) -> anyhow::Result<()> {
        for (path, what) in [(&self.snapshot, "snapshot"), (&self.receipt, "receipt")] {
            if let Some(path) = path {
                whole_file::check(path)
                    .with_context(|| format!("{}: cannot write the {what}", shown::path(path)))?;
            }
        }
        if let (Some(snapshot), Some(receipt)) = (&self.snapshot, &self.receipt)
            && whole_file::is_same_place(snapshot, receipt)?
        {
            bail!("--snapshot and --receipt are both {}: give each a file of its own", shown::path(receipt));
        }
        Ok(())
    }

    /// What the sessions before were given, where the run goes on and its receipt is to go into their file.
    fn earlier_receipt(&self, feed: &percolator::Feed) -> anyhow::Result<Option<Receipt>> {
        let (Some(path), Some(_), Some(receipt)) = (&self.receipt, &self.resume, feed.receipt()) else {
            return Ok(None);
        };
        // One that was only created, as `mktemp` does, says nothing.
        if std::fs::metadata(path).map_or(0, |found| found.len()) == 0 {
            return Ok(None);
        }
        let refused = |error| anyhow!("{error}; give this session a --receipt of its own");
        let mut earlier = Receipt::load(path).map_err(refused)?;
        // Said before the run, and not when it has been given something.
        earlier.merge(&receipt).map_err(refused)?;
        Ok(Some(earlier))
    }

    /// Writes the snapshot and the receipt, so far as they were asked for; the receipt of the sessions
    /// before, too.
    fn take_down(&self, feed: &percolator::Feed, earlier: Option<Receipt>) -> anyhow::Result<()> {
        let mut receipt = feed.receipt();
        if let (Some(receipt), Some(earlier)) = (&mut receipt, &earlier) {
            receipt.merge(earlier)?;
        }
        let receipt = self.receipt.as_ref().zip(receipt);
        match (&self.snapshot, receipt) {
            (Some(path), Some((receipt_path, receipt))) => {
                Ok(feed.snapshot()?.save_with_receipt(path, &receipt, receipt_path)?)
            }
            (Some(path), None) => Ok(feed.snapshot()?.save(path)?),
            (None, Some((path, receipt))) => Ok(receipt.save(path)?),
            (None, None) => Ok(()),
        }
    }

    /// What share each GPU reaches of the rate at which it takes page-locked batches of this size.
    #[cfg(feature = "cuda-driver")]
    fn say_copy_shares(stats: &Stats, out: &mut impl Write) -> anyhow::Result<()> {
        const ROUNDS: usize = 20;

        let is_fed = |gpu: &CudaDevice| stats.lanes.iter().any(|lane| lane.device == gpu.device());
        if !stats.lanes.iter().any(|lane| lane.device.starts_with("cuda:")) {
            return Ok(());
        }
        for gpu in CudaDevice::all()?.into_iter().filter(is_fed) {
            let lanes = stats.lanes.iter().filter(|lane| lane.device == gpu.device());
            let (bytes, batches) = lanes
                .fold((0, 0), |(bytes, batches), lane| (bytes + lane.host_bytes, batches + lane.batches));
            let Some(batch_bytes) = bytes.checked_div(batches) else { continue };
            let batch_bytes = usize::try_from(batch_bytes)?;
            let bare = gpu.copy_rate(batch_bytes, ROUNDS)?;
            writeln!(
                out,
                "{} was copied to at {:.2} of the rate at which it takes pieces of this size, {batch_bytes} bytes, from \
                 page-locked memory ({:.1} GB/s)",
                gpu.device(),
                stats.per_second(bytes) / bare,
                bare / 1e9
            )?;
        }
        Ok(())
    }

    fn with_options(&self, feed: FeedBuilder) -> anyhow::Result<FeedBuilder> {
        let mut feed = self.pipeline.with_options(feed, DtypeArg::F32)?;
        match (self.pipeline.batch_size, self.global_batch_size) {
            (None, Some(records)) => feed = feed.global_batch_size(records),
            (None, None) if self.source.is_net() => {}
            (records, _) => feed = feed.batch_size(records.unwrap_or(64)),
        }
        feed = self.job.of_feed(feed);
        if let Some(epochs) = self.epochs {
            feed = feed.epochs(epochs);
        }
        if let (Some(workers), Some(worker)) = (self.workers, self.worker) {
            // Too many to count is more than any machine feeds.
            let replicas = workers.saturating_mul(self.pipeline.devices.len());
            feed = feed.worker(World::new(workers, replicas)?, worker);
        }
        if self.job_from_environment {
            let Some(process) = Process::from_environment(None, self.processes)? else {
                bail!("no launcher says which process this is: say --workers and --worker");
            };
            let (world, worker) = process.worker(self.pipeline.devices.len())?;
            feed = feed.worker(world, worker);
        }
        if let Some(place) = &self.index {
            feed = feed.index(place.clone());
        }
        if let Some(path) = &self.resume {
            feed = feed.resume(&Snapshot::recover(path)?);
        }
        feed = feed.receipts(self.receipt.is_some()).receipt_contents(self.receipt_contents);
        if let Some(path) = &self.digest {
            feed = feed.with_digest(&DataDigest::load(path)?);
        }
        Ok(if self.once { feed.once() } else { feed })
    }

    /// What can be said by an option, instead of the library's words.
    fn in_words_of_the_command(&self, error: FeedError) -> anyhow::Error {
        match (error, &self.receipt) {
            (FeedError::Config(ConfigError::ReceiptsOfRing), Some(_)) => anyhow!(
                "--receipt is held against a plan, and this feed goes round and round by none: say --epochs N, or, to go \
                 round as it does, --epochs 0 --assignment caffe"
            ),
            (error, _) => error.into(),
        }
    }

    fn until(&self, start: Instant) -> Option<Instant> {
        match self.seconds {
            None if self.once || self.batches.is_some() || self.epochs.is_some_and(|epochs| epochs > 0) => {
                None
            }
            seconds => start.checked_add(seconds.unwrap_or(Duration::from_secs(5))),
        }
    }
}

#[expect(clippy::unnecessary_wraps, reason = "an option's parser may fail")]
fn index_place(text: &str) -> Result<IndexPlace, String> {
    Ok(match text {
        "beside" => IndexPlace::Beside,
        "memory" => IndexPlace::Memory,
        folder => IndexPlace::Folder(folder.into()),
    })
}

fn millis(text: &str) -> Result<Duration, String> {
    /// Longer than any step of training takes.
    const STEP_MAX: Duration = Duration::from_secs(60 * 60);

    let millis: f64 = text.parse().map_err(|_| "not a number of milliseconds")?;
    let length = Duration::try_from_secs_f64(millis / 1e3).ok().filter(|&length| length <= STEP_MAX);
    length.ok_or_else(|| "not a step's time: allowed are 0 to 3600000 milliseconds".to_owned())
}

/// What share the feed reached of the rate at which one thread copies memory, in no more of it than the feed
/// had.
fn say_written_share(stats: &Stats, budget: usize, out: &mut impl Write) -> anyhow::Result<()> {
    /// More than any cache holds.
    const COPY_BYTES_MAX: usize = 64 << 20;
    const TIME: Duration = Duration::from_millis(200);

    let bytes = (budget / 2).clamp(1, COPY_BYTES_MAX);
    let copy = limits::copy_bytes_per_second_of(bytes, TIME);
    if copy <= 0.0 {
        writeln!(
            out,
            "at what share of this machine's rate it wrote is left out: {} bytes to measure that with are not to be had",
            2 * bytes
        )?;
        return Ok(());
    }
    let written: u64 = stats.lanes.iter().map(|lane| lane.host_bytes).sum();
    writeln!(
        out,
        "written at {:.2} of the rate at which one thread copies memory here, {:.1} MB at a time ({:.1} GB/s)",
        stats.per_second(written) / copy,
        bytes as f64 / 1e6,
        copy / 1e9
    )?;
    Ok(())
}
