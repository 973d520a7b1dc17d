//! The same samples in every format give the same feeds.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

#[path = "../common/mod.rs"]
mod common;
mod many;

use std::fs;
use std::path::PathBuf;

use flate2::read::MultiGzDecoder;
use percolator::example::ExampleImage;
use percolator::feed::{Receipts, SourceSpec};
use percolator::order::BatchSize;
use percolator::source::IndexPlace;
use percolator::{ColorMode, Dtype, Feed, FeedBuilder, Shuffle, Snapshot, Transform};
use percolator_formats::feed::Formats;

use common::golden;

/// The 40 samples in a format.
struct Samples {
    path: PathBuf,
    image: &'static str,
    label: Option<&'static str>,
    is_seekable: bool,
}

/// The golden files of all formats that have the 40 samples. The tar is unpacked to where it can be read by
/// position.
fn all(folder: &std::path::Path) -> Vec<Samples> {
    let packed = golden("webdataset/tarwriter.tar.gz");
    let plain = folder.join("tarwriter.tar");
    let mut unpacked = MultiGzDecoder::new(fs::File::open(&packed).unwrap());
    std::io::copy(&mut unpacked, &mut fs::File::create(&plain).unwrap()).unwrap();
    let of = |path, image, label| Samples { path, image, label, is_seekable: true };
    vec![
        of(plain, "jpg;png", Some("cls")),
        Samples { is_seekable: false, ..of(packed, "jpg;png", Some("cls")) },
        of(golden("parquet/full_snappy.parquet"), "image", Some("label")),
        of(golden("parquet/hf_image.parquet"), "image.bytes", Some("label")),
        of(golden("arrow/file_none.arrow"), "image", Some("label")),
        of(golden("arrow/hf_disk"), "image.bytes", Some("label")),
        of(golden("mds/full"), "image", Some("label")),
        of(golden("litdata/pytree"), "image", Some("label")),
        of(golden("recordio/images.rec"), "image", Some("label")),
        of(golden("array_record/default.array_record"), "record", None),
        of(golden("bagz/plain.bag"), "record", None),
    ]
}

/// Ten thousand samples in the formats that are written for it.
fn many(folder: &std::path::Path) -> Vec<Samples> {
    let of = |path, image| Samples { path, image, label: Some("label"), is_seekable: true };
    vec![
        Samples { label: Some("cls"), ..of(many::tar(folder), "ppm") },
        of(many::parquet(folder), "image"),
        of(many::arrow(folder), "image"),
        of(many::mds(folder), "image"),
        of(many::litdata(folder), "image"),
        of(many::record_io(folder), "image"),
        Samples { label: None, ..of(many::bagz(folder), "record") },
    ]
}

fn feed(samples: &Samples) -> FeedBuilder {
    let image = ExampleImage::encoded(samples.image);
    let image = match samples.label {
        Some(label) => image.label(label),
        None => image,
    };
    Feed::builder()
        .opener(Formats)
        .data(SourceSpec::files(&samples.path))
        .example(image)
        .transform(Transform::new().color(ColorMode::Color).resize(24, 24).crop(17).mirror(true))
        .dtype(Dtype::U8)
        .index(IndexPlace::Memory)
        .batch_size(BatchSize::Global(7))
        .seed(11)
}

/// What a step gave to a lane: records, pixels, labels.
type Given = (Vec<u64>, Vec<u8>, Vec<i32>);

/// The first steps of a feed, and a snapshot after them.
fn run(feed: FeedBuilder, most: usize) -> (Vec<Given>, Snapshot) {
    let mut feed = feed.build().unwrap();
    let mut given = Vec::new();
    for step in feed.steps().take(most) {
        for batch in step.unwrap() {
            let records = batch.records().iter().map(|id| id.index).collect();
            let pixels = batch.field("data").unwrap().bytes().to_vec();
            given.push((records, pixels, batch.labels().unwrap().to_vec()));
        }
    }
    let snapshot = feed.snapshot().unwrap();
    (given, snapshot)
}

/// Without labels, if a format has none.
fn without_labels(given: &[Given]) -> Vec<(&[u64], &[u8])> {
    given.iter().map(|(records, pixels, _)| (&**records, &**pixels)).collect()
}

fn assert_same(samples: &Samples, found: &[Given], due: &[Given]) {
    let path = samples.path.display();
    assert_eq!(found.len(), due.len(), "{path}");
    if samples.label.is_some() {
        assert!(found == due, "{path}: other batches");
    } else {
        assert!(without_labels(found) == without_labels(due), "{path}: other batches");
    }
}

