//! A feed's workers verify the blocks of a LevelDB right before they use them, after the reader has handed
//! the records over. A damaged byte must still be an error that names the block, in the batch that would have
//! held the record: the batches before it are delivered, none with a record of the block is, and a reader
//! without workers gets only verified records.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test of small numbers")]

use std::fs;
use std::path::{Path, PathBuf};

use percolator::leveldb::{LevelDbError, TableError};
use percolator::reader::{DataReader, ReaderError, Registry};
use percolator::source::{LevelDb, Source, SourceError};
use percolator::{Device, Epochs, Feed, FeedError};
use rusty_leveldb::compressor::NoneCompressor;
use rusty_leveldb::{CompressorId, Options};
use tempfile::{TempDir, tempdir};

use crate::common;
use crate::common::process::must_end;

/// What is written: the number of records, and the extent of their three planes.
#[derive(Clone, Copy)]
struct Images {
    count: usize,
    extent: usize,
}

/// About 150 a block, so that a block's records are dealt to several lanes, runs and batches.
const SMALL: Images = Images { count: 1200, extent: 8 };
/// One a block, and nearly a run.
const LARGE: Images = Images { count: 150, extent: 160 };

impl Images {
    fn value(self, index: usize) -> Vec<u8> {
        common::image(index, 3, self.extent, self.extent).1
    }

    /// Writes them to a LevelDB with uncompressed blocks.
    fn write(self) -> TempDir {
        let folder = tempdir().unwrap();
        let compressor = NoneCompressor::ID;
        // Small enough for several tables.
        let write_buffer_size = self.value(0).len() * self.count / 4;
        // Large enough to be verified by workers: the reader verifies smaller blocks itself.
        let block_size = 32 << 10;
        let options = Options { write_buffer_size, compressor, block_size, ..Options::default() };
        let record = |index| (common::key(index), self.value(index));
        common::leveldb::write(folder.path(), options, (0..self.count).map(record));
        folder
    }

    /// Flips a bit in the pixels of a record, in whatever table it is stored.
    fn damage(self, folder: &Path, index: usize) -> PathBuf {
        let value = self.value(index);
        for file in fs::read_dir(folder).unwrap() {
            let file = file.unwrap().path();
            let is_table = file.extension().is_some_and(|extension| extension == "ldb" || extension == "sst");
            let mut bytes = fs::read(&file).unwrap();
            let at = bytes.windows(value.len()).position(|window| window == value);
            if let (true, Some(at)) = (is_table, at) {
                bytes[at + value.len() / 2] ^= 1;
                fs::write(&file, bytes).unwrap();
                return file;
            }
        }
        panic!("record {index} lies in no table");
    }
}

/// The error of reading the damaged database without a feed, and the number of records before it.
fn refusal(folder: &Path, table: &Path) -> (usize, SourceError) {
    let source = LevelDb::open(folder).unwrap();
    let mut cursor = source.cursor().unwrap();
    let mut count = 0;
    let error = loop {
        match cursor.advance() {
            Ok(entry) => assert!(entry.is_some(), "the damage is found"),
            Err(error) => break error,
        }
        count += 1;
    };
    let SourceError::LevelDb(LevelDbError::Table { file, error: TableError::Checksum { .. } }) = &error
    else {
        panic!("{error}");
    };
    assert_eq!(file, table);
    (count, error)
}

/// The records of a lane's batches, in order, and the error that ended it.
fn drain(mut lane: percolator::Lane, extent: usize) -> (Vec<usize>, Option<FeedError>) {
    let mut indices = Vec::new();
    loop {
        match lane.next() {
            None => return (indices, None),
            Some(Err(error)) => return (indices, Some(error)),
            Some(Ok(batch)) => {
                let pixels = batch.pixels::<f32>().unwrap().chunks(3 * extent * extent);
                for (record, pixels) in batch.records().iter().zip(pixels) {
                    let index = record.index as usize;
                    let due = |at| f32::from(common::pixel(index, at));
                    assert!(pixels.iter().enumerate().all(|(at, &pixel)| pixel == due(at)), "record {index}");
                    indices.push(index);
                }
            }
        }
    }
}

