//! A file's records come out as they were written: whatever its compression, whether it is mapped or read, in
//! order and by position.

use std::fs;
use std::time::{Duration, SystemTime};

use percolator::proto::Datum;
use percolator::source::{Access, IndexPlace, Joined, Lmdb, Source, SourceError, TfRecord};
use percolator::tfrecord::{self, Compression, TfRecordError};
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use tempfile::tempdir;

use crate::common;
use crate::common::indexed::{check_source, walked};
use crate::common::log::Log;
use crate::files::{COMPRESSIONS, framed, golden, mixed, open, packed, parsed, write};

const BOTH: [Access; 2] = [Access::Mapped, Access::Read];

#[test]
fn a_cursor_that_seeks_finds_what_a_plain_pass_finds() {
    let (folder, indexes) = (tempdir().unwrap(), tempdir().unwrap());
    let place = IndexPlace::Folder(indexes.path().to_owned());
    for count in [1, 60] {
        let records = mixed(count);
        for compression in COMPRESSIONS {
            for members in [1, 5] {
                let path = folder.path().join("file");
                write(&path, &records, compression, members);
                for access in BOTH {
                    println!("{count} {compression:?} {members} {access:?}");
                    let source = open(&path, access);
                    assert!(!source.is_seekable() && source.records().is_none());
                    check_source(&source, 8);
                    assert!(walked(&source) == records);
                    assert_eq!(source.records(), Some(count as u64), "known after a pass");
                    if compression != Compression::Plain {
                        continue;
                    }
                    source.index(&place).unwrap();
                    assert!(source.is_seekable() && source.clone().is_seekable());
                    assert!(walked(&source) == records);
                    check_source(&source, 30);
                }
                assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing was written beside it");
            }
        }
    }
}

#[test]
fn what_tensorflow_wrote_is_read() {
    let sha = |bytes: &[u8]| {
        Sha256::digest(bytes).iter().take(4).map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    for access in BOTH {
        let odd = walked(&open(&golden("odd.tfrecord"), access));
        let sums: Vec<_> = odd.iter().map(|(_, value)| (value.len(), sha(value))).collect();
        let due =
            [(0, "e3b0c442"), (1, "2d711642"), (100_000, "36c64ebd"), (0, "e3b0c442"), (12, "15ec7bf0")];
        assert_eq!(sums, due.map(|(bytes, sum)| (bytes, sum.to_owned())));
        assert_eq!(odd[4].0, b"00000004", "a key is a position");
        for (name, is_packed) in
            [("examples.tfrecord", false), ("examples.gz.tfrecord", true), ("examples.zlib.tfrecord", true)]
        {
            let source = open(&golden(name), access);
            let records = walked(&source);
            assert_eq!(records.len(), 50);
            // Each Example begins with its features' tag and names one "record N".
            for (number, (_, value)) in records.iter().enumerate() {
                let name = format!("record {number}");
                assert!(value[0] == 0x0a && value.windows(name.len()).any(|part| part == name.as_bytes()));
            }
            if !is_packed {
                let values = records.iter().map(|(_, value)| &value[..]);
                assert_eq!(framed(values), fs::read(golden(name)).unwrap(), "our frames are TensorFlow's");
                assert_eq!(parsed(&fs::read(golden(name)).unwrap()).len(), 50);
            }
        }
        assert_eq!(walked(&open(&golden("sequence.tfrecord"), access)).len(), 5);
    }
}

/// The images in the records are those of the LMDB that they were made from.
#[test]
fn records_hold_the_bytes_of_the_lmdb_they_were_made_from() {
    let lmdb = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("data/golden/jpg_color_lmdb");
    let images = walked(&Lmdb::open_without_lock(lmdb).unwrap());
    let records = walked(&TfRecord::open(golden("jpg_color.tfrecord")).unwrap());
    assert_eq!(images.len(), records.len());
    for ((_, datum), (_, record)) in images.iter().zip(&records) {
        let image = Datum::decode(&datum[..]).unwrap().data.unwrap();
        assert!(record.windows(image.len()).any(|part| part == image));
    }
}

#[test]
fn compression_is_detected_or_stated() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("file");
    let count = |options: tfrecord::TfRecordOptions| -> Result<usize, SourceError> {
        let source = options.open(&path)?;
        let mut cursor = source.cursor()?;
        let mut records = 0;
        while cursor.skip()? {
            records += 1;
        }
        Ok(records)
    };
    for compression in COMPRESSIONS {
        for records in [0, 3] {
            write(&path, &mixed(records), compression, 1);
            assert_eq!(count(TfRecord::options()), Ok(records), "{compression:?}");
            assert_eq!(count(TfRecord::options().compression(compression)), Ok(records));
        }
        // A file with nothing in it has no records, whatever it is stated to be.
        fs::write(&path, packed(&[], compression, 1)).unwrap();
        assert_eq!(count(TfRecord::options()), Ok(0));
        assert_eq!(count(TfRecord::options().compression(compression)), Ok(0));
    }
    write(&path, &mixed(3), Compression::Gzip, 1);
    let plain = count(TfRecord::options().compression(Compression::Plain)).unwrap_err();
    assert!(matches!(plain, SourceError::TfRecord(TfRecordError::Length { .. })), "{plain}");
    assert!(
        plain.to_string().contains("record 0 at byte 0") && plain.to_string().contains("is not a TFRecord")
    );
    let zlib = count(TfRecord::options().compression(Compression::Zlib)).unwrap_err();
    assert!(matches!(zlib, SourceError::TfRecord(TfRecordError::Packed { .. })), "{zlib}");
    // A record whose length looks like ZLIB's head is plain.
    let like_zlib = vec![7; 0x9c78];
    fs::write(&path, framed([&like_zlib[..]])).unwrap();
    assert_eq!(count(TfRecord::options()), Ok(1));
    // So is one whose length looks like a compressed file's head, and which is cut.
    for bytes in [0x8b1f, 0x9c78] {
        let whole = framed([&vec![7; bytes][..]]);
        for cut in [1, whole.len() / 2, whole.len() - 12] {
            fs::write(&path, &whole[..whole.len() - cut]).unwrap();
            let error = count(TfRecord::options()).unwrap_err();
            assert!(matches!(error, SourceError::TfRecord(TfRecordError::Cut { .. })), "{error}");
        }
    }
    let mut damaged = framed([&like_zlib[..]]);
    damaged[9] ^= 1;
    fs::write(&path, damaged).unwrap();
    let error = count(TfRecord::options()).unwrap_err();
    assert!(matches!(error, SourceError::TfRecord(TfRecordError::Length { length: 0x9c78, .. })), "{error}");
}

