//! Mixed batches, as a feed gives them: beside the same batches unmixed, with other threads, after a resume.

#![allow(missing_docs, clippy::unwrap_used, reason = "a test")]

use percolator::bad::BadRecords;
use percolator::transform::{Mixing, TransformPlace};
use percolator::{Batch, Dtype, Feed, FeedBuilder, LastBatch, RawBytes, Shuffle, Target};

use crate::common::source::MemorySource;
use crate::common::{datum, float_datum, key};

const CLASSES: usize = 7;
const SIDE: usize = 8;
const PIXELS: usize = 2 * SIDE * SIDE;

/// Images whose pixels say which record and which place they are.
fn images(count: u8) -> MemorySource {
    let image =
        |index: u8| (0..PIXELS).map(|at| index.wrapping_mul(37) ^ u8::try_from(at % 256).unwrap()).collect();
    let label = |index: u8| i32::from(index) % 7;
    let side = i32::try_from(SIDE).unwrap();
    let record = |index: u8| (key(index.into()), datum(2, side, side, label(index), image(index)));
    MemorySource::new("images", (0..count).map(record))
}

fn feed() -> FeedBuilder {
    let feed = Feed::builder().source(images(22)).batch_size(4).epochs(3).shuffle(Shuffle::Global).seed(5);
    feed.last_batch(LastBatch::Pad).soft_labels(CLASSES)
}

/// What a batch has of each record, and how many of its rows are records.
#[derive(Clone, Debug, PartialEq)]
struct Found {
    records: usize,
    pixels: Vec<f32>,
    labels: Vec<i32>,
    shares: Vec<f32>,
    mixed: Vec<(i64, f32)>,
}

fn found(batch: &Batch) -> Found {
    let others = batch.get::<i64>("label_mixed").map(|others| others.to_vec()).unwrap_or_default();
    let weights = batch.get::<f32>("label_weight").map(|weights| weights.to_vec()).unwrap_or_default();
    Found {
        records: batch.records().len(),
        pixels: batch.get::<f32>("data").unwrap().to_vec(),
        labels: batch.get::<i32>("label").unwrap().to_vec(),
        shares: batch.get::<f32>("label_soft").unwrap().to_vec(),
        mixed: others.into_iter().zip(weights).collect(),
    }
}

fn run(feed: FeedBuilder) -> Vec<Found> {
    let mut feed = feed.build().unwrap();
    let lane = feed.take_lanes().unwrap().remove(0);
    lane.map(|batch| found(&batch.unwrap())).collect()
}

/// The row before, of those that are records.
fn before(row: usize, records: usize) -> usize {
    (row + records - 1) % records
}

/// Checks what mixing made of a batch; returns the weight, and whether every pixel is of one of the two
/// images.
fn check(plain: &Found, mixed: &Found) -> (f32, bool) {
    let records = plain.records;
    let (_, weight) = mixed.mixed[0];
    assert_eq!((&mixed.labels, mixed.records), (&plain.labels, records));
    let mut is_cut = true;
    for row in 0..records {
        let other = before(row, records);
        assert_eq!(mixed.mixed[row], (plain.labels[other].into(), weight));
        let pixels = |found: &Found, row: usize| found.pixels[row * PIXELS..(row + 1) * PIXELS].to_vec();
        let (own, other_pixels, made) = (pixels(plain, row), pixels(plain, other), pixels(mixed, row));
        let is_of_one = |at: usize| made[at] == own[at] || made[at] == other_pixels[at];
        let is_share = |at: usize| made[at] == other_pixels[at] * (1.0 - weight) + own[at] * weight;
        is_cut &= (0..PIXELS).all(is_of_one);
        assert!((0..PIXELS).all(is_of_one) || (0..PIXELS).all(is_share), "row {row}");
        let mut shares = vec![0.0; CLASSES];
        shares[usize::try_from(plain.labels[other]).unwrap()] += 1.0 - weight;
        shares[usize::try_from(plain.labels[row]).unwrap()] += weight;
        assert_eq!(mixed.shares[row * CLASSES..(row + 1) * CLASSES], shares);
    }
    // Padding stays.
    assert!(mixed.pixels[records * PIXELS..].iter().all(|&pixel| pixel == 0.0));
    assert!(mixed.mixed[records..].iter().all(|pair| *pair == (0, 0.0)));
    (weight, is_cut)
}

