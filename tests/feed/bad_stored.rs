//! Records whose stored bytes are damaged, under a policy for bad records: in one data set, or in one of two
//! that are read in step; mapped and read.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};

use percolator::bad::{BadRecords, Quarantined};
use percolator::source::{Access, LevelDb, Lmdb, Matching, TfRecord};
use percolator::tfrecord::{Compression, TfRecordWriter};
use percolator::{Epochs, Feed, FeedBuilder, Target};

use crate::common::{image, write_lmdb};

const RECORDS: usize = 20;

/// Of 4,800 pixels: on pages of its own in an LMDB.
fn value(index: usize) -> Vec<u8> {
    image(index, 3, 40, 40).1
}

/// What a data set is stored as.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Store {
    Lmdb(Access),
    TfRecord(Access),
    Gzip,
    /// Its blocks have several records, so none is bad by itself.
    LevelDb,
}

const STORES: [Store; 6] = [
    Store::Lmdb(Access::Mapped),
    Store::Lmdb(Access::Read),
    Store::TfRecord(Access::Mapped),
    Store::TfRecord(Access::Read),
    Store::Gzip,
    Store::LevelDb,
];

impl Store {
    /// Whether one record can be damaged.
    fn has_bad_records(self) -> bool {
        self != Store::LevelDb
    }

    /// Writes the records, and damages some.
    fn write(self, folder: &Path, name: &str, bad: &[usize]) -> PathBuf {
        let path = folder.join(name);
        match self {
            Store::Lmdb(_) => {
                write_lmdb(&path, (0..RECORDS).map(|index| image(index, 3, 40, 40)));
                let file = path.join("data.mdb");
                let mut bytes = std::fs::read(&file).unwrap();
                for &index in bad {
                    // The flags of the value's first page say that it is a leaf.
                    let at = find(&bytes, &value(index));
                    bytes[at - 16 + 10] = 2;
                }
                std::fs::write(&file, bytes).unwrap();
            }
            Store::LevelDb => {
                let records = (0..RECORDS).map(|index| image(index, 3, 40, 40));
                // Of blocks as large as those whose verification a feed leaves to its workers.
                let (block_size, write_buffer_size) = (64 << 10, 32 << 10);
                let options = rusty_leveldb::Options { block_size, write_buffer_size, ..Default::default() };
                crate::common::leveldb::write(&path, options, records);
            }
            Store::TfRecord(_) | Store::Gzip => {
                let mut writer = TfRecordWriter::create(&path, Compression::Plain).unwrap();
                (0..RECORDS).for_each(|index| writer.write(&value(index)).unwrap());
                writer.finish().unwrap();
                let mut bytes = std::fs::read(&path).unwrap();
                for &index in bad {
                    let at = find(&bytes, &value(index));
                    bytes[at + 100] ^= 1;
                }
                if self == Store::Gzip {
                    let mut packed = Vec::new();
                    let level = flate2::Compression::fast();
                    std::io::copy(&mut flate2::read::GzEncoder::new(&*bytes, level), &mut packed).unwrap();
                    bytes = packed;
                }
                std::fs::write(&path, bytes).unwrap();
            }
        }
        path
    }

    /// What is stored of a value that is damaged.
    fn damaged(self, value: &[u8], is_bad: bool) -> Vec<u8> {
        let mut value = value.to_owned();
        if is_bad && matches!(self, Store::TfRecord(_) | Store::Gzip) {
            value[100] ^= 1;
        }
        value
    }

    fn feed(self, path: &Path) -> FeedBuilder {
        let feed = Feed::builder();
        match self {
            Store::Lmdb(access) => feed.source(Lmdb::options().access(access).open(path).unwrap()),
            Store::TfRecord(access) => feed.source(TfRecord::options().access(access).open(path).unwrap()),
            Store::Gzip => feed.source(TfRecord::open(path).unwrap()),
            Store::LevelDb => feed.source(LevelDb::open(path).unwrap()),
        }
    }
}

fn find(bytes: &[u8], value: &[u8]) -> usize {
    bytes.windows(value.len()).position(|window| window == value).unwrap()
}

/// The labels of all batches, the numbers of the bad records, and the error that ended the feed.
fn fed(builder: FeedBuilder) -> (Vec<i32>, Vec<u64>, Option<String>) {
    let (mut labels, mut bad, mut end) = (Vec::new(), Vec::new(), None);
    let mut feed = match builder.batch_size(4).threads(2).epochs(Epochs::OnePass).build() {
        Ok(feed) => feed,
        Err(error) => return (labels, bad, Some(error.to_string())),
    };
    for step in feed.steps() {
        match step {
            Ok(batches) => {
                for batch in batches {
                    labels.extend_from_slice(batch.labels().unwrap());
                    bad.extend(batch.bad_records().iter().map(|bad| bad.id.index));
                }
            }
            Err(error) => end = Some(error.to_string()),
        }
    }
    (labels, bad, end)
}

fn labels_without(bad: &[u64]) -> Vec<i32> {
    let good = |index: &u64| !bad.contains(index);
    (0..RECORDS as u64).filter(good).map(|index| i32::try_from(index).unwrap()).collect()
}