#[test]
fn the_same_samples_in_every_format_give_the_same_batches() {
    let folder = tempfile::tempdir().unwrap();
    assert_same_batches(&all(folder.path()), 40);
}

#[test]
fn ten_thousand_samples_in_every_format_give_the_same_batches() {
    let folder = tempfile::tempdir().unwrap();
    let samples = many(folder.path());
    assert_same_batches(&samples, many::SAMPLES);
    assert_same_resumes(&samples, many::SAMPLES);
}

/// In order, and shuffled, by one thread and by three, to one device and to two.
fn assert_same_batches(samples: &[Samples], records: u64) {
    let orders: [&dyn Fn(FeedBuilder) -> FeedBuilder; 3] =
        [&|feed| feed.epochs(2), &|feed| feed.epochs(2).shuffle(Shuffle::Global).threads(1), &|feed| {
            feed.epochs(2).shuffle(Shuffle::Global).threads(3).devices(["host:0", "host:1"].map(device))
        }];
    for (number, order) in orders.iter().enumerate() {
        let due = run(order(feed(&samples[0])), usize::MAX).0;
        assert_eq!(
            due.iter().map(|(records, ..)| records.len() as u64).sum::<u64>(),
            2 * records,
            "two epochs"
        );
        for samples in &samples[1..] {
            if number > 0 && !samples.is_seekable {
                let error = order(feed(samples)).build().unwrap_err().to_string();
                assert!(error.contains("cannot be addressed by position"), "{error}");
                continue;
            }
            assert_same(samples, &run(order(feed(samples)), usize::MAX).0, &due);
        }
    }
}

fn device(name: &str) -> percolator::Device {
    name.parse().unwrap()
}

#[test]
fn a_run_is_resumed_in_another_world() {
    let folder = tempfile::tempdir().unwrap();
    assert_same_resumes(&all(folder.path()), 40);
}

/// A run of three devices is resumed by two.
fn assert_same_resumes(samples: &[Samples], records: u64) {
    let shuffled = |samples: &Samples, devices: usize| {
        let devices = (0..devices).map(|number| device(&format!("host:{number}")));
        feed(samples).epochs(2).shuffle(Shuffle::Global).devices(devices)
    };
    let mut due: Option<[Vec<Given>; 2]> = None;
    for samples in samples.iter().filter(|samples| samples.is_seekable) {
        let (before, snapshot) = run(shuffled(samples, 3), 3);
        let after = run(shuffled(samples, 2).resume(&snapshot), usize::MAX).0;
        let mut given: Vec<_> =
            [&before, &after].into_iter().flatten().flat_map(|(records, ..)| records).collect();
        given.sort_unstable();
        let twice: Vec<u64> = (0..records).flat_map(|record| [record, record]).collect();
        assert!(given.into_iter().eq(&twice), "{}: not each record once an epoch", samples.path.display());
        match &due {
            None => due = Some([before, after]),
            Some([first, second]) => {
                assert_same(samples, &before, first);
                assert_same(samples, &after, second);
            }
        }
    }
}

/// Without a word about parts, a feed takes those that are an image and its label.
#[test]
fn an_image_and_its_label_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let all = all(folder.path());
    let due = run(feed(&all[0]).epochs(1), usize::MAX).0;
    for samples in all.iter().filter(|samples| samples.label.is_some()) {
        let mut spec = feed(samples).spec().clone();
        spec.decoder = percolator::feed::DecoderSpec::Image;
        let found = run(FeedBuilder::from(spec).opener(Formats).epochs(1), usize::MAX).0;
        assert_same(samples, &found, &due);
    }
}

/// Receipts of contents hash the whole record, whichever parts are used.
#[test]
fn receipts_do_not_depend_on_the_parts_that_are_used() {
    let sum = |image: ExampleImage| {
        let feed = Feed::builder()
            .opener(Formats)
            .data(SourceSpec::files(golden("parquet/full_snappy.parquet")))
            .example(image)
            .transform(Transform::new().color(ColorMode::Color).resize(8, 8))
            .receipts(Receipts::Contents)
            .epochs(1);
        let mut feed = feed.build().unwrap();
        feed.steps().for_each(|step| drop(step.unwrap()));
        feed.receipt().unwrap().to_string()
    };
    let with = sum(ExampleImage::encoded("image").label("label"));
    assert_eq!(with, sum(ExampleImage::encoded("image")));
}
