//! Epoch after epoch of one feed: what is left of one that was begun, and a run that begins again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use percolator::feed::ConfigError;
use percolator::order::Ranks;
use percolator::reader::ReaderError;
use percolator::record::RecordId;
use percolator::source::{Joined, Source as _, SourceError, TfRecord};
use percolator::tfrecord::{Compression, TfRecordWriter};
use percolator::transform::CaffeEra;
use percolator::{Epochs, Feed, FeedBuilder, FeedError, LastBatch, Seed, Shuffle, Transform};

use crate::common;
use crate::common::process::must_end;
use crate::common::source::MemorySource;

fn feed(source: MemorySource) -> FeedBuilder {
    Feed::builder().source(source)
}

fn images(records: usize) -> MemorySource {
    MemorySource::images("again", records, 1, 2, 2)
}

#[test]
fn an_epoch_of_which_less_than_a_step_was_left_has_no_batch() {
    let begun = feed(images(10)).batch_size(4).epochs(3).seed(7).shuffle(Shuffle::Global);
    let mut begun = begun.build().unwrap();
    assert_eq!(begun.epoch().unwrap().take(2).filter(Result::is_ok).count(), 2);
    let snapshot = begun.snapshot().unwrap();
    let resumed = feed(images(10)).batch_size(7).epochs(3).seed(7).shuffle(Shuffle::Global);
    let mut resumed = resumed.last_batch(LastBatch::Drop).resume(&snapshot).build().unwrap();
    let epoch = |feed: &mut Feed| -> Vec<u64> {
        feed.epoch().unwrap().map(|batch| batch.unwrap().step().unwrap().epoch).collect()
    };
    assert!(epoch(&mut resumed).is_empty());
    drop(resumed.epoch().unwrap());
    assert_eq!([epoch(&mut resumed), epoch(&mut resumed)], [[1], [2]], "each call is the next epoch");
    let error = resumed.epoch().unwrap_err();
    assert!(error.to_string().contains("there is no step 0 in epoch 0"), "{error}");
    // A step that takes all of the next epoch.
    let large = feed(images(10)).batch_size(25).epochs(3).last_batch(LastBatch::Wrap);
    let mut large = large.build().unwrap();
    let epochs: Vec<_> = (0..4).map(|_| epoch(&mut large)).collect();
    assert_eq!(epochs, [vec![0], vec![], vec![2], vec![0]]);
}

/// The records of this many batches of an epoch, and no more.
fn epoch_of(feed: &mut Feed, batches: usize) -> Vec<u64> {
    let batches = feed.epoch().unwrap().take(batches);
    batches.flat_map(|batch| batch.unwrap().records().to_vec()).map(|id| id.index).collect()
}

#[test]
fn a_single_pass_of_a_share_comes_again() {
    must_end("a rank's passes", || {
        for rank in 0..3 {
            let mut feed = feed(images(21))
                .epochs(Epochs::OnePass)
                .share(Ranks { first: rank, of: 3 })
                .batch_size(2)
                .build()
                .unwrap();
            let due: Vec<u64> = (rank as u64..21).step_by(3).collect();
            // Whether or not its end is seen.
            for taken in [4, 4, usize::MAX, 4, usize::MAX, usize::MAX] {
                assert_eq!(epoch_of(&mut feed, taken), due, "rank {rank}, {taken} batches");
            }
            assert_eq!(epoch_of(&mut feed, 3), due[..6]);
            assert_eq!(epoch_of(&mut feed, 1), due[6..], "what was left");
        }
        // A rank beyond the records has none, each time.
        let mut none =
            feed(images(2)).epochs(Epochs::OnePass).share(Ranks { first: 2, of: 3 }).build().unwrap();
        for _round in 0..3 {
            assert!(epoch_of(&mut none, usize::MAX).is_empty());
        }
    });
}

