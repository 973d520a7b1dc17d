//! A training run: the net, its optimizer and its feed, which are saved and loaded together.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use percolator::{Epochs, Feed, FeedBuilder, Phase, Shuffle, Snapshot, Transform};
use percolator_tch::TchFeed as _;
use tch::{Device, Kind};

use crate::adam::Adam;
use crate::net::Net;
use crate::{Options, say};

const DEVICE: Device = Device::Cpu;

pub(crate) struct Run {
    net: Net,
    optimizer: Adam,
    feed: Feed,
}

impl Run {
    pub(crate) fn new(lmdb: &Path, options: Options) -> anyhow::Result<Self> {
        Run::of(feed_of(lmdb, options), options)
    }

    fn of(feed: FeedBuilder, options: Options) -> anyhow::Result<Self> {
        tch::manual_seed(options.seed.cast_signed());
        let net = Net::new(DEVICE);
        let optimizer = Adam::new(&net.variables);
        Ok(Run { net, optimizer, feed: feed.build()? })
    }

    /// Trains for this many steps, or to the end, and returns the loss of each.
    pub(crate) fn train(&mut self, steps_max: u64) -> anyhow::Result<Vec<f32>> {
        let mut losses = Vec::new();
        let mut epoch = Epoch::begin();
        let steps = usize::try_from(steps_max).unwrap_or(usize::MAX);
        for step in self.feed.tensors(DEVICE)?.take(steps) {
            let tensors = step?;
            let images = tensors.get("data")?;
            let labels = tensors.get_as("label_i64", Kind::Int64)?;

            let loss = self.net.loss(images, labels);
            self.optimizer.step(&loss);

            losses.push(f32::try_from(&loss)?);
            epoch.add(losses[losses.len() - 1], tensors.len());
            if let Some(end) = tensors.step().filter(|end| end.is_last) {
                epoch.report(end.epoch + 1)?;
                epoch = Epoch::begin();
            }
        }
        Ok(losses)
    }

    /// Counts the test digits that the net reads right, in one exact pass: every record once. Returns how
    /// many there are, too.
    pub(crate) fn test(&self, lmdb: &Path) -> anyhow::Result<(i64, usize)> {
        let (mut right, mut of) = (0, 0);
        let mut feed = images(lmdb).phase(Phase::Test).batch_size(64).epochs(Epochs::OnePass).build()?;
        for step in feed.tensors(DEVICE)? {
            let tensors = step?;
            right += self.net.count_right(tensors.get("data")?, tensors.get("label_i64")?);
            of += tensors.len();
        }
        Ok((right, of))
    }

    pub(crate) fn steps_of_an_epoch(&self) -> anyhow::Result<u64> {
        Ok(self.feed.plan().context("the feed has no epochs")?.steps(0)?)
    }

    /// Writes the run to a new folder.
    pub(crate) fn save(&self, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir(folder)?;
        let [net, optimizer, feed] = files(folder);
        self.net.variables.save(net)?;
        self.optimizer.save(&optimizer)?;
        self.feed.snapshot()?.save(feed)?;
        Ok(())
    }

    /// Goes on where a run was saved.
    pub(crate) fn load(folder: &Path, lmdb: &Path, options: Options) -> anyhow::Result<Self> {
        let [net, optimizer, feed] = files(folder);
        let mut run = Run::of(feed_of(lmdb, options).resume(&Snapshot::load(feed)?), options)?;
        run.net.variables.load(net)?;
        run.optimizer.load(&optimizer)?;
        Ok(run)
    }
}

fn files(folder: &Path) -> [PathBuf; 3] {
    ["net.ot", "optimizer.ot", "feed.snapshot"].map(|name| folder.join(name))
}

/// Images of f32 between 0 and 1, with labels as torch's losses take them.
fn images(lmdb: &Path) -> FeedBuilder {
    Feed::builder().lmdb(lmdb).transform(Transform::new().scale(1.0 / 16.0)).labels_i64(true)
}

fn feed_of(lmdb: &Path, options: Options) -> FeedBuilder {
    images(lmdb)
        .batch_size(usize::try_from(options.batch_size).expect("a small number"))
        .shuffle(Shuffle::Global)
        .epochs(options.epochs)
        .seed(options.seed)
}

/// What is reported of an epoch, or of the part of it that this run has trained on.
struct Epoch {
    start: Instant,
    loss: f32,
    steps: f32,
    records: usize,
}

impl Epoch {
    fn begin() -> Self {
        Epoch { start: Instant::now(), loss: 0.0, steps: 0.0, records: 0 }
    }

    fn add(&mut self, loss: f32, records: usize) {
        self.loss += loss;
        self.steps += 1.0;
        self.records += records;
    }

    fn report(&self, number: u64) -> anyhow::Result<()> {
        #[expect(clippy::cast_precision_loss, reason = "there are a few thousand records")]
        let rate = self.records as f64 / self.start.elapsed().as_secs_f64();
        say(format_args!("epoch {number:2}: loss {:.4}, {rate:.0} records/s", self.loss / self.steps))
    }
}
