//! One bad record in a million must not pass for a good one, and must be easy to find. These tests put every
//! kind of bad record into a source, first and later, and check that the error says where it is, what was
//! found and what is allowed. The batches before it are delivered, and nothing after it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use percolator::batch::ImageShape;
use percolator::decoder::{RecordCause, RecordError};
use percolator::proto;
use percolator::transform::MeanImage;
use percolator::{Device, Dtype, Epochs, Feed, FeedBuilder, FeedError, Transform};
use prost::Message as _;

use crate::common;
use crate::common::process::must_end;
use crate::common::source::MemorySource;

/// Good records of 3x4x4, except the one at `at`.
fn with(at: usize, bad: &[u8]) -> FeedBuilder {
    let records = (0..20).map(|index| {
        let (key, value) = common::image(index, 3, 4, 4);
        (key, if index == at { bad.to_vec() } else { value })
    });
    Feed::builder().source(MemorySource::new("bad", records)).threads(2).batch_size(4)
}

fn record_error(error: FeedError) -> RecordError {
    match error {
        FeedError::Record(error) => *error,
        other => panic!("{other}"),
    }
}

/// Feeds until the error, which must follow exactly `batches` whole batches.
fn error_after(builder: FeedBuilder, batches: usize) -> RecordError {
    must_end("a feed with a bad record", move || {
        let mut feed = builder.build().unwrap();
        let mut lane = feed.take_lanes().unwrap().remove(0);
        for number in 0..batches {
            let batch = lane.next().unwrap().unwrap();
            assert_eq!((batch.len(), batch.records()[0].index), (4, 4 * number as u64));
        }
        let error = lane.next().unwrap().unwrap_err();
        assert!(lane.next().is_none(), "nothing comes after it");
        record_error(error)
    })
}

/// Checks that the error is the same, except for its place, whether the record is the very first or in the
/// third batch.
fn check(bad: &[u8], transform: &Transform, cause_text: &str) {
    for at in [0, 8, 10, 11] {
        let builder = || with(at, bad).transform(transform.clone());
        let error =
            if at == 0 { record_error(builder().build().unwrap_err()) } else { error_after(builder(), 2) };
        let text = error.to_string();
        assert_eq!(text, format!("memory/bad: epoch 0, record {at}, key \"{at:08}\": {}", error.cause));
        assert_eq!(error.cause.to_string(), cause_text, "at {at}");
        assert_eq!((error.id.index, error.key.0), (at as u64, common::key(at)));
    }
}

#[test]
fn every_kind_of_bad_record_says_where_it_is_and_what_is_wrong() {
    let plain = Transform::new();
    let max = i32::MAX;
    let encoded =
        proto::Datum { encoded: Some(true), data: Some(vec![0xff, 0xd8]), ..proto::Datum::default() };
    for (bad, text) in [
        (common::datum(3, 4, 4, 0, vec![0; 47]), "data has 47 bytes, but an image of 3x4x4 has 48"),
        (common::datum(3, 4, 4, 0, vec![0; 49]), "data has 49 bytes, but an image of 3x4x4 has 48"),
        (common::datum(0, 4, 4, 0, vec![0; 48]), "the image is 0x4x4: dimensions must be at least 1"),
        (common::datum(3, -4, 4, 0, vec![0; 48]), "the image is 3x-4x4: dimensions must be at least 1"),
        (
            common::datum(max, max, max, 0, vec![0; 48]),
            "the image is 2147483647x2147483647x2147483647: at most 2147483647 elements are allowed",
        ),
        (
            common::datum(3, 4, 4, 0, Vec::new()),
            "the record has no pixels: data and float_data are empty, and the image is 3x4x4",
        ),
        (
            common::float_datum(3, 4, 4, 0, vec![0.0; 5]),
            "float_data has 5 elements, but an image of 3x4x4 has 48",
        ),
        (
            encoded.encode_to_vec(),
            "Could not decode datum: found a file of no known format: allowed are JPEG, PNG, WebP, GIF, \
             TIFF, BMP and PNM files",
        ),
        (Vec::new(), "the image is 0x0x0: dimensions must be at least 1"),
    ] {
        check(&bad, &plain, text);
    }
}

#[test]
fn what_is_no_datum_says_at_which_byte() {
    let good = common::image(0, 3, 4, 4).1;
    for bad in
        [vec![0xff; 40], b"not a datum\0".to_vec(), good[..good.len() / 2].to_vec(), vec![0x0d, 1, 2, 3, 4]]
    {
        for at in [0, 9] {
            let error = if at == 0 {
                record_error(with(at, &bad).build().unwrap_err())
            } else {
                error_after(with(at, &bad), 2)
            };
            assert!(matches!(error.cause, RecordCause::Datum(_)));
            assert!(error.to_string().contains("byte"), "{error}");
            assert!(error.to_string().contains(&format!("memory/bad: epoch 0, record {at}, key")), "{error}");
        }
    }
}

