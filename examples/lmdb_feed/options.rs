//! The command line: a subset of the options of `percolator feed`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Parser;
use percolator::{Device, FeedBuilder, Transform};

/// Feeds a Caffe LMDB to a training loop. Without a PATH it trains a classifier on the digits that ship with
/// Percolator.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// The Caffe LMDB to feed: its folder, or its data.mdb [default: an LMDB of digits, made for the run].
    pub(crate) path: Option<PathBuf>,
    /// Devices to feed, one lane each: host, or host:N.
    #[arg(long, value_delimiter = ',', default_value = "host:0,host:1")]
    devices: Vec<String>,
    /// Records in a batch of one device.
    #[arg(long, default_value_t = 32)]
    pub(crate) batch_size: usize,
    /// Worker threads [default: one per core, of which only as many are active as needed].
    #[arg(long)]
    threads: Option<usize>,
    /// Batches in a lane's ring [default: 4, and up to 8 if those are too few].
    #[arg(long)]
    prefetch: Option<usize>,
    /// Crop every image to a square of this many pixels; 0 is no crop.
    #[arg(long, default_value_t = 0)]
    crop: u32,
    /// Mirror images at random, half of them on average.
    #[arg(long)]
    mirror: bool,
    /// Subtract these values: one for all channels, or one per channel.
    #[arg(long, value_delimiter = ',', allow_hyphen_values = true)]
    mean_value: Vec<f32>,
    /// Multiply by this; 1/256 scales bytes to values between 0 and 1.
    #[arg(long, default_value_t = 1.0 / 256.0, allow_negative_numbers = true)]
    scale: f32,
    /// The seed of random crops and mirroring.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Train on the digits this many times.
    #[arg(long, default_value_t = 100, conflicts_with = "path")]
    epochs: usize,
    /// Feed every record of PATH once, and stop.
    #[arg(long, requires = "path", conflicts_with_all = ["batches", "seconds"])]
    pub(crate) once: bool,
    /// Stop after this many batches of PATH per lane.
    #[arg(long, requires = "path")]
    pub(crate) batches: Option<usize>,
    /// Stop after this many seconds [default: 5, unless --once or --batches].
    #[arg(long, requires = "path", allow_negative_numbers = true)]
    seconds: Option<f64>,
}

impl Options {
    pub(crate) fn devices(&self) -> anyhow::Result<Vec<Device>> {
        self.devices.iter().map(|name| Ok(name.parse()?)).collect()
    }

    /// The feed with the configured threads and batches; it chooses what is not configured.
    pub(crate) fn extent(&self, mut feed: FeedBuilder) -> FeedBuilder {
        if let Some(threads) = self.threads {
            feed = feed.threads(threads);
        }
        if let Some(batches) = self.prefetch {
            feed = feed.prefetch(batches);
        }
        feed
    }

    pub(crate) fn transform(&self) -> Transform {
        Transform::new().crop(self.crop).mirror(self.mirror).mean_values(&*self.mean_value).scale(self.scale)
    }

    /// The steps needed to train on this many records as often as configured. The feed refuses counts that
    /// are too large.
    pub(crate) fn steps(&self, records: usize) -> usize {
        let step_records = self.batch_size.saturating_mul(self.devices.len());
        records.saturating_mul(self.epochs).div_ceil(step_records.max(1))
    }

    /// When a feed that starts now has run long enough, if a time limit ends it.
    pub(crate) fn deadline(&self) -> anyhow::Result<Option<Instant>> {
        let seconds = match self.seconds {
            None if self.once || self.batches.is_some() => return Ok(None),
            seconds => seconds.unwrap_or(5.0),
        };
        let time = Duration::try_from_secs_f64(seconds).context("--seconds")?;
        Ok(Instant::now().checked_add(time))
    }
}