#[test]
fn a_batch_is_its_records_each_mixed_with_the_one_before() {
    let plain = run(feed());
    let one_hot: Vec<f32> = (0..CLASSES)
        .map(|class| f32::from(u8::from(i32::try_from(class).unwrap() == plain[0].labels[0])))
        .collect();
    assert_eq!(plain[0].shares[..CLASSES], one_hot);
    let weights = |mixing: Mixing| -> Vec<(f32, bool)> {
        let mixed = run(feed().mixing(mixing));
        assert_eq!((mixed.len(), plain.len()), (18, 18));
        plain.iter().zip(&mixed).map(|(plain, mixed)| check(plain, mixed)).collect()
    };
    let shares = weights(Mixing::new().mixup(1.0));
    assert!(shares.iter().all(|(_, is_cut)| !is_cut));
    let mut distinct: Vec<f32> = shares.iter().map(|(weight, _)| *weight).collect();
    distinct.sort_unstable_by(f32::total_cmp);
    distinct.dedup();
    assert_eq!(distinct.len(), 18, "each batch of each epoch has its own");
    assert!(weights(Mixing::new().cutmix(1.0)).iter().all(|(_, is_cut)| *is_cut));
    let both = weights(Mixing::new().cutmix(1.0).mixup(1.0));
    let cut = both.iter().filter(|(_, is_cut)| *is_cut).count();
    assert!((3..16).contains(&cut), "{cut} of 18");
}

/// A batch that is not mixed has its records' own labels.
#[test]
fn a_batch_may_stay_as_it_is() {
    let plain = run(feed());
    let seldom = run(feed().mixing(Mixing::new().mixup(1.0).probability(0.5)));
    let stayed: Vec<_> =
        plain.iter().zip(&seldom).filter(|(plain, found)| plain.pixels == found.pixels).collect();
    assert!((3..16).contains(&stayed.len()), "{} of 18", stayed.len());
    for (plain, found) in stayed {
        let own = plain.labels[..plain.records].iter().map(|&label| (i64::from(label), 1.0));
        assert!(found.mixed[..plain.records].iter().copied().eq(own) && found.shares == plain.shares);
    }
}

#[test]
fn what_is_mixed_depends_on_the_plan_alone() {
    let mixing = Mixing::new().mixup(0.4).cutmix(1.0).probability(0.8);
    let one = run(feed().mixing(mixing).threads(1));
    assert!(run(feed().mixing(mixing).threads(4)) == one);
    assert!(run(feed().mixing(mixing).seed(6)) != one);
    let mut begun = feed().mixing(mixing).build().unwrap();
    begun.steps().take(8).for_each(|step| drop(step.unwrap()));
    let resumed = feed().mixing(mixing).resume(&begun.snapshot().unwrap());
    assert!(run(resumed) == one[8..], "after a resume");
    let spec = serde_json::to_string(feed().mixing(mixing).spec()).unwrap();
    assert!(spec.contains(r#""mixing":{"mixup":0.4,"cutmix":1.0,"probability":0.8}"#), "{spec}");
}

#[test]
fn a_label_that_is_no_class_is_a_bad_record() {
    let label = |index: usize| if index == 2 { 7 } else { 1 };
    let records = || (0..4).map(|index| (key(index), datum(1, 1, 1, label(index), vec![9])));
    let feed = || Feed::builder().source(MemorySource::new("images", records())).batch_size(2).epochs(1);
    let mut failing = feed().soft_labels(CLASSES).build().unwrap();
    let failed = failing.take_lanes().unwrap().remove(0).find_map(Result::err).unwrap().to_string();
    assert!(
        failed.contains("record 2") && failed.contains("label is 7, and soft labels are of 7 classes"),
        "{failed}"
    );
    let skipping = BadRecords::skip();
    assert_eq!(run(feed().soft_labels(CLASSES).bad_records(skipping)).len(), 2);
}

#[test]
fn what_cannot_be_mixed_is_refused_before_the_first_batch() {
    let refused = |feed: FeedBuilder| feed.build().unwrap_err().to_string();
    let mixing = || Mixing::new().mixup(0.2);
    let floats = MemorySource::new("floats", vec![(key(0), float_datum(1, 1, 1, 0, vec![1.0]))]);
    let raw = Feed::builder().source(images(3)).decoder(RawBytes::up_to(999));
    for (found, words) in [
        (refused(feed().mixing(Mixing::new())), "mixing: neither mixup nor cutmix is set"),
        (
            refused(feed().mixing(mixing().cutmix(-1.0))),
            "mixing: the alpha of cutmix is -1; it must be from 0.001 to 1000",
        ),
        (
            refused(feed().mixing(mixing().probability(2.0))),
            "mixing: the probability is 2; it must be from 0 to 1",
        ),
        (
            refused(feed().mixing(mixing()).dtype(Dtype::U8)),
            "batches of u8 cannot be mixed: make their dtype f32",
        ),
        (
            refused(feed().mixing(mixing()).transform_on(TransformPlace::Device)),
            "batches that a device transforms cannot be mixed: transform them on the host",
        ),
        (
            refused(feed().source(floats).mixing(mixing()).target(Target::float_data())),
            "batches with targets cannot be mixed",
        ),
        (refused(raw.mixing(mixing())), "mixing is for Caffe's image records"),
        (refused(feed().soft_labels(0)), "soft_labels is 0"),
    ] {
        assert!(found.contains(words), "{found}");
    }
}
