//! Verification finds what was damaged, and no more; the clean copy has everything else.

#![allow(clippy::cast_possible_truncation, reason = "the numbers of a test are small")]

use std::fs;
use std::num::NonZeroUsize;
use std::path::Path;

use percolator::bad::Quarantined;
use percolator::example::ExampleWriter;
use percolator::tfrecord::{Compression, TfRecordWriter};
use percolator_data::scan::Progress;
use percolator_data::store::Existing;
use percolator_data::verify::{Fault, Since, Verified, VerifyOptions, quarantined, repair, verify};
use percolator_data::{Content, DataSet};
use proptest::prelude::*;

use crate::common::{copy, data, datum, encoded, golden, golden_databases, lmdb};

fn checked(path: &Path) -> (Verified, Vec<Fault>) {
    let mut faults = Vec::new();
    let data = DataSet::open(path).unwrap();
    let verified =
        verify(&data, &VerifyOptions::default(), &Progress::new(), |fault| faults.push(fault.clone()))
            .unwrap();
    (verified, faults)
}

fn said(path: &Path) -> (Verified, Vec<String>) {
    let (verified, faults) = checked(path);
    (verified, faults.iter().map(ToString::to_string).collect())
}

/// The clean copy of a data set.
fn mended(path: &Path, out: &Path) -> Verified {
    let data = DataSet::open(path).unwrap();
    let options = VerifyOptions::default();
    let repaired = repair(&data, out, Existing::Refuse, &options, &Progress::new(), |_| ()).unwrap();
    let (verified, faults) = checked(out);
    assert!(verified.is_whole() && faults.is_empty(), "{faults:?}");
    assert_eq!((verified.whole, repaired.written), (repaired.verified.whole, repaired.verified.whole));
    repaired.verified
}

fn records(path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut records = Vec::new();
    for source in DataSet::open(path).unwrap().sources() {
        let mut cursor = source.cursor().unwrap();
        while let Some(entry) = cursor.advance().unwrap() {
            records.push((entry.key().to_vec(), entry.value().to_vec()));
        }
    }
    records
}

#[test]
fn what_is_whole_is_said_to_be() {
    for name in golden_databases() {
        let (verified, faults) = checked(&golden(&name));
        assert!(verified.is_whole() && faults.is_empty(), "{name}: {faults:?}");
        assert_eq!(verified.content, Content::Datum);
        assert!(verified.whole >= 10, "{name}");
    }
    for name in ["jpg_color", "raw", "examples", "examples.gz", "examples.zlib", "sequence"] {
        let (verified, faults) = checked(&data(&format!("tensorflow/{name}.tfrecord")));
        assert!(verified.is_whole() && verified.whole > 0, "{name}: {faults:?}");
    }
}

#[test]
fn a_clean_copy_of_what_is_whole_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let sources = golden_databases().into_iter().map(|name| golden(&name));
    for (number, path) in sources.chain([data("tensorflow/examples.gz.tfrecord")]).enumerate() {
        let out = folder.path().join(number.to_string());
        mended(&path, &out);
        assert!(records(&out) == records(&path), "{}", path.display());
    }
}

