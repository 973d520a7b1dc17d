//! Files that are cut, damaged, of another program or another version, or gone.

use std::fs;

use percolator_cluster::metadata::{FolderMetadata, Metadata as _, MetadataError, Transaction};
use rusqlite::Connection;
use tempfile::TempDir;

use super::commit;
use crate::process::sample::{some_with, times};

const DATA: &str = "metadata.sqlite";

/// A folder with records, some of which have pages of their own.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let records = FolderMetadata::open(folder.path()).unwrap();
    let lease = records.grant(std::time::Duration::MAX).unwrap();
    let many = (0..60).fold(Transaction::new(), |all, key| all.put(format!("/many/{key}"), vec![7; 100]));
    commit(&records, &many);
    commit(&records, &Transaction::new().put_under(lease, "/large", vec![1; 10_000]).remove("/many/7"));
    commit(&records, &Transaction::new().put("/last", "1"));
    folder
}

fn damaged(found: Result<FolderMetadata, MetadataError>, due: &str) {
    match found {
        Err(error @ MetadataError::Damaged { .. }) => assert!(error.to_string().contains(due), "{error}"),
        found => panic!("{found:?}"),
    }
}

#[test]
fn what_is_no_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join(DATA);
    for bytes in [&b""[..], b"text\n", &[0; 4096], &[0; 1 << 20], &[0xff; 20_000]] {
        fs::write(&data, bytes).unwrap();
        damaged(FolderMetadata::open(folder.path()), DATA);
        assert_eq!(fs::read(&data).unwrap(), bytes, "it is left as it is");
    }
    fs::remove_file(&data).unwrap();
    fs::create_dir(&data).unwrap();
    assert!(FolderMetadata::open(folder.path()).is_err());
}

#[test]
fn other_programs_and_versions_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let other = Connection::open(folder.path().join(DATA)).unwrap();
    other.execute_batch("CREATE TABLE photos (name TEXT)").unwrap();
    damaged(FolderMetadata::open(folder.path()), "is a database of another program: use another folder");
    drop(other);

    let folder = self::folder();
    let next = Connection::open(folder.path().join(DATA)).unwrap();
    next.pragma_update(None, "user_version", 2).unwrap();
    let due = "has the format 2, and this program knows only 1: use the version of the program that wrote it";
    damaged(FolderMetadata::open(folder.path()), due);
    next.pragma_update(None, "user_version", 1).unwrap();
    next.execute_batch("DROP INDEX records_by_lease").unwrap();
    damaged(FolderMetadata::open(folder.path()), "its tables are not this program's");
}

/// Versions before SQLite had an LMDB.
#[test]
fn records_of_an_earlier_version_are_named() {
    let folder = folder();
    fs::write(folder.path().join("metadata.mdb"), "pages").unwrap();
    damaged(FolderMetadata::open(folder.path()), "metadata.mdb is of an earlier version");
}

#[test]
fn records_are_checked() {
    let folder = folder();
    let other = Connection::open(folder.path().join(DATA)).unwrap();
    let change = "UPDATE records SET value = x'00' WHERE key = CAST('/last' AS BLOB)";
    assert_eq!(other.execute(change, []).unwrap(), 1);
    let records = FolderMetadata::open(folder.path()).unwrap();
    assert_eq!(records.read("/large").unwrap().records.len(), 1);
    let error = records.read("/last").unwrap_err();
    assert!(error.to_string().contains("the record \"/last\" does not have its checksum"), "{error}");
    let error = records.transact(&Transaction::new().put("/last", "2")).unwrap_err();
    assert!(matches!(error, MetadataError::Damaged { .. }), "{error}");
    assert_eq!(records.read("/large").unwrap().records.len(), 1, "the rest can be read");
    commit(&records, &Transaction::new().remove("/last"));
    commit(&records, &Transaction::new().put("/last", "2"));
}

