//! Several crops of each image, as a feed gives them: beside feeds of one crop, with other threads, after a
//! resume.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use percolator::transform::{Mixing, Operation, TransformPlace};
use percolator::{ColorMode, Dtype, Feed, FeedBuilder, Layout, RawBytes, Transform};

use crate::common::source::MemorySource;
use crate::operations::{encoded, file};

const FILES: [&str; 4] = ["c_photo.png", "g_large.jpg", "c_photo.png", "g_large.jpg"];

fn crop(side: u32) -> Transform {
    Transform::new()
        .color(ColorMode::Rgb)
        .operations([Operation::random_resized_crop(side), Operation::horizontal_flip()])
}

fn feed() -> FeedBuilder {
    let records = FILES.iter().enumerate().map(|(index, name)| encoded(index, &file(name)));
    Feed::builder()
        .source(MemorySource::new("pictures", records))
        .transform(crop(24))
        .dtype(Dtype::U8)
        .batch_size(2)
        .epochs(2)
        .seed(7)
}

fn with_views() -> FeedBuilder {
    feed().views("second", 1, crop(24)).views("local", 3, crop(9))
}

/// What each batch has of a field.
fn values(feed: FeedBuilder, field: &str) -> Vec<Vec<u8>> {
    let mut feed = feed.build().unwrap();
    let lane = feed.take_lanes().unwrap().remove(0);
    lane.map(|batch| batch.unwrap().get::<u8>(field).unwrap().to_vec()).collect()
}

#[test]
fn each_image_has_crops_of_its_own() {
    let mut built = with_views().build().unwrap();
    let batch = built.take_lanes().unwrap().remove(0).next().unwrap().unwrap();
    assert_eq!(*batch.get::<u8>("second").unwrap().shape(), [2, 1, 3, 24, 24]);
    assert_eq!(*batch.get::<u8>("local").unwrap().shape(), [2, 3, 3, 9, 9]);
    // Views leave the image's own crop as it is.
    assert!(values(with_views(), "data") == values(feed(), "data"));
    assert!(values(with_views(), "data") != values(with_views(), "second"), "they draw numbers of their own");
    let local = values(with_views(), "local").concat();
    let mut crops: Vec<&[u8]> = local.chunks_exact(3 * 9 * 9).collect();
    crops.sort_unstable();
    crops.dedup();
    assert_eq!(crops.len(), 2 * 4 * 3, "each crop of each epoch is another");
}

/// A view without random numbers is what a feed of that transform gives.
#[test]
fn a_view_has_the_pixels_of_its_transform() {
    let centre = Transform::new()
        .color(ColorMode::Rgb)
        .operations([Operation::resize_shorter(40), Operation::center_crop(31)])
        .normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
    for layout in [Layout::Nchw, Layout::Nhwc] {
        let floats = |feed: FeedBuilder, field: &str| -> Vec<f32> {
            let mut feed = feed.dtype(Dtype::F32).layout(layout).build().unwrap();
            let lane = feed.take_lanes().unwrap().remove(0);
            lane.flat_map(|batch| batch.unwrap().get::<f32>(field).unwrap().to_vec()).collect()
        };
        let alone = floats(feed().transform(centre.clone()), "data");
        let view = floats(feed().views("centre", 1, centre.clone()), "centre");
        assert!(view == alone);
    }
}

#[test]
fn what_views_show_depends_on_the_record_alone() {
    let one = values(with_views().threads(1), "local").concat();
    assert!(values(with_views().threads(4).batch_size(3), "local").concat() == one);
    let mut begun = with_views().build().unwrap();
    begun.steps().take(3).for_each(|step| drop(step.unwrap()));
    let resumed = with_views().resume(&begun.snapshot().unwrap());
    assert!(values(resumed, "local").concat() == one[3 * 2 * 3 * 3 * 81..], "after a resume");
    let spec = serde_json::to_string(with_views().spec()).unwrap();
    let again: percolator::feed::FeedSpec = serde_json::from_str(&spec).unwrap();
    assert_eq!(again, *with_views().spec());
}

#[test]
fn what_no_view_can_be_is_refused_before_the_first_batch() {
    let refused = |feed: FeedBuilder| feed.build().unwrap_err().to_string();
    let plain = || Transform::new().color(ColorMode::Rgb);
    let raw = Feed::builder().source(MemorySource::new("raw", Vec::new())).decoder(RawBytes::up_to(9));
    for (found, words) in [
        (refused(feed().views("local", 0, crop(9))), "the view \"local\": a count of 0"),
        (refused(feed().views("local", 1, plain())), "there are no operations"),
        (
            refused(feed().transform(plain()).views("local", 1, crop(9))),
            "the feed's own transform has no operations",
        ),
        (
            refused(feed().views("local", 1, crop(9).color(ColorMode::Gray))),
            "its color is not that of the feed's own transform",
        ),
        (refused(feed().views("data", 1, crop(9))), "two fields have the name \"data\""),
        (refused(feed().views("a b", 1, crop(9))), "\"a b\" is not a valid field name"),
        (
            refused(feed().dtype(Dtype::F32).views("local", 1, crop(9)).mixing(Mixing::new().mixup(0.2))),
            "batches are mixed, and views would not be",
        ),
        (
            refused(feed().views("local", 1, crop(9)).transform_on(TransformPlace::Device)),
            "operations are for images alone",
        ),
        (refused(raw.views("local", 1, crop(9))), "views is for Caffe's image records"),
    ] {
        assert!(found.contains(words), "{found}");
    }
}
