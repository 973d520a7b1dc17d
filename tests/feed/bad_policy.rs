//! What a feed does with bad records: each policy beside a naive twin, over random data, orders, lanes and
//! threads; the file that names bad records; resumes, and receipts.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::path::Path;

use percolator::bad::{BadAction, BadRecords, Quarantined};
use percolator::batch::Field;
use percolator::decoder::Decoded;
use percolator::feed::ConfigError;
use percolator::record::RecordId;
use percolator::source::{FnSource, ImageList, ImageListError, Joined, Record, SourceError};
use percolator::tfrecord::{Compression, TfRecordWriter};
use percolator::{
    Batch, DecodeFailure, Device, Dtype, Epochs, Feed, FeedBuilder, FeedError, LastBatch, Receipt, Row,
    Shuffle, Snapshot,
};
use percolator_proof::{EpochState, Verdict};
use proptest::prelude::*;

use crate::bad_shapes::png;
use crate::common::process::must_end;

/// What a batch has: the name and the bytes of each row, and its bad records with what replaced them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Seen {
    rows: Vec<(RecordId, RowBytes)>,
    padding: usize,
    bad: Vec<(RecordId, Option<RecordId>)>,
}

type RowBytes = (Vec<u8>, Vec<i32>, Vec<i64>, i64);

pub(crate) fn fields() -> [Field; 3] {
    [
        Field::new("image", Dtype::U8, [3, 1]),
        Field::ragged("tokens", Dtype::I32, 4),
        Field::padded("padded", Dtype::I64, 4, -1),
    ]
}

/// Refuses a record after it has written a part of its row, if the record's second byte says so.
pub(crate) fn decode(record: &Record<'_>, row: &mut Row<'_>) -> Decoded {
    let [at, is_bad] = record.value else { return Err(DecodeFailure::new("not two bytes")) };
    let tokens: Vec<i32> = (0..at % 5).map(|token| i32::from(at + token)).collect();
    row.write("image", &[*at, at + 1, at + 2])?;
    if *is_bad != 0 {
        return Err(DecodeFailure::new(format!("it says {is_bad}")));
    }
    row.write("tokens", &tokens)?;
    row.write("padded", &tokens.iter().map(|&token| token.into()).collect::<Vec<i64>>())?;
    Ok(())
}

/// `records` records of two bytes, of which those in `bad` are marked.
pub(crate) fn feed(records: u64, bad: &BTreeSet<u64>) -> FeedBuilder {
    let bad = bad.clone();
    let source = FnSource::new("made", records, move |position, to| {
        to.extend([u8::try_from(position).unwrap(), u8::from(bad.contains(&position))]);
        Ok(())
    });
    Feed::builder().source(source).decode(fields(), decode).batch_size(4)
}

fn see(batch: &Batch) -> Seen {
    let (images, tokens) = (batch.get::<u8>("image").unwrap(), batch.ragged::<i32>("tokens").unwrap());
    let padded = batch.get::<i64>("padded").unwrap();
    let lengths = batch.field("padded").unwrap().lengths().unwrap();
    let row = |row: usize| {
        (images.row(row).to_vec(), tokens.row(row).to_vec(), padded.row(row).to_vec(), lengths[row])
    };
    for number in batch.len()..batch.rows() {
        assert_eq!(row(number), (vec![0; 3], Vec::new(), vec![-1; 4], 0), "padding");
    }
    Seen {
        rows: batch.records().iter().enumerate().map(|(number, id)| (*id, row(number))).collect(),
        padding: batch.rows() - batch.len(),
        bad: batch.bad_records().iter().map(|bad| (bad.id, bad.replaced_by)).collect(),
    }
}

/// What the lanes deliver, step by step, until the end or an error.
pub(crate) fn steps(builder: FeedBuilder, most: usize) -> (Vec<Vec<Seen>>, Option<FeedError>) {
    must_end("a feed with bad records", move || {
        let mut feed = match builder.build() {
            Ok(feed) => feed,
            Err(error) => return (Vec::new(), Some(error)),
        };
        let mut seen = Vec::new();
        for step in feed.steps().take(most) {
            match step {
                Ok(batches) => seen.push(batches.iter().map(see).collect()),
                Err(error) => return (seen, Some(error)),
            }
        }
        (seen, None)
    })
}