#[test]
fn damaged_records_are_named_and_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d");
    let jpeg = fs::read(data("images/rgb.jpg")).unwrap();
    let short = jpeg[..jpeg.len() / 2].to_vec();
    let few = datum([3, 2, 2], 0, vec![1, 2, 3]);
    let values = [encoded(0, jpeg.clone()), encoded(1, short), b"\xff\xff".to_vec(), few, encoded(4, jpeg)];
    let keys = ["00000000", "00000001", "00000002", "00000003", "00000004"];
    lmdb(&path, keys.into_iter().zip(values));
    let (verified, faults) = said(&path);
    assert_eq!((verified.whole, verified.damaged, verified.unreadable, verified.gaps), (2, 3, 0, 0));
    assert!(faults[0].starts_with("record 1, key \"00000001\": Could not decode datum"), "{faults:?}");
    assert!(faults[1].starts_with("record 2, key \"00000002\": "), "{faults:?}");
    assert!(faults[2].starts_with("record 3, key \"00000003\": ") && faults[2].contains('3'), "{faults:?}");
    let out = folder.path().join("clean");
    mended(&path, &out);
    let keys: Vec<Vec<u8>> = records(&out).into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [b"00000000", b"00000004"]);
    use Existing::{Refuse, Replace};
    // What is there stays, unless that is wanted; the data set itself stays in any case.
    let (data, options) = (DataSet::open(&path).unwrap(), VerifyOptions::default());
    let refused = |out: &Path, existing| {
        repair(&data, out, existing, &options, &Progress::new(), |_| ()).unwrap_err().to_string()
    };
    assert!(refused(&out, Refuse).contains("it already exists"), "{}", refused(&out, Refuse));
    assert!(refused(&path, Replace).contains("this is the data set itself"));
    assert!(refused(&path.join("data.mdb"), Replace).contains("this is the data set itself"));
    repair(&data, &out, Replace, &options, &Progress::new(), |_| ()).unwrap();
}

/// Damaged records do not decide what a data set holds, however long they are, and wherever.
#[test]
fn damaged_records_do_not_decide_what_the_values_are() {
    let folder = tempfile::tempdir().unwrap();
    let good = |count| (0..count).map(|label| datum([1, 1, 4], label, vec![7; 4]));
    let damaged = |count, bytes| (0..count).map(move |_| vec![0xff; bytes]);
    let long_first: Vec<Vec<u8>> = damaged(1, 2 << 20).chain(good(10)).collect();
    let many_first: Vec<Vec<u8>> = damaged(100, 5).chain(good(100)).collect();
    let keyed = |values: &[Vec<u8>]| -> Vec<(String, Vec<u8>)> {
        values.iter().enumerate().map(|(number, value)| (format!("{number:08}"), value.clone())).collect()
    };
    for (name, values, count) in [("long", &long_first, 1), ("many", &many_first, 100)] {
        let database = folder.path().join(format!("{name}_lmdb"));
        lmdb(&database, keyed(values));
        let file = folder.path().join(format!("{name}.tfrecord"));
        tfrecord(&file, values);
        for path in [database, file] {
            let (verified, _) = checked(&path);
            let found = (verified.content, verified.damaged, verified.whole);
            let whole = values.len() as u64 - count;
            assert_eq!(found, (Content::Datum, count, whole), "{}", path.display());
        }
    }
    // One file of many is full of them.
    let files = folder.path().join("files");
    fs::create_dir(&files).unwrap();
    tfrecord(&files.join("0.tfrecord"), &damaged(70, 5).collect::<Vec<_>>());
    tfrecord(&files.join("1.tfrecord"), &good(10).collect::<Vec<_>>());
    let (verified, _) = checked(&files);
    assert_eq!((verified.content, verified.damaged, verified.whole), (Content::Datum, 70, 10));
}

#[test]
fn what_the_values_have_to_be_can_be_stated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bytes_lmdb");
    lmdb(&path, (0..100).map(|number| (format!("{number:08}"), vec![0xff; 9])));
    assert_eq!(checked(&path).0.content, Content::Bytes);
    let data = DataSet::open(&path).unwrap();
    let options = VerifyOptions { content: Some(Content::Datum), ..VerifyOptions::default() };
    let verified = verify(&data, &options, &Progress::new(), |_| ()).unwrap();
    assert_eq!((verified.content, verified.damaged, verified.whole), (Content::Datum, 100, 0));
}

#[test]
fn records_that_are_all_broken_alike_are_damaged_and_have_no_copy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("short_lmdb");
    // Their images lack a byte each.
    lmdb(&path, (0..100).map(|number| (format!("{number:08}"), datum([3, 4, 5], 1, vec![7; 59]))));
    let (verified, faults) = said(&path);
    assert_eq!((verified.content, verified.damaged, verified.whole), (Content::Datum, 100, 0));
    assert!(faults[0].contains("59 bytes"), "{faults:?}");
    let data = DataSet::open(&path).unwrap();
    let out = folder.path().join("copy");
    fs::create_dir(&out).unwrap();
    lmdb(&out.join("good"), [("00000000".to_owned(), datum([1, 1, 1], 1, vec![7]))]);
    let good = out.join("good");
    let error = repair(&data, &good, Existing::Replace, &VerifyOptions::default(), &Progress::new(), |_| ());
    assert!(error.unwrap_err().to_string().ends_with("no record of it is whole, so there is no copy"));
    assert_eq!(records(&good).len(), 1, "what was there stays");
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
}

