//! Files that are cut, damaged, of another program or another version, or gone. LMDB would end the process
//! on most of them.

use std::fs;
use std::path::Path;

use lmdb::{EnvironmentFlags, Transaction as _, WriteFlags};
use percolator_cluster::metadata::{FolderMetadata, Metadata as _, MetadataError, Transaction};
use tempfile::TempDir;

use super::commit;

const DATA: &str = "metadata.mdb";

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
fn what_is_no_lmdb_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join(DATA);
    for bytes in [&b""[..], b"text\n", &[0; 4096], &[0; 1 << 20], &[0xff; 20_000]] {
        fs::write(&data, bytes).unwrap();
        damaged(FolderMetadata::open(folder.path()), "metadata.mdb");
        assert_eq!(fs::read(&data).unwrap(), bytes, "it is left as it is");
    }
    fs::remove_file(&data).unwrap();
    fs::create_dir(&data).unwrap();
    assert!(FolderMetadata::open(folder.path()).is_err());
}

/// Puts an entry into the file with LMDB itself.
fn put(data: &Path, key: &[u8], value: &[u8]) {
    let flags = EnvironmentFlags::NO_SUB_DIR | EnvironmentFlags::NO_LOCK;
    let environment = lmdb::Environment::new().set_flags(flags).open(data).unwrap();
    let database = environment.open_db(None).unwrap();
    let mut transaction = environment.begin_rw_txn().unwrap();
    transaction.put(database, &key, &value, WriteFlags::empty()).unwrap();
    transaction.commit().unwrap();
}

#[test]
fn other_programs_and_versions_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join(DATA);
    put(&data, b"00000000", b"a record of Caffe");
    damaged(FolderMetadata::open(folder.path()), "is an LMDB of another program: use another folder");
    put(&data, b"\0", b"PERCMETA\x02\0\0\0 and whatever the next version writes");
    let due = "has the format 2, and this program knows only 1: use the version of the program that wrote it";
    damaged(FolderMetadata::open(folder.path()), due);
}

#[test]
fn entries_are_checked() {
    let folder = folder();
    put(&folder.path().join(DATA), b"\x03/last", b"no checksum");
    let records = FolderMetadata::open(folder.path()).unwrap();
    assert_eq!(records.read("/large").unwrap().records.len(), 1);
    let error = records.read("/last").unwrap_err();
    assert!(error.to_string().contains("the entry \"\\x03/last\" does not have its checksum"), "{error}");
    let error = records.transact(&Transaction::new().remove("/last")).unwrap_err();
    assert!(matches!(error, MetadataError::Damaged { .. }), "{error}");
    assert_eq!(records.read("/large").unwrap().records.len(), 1, "the rest can be read");
}

#[test]
fn a_file_that_was_cut_is_refused_or_whole() {
    let folder = folder();
    let data = folder.path().join(DATA);
    let (whole, records) =
        (fs::read(&data).unwrap(), FolderMetadata::open(folder.path()).unwrap().read("").unwrap());
    let mut refused = 0;
    let used = whole.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    for bytes in (0..used + 20_000).step_by(1021) {
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

#[test]
fn a_file_that_is_cut_while_it_is_open_is_noticed() {
    let folder = folder();
    let records = FolderMetadata::open(folder.path()).unwrap();
    let file = fs::File::options().write(true).open(folder.path().join(DATA)).unwrap();
    file.set_len(5000).unwrap();
    let error = records.read("").unwrap_err();
    assert!(error.to_string().contains("metadata.mdb is cut: it has 5000 bytes"), "{error}");
    assert!(records.grant(std::time::Duration::MAX).is_err());
}

#[test]
fn a_file_that_is_gone_is_noticed() {
    let folder = folder();
    let records = FolderMetadata::open(folder.path()).unwrap();
    fs::rename(folder.path().join(DATA), folder.path().join("old")).unwrap();
    let error = records.read("").unwrap_err();
    assert!(error.to_string().contains("metadata.mdb was removed while it was open"), "{error}");
    assert_eq!(FolderMetadata::open(folder.path()).unwrap().read("").unwrap().records, []);
    let error = records.transact(&Transaction::new().put("a", "1")).unwrap_err();
    assert!(error.to_string().contains("metadata.mdb was replaced while it was open"), "{error}");
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
    for at in (0..used).step_by(3) {
        use std::os::unix::fs::FileExt as _;

        let flip = [1, 0x80, 0xff][at / 3 % 3];
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
    assert!(refused > 1000 && read > 0, "{refused} refused, {read} read");
}
