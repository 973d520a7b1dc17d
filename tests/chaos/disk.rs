//! A disk that fills at any byte: what is written is whole or absent, what was there before stays, and the
//! error says which file. The system's limit of a file's length stands for the full disk. It is set for the
//! whole process, so each of these tests runs in a child.

#![expect(unsafe_code, reason = "limits and signals are set through C")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use percolator::bad::{BadRecords, QuarantineError, Quarantined};
use percolator::receipt::{DataDigest, DigestDetail, ReceiptError};
use percolator::snapshot::SnapshotError;
use percolator::source::{FnSource, IndexPlace, Lmdb, Source as _, TfRecord};
use percolator::tfrecord::{Compression, TfRecordError, TfRecordWriter, write_record};
use percolator::{DecodeFailure, Device, Dtype, Epochs, Feed, FeedError, Field, Receipt, Shuffle, Snapshot};
use percolator_chaos::{Chaos, Fault};
use percolator_proof::Verdict;

use crate::common;
use crate::common::process::{is_alone, this_test};
use crate::common::sample::times;

/// Sets the longest file that may be written, and returns an error for a longer one, as a full disk does,
/// instead of ending the process.
fn limit_files(bytes: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is written to memory of its type.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) }, 0);
    limit.rlim_cur = bytes.min(limit.rlim_max);
    // SAFETY: the limit is read from memory of its type.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A run of 12 steps: where it is after 4 and after 8 of them, and what it had delivered.
fn two_moments(folder: &Path) -> [(Snapshot, Receipt); 2] {
    common::write_images(&folder.join("db"), 48, 1, 4, 4);
    let feed = Feed::builder().lmdb(folder.join("db")).batch_size(4).shuffle(Shuffle::Global).epochs(1);
    let mut feed = feed.index(IndexPlace::Memory).receipts(true).build().unwrap();
    [(); 2].map(|()| {
        feed.steps().take(4).for_each(|step| drop(step.unwrap()));
        (feed.snapshot().unwrap(), feed.receipt().unwrap())
    })
}