/// The naive twin: what becomes of a batch whose records are all good, if these are bad.
fn expected(whole: &Seen, bad: &BTreeSet<u64>, action: BadAction, pads: bool) -> Seen {
    let rows = &whole.rows;
    let is_bad = |row: &usize| bad.contains(&rows[*row].0.index);
    let left_out: Vec<usize> = (0..rows.len()).filter(is_bad).collect();
    let good: Vec<usize> = (0..rows.len()).filter(|row| !is_bad(row)).collect();
    if action == BadAction::Skip || good.is_empty() {
        return Seen {
            rows: good.iter().map(|&row| rows[row].clone()).collect(),
            padding: if pads { whole.padding + left_out.len() } else { 0 },
            bad: left_out.iter().map(|&row| (rows[row].0, None)).collect(),
        };
    }
    let donor = |row: usize| good.iter().find(|&&at| at >= row).or(good.first()).copied().unwrap();
    Seen {
        rows: (0..rows.len()).map(|row| rows[donor(row)].clone()).collect(),
        padding: whole.padding,
        bad: left_out.iter().map(|&row| (rows[row].0, Some(rows[donor(row)].0))).collect(),
    }
}

fn any_policy() -> BadRecords {
    BadRecords::skip().at_most_rate(1.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]
    #[test]
    fn a_batch_goes_without_its_bad_records_as_a_naive_twin_says(
        records in 1_u64..60,
        bad in prop::collection::btree_set(0_u64..60, 0..20),
        batch_size in 1_usize..9,
        lanes in 1_usize..4,
        threads in 1_usize..4,
        replaces in any::<bool>(),
        plan in 0_usize..5,
    ) {
        let order = |builder: FeedBuilder| {
            let devices = (0..lanes).map(Device::host);
            let builder = builder.batch_size(batch_size).devices(devices).threads(threads);
            match plan {
                0 => builder.epochs(Epochs::OnePass),
                1 => builder.epochs(2),
                2 => builder.epochs(2).shuffle(Shuffle::Global).last_batch(LastBatch::Pad),
                3 => builder.epochs(2).shuffle(Shuffle::Global).last_batch(LastBatch::Wrap),
                _ => builder,
            }
        };
        let action = if replaces { BadAction::Replace } else { BadAction::Skip };
        let policy = if replaces { BadRecords::replace() } else { BadRecords::skip() }.at_most_rate(1.0);
        let most = 40;
        let (whole, error) = steps(order(feed(records, &BTreeSet::new())), most);
        prop_assert_eq!(error, None);
        let (seen, error) = steps(order(feed(records, &bad)).bad_records(policy), most);
        let twin = |step: &Vec<Seen>| -> Vec<Seen> {
            step.iter().map(|batch| expected(batch, &bad, action, plan == 2)).collect()
        };
        prop_assert_eq!(error, None);
        prop_assert_eq!(seen, whole.iter().map(twin).collect::<Vec<_>>());
    }
}

#[test]
fn a_receipt_to_which_steps_with_bad_records_were_added_twice_says_so() {
    let mut feed =
        feed(8, &BTreeSet::from([1])).epochs(1).receipts(true).bad_records(any_policy()).build().unwrap();
    feed.steps().for_each(|step| drop(step.unwrap()));
    let mut receipt = feed.receipt().unwrap();
    receipt.merge(&receipt.clone()).unwrap();
    let read: Receipt = receipt.to_string().parse().unwrap();
    assert_eq!(read, receipt);
    let verdict = Verdict::of([("twice", &read)]).unwrap();
    assert_eq!((verdict.epochs[0].state, verdict.epochs[0].doubled.count), (EpochState::Broken, 8));
}

