//! Each kind is told by a thing of it, and what may be wanted is left to its own reader.

#![allow(clippy::cast_possible_truncation, reason = "what is cut off is meant to be")]
#![allow(clippy::too_many_lines, reason = "tables")]

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

fn said(path: &Path) -> String {
    Thing::at(path).map(|thing| thing.to_string()).unwrap_or_default()
}

#[test]
fn files_are_told_by_their_first_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let zip = |name: &str| {
        let mut file = b"PK\x03\x04".to_vec();
        file.resize(26, 0);
        file.extend([name.len() as u8, 0, 0, 0]);
        file.extend(name.as_bytes());
        file
    };
    let tar = {
        let mut file = vec![b'a'; 512];
        file[257..262].copy_from_slice(b"ustar");
        file
    };
    let table = [&[1; 60][..], &[0x57, 0xfb, 0x80, 0x8b, 0x24, 0x75, 0x47, 0xdb]].concat();
    let bmp = [&b"BM"[..], &20_u32.to_le_bytes(), &[0; 14]].concat();
    let idx = [&[0, 0, 8, 1, 0, 0, 0, 4][..], &[1, 2, 3, 4]].concat();
    let safetensors = [&14_u64.to_le_bytes()[..], b"{\"__m__\": {}} "].concat();
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 132735\n";
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        ("data.mdb", pointer.to_vec(), "a Git LFS pointer, which stands for a file of 132735 bytes: fetch"),
        ("empty", Vec::new(), "an empty file"),
        ("sparse", vec![0; 100_000], "100000 bytes of zeros"),
        ("begun", [vec![0; 50_000], vec![1; 50_000]].concat(), "a file that begins with zeros"),
        ("x.jpg", b"\xff\xd8\xff\xe0".to_vec(), "a JPEG image: list"),
        ("x", b"\x89PNG\r\n\x1a\n".to_vec(), "a PNG image"),
        ("x", b"GIF89a1".to_vec(), "a GIF image"),
        ("x", b"RIFF\x01\0\0\0WEBPVP8".to_vec(), "a WebP image"),
        ("x", bmp, "a BMP image"),
        ("x", b"II*\0\x08\0".to_vec(), "a TIFF image"),
        ("x.tar", tar, "a tar archive: unpack it"),
        ("x.zip", zip("train/cat.jpg"), "a ZIP archive: unpack it"),
        ("model.ckpt", zip("archive/data.pkl"), "a PyTorch file (a ZIP archive with a pickle): read it with"),
        ("x.npz", zip("w.npy"), "a NumPy archive"),
        ("x.gz", b"\x1f\x8b\x08\0".to_vec(), "a file packed with gzip"),
        ("x.zst", b"\x28\xb5\x2f\xfd\x04".to_vec(), "a file packed with zstd"),
        ("x.xz", b"\xfd7zXZ\0\0".to_vec(), "a file packed with xz"),
        ("x.bz2", b"BZh91AY&SY".to_vec(), "a file packed with bzip2"),
        ("x", b"\x80\x04\x95\x03\0\0\0\0\0\0\0N.".to_vec(), "a Python pickle"),
        ("x", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80".to_vec(), "a PyTorch file from before"),
        ("x.h5", b"\x89HDF\r\n\x1a\n".to_vec(), "an HDF5 file: read it with `SourceSpec::files"),
        ("x", b"\x93NUMPY\x01\0".to_vec(), "a NumPy array"),
        ("x", safetensors, "a file of safetensors"),
        ("model.ckpt", table.clone(), "a TensorFlow checkpoint of the first format (V1)"),
        ("m.index", table.clone(), "the index of a TensorFlow checkpoint"),
        ("000005.ldb", table, "a table of a LevelDB"),
        ("x", b"PAR1\x15\x04".to_vec(), "a Parquet file"),
        ("x", b"ARROW1\0\0".to_vec(), "an Arrow file"),
        ("x", b"FEA1\0".to_vec(), "a Feather file"),
        ("x", b"Obj\x01\x04".to_vec(), "an Avro file"),
        ("x.rec", b"\x0a\x23\xd7\xce\0".to_vec(), "a RecordIO file"),
        ("x", idx, "an IDX file"),
        ("lock.mdb", vec![1; 40], "an LMDB's lock file: give its folder"),
        ("x.tfrecord", b"<!DOCTYPE html>\n<html>".to_vec(), "an HTML page"),
        ("x", b"<?xml version=\"1.0\"?><Error><Code>AccessDenied".to_vec(), "an XML text"),
        ("x", b"{\"a\": 1}".to_vec(), "a JSON text"),
        ("net.prototxt", b"name: \"n\"\nlayer {\n  type: \"Data\"\n}\n".to_vec(), "a net of Caffe"),
        ("s.prototxt", b"# a solver\nnet: \"n.prototxt\"\nbase_lr: 0.1\n".to_vec(), "a solver of Caffe"),
        ("checkpoint", b"model_checkpoint_path: \"m\"\n".to_vec(), "the state file of TensorFlow"),
        ("l.txt", b"cat.jpg 3\ndog.jpg 4\n".to_vec(), "a list of images"),
        ("l.txt", b"\xef\xbb\xbfa cat.jpg 3\r\n".to_vec(), "a list of images"),
        ("l.txt", b"cat.jpg\t3\n".to_vec(), "a text with a tab before each label"),
        ("l.txt", b"cat.jpg,3\n".to_vec(), "a text with a comma before each label"),
        ("l.txt", b"3 cat.jpg\n".to_vec(), "a text with each label before its name"),
        ("l.txt", b"cat.jpg\ndog.jpg\n".to_vec(), "a text with names without labels"),
        ("l.txt", b"\xff\xfec\0a\0t\0".to_vec(), "a text in UTF-16: save it as UTF-8"),
        ("x", b"some words of nobody\n".to_vec(), "a text that begins with \"some words of nobody\""),
    ];
    for (name, bytes, wanted) in cases {
        let path = folder.path().join(name);
        fs::write(&path, &bytes).unwrap();
        let found = said(&path);
        assert!(
            found.starts_with(wanted),
            "{name}, {}: {found:?}",
            bytes[..bytes.len().min(20)].escape_ascii()
        );
        assert!(!found.contains(char::is_control), "{found:?}");
        fs::remove_file(&path).unwrap();
    }
    // Nobody knows these.
    for bytes in [&[1, 2, 3][..], b"BM\0and more bytes", b"\x80\x04 no pickle", b"a\0b", &[7; 5000]] {
        let path = folder.path().join("unknown");
        fs::write(&path, bytes).unwrap();
        assert_eq!(Thing::at(&path), None, "{}", bytes[..3].escape_ascii());
    }
}

