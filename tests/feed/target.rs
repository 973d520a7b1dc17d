//! Targets, the second array of each batch: the target of a record is transformed with the record's random
//! numbers, and a target that does not match its record is an error.
#![allow(missing_docs, clippy::unwrap_used, clippy::cast_possible_truncation, reason = "tests")]

use percolator::batch::{FieldError, ImageShape};
use percolator::decoder::RecordCause;
use percolator::feed::ConfigError;
use percolator::net::NetState;
use percolator::order::Ranks;
use percolator::proto::Datum;
use percolator::source::{Lmdb, Matching};
use percolator::transform::CaffeEra;
use percolator::{
    Batch, Device, Dtype, Epochs, Feed, FeedBuilder, FeedError, Net, Phase, Seed, Target, Transform,
};
use prost::Message as _;

use crate::common::source::MemorySource;
use crate::common::{datum, float_datum, image, key, write_images, write_lmdb};

fn batches(builder: FeedBuilder) -> Vec<Batch> {
    builder
        .epochs(Epochs::OnePass)
        .build()
        .unwrap()
        .take_lanes()
        .unwrap()
        .remove(0)
        .map(Result::unwrap)
        .collect()
}

fn failure(builder: FeedBuilder) -> FeedError {
    match builder.epochs(Epochs::OnePass).build() {
        Err(error) => error,
        Ok(mut feed) => feed.take_lanes().unwrap().remove(0).find_map(Result::err).expect("the feed fails"),
    }
}

fn images(count: usize) -> MemorySource {
    MemorySource::images("images", count, 3, 9, 8)
}

/// One channel, the images' first.
fn masks(count: usize) -> MemorySource {
    let mask = |index| {
        let whole = Datum::decode(&*image(index, 3, 9, 8).1).unwrap();
        (key(index), datum(1, 9, 8, 0, whole.data.unwrap()[..72].to_vec()))
    };
    MemorySource::new("masks", (0..count).map(mask))
}

#[test]
fn an_image_and_its_mask_are_cut_and_mirrored_alike() {
    let transform = Transform::new().crop(5).mirror(true);
    for era in [None, Some(CaffeEra::Today)] {
        let target = Target::paired(masks(50), Matching::Keys).transform(transform.clone()).dtype(Dtype::U8);
        let mut builder = Feed::builder()
            .source(images(50))
            .transform(transform.clone())
            .target(target)
            .threads(3)
            .prefetch(13)
            .batch_size(4);
        if let Some(era) = era {
            builder = builder.seed(Seed::Caffe { seed: 1701, era });
        }
        let mut seen = 0;
        for batch in batches(builder) {
            let shape = batch.target_shape().unwrap();
            assert_eq!(shape.dims(), [batch.len(), 1, 5, 5]);
            let (pixels, targets) = (batch.pixels::<f32>().unwrap(), batch.target_pixels::<u8>().unwrap());
            for (image, mask) in pixels.chunks_exact(75).zip(targets.chunks_exact(25)) {
                let mask: Vec<f32> = mask.iter().map(|&byte| f32::from(byte)).collect();
                assert_eq!(image[..25], mask[..]);
                seen += 1;
            }
        }
        assert_eq!(seen, 50);
    }
}

#[test]
fn many_labels_come_from_a_second_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("images");
    write_images(&path, 7, 1, 2, 2);
    let labels = (0..7).map(|index| {
        let vector = vec![index as f32, -0.5, f32::MIN_POSITIVE];
        (key(index), float_datum(3, 1, 1, 0, vector))
    });
    let target = Target::paired(MemorySource::new("labels", labels), Matching::Keys);
    let builder = Feed::builder().source(Lmdb::open(&path).unwrap()).target(target).batch_size(3);
    let found: Vec<f32> =
        batches(builder).iter().flat_map(|batch| batch.target_pixels::<f32>().unwrap().to_vec()).collect();
    let wanted: Vec<f32> = (0..7_u8).flat_map(|index| [f32::from(index), -0.5, f32::MIN_POSITIVE]).collect();
    assert_eq!(found, wanted);
}

fn with_vector(index: usize, vector: Vec<f32>) -> (Vec<u8>, Vec<u8>) {
    let mut datum = Datum::decode(&*image(index, 1, 2, 2).1).unwrap();
    datum.float_data = vector;
    (key(index), datum.encode_to_vec())
}