#[test]
fn a_run_that_resumes_skips_the_same_and_keeps_count() {
    let bad = BTreeSet::from([1, 2, 9, 17, 30]);
    let builder = || {
        let builder = feed(40, &bad).epochs(3).shuffle(Shuffle::Global).seed(5).receipts(true);
        builder.devices([0, 1].map(Device::host)).bad_records(BadRecords::skip().at_most(5))
    };
    let (whole, error) = steps(builder(), usize::MAX);
    assert_eq!(error, None);
    for stop in [1, 3, 5, 7] {
        let mut feed = builder().build().unwrap();
        let taken: Vec<Vec<Seen>> =
            feed.steps().take(stop).map(|step| step.unwrap().iter().map(see).collect()).collect();
        assert_eq!(taken, whole[..stop]);
        let before = feed.receipt().unwrap();
        let snapshot: Snapshot = feed.snapshot().unwrap().to_string().parse().unwrap();
        assert_eq!(snapshot, feed.snapshot().unwrap());
        let epoch = |seen: &Seen| seen.rows[0].0.epoch;
        let last = taken.last().unwrap().iter().map(epoch).max().unwrap();
        let skipped = taken.iter().flatten().filter(|seen| epoch(seen) == last).map(|seen| seen.bad.len());
        assert_eq!(snapshot.bad_records(), skipped.sum::<usize>() as u64, "after {stop} steps");
        let mut resumed = builder().resume(&snapshot).build().unwrap();
        let rest: Vec<Vec<Seen>> =
            resumed.steps().map(|step| step.unwrap().iter().map(see).collect()).collect();
        assert_eq!(rest, whole[stop..]);
        // The receipts of both say what was left out, and nothing is missing.
        let after = resumed.receipt().unwrap();
        let receipts: Vec<Receipt> =
            [before, after].iter().map(|receipt| receipt.to_string().parse().unwrap()).collect();
        let verdict = Verdict::of(receipts.iter().map(|receipt| ("a receipt", receipt))).unwrap();
        assert!(verdict.is_sound());
        for epoch in &verdict.epochs {
            assert_eq!((epoch.state, epoch.bad.count, epoch.delivered), (EpochState::Covered, 5, 35));
            assert_eq!(epoch.bad.to_string(), "1-2, 9, 17, 30");
            let text = epoch.to_string();
            assert!(text.contains("covered: 35 records, each once"), "{text}");
            assert!(text.contains("5 bad, and left out: 1-2, 9, 17, 30"), "{text}");
        }
    }
}

#[test]
fn another_world_skips_the_same_records_and_a_copy_is_no_delivery() {
    let bad = BTreeSet::from([1, 2, 9, 17, 30]);
    for (lanes, policy) in
        [(1, any_policy()), (3, any_policy()), (3, BadRecords::replace().at_most_rate(1.0))]
    {
        let builder = feed(40, &bad).epochs(1).shuffle(Shuffle::Global).receipts(true);
        let mut feed = builder.devices((0..lanes).map(Device::host)).bad_records(policy).build().unwrap();
        for step in feed.steps() {
            step.unwrap();
        }
        let receipt = feed.receipt().unwrap();
        let verdict = Verdict::of([("it", &receipt)]).unwrap();
        assert!(verdict.is_sound(), "{:?}", verdict.epochs);
        assert_eq!(verdict.epochs[0].bad.to_string(), "1-2, 9, 17, 30");
        assert_eq!((verdict.epochs[0].delivered, verdict.epochs[0].missing.count), (35, 0));
    }
    // A bad record that is not said to be one is missing.
    let mut feed = feed(40, &bad).epochs(1).receipts(true).bad_records(any_policy()).build().unwrap();
    feed.steps().for_each(|step| drop(step.unwrap()));
    let text = feed.receipt().unwrap().to_string();
    let (facts, _) = text.split_once("bad ").unwrap();
    let forged = with_checksum(facts);
    let receipt: Receipt = forged.parse().unwrap();
    assert!(!Verdict::of([("it", &receipt)]).unwrap().is_sound());
}

