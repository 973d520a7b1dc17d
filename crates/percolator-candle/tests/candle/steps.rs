//! A feed as steps of tensors: all records in order, errors once, snapshots in the middle, and a ring that
//! does not wait for tensors.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use candle_core::Device;
use percolator::{Epochs, Feed, FeedBuilder, FeedError, Shuffle};
use percolator_candle::{CandleError, CandleFeed as _, Tensors};
use percolator_proof::{EpochState, Verdict};
use tempfile::TempDir;

use crate::common::process::must_end;
use crate::made::{RECORDS, elements, feed, write_images};

const CPU: Device = Device::Cpu;

fn images(damaged: Option<u64>) -> (TempDir, FeedBuilder) {
    let folder = tempfile::tempdir().unwrap();
    let lmdb = folder.path().join("lmdb");
    write_images(&lmdb, damaged);
    (folder, Feed::builder().lmdb(lmdb).batch_size(4).labels_i64(true))
}

/// The labels of a step, and whether its pixels are those of these records.
fn labels(step: &Tensors) -> Vec<i64> {
    let labels: Vec<i64> = elements(step.get("label_i64").unwrap());
    let pixels: Vec<f32> = elements(step.get("data").unwrap());
    let wanted = labels.iter().flat_map(|&label| (0..4).map(move |at| (label + at) as f32));
    assert!(pixels.into_iter().eq(wanted));
    labels
}

#[test]
fn an_epoch_is_there_whole_and_in_order() {
    let (_folder, images) = images(None);
    let mut feed = images.epochs(2).build().unwrap();
    let mut seen = Vec::new();
    let mut ends = Vec::new();
    for step in feed.tensors(&CPU).unwrap() {
        let step = step.unwrap();
        let labels = labels(&step);
        assert_eq!(step.len(), labels.len());
        assert!(step.records().iter().zip(&labels).all(|(record, &label)| record.index == label as u64));
        seen.extend(labels);
        ends.extend(step.step().filter(|end| end.is_last).map(|end| (end.epoch, end.step, step.len())));
    }
    let once = 0..i64::try_from(RECORDS).unwrap();
    assert_eq!(seen, once.clone().chain(once).collect::<Vec<_>>());
    assert_eq!(ends, [(0, 5, 3), (1, 5, 3)]);
    assert!(feed.tensors(&CPU).unwrap().next().is_none(), "there is nothing more");
}

#[test]
fn a_ring_of_one_batch_goes_on_while_all_tensors_are_kept() {
    must_end("tensors that are kept", || {
        let (_folder, images) = images(None);
        let mut feed = images.epochs(1).prefetch(1).build().unwrap();
        let kept: Vec<Tensors> = feed.tensors(&CPU).unwrap().collect::<Result<_, _>>().unwrap();
        drop(feed);
        let seen: Vec<i64> = kept.iter().flat_map(labels).collect();
        assert_eq!(
            seen,
            (0..i64::try_from(RECORDS).unwrap()).collect::<Vec<_>>(),
            "and none was overwritten"
        );
    });
}

#[test]
fn only_the_wanted_fields_are_copied_with_what_accompanies_them() {
    let mut feed = feed().build().unwrap();
    let mut steps = feed.tensors(&CPU).unwrap().only(["words", "bool"]).unwrap();
    let step = steps.next().unwrap().unwrap();
    assert_eq!(step.names().collect::<Vec<_>>(), ["bool", "words", "words.lengths"]);
    let error = step.get("u8").unwrap_err().to_string();
    assert_eq!(error, "there is no tensor \"u8\"; there are \"bool\", \"words\", \"words.lengths\"");
    let error = feed.tensors(&CPU).unwrap().only(["word"]).unwrap_err().to_string();
    assert!(error.starts_with("there is no field \"word\"; there are u8: u8"), "{error}");
}