#[test]
fn two_layers_of_a_net_make_one_feed() {
    let folder = tempfile::tempdir().unwrap();
    write_images(&folder.path().join("images"), 6, 1, 4, 4);
    let labels = (0..6).map(|index| (key(index), float_datum(2, 1, 1, 0, vec![index as f32, 7.5])));
    write_lmdb(&folder.path().join("labels"), labels);
    let net = Net::from_text(
        "layer { name: 'images' type: 'Data' top: 'data' transform_param { crop_size: 2 mirror: true }
           data_param { source: 'images' batch_size: 3 backend: LMDB } }
         layer { name: 'labels' type: 'Data' top: 'labels' transform_param { scale: 2 }
           data_param { source: 'labels' batch_size: 3 backend: LMDB } }",
    )
    .unwrap();
    let mut layers = Feed::layers_of(&net, &NetState::from(Phase::Train)).unwrap();
    assert_eq!(layers.iter().map(|layer| &*layer.spec().layer).collect::<Vec<_>>(), ["images", "labels"]);
    let (labels, images) = (layers.remove(1), layers.remove(0));
    let feed = images.root(folder.path()).target(Target::from_feed(labels, Matching::Keys));
    let batches = batches(feed);
    let found: Vec<f32> =
        batches.iter().flat_map(|batch| batch.target_pixels::<f32>().unwrap().to_vec()).collect();
    assert_eq!(found, [0., 15., 2., 15., 4., 15., 6., 15., 8., 15., 10., 15.]);
    assert_eq!(batches[0].shape().dims(), [3, 1, 2, 2]);
}

#[test]
fn a_target_is_drawn_at_random_only_with_its_image() {
    let refused = |image: Transform, target: Transform, phase| {
        let target = Target::paired(masks(5), Matching::Keys).transform(target);
        let feed = Feed::builder().source(images(5)).transform(image).target(target).phase(phase);
        match feed.epochs(Epochs::OnePass).build() {
            Err(FeedError::Config(error)) => Some(error),
            Err(other) => panic!("{other}"),
            Ok(_) => None,
        }
    };
    let cropped = |side| Transform::new().crop(side);
    let mirrored = Transform::new().mirror(true);
    for phase in [Phase::Train, Phase::Test] {
        let error = refused(Transform::new(), mirrored.clone(), phase);
        assert_eq!(error, Some(ConfigError::TargetMirrored));
        assert_eq!(refused(mirrored.clone(), Transform::new(), phase), None);
        assert_eq!(refused(cropped(5), cropped(5), phase), None);
    }
    for (image, target) in [(0, 3), (5, 3), (3, 5)] {
        let error = refused(cropped(image), cropped(target), Phase::Train);
        assert_eq!(error, Some(ConfigError::TargetCropped { target, image }));
        // The central crops of both have the same middle.
        assert_eq!(refused(cropped(image), cropped(target), Phase::Test), None);
    }
    assert_eq!(refused(cropped(5), Transform::new(), Phase::Train), None);
}

/// Two layers with lists, or a database and a list, as one feed.
fn pair_of(images: &str, targets: &str) -> Result<(), FeedError> {
    let folder = tempfile::tempdir().unwrap();
    write_images(&folder.path().join("images"), 3, 1, 4, 4);
    for name in ["images.txt", "targets.txt"] {
        std::fs::write(folder.path().join(name), "a.png 0\nb.png 1\nc.png 2\n").unwrap();
    }
    for name in ["a.png", "b.png", "c.png"] {
        let file = std::fs::File::create(folder.path().join(name)).unwrap();
        let mut encoder = png::Encoder::new(file, 1, 1);
        encoder.set_color(png::ColorType::Rgb);
        encoder.write_header().unwrap().write_image_data(&[1, 2, 3]).unwrap();
    }
    let net = Net::from_text(&format!(
        "layer {{ top: 'a' top: 'c' {images} }} layer {{ top: 'b' top: 'd' {targets} }}"
    ))
    .unwrap();
    let mut layers = Feed::layers_of(&net, &NetState::from(Phase::Train)).unwrap();
    let (targets, images) = (layers.remove(1), layers.remove(0));
    let target = Target::from_feed(targets.root(folder.path()), Matching::Order);
    let mut feed = images
        .root(folder.path())
        .target(target)
        .seed(Seed::Caffe { seed: 7, era: CaffeEra::Today })
        .build()?;
    for batch in feed.take_lanes().unwrap().remove(0).take(9) {
        batch?;
    }
    Ok(())
}

