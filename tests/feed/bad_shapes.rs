//! Bad records of which the header is good: they decide neither their batch's shape nor the feed's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use percolator::batch::{Extents, Field};
use percolator::decoder::{Decoded, WorkerSetup};
use percolator::feed::ConfigError;
use percolator::proto::Datum;
use percolator::source::Record;
use percolator::{
    BadRecords, DecodeFailure, Device, Dtype, Feed, FeedBuilder, FeedError, LastBatch, RecordDecoder, Row,
};
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
    let replaced: Vec<_> = [2, 3, 4].map(|side| (4, Extents::new(&[4, 3, side, side]))).into();
    for bad in kinds {
        for threads in [1, 3] {
            let feed = |policy| shapes(bad).threads(threads).bad_records(policy).build().unwrap();
            assert_eq!(seen(&mut feed(skip())), expected());
            assert_eq!(seen(&mut feed(BadRecords::replace().at_most_rate(1.0))), replaced);
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

    fn may_reshape(&self) -> bool {
        true
    }

    fn reshape(&self, first: &Record<'_>, _fields: &[Field]) -> Decoded<Option<Vec<Field>>> {
        self.fields(first).map(Some)
    }

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
    // The first three were tried at the start, the first two once more for their batch's shape.
    assert_eq!(decoded.load(Relaxed), 3 + 2 + 2);

    // If there is none, all batches are empty.
    let mut feed = sized(&[&[9, 1], &[8, 1]], &decoded).bad_records(skip()).build().unwrap();
    let records: Vec<_> = feed.steps().flat_map(Result::unwrap).map(|batch| batch.len()).collect();
    assert_eq!(records, [0]);

    // A decoder that panics is met by a worker, not by the build.
    let records: [&[u8]; 2] = [&[2, 2], &[2, 0]];
    let mut feed = sized(&records, &decoded).bad_records(skip()).build().unwrap();
    let error = feed.steps().find_map(Result::err).unwrap();
    assert!(error.to_string().contains("a panic of the test"), "{error}");
}

/// A record that is bad in its own layout may be a good one in that of the next.
#[test]
fn the_records_before_the_first_good_one_are_bad_however_runs_are_cut() {
    let decoded = Arc::new(AtomicUsize::new(0));
    for size in [2, 4, 7, 8, 16, 64] {
        let batch = (0..size).map(|at| if at == 1 { &[9, 0, 5][..] } else { &[3, 0, 6] });
        // Record 0 of each batch is bad in its own shape; the rest are good.
        let batch: Vec<_> = batch.skip(1).chain([&[3, 0, 6][..]]).collect();
        let records = [batch.clone(), batch].concat();
        for threads in [1, 3] {
            let builder = sized(&records, &decoded).batch_size(size).threads(threads);
            let mut feed = builder.bad_records(skip()).build().unwrap();
            let seen: Vec<_> = feed
                .steps()
                .flat_map(Result::unwrap)
                .map(|batch| (batch.len(), batch.bad_records().iter().map(|bad| bad.id.index).collect()))
                .collect();
            assert_eq!(seen, [(size - 1, vec![0]), (size - 1, vec![size as u64])], "{size} {threads}");
        }
    }
}

/// Whether a record is bad depends on its bytes alone, not on its batch.
#[test]
fn a_good_record_of_another_shape_than_its_batch_ends_the_feed() {
    let decoded = Arc::new(AtomicUsize::new(0));
    for policy in [skip(), BadRecords::replace().at_most_rate(1.0)] {
        let run = |other: &[u8], batch_size: usize| -> Result<Vec<usize>, FeedError> {
            let builder = sized(&[&[3, 0, 5], other], &decoded).bad_records(policy.clone());
            let mut feed = builder.batch_size(batch_size).build()?;
            feed.steps().map(|step| Ok(step?[0].bad_records().len())).collect()
        };
        let good: [&[u8]; 2] = [&[4, 0, 6, 7], &[2, 0]];
        for good in good {
            assert_eq!(run(good, 1).unwrap(), [0, 0]);
            let FeedError::Record(error) = run(good, 2).unwrap_err() else { panic!("of another shape") };
            assert!(error.id.index == 1 && error.to_string().contains("[3]"), "{error}");
        }
        // It is not as long as it says either.
        let bad = [9, 0, 6, 7];
        assert_eq!((run(&bad, 1).unwrap(), run(&bad, 2).unwrap()), (vec![0, 1], vec![1]));
    }
}

/// A share without records has the shape of the source's first one, wherever the run began.
#[test]
fn an_empty_batch_has_the_same_shape_after_a_resume() {
    let records = (0..17_usize).map(|index| {
        let side = if index < 8 { 3 } else { 5 };
        (key(index), datum(1, side, side, 1, vec![1; usize::try_from(side * side).unwrap()]))
    });
    let records: Vec<_> = records.collect();
    let builder = || {
        let builder = Feed::builder().source(MemorySource::new("empty", records.clone())).batch_size(4);
        builder.epochs(1).last_batch(LastBatch::Pad).devices([0, 1].map(Device::host))
    };
    let shapes = |feed: &mut Feed| -> Vec<(usize, Extents)> {
        let batches = feed.steps().flat_map(Result::unwrap);
        batches.map(|batch| (batch.len(), batch.get::<f32>("data").unwrap().shape())).collect()
    };
    let whole = shapes(&mut builder().build().unwrap());
    assert_eq!(whole.last(), Some(&(0, Extents::new(&[4, 1, 3, 3]))));
    let mut feed = builder().build().unwrap();
    feed.seek((0, 2)).unwrap();
    assert_eq!(shapes(&mut feed), whole[4..]);
}

#[test]
fn fields_that_cannot_be_are_no_bad_record() {
    struct Twice;

    impl RecordDecoder for Twice {
        type Scratch = ();

        fn fields(&self, _first: &Record<'_>) -> Decoded<Vec<Field>> {
            Ok(["a", "a"].map(|name| Field::scalar(name, Dtype::U8)).into())
        }

        fn scratch(&self, _setup: WorkerSetup) {}

        fn decode(&self, _record: &Record<'_>, _row: &mut Row<'_>, _scratch: &mut ()) -> Decoded {
            unreachable!("the feed is not built")
        }
    }
    let source = MemorySource::new("twice", [(key(0), vec![0])]);
    let error = Feed::builder().source(source).decoder(Twice).bad_records(skip()).build().unwrap_err();
    assert!(matches!(&error, FeedError::Config(ConfigError::Fields(_))), "{error}");
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

/// Records of one length, so that batches need no shape of their own. Says whether they might have one, and
/// counts how often it is asked.
struct Plain {
    may_reshape: bool,
    asked: Arc<AtomicUsize>,
}

impl RecordDecoder for Plain {
    type Scratch = ();

    fn fields(&self, first: &Record<'_>) -> Decoded<Vec<Field>> {
        Ok(vec![Field::new("bytes", Dtype::U8, [first.value.len()])])
    }

    fn scratch(&self, _setup: WorkerSetup) {}

    fn may_reshape(&self) -> bool {
        self.may_reshape
    }

    fn reshape(&self, _first: &Record<'_>, _fields: &[Field]) -> Decoded<Option<Vec<Field>>> {
        self.asked.fetch_add(1, Relaxed);
        Ok(None)
    }

    fn decode(&self, record: &Record<'_>, row: &mut Row<'_>, _scratch: &mut ()) -> Decoded {
        match record.value {
            [1, ..] => Err(DecodeFailure::new("it says so")),
            bytes => Ok(row.write("bytes", bytes)?),
        }
    }
}

/// A record is looked at before its worker has it only where it may decide its batch's shape; the batches,
/// with bad records at any place, are the same.
#[test]
fn no_record_is_looked_at_beforehand_for_a_decoder_that_never_reshapes() {
    for bad in [0, 0b1, 0b11, 0b1111, 0b1_1111, 0b1000_0001, 0b1111_1111_1111] {
        let records: Vec<_> =
            (0..12_u8).map(|at| (key(at.into()), vec![u8::from(bad >> at & 1 == 1), at])).collect();
        let run = |may_reshape: bool, batch_size: usize, policy: &BadRecords| {
            let asked = Arc::new(AtomicUsize::new(0));
            let source = MemorySource::new("plain", records.clone());
            let decoder = Plain { may_reshape, asked: asked.clone() };
            let builder = Feed::builder().source(source).decoder(decoder).batch_size(batch_size).epochs(2);
            let seen: Vec<_> = builder.bad_records(policy.clone()).build().map_or_else(
                |error| vec![Err(error.to_string())],
                |mut feed| {
                    let see = |step: Result<Vec<percolator::Batch>, FeedError>| {
                        let batch = step.map_err(|error| error.to_string())?.remove(0);
                        let bytes = batch.get::<u8>("bytes").unwrap().to_vec();
                        Ok((batch.step(), batch.records().to_vec(), bytes, batch.bad_records().to_vec()))
                    };
                    feed.steps().map(see).collect()
                },
            );
            (seen, asked.load(Relaxed))
        };
        for batch_size in [1, 4, 12] {
            for policy in [BadRecords::fail(), skip(), BadRecords::replace().at_most_rate(1.0)] {
                let (due, looked) = run(true, batch_size, &policy);
                let (seen, never) = run(false, batch_size, &policy);
                assert_eq!(seen, due, "{bad:b} in batches of {batch_size}, {policy:?}");
                assert!(never == 0 && (looked > 0 || due[0].is_err()), "{looked} and {never}");
            }
        }
    }
}