/// A TFRecord file of these values.
fn tfrecord(path: &Path, values: &[Vec<u8>]) {
    let mut writer = TfRecordWriter::create(path, Compression::Plain).unwrap();
    for value in values {
        writer.write(value).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn a_tfrecord_file_is_read_behind_damaged_data_and_up_to_a_damaged_length() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tfrecord");
    let values: Vec<Vec<u8>> = (0..10).map(|label| datum([1, 1, 4], label, vec![7; 4])).collect();
    tfrecord(&path, &values);
    let whole = fs::read(&path).unwrap();
    let length = whole.len() / 10;
    let mut bytes = whole.clone();
    bytes[3 * length + 14] ^= 1;
    bytes[9 * length + 14] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let (verified, faults) = said(&path);
    assert_eq!((verified.whole, verified.unreadable, verified.gaps), (8, 2, 0), "{faults:?}");
    assert!(
        faults[0].starts_with("record 3 cannot be read, between the keys \"00000002\" and \"00000004\": "),
        "{faults:?}"
    );
    assert!(faults[1].starts_with("record 9 cannot be read, behind the key \"00000008\": "), "{faults:?}");
    mended(&path, &folder.path().join("clean"));

    bytes[6 * length + 2] ^= 1;
    fs::write(&path, &bytes).unwrap();
    // What follows in the next file is still read.
    fs::write(folder.path().join("b.tfrecord"), &whole).unwrap();
    let (verified, faults) = said(&folder.path().join("?.tfrecord"));
    assert_eq!((verified.whole, verified.unreadable, verified.gaps), (5 + 10, 1, 1), "{faults:?}");
    assert!(faults[1].starts_with("records from number 6 on cannot be read, behind the key \"00000005\""));
    assert_eq!(mended(&folder.path().join("?.tfrecord"), &folder.path().join("both")).whole, 15);
}

/// Nobody knows how many records the rest of a compressed file had, so that is not said.
#[test]
fn the_rest_of_a_cut_compressed_file_is_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cut.tfrecord.gz");
    for name in ["examples.gz", "examples.zlib"] {
        let whole = fs::read(data(&format!("tensorflow/{name}.tfrecord"))).unwrap();
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let (verified, faults) = said(&path);
        assert_eq!((verified.unreadable, verified.gaps, faults.len()), (0, 1, 1), "{faults:?}");
        assert!(faults[0].contains("on cannot be read"), "{faults:?}");
    }
}

/// Where a meta page of an LMDB has the number of its tree's records, and that of its transaction.
const ENTRIES: usize = 120;
const TRANSACTION: usize = 144;

#[test]
fn an_lmdb_with_more_records_than_it_states_has_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("lmdb");
    fs::create_dir(&path).unwrap();
    lmdb(&path, (0..1437).map(|number| (format!("{number:08}"), datum([1, 2, 2], 0, vec![7; 4]))));
    let file = path.join("data.mdb");
    let whole = fs::read(&file).unwrap();
    let number =
        |page: usize, at: usize| u64::from_le_bytes(whole[page * 4096 + at..][..8].try_into().unwrap());
    let newest = usize::from(number(1, TRANSACTION) > number(0, TRANSACTION));
    let state = |stated: u64| {
        let mut bytes = whole.clone();
        bytes[newest * 4096 + ENTRIES..][..8].copy_from_slice(&stated.to_le_bytes());
        fs::write(&file, bytes).unwrap();
    };
    state(0);
    let error = DataSet::open(&path).expect_err("a tree with pages has records").to_string();
    assert!(error.contains("says that a tree has 0 records"), "{error}");
    for stated in 1..300 {
        state(stated);
        let (verified, faults) = said(&path);
        assert!(!verified.is_whole(), "{stated} records stated: {verified:?}");
        if verified.whole == stated {
            assert_eq!(verified.gaps, 1, "{stated} records stated: {faults:?}");
            assert!(
                faults[0].starts_with(&format!("records from number {stated} on cannot be read")),
                "{faults:?}"
            );
        }
    }
}

