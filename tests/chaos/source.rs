//! Each fault of a source and of a consumer, by itself: it strikes where it says, and nowhere else.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io::{ErrorKind, Write as _};
use std::time::Duration;

use percolator::bad::BadRecords;
use percolator::reader::ReaderError;
use percolator::source::{IndexPlace, LevelDb, Lmdb, Source, SourceError};
use percolator::{Epochs, Feed, FeedBuilder, FeedError, Shuffle};
use percolator_chaos::{Chaos, Fault, Faults, Living};

use crate::common;
use crate::common::process::must_end;
use crate::common::source::MemorySource;

fn images(records: usize) -> MemorySource {
    MemorySource::images("chaos", records, 1, 4, 4)
}

fn feed(source: impl Source + 'static) -> FeedBuilder {
    Feed::builder().source(source).threads(2).batch_size(4)
}

/// The whole batches of a feed of one lane, and the error after them, which comes once.
fn drain(feed: FeedBuilder) -> (usize, FeedError) {
    let mut lane = feed.build().unwrap().take_lanes().unwrap().remove(0);
    let mut batches = 0;
    loop {
        match lane.next().expect("an error comes before the end") {
            Ok(batch) => {
                assert_eq!(batch.records()[0].index, 4 * batches as u64);
                batches += 1;
            }
            Err(error) => {
                assert!(lane.next().is_none(), "once");
                return (batches, error);
            }
        }
    }
}

#[test]
fn a_record_that_fails_or_panics_or_is_torn_ends_the_feed_after_the_batches_before_it() {
    must_end("feeds with a fault at record 9", || {
        let at = || Fault::record(9);
        for fault in [at().fails("no answer"), at().panics(), at().is_cut_to(7), at().is_damaged()] {
            let chaos = Chaos::new(fault.clone());
            let (batches, error) = drain(feed(chaos.source(images(20))));
            assert_eq!(batches, 2, "{fault}");
            match (&fault, &error) {
                (
                    _,
                    FeedError::Reader(ReaderError::Source(SourceError::Broken { index: 9, message, .. })),
                ) => {
                    assert_eq!((message.as_str(), fault), ("no answer", at().fails("no answer")));
                }
                (_, FeedError::Reader(ReaderError::Panicked { message, .. })) => {
                    assert_eq!(
                        (message.as_str(), fault),
                        ("record 9 panics, as a fault says", at().panics())
                    );
                }
                (_, FeedError::Record(error)) => assert_eq!((error.id.index, error.id.epoch), (9, 0)),
                (_, other) => panic!("{fault}: {other}"),
            }
            // The reader goes on after a torn record, and may come to it again in the next pass.
            let is_torn = matches!(error, FeedError::Record(_));
            assert!(chaos.struck() == 1 || is_torn && chaos.struck() > 1, "{}", chaos.struck());
            assert_eq!(chaos.living(), Living::default());
        }
    });
}

#[test]
fn what_is_not_struck_is_lent_as_before_and_an_index_is_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    common::write_images(folder.path(), 30, 1, 8, 8);
    let chaos = Chaos::new(Fault::record(3).is_damaged());
    let plain = Lmdb::open(folder.path()).unwrap();
    let source = chaos.source(Lmdb::open(folder.path()).unwrap());
    source.index(&IndexPlace::Memory).unwrap();
    assert!(source.is_seekable());
    assert_eq!((source.records(), source.identity()), (Some(30), plain.identity()));
    let mut cursor = source.cursor().unwrap();
    for index in [7_u64, 3, 2] {
        cursor.seek(index).unwrap();
        let entry = cursor.advance().unwrap().unwrap();
        let (key, value) = common::image(usize::try_from(index).unwrap(), 1, 8, 8);
        assert_eq!((entry.is_lent(), entry.key(), entry.value().len()), (index != 3, &*key, value.len()));
        assert_eq!(entry.value() == value, index != 3);
    }
    // It stands at record 3 again, and passing over it does no harm.
    assert!(cursor.skip().unwrap());
    assert_eq!(cursor.advance().unwrap().unwrap().key(), common::key(4));
    assert_eq!(chaos.struck(), 1);
    drop(cursor);
    let chaos = Chaos::new(Faults::none());
    let shuffled = feed(chaos.source(Lmdb::open(folder.path()).unwrap())).shuffle(Shuffle::Global).epochs(1);
    let records: usize = shuffled.build().unwrap().into_iter().map(|batch| batch.unwrap().len()).sum();
    assert_eq!(records, 30);
}