/// The text with the last line that says that it is whole.
fn with_checksum(facts: &str) -> String {
    // CRC-32C, as all of Percolator's texts have it.
    format!("{facts}checksum {:08x}\n", crc32c::crc32c(facts.as_bytes()))
}

#[test]
fn a_single_pass_with_bad_records_starts_again() {
    let bad = BTreeSet::from([1, 6]);
    let mut feed = feed(8, &bad).epochs(Epochs::OnePass).bad_records(any_policy()).build().unwrap();
    for _round in 0..3 {
        // Without looking for the end.
        let batches = feed.epoch().unwrap().take(2).map(|batch| batch.unwrap().len());
        assert_eq!(batches.collect::<Vec<_>>(), [3, 3]);
    }
}

#[test]
fn each_round_has_its_own_count_of_bad_records() {
    let bad = BTreeSet::from([6, 7]);
    let policy = any_policy().at_most(2);
    let mut feed = feed(8, &bad).epochs(Epochs::OnePass).bad_records(policy).build().unwrap();
    for _round in 0..3 {
        // The last batch has only bad ones.
        let batches = feed.epoch().unwrap().map(|batch| batch.unwrap().bad_records().len());
        assert_eq!(batches.sum::<usize>(), 2);
    }
}

#[test]
fn a_failure_that_is_not_of_the_record_ends_the_feed() {
    let source = FnSource::new("made", 8, |position, to| {
        to.push(u8::try_from(position).unwrap());
        Ok(())
    });
    let decode = |record: &Record<'_>, row: &mut Row<'_>| -> Decoded {
        match record.value[0] {
            6 => Err(DecodeFailure::not_of_record("the service does not answer")),
            byte => Ok(row.set(0, byte)?),
        }
    };
    let feed = Feed::builder().source(source).decode([Field::scalar("byte", Dtype::U8)], decode);
    let mut feed = feed.batch_size(4).epochs(Epochs::OnePass).bad_records(any_policy()).build().unwrap();
    let error = feed.steps().find_map(Result::err).unwrap();
    assert!(error.to_string().ends_with("the service does not answer"), "{error}");
}

#[test]
fn a_policy_that_cannot_be_is_refused() {
    let none = BTreeSet::new();
    for share in [-0.1, 1.5, f64::NAN] {
        let refused = feed(4, &none).bad_records(BadRecords::skip().at_most_rate(share)).build().unwrap_err();
        assert!(matches!(refused, FeedError::Config(ConfigError::BadRate { .. })), "{refused}");
    }
    let file = tempfile::tempdir().unwrap();
    let useless = BadRecords::fail().quarantine(file.path().join("bad.tfrecord"));
    let refused = feed(4, &none).bad_records(useless).build().unwrap_err();
    assert!(matches!(refused, FeedError::Config(ConfigError::UselessQuarantine)), "{refused}");
    let folder = BadRecords::skip().quarantine(file.path());
    let refused = feed(4, &none).bad_records(folder).build().unwrap_err();
    assert!(matches!(refused, FeedError::Quarantine(_)), "{refused}");
}

#[test]
fn a_panic_is_no_bad_record() {
    let source = FnSource::new("made", 8, |position, to| {
        to.push(u8::try_from(position).unwrap());
        Ok(())
    });
    let decode = |record: &Record<'_>, row: &mut Row<'_>| -> Decoded {
        assert!(record.value[0] != 6, "a panic of the test");
        Ok(row.set(0, record.value[0])?)
    };
    let feed = Feed::builder().source(source).decode([Field::scalar("byte", Dtype::U8)], decode);
    let mut feed = feed.batch_size(4).epochs(Epochs::OnePass).bad_records(any_policy()).build().unwrap();
    let error = feed.steps().find_map(Result::err).unwrap();
    assert!(matches!(error, FeedError::Record(_)) && error.to_string().contains("panicked"), "{error}");
}