#[test]
fn a_snapshot_and_its_receipt_are_both_saved_or_recovered_wherever_the_disk_fills() {
    if !is_alone(this_test!()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [(old, old_receipt), (new, new_receipt)] = two_moments(folder.path());
    let saved = folder.path().join("saved");
    std::fs::create_dir(&saved).unwrap();
    let (path, receipt_path) = (saved.join("run.snapshot"), saved.join("run.receipt"));
    let (mut failed, mut room) = (0, 0);
    loop {
        limit_files(u64::MAX);
        old.save_with_receipt(&path, &old_receipt, &receipt_path).unwrap();
        limit_files(room);
        let outcome = new.save_with_receipt(&path, &new_receipt, &receipt_path);
        limit_files(u64::MAX);
        if outcome.is_ok() {
            break;
        }
        failed += 1;
        let error = outcome.unwrap_err();
        let names_its_file = match &error {
            SnapshotError::Io { path: named, action: "write", .. } => *named == path,
            SnapshotError::Receipt(ReceiptError::Write { path: named, .. }) => *named == receipt_path,
            _ => false,
        };
        assert!(names_its_file, "{room} bytes: {error}");
        assert_eq!(names(&saved), ["run.receipt", "run.snapshot"], "{room} bytes");
        // Either both are the old ones, or both are the new ones.
        let found = (Snapshot::recover(&path).unwrap(), Receipt::load(&receipt_path).unwrap());
        let is_whole =
            found == (old.clone(), old_receipt.clone()) || found == (new.clone(), new_receipt.clone());
        assert!(is_whole, "{room} bytes");
        room += times(7, 49);
    }
    assert!(failed > times(50, 7), "{failed}");
    assert!(Verdict::of([("run", &Receipt::load(&receipt_path).unwrap())]).unwrap().is_sound());
}

#[test]
fn a_digest_and_a_tfrecord_file_are_whole_or_absent_wherever_the_disk_fills() {
    if !is_alone(this_test!()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    common::write_images(&folder.path().join("db"), 20, 1, 4, 4);
    let digest =
        percolator_proof::digest(&Feed::builder().lmdb(folder.path().join("db")), DigestDetail::EachRecord)
            .unwrap();
    let saved = folder.path().join("saved");
    std::fs::create_dir(&saved).unwrap();
    let path = saved.join("data.digest");
    let failed = fill(|_| match digest.save(&path) {
        Err(ReceiptError::Write { path: named, .. }) => {
            assert_eq!(named, path);
            assert_eq!(names(&saved), [""; 0]);
            false
        }
        outcome => outcome.is_ok(),
    });
    assert!(failed > 10 && DataDigest::load(&path).unwrap() == digest);
    std::fs::remove_file(&path).unwrap();

    let path = saved.join("data.tfrecord");
    for compression in [Compression::Plain, Compression::Gzip] {
        let failed = fill(|_| {
            let write = || {
                let mut file = TfRecordWriter::create(&path, compression)?;
                (0..20_u8).try_for_each(|number| file.write(&noise(number)))?;
                file.finish()
            };
            match write() {
                Err(TfRecordError::Io { path: named, .. }) => {
                    assert_eq!(named, path);
                    assert_eq!(names(&saved), [""; 0]);
                    false
                }
                outcome => outcome.is_ok(),
            }
        });
        assert!(failed > 10, "{failed}");
        let mut cursor = TfRecord::open(&path).unwrap().cursor().unwrap();
        for number in 0..20_u8 {
            assert_eq!(cursor.advance().unwrap().unwrap().value(), noise(number));
        }
        std::fs::remove_file(&path).unwrap();
    }
}

/// Bytes that no compressor makes shorter.
fn noise(number: u8) -> Vec<u8> {
    (0..200).map(|at| common::pixel(usize::from(number) + 1000, at)).collect()
}

/// Gives more and more room until `write`, which learns how much it is, succeeds; how often it failed.
fn fill(mut write: impl FnMut(u64) -> bool) -> usize {
    (0..)
        .find(|failed| {
            let room = *failed as u64 * 31;
            limit_files(room);
            let is_written = write(room);
            limit_files(u64::MAX);
            is_written
        })
        .unwrap()
}

#[test]
fn an_index_that_finds_no_room_stays_in_memory() {
    if !is_alone(this_test!()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    common::write_images(&path, 300, 1, 4, 4);
    let before = names(&path);
    limit_files(100);
    let database = Lmdb::open(&path).unwrap();
    database.index(&IndexPlace::Beside).unwrap();
    assert!(database.is_seekable());
    assert_eq!(names(&path), before, "no part of an index is left");
    let mut cursor = database.cursor().unwrap();
    cursor.seek(217).unwrap();
    assert_eq!(cursor.advance().unwrap().unwrap().key(), common::key(217));
}

/// Feeds records of which these are bad, and returns the errors of both lanes.
fn feed_with_bad(records: u64, bad: &'static [u64], file: &Path) -> [Option<FeedError>; 2] {
    let source = FnSource::new("made", records, |number, value| {
        value.extend(noise(u8::try_from(number).unwrap()));
        Ok(())
    });
    let byte = Field::scalar("byte", Dtype::U8);
    let feed =
        Feed::builder().source(source).decode([byte], |record, row| match bad.contains(&record.id.index) {
            true => Err(DecodeFailure::new("it is bad")),
            false => Ok(row.set(0, record.value[0])?),
        });
    let policy = BadRecords::skip().at_most_rate(1.0).quarantine(file);
    let feed = feed
        .devices([0, 1].map(Device::host))
        .batch_size(2)
        .threads(2)
        .epochs(Epochs::OnePass)
        .bad_records(policy);
    let mut lanes = feed.build().unwrap().take_lanes().unwrap();
    let mut errors = [None, None];
    let mut is_ended = [false; 2];
    while is_ended.contains(&false) {
        for (lane, (error, is_ended)) in lanes.iter_mut().zip(errors.iter_mut().zip(&mut is_ended)) {
            match lane.next() {
                Some(Err(found)) => assert_eq!(error.replace(found), None, "an error comes once"),
                Some(Ok(_)) => assert_eq!(*error, None, "an error comes last"),
                None => *is_ended = true,
            }
        }
    }
    errors
}

#[test]
fn a_quarantine_file_has_whole_entries_wherever_the_disk_fills_and_a_later_feed_completes_it() {
    if !is_alone(this_test!()) {
        return;
    }
    const BAD: [u64; 5] = [3, 4, 11, 12, 19];
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.tfrecord");
    let named = || {
        let entries = Quarantined::read(&file).unwrap();
        assert!(entries.iter().all(|entry| entry.value == noise(u8::try_from(entry.number).unwrap())));
        let mut named: Vec<u64> = entries.iter().map(|entry| entry.number).collect();
        named.sort_unstable();
        assert!(named.is_sorted_by(|one, two| one < two), "each is named once: {named:?}");
        named
    };
    // Without a file, and with one that already has two entries.
    for named_before in [&[][..], &BAD[1..3]] {
        let mut lengths = std::collections::BTreeSet::new();
        let failed = fill(|room| {
            let _ = std::fs::remove_file(&file);
            limit_files(u64::MAX);
            if !named_before.is_empty() {
                assert_eq!(feed_with_bad(20, &BAD[1..3], &file), [None, None]);
            }
            limit_files(room);
            let errors = feed_with_bad(20, &BAD, &file);
            limit_files(u64::MAX);
            for error in errors.iter().flatten() {
                let FeedError::Quarantine(error) = error else { panic!("{error}") };
                let QuarantineError::Io { path, action, .. } = error else { panic!("{error}") };
                assert_eq!((path, *action), (&file, "add a record to it"));
            }
            let is_whole = errors == [None, None];
            let left = named();
            assert!(named_before.iter().all(|number| left.contains(number)), "{left:?}");
            assert_eq!(left == BAD, is_whole, "{left:?}");
            lengths.insert(left.len());
            assert_eq!(feed_with_bad(20, &BAD, &file), [None, None]);
            assert_eq!(named(), BAD);
            is_whole
        });
        assert!(failed > 20, "{failed}");
        assert_eq!(lengths, (named_before.len()..=BAD.len()).collect());
    }
}

/// The framing that a program writes to a file of its own.
#[test]
fn a_program_that_frames_records_itself_learns_that_the_disk_is_full() {
    let whole = {
        let mut out = Vec::new();
        write_record(&mut out, &noise(1)).unwrap();
        out
    };
    for room in 0..whole.len() {
        let chaos = Chaos::new(Fault::disk_fills_after(room as u64));
        let mut out = Vec::new();
        let error = write_record(chaos.writer(&mut out), &noise(1)).unwrap_err();
        assert_eq!((error.kind(), &out[..]), (std::io::ErrorKind::StorageFull, &whole[..room]));
    }
}