#[test]
fn a_source_that_sticks_is_released_and_a_stuck_feed_is_cancelled() {
    must_end("a stuck source", || {
        for is_cancelled in [false, true] {
            let chaos = Chaos::new(Fault::record(9).sticks());
            let mut feed = feed(chaos.source(images(20))).epochs(Epochs::OnePass).build().unwrap();
            let handle = feed.handle();
            let mut lane = feed.take_lanes().unwrap().remove(0);
            let other = chaos.clone();
            let drained = std::thread::spawn(move || {
                let ends: Vec<_> = lane.by_ref().map(|batch| batch.map(|batch| batch.len())).collect();
                // The reader is released only now: the lane ended while it was stuck.
                other.release();
                ends
            });
            chaos.wait_until_stuck();
            if is_cancelled {
                handle.cancel();
            } else {
                chaos.release();
            }
            let ends = drained.join().unwrap();
            let expected = if is_cancelled { 3 } else { 5 };
            assert!(ends.len() <= expected, "{ends:?}");
            let error = ends.last().unwrap();
            assert_eq!(error == &Err(FeedError::Cancelled), is_cancelled, "{ends:?}");
        }
        // Nobody is left to release it.
        let chaos = Chaos::new(Fault::record(9).sticks());
        let feed = feed(chaos.source(images(20))).epochs(Epochs::OnePass).build().unwrap();
        chaos.wait_until_stuck();
        drop(chaos);
        assert_eq!(feed.into_iter().map(|batch| batch.unwrap().len()).sum::<usize>(), 20);
    });
}

#[test]
fn a_fault_strikes_as_often_as_it_says_and_only_when_it_is_armed() {
    must_end("faults that are counted", || {
        // The first record is looked at by the build, which spares the third epoch.
        let chaos = Chaos::new([Fault::record(5).fails("late").after(2)]);
        let mut lane =
            feed(chaos.source(images(8))).epochs(5).build().unwrap().take_lanes().unwrap().remove(0);
        let batches: Vec<_> = lane.by_ref().map_while(Result::ok).map(|batch| batch.records()[0]).collect();
        assert_eq!(batches.len(), 5, "{batches:?}");
        assert_eq!(chaos.happened(), [(Fault::record(5).fails("late").after(2), 1)]);

        let chaos = Chaos::new([Fault::every_record().takes(Duration::from_micros(1)).times(3)]);
        let built = feed(chaos.source(images(8))).epochs(Epochs::OnePass).build().unwrap();
        assert_eq!(built.into_iter().filter(Result::is_ok).count(), 2);
        assert_eq!(chaos.struck(), 3);

        let chaos = Chaos::new(Fault::record(0).fails("first"));
        chaos.disarm();
        let built = feed(chaos.source(images(8))).epochs(Epochs::OnePass).build().unwrap();
        assert_eq!(built.into_iter().filter(Result::is_ok).count(), 2);
        chaos.arm();
        let error = feed(chaos.source(images(8))).build().unwrap_err();
        assert_eq!(error.to_string(), "memory/chaos: record 0: first");
        let chaos = Chaos::new(Fault::cursor(0).fails("too many open files"));
        let error = feed(chaos.source(images(8))).build().unwrap_err();
        assert_eq!(error.to_string(), "memory/chaos: too many open files");
    });
}