#[test]
fn a_file_that_was_cut_is_refused_or_whole() {
    let folder = folder();
    let data = folder.path().join(DATA);
    let (whole, records) =
        (fs::read(&data).unwrap(), FolderMetadata::open(folder.path()).unwrap().read("").unwrap());
    let mut refused = 0;
    let used = whole.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    for bytes in (0..whole.len()).step_by(1021).chain([whole.len()]) {
        fs::write(&data, &whole[..bytes]).unwrap();
        match FolderMetadata::open(folder.path()) {
            Err(MetadataError::Damaged { .. }) => refused += 1,
            Err(error) => panic!("{error:?}"),
            Ok(opened) => {
                assert_eq!(opened.read("").unwrap(), records, "cut to {bytes} bytes");
                commit(&opened, &Transaction::new().put("/more", vec![0; 1 << 20]));
            }
        }
    }
    assert!(refused >= used / 1021, "{refused} of {used} bytes");
}

/// What is read then is an error, or what this process still knew.
#[test]
fn a_file_that_is_cut_while_it_is_open_is_noticed() {
    let folder = folder();
    let records = FolderMetadata::open(folder.path()).unwrap();
    let before = records.read("").unwrap();
    // It stays open: closing it would end the locks of this process.
    let file = fs::File::options().write(true).open(folder.path().join(DATA)).unwrap();
    file.set_len(5000).unwrap();
    match records.read("") {
        Ok(found) => assert_eq!(found, before),
        Err(error) => assert!(matches!(error, MetadataError::Damaged { .. }), "{error:?}"),
    }
    damaged(FolderMetadata::open(folder.path()), "metadata.sqlite is damaged");
}

/// Nor is a new one made as long as its log is there: SQLite would take it for that of the new one.
#[test]
fn a_file_that_is_gone_is_noticed() {
    let folder = folder();
    let records = FolderMetadata::open(folder.path()).unwrap();
    fs::rename(folder.path().join(DATA), folder.path().join("old")).unwrap();
    let error = records.read("").unwrap_err();
    assert!(error.to_string().contains("metadata.sqlite was removed while it was open"), "{error}");
    damaged(FolderMetadata::open(folder.path()), "metadata.sqlite-wal is there without metadata.sqlite");
    for name in ["metadata.sqlite-wal", "metadata.sqlite-shm"] {
        fs::remove_file(folder.path().join(name)).unwrap();
    }
    assert_eq!(FolderMetadata::open(folder.path()).unwrap().read("").unwrap().records, []);
    let error = records.transact(&Transaction::new().put("a", "1")).unwrap_err();
    assert!(error.to_string().contains("metadata.sqlite was replaced while it was open"), "{error}");
}

/// Whatever byte is damaged: what is read is right, or it is an error.
#[test]
fn damaged_bytes_are_errors_or_do_not_matter() {
    let folder = folder();
    let data = folder.path().join(DATA);
    let records = FolderMetadata::open(folder.path()).unwrap().read("").unwrap();
    let whole = fs::read(&data).unwrap();
    let used = whole.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    let (mut refused, mut read) = (0, 0);
    let file = fs::File::options().write(true).open(&data).unwrap();
    // All of the header, whose bytes have meanings of their own.
    for at in some_with((0..used).step_by(7), 7, |at| *at < 100) {
        use std::os::unix::fs::FileExt as _;

        let flip = [1, 0x80, 0xff][at / 7 % 3];
        file.write_all_at(&[whole[at] ^ flip], u64::try_from(at).unwrap()).unwrap();
        let found = FolderMetadata::open(folder.path()).and_then(|opened| opened.read(""));
        file.write_all_at(&whole[at..=at], u64::try_from(at).unwrap()).unwrap();
        match found {
            Ok(found) => {
                assert_eq!(found, records, "byte {at}");
                read += 1;
            }
            Err(MetadataError::Damaged { .. }) => refused += 1,
            Err(error) => panic!("byte {at}: {error:?}"),
        }
    }
    assert!(refused > times(1000, 100) && read > 0, "{refused} refused, {read} read");
}