#[test]
fn the_file_names_each_bad_record_once_with_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.tfrecord");
    let bad = BTreeSet::from([2, 3, 11]);
    let policy = || any_policy().quarantine(&file);
    for epochs in [1, 3] {
        let (_, error) = steps(feed(16, &bad).epochs(epochs).bad_records(policy()), usize::MAX);
        assert_eq!(error, None);
        let mut named = Quarantined::read(&file).unwrap();
        named.sort_by_key(|entry| entry.number);
        let numbers: Vec<u64> = named.iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, [2, 3, 11], "each is named once, in however many epochs it comes");
        assert_eq!(named[2].value, [11, 1]);
        assert_eq!((named[2].source.as_path(), &named[2].key.0[..]), (Path::new("made"), &b"00000011"[..]));
        assert_eq!((named[2].epoch, &*named[2].reason), (0, "it says 1"));
    }
    // A writer that was killed leaves a part of an entry, which the next one cuts off.
    let whole = std::fs::read(&file).unwrap();
    for cut in [1, 7, whole.len() / 3] {
        std::fs::write(&file, &whole[..whole.len() - cut]).unwrap();
        let left = Quarantined::read(&file).unwrap().len();
        assert!(left < 3);
        let (_, error) = steps(feed(16, &bad).epochs(1).bad_records(policy()), usize::MAX);
        assert_eq!((error, Quarantined::read(&file).unwrap().len()), (None, 3));
    }
    // What is no entry from the start is somebody else's file.
    std::fs::write(&file, "todo\n").unwrap();
    let (_, error) = steps(feed(16, &bad).epochs(1).bad_records(policy()), usize::MAX);
    assert!(matches!(&error, Some(FeedError::Quarantine(_))), "{error:?}");
    assert_eq!(std::fs::read(&file).unwrap(), b"todo\n");
    // Damage is no cut end: nothing is thrown away.
    let mut damaged = whole.clone();
    damaged[20] ^= 1;
    std::fs::write(&file, &damaged).unwrap();
    let (_, error) = steps(feed(16, &bad).epochs(1).bad_records(policy()), usize::MAX);
    assert!(matches!(&error, Some(FeedError::Quarantine(_))), "{error:?}");
    assert_eq!(std::fs::read(&file).unwrap(), damaged);
}

#[test]
fn feeds_that_run_at_one_time_share_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.tfrecord");
    let bad: BTreeSet<u64> = (0..60).step_by(3).skip(1).collect();
    std::thread::scope(|scope| {
        for _feed in 0..4 {
            scope.spawn(|| {
                let policy = any_policy().quarantine(&file);
                let (_, error) = steps(feed(60, &bad).epochs(2).threads(3).bad_records(policy), usize::MAX);
                assert_eq!(error, None);
            });
        }
    });
    let named: Vec<u64> = Quarantined::read(&file).unwrap().iter().map(|entry| entry.number).collect();
    assert_eq!(named.len(), bad.len(), "no record is named twice");
    assert_eq!(named.into_iter().collect::<BTreeSet<_>>(), bad);
}

/// TFRecords of one byte, of which some have a wrong checksum.
fn damaged_tfrecord(path: &Path, compression: Compression, bad: &[usize]) {
    let plain = path.with_extension("plain");
    let mut writer = TfRecordWriter::create(&plain, Compression::Plain).unwrap();
    (0..20_u8).for_each(|number| writer.write(&[number]).unwrap());
    writer.finish().unwrap();
    let mut bytes = std::fs::read(&plain).unwrap();
    for record in bad {
        bytes[record * 17 + 12] ^= 0x80;
    }
    let mut packed = Vec::new();
    match compression {
        Compression::Plain => packed = bytes,
        Compression::Zlib => {
            std::io::copy(
                &mut flate2::read::ZlibEncoder::new(&*bytes, flate2::Compression::fast()),
                &mut packed,
            )
            .unwrap();
        }
        Compression::Gzip => {
            std::io::copy(
                &mut flate2::read::GzEncoder::new(&*bytes, flate2::Compression::fast()),
                &mut packed,
            )
            .unwrap();
        }
    }
    std::fs::write(path, packed).unwrap();
}