#[test]
fn several_files_are_one_data_set() {
    let folder = tempdir().unwrap();
    let records = mixed(30);
    for (name, range, compression) in [
        ("b-2", 20..30, Compression::Plain),
        ("b-10", 0..12, Compression::Gzip),
        ("b-11", 12..12, Compression::Plain),
        ("b-12", 12..20, Compression::Zlib),
    ] {
        write(&folder.path().join(name), &records[range].to_vec(), compression, 2);
    }
    let check = |source: &Joined| {
        let found = walked(source);
        assert!(found.iter().map(|(_, value)| value).eq(records.iter().map(|(_, value)| value)));
        check_source(source, 10);
    };
    let options = TfRecord::options();
    let by_pattern = options.open_all([folder.path().join("b-*")]).unwrap();
    check(&by_pattern);
    assert_eq!(by_pattern.file_records(), Some(vec![12, 0, 8, 10]), "known after a pass");
    // The sidecars are among the files now, and are not taken for records.
    TfRecord::open(folder.path().join("b-2")).unwrap().index(&IndexPlace::Beside).unwrap();
    check(&options.open_all([folder.path()]).unwrap());
    check(&options.open_all(["b-10", "b-1[12]", "b-2"].map(|name| folder.path().join(name))).unwrap());
    assert_eq!(tfrecord::files(folder.path().join("*")).unwrap().len(), 4);
    assert!(options.open_all([folder.path().join("c*")]).is_err());
    assert!(options.open_all(Vec::<std::path::PathBuf>::new()).is_err());
}