/// Damages the record at `bad`, and feeds the database to some lanes.
fn check(images: Images, bad: usize, lanes: usize, batch_size: usize) {
    let folder = images.write();
    let table = images.damage(folder.path(), bad);
    let (first, due) = refusal(folder.path(), &table);
    assert!(first <= bad);
    let path = folder.path().to_owned();
    must_end("a feed of a damaged LevelDB", move || {
        let mut feed = Feed::builder()
            .leveldb(&path)
            .devices((0..lanes).map(Device::host))
            .batch_size(batch_size)
            .epochs(Epochs::OnePass)
            .threads(3)
            .build()
            .unwrap();
        let drained: Vec<_> = feed
            .take_lanes()
            .unwrap()
            .into_iter()
            .map(|lane| std::thread::spawn(move || drain(lane, images.extent)))
            .collect::<Vec<_>>()
            .into_iter()
            .map(|lane| lane.join().unwrap())
            .collect();
        let mut whole = 0;
        for (number, (indices, error)) in drained.iter().enumerate() {
            let dealt = (0..images.count).skip(number).step_by(lanes);
            assert!(dealt.eq(indices.iter().copied()) || indices.len() % batch_size == 0);
            assert!((0..).skip(number).step_by(lanes).zip(indices).all(|(due, &index)| due == index));
            let before = (first..).find(|record| record % lanes == number).unwrap() / lanes;
            let before = before / batch_size * batch_size;
            let of_the_block = indices.iter().find(|index| (first..=bad).contains(index));
            assert_eq!(of_the_block, None, "a record of a damaged block was delivered");
            match error {
                Some(FeedError::Reader(ReaderError::Source(error))) => assert_eq!(error, &due),
                None => assert!(lanes > 1 && indices.len() >= images.count / lanes),
                Some(other) => panic!("{other}"),
            }
            whole += usize::from(indices.len() == before);
        }
        // The lane that reached the block first reports it; another may have been stopped before.
        assert!(whole > 0, "the batches before the damage are delivered");
    });
}

#[test]
fn a_damaged_byte_fails_the_batch_that_holds_it_where_blocks_have_many_records() {
    for (bad, batch_size) in [(700, 16), (701, 7), (245, 64)] {
        for lanes in [1, 3] {
            check(SMALL, bad, lanes, batch_size);
        }
    }
}

#[test]
fn a_damaged_byte_fails_the_batch_that_holds_it_where_a_record_is_a_block() {
    for (bad, batch_size) in [(70, 4), (71, 5), (3, 1)] {
        for lanes in [1, 3] {
            check(LARGE, bad, lanes, batch_size);
        }
    }
}

/// The shape of a batch comes from its first record, but never from a damaged one.
#[test]
fn a_damaged_head_of_a_batch_is_an_error_of_its_block_and_no_growth() {
    let folder = LARGE.write();
    let value = LARGE.value(80);
    let table = LARGE.damage(folder.path(), 80);
    let mut bytes = fs::read(&table).unwrap();
    let half = value.len() / 2;
    let at = bytes.windows(half).position(|window| *window == value[..half]).unwrap();
    // The height: 160 becomes 16288.
    assert_eq!(bytes[at + 5..at + 8], [0x18, 0xa0, 1], "the height and its tag");
    bytes[at + 7] = 0x7f;
    fs::write(&table, bytes).unwrap();
    let (first, due) = refusal(folder.path(), &table);
    assert_eq!(first, 80);
    let feed = Feed::builder().leveldb(folder.path()).batch_size(8).epochs(Epochs::OnePass);
    let mut feed = feed.threads(2).build().unwrap();
    let (indices, error) = drain(feed.take_lanes().unwrap().remove(0), LARGE.extent);
    assert_eq!(indices, (0..80).collect::<Vec<_>>());
    assert_eq!(error, Some(FeedError::Reader(ReaderError::Source(due))));
    assert_eq!(feed.stats().lanes[0].growths, 0);
}

#[test]
fn a_reader_without_workers_gives_verified_records_only() {
    for (images, bad) in [(SMALL, 500), (LARGE, 31)] {
        let folder = images.write();
        let table = images.damage(folder.path(), bad);
        let (first, due) = refusal(folder.path(), &table);
        let source = LevelDb::open(folder.path()).unwrap();
        let reader = DataReader::builder("data", source).batch_size(16).passes(1);
        let reader = reader.open_in(&Registry::new()).unwrap();
        let mut count = 0;
        let error = loop {
            match reader.full().pop() {
                Ok(run) => {
                    for record in run.expect("the damage is found").iter() {
                        assert!(record.value == images.value(count), "record {count}");
                        count += 1;
                    }
                }
                Err(error) => break error,
            }
        };
        assert_eq!((count, error), (first, ReaderError::Source(due)));
    }
}