#[test]
fn a_tfrecord_with_a_wrong_checksum_is_bad_however_its_file_is_read() {
    use percolator::source::Access;

    let folder = tempfile::tempdir().unwrap();
    for bad in [vec![0, 7, 8, 19], vec![3]] {
        for (compression, access) in [
            (Compression::Plain, Access::Mapped),
            (Compression::Plain, Access::Read),
            (Compression::Gzip, Access::Auto),
            (Compression::Zlib, Access::Auto),
        ] {
            let path = folder.path().join("data.tfrecord");
            damaged_tfrecord(&path, compression, &bad);
            let quarantine = folder.path().join("bad.tfrecord");
            let decode =
                |record: &Record<'_>, row: &mut Row<'_>| -> Decoded { Ok(row.set(0, record.value[0])?) };
            let builder = || {
                let feed = Feed::builder().tfrecord(&path).access(access).batch_size(4);
                feed.decode([Field::scalar("byte", Dtype::U8)], decode)
            };
            let error = builder()
                .epochs(Epochs::OnePass)
                .build()
                .and_then(|mut feed| feed.steps().try_for_each(|step| step.map(drop)));
            assert!(error.unwrap_err().to_string().contains("checksum"));
            let policy = any_policy().quarantine(&quarantine);
            let mut feed = builder().epochs(Epochs::OnePass).bad_records(policy).build().unwrap();
            let (mut bytes, mut skipped) = (Vec::new(), Vec::new());
            for batch in feed.steps().flat_map(Result::unwrap) {
                bytes.extend_from_slice(batch.get::<u8>("byte").unwrap().into_slice());
                skipped.extend(batch.bad_records().iter().map(|bad| usize::try_from(bad.id.index).unwrap()));
            }
            let good = |number: &u8| !bad.contains(&usize::from(*number));
            assert_eq!(bytes, (0..20).filter(good).collect::<Vec<u8>>(), "{compression} {access:?}");
            assert_eq!(skipped, bad);
            let named = Quarantined::read(&quarantine).unwrap();
            assert_eq!(named.len(), bad.len());
            assert!(named.iter().all(|entry| entry.value == [u8::try_from(entry.number).unwrap() ^ 0x80]));
            std::fs::remove_file(&quarantine).unwrap();
        }
    }
}

#[test]
fn a_listed_file_that_is_not_there_is_bad() {
    let folder = tempfile::tempdir().unwrap();
    let image = png(4, 7);
    let mut list = String::new();
    for number in 0..9 {
        list += &format!("{number}.png {number}\n");
        if ![0, 4, 8].contains(&number) {
            std::fs::write(folder.path().join(format!("{number}.png")), &image).unwrap();
        }
    }
    std::fs::create_dir(folder.path().join("4.png")).unwrap();
    let path = folder.path().join("list.txt");
    std::fs::write(&path, list).unwrap();
    let source = || ImageList::open(&path).unwrap().relative_to(folder.path());
    let builder = || Feed::builder().source(source()).batch_size(3).epochs(Epochs::OnePass);
    let error = builder().build().and_then(|mut feed| feed.steps().try_for_each(|step| step.map(drop)));
    assert!(matches!(
        error.unwrap_err(),
        FeedError::Reader(percolator::reader::ReaderError::Source(SourceError::ImageList(
            ImageListError::ListedFile { line: 1, .. }
        )))
    ));
    let mut feed = builder().bad_records(any_policy()).build().unwrap();
    let mut labels = Vec::new();
    let mut reasons = Vec::new();
    for batch in feed.steps().flat_map(Result::unwrap) {
        labels.extend_from_slice(batch.labels().unwrap());
        reasons.extend(batch.bad_records().iter().map(|bad| bad.reason.clone()));
    }
    assert_eq!(labels, [1, 2, 3, 5, 6, 7]);
    assert_eq!(reasons.len(), 3);
    assert!(reasons[0].contains("line 1") && reasons[0].contains("0.png"), "{}", reasons[0]);
}

