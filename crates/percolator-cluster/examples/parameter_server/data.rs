//! Real digits, fed by Percolator: to learn from, and to test with. They are part of the program, so no
//! process needs a file.

use std::sync::Arc;

use percolator::source::{FnSource, SourceError};
use percolator::{Device, Epochs, Feed, FeedBuilder, LastBatch, Phase, Shuffle, Transform};
use prost::Message as _;

use crate::classifier::{CLASSES, Classifier};
use crate::digits::Digits;

/// How many pixels a digit has.
pub(crate) const PIXELS: usize = 64;
/// How many numbers the model has: a weight for each pixel and a bias, class by class.
pub(crate) const WEIGHTS: usize = CLASSES * (PIXELS + 1);

/// The digits to learn from, in a new order in each epoch, the same for all trainers of a job.
pub(crate) fn train(epochs: u64) -> anyhow::Result<FeedBuilder> {
    let feed = feed("digits to learn from", &Digits::train()?)?.batch_size(32).shuffle(Shuffle::Global);
    Ok(feed.last_batch(LastBatch::Keep).epochs(epochs).seed(1))
}

/// The share of the digits to test with, from 0 to 1, that these weights read as what they are.
pub(crate) fn accuracy(weights: Vec<f32>) -> anyhow::Result<f64> {
    let (mut correct, mut records) = (0, 0);
    let model = Classifier::with_weights(PIXELS, weights);
    let feed = feed("digits to test with", &Digits::test()?)?
        .phase(Phase::Test)
        .batch_size(60)
        .epochs(Epochs::OnePass);
    for step in feed.build()?.steps() {
        for batch in step? {
            correct += u32::try_from(model.count_correct(batch.pixels()?, batch.labels()?))?;
            records += u32::try_from(batch.len())?;
        }
    }
    Ok(f64::from(correct) / f64::from(records.max(1)))
}

fn feed(name: &str, digits: &Digits) -> anyhow::Result<FeedBuilder> {
    let records: Arc<Vec<_>> = Arc::new(digits.records()?.map(|(_, datum)| datum.encode_to_vec()).collect());
    let source = FnSource::new(name, digits.len() as u64, move |position, value| {
        let found = usize::try_from(position).ok().and_then(|position| records.get(position));
        let missing = || SourceError::other("digits", format!("there is no record {position}"));
        value.extend_from_slice(found.ok_or_else(missing)?);
        Ok(())
    });
    let transform = Transform::new().scale(1.0 / 256.0);
    Ok(Feed::builder().source(source).transform(transform).devices([Device::host(0)]).threads(1))
}
