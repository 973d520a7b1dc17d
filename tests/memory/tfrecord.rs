//! A data set of many TFRecord files takes no more memory than one of few: a cursor has one set of buffers
//! for all of them, and what its budget states is an upper bound.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::Path;

use percolator::source::{Access, Cursor, IndexPlace, Joined, Source, TfRecord};
use percolator::tfrecord::{Compression, TfRecordWriter};
use percolator::{Epochs, Feed, RawBytes};
use tempfile::tempdir;

use crate::allocator::{one_at_a_time, peak};

const RECORDS: u64 = 2;
/// What a cursor has of each file besides buffers: paths, positions, an open file.
const EACH_FILE: usize = 4 << 10;
/// What is neither a file's nor a buffer's.
const BESIDE: usize = 64 << 10;

/// Writes files of records of this length.
fn write(folder: &Path, files: usize, bytes: usize, compression: Compression) {
    for number in 0..files {
        let mut writer = TfRecordWriter::create(folder.join(format!("{number:03}")), compression).unwrap();
        for record in 0..RECORDS {
            writer.write(&vec![u8::try_from(record).unwrap(); bytes]).unwrap();
        }
        writer.finish().unwrap();
    }
}

fn open(folder: &Path) -> Joined {
    TfRecord::options().access(Access::Read).open_all([folder]).unwrap()
}

/// What a cursor states to hold, and what it and its files held at most.
fn held(source: &dyn Source, bytes: usize, read: impl FnOnce(&mut dyn Cursor)) -> (usize, usize) {
    peak(|| {
        let mut cursor = source.cursor().unwrap();
        assert_eq!(cursor.advance().unwrap().unwrap().value().len(), bytes);
        let held = cursor.held_bytes(bytes).total();
        cursor.rewind().unwrap();
        read(&mut *cursor);
        held
    })
}

fn forward(cursor: &mut dyn Cursor) {
    for _ in 0..2 {
        while cursor.advance().unwrap().is_some() {}
        cursor.rewind().unwrap();
    }
}

/// Reads in an order in which each record is in another file than the one before.
fn by_position(cursor: &mut dyn Cursor, files: usize) {
    let records = files as u64 * RECORDS;
    for step in 0..records {
        cursor.seek(step * 7 % records).unwrap();
        cursor.advance().unwrap().unwrap();
    }
}

#[test]
fn many_files_take_no_more_memory_than_is_stated() {
    let _one = one_at_a_time();
    for compression in [Compression::Plain, Compression::Gzip] {
        for bytes in [20_000, 400_000] {
            let folder = tempdir().unwrap();
            let files = 40;
            write(folder.path(), files, bytes, compression);
            // While a buffer grows, the old one and the new one count.
            let room = BESIDE + files * EACH_FILE + bytes;
            let source = open(folder.path());
            let (stated, most) = held(&source, bytes, forward);
            println!("{compression:?} {bytes}: {most} of {stated}, in order");
            assert!(most <= stated + room, "{compression:?}, in order: {most} bytes, {stated} are stated");
            if compression != Compression::Plain {
                continue;
            }
            source.index(&IndexPlace::Beside).unwrap();
            let (stated, most) = held(&source, bytes, |cursor| by_position(cursor, files));
            println!("{compression:?} {bytes}: {most} of {stated}, by position");
            assert!(most <= stated + room, "{compression:?}, by position: {most} bytes, {stated} are stated");
        }
    }
}

/// The first file is mapped, and takes no buffer at all.
#[test]
fn a_compressed_file_after_a_mapped_one_is_counted() {
    let _one = one_at_a_time();
    let (plain, packed) = (tempdir().unwrap(), tempdir().unwrap());
    let bytes = 400_000;
    write(plain.path(), 1, bytes, Compression::Plain);
    write(packed.path(), 8, bytes, Compression::Gzip);
    let options = TfRecord::options().access(Access::Mapped);
    let source = Joined::new(options.open_all([plain.path()]).unwrap())
        .and(options.open_all([packed.path()]).unwrap());
    let (stated, most) = held(&source, bytes, forward);
    assert!(most <= stated + BESIDE + 9 * EACH_FILE + bytes, "{most} bytes, {stated} are stated");
}

#[test]
fn a_feed_of_many_files_keeps_to_its_budget() {
    let _one = one_at_a_time();
    for compression in [Compression::Plain, Compression::Gzip] {
        let folder = tempdir().unwrap();
        write(folder.path(), 40, 1 << 20, compression);
        let feed = Feed::builder().source(open(folder.path())).decoder(RawBytes::fixed());
        let feed = feed.batch_size(2).prefetch(2).threads(1).epochs(Epochs::OnePass);
        let mut budget = 0;
        let (batches, most) = peak(|| {
            let feed = feed.build().unwrap();
            budget = feed.memory_budget().total_bytes();
            feed.into_iter().map(Result::unwrap).count()
        });
        println!("{compression:?}: {most} of {budget}");
        assert_eq!(batches, 40);
        // The budget also counts the batches' memory, which is not the allocator's.
        assert!(most <= budget, "{compression:?}: {most} bytes, the budget is {budget}");
    }
}

/// Reading leaves a compressed file in its middle, and returns.
#[test]
fn a_file_that_is_left_in_its_middle_is_read_on() {
    let _one = one_at_a_time();
    for compression in [Compression::Plain, Compression::Gzip, Compression::Zlib] {
        for bytes in [0, 1000, 100_000] {
            let folder = tempdir().unwrap();
            write(folder.path(), 3, bytes, compression);
            let source = open(folder.path());
            // Counted, so that positions are known without an index.
            while source.records().is_none() {
                forward(&mut *source.cursor().unwrap());
            }
            let mut cursor = source.cursor().unwrap();
            for position in [0, 2, 4, 1, 3, 5, 0, 3, 4, 5, 2] {
                cursor.seek(position).unwrap();
                let due = vec![u8::try_from(position % RECORDS).unwrap(); bytes];
                let entry = cursor.advance().unwrap().unwrap();
                assert!(entry.value() == due, "{compression:?} {bytes} {position}");
            }
        }
    }
}