#[test]
fn a_leveldb_is_read_behind_a_damaged_block() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("db");
    copy(&golden("raw_leveldb_ldb"), &path);
    let wanted = records(&path);
    let table = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
    let table =
        table.into_iter().find(|path| path.extension().is_some_and(|ending| ending == "ldb")).unwrap();
    let whole = fs::read(&table).unwrap();
    for place in [100, whole.len() / 2] {
        let mut bytes = whole.clone();
        bytes[place] ^= 0x10;
        fs::write(&table, &bytes).unwrap();
        let (verified, faults) = said(&path);
        assert!(verified.whole > 0 && verified.whole < wanted.len() as u64, "{verified:?}");
        assert_eq!((verified.gaps, faults.len()), (1, 1), "{faults:?}");
        assert!(faults[0].contains("cannot be read") && faults[0].contains(".ldb"), "{faults:?}");
        let out = folder.path().join(format!("clean-{place}"));
        mended(&path, &out);
        let left = records(&out);
        assert!(left.iter().all(|record| wanted.contains(record)));
        // Nothing is missing but one interval.
        let lost: Vec<usize> = (0..wanted.len()).filter(|&n| !left.contains(&wanted[n])).collect();
        assert_eq!(lost.last().unwrap() - lost[0] + 1, lost.len());
    }
}

#[test]
fn a_list_is_read_behind_a_missing_file() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.txt");
    let good = data("images/rgb.jpg").display().to_string();
    fs::write(&list, format!("{good} 1\n/nowhere.jpg 2\n{good} 3\n/nowhere.jpg 4\n/nowhere.jpg 5\n"))
        .unwrap();
    let (verified, faults) = said(&list);
    assert_eq!((verified.whole, verified.unreadable), (2, 3), "{faults:?}");
    assert!(faults[0].starts_with("record 1 cannot be read") && faults[0].contains("line 2"), "{faults:?}");
    let out = folder.path().join("clean.txt");
    mended(&list, &out);
    assert_eq!(fs::read_to_string(out).unwrap(), format!("{good} 1\n{good} 3\n"));
}

/// So many faults in a row are more than a scan takes of a source that it reads in order.
const TOO_MANY: usize = 10_020;

/// The files behind many that are missing are still read: each is a file of its own.
#[test]
fn a_list_is_read_behind_any_number_of_missing_files() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("list.txt");
    let good = data("images/rgb.jpg").display().to_string();
    fs::write(&list, format!("{}{good} 3\n", "/nowhere.jpg 2\n".repeat(TOO_MANY))).unwrap();
    let data = DataSet::open(&list).unwrap();
    let options = VerifyOptions { threads: NonZeroUsize::new(1), ..VerifyOptions::default() };
    let mut faults = 0;
    let verified = verify(&data, &options, &Progress::new(), |_| faults += 1).unwrap();
    assert_eq!((verified.whole, verified.unreadable, faults), (1, TOO_MANY as u64, TOO_MANY));
}

/// A file that fails at every record is given up some time, and that is said.
#[test]
fn a_file_that_is_given_up_is_said_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.tfrecord");
    tfrecord(&path, &vec![datum([1, 1, 4], 0, vec![7; 4]); TOO_MANY]);
    let mut bytes = fs::read(&path).unwrap();
    let length = bytes.len() / TOO_MANY;
    bytes.chunks_exact_mut(length).for_each(|record| record[14] ^= 1);
    fs::write(&path, &bytes).unwrap();
    let (verified, faults) = said(&path);
    assert_eq!((verified.whole, verified.unreadable, verified.gaps), (0, 10_000 - 1, 1), "{verified:?}");
    let last = faults.last().unwrap();
    assert!(last.starts_with("records from number 9999 on "), "{last}");
    assert!(last.contains("given up after 10000 in a row that cannot be read"), "{last}");
}