/// Whatever a name of a list leads to, if it is no image that can be read.
#[test]
fn whatever_a_listed_file_is_it_is_one_bad_record() {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let image = png(4, 7);
    std::fs::write(at("good.png"), &image).unwrap();
    std::fs::create_dir(at("folder")).unwrap();
    symlink("loop", at("loop")).unwrap();
    symlink("other", at("one")).unwrap();
    symlink("one", at("other")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    symlink("folder", at("to_folder")).unwrap();
    let _listener = UnixListener::bind(at("socket")).unwrap();
    symlink("socket", at("to_socket")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(at("fifo")).status().unwrap().success());
    std::fs::File::create(at("huge")).unwrap().set_len(5 << 30).unwrap();
    std::fs::write(at("empty"), "").unwrap();
    std::fs::write(at("text"), "no image").unwrap();
    std::fs::write(at("cut"), &image[..image.len() / 2]).unwrap();
    let long = "x".repeat(300);
    let bad = [
        "nothing",
        "folder",
        "loop",
        "one",
        "dangling",
        "to_folder",
        "socket",
        "to_socket",
        "fifo",
        "huge",
        "empty",
        "text",
        "cut",
        &long,
        "good.png/below",
        "loop/below",
        "/dev/zero",
        "/dev/null",
        "/proc/self/status",
    ];
    let list: String = bad.iter().map(|name| format!("{name} 0\ngood.png 1\n")).collect();
    std::fs::write(at("list.txt"), list).unwrap();
    let source = ImageList::open(at("list.txt")).unwrap().relative_to(folder.path());
    let mut feed = Feed::builder()
        .source(source)
        .batch_size(4)
        .epochs(Epochs::OnePass)
        .bad_records(any_policy())
        .build()
        .unwrap();
    let (mut good, mut found) = (0, Vec::new());
    for batch in feed.steps().flat_map(Result::unwrap) {
        good += batch.labels().unwrap().len();
        found.extend(batch.bad_records().iter().map(|bad| (bad.key.to_string(), bad.reason.clone())));
    }
    println!("{found:#?}");
    assert_eq!(good, bad.len());
    assert_eq!(found.len(), bad.len());
}

#[test]
fn a_line_of_a_list_is_named_once_and_by_its_number_in_whatever_order_lines_come() {
    let folder = tempfile::tempdir().unwrap();
    let image = png(4, 7);
    let mut list = String::new();
    for number in 0..9 {
        list += &format!("{number}.png {number}\n");
        let bytes = if number == 4 { b"no image" } else { &image[..] };
        if ![0, 8].contains(&number) {
            std::fs::write(folder.path().join(format!("{number}.png")), bytes).unwrap();
        }
    }
    let path = folder.path().join("list.txt");
    std::fs::write(&path, list).unwrap();
    let list = || ImageList::open(&path).unwrap().relative_to(folder.path());
    for (number, list) in
        [list().shuffled(1701), list().skipping(2).unwrap(), list().shuffled(3).skipping(5).unwrap()]
            .into_iter()
            .enumerate()
    {
        let file = folder.path().join(format!("{number}.tfrecord"));
        for is_joined in [false, true] {
            let feed = match is_joined {
                false => Feed::builder().source(list.clone()),
                true => Feed::builder().source(Joined::new(list.clone())),
            };
            let feed = feed.batch_size(3).bad_records(any_policy().quarantine(&file)).build().unwrap();
            // More than three passes.
            assert!(feed.into_iter().take(10).all(|batch| batch.is_ok()));
            let mut named = Quarantined::read(&file).unwrap();
            named.sort_by_key(|entry| entry.number);
            let named = named.iter().map(|entry| (entry.number, String::from_utf8_lossy(&entry.key.0)));
            let due = [(0, "0.png".into()), (4, "4.png".into()), (8, "8.png".into())];
            assert!(named.eq(due), "list {number}, joined: {is_joined}");
        }
    }
}