#[test]
fn a_single_pass_comes_again_whatever_is_known_of_its_records() {
    must_end("passes of unknown length", || {
        let folder = tempfile::tempdir().unwrap();
        let paths = [5, 7].map(|records| {
            let path = folder.path().join(format!("of {records}"));
            let mut writer = TfRecordWriter::create(&path, Compression::Plain).unwrap();
            (0..records).for_each(|_| writer.write(b"record").unwrap());
            writer.finish().unwrap();
            path
        });
        let joined = || {
            let [one, other] = paths.each_ref().map(|path| TfRecord::open(path).unwrap());
            Joined::new(one).and(other)
        };
        assert_eq!(joined().records(), None, "or this tests nothing");
        let raw = || Feed::builder().decoder(percolator::RawBytes::fixed()).epochs(Epochs::OnePass);
        let of_both = paths.iter().fold(raw(), |feed, path| feed.tfrecord(path));
        for (feed, records) in [(raw().tfrecord(&paths[1]), 7), (of_both, 12), (raw().source(joined()), 12)] {
            let due: Vec<u64> = (0..records).collect();
            for size in [2, 3, 12] {
                let batches = due.len().div_ceil(size);
                let mut feed = feed.clone().batch_size(size).build().unwrap();
                for taken in [batches, batches, usize::MAX, batches, usize::MAX] {
                    assert_eq!(epoch_of(&mut feed, taken), due, "{records} records by {size}");
                }
            }
        }
    });
}

/// What an epoch delivers: records, and the bits of their pixels.
fn contents(feed: &mut Feed) -> Vec<(Vec<RecordId>, Vec<u32>)> {
    let of_batch = |batch: Result<percolator::Batch, FeedError>| {
        let batch = batch.unwrap();
        let pixels = batch.pixels::<f32>().unwrap();
        (batch.records().to_vec(), pixels.iter().map(|pixel| pixel.to_bits()).collect())
    };
    feed.epoch().unwrap().map(of_batch).collect()
}

#[test]
fn a_run_begins_again_with_its_first_random_numbers_and_the_memory_that_there_is() {
    must_end("runs that begin again", || {
        let transform = Transform::default().crop(3).mirror(true);
        let caffe = Seed::Caffe { seed: 5, era: CaffeEra::default() };
        let feed = |seed| {
            let source = MemorySource::images("again", 20, 1, 6, 6);
            self::feed(source).transform(transform.clone()).batch_size(6).seed(seed)
        };
        for seed in [Seed::Indexed(5), caffe] {
            for (describe, epochs) in [
                (feed(seed).epochs(Epochs::OnePass), 1),
                (feed(seed).epochs(1).receipts(true), 1),
                (feed(seed).epochs(2).shuffle(Shuffle::Global).receipts(true), 2),
            ] {
                let build = || describe.clone().build().unwrap();
                let (mut again, mut fresh) = (build(), build());
                let due: Vec<_> = (0..epochs).map(|_| contents(&mut fresh)).collect();
                let receipt = fresh.receipt();
                for round in 0..4 {
                    for due in &due {
                        assert_eq!(contents(&mut again), *due, "round {round}, {seed:?}");
                    }
                    assert_eq!(again.receipt(), receipt, "each round has a receipt of its own");
                }
                // One feed, four times: its reader, its workers and its ring went on.
                assert_eq!(again.stats().records(), 4 * 20 * epochs);
                assert_eq!(again.stats().reader.records, 4 * 20 * epochs);
            }
        }
    });
}

#[test]
fn a_run_that_begins_again_opens_nothing_and_has_its_ring() {
    must_end("the ring of runs that begin again", || {
        let opened = Arc::new(AtomicUsize::new(0));
        let source = images(9).on_cursor({
            let opened = opened.clone();
            move |_| _ = opened.fetch_add(1, Relaxed)
        });
        let mut feed = feed(source).batch_size(2).prefetch(3).epochs(Epochs::OnePass).build().unwrap();
        let mut addresses = BTreeSet::new();
        let mut cursors = Vec::new();
        for _round in 0..5 {
            for batch in feed.epoch().unwrap() {
                addresses.insert(batch.unwrap().pixels::<f32>().unwrap().as_ptr() as usize);
            }
            cursors.push(opened.load(Relaxed));
        }
        assert!(addresses.len() <= 3, "{} buffers", addresses.len());
        assert!(cursors.windows(2).all(|rounds| rounds[1] == rounds[0] + 1), "{cursors:?}");
    });
}