/// Examples whose image has another name than TensorFlow's own data sets give it.
#[test]
fn images_are_found_by_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = fs::read(data("images/420.jpg")).unwrap();
    let png = fs::read(data("images/rgb_8.png")).unwrap();
    let (half, cut) = (&file[..file.len() / 2], &png[..png.len() - 20]);
    let record = |name: &str, file: &[u8]| ExampleWriter::new().bytes(name, [file]).to_bytes();
    for name in ["image", "image_raw", "image/encoded", "img"] {
        let path = folder.path().join(name.replace('/', "_") + ".tfrecord");
        tfrecord(&path, &[record(name, &file), record(name, &png), record(name, half), record(name, cut)]);
        let (verified, faults) = said(&path);
        assert_eq!((verified.whole, verified.damaged), (2, 2), "{name}: {faults:?}");
        assert!(faults[0].starts_with("record 2, "), "{faults:?}");
    }
    // Every image counts: a mask beside it, and the frames of a video.
    let pair = |mask: &[u8]| {
        ExampleWriter::new().bytes("image", [&file[..]]).bytes("mask", [mask]).ints("label", [1]).to_bytes()
    };
    let path = folder.path().join("pairs.tfrecord");
    tfrecord(&path, &[pair(&png), pair(&png), pair(cut)]);
    let (verified, faults) = said(&path);
    assert_eq!((verified.whole, verified.damaged), (2, 1), "{faults:?}");
    assert!(faults[0].contains("the image in the feature \"mask\": "), "{faults:?}");
    let frames = |last: &[u8]| ExampleWriter::new().bytes("frames", [&file, last]).to_bytes();
    let path = folder.path().join("frames.tfrecord");
    tfrecord(&path, &[frames(&file), frames(&file), frames(half)]);
    assert_eq!(said(&path).0.damaged, 1);
    // What is stated is what every record has.
    let options = percolator_data::OpenOptions::default();
    let stated = |feature: &str, path: &Path| {
        let data = options.clone().image_feature(feature).open(path)?;
        let mut faults = Vec::new();
        let options = VerifyOptions::default();
        verify(&data, &options, &Progress::new(), |fault| faults.push(fault.to_string()))
            .map(|_| faults)
            .map_err(|error| Box::<dyn std::error::Error>::from(error.to_string()))
    };
    assert_eq!(stated("image", &folder.path().join("pairs.tfrecord")).unwrap(), [""; 0]);
    let faults = stated("img", &folder.path().join("pairs.tfrecord")).unwrap();
    assert!(faults.len() == 3 && faults[0].contains("there is no feature \"img\""), "{faults:?}");
    let error = stated("img", &golden("raw_lmdb")).unwrap_err().to_string();
    assert!(error.contains("which has no features: leave it out"), "{error}");
    // Bytes that are no image files are none, whatever one of them begins with.
    let path = folder.path().join("raw.tfrecord");
    tfrecord(&path, &[record("raw", b"\xff\xd8\xff\xff"), record("raw", b"abcd"), record("raw", b"efgh")]);
    assert!(said(&path).0.is_whole());
}

/// JPEG files in Datums that do not say so: no feed reads them.
#[test]
fn a_datum_of_a_file_that_is_not_called_encoded_is_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let file = fs::read(data("images/420.jpg")).unwrap();
    for (name, shape) in [("no_shape", [0; 3]), ("shape", [3, 16, 27])] {
        let path = folder.path().join(name);
        lmdb(&path, (0..3).map(|label| (label.to_string(), datum(shape, label, file.clone()))));
        let (verified, faults) = said(&path);
        assert_eq!((verified.content, verified.whole, verified.damaged), (Content::Datum, 0, 3), "{name}");
        assert!(faults[0].contains("the data is a JPEG file, but the record's `encoded` is not set"));
    }
}