#[test]
fn each_lane_has_its_device_and_its_share() {
    must_end("a feed of three lanes", || {
        let (_folder, images) = images(None);
        let devices = (0..3).map(percolator::Device::host);
        let mut feed = images.epochs(1).devices(devices).build().unwrap();
        let mut seen = Vec::new();
        for step in feed.tensors_on(&[CPU, CPU, CPU]).unwrap().only(["data", "label_i64"]).unwrap() {
            let step = step.unwrap();
            assert_eq!(step.iter().map(Tensors::lane).collect::<Vec<_>>(), [0, 1, 2]);
            seen.extend(step.iter().flat_map(labels));
        }
        seen.sort_unstable();
        assert_eq!(seen, (0..i64::try_from(RECORDS).unwrap()).collect::<Vec<_>>());
    });
}

#[test]
fn a_lane_that_has_run_out_is_missing_from_the_last_step() {
    let (_folder, images) = images(None);
    let devices = (0..2).map(percolator::Device::host);
    // The first lane has 12 records, and the second 11.
    let mut feed = images.epochs(Epochs::OnePass).batch_size(11).devices(devices).build().unwrap();
    let steps: Vec<_> = feed.tensors_on(&[CPU, CPU]).unwrap().collect::<Result<_, _>>().unwrap();
    let lanes = |step: &Vec<Tensors>| step.iter().map(Tensors::lane).collect::<Vec<_>>();
    assert_eq!(lanes(&steps[0]), [0, 1]);
    assert_eq!(lanes(steps.last().unwrap()), [0]);
    let seen: usize = steps.iter().flatten().map(Tensors::len).sum();
    assert_eq!(seen as u64, RECORDS);
}

#[test]
fn a_damaged_record_ends_the_steps_once_and_is_named() {
    must_end("a feed with a damaged record", || {
        let (folder, images) = images(Some(9));
        let mut feed = images.epochs(1).build().unwrap();
        let mut steps = feed.tensors(&CPU).unwrap();
        let good: Vec<i64> = steps.by_ref().take(2).flat_map(|step| labels(&step.unwrap())).collect();
        assert_eq!(good, (0..8).collect::<Vec<_>>());
        let error = steps.next().unwrap().unwrap_err();
        let CandleError::Feed(FeedError::Record(record)) = &error else { panic!("{error}") };
        assert_eq!((record.id.index, &*record.key.0), (9, &b"00000009"[..]));
        let text = error.to_string();
        assert!(text.contains(&folder.path().join("lmdb").display().to_string()), "{text}");
        assert!(text.contains("key \"00000009\""), "{text}");
        assert!(steps.next().is_none() && steps.next().is_none(), "nothing comes after it");
    });
}

#[test]
fn a_run_resumes_from_a_snapshot_that_is_taken_while_it_steps() {
    let (_folder, images) = images(None);
    let describe = || images.clone().epochs(3).shuffle(Shuffle::Global).seed(7).receipts(true);
    let run = |feed: FeedBuilder, steps: usize| {
        let mut feed = feed.build().unwrap();
        let mut stepping = feed.tensors(&CPU).unwrap();
        let seen: Vec<_> = stepping.by_ref().take(steps).map(|step| labels(&step.unwrap())).collect();
        (seen, stepping.snapshot().unwrap(), stepping.take_receipt().unwrap())
    };
    let (whole, _, _) = run(describe(), usize::MAX);
    assert_eq!(whole.len(), 18);
    // In the middle of the second epoch.
    let (before, snapshot, first) = run(describe(), 9);
    let (after, _, second) = run(describe().resume(&snapshot), usize::MAX);
    assert_eq!([before, after].concat(), whole);
    let verdict = Verdict::of([("first", &first), ("second", &second)]).unwrap();
    assert!(verdict.is_sound() && verdict.epochs.iter().all(|epoch| epoch.state == EpochState::Covered));
}

#[test]
fn receipts_that_are_off_are_none() {
    let mut feed = feed().receipts(false).build().unwrap();
    let mut steps = feed.tensors(&CPU).unwrap();
    let _ = steps.next().unwrap().unwrap();
    assert!(steps.take_receipt().is_none());
    let mut steps = feed.tensors_on(&[CPU]).unwrap();
    assert!(steps.take_receipt().is_none() && steps.snapshot().is_ok());
}