#[test]
fn a_feed_that_is_paused_at_its_end_ends_and_begins_again_when_it_goes_on() {
    must_end("a pause between two rounds", || {
        for describe in [feed(images(6)).epochs(Epochs::OnePass), feed(images(6)).epochs(1)] {
            let mut feed = describe.batch_size(3).prefetch(1).build().unwrap();
            let handle = feed.handle();
            let mut batches = feed.steps();
            assert!(batches.by_ref().take(2).all(|batch| batch.is_ok()));
            handle.pause();
            assert!(batches.next().is_none(), "a pause keeps no end back");
            assert!(handle.has_ended());
            assert_eq!(handle.next_steps().len(), 1);
            handle.set_threads(2).unwrap();
            {
                let epoch = feed.epoch().unwrap();
                assert!(!handle.has_ended());
                drop(epoch);
            }
            handle.resume();
            assert_eq!(epoch_of(&mut feed, usize::MAX), [0, 1, 2, 3, 4, 5]);
            assert_eq!(handle.threads(), 2);
        }
    });
}

#[test]
fn a_rank_whose_share_is_uneven_has_the_same_records_each_time() {
    must_end("uneven shares that come again", || {
        for rank in 0..3 {
            let feed = feed(images(20)).epochs(Epochs::OnePass).share(Ranks { first: rank, of: 3 });
            let mut feed = feed.batch_size(3).build().unwrap();
            let due: Vec<u64> = (rank as u64..20).step_by(3).collect();
            for _round in 0..4 {
                assert_eq!(epoch_of(&mut feed, usize::MAX), due, "rank {rank}");
            }
        }
    });
}

#[test]
fn lanes_that_were_taken_end_with_their_records() {
    must_end("the end of a lane that cannot begin again", || {
        let source = images(6);
        let mut feed = feed(source).batch_size(3).epochs(Epochs::OnePass).build().unwrap();
        let mut lane = feed.take_lanes().unwrap().remove(0);
        assert_eq!(lane.by_ref().map(|batch| batch.unwrap().len()).sum::<usize>(), 6);
        assert!(lane.next().is_none() && lane.is_ended() && feed.handle().has_ended());
        assert_eq!(feed.epoch().unwrap_err(), FeedError::LanesTaken);
    });
}

#[test]
fn an_endless_feed_has_no_epochs_to_go_over() {
    let mut endless = feed(images(6)).build().unwrap();
    let error = endless.epoch().unwrap_err();
    assert!(
        matches!(error, FeedError::Config(ConfigError::NeedsEpochs { option: "epoch()", .. })),
        "{error}"
    );
    assert_eq!(format!("{error:?}"), error.to_string(), "what a program prints that returns it");
}

#[test]
fn a_database_that_was_written_to_does_not_begin_again_as_another() {
    must_end("a database that grows between two rounds", || {
        let folder = tempfile::tempdir().unwrap();
        common::write_images(folder.path(), 6, 1, 2, 2);
        for feed in [Feed::builder().epochs(Epochs::OnePass), Feed::builder().epochs(1)] {
            let mut feed = feed.lmdb(folder.path()).batch_size(6).build().unwrap();
            assert_eq!(feed.epoch().unwrap().map(|batch| batch.unwrap().len()).sum::<usize>(), 6);
            common::write_images(folder.path(), 6, 1, 2, 2);
            let error = feed.epoch().and_then(|mut epoch| epoch.next().unwrap()).unwrap_err();
            let FeedError::Reader(ReaderError::Source(SourceError::Committed { path })) = &error else {
                panic!("{error}");
            };
            assert_eq!(path, folder.path());
        }
    });
}

#[test]
fn an_epoch_after_a_resume_or_a_seek_is_the_rest_or_the_next() {
    must_end("epochs of feeds that resumed", || {
        for describe in [|| feed(images(8)).epochs(Epochs::OnePass), || feed(images(8)).epochs(1)] {
            let describe = || describe().batch_size(2);
            for behind in 0..=4 {
                let due: Vec<u64> = (2 * behind as u64..8).collect();
                let mut begun = describe().build().unwrap();
                assert_eq!(begun.steps().take(behind).count(), behind);
                let mut resumed = describe().resume(&begun.snapshot().unwrap()).build().unwrap();
                let mut sought = describe().build().unwrap();
                if behind < 4 {
                    sought.seek((0, behind as u64)).unwrap();
                }
                // What has ended begins again.
                let first = if due.is_empty() { (0..8).collect() } else { due.clone() };
                for feed in [&mut resumed, &mut sought] {
                    assert_eq!(epoch_of(feed, first.len() / 2), first, "behind {behind} batches");
                    for _round in 0..3 {
                        assert_eq!(epoch_of(feed, 4), (0..8).collect::<Vec<_>>(), "behind {behind} batches");
                    }
                }
            }
        }
    });
}