#[test]
fn folders_are_told_by_the_names_in_them() {
    let folder = tempfile::tempdir().unwrap();
    let cases: &[(&[&str], &str)] = &[
        (&[], "an empty folder"),
        (&["data.mdb", "lock.mdb"], "an LMDB"),
        (&["lock.mdb"], "an LMDB's folder without its data.mdb"),
        (&["CURRENT", "MANIFEST-000001", "000003.log"], "a LevelDB"),
        (&["CURRENT", "IDENTITY", "OPTIONS-000005"], "a RocksDB, which is no LevelDB"),
        (&["CURRENT", "OPTIONS-000005"], "a RocksDB, which is no LevelDB"),
        (&["000005.ldb", "MANIFEST-000001"], "a LevelDB's folder without its CURRENT"),
        (&["saved_model.pb", "variables/variables.index"], "a SavedModel"),
        (&["checkpoint"], "a folder of TensorFlow's checkpoints"),
        (&["train.tfrecord-00000-of-00001", "README.md"], "a folder of TFRecord files"),
        (&["cat/1.jpg", "dog/2.PNG"], "a folder with a folder of images for each class"),
        (&["1.jpg", "2.jpg"], "a folder of images"),
        (
            &["train_lmdb/data.mdb", "test_lmdb/data.mdb"],
            "a folder with data sets in its folders, such as test_lmdb",
        ),
        (&["a.parquet"], "a folder of Parquet files"),
        (&["data-00000-of-00001.arrow", "state.json"], "a folder of Arrow files"),
        (&["a.tar", "b.tar"], "a folder of tar archives"),
        (&["a.h5", "b.hdf5"], "a folder of HDF5 files: read it with `SourceSpec::files"),
    ];
    for (number, (names, wanted)) in cases.iter().enumerate() {
        let path = folder.path().join(number.to_string());
        fs::create_dir(&path).unwrap();
        for name in *names {
            fs::create_dir_all(path.join(name).parent().unwrap()).unwrap();
            fs::write(path.join(name), "x").unwrap();
        }
        assert!(said(&path).starts_with(wanted), "{names:?}: {}", said(&path));
    }
    let path = folder.path().join("unknown");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("notes"), "x").unwrap();
    assert_eq!(Thing::at(&path), None);
    // A folder that nobody may list.
    let closed = folder.path().join("1");
    fs::set_permissions(&closed, Permissions::from_mode(0o311)).unwrap();
    assert_eq!(said(&closed).split(':').next(), Some("an LMDB"));
    fs::set_permissions(&closed, Permissions::from_mode(0o755)).unwrap();
    // A link that leads nowhere.
    let link = folder.path().join("link");
    symlink("nowhere", &link).unwrap();
    assert!(said(&link).starts_with("a link to nowhere, where nothing is"), "{}", said(&link));
    assert_eq!(Thing::at(&folder.path().join("missing")), None);
    // A file of a database.
    assert_eq!(said(&folder.path().join("3/000003.log")), "a file of a LevelDB: give its folder");
    assert!(said(&folder.path().join("4/IDENTITY")).starts_with("a file of a RocksDB"));
}

/// Whatever the bytes, nothing panics.
#[test]
fn no_bytes_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let mut seed = 7_u64;
    let mut random = || {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (seed >> 33) as usize
    };
    for length in 0..300_usize {
        let magic: &[u8] = [&b"PK\x03\x04"[..], b"\0\0\x08\x02", b"\x93", b"{"][random() % 4];
        let bytes: Vec<u8> = magic.iter().copied().chain((0..length).map(|_| random() as u8)).collect();
        fs::write(&path, &bytes).unwrap();
        let _ = Thing::at(&path);
    }
}

/// A database may have more files than are looked at.
#[test]
fn a_large_leveldb_is_one() {
    let folder = tempfile::tempdir().unwrap();
    for number in 0..5000 {
        fs::write(folder.path().join(format!("{number:06}.ldb")), "").unwrap();
    }
    assert!(said(folder.path()).starts_with("a LevelDB's folder without its CURRENT"));
    fs::write(folder.path().join("CURRENT"), "MANIFEST-000004\n").unwrap();
    assert_eq!(Thing::at(folder.path()).map(|thing| thing.kind()), Some(Kind::LevelDb));
}
