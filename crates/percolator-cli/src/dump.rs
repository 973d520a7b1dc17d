//! `percolator dump`: writes the batches that a net would see as NumPy arrays.

use std::io::{ErrorKind, Write as _};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::{ArgGroup, Args, ValueEnum};
use percolator::batch::BatchShape;
use percolator::transform::CaffeEra;
use percolator::{Batch, FeedBuilder, Layout, Phase, shown, whole_file};

use super::args::{Described, SourceArgs, StateArgs, TransformArgs};
use super::npy::NpyWriter;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("source").args(["net", "lmdb", "leveldb", "tfrecord"]).required(true))]
pub(crate) struct Dump {
    #[command(flatten)]
    source: SourceArgs,
    #[command(flatten)]
    state: StateArgs,
    #[command(flatten)]
    transform: TransformArgs,
    /// The number of batches to write, joined along the first axis.
    #[arg(long, default_value = "1")]
    batches: NonZeroUsize,
    /// Records per batch [default: the net's, otherwise 1].
    #[arg(long)]
    batch_size: Option<usize>,
    /// The seed of crops, mirroring and shuffles: the argument of Caffe::set_random_seed [default: 0].
    #[arg(long)]
    seed: Option<u64>,
    /// The random sequence [default: caffe for a net with a --seed, otherwise indexed].
    #[arg(long, value_enum)]
    random: Option<RandomArg>,
    /// The solver's rank, which gets the records R, R + N, R + 2N, ... in TRAIN, and all records in TEST. A
    /// layer's own phase, if it has one, decides. The seed is used as given; Caffe's own solver adds its rank
    /// to it.
    #[arg(long, value_name = "R", requires = "of")]
    rank: Option<usize>,
    /// The number of solvers.
    #[arg(long, value_name = "N", requires = "rank")]
    of: Option<usize>,
    /// Worker threads [default: one per core]. The arrays do not depend on it.
    #[arg(long)]
    threads: Option<usize>,
    /// The folder for data.npy (float32; N,C,H,W) and label.npy (float32; N).
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RandomArg {
    /// Caffe's own sequence.
    Caffe,
    /// The sequence of Caffe from May 2015 to November 2016, which read through a DataReader.
    #[value(name = "caffe-2015")]
    Caffe2015,
    /// Percolator's own: a function of the seed and the record's position.
    Indexed,
}

impl Dump {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        for name in ["data.npy", "label.npy"] {
            remove_stale(&self.out.join(name))?;
        }
        // Checked before the data are read, which may take long.
        self.check_place()?;
        let Described { feed, origin, has_labels, .. } =
            self.source.describe(&self.state, &self.transform)?;
        let mut feed = self.with_options(feed)?.build()?;
        std::fs::create_dir_all(&self.out).with_context(|| self.no_folder())?;
        let mut lane = feed.take_lanes()?.remove(0);
        // Shapes are those of the rank's own first record, like Caffe's blobs: the database's first may be
        // another rank's.
        let first = lane.next().context("there is no batch")??;
        let shape = first.shape();
        let records = shape.records.saturating_mul(self.batches.get());
        let whole = BatchShape { records, ..shape };
        let mut data = NpyWriter::create(&self.out.join("data.npy"), &whole.dims())?;
        let mut label = NpyWriter::create(&self.out.join("label.npy"), &[records])?;
        let (mut channels, mut labels) = (vec![Moments::default(); shape.image.channels], Moments::default());
        let batches = std::iter::once(Ok(first)).chain(lane).take(self.batches.get());
        for (number, batch) in batches.enumerate() {
            let batch = batch?;
            if batch.shape() != shape {
                let (found, first) = (batch.shape(), shape);
                bail!(
                    "{}: batch {number} is {found} and the first {first}, and arrays of different shapes \
                     cannot be joined: crop, or dump --batches {number}",
                    origin.display()
                );
            }
            let pixels = batch.pixels::<f32>()?;
            data.write(pixels)?;
            label.write(batch.labels_f32())?;
            labels.add(batch.labels_f32());
            count(&batch, pixels, &mut channels);
        }
        // Both files are complete before anything is printed, so a closed output does not lose them.
        let label = if has_labels { Some(label.finish()?) } else { None };
        let data = data.finish()?;
        let mut said = format!("{}: float32 {:?}\n", data.display(), whole.dims());
        for (number, moments) in channels.iter().enumerate() {
            said += &format!("  channel {number}: {moments}\n");
        }
        said += &match label {
            Some(path) => format!("{}: float32 [{records}]\n  {labels}\n", path.display()),
            None => "no label.npy: the layer has no second top\n".to_owned(),
        };
        std::io::stdout().write_all(said.as_bytes()).context("cannot write to the standard output")
    }