#[test]
fn a_stored_record_that_is_damaged_is_bad_however_it_is_read() {
    for store in STORES.into_iter().filter(|store| store.has_bad_records()) {
        let folder = tempfile::tempdir().unwrap();
        let path = store.write(folder.path(), "data", &[0, 7, 8, 19]);
        let builder = || store.feed(&path);
        let (labels, _, error) = fed(builder());
        assert!(labels.is_empty() && error.is_some(), "{store:?}");

        let quarantine = folder.path().join("bad.tfrecord");
        let policy = BadRecords::skip().quarantine(&quarantine);
        let bad = vec![0, 7, 8, 19];
        assert_eq!(
            fed(builder().bad_records(policy)),
            (labels_without(&bad), bad.clone(), None),
            "{store:?}"
        );
        let named: Vec<u64> =
            Quarantined::read(&quarantine).unwrap().into_iter().map(|entry| entry.number).collect();
        assert_eq!(named.len(), bad.len(), "{store:?}: {named:?}");
        assert!(bad.iter().all(|number| named.contains(number)), "{store:?}: {named:?}");
        for entry in Quarantined::read(&quarantine).unwrap() {
            let whole = value(usize::try_from(entry.number).unwrap());
            assert!(entry.value == store.damaged(&whole, true), "{store:?}: record {}", entry.number);
        }
    }
}

#[test]
fn a_pair_of_which_one_is_damaged_is_a_bad_record() {
    for (first, second) in STORES.into_iter().flat_map(|first| STORES.map(|second| (first, second))) {
        let folder = tempfile::tempdir().unwrap();
        let bad_images = if first.has_bad_records() { vec![3, 8] } else { Vec::new() };
        let bad_targets = if second.has_bad_records() { vec![8, 12, 19] } else { Vec::new() };
        let images = first.write(folder.path(), "images", &bad_images);
        let targets = second.write(folder.path(), "targets", &bad_targets);
        let mut bad = [&*bad_images, &bad_targets].concat();
        bad.sort_unstable();
        bad.dedup();
        let bad: Vec<u64> = bad.into_iter().map(|index| index as u64).collect();
        let builder = || {
            let target = Target::from_feed(second.feed(&targets), Matching::Order);
            first.feed(&images).target(target)
        };
        let case = format!("{first:?} with {second:?}");
        let (labels, _, error) = fed(builder());
        match bad.first() {
            None => assert_eq!((labels, error), (labels_without(&[]), None), "{case}"),
            Some(&at) => {
                assert_eq!(labels, labels_without(&[])[..usize::try_from(at).unwrap() / 4 * 4], "{case}");
                let of = if at == 3 { "images" } else { "targets" };
                assert!(error.as_ref().is_some_and(|error| error.contains(of)), "{case}: {error:?}");
            }
        }

        let quarantine = folder.path().join("bad.tfrecord");
        let policy = BadRecords::skip().quarantine(&quarantine);
        assert_eq!(fed(builder().bad_records(policy)), (labels_without(&bad), bad.clone(), None), "{case}");
        let named = if bad.is_empty() { Vec::new() } else { Quarantined::read(&quarantine).unwrap() };
        assert_eq!(named.len(), bad.len(), "{case}");
        for entry in named {
            let is_image = bad_images.iter().any(|&image| image as u64 == entry.number);
            let of = if is_image { "images" } else { "targets" };
            assert!(entry.reason.contains(of), "{case}: {}", entry.reason);
            assert!(entry.source.ends_with("images"), "{case}: {}", entry.source.display());
            let whole = value(usize::try_from(entry.number).unwrap());
            for (found, store, bad) in [
                (&entry.value, first, &bad_images),
                (entry.companion.as_ref().unwrap(), second, &bad_targets),
            ] {
                let is_bad = bad.iter().any(|&index| index as u64 == entry.number);
                assert!(found == &store.damaged(&whole, is_bad), "{case}: record {}", entry.number);
            }
        }
    }
}

#[test]
fn a_damaged_block_of_a_pair_is_an_error_of_the_block_and_not_of_the_pair() {
    // The key of the first record, and the pixels of the second.
    for (damaged, at) in [("images", 6), ("images", 6_000), ("targets", 6), ("targets", 6_000)] {
        for (matching, store) in [
            (Matching::Keys, Store::Lmdb(Access::Mapped)),
            (Matching::Keys, Store::LevelDb),
            (Matching::Order, Store::Gzip),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let (first, second) =
                if damaged == "images" { (Store::LevelDb, store) } else { (store, Store::LevelDb) };
            let images = first.write(folder.path(), "images", &[]);
            let targets = second.write(folder.path(), "targets", &[]);
            damage_table(&folder.path().join(damaged), at);
            let target = Target::from_feed(second.feed(&targets), matching);
            let (labels, bad, error) =
                fed(first.feed(&images).target(target).bad_records(BadRecords::skip()));
            let case = format!("{first:?} with {second:?} by {matching:?}, byte {at}: {error:?}");
            assert!(labels.is_empty() && bad.is_empty(), "{case}");
            assert!(error.is_some_and(|error| error.contains("crc32c") && error.contains(damaged)), "{case}");
        }
    }
}

/// Damages a byte of a LevelDB's table.
fn damage_table(folder: &Path, at: usize) {
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let table = files.filter(|path| path.extension().is_some_and(|end| end == "ldb" || end == "sst"));
    let table = table.min().unwrap();
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(&table, bytes).unwrap();
}
