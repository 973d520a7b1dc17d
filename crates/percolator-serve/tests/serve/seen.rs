//! What a consumer sees of batches, here and from a server, so that they can be compared.

use std::fmt;
use std::path::Path;
use std::thread;

use percolator::feed::FeedSpec;
use percolator::record::StepEnd;
use percolator::{Batch, FeedBuilder, FeedError};
use percolator_serve::RemoteBatch;
use serde_json::Value;

/// A batch, with all that its consumer sees.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) step: Option<StepEnd>,
    pub(crate) rows: usize,
    /// The epoch and the position of each record. Of a batch that came from a server, they are known if the
    /// columns were asked for.
    pub(crate) records: Vec<(u64, u64)>,
    /// The bytes of each array, with its name.
    pub(crate) arrays: Vec<(String, Vec<u8>)>,
}

impl fmt::Debug for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrays: Vec<_> = self.arrays.iter().map(|(name, bytes)| (name, bytes.len())).collect();
        f.debug_tuple("Seen").field(&self.step).field(&self.records).field(&arrays).finish()
    }
}

impl Seen {
    pub(crate) fn local(batch: &Batch) -> Self {
        Seen {
            step: batch.step(),
            rows: batch.rows(),
            records: batch.records().iter().map(|record| (record.epoch, record.index)).collect(),
            arrays: batch.arrays().map(|array| (array.name.to_owned(), array.bytes.to_vec())).collect(),
        }
    }

    pub(crate) fn remote(batch: &RemoteBatch) -> Self {
        let schema = batch.record_batch().schema();
        let names = schema.fields().iter().map(|field| field.name());
        let arrays = names
            .filter(|name| !name.starts_with("percolator."))
            .map(|name| (name.clone(), batch.bytes(name).unwrap().to_vec()))
            .collect();
        let epochs = batch.epochs().unwrap_or_default().iter().copied();
        let positions = batch.positions().unwrap_or_default().iter().copied();
        let records: Vec<_> = epochs.zip(positions).take(batch.records()).collect();
        assert!(records.is_empty() || records.len() == batch.records(), "{records:?}");
        Seen { step: batch.step(), rows: batch.rows(), records, arrays }
    }

    /// The same, without what only columns say that are asked for.
    pub(crate) fn without_records(self) -> Self {
        Seen { records: Vec::new(), ..self }
    }
}

/// A feed that is described as JSON.
pub(crate) fn spec(feed: Value) -> FeedSpec {
    serde_json::from_value(feed).unwrap()
}

/// The first batches of each lane of a feed whose paths start from `root`.
pub(crate) fn lanes(root: &Path, feed: &FeedSpec, most: usize) -> Vec<Vec<Seen>> {
    let mut feed = build(root, feed);
    let lanes = feed.take_lanes().unwrap();
    // Lanes wait for each other.
    thread::scope(|scope| {
        let each = lanes.into_iter().map(|lane| {
            let seen = move || lane.take(most).map(|batch| Seen::local(&batch.unwrap())).collect::<Vec<_>>();
            scope.spawn(seen)
        });
        let each: Vec<_> = each.collect();
        each.into_iter().map(|lane| lane.join().unwrap()).collect()
    })
}

/// All batches of a feed of one lane.
pub(crate) fn only_lane(root: &Path, feed: &FeedSpec) -> Vec<Seen> {
    let mut lanes = lanes(root, feed, usize::MAX);
    assert_eq!(lanes.len(), 1, "a feed of one lane");
    lanes.remove(0)
}

/// The batches of a feed of one lane that ends with an error.
pub(crate) fn failing(root: &Path, feed: &FeedSpec) -> (Vec<Seen>, FeedError) {
    let mut lane = build(root, feed).take_lanes().unwrap().remove(0);
    let mut seen = Vec::new();
    loop {
        match lane.next() {
            Some(Ok(batch)) => seen.push(Seen::local(&batch)),
            Some(Err(error)) => return (seen, error),
            None => panic!("it ends after {} batches, without an error", seen.len()),
        }
    }
}

fn build(root: &Path, feed: &FeedSpec) -> percolator::Feed {
    let mut feed = feed.clone();
    root.clone_into(&mut feed.root);
    FeedBuilder::from(feed).build().unwrap()
}