    fn no_folder(&self) -> String {
        format!("cannot make the folder {}", shown::path(&self.out))
    }

    /// Checks that the folder of the arrays can be created. It is not created yet, because the run may fail.
    fn check_place(&self) -> anyhow::Result<()> {
        let folders = self.out.ancestors().take_while(|folder| !folder.as_os_str().is_empty());
        if let Some(missing) = folders.take_while(|folder| folder.symlink_metadata().is_err()).last() {
            return whole_file::check(missing).with_context(|| self.no_folder());
        }
        // If the folder exists, this only checks it.
        std::fs::create_dir_all(&self.out).with_context(|| self.no_folder())?;
        let data = self.out.join("data.npy");
        whole_file::check(&data).with_context(|| format!("cannot create {}", shown::path(&data)))
    }

    fn with_options(&self, mut feed: FeedBuilder) -> anyhow::Result<FeedBuilder> {
        if let Some(records) = self.batch_size {
            feed = feed.batch_size(records);
        }
        if let Some(threads) = self.threads {
            feed = feed.threads(threads);
        }
        if let (Some(rank), Some(of)) = (self.rank, self.of) {
            ensure!(rank < of, "--rank {rank}: of {of} ranks, the last is {}", of.saturating_sub(1));
            // In TEST, Caffe gives every record to one solver. A net's layer may have its own phase, and its
            // feed uses that.
            if self.source.is_net() || self.state.phase() == Phase::Train {
                feed = feed.ranks(rank, of);
            }
        }
        let seed = self.seed.unwrap_or(0);
        let caffe_seed =
            || u32::try_from(seed).ok().with_context(|| format!("--seed {seed}: Caffe's seeds have 32 bits"));
        let random = self.random.unwrap_or(match self.seed {
            Some(_) if self.source.is_net() => RandomArg::Caffe,
            _ => RandomArg::Indexed,
        });
        Ok(match random {
            RandomArg::Caffe => feed.caffe_random(caffe_seed()?, CaffeEra::Today),
            RandomArg::Caffe2015 => feed.caffe_random(caffe_seed()?, CaffeEra::DataReader),
            RandomArg::Indexed => feed.seed(seed),
        })
    }
}

/// Removes an array of an earlier run, so that it cannot pass for this run's if this run fails.
fn remove_stale(path: &Path) -> anyhow::Result<()> {
    match whole_file::remove(path) {
        // If the parent is not a folder, there is no array either.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(()),
        done => done.with_context(|| format!("cannot replace {}", path.display())),
    }
}

/// Adds a batch's pixels to each channel's statistics.
fn count(batch: &Batch, pixels: &[f32], channels: &mut [Moments]) {
    let shape = batch.shape();
    debug_assert_eq!(shape.layout, Layout::Nchw);
    let plane = shape.image.height * shape.image.width;
    for record in pixels.chunks_exact(shape.record_elements()) {
        for (channel, plane) in channels.iter_mut().zip(record.chunks_exact(plane)) {
            channel.add(plane);
        }
    }
}

/// Summary statistics of many numbers.
#[derive(Clone, Copy, Debug)]
struct Moments {
    min: f32,
    max: f32,
    sum: f64,
    count: u64,
}

impl Default for Moments {
    fn default() -> Self {
        Moments { min: f32::INFINITY, max: f32::NEG_INFINITY, sum: 0.0, count: 0 }
    }
}

impl Moments {
    fn add(&mut self, numbers: &[f32]) {
        for &number in numbers {
            self.min = self.min.min(number);
            self.max = self.max.max(number);
            self.sum += f64::from(number);
        }
        self.count += numbers.len() as u64;
    }
}

impl std::fmt::Display for Moments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Moments { min, max, sum, count } = self;
        write!(f, "min {min}, max {max}, mean {:.6}", sum / *count as f64)
    }
}
