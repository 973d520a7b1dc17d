//! What the writer writes, and that a file is there whole or not at all.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use flate2::read::{MultiGzDecoder, ZlibDecoder};
use percolator::tfrecord::{Compression, TfRecordError, TfRecordWriter};
use proptest::prelude::*;

use crate::files::{COMPRESSIONS, framed};

fn write(path: &Path, compression: Compression, records: &[Vec<u8>]) -> Result<(), TfRecordError> {
    let mut writer = TfRecordWriter::create(path, compression)?;
    for record in records {
        writer.write(record)?;
    }
    assert_eq!(writer.records(), records.len() as u64);
    writer.finish()
}

/// The bytes of a file, unpacked.
fn unpacked(path: &Path, compression: Compression) -> Vec<u8> {
    let (file, mut bytes) = (File::open(path).unwrap(), Vec::new());
    match compression {
        Compression::Plain => { file }.read_to_end(&mut bytes),
        Compression::Gzip => MultiGzDecoder::new(file).read_to_end(&mut bytes),
        Compression::Zlib => ZlibDecoder::new(file).read_to_end(&mut bytes),
    }
    .unwrap();
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn records_are_framed_as_the_twin_frames_them(
        records in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 0..40),
        compression in prop::sample::select(&COMPRESSIONS[..]),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write(&path, compression, &records).unwrap();
        prop_assert_eq!(unpacked(&path, compression), framed(records.iter().map(|record| &record[..])));
    }
}

#[test]
fn a_file_is_there_once_it_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for compression in COMPRESSIONS {
        let mut writer = TfRecordWriter::create(&path, compression).unwrap();
        writer.write(&vec![7; 1 << 20]).unwrap();
        assert!(!path.exists());
        drop(writer);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left over");
    }
    write(&path, Compression::Plain, &[b"one".to_vec()]).unwrap();
    let before = fs::read(&path).unwrap();
    let mut writer = TfRecordWriter::create(&path, Compression::Gzip).unwrap();
    writer.write(b"two").unwrap();
    assert_eq!(fs::read(&path).unwrap(), before, "what was there stays until then");
    writer.finish().unwrap();
    assert_ne!(fs::read(&path).unwrap(), before);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn no_file_can_be_in_a_folder_that_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none/file");
    let error = TfRecordWriter::create(&path, Compression::Plain).unwrap_err().to_string();
    assert!(error.contains("none/file: cannot create the file"), "{error}");
    let error = TfRecordWriter::create(folder.path(), Compression::Plain).unwrap_err().to_string();
    assert!(error.contains("a folder is there"), "{error}");
}

/// A file system that is full, by a limit on the length of a file. In a process of its own, because the limit
/// is the process's.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_does_not_fit_is_an_error_and_leaves_nothing() {
    const FOLDER: &str = "PERCOLATOR_TEST_FULL";
    if let Some(folder) = std::env::var_os(FOLDER) {
        let path = Path::new(&folder).join("file");
        for compression in COMPRESSIONS {
            let mut writer = TfRecordWriter::create(&path, compression).unwrap();
            let record: Vec<u8> =
                (0..1_u32 << 16).flat_map(|at| at.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
            let failed = (0..1000).find_map(|_| writer.write(&record).err()).unwrap();
            assert!(matches!(failed, TfRecordError::Io { action: "write the file", .. }), "{failed}");
            assert!(writer.write(b"more").is_err());
            let error = writer.finish().unwrap_err().to_string();
            assert!(error.contains("failed before"), "{error}");
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let this = std::env::current_exe().unwrap();
    let script = "trap '' XFSZ; ulimit -f 2000; exec \"$0\" --exact \"$1\" --nocapture";
    let name = "writer::a_file_that_does_not_fit_is_an_error_and_leaves_nothing";
    let run = std::process::Command::new("sh")
        .args(["-c", script])
        .arg(this)
        .arg(name)
        .env(FOLDER, folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success() && said.contains("1 passed"),
        "{said}{}",
        String::from_utf8_lossy(&run.stderr)
    );
}
