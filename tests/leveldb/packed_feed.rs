//! A feed's workers decompress the blocks of a LevelDB ahead of the reader. These are the dangers: records in
//! another order, or of another block; a reader that waits for a worker that is gone; damage reported
//! elsewhere or not at all. A record's number determines every pixel, so each batch is compared with what it
//! must be.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test of small numbers")]

use std::fs;
use std::path::Path;

use percolator::reader::ReaderError;
use percolator::source::{LevelDb, Source};
use percolator::{Batch, Device, Epochs, Feed, FeedBuilder, FeedError};
use rusty_leveldb::compressor::SnappyCompressor;
use rusty_leveldb::{CompressorId, Options};
use tempfile::{TempDir, tempdir};

use crate::common;
use crate::common::process::must_end;
use crate::common::sample::some_of;

/// What is written: the number of records, and the extent of their three planes.
#[derive(Clone, Copy)]
struct Images {
    count: usize,
    extent: usize,
}

/// Some twenty a block, and many blocks a group.
const SMALL: Images = Images { count: 9000, extent: 8 };
/// One a block, a group and a run: their buffers travel with them.
const LARGE: Images = Images { count: 150, extent: 224 };

impl Images {
    /// Writes them to a LevelDB with compressed blocks and several tables.
    fn write(self) -> TempDir {
        let folder = tempdir().unwrap();
        let record = |index| common::image(index, 3, self.extent, self.extent);
        let (compressor, write_buffer_size) = (SnappyCompressor::ID, record(0).1.len() * self.count / 4);
        let options = Options { write_buffer_size, compressor, ..Options::default() };
        common::leveldb::write(folder.path(), options, (0..self.count).map(record));
        folder
    }

    /// Checks the pixels of a batch; returns its records' numbers.
    fn check(self, batch: &Batch) -> Vec<u64> {
        let pixels = batch.pixels::<f32>().unwrap().chunks(3 * self.extent * self.extent);
        for (record, pixels) in batch.records().iter().zip(pixels) {
            let due = |at| f32::from(common::pixel(record.index as usize, at));
            let is_right = pixels.iter().enumerate().all(|(at, &pixel)| pixel == due(at));
            assert!(is_right, "record {}", record.index);
        }
        batch.records().iter().map(|record| record.index).collect()
    }
}

fn feed(folder: &Path, lanes: usize, threads: usize) -> FeedBuilder {
    let devices = (0..lanes).map(Device::host);
    Feed::builder().leveldb(folder).devices(devices).threads(threads).batch_size(24)
}

/// Everything that a lane gives, and its error.
fn drain(mut lane: percolator::Lane, images: Images) -> (Vec<u64>, Option<FeedError>) {
    let mut indices = Vec::new();
    loop {
        match lane.next() {
            None => return (indices, None),
            Some(Err(error)) => return (indices, Some(error)),
            Some(Ok(batch)) => indices.extend(images.check(&batch)),
        }
    }
}

/// Everything that all lanes give, drained at once.
fn drain_all(feed: &mut Feed, images: Images) -> Vec<(Vec<u64>, Option<FeedError>)> {
    let lanes = feed.take_lanes().unwrap().into_iter();
    let threads: Vec<_> = lanes.map(|lane| std::thread::spawn(move || drain(lane, images))).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

#[test]
fn the_records_are_the_same_whatever_the_threads() {
    for images in [SMALL, LARGE] {
        let folder = images.write();
        must_end("feeds of a compressed LevelDB", move || {
            for (lanes, threads) in [(1, 1), (1, 2), (3, 2), (2, 8)] {
                let mut feed = feed(folder.path(), lanes, threads).epochs(Epochs::OnePass).build().unwrap();
                for (number, (indices, error)) in drain_all(&mut feed, images).into_iter().enumerate() {
                    assert_eq!(error, None);
                    let due: Vec<u64> = (0..images.count as u64).skip(number).step_by(lanes).collect();
                    assert!(indices == due, "lane {number} of {lanes}, {threads} threads");
                }
            }
        });
    }
}

/// Without this, all other tests would pass on a feed whose reader decompresses everything itself.
#[test]
fn workers_unpack_for_the_reader() {
    const BATCHES_MAX: usize = 2000;
    for images in [SMALL, LARGE] {
        let folder = images.write();
        must_end("a feed whose workers unpack", move || {
            // Several passes.
            let mut feed = feed(folder.path(), 1, 2).build().unwrap();
            let mut lane = feed.take_lanes().unwrap().remove(0);
            let mut batches = (0..BATCHES_MAX).map(|_| images.check(&lane.next().unwrap().unwrap()));
            let is_helped = batches.any(|_| feed.stats().workers.offloaded > 0);
            assert!(is_helped, "no worker did an offloaded task in {BATCHES_MAX} batches");
        });
    }
}

#[test]
fn a_feed_that_is_left_in_the_middle_ends() {
    for images in [SMALL, LARGE] {
        let folder = images.write();
        must_end("feeds that are left", move || {
            for taken in some_of(0..12, 3) {
                // Endless passes, so that the reader never finishes.
                let mut feed = feed(folder.path(), 2, 3).build().unwrap();
                let mut lanes = feed.take_lanes().unwrap();
                let (mut other, mut one) = (lanes.pop().unwrap(), lanes.pop().unwrap());
                for _batch in 0..taken {
                    images.check(&one.next().unwrap().unwrap());
                    images.check(&other.next().unwrap().unwrap());
                }
                drop(other);
                for _batch in 0..taken {
                    images.check(&one.next().unwrap().unwrap());
                }
                if taken % 2 == 0 {
                    feed.handle().cancel();
                    assert_eq!(one.find_map(Result::err), Some(FeedError::Cancelled));
                }
            }
        });
    }
}

#[test]
fn a_damaged_block_ends_the_feed_with_the_error_of_a_walk() {
    for images in [SMALL, LARGE] {
        let folder = images.write();
        let is_table = |file: &Path| file.extension().is_some_and(|name| name == "ldb" || name == "sst");
        let files = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
        // The last table: records of the others precede its own.
        let table = files.filter(|file| is_table(file)).max().unwrap();
        let mut bytes = fs::read(&table).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&table, bytes).unwrap();
        let source = LevelDb::open(folder.path()).unwrap();
        let mut cursor = source.cursor().unwrap();
        let mut before = 0;
        let due = loop {
            match cursor.advance() {
                Ok(entry) => assert!(entry.is_some(), "the damage is found"),
                Err(error) => break error,
            }
            before += 1;
        };
        must_end("a feed of a damaged LevelDB", move || {
            for threads in [1, 8] {
                let mut feed = feed(folder.path(), 1, threads).epochs(Epochs::OnePass).build().unwrap();
                let (indices, error) = drain(feed.take_lanes().unwrap().remove(0), images);
                assert!(indices.into_iter().eq(0..before / 24 * 24));
                assert_eq!(error, Some(FeedError::Reader(ReaderError::Source(due.clone()))));
            }
        });
    }
}