#[test]
fn the_index_is_kept_beside_the_file_and_made_anew_for_another() {
    let folder = tempdir().unwrap();
    let (path, sidecar) = (folder.path().join("file"), folder.path().join("file.percolator-index"));
    let records = mixed(40);
    write(&path, &records, Compression::Plain, 1);
    open(&path, Access::Mapped).index(&IndexPlace::Beside).unwrap();
    let kept = fs::read(&sidecar).unwrap();
    let log = logged(|| {
        let source = open(&path, Access::Mapped);
        source.index(&IndexPlace::Beside).unwrap();
        assert!(source.records() == Some(40) && walked(&source) == records);
        check_source(&source, 20);
    });
    assert!(log.contains("a record index is used"), "{log}");
    // Records of other sizes, in a file of the same length, with the same beginning and end: only its use can
    // tell that the index is not of it.
    let mut other = records.clone();
    let (one, next) = (other[20].1.len(), other[21].1.len());
    assert_ne!(one, next);
    other.swap(20, 21);
    for (position, record) in other.iter_mut().enumerate() {
        record.0 = common::key(position);
    }
    write(&path, &other, Compression::Plain, 1);
    for access in BOTH {
        fs::write(&sidecar, &kept).unwrap();
        let source = open(&path, access);
        source.index(&IndexPlace::Beside).unwrap();
        check_source(&source, 30);
        let mut cursor = source.cursor().unwrap();
        cursor.seek(21).unwrap();
        assert!(cursor.advance().unwrap().unwrap().value() == other[21].1);
    }
    assert_ne!(fs::read(&sidecar).unwrap(), kept, "it was made anew");
    // One record fewer, in as many bytes.
    let mut fewer = records.clone();
    let joined = [&fewer[20].1[..], &[0; 16], &fewer[21].1[..]].concat();
    fewer[20].1 = joined;
    fewer.remove(21);
    write(&path, &fewer, Compression::Plain, 1);
    fs::write(&sidecar, &kept).unwrap();
    let source = open(&path, Access::Mapped);
    source.index(&IndexPlace::Beside).unwrap();
    let mut cursor = source.cursor().unwrap();
    cursor.seek(21).unwrap();
    let error = cursor.advance().map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("expected 40 records"), "{error}");
    // A sidecar that is damaged is made anew.
    let mut damaged = kept.clone();
    *damaged.last_mut().unwrap() ^= 1;
    write(&path, &records, Compression::Plain, 1);
    fs::write(&sidecar, damaged).unwrap();
    let source = open(&path, Access::Mapped);
    source.index(&IndexPlace::Beside).unwrap();
    check_source(&source, 20);
    assert_eq!(fs::read(&sidecar).unwrap(), kept);
}

#[test]
fn a_file_that_is_replaced_or_changes_its_length_is_not_read_on() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("file");
    for (compression, access) in [(Compression::Plain, Access::Read), (Compression::Gzip, Access::Mapped)] {
        write(&path, &mixed(5), compression, 1);
        let bytes = fs::read(&path).unwrap();
        let source = open(&path, access);
        // Other bytes, as many, in a file that may have the inode of the one before.
        fs::write(&path, vec![0; bytes.len()]).unwrap();
        let later = SystemTime::now() + Duration::from_secs(1);
        fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        let error = source.cursor().unwrap().advance().map(|_| ()).unwrap_err();
        assert!(matches!(error, SourceError::TfRecord(TfRecordError::Changed { .. })), "{error}");
        fs::write(&path, &bytes).unwrap();
        let source = open(&path, access);
        fs::write(&path, [&bytes[..], b"more"].concat()).unwrap();
        let error = source.cursor().unwrap().advance().map(|_| ()).unwrap_err();
        assert!(matches!(error, SourceError::TfRecord(TfRecordError::Changed { .. })), "{error}");
        fs::remove_file(&path).unwrap();
        fs::write(&path, [&bytes[..], b"more"].concat()).unwrap();
        let error = source.cursor().unwrap().advance().map(|_| ()).unwrap_err();
        assert!(matches!(error, SourceError::TfRecord(TfRecordError::Changed { .. })), "{error}");
    }
    assert!(matches!(
        TfRecord::open(folder.path()).unwrap_err(),
        SourceError::TfRecord(TfRecordError::NoFile { found: "a folder", .. })
    ));
}

/// What is logged meanwhile.
fn logged(run: impl FnOnce()) -> String {
    let log = Log::default();
    log.listen(run);
    log.text()
}

/// A data set may have more files than a process may open.
#[test]
fn many_files_are_read_in_any_order_with_few_open() {
    let folder = tempdir().unwrap();
    let records: Vec<_> = (0..2_u8).map(|index| (common::key(index.into()), vec![index; 9])).collect();
    for number in 0..1500 {
        write(&folder.path().join(format!("{number:05}")), &records, Compression::Plain, 1);
    }
    // The second time beside the files, their indexes are found.
    let places = [IndexPlace::Memory, IndexPlace::Beside, IndexPlace::Beside];
    for (access, place) in BOTH.into_iter().flat_map(|access| places.iter().map(move |place| (access, place)))
    {
        let source = TfRecord::options().access(access).open_all([folder.path()]).unwrap();
        source.index(place).unwrap();
        let mut cursor = source.cursor().unwrap();
        for step in 0..3000_u64 {
            let position = step * 1103 % 3000;
            cursor.seek(position).unwrap();
            let found = cursor.advance().unwrap().unwrap().value() == records[(position % 2) as usize].1;
            assert!(found);
        }
        cursor.rewind().unwrap();
        while cursor.skip().unwrap() {}
        #[cfg(target_os = "linux")]
        {
            let open = || {
                fs::read_dir("/proc/self/fd")
                    .unwrap()
                    .filter_map(|file| fs::read_link(file.ok()?.path()).ok())
            };
            let files = open().count();
            assert!(files < 600, "{files} files are open");
            drop((cursor, source));
            let left: Vec<_> = open().filter(|file| file.starts_with(folder.path())).collect();
            assert!(left.is_empty(), "open after their cursors are gone: {left:?}");
        }
    }
}
