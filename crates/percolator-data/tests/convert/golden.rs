//! Caffe's `convert_imageset` made the golden databases of the files that others of them hold: what is made
//! of the same files here is the same, byte for byte.

use std::fs;
use std::path::{Path, PathBuf};

use percolator::ColorMode;
use percolator::decoder::ImageFileDecoder;
use percolator::proto::Datum;
use percolator_data::convert::{Convert, Encoded, Encoding, ImageOptions, Progress, Summary};
use percolator_data::input::{ListedImages, Records as StoredRecords};
use percolator_data::store::Backend;
use prost::Message as _;
use tempfile::TempDir;

use crate::{BACKENDS, Records, golden, golden_records, read};

/// The files that a golden database holds, in `img/`, and the list of them.
fn files(database: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("img")).unwrap();
    let mut list = String::new();
    for (key, value) in golden_records(database) {
        let name = String::from_utf8(key[9..].to_vec()).unwrap();
        let datum = Datum::decode(&value[..]).unwrap();
        fs::write(folder.path().join("img").join(&name), datum.data.unwrap()).unwrap();
        list += &format!("{name} {}\n", datum.label.unwrap());
    }
    let path = folder.path().join("list.txt");
    fs::write(&path, list).unwrap();
    (folder, path)
}

/// Converts a list of files in `img/`.
fn convert(folder: &Path, options: ImageOptions, backend: Backend) -> (Summary, Records) {
    let root = folder.join("img/");
    let input = ListedImages::open(&folder.join("list.txt"), root, None).unwrap();
    let output = folder.join(format!("made_{backend}"));
    let summary = Convert::new(input, &output, backend)
        .images(options)
        .threads(3)
        .force(true)
        .run(&Progress::new())
        .unwrap();
    (summary, read(backend, &output))
}

#[test]
fn png_files_become_caffes_records() {
    let (folder, _) = files("png_color_lmdb");
    let gray = ImageOptions { gray: true, ..ImageOptions::default() };
    let resize = ImageOptions { resize: Some([32, 24]), check_size: true, ..ImageOptions::default() };
    for (options, database) in [
        (ImageOptions::default(), "imageset_raw_lmdb"),
        (gray, "imageset_gray_lmdb"),
        (resize, "imageset_resize_lmdb"),
    ] {
        for backend in BACKENDS {
            let (summary, records) = convert(folder.path(), options, backend);
            let mut wanted = golden_records(database);
            if backend == Backend::TfRecord {
                wanted.iter_mut().for_each(|(key, _)| key.truncate(8));
            }
            assert!(records == wanted, "{database}, {backend}");
            assert_eq!((summary.records, summary.skipped), (12, 0));
        }
    }
}

#[test]
fn encoded_files_are_stored_as_they_are() {
    for database in [
        "png_color_lmdb",
        "png_gray_lmdb",
        "png_mixed_lmdb",
        "png_rgba_lmdb",
        "jpg_color_lmdb",
        "jpg_gray_lmdb",
        "jpg_mixed_lmdb",
        "jpg_exif_lmdb",
    ] {
        let (folder, _) = files(database);
        let is_gray = database.contains("gray");
        for (gray, check_size) in [(false, false), (is_gray, true)] {
            let encoded = Some(Encoded::AsNamed);
            let options = ImageOptions { gray, encoded, check_size, resize: None };
            let (_, records) = convert(folder.path(), options, Backend::Lmdb);
            assert!(records == golden_records(database), "{database}");
        }
    }
}

