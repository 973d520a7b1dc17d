//! Functions of a program's own, on images before their transform and on rows after it.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use percolator::batch::ImageShape;
use percolator::decoder::{Decoded, Planes, RecordRandom};
use percolator::transform::{Operation, TransformPlace};
use percolator::{ColorMode, DecodeFailure, Dtype, Feed, FeedBuilder, RawBytes, Transform};

use crate::common::source::MemorySource;
use crate::common::{float_datum, key};
use crate::operations::{encoded, file};

const FILES: [&str; 4] = ["c_photo.png", "g_large.jpg", "c_photo.png", "g_large.jpg"];

fn feed(transform: Transform) -> FeedBuilder {
    let records = FILES.iter().enumerate().map(|(index, name)| encoded(index, &file(name)));
    let source = MemorySource::new("pictures", records);
    Feed::builder()
        .source(source)
        .transform(transform.color(ColorMode::Rgb))
        .dtype(Dtype::U8)
        .epochs(2)
        .seed(7)
}

fn crop() -> Transform {
    Transform::new().crop(24).mirror(true)
}

fn operations() -> Transform {
    Transform::new().operations([Operation::random_resized_crop(24), Operation::horizontal_flip()])
}

fn pixels(feed: FeedBuilder) -> Vec<u8> {
    let mut feed = feed.build().unwrap();
    let lane = feed.take_lanes().unwrap().remove(0);
    lane.flat_map(|batch| batch.unwrap().pixels::<u8>().unwrap().to_vec()).collect()
}

fn same(image: Planes<'_>, _random: &mut RecordRandom, made: &mut [u8]) -> Decoded {
    made.copy_from_slice(image.bytes);
    Ok(())
}

fn turned(shape: ImageShape) -> ImageShape {
    ImageShape { height: shape.width, width: shape.height, ..shape }
}

/// Rows become columns.
fn turn(image: Planes<'_>, _random: &mut RecordRandom, made: &mut [u8]) -> Decoded {
    let ImageShape { height, width, .. } = image.shape;
    for (plane, made) in image.bytes.chunks_exact(height * width).zip(made.chunks_exact_mut(height * width)) {
        for (at, made) in made.iter_mut().enumerate() {
            *made = plane[at % height * width + at / height];
        }
    }
    Ok(())
}

#[test]
fn a_function_that_changes_nothing_changes_nothing() {
    for transform in [crop(), operations()] {
        let whole = feed(transform.clone()).after_decode(|shape| shape, same);
        assert!(pixels(whole) == pixels(feed(transform)));
    }
    let second = |feed: FeedBuilder| -> Vec<u8> {
        let mut feed = feed.build().unwrap();
        let lane = feed.take_lanes().unwrap().remove(0);
        lane.flat_map(|batch| batch.unwrap().get::<u8>("second").unwrap().to_vec()).collect()
    };
    let views = || feed(operations()).views("second", 2, operations().color(ColorMode::Rgb));
    assert!(second(views().after_decode(|shape| shape, same)) == second(views()));
}

#[test]
fn the_transform_gets_what_a_function_makes() {
    let whole = || feed(Transform::new()).batch_size(1);
    let mut built = whole().after_decode(turned, turn).build().unwrap();
    let batch = built.take_lanes().unwrap().remove(0).next().unwrap().unwrap();
    let mut plain = whole().build().unwrap();
    let plain = plain.take_lanes().unwrap().remove(0).next().unwrap().unwrap();
    let (found, wanted) = (batch.shape().image, plain.shape().image);
    assert_eq!(found, turned(wanted));
    assert_ne!(batch.pixels::<u8>().unwrap(), plain.pixels::<u8>().unwrap());
    let ImageShape { height, width, .. } = wanted;
    let (found, wanted) = (batch.pixels::<u8>().unwrap(), plain.pixels::<u8>().unwrap());
    for (y, x) in [(0, 0), (3, 5), (height - 1, width - 1)] {
        assert_eq!(found[x * height + y], wanted[y * width + x]);
    }
}