#[test]
fn two_lists_come_in_one_order_or_not_at_all() {
    let list = |name: &str, order: &str| {
        format!("type: 'ImageData' image_data_param {{ source: '{name}.txt' root_folder: './' {order} }}")
    };
    let database = "type: 'Data' data_param { source: 'images' backend: LMDB batch_size: 1 }";
    for order in ["", "shuffle: true", "rand_skip: 3", "shuffle: true rand_skip: 2"] {
        pair_of(&list("images", order), &list("targets", order)).unwrap();
        for other in ["shuffle: false rand_skip: 5", "shuffle: true rand_skip: 5"] {
            let error = pair_of(&list("images", order), &list("targets", other)).unwrap_err().to_string();
            assert!(error.contains("both must be read in the same order"), "{error}");
        }
    }
    pair_of(database, &list("targets", "")).unwrap();
    for (images, targets) in
        [(database, &*list("targets", "shuffle: true")), (&*list("images", "rand_skip: 2"), database)]
    {
        let error = pair_of(images, targets).unwrap_err().to_string();
        assert!(error.contains("both must be read in the same order"), "{error}");
    }
}

#[test]
fn each_layer_may_have_a_root_of_its_own() {
    let [images, labels] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    write_images(&images.path().join("records"), 2, 1, 4, 4);
    let vectors = (0..2).map(|index| (key(index), float_datum(1, 1, 1, 0, vec![index as f32])));
    write_lmdb(&labels.path().join("records"), vectors);
    let of = |folder: &tempfile::TempDir| Feed::builder().lmdb("records").root(folder.path());
    let feed = of(&images).target(Target::from_feed(of(&labels), Matching::Keys)).batch_size(2);
    assert_eq!(batches(feed)[0].target_pixels::<f32>().unwrap(), [0.0, 1.0]);
}

#[test]
fn a_net_with_several_data_layers_is_no_single_feed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.prototxt");
    let layer = |name: &str| {
        format!(
            "layer {{ name: '{name}' type: 'Data' top: '{name}' data_param {{ source: 'x' batch_size: 1 }} }}"
        )
    };
    std::fs::write(&path, layer("images") + &layer("labels")).unwrap();
    let message = Feed::from_prototxt(&path, Phase::Test).unwrap_err().to_string();
    assert_eq!(
        message,
        format!(
            "{}: there are 2 data layers in this state, but a feed takes one: choose with Feed::layers_of",
            path.display()
        )
    );
}