#[test]
fn a_transform_that_does_not_go_with_a_record_says_so() {
    let small = common::datum(3, 4, 3, 0, vec![0; 36]);
    check(
        &small,
        &Transform::new().crop(4),
        "crop_size must be at most the height and width of the image: 3x4x3, found 4",
    );
    let grey = common::datum(2, 4, 4, 0, vec![0; 32]);
    check(
        &grey,
        &Transform::new().mean_values([1.0, 2.0, 3.0]),
        "specify either 1 mean_value or as many as channels: 2, found 3",
    );
    let mean = MeanImage::new(ImageShape { channels: 3, height: 4, width: 4 }, vec![0.0; 48]).unwrap();
    check(
        &common::datum(3, 5, 4, 0, vec![0; 60]),
        &Transform::new().mean_image(mean).crop(4),
        "the mean image must have the shape of the uncropped image: 3x5x4, found 3x4x4",
    );
}

#[test]
fn floats_do_not_pass_for_bytes() {
    let floats = common::float_datum(3, 4, 4, 0, vec![0.0; 48]);
    for (at, batches) in [(0, 0), (9, 2)] {
        let error = error_after(with(at, &floats).dtype(Dtype::U8), batches);
        assert_eq!(error.cause.to_string(), "u8 output takes records of bytes, found a record of floats");
        assert_eq!(error.id.index, at as u64);
    }
}

#[test]
fn a_record_of_another_shape_is_named_with_both_shapes() {
    let other = common::datum(3, 5, 4, 0, vec![0; 60]);
    for at in [9, 10, 11] {
        let error = error_after(with(at, &other), 2);
        assert_eq!(error.id.index, at as u64);
        assert!(error.cause.to_string().starts_with(
            "the record is 3x5x4 after its transform, but the first record of its batch is 3x4x4"
        ));
    }
    // As the first record of its batch it sets the shape, so the error names its neighbour.
    let error = error_after(with(8, &other), 2);
    assert_eq!(error.id.index, 9);
    assert!(matches!(error.cause, RecordCause::Shape { .. }));
    // Alone in its batch, it is valid.
    let mut feed = with(8, &other).batch_size(1).epochs(Epochs::OnePass).build().unwrap();
    assert_eq!(feed.take_lanes().unwrap().remove(0).map(|batch| batch.unwrap().len()).sum::<usize>(), 20);
}

#[test]
fn of_two_bad_records_in_a_batch_the_earlier_is_named_whatever_the_threads_do() {
    for _ in 0..100 {
        let bad = common::datum(3, 4, 4, 0, vec![0; 47]);
        let records = (0..64).map(|index| {
            let (key, value) = common::image(index, 3, 4, 4);
            (key, if index == 37 || index == 60 { bad.clone() } else { value })
        });
        let source = MemorySource::new("two", records);
        let builder = Feed::builder().source(source).threads(3).batch_size(64);
        let mut feed = builder.build().unwrap();
        let error = feed.take_lanes().unwrap().remove(0).next().unwrap().unwrap_err();
        assert_eq!(record_error(error).id.index, 37);
    }
}

#[test]
fn of_two_bad_batches_the_earlier_ends_the_lane_whatever_the_threads_do() {
    // A worker finds record 7; the lane itself finds record 8, the first of its batch.
    let bad = common::datum(3, 4, 4, 0, vec![0; 47]);
    for _ in 0..200 {
        let records = (0..20).map(|index| {
            let (key, value) = common::image(index, 3, 4, 4);
            (key, if index == 7 || index == 8 { bad.clone() } else { value })
        });
        let source = MemorySource::new("two batches", records);
        let builder = Feed::builder().source(source).threads(2).batch_size(4);
        let error = error_after_first(builder);
        assert_eq!(error.id.index, 7, "{error}");
    }
}

fn error_after_first(builder: FeedBuilder) -> RecordError {
    let mut feed = builder.build().unwrap();
    let mut lane = feed.take_lanes().unwrap().remove(0);
    assert_eq!(lane.next().unwrap().unwrap().records()[0].index, 0);
    record_error(lane.next().unwrap().unwrap_err())
}

#[test]
fn a_bad_record_of_one_lane_ends_them_all_with_the_same_error() {
    must_end("the lanes beside one with a bad record", || {
        for _ in 0..20 {
            let builder = with(13, &common::datum(3, 4, 4, 0, vec![0; 47])).batch_size(2);
            let mut feed = builder.devices([0, 1, 2].map(Device::host)).build().unwrap();
            let errors: Vec<FeedError> = std::thread::scope(|scope| {
                let lanes: Vec<_> = feed
                    .take_lanes()
                    .unwrap()
                    .into_iter()
                    .map(|mut lane| {
                        scope.spawn(move || {
                            let mut errors: Vec<_> = lane.by_ref().filter_map(Result::err).collect();
                            assert_eq!(errors.len(), 1, "once");
                            assert!(lane.next().is_none());
                            errors.remove(0)
                        })
                    })
                    .collect();
                lanes.into_iter().map(|lane| lane.join().unwrap()).collect()
            });
            assert_eq!(errors.len(), 3);
            for error in errors {
                assert_eq!(record_error(error).id.index, 13);
            }
        }
    });
}
