//! `percolator feed`: the pipeline against consumers that only count.

use std::io::Write as _;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
#[cfg(feature = "cuda-driver")]
use percolator::CudaDevice;
use percolator::{Device, Dtype, FeedBuilder, Lane, Layout, limits};

use super::args::{SourceArgs, StateArgs, TransformArgs};

#[derive(Debug, Args)]
pub(crate) struct Feed {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    transform: TransformArgs,
    /// Devices to feed, one lane each: host, host:N, cuda:N.
    #[arg(long, value_delimiter = ',', default_value = "host:0")]
    devices: Vec<String>,
    /// Records in a batch of one device [default: the net's, or else 64].
    #[arg(long)]
    batch_size: Option<usize>,
    /// Worker threads [default: one a core].
    #[arg(long)]
    threads: Option<usize>,
    /// Batches in a lane's ring [default: the net's, or else 4].
    #[arg(long)]
    prefetch: Option<usize>,
    /// The type of a batch's elements.
    #[arg(long, value_enum, default_value_t)]
    dtype: DtypeArg,
    /// The order of a batch's axes.
    #[arg(long, value_enum, default_value_t)]
    layout: LayoutArg,
    /// What crops and mirroring are drawn from.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Feed every record once, and stop.
    #[arg(long, conflicts_with_all = ["batches", "seconds"])]
    once: bool,
    /// Stop after this many batches a lane.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    batches: Option<u64>,
    /// Stop after this many seconds [default: 5, unless --once or --batches].
    #[arg(long, value_parser = seconds)]
    seconds: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum DtypeArg {
    #[default]
    F32,
    U8,
    F16,
    Bf16,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum LayoutArg {
    #[default]
    Nchw,
    Nhwc,
}

impl Feed {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let described = self.source.describe(&self.state, &self.transform)?;
        let mut feed = self.with_options(described.feed)?.build()?;
        let mut out = std::io::stdout().lock();
        match feed.records() {
            Some(records) => write!(out, "{}: {records} records, ", described.origin.display())?,
            None => write!(out, "{}: ", described.origin.display())?,
        }
        writeln!(out, "the first {}; batches of {}", feed.input_shape(), feed.batch_shape())?;
        writeln!(out, "{}", feed.memory_budget())?;
        let start = Instant::now();
        let enough = Enough { batches: self.batches, until: self.until(start) };
        let lanes = feed.lanes();
        #[cfg(feature = "cuda-driver")]
        let devices: Vec<String> = lanes.iter().map(|lane| lane.device().to_owned()).collect();
        let counted: anyhow::Result<Vec<()>> = std::thread::scope(|scope| {
            let consumers: Vec<_> =
                lanes.into_iter().map(|lane| scope.spawn(|| enough.count(lane))).collect();
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
        counted?;
        let copy = limits::memcpy_bytes_per_second(5);
        writeln!(
            out,
            "written at {:.2} of the rate at which one thread copies memory here ({:.1} GB/s)",
            stats.pixel_bytes_per_second() / copy,
            copy / 1e9
        )?;
        #[cfg(feature = "cuda-driver")]
        Self::say_copy_share(&devices, stats.pixel_bytes_per_second(), feed.batch_shape().bytes(), &mut out)?;
        Ok(())
    }

    /// What share of the rate is reached at which the GPUs take page-locked batches of this size.
    #[cfg(feature = "cuda-driver")]
    fn say_copy_share(
        devices: &[String],
        rate: f64,
        batch_bytes: usize,
        out: &mut impl std::io::Write,
    ) -> anyhow::Result<()> {
        const ROUNDS: usize = 20;

        if !devices.iter().any(|name| name.starts_with("cuda:")) {
            return Ok(());
        }
        let is_fed = |gpu: &CudaDevice| devices.contains(&gpu.device());
        let fed: Vec<CudaDevice> = CudaDevice::all()?.into_iter().filter(is_fed).collect();
        let bare: f64 = fed.iter().map(|gpu| gpu.copy_rate(batch_bytes, ROUNDS)).sum::<Result<_, _>>()?;
        writeln!(
            out,
            "copied at {:.2} of the rate at which page-locked memory is copied to {} GPU(s) in pieces of this size ({:.1} GB/s)",
            rate / bare,
            fed.len(),
            bare / 1e9
        )?;
        Ok(())
    }

    fn with_options(&self, feed: FeedBuilder) -> anyhow::Result<FeedBuilder> {
        let devices = self.devices.iter().map(|name| name.parse()).collect::<Result<Vec<Device>, _>>()?;
        let mut feed = feed
            .devices(devices)
            .dtype(match self.dtype {
                DtypeArg::F32 => Dtype::F32,
                DtypeArg::U8 => Dtype::U8,
                DtypeArg::F16 => Dtype::F16,
                DtypeArg::Bf16 => Dtype::Bf16,
            })
            .layout(match self.layout {
                LayoutArg::Nchw => Layout::Nchw,
                LayoutArg::Nhwc => Layout::Nhwc,
            })
            .seed(self.seed);
        match self.batch_size {
            None if self.source.is_net() => {}
            records => feed = feed.batch_size(records.unwrap_or(64)),
        }
        if let Some(batches) = self.prefetch {
            feed = feed.prefetch(batches);
        }
        if let Some(threads) = self.threads {
            feed = feed.threads(threads);
        }
        Ok(if self.once { feed.once() } else { feed })
    }

    fn until(&self, start: Instant) -> Option<Instant> {
        match self.seconds {
            None if self.once || self.batches.is_some() => None,
            seconds => start.checked_add(seconds.unwrap_or(Duration::from_secs(5))),
        }
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds")?;
    Duration::try_from_secs_f64(seconds).map_err(|_| "not a time: allowed are 0 seconds or more".to_owned())
}

/// When a consumer has seen enough.
struct Enough {
    batches: Option<u64>,
    until: Option<Instant>,
}

impl Enough {
    fn count(&self, lane: Lane) -> anyhow::Result<()> {
        for (batches, batch) in (1..).zip(lane) {
            drop(batch?);
            let is_late = self.until.is_some_and(|until| Instant::now() >= until);
            if is_late || self.batches.is_some_and(|enough| batches >= enough) {
                break;
            }
        }
        Ok(())
    }
}
