//! Examples for tests: written on the spot, and fed from memory.

use percolator::example::{ExampleFields, ExampleWriter};
use percolator::source::FnSource;
use percolator::{Batch, Epochs, Feed, FeedError};

pub(crate) fn source(records: Vec<Vec<u8>>) -> FnSource {
    FnSource::new("examples", records.len() as u64, move |position, to| {
        to.extend(&records[position as usize]);
        Ok(())
    })
}

/// Everything in one batch.
pub(crate) fn batch_of(records: Vec<Vec<u8>>, fields: &str) -> Result<Batch, FeedError> {
    let count = records.len();
    let feed = Feed::builder().source(source(records)).batch_size(count).threads(2).epochs(Epochs::OnePass);
    feed.example(fields.parse::<ExampleFields>().unwrap()).build()?.into_iter().next().unwrap()
}

pub(crate) fn written(write: impl FnOnce(&mut ExampleWriter) -> &mut ExampleWriter) -> Vec<u8> {
    let mut writer = ExampleWriter::new();
    write(&mut writer);
    writer.to_bytes()
}
