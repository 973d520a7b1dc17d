//! Bad records of which the header is good: they decide neither their batch's shape nor the feed's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use percolator::batch::{Extents, Field};
use percolator::decoder::{Decoded, WorkerSetup};
use percolator::feed::ConfigError;
use percolator::proto::Datum;
use percolator::source::Record;
use percolator::{BadRecords, DecodeFailure, Dtype, Feed, FeedBuilder, FeedError, RecordDecoder, Row};
use prost::Message as _;

use crate::common::source::MemorySource;
use crate::common::{datum, key};

#[path = "../common/transforming.rs"]
mod transforming;

/// An RGB image of one colour.
pub(crate) fn png(side: u32, colour: u8) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, side, side);
    encoder.set_color(png::ColorType::Rgb);
    let pixels = vec![colour; usize::try_from(3 * side * side).unwrap()];
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
    file
}

fn encoded(data: Vec<u8>) -> Vec<u8> {
    Datum { data: Some(data), encoded: Some(true), ..Datum::default() }.encode_to_vec()
}

/// An image of that size, by its header, with damaged pixels.
fn damaged(side: u32) -> Vec<u8> {
    let mut file = png(side, 1);
    // The last chunk has 12 bytes; before it are the checksums of the pixels, of 4 bytes each.
    let at = file.len() - 20;
    file[at] ^= 1;
    encoded(file)
}

fn skip() -> BadRecords {
    BadRecords::skip().at_most_rate(1.0)
}

/// Three batches of four, of 2 * 2, 3 * 3 and 4 * 4 pixels, of which the first two records are `bad`.
fn shapes(bad: impl Fn(usize) -> Vec<u8>) -> FeedBuilder {
    let records: Vec<_> = (0..12_usize)
        .map(|index| {
            let side = i32::try_from(2 + index / 4).unwrap();
            let pixels = vec![u8::try_from(index).unwrap(); usize::try_from(3 * side * side).unwrap()];
            let value = if index % 4 < 2 { bad(index) } else { datum(3, side, side, 1, pixels) };
            (key(index), value)
        })
        .collect();
    Feed::builder().source(MemorySource::new("shapes", records)).batch_size(4).epochs(1)
}

fn seen(feed: &mut Feed) -> Vec<(usize, Extents)> {
    let batches = feed.steps().flat_map(Result::unwrap);
    batches.map(|batch| (batch.len(), batch.get::<f32>("data").unwrap().shape())).collect()
}

fn expected() -> Vec<(usize, Extents)> {
    [2, 3, 4].map(|side| (2, Extents::new(&[2, 3, side, side]))).into()
}

#[test]
fn the_first_good_record_of_a_batch_decides_its_shape() {
    let mixed = |index: usize| if index.is_multiple_of(3) { vec![0xff] } else { damaged(9) };
    let kinds: [&dyn Fn(usize) -> Vec<u8>; 3] = [&|_| vec![0xff], &|_| damaged(9), &mixed];
    for bad in kinds {
        for threads in [1, 3] {
            let builder = shapes(bad).threads(threads).bad_records(skip());
            assert_eq!(seen(&mut builder.build().unwrap()), expected());
        }
    }
}

#[test]
fn a_resumed_run_finds_the_same_shapes() {
    // The last batch's bad records say the shape of the batch before, which a run that resumes there does not
    // know.
    let bad = |index| damaged(if index < 8 { 7 } else { 3 });
    for (step, number) in (0..3).zip(0..) {
        let mut feed = shapes(bad).bad_records(skip()).build().unwrap();
        feed.seek((0, number)).unwrap();
        assert_eq!(seen(&mut feed), expected()[step..], "from step {step}");
    }
}

#[test]
fn without_a_policy_the_bad_record_ends_the_feed() {
    let mut feed = shapes(|_| damaged(9)).build().unwrap();
    let error = feed.steps().find_map(Result::err).unwrap();
    assert!(matches!(&error, FeedError::Record(error) if error.id.index == 0), "{error}");
}

/// The first byte of a record is the length of all; the second says whether it is bad. Counts its records.
struct Sized(Arc<AtomicUsize>);

impl RecordDecoder for Sized {
    type Scratch = ();

    fn fields(&self, first: &Record<'_>) -> Decoded<Vec<Field>> {
        Ok(vec![Field::new("bytes", Dtype::U8, [usize::from(first.value[0])])])
    }

    fn scratch(&self, _setup: WorkerSetup) {}

    fn decode(&self, record: &Record<'_>, row: &mut Row<'_>, _scratch: &mut ()) -> Decoded {
        self.0.fetch_add(1, Relaxed);
        match record.value {
            [_, 1, ..] => Err(DecodeFailure::new("it says so")),
            [_, 2, ..] => panic!("a panic of the test"),
            bytes => Ok(row.write("bytes", bytes)?),
        }
    }
}

fn sized(records: &[&[u8]], decoded: &Arc<AtomicUsize>) -> FeedBuilder {
    let records = records.iter().enumerate().map(|(index, value)| (key(index), value.to_vec()));
    let source = MemorySource::new("sized", records);
    Feed::builder().source(source).decoder(Sized(decoded.clone())).batch_size(2).epochs(1)
}

#[test]
fn the_first_good_record_of_a_source_decides_the_fields() {
    let decoded = Arc::new(AtomicUsize::new(0));
    let records: [&[u8]; 4] = [&[9, 1], &[9, 1], &[3, 0, 5], &[3, 0, 6]];
    let mut feed = sized(&records, &decoded).bad_records(skip()).build().unwrap();
    let bytes: Vec<u8> = feed
        .steps()
        .flat_map(Result::unwrap)
        .flat_map(|batch| batch.get::<u8>("bytes").unwrap().to_vec())
        .collect();
    assert_eq!(bytes, [3, 0, 5, 3, 0, 6]);
    // The first three were tried, and then all four decoded.
    assert_eq!(decoded.load(Relaxed), 7);

    // A decoder that panics is met by a worker, not by the build.
    let records: [&[u8]; 2] = [&[2, 2], &[2, 0]];
    let mut feed = sized(&records, &decoded).bad_records(skip()).build().unwrap();
    let error = feed.steps().find_map(Result::err).unwrap();
    assert!(error.to_string().contains("a panic of the test"), "{error}");
}

#[test]
fn a_first_record_beyond_the_limit_of_memory_is_refused_and_not_decoded() {
    let decoded = Arc::new(AtomicUsize::new(0));
    let records: [&[u8]; 1] = [&[255, 0]];
    let build = |limit| sized(&records, &decoded).bad_records(skip()).memory_limit(limit).build();
    assert!(matches!(build(254), Err(FeedError::Config(ConfigError::OverBudget { .. }))));
    assert_eq!(decoded.load(Relaxed), 0);
}

#[test]
fn nothing_is_decoded_twice_without_a_policy() {
    let decoded = Arc::new(AtomicUsize::new(0));
    let mut feed = sized(&[&[3, 0, 5], &[3, 0, 6]], &decoded).build().unwrap();
    feed.steps().for_each(|step| drop(step.unwrap()));
    assert_eq!(decoded.load(Relaxed), 2);
}

#[test]
fn a_record_that_a_device_transforms_is_tried_as_well() {
    let mut feed = transforming::feed().bad_records(skip()).build().unwrap();
    let records: Vec<usize> = feed.steps().flat_map(Result::unwrap).map(|batch| batch.len()).collect();
    assert_eq!(records, [4, 4]);
}
