//! Real digits, fed by Percolator: to learn from, and to test with.

use std::sync::Arc;

use anyhow::ensure;
use percolator::source::{FnSource, SourceError};
use percolator::{Device, Feed, FeedBuilder, LastBatch, Phase, Shuffle, Transform};
use prost::Message as _;

use crate::files::Digits;
use crate::model::{self, SIDE};

/// Each image gets a border this wide, of which a random crop leaves a part: so digits are learned at nine
/// places, and not by heart.
const BORDER: usize = 1;

/// What a trainer's feed depends on. All trainers of a job have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Training {
    pub(crate) batch_size: usize,
    pub(crate) epochs: u64,
    pub(crate) seed: u64,
}

/// The digits to learn from, in a new order in each epoch.
pub(crate) fn train_feed(training: Training) -> anyhow::Result<FeedBuilder> {
    let Training { batch_size, epochs, seed } = training;
    let feed = feed("digits to learn from", &Digits::train()?)?;
    Ok(feed
        .batch_size(batch_size)
        .shuffle(Shuffle::Global)
        .last_batch(LastBatch::Keep)
        .epochs(epochs)
        .seed(seed))
}

/// The digits to test with.
pub(crate) struct Test(FeedBuilder);

impl Test {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let feed = feed("digits to test with", &Digits::test()?)?;
        Ok(Test(feed.phase(Phase::Test).batch_size(60).once()))
    }

    /// The share of the digits, from 0 to 1, that these weights read as what they are.
    pub(crate) fn accuracy(&self, weights: &[f32]) -> anyhow::Result<f64> {
        let (mut correct, mut records) = (0, 0);
        for step in self.0.clone().build()?.steps() {
            for batch in step? {
                correct += model::count_correct(weights, batch.pixels()?, batch.labels()?);
                records += batch.len();
            }
        }
        ensure!(records > 0, "there are no digits to test with");
        #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
        Ok(correct as f64 / records as f64)
    }
}

/// A feed of digits with a border, as Caffe would store them. They are part of the program, so no process
/// needs a file.
fn feed(name: &str, digits: &Digits) -> anyhow::Result<FeedBuilder> {
    let mut records = Vec::with_capacity(digits.len());
    for (_, mut datum) in digits.records()? {
        let side = SIDE + 2 * BORDER;
        let pixels = datum.data.take().unwrap_or_default();
        ensure!(pixels.len() == SIDE * SIDE, "a digit has {} pixels, not {}", pixels.len(), SIDE * SIDE);
        let mut bordered = vec![0; side * side];
        for (row, found) in bordered.chunks_exact_mut(side).skip(BORDER).zip(pixels.chunks_exact(SIDE)) {
            row[BORDER..BORDER + SIDE].copy_from_slice(found);
        }
        (datum.height, datum.width) = (Some(i32::try_from(side)?), Some(i32::try_from(side)?));
        datum.data = Some(bordered);
        records.push(datum.encode_to_vec());
    }
    let (records, count) = (Arc::new(records), digits.len() as u64);
    let source = FnSource::new(name, count, move |position, value| {
        let found = usize::try_from(position).ok().and_then(|position| records.get(position));
        let missing = || SourceError::other("digits", format!("there is no record {position}"));
        value.extend_from_slice(found.ok_or_else(missing)?);
        Ok(())
    });
    let crop = u32::try_from(SIDE)?;
    Ok(Feed::builder()
        .source(source)
        .transform(Transform::new().crop(crop).scale(1.0 / 256.0))
        .devices([Device::host(0)])
        .threads(1))
}