#[test]
fn the_test_layer_of_a_net_is_dealt_to_one() {
    let folder = tempfile::tempdir().unwrap();
    write_images(&folder.path().join("images"), 6, 1, 4, 4);
    let path = folder.path().join("net.prototxt");
    let text = "layer { name: 'd' type: 'Data' top: 'd'
                data_param { source: 'images' batch_size: 6 backend: LMDB } }";
    std::fs::write(&path, text).unwrap();
    let feed = || Feed::from_prototxt(&path, Phase::Test).unwrap().root(folder.path());
    let message = feed().devices([0, 1].map(Device::host)).build().unwrap_err().to_string();
    assert!(message.contains(": layer \"d\": 2 devices: in TEST Caffe deals every record"), "{message}");
    // Which rank it is does not matter, as long as there is one.
    let message = feed().share(Ranks { first: 2, of: 2 }).build().unwrap_err().to_string();
    assert!(message.ends_with("there is no rank 2 in a job of 2: ranks are counted from 0"), "{message}");
    let batches = batches(feed().share(Ranks { first: 1, of: 2 }));
    assert_eq!(batches[0].labels().unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn many_labels_come_from_the_record_itself() {
    let records = (0..5).map(|index| with_vector(index, vec![index as f32, 1e30]));
    let builder = Feed::builder()
        .source(MemorySource::new("labelled", records))
        .target(Target::float_data())
        .batch_size(5);
    let batches = batches(builder);
    let [batch] = &*batches else { panic!("one batch") };
    assert_eq!(batch.target_shape().unwrap().image, ImageShape { channels: 2, height: 1, width: 1 });
    let wanted = [0., 1e30, 1., 1e30, 2., 1e30, 3., 1e30, 4., 1e30];
    assert_eq!(batch.target_pixels::<f32>().unwrap(), wanted);
    let mismatch = batch.target_pixels::<u8>().unwrap_err();
    let (found, wanted) = (Dtype::F32, Dtype::U8);
    assert_eq!(mismatch, FieldError::Dtype { field: "target".to_owned(), found, wanted });
}

#[test]
fn a_record_without_its_vector_of_labels_is_refused() {
    let records = (0..5).map(|index| with_vector(index, if index == 3 { vec![] } else { vec![1.0] }));
    let builder = Feed::builder().source(MemorySource::new("db", records)).target(Target::float_data());
    let FeedError::Record(error) = failure(builder) else { panic!("a record fails") };
    assert_eq!((error.id.index, &error.cause), (3, &RecordCause::NoTarget));
}

#[test]
fn keys_that_differ_end_the_feed() {
    let builder = |matching| {
        let second = MemorySource::new("masks", [0, 1, 3, 4].map(|index| image(index, 1, 9, 8)));
        Feed::builder().source(images(4)).target(Target::paired(second, matching))
    };
    let message = failure(builder(Matching::Keys)).to_string();
    assert_eq!(
        message,
        "memory/images: record 2 has the key \"00000002\", but its companion in memory/masks has the key \
         \"00000003\"; pair databases that were written together, or match them by order"
    );
    assert_eq!(batches(builder(Matching::Order)).len(), 4);
}

#[test]
fn whichever_source_ends_first_is_named() {
    for (first, second, message) in [
        (
            5,
            4,
            "memory/masks: it ends after 4 records, but memory/images, with which it is paired, continues; \
             pair databases with the same number of records",
        ),
        (
            3,
            4,
            "memory/images: it ends after 3 records, but memory/masks, with which it is paired, continues; \
             pair databases with the same number of records",
        ),
    ] {
        let target = Target::paired(masks(second), Matching::Order);
        assert_eq!(failure(Feed::builder().source(images(first)).target(target)).to_string(), message);
    }
}

#[test]
fn what_is_wrong_with_a_companion_is_said_of_the_companion() {
    let bad = (0..4).map(|index| match index {
        2 => (key(2), datum(1, 9, 8, 0, vec![0; 71])),
        _ => image(index, 1, 9, 8),
    });
    let target = Target::paired(MemorySource::new("masks", bad), Matching::Keys);
    let message = failure(Feed::builder().source(images(4)).target(target)).to_string();
    assert!(
        message.starts_with(
            "memory/images: epoch 0, record 2, key \"00000002\": its companion in memory/masks: "
        ),
        "{message}"
    );
    assert!(message.contains("71"), "{message}");
}

#[test]
fn what_is_cropped_together_has_one_size() {
    let small = (0..4).map(|index| image(index, 1, 8, 8));
    let target =
        Target::paired(MemorySource::new("masks", small), Matching::Keys).transform(Transform::new().crop(5));
    let builder = Feed::builder()
        .source(images(4))
        .transform(Transform::new().crop(5))
        .phase(Phase::Test)
        .target(target);
    let message = failure(builder).to_string();
    assert!(message.contains("the target is 1x8x8 and the record 3x9x8"), "{message}");
}

#[test]
fn the_targets_are_in_the_budget() {
    let builder = || Feed::builder().source(images(4)).batch_size(4).prefetch(2);
    let bytes = |feed: &Feed| feed.memory_budget().total_bytes();
    let without = builder().build().unwrap();
    let with = builder().target(Target::paired(masks(4), Matching::Keys)).build().unwrap();
    // At least two batches of four masks in f32.
    assert!(bytes(&with) >= bytes(&without) + 2 * 4 * 72 * 4, "{}", with.memory_budget());
}

#[test]
fn a_source_and_its_targets_have_as_many_records_before_anything_is_fed() {
    for (records, targets) in [(12, 7), (7, 12)] {
        for is_planned in [false, true] {
            let target = Target::paired(masks(targets), Matching::Keys);
            let feed = Feed::builder().source(images(records)).target(target);
            let error = if is_planned { feed.epochs(2) } else { feed }.build().unwrap_err().to_string();
            assert!(error.contains("it ends after 7 records"), "{error}");
        }
    }
}