/// An LMDB of bare files, as lmdb tutorials for PyTorch write them.
#[test]
fn bare_image_files_are_decoded() {
    let folder = tempfile::tempdir().unwrap();
    let file = fs::read(data("images/420.jpg")).unwrap();
    lmdb(folder.path(), [("0", file.clone()), ("1", file.clone()), ("2", file[..400].to_vec())]);
    let (verified, faults) = said(folder.path());
    assert_eq!((verified.content, verified.whole, verified.damaged), (Content::Bytes, 2, 1), "{faults:?}");
    assert_eq!(verified.values.unwrap().to_string(), "a bare JPEG file");
}

#[test]
fn raw_images_in_another_order_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = fs::read(data("images/420.jpg")).unwrap();
    let mut decoder = percolator::decoder::ImageFileDecoder::default();
    let image = decoder.decode(&file).unwrap();
    let planes = image.bytes;
    let [channels, height, width] = [image.shape.channels, image.shape.height, image.shape.width];
    let pixels = height * width;
    let side_by_side: Vec<u8> =
        (0..pixels).flat_map(|at| (0..channels).map(move |channel| planes[channel * pixels + at])).collect();
    let shape = [channels, height, width].map(|side| side as i32);
    for (name, bytes, is_told) in [("planes", planes, false), ("side_by_side", &side_by_side, true)] {
        let path = folder.path().join(name);
        lmdb(&path, (10..40).map(|label| (label.to_string(), datum(shape, label, bytes.to_vec()))));
        let (verified, _) = said(&path);
        assert_eq!((verified.is_interleaved, verified.is_whole()), (is_told, true), "{name}");
    }
    for name in golden_databases() {
        assert!(!checked(&golden(&name)).0.is_interleaved, "{name}");
    }
}

/// A frame of a video that is cut in a SequenceExample's list.
#[test]
fn the_frames_of_a_sequence_are_decoded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("video.tfrecord");
    let file = fs::read(data("images/420.jpg")).unwrap();
    // feature_lists { feature_list { key: "frames" value { feature { bytes_list { value } } ... } } }
    let chunk = |field: u8, bytes: Vec<u8>| {
        let (mut out, mut length) = (vec![field << 3 | 2], bytes.len());
        while length >= 0x80 {
            out.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out.extend(bytes);
        out
    };
    let feature = |file: &[u8]| chunk(1, chunk(1, chunk(1, file.to_vec())));
    let record = |frames: &[&[u8]]| {
        let list: Vec<u8> = frames.iter().flat_map(|frame| feature(frame)).collect();
        chunk(2, chunk(1, [chunk(1, b"frames".to_vec()), chunk(2, list)].concat()))
    };
    tfrecord(&path, &[record(&[&file, &file]), record(&[&file, &file[..200], &file])]);
    let (verified, faults) = said(&path);
    assert_eq!((verified.content, verified.whole, verified.damaged), (Content::SequenceExample, 1, 1));
    assert!(faults[0].contains("the image in the feature \"frames\""), "{faults:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// A flipped byte, or a cut, is found or harmless, and never a panic; where the count is known, it is
    /// right.
    #[test]
    fn a_flipped_byte_costs_no_more_than_it_has_to(
        kind in 0usize..3,
        at in any::<prop::sample::Index>(),
        flip in 1u8..=255,
        cut in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("db");
        let name = ["jpg_color_lmdb", "raw_leveldb_ldb", "jpg_color.tfrecord"][kind];
        let file = match kind {
            2 => {
                fs::copy(data(&format!("tensorflow/{name}")), path.with_extension("tfrecord")).unwrap();
                path.with_extension("tfrecord")
            }
            _ => {
                copy(&golden(name), &path);
                let files = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path());
                files.max_by_key(|file| fs::metadata(file).unwrap().len()).unwrap()
            }
        };
        let path = if kind == 2 { file.clone() } else { path };
        let before = records(&path);
        let mut bytes = fs::read(&file).unwrap();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at.max(1)) } else { bytes[at] ^= flip }
        fs::write(&file, &bytes).unwrap();
        let Ok(data) = DataSet::open(&path) else { return Ok(()) };
        let mut found = 0u64;
        let options = VerifyOptions::default();
        let Ok(verified) = verify(&data, &options, &Progress::new(), |_| found += 1) else { return Ok(()) };
        prop_assert_eq!(found == 0, verified.is_whole());
        prop_assert!(verified.whole <= before.len() as u64);
        let known = verified.whole + verified.damaged + verified.unreadable;
        if verified.gaps == 0 && kind != 1 {
            prop_assert_eq!(known, before.len() as u64, "{:?}", verified);
        }
    }
}

