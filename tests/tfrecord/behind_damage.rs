//! What comes behind damage: the records before it, the same error again, or the next record; and in a feed,
//! the batches before it.

use std::fs;

use percolator::source::{Access, IndexPlace, Source, SourceError};
use percolator::tfrecord::{Compression, TfRecord, TfRecordError};
use percolator::{Epochs, Feed, RawBytes};
use tempfile::tempdir;

use crate::common;
use crate::files::{COMPRESSIONS, framed, open, packed, parsed, unpacked, values};

fn records() -> Vec<Vec<u8>> {
    let bytes = [0, 3, 700, 90_000, 40, 5000, 70_000, 1];
    (0..24).map(|index| (0..bytes[index % 8]).map(|at| common::pixel(index, at)).collect()).collect()
}

/// What the twin reads of a compressed file: the records before the damage, and whether there is none.
fn due_of(file: &[u8], compression: Compression) -> (Vec<Vec<u8>>, bool) {
    let (bytes, is_whole) = unpacked(file, compression);
    let due = parsed(&bytes);
    let is_whole = is_whole && framed(due.iter().map(|record| &record[..])).len() == bytes.len();
    (due, is_whole)
}

/// Whatever the place, nothing before the damage is lost; and a cursor behind damage never says that this is
/// the end.
#[test]
fn every_record_before_the_damage_of_a_compressed_file_comes() {
    const PLACES: usize = 120;

    let folder = tempdir().unwrap();
    let path = folder.path().join("file");
    let records: Vec<Vec<u8>> =
        (0..400).map(|index| (0..index * 7 % 900).map(|at| common::pixel(index, at)).collect()).collect();
    let plain = framed(records.iter().map(|record| &record[..]));
    for compression in [Compression::Gzip, Compression::Zlib] {
        let whole = packed(&plain, compression, 2);
        let mut between = 0;
        for place in 0..PLACES {
            let mut file = whole.clone();
            // The last places are the bytes at the end: the checksums.
            let at = if place < 10 { file.len() - 1 - place } else { place * file.len() / PLACES };
            file[at] ^= 1 << (place % 8);
            fs::write(&path, &file).unwrap();
            let (due, is_whole) = due_of(&file, compression);
            let source = TfRecord::options().compression(compression).open(&path).unwrap();
            let mut cursor = source.cursor().unwrap();
            let mut found = Vec::new();
            let first = loop {
                match cursor.advance() {
                    Ok(Some(entry)) => found.push(entry.value().to_vec()),
                    Ok(None) => break None,
                    Err(error) => break Some(error),
                }
            };
            assert!(found == due, "{compression:?} {at}: {} of {} records", found.len(), due.len());
            assert_eq!(first.is_none(), is_whole, "{compression:?} {at}: {first:?}");
            between += usize::from(!due.is_empty() && due.len() < records.len());
            let Some(first) = first else { continue };
            if !matches!(first, SourceError::TfRecord(TfRecordError::Data { .. })) {
                for _ in 0..3 {
                    assert_eq!(cursor.advance().map(|_| ()).unwrap_err(), first);
                    assert_eq!(cursor.skip().unwrap_err(), first);
                    assert_eq!(cursor.seek(records.len() as u64 + 1).unwrap_err(), first);
                }
            }
            cursor.rewind().unwrap();
            assert!(cursor.advance().is_ok_and(|entry| entry.is_some()) || due.is_empty());
        }
        assert!(between > PLACES / 2, "{between}");
    }
}

/// Behind a record with damaged data the next one starts, in every kind of file.
#[test]
fn a_record_with_damaged_data_is_an_error_and_the_next_one_comes() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("file");
    let records: Vec<Vec<u8>> = (0..6).map(|index| vec![index; 500]).collect();
    let mut plain = framed(records.iter().map(|record| &record[..]));
    plain[3 * 516 + 100] ^= 1;
    for compression in COMPRESSIONS {
        fs::write(&path, packed(&plain, compression, 1)).unwrap();
        for access in [Access::Mapped, Access::Read] {
            let source = open(&path, access);
            let mut cursor = source.cursor().unwrap();
            for (index, record) in records.iter().enumerate() {
                match cursor.advance() {
                    Ok(entry) => {
                        let entry = entry.unwrap();
                        assert!(entry.value() == record && entry.key() == format!("{index:08}").as_bytes());
                        assert_ne!(index, 3);
                    }
                    Err(error) => {
                        assert!(index == 3 && error.to_string().contains("record 3 at byte 1548"), "{error}");
                    }
                }
            }
            assert!(cursor.advance().unwrap().is_none());
        }
    }
}

