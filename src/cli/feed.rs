//! `percolator feed`: the pipeline against consumers that only count.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use clap::{ArgGroup, Args};
use percolator::{ConfigError, FeedBuilder, FeedError, IndexPlace, Process, Snapshot, World, limits};
#[cfg(feature = "cuda-driver")]
use percolator::{CudaDevice, Stats};

use super::args::{SourceArgs, StateArgs, TransformArgs, seconds};
use super::consumer::{Consumer, Enough};
use super::job::JobArgs;
use super::pipeline::{DtypeArg, PipelineArgs};

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
    /// Go on from where the run was that this snapshot is of.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// Write where the run is when it stops, to go on from.
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// When it ends, write to this file what was delivered, for verify-run. Each rank has a file of its own.
    #[arg(long, value_name = "FILE")]
    receipt: Option<PathBuf>,
    /// Stop after this many batches a lane.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    batches: Option<u64>,
    /// Stop after this many seconds [default: 5, unless --once, --epochs or --batches].
    #[arg(long, value_parser = seconds)]
    seconds: Option<Duration>,
}

impl Feed {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let described = self.source.describe(&self.state, &self.transform)?;
        let mut feed = self
            .with_options(described.feed)?
            .build()
            .map_err(|error| self.in_words_of_the_command(error))?;
        if self.snapshot.is_some() {
            // What none can be taken of is said now, and not when it has run.
            feed.snapshot()?;
        }
        let mut out = std::io::stdout().lock();
        match feed.records() {
            Some(records) => write!(out, "{}: {records} records, ", described.origin.display())?,
            None => write!(out, "{}: ", described.origin.display())?,
        }
        writeln!(out, "the first {}; batches of {}", feed.input_shape(), feed.batch_shape())?;
        writeln!(out, "{}", feed.extent())?;
        writeln!(out, "{}", feed.memory_budget())?;
        let start = Instant::now();
        let enough = Enough { batches: self.batches, until: self.until(start) };
        let consumers = feed.lanes().into_iter().map(|lane| Consumer::new(lane, self.step_ms));
        let consumers: Vec<Consumer> = consumers.collect::<Result<_, _>>()?;
        let counted: Vec<anyhow::Result<Option<String>>> = std::thread::scope(|scope| {
            let consumers: Vec<_> =
                consumers.into_iter().map(|consumer| scope.spawn(|| consumer.consume(&enough))).collect();
            consumers
                .into_iter()
                .map(|consumer| match consumer.join() {
                    Ok(counted) => counted,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
                .collect()
        });
        let stats = feed.stats();
        writeln!(out, "\n{stats}")?;
        let mut ended = Ok(());
        for waited in counted {
            match waited {
                Ok(Some(waited)) => writeln!(out, "{waited}")?,
                Ok(None) => {}
                Err(error) => ended = ended.and(Err(error)),
            }
        }
        // Also where it ends with an error: what was delivered was delivered.
        let taken_down = [self.save_snapshot(&feed), self.save_receipt(&feed)];
        taken_down.into_iter().fold(ended, anyhow::Result::and)?;
        let copy = limits::copy_bytes_per_second(1, Duration::from_millis(200));
        let written: u64 = stats.lanes.iter().map(|lane| lane.host_bytes).sum();
        writeln!(
            out,
            "written at {:.2} of the rate at which one thread copies memory here ({:.1} GB/s)",
            stats.per_second(written) / copy,
            copy / 1e9
        )?;
        #[cfg(feature = "cuda-driver")]
        Self::say_copy_shares(&stats, &mut out)?;
        Ok(())
    }

    fn save_snapshot(&self, feed: &percolator::Feed) -> anyhow::Result<()> {
        match &self.snapshot {
            Some(path) => Ok(feed.snapshot()?.save(path)?),
            None => Ok(()),
        }
    }

    fn save_receipt(&self, feed: &percolator::Feed) -> anyhow::Result<()> {
        match (&self.receipt, feed.receipt()) {
            (Some(path), Some(receipt)) => Ok(receipt.save(path)?),
            _ => Ok(()),
        }
    }

    /// What share each GPU reaches of the rate at which it takes page-locked batches of this size.
    #[cfg(feature = "cuda-driver")]
    fn say_copy_shares(stats: &Stats, out: &mut impl std::io::Write) -> anyhow::Result<()> {
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
            feed = feed.resume(&Snapshot::load(path)?);
        }
        feed = feed.receipts(self.receipt.is_some());
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
    let millis: f64 = text.parse().map_err(|_| "not a number of milliseconds")?;
    Duration::try_from_secs_f64(millis / 1e3)
        .map_err(|_| "not a time: allowed are 0 milliseconds or more".to_owned())
}