#[test]
fn a_copy_replaces_no_image_of_its_list_and_lies_in_no_store() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let mut encoder = png::Encoder::new(fs::File::create(root.join("one.png")).unwrap(), 1, 1);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.write_header().unwrap().write_image_data(&[7]).unwrap();
    fs::write(root.join("list.txt"), "one.png 3\n").unwrap();
    let images = percolator_data::OpenOptions::default().root_folder(root.join(""));
    let copy = |data: &DataSet, out: &Path| {
        repair(data, out, Existing::Replace, &VerifyOptions::default(), &Progress::new(), |_| ())
    };
    let mend = |list: &Path, out: &Path| copy(&images.open(list).unwrap(), out);
    let image = fs::read(root.join("one.png")).unwrap();
    let error = mend(&root.join("list.txt"), &root.join("one.png")).unwrap_err().to_string();
    let said = "one.png: it is no list of images, so it is not replaced: give the copy another path";
    assert!(error.ends_with(said), "{error}");
    assert_eq!(fs::read(root.join("one.png")).unwrap(), image);
    // A copy that appears meanwhile stays: it may be that of another process.
    fs::write(root.join("damaged.txt"), "one.png 3\nnone.png 4\n").unwrap();
    let late = root.join("late.txt");
    let (data, options) = (images.open(root.join("damaged.txt")).unwrap(), VerifyOptions::default());
    let appears = |_: &Fault| fs::write(&late, "another's").unwrap();
    let error = repair(&data, &late, Existing::Refuse, &options, &Progress::new(), appears).unwrap_err();
    assert!(error.to_string().contains("late.txt: it already exists"), "{error}");
    assert_eq!(fs::read_to_string(&late).unwrap(), "another's");
    // An older copy is a list.
    fs::write(root.join("copy.txt"), "gone.png 3\n").unwrap();
    mend(&root.join("list.txt"), &root.join("copy.txt")).unwrap();
    assert_eq!(fs::read_to_string(root.join("copy.txt")).unwrap(), "one.png 3\n");

    let store = root.join("store");
    lmdb(&store, [("0".to_owned(), datum([1, 1, 1], 1, vec![7]))]);
    for out in [store.join("copy"), store.join("data.mdb"), store.clone(), root.to_owned()] {
        let error = copy(&DataSet::open(&store).unwrap(), &out).unwrap_err().to_string();
        assert!(error.contains("this is the data set itself, or would be a part of it"), "{error}");
    }
    assert_eq!(records(&store).len(), 1);
}

#[test]
fn a_look_for_what_was_bad_can_be_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (golden("raw_lmdb"), folder.path().join("bad"));
    let mut writer = TfRecordWriter::create(&file, Compression::Plain).unwrap();
    let source = path.to_str().unwrap();
    let mut entry = ExampleWriter::new();
    entry
        .bytes("source", [source])
        .bytes("key", ["k"])
        .ints("number", [9])
        .ints("epoch", [0])
        .bytes("reason", ["torn"])
        .bytes("value", ["v"]);
    writer.write(&entry.to_bytes()).unwrap();
    writer.finish().unwrap();
    let (data, named) = (DataSet::open(&path).unwrap(), Quarantined::read(&file).unwrap());
    let progress = Progress::new();
    let found = quarantined(&data, named.clone(), &progress).unwrap();
    assert_eq!((found.len(), &found[0].1), (1, &Since::Changed));
    progress.stop();
    assert_eq!(quarantined(&data, named, &progress), None);
}