#[test]
fn a_consumer_that_leaves_takes_nothing_from_the_others() {
    must_end("a consumer that leaves", || {
        let chaos = Chaos::new(Fault::batch(2).leaves());
        let devices = [0, 1].map(percolator::Device::host);
        let mut feed = feed(images(40)).devices(devices).epochs(Epochs::OnePass).build().unwrap();
        let mut lanes = feed.take_lanes().unwrap();
        let (stays, leaves) = (lanes.pop().unwrap(), lanes.pop().unwrap());
        let left = std::thread::spawn(move || chaos.consumer(leaves).filter(Result::is_ok).count());
        assert_eq!(stays.filter(Result::is_ok).count(), 5);
        assert_eq!(left.join().unwrap(), 2);
    });
}

#[test]
fn a_disk_is_full_at_its_byte_and_stays_full() {
    for room in [0_u64, 1, 10, 11] {
        let chaos = Chaos::new(Fault::disk_fills_after(room));
        let mut writer = chaos.writer(Vec::new());
        let written = writer.write_all(b"0123456789");
        assert_eq!(written.is_ok(), room >= 10);
        if let Err(error) = written {
            assert_eq!(error.kind(), ErrorKind::StorageFull);
            assert_eq!(writer.write(b"x").unwrap_err().to_string(), "no space left on device");
        }
        let whole = &b"0123456789"[..10.min(usize::try_from(room).unwrap())];
        assert_eq!(writer.into_inner(), whole);
    }
    let mut file = Vec::new();
    let chaos = Chaos::new(Fault::disk_fills_after(20));
    let written = percolator::tfrecord::write_record(chaos.writer(&mut file), &[7; 30]);
    assert_eq!((written.unwrap_err().kind(), file.len()), (ErrorKind::StorageFull, 20));
}

#[test]
fn faults_say_what_they_do() {
    let faults = Faults::from([
        Fault::record(17).fails("no answer").after(1),
        Fault::every_record().takes(Duration::from_millis(2)),
        Fault::submit(3).panics().times(1),
        Fault::last_use(4).sticks(),
        Fault::batch(5).leaves(),
        Fault::disk_fills_after(100),
    ]);
    assert_eq!(
        faults.to_string(),
        "record 17 fails (no answer), but not the first time; every record takes 2ms longer; submit 3 \
         panics, once; last use 4 sticks until it is released; batch 5 is left by its consumer; the disk is \
         full at byte 100"
    );
    assert_eq!(Faults::none().to_string(), "no faults");
}

/// A feed without an index looks at the last record by itself, and one that resumes with a cursor. Found by
/// seed 326 of the random scenarios: the resumed feed took the data set for another one.
#[test]
fn a_data_set_whose_last_record_is_torn_is_the_same_however_it_is_looked_at() {
    let folder = tempfile::tempdir().unwrap();
    let records: Vec<_> = (0..12).map(|number| common::image(number, 1, 4, 4)).collect();
    common::write_lmdb(&folder.path().join("lmdb"), records.clone());
    common::leveldb::write(&folder.path().join("leveldb"), rusty_leveldb::Options::default(), records);
    for fault in [Fault::record(11).is_damaged(), Fault::record(11).is_cut_to(7)] {
        let lmdb = |chaos: &Chaos| feed(chaos.source(Lmdb::open(folder.path().join("lmdb")).unwrap()));
        let leveldb =
            |chaos: &Chaos| feed(chaos.source(LevelDb::open(folder.path().join("leveldb")).unwrap()));
        for open in [&lmdb as &dyn Fn(&Chaos) -> FeedBuilder, &leveldb] {
            let chaos = Chaos::new(fault.clone());
            let feed = || {
                open(&chaos).epochs(Epochs::OnePass).index(IndexPlace::Memory).bad_records(BadRecords::skip())
            };
            let mut cut = feed().build().unwrap();
            assert_eq!(cut.steps().next().unwrap().unwrap()[0].len(), 4);
            let snapshot = cut.snapshot().unwrap();
            let resumed = feed().batch_size(3).resume(&snapshot).build().unwrap();
            let rest: Vec<usize> = resumed.into_iter().map(|batch| batch.unwrap().len()).collect();
            assert_eq!(rest, [3, 3, 1], "{fault}");
        }
    }
}