#[test]
fn zeros_behind_the_last_member_are_passed() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("file");
    let records = records();
    for compression in [Compression::Gzip, Compression::Zlib] {
        for (zeros, is_other) in [(1, false), (511, false), (300_000, false), (1, true), (300_000, true)] {
            let mut file = packed(&framed(records.iter().map(|record| &record[..])), compression, 2);
            file.resize(file.len() + zeros, 0);
            if is_other {
                file.push(b'x');
            }
            fs::write(&path, &file).unwrap();
            let source = open(&path, Access::Mapped);
            let (found, error) = values(&source);
            assert!(found == records);
            assert_eq!(error.is_some(), is_other, "{error:?}");
        }
    }
}

/// The workers of a feed find damaged data, which its reader does not read; each error names file, place and
/// record.
#[test]
fn a_feed_ends_at_the_damaged_record_and_loses_none_before_it() {
    let folder = tempdir().unwrap();
    let records: Vec<Vec<u8>> = (0..40).map(|index| vec![index as u8; 500]).collect();
    let whole = framed(records.iter().map(|record| &record[..]));
    for compression in COMPRESSIONS {
        for access in [Access::Mapped, Access::Read] {
            let path = folder.path().join("file");
            for (at, byte, what) in [
                (25 * 516, 100, "checksum"),
                (25 * 516, 5, "its length reads as"),
                (25 * 516, 513, "checksum"),
            ] {
                let mut file = whole.clone();
                file[at + byte] ^= 0x10;
                fs::write(&path, packed(&file, compression, 1)).unwrap();
                let feed = Feed::builder().tfrecord(&path).access(access).decoder(RawBytes::fixed());
                let (mut delivered, mut error) = (0, None);
                for batch in feed.batch_size(5).epochs(Epochs::OnePass).threads(2).build().unwrap() {
                    match batch {
                        Ok(batch) => delivered += batch.len(),
                        Err(found) => error = Some(found.to_string()),
                    }
                }
                let error = error.unwrap();
                assert_eq!(delivered, 25, "{error}");
                let place = format!("record 25 at byte {at}");
                assert!(
                    error.contains(what) && error.contains(&place),
                    "{compression:?} {access:?}: {error}"
                );
            }
        }
    }
}

#[test]
fn a_length_that_no_file_has_takes_no_memory() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("file");
    let head = |length: u64| {
        let length = length.to_le_bytes();
        let checksum = crc32c::crc32c(&length).rotate_right(15).wrapping_add(0xa282_ead8);
        [&length[..], &checksum.to_le_bytes()].concat()
    };
    for length in [1, 1 << 20, 1 << 40, 1 << 62, u64::MAX - 16, u64::MAX] {
        let file = [framed([&b"one"[..]]), head(length)].concat();
        for compression in COMPRESSIONS {
            fs::write(&path, packed(&file, compression, 1)).unwrap();
            for access in [Access::Mapped, Access::Read] {
                let source = open(&path, access);
                let mut cursor = source.cursor().unwrap();
                assert!(cursor.advance().unwrap().is_some());
                let error = cursor.advance().map(|_| ()).unwrap_err();
                let SourceError::TfRecord(found) = &error else { panic!("{error}") };
                let is_due = match found {
                    TfRecordError::Cut { .. } => true,
                    TfRecordError::TooLong { .. } => compression != Compression::Plain,
                    _ => false,
                };
                assert!(is_due && error.to_string().contains("record 1 at byte 19"), "{error}");
                assert!(source.index(&IndexPlace::Memory).is_err());
            }
        }
    }
}

/// A file with holes has the bytes that its record states, and takes no room on the disk: neither memory nor
/// hours go into it.
#[test]
fn a_record_that_is_longer_than_any_may_be_is_refused() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("file");
    let length: u64 = 1 << 40;
    let file = fs::File::create(&path).unwrap();
    let checksum = crc32c::crc32c(&length.to_le_bytes()).rotate_right(15).wrapping_add(0xa282_ead8);
    fs::write(&path, [&length.to_le_bytes()[..], &checksum.to_le_bytes()].concat()).unwrap();
    file.set_len(length + 16).unwrap();
    for access in [Access::Mapped, Access::Read] {
        let source = open(&path, access);
        let error = source.cursor().unwrap().advance().map(|_| ()).unwrap_err();
        let SourceError::TfRecord(TfRecordError::TooLarge { length: found, .. }) = &error else {
            panic!("{error}")
        };
        assert_eq!(*found, length);
        let message = error.to_string();
        assert!(
            message.contains("record 0 at byte 0") && message.contains("at most 4294967295 are read"),
            "{message}"
        );
        assert_eq!(source.index(&IndexPlace::Memory).unwrap_err(), error);
        let feed = Feed::builder().tfrecord(&path).access(access).decoder(RawBytes::up_to(100));
        assert!(feed.build().unwrap_err().to_string().contains("at most 4294967295 are"));
    }
}
