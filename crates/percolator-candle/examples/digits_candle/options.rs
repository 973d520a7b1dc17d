//! The command line.

use std::path::Path;

use anyhow::{Context as _, ensure};
use clap::Parser;
use percolator::{Feed, FeedBuilder, Shuffle, Transform};

/// Trains a convolutional net on handwritten digits with candle, stops another training in the middle of an
/// epoch, resumes it from its files, and checks that the losses are the same bit for bit.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// Train on all digits this many times.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(2..))]
    pub(crate) epochs: u64,
    /// Records in a batch.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=512))]
    batch_size: u64,
    /// The seed of the weights and of the order of the records.
    #[arg(long, default_value_t = 3)]
    pub(crate) seed: u64,
    /// The length of a step.
    #[arg(long, default_value_t = 0.002)]
    pub(crate) learning_rate: f64,
}

impl Options {
    /// Describes a feed of this database: bytes become floats from 0 to 1, labels what candle indexes with.
    pub(crate) fn feed(&self, lmdb: &Path) -> FeedBuilder {
        let batch_size = usize::try_from(self.batch_size).expect("a small number");
        let to_floats = Transform::new().scale(1.0 / 16.0);
        Feed::builder().lmdb(lmdb).batch_size(batch_size).transform(to_floats).labels_i64(true)
    }

    /// Returns how many steps there are before the middle of an epoch in the middle of the training.
    pub(crate) fn middle(&self, train_lmdb: &Path) -> anyhow::Result<usize> {
        let feed = self.training_feed(train_lmdb).build()?;
        let per_epoch = feed.plan().context("the feed has no epochs")?.steps(0)?;
        ensure!(per_epoch > 1, "an epoch of one step has no middle: choose a smaller --batch-size");
        Ok(usize::try_from(self.epochs / 2 * per_epoch + per_epoch / 2)?)
    }

    /// Describes the feed to train with: all records in each epoch, every time in another order.
    pub(crate) fn training_feed(&self, lmdb: &Path) -> FeedBuilder {
        self.feed(lmdb).epochs(self.epochs).shuffle(Shuffle::Global).seed(self.seed)
    }
}