#[test]
fn random_numbers_depend_on_the_record_alone() {
    let noisy = || {
        feed(crop()).after_decode(
            |shape| shape,
            |image, random, made| {
                for (made, level) in made.iter_mut().zip(image.bytes) {
                    *made = level ^ u8::try_from(random.below(4)).unwrap();
                }
                Ok(())
            },
        )
    };
    let one = pixels(noisy().threads(1));
    assert!(pixels(noisy().threads(4).batch_size(3)) == one);
    let each = one.chunks_exact(3 * 24 * 24).collect::<Vec<_>>();
    assert_ne!(each[..4], each[4..], "of another epoch");
}

#[test]
fn a_row_is_changed_after_its_transform() {
    let plain = pixels(feed(operations()));
    let changed = feed(operations()).after_transform(|record, row| {
        assert!(!record.value.is_empty());
        row.values_mut::<u8>("data")?.iter_mut().for_each(|element| *element ^= 0xff);
        row.set("label", 12).map_err(DecodeFailure::from)
    });
    assert!(pixels(changed).iter().zip(&plain).all(|(changed, plain)| *changed == !plain));
    let raw = MemorySource::new("raw", [(key(0), vec![1, 2, 3])]);
    let raw = Feed::builder().source(raw).decoder(RawBytes::fixed()).after_transform(|_, row| {
        row.values_mut::<u8>(0)?[1] = 9;
        Ok(())
    });
    let batch = raw.build().unwrap().take_lanes().unwrap().remove(0).next().unwrap().unwrap();
    assert_eq!(*batch.get::<u8>(0).unwrap(), [1, 9, 3]);
}

#[test]
fn what_a_function_fails_with_is_the_records_error() {
    let failed = |feed: FeedBuilder| {
        let found = feed.build().and_then(|mut feed| {
            feed.take_lanes().unwrap().remove(0).find_map(Result::err).map_or(Ok(()), Err)
        });
        found.unwrap_err().to_string()
    };
    let by_row = feed(crop()).after_transform(|record, _| match record.id.index {
        2 => Err(DecodeFailure::new("too dark")),
        _ => Ok(()),
    });
    let found = failed(by_row);
    assert!(found.contains("record 2") && found.ends_with("too dark"), "{found}");
    let by_image =
        feed(crop()).after_decode(|shape| shape, |_, _, _| Err(DecodeFailure::new("no face in it")));
    let found = failed(by_image);
    assert!(found.contains("record 0") && found.ends_with("no face in it"), "{found}");
    let floats = MemorySource::new("floats", [(key(0), float_datum(1, 1, 2, 0, vec![1.0, 2.0]))]);
    let found = failed(Feed::builder().source(floats).after_decode(|shape| shape, same));
    assert!(found.contains("functions of images take images of bytes"), "{found}");
}

#[test]
fn a_spec_says_that_functions_are_missing() {
    let spec = feed(crop()).after_transform(|_, _| Ok(())).spec().clone();
    assert!(serde_json::to_string(&spec).unwrap().contains(r#""after_transform":true"#));
    let found = FeedBuilder::from(spec.clone()).build().unwrap_err().to_string();
    assert!(found.contains("function") && found.contains(".after_transform(...)"), "{found}");
    let other = FeedBuilder::from(spec).after_decode(|shape| shape, same).build().unwrap_err().to_string();
    assert!(other.contains(".after_transform(...)"), "{other}");
    let device = feed(crop()).after_transform(|_, _| Ok(())).transform_on(TransformPlace::Device);
    let found = device.build().unwrap_err().to_string();
    assert!(found.contains("after_transform sees rows before the device transforms them"), "{found}");
    let huge = |shape: ImageShape| ImageShape { height: usize::MAX, ..shape };
    let found = feed(crop()).after_decode(huge, same).build().unwrap_err().to_string();
    assert!(found.contains("the program's function makes one of"), "{found}");
}
