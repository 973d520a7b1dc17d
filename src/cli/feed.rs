//! `percolator feed`: the pipeline against consumers that only count.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use percolator::{Device, Dtype, FeedBuilder, Lane, Layout, MeanImage, Phase, Transform, limits};

#[derive(Debug, Args)]
pub(crate) struct Feed {
    /// The Caffe LMDB to read: its folder, or its data.mdb.
    #[arg(long, value_name = "PATH")]
    lmdb: PathBuf,
    /// Devices to feed, one lane each: host, or host:N.
    #[arg(long, value_delimiter = ',', default_value = "host:0")]
    devices: Vec<String>,
    /// Records in a batch of one device.
    #[arg(long, default_value_t = 64)]
    batch_size: usize,
    /// Worker threads [default: one a core].
    #[arg(long)]
    threads: Option<usize>,
    /// Batches in a lane's ring.
    #[arg(long, default_value_t = 4)]
    prefetch: usize,
    /// Training (random crops) or testing (central ones).
    #[arg(long, value_enum, default_value_t)]
    phase: PhaseArg,
    /// Cut a square of this many pixels out of every image; 0 is no crop.
    #[arg(long, default_value_t = 0)]
    crop: u32,
    /// Mirror every second image, at random.
    #[arg(long)]
    mirror: bool,
    /// Subtract these values: one for all channels, or one a channel.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true, conflicts_with = "mean_file")]
    mean_value: Vec<f32>,
    /// Subtract the image in this binaryproto.
    #[arg(long, value_name = "FILE")]
    mean_file: Option<PathBuf>,
    /// Multiply by this.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    scale: f32,
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
    #[arg(long, allow_negative_numbers = true)]
    seconds: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum PhaseArg {
    #[default]
    Train,
    Test,
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
        let mut feed = self.builder()?.build()?;
        let mut out = std::io::stdout().lock();
        match feed.records() {
            Some(records) => write!(out, "{}: {records} records, ", self.lmdb.display())?,
            None => write!(out, "{}: ", self.lmdb.display())?,
        }
        writeln!(out, "the first {}; batches of {}", feed.input_shape(), feed.batch_shape())?;
        writeln!(out, "{}", feed.memory_budget())?;
        let start = Instant::now();
        let enough = Enough { batches: self.batches, until: self.until(start)? };
        let counted: anyhow::Result<Vec<()>> = std::thread::scope(|scope| {
            let consumers: Vec<_> =
                feed.lanes().into_iter().map(|lane| scope.spawn(|| enough.count(lane))).collect();
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
        Ok(())
    }

    fn builder(&self) -> anyhow::Result<FeedBuilder> {
        let devices = self.devices.iter().map(|name| name.parse()).collect::<Result<Vec<Device>, _>>()?;
        let mut transform = Transform::new()
            .crop(self.crop)
            .mirror(self.mirror)
            .mean_values(&*self.mean_value)
            .scale(self.scale);
        if let Some(path) = &self.mean_file {
            transform = transform.mean_image(MeanImage::open(path)?);
        }
        let mut builder = percolator::Feed::builder()
            .lmdb(&self.lmdb)
            .devices(devices)
            .batch_size(self.batch_size)
            .prefetch(self.prefetch)
            .phase(match self.phase {
                PhaseArg::Train => Phase::Train,
                PhaseArg::Test => Phase::Test,
            })
            .transform(transform)
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
        if let Some(threads) = self.threads {
            builder = builder.threads(threads);
        }
        Ok(if self.once { builder.once() } else { builder })
    }

    fn until(&self, start: Instant) -> anyhow::Result<Option<Instant>> {
        let seconds = match self.seconds {
            None if self.once || self.batches.is_some() => return Ok(None),
            seconds => seconds.unwrap_or(5.0),
        };
        let time = Duration::try_from_secs_f64(seconds).context("--seconds")?;
        Ok(start.checked_add(time))
    }
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