/// Caffe stores colours here, whatever `--gray` says.
#[test]
fn encoded_files_are_gray_if_that_is_asked_for() {
    for (database, loss) in [("png_color_lmdb", 0), ("png_rgba_lmdb", 0), ("jpg_color_lmdb", 12)] {
        let (folder, _) = files(database);
        let options = ImageOptions { gray: true, encoded: Some(Encoded::AsNamed), ..ImageOptions::default() };
        let (_, records) = convert(folder.path(), options, Backend::Lmdb);
        let wanted = golden_records(database);
        assert_eq!(records.len(), wanted.len());
        for ((_, value), (_, wanted)) in records.iter().zip(&wanted) {
            let gray = |value: &[u8], color| {
                let file = Datum::decode(value).unwrap().data.unwrap();
                let mut decoder = ImageFileDecoder::new(color);
                let image = decoder.decode(&file).unwrap();
                (image.shape, image.bytes.to_vec())
            };
            let (shape, found) = gray(value, ColorMode::Native);
            let (wanted_shape, wanted) = gray(wanted, ColorMode::Gray);
            assert_eq!((shape, shape.channels), (wanted_shape, 1), "{database}");
            let worst = found.iter().zip(&wanted).map(|(one, other)| one.abs_diff(*other)).max().unwrap();
            assert!(worst <= loss, "{database}: {worst}");
        }
    }
}

/// The pixels of an encoded record.
fn pixels(value: &[u8]) -> Vec<u8> {
    let datum = Datum::decode(value).unwrap();
    assert_eq!((datum.encoded, datum.channels, datum.height), (Some(true), None, None));
    let mut decoder = ImageFileDecoder::new(ColorMode::Color);
    decoder.decode(&datum.data.unwrap()).unwrap().bytes.to_vec()
}

#[test]
fn an_image_that_is_encoded_anew_has_caffes_pixels() {
    let (folder, _) = files("jpg_color_lmdb");
    let encoded = Some(Encoded::As(Encoding::Png));
    let (_, records) =
        convert(folder.path(), ImageOptions { encoded, ..ImageOptions::default() }, Backend::Lmdb);
    let wanted = golden_records("imageset_reencode_lmdb");
    assert_eq!(records.len(), wanted.len());
    for ((key, value), (wanted_key, wanted)) in records.iter().zip(&wanted) {
        assert_eq!(key, wanted_key);
        assert!(pixels(value) == pixels(wanted), "{}", key.escape_ascii());
        assert_eq!(value[value.len() - 4..], wanted[wanted.len() - 4..], "label and encoded");
    }
    // A JPEG loses a little.
    let encoded = Some(Encoded::As(Encoding::Jpeg));
    let options = ImageOptions { encoded, resize: Some([75, 53]), ..ImageOptions::default() };
    let (_, records) = convert(folder.path(), options, Backend::Lmdb);
    for ((_, value), (_, wanted)) in records.iter().zip(&wanted) {
        let (found, wanted) = (pixels(value), pixels(wanted));
        let sum: u32 = found.iter().zip(&wanted).map(|(one, other)| u32::from(one.abs_diff(*other))).sum();
        assert!(sum as usize <= 10 * found.len(), "on average {} levels", sum as usize / found.len());
    }
}

#[test]
fn a_store_goes_to_each_kind_of_store_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let databases = ["raw_lmdb", "raw_leveldb_ldb", "raw_leveldb_log", "float_lmdb", "jpg_exif_lmdb"];
    for database in databases {
        let input = || StoredRecords::open(&golden(database)).unwrap();
        let kind = if database.contains("leveldb") { Backend::LevelDb } else { Backend::Lmdb };
        let wanted = read(kind, &golden(database));
        let mut before: Option<PathBuf> = None;
        for backend in [Backend::Lmdb, Backend::LevelDb, Backend::Lmdb] {
            let input = before.as_ref().map_or_else(input, |path| StoredRecords::open(path).unwrap());
            let output = folder.path().join(format!("{database}_{}", crate::names(folder.path()).len()));
            Convert::new(input, &output, backend).run(&Progress::new()).unwrap();
            assert!(read(backend, &output) == wanted, "{database}, {backend}");
            before = Some(output);
        }
        let output = folder.path().join(format!("{database}.tfrecord"));
        Convert::new(input(), &output, Backend::TfRecord).run(&Progress::new()).unwrap();
        let back = folder.path().join(format!("{database}_back"));
        Convert::new(StoredRecords::open(&output).unwrap(), &back, Backend::Lmdb)
            .run(&Progress::new())
            .unwrap();
        let numbered: Records = wanted
            .into_iter()
            .enumerate()
            .map(|(number, (_, value))| (format!("{number:08}").into_bytes(), value))
            .collect();
        assert!(read(Backend::Lmdb, &back) == numbered, "{database}");
    }
}
