//! A job is measured as its feed is: rounds, what binds in them, an end on request, and the diagnosis.
//! The measurements are so short that no rate means anything, and none is asserted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod limits;

use std::path::{Path, PathBuf};
use std::time::Duration;

use percolator::proto::Datum;
use percolator::tfrecord::{Compression, TfRecordWriter};
use percolator::{Epochs, Feed, FeedBuilder, Transform};
use percolator_measure::doctor::{Change, Options, examine};
use percolator_measure::{Job, Limit, MeasureError, Progress, binding, shares, stages};
use prost::Message as _;
use tempfile::{TempDir, tempdir};

const RECORDS: u8 = 200;
const LENGTH: Duration = Duration::from_millis(5);

/// A file of images of 1x4x4.
fn data() -> (TempDir, PathBuf) {
    let folder = tempdir().unwrap();
    let path = folder.path().join("images.tfrecord");
    let mut writer = TfRecordWriter::create(&path, Compression::Plain).unwrap();
    for number in 0..RECORDS {
        let datum = Datum {
            channels: Some(1),
            height: Some(4),
            width: Some(4),
            label: Some(i32::from(number % 7)),
            data: Some((0..16).collect()),
            ..Datum::default()
        };
        writer.write(&datum.encode_to_vec()).unwrap();
    }
    writer.finish().unwrap();
    (folder, path)
}

fn feed(path: &Path) -> FeedBuilder {
    Feed::builder().tfrecord(path).batch_size(8).threads(2)
}

#[test]
fn rounds_say_what_binds() {
    let (_folder, path) = data();
    let job = Job::new(feed(&path)).unwrap();
    assert_eq!((job.threads(), job.is_cold()), (2, false));
    assert!(job.batch_bytes() >= 8 * 16 * size_of::<f32>() && job.load().unwrap());
    let progress = Progress::new();
    let rounds = job.rounds(2, LENGTH, &progress).unwrap();
    assert_eq!((rounds.len(), progress.done(), progress.total()), (2, 2, 2));
    assert!(rounds.iter().all(|round| round.records_per_s() > 0.0));
    let (shares, binding) = (shares(&rounds), binding(&rounds));
    assert_eq!(shares[&binding.limit], binding.share);
    assert!(shares.contains_key(&Limit::ReadN) && !shares.contains_key(&Limit::Decode), "{shares:?}");
    let names: Vec<_> = stages(&rounds).into_iter().map(|stage| stage.stage).collect();
    assert_eq!(names, ["reader", "workers", "lane host:0", "consumer host:0"]);
}

#[test]
fn a_measurement_ends_when_it_is_asked_to() {
    let (_folder, path) = data();
    // Its step is an hour.
    let job = Job::new(feed(&path)).unwrap().step(Duration::from_secs(3600));
    let progress = Progress::new();
    progress.stop();
    let stopped = job.rounds(1, LENGTH, &progress).unwrap_err();
    assert!(matches!(stopped, MeasureError::Stopped), "{stopped}");
    let stopped = examine(job, &Options::default(), &progress).unwrap_err();
    assert!(matches!(stopped, MeasureError::Stopped), "{stopped}");
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let (folder, path) = data();
    let missing = Job::new(feed(&folder.path().join("none"))).unwrap_err().to_string();
    assert!(missing.contains("none"), "{missing}");
    let large = Job::new(feed(&path).transform(Transform::new().crop(5))).unwrap_err();
    assert!(matches!(large, MeasureError::Feed(_)), "{large}");
    let once = Job::new(feed(&path).epochs(Epochs::OnePass)).unwrap();
    let ended = once.rounds(1, Duration::from_secs(600), &Progress::new());
    assert!(matches!(ended, Err(MeasureError::EndedEarly)), "{ended:?}");
}

#[test]
fn a_diagnosis_is_of_the_feed_as_it_is() {
    let (_folder, path) = data();
    let mut options = Options::default();
    options.length = LENGTH;
    let is_cold = cfg!(target_os = "linux");
    let job = Job::new(feed(&path).transform(Transform::new().mean_value(200.0))).unwrap().cold(is_cold);
    let diagnosis = examine(job, &options, &Progress::new()).unwrap();
    assert_eq!((diagnosis.records, diagnosis.looked_at), (Some(RECORDS.into()), Some(RECORDS.into())));
    assert!(diagnosis.is_wrong(), "no such mean: {:?}", diagnosis.findings);
    let pipeline = diagnosis.pipeline.unwrap();
    assert_eq!((pipeline.threads, pipeline.is_cold), (2, is_cold));
    let changes: Vec<_> = pipeline.trials.iter().map(|trial| trial.change).collect();
    let [workers, Change::Ring { .. }, Change::ReadFiles] = &*changes else { panic!("{changes:?}") };
    assert_eq!(*workers.to_string(), *"3 worker(s) instead of 2");
}
