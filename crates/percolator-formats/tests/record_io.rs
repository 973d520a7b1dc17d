//! MXNet's RecordIO.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;
mod survival;

use std::path::Path;

use percolator_files::Access;
use percolator_formats::{Key, Lent, Options, Seeks, record_io};
use serde_json::{Value as Json, json};
use survival::{Made, fails, options, records};

const MAGIC: [u8; 4] = 0xCED7_230A_u32.to_le_bytes();

/// A part with its header and padding.
fn part(flag: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend((flag << 29 | u32::try_from(data.len()).unwrap()).to_le_bytes());
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn image(flag: u32, label: f32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = flag.to_le_bytes().to_vec();
    bytes.extend(label.to_le_bytes());
    bytes.extend(7_u64.to_le_bytes());
    bytes.extend(u64::MAX.to_le_bytes());
    bytes.extend(rest);
    bytes
}

fn made(rec: &[u8], idx: Option<&str>) -> Made {
    let index = idx.map(|idx| ("a.idx", idx.as_bytes()));
    Made::new(&[Some(("a.rec", rec)), index].into_iter().flatten().collect::<Vec<_>>())
}

fn read(rec: &[u8], idx: Option<&str>, settings: &[(&str, &str)]) -> Result<Vec<Json>, String> {
    let made = made(rec, idx);
    let [mapped, read] = [Access::Mapped, Access::Read]
        .map(|access| records(record_io::open(&made.path("a.rec"), &options(access, settings))));
    assert_eq!(mapped, read);
    mapped
}

#[test]
fn golden_files_are_read() {
    for case in common::cases("recordio") {
        let path = common::files_of(case).remove(0);
        let bytes = std::fs::read(&path).unwrap();
        assert!(record_io::is(&path, &bytes[..bytes.len().min(512)]), "{}", common::name(case));
        common::check(case, &|options| record_io::open(&path, options));

        let mut walked = options(Access::Mapped, &[("index", "none")]);
        walked.settings.push(("records".to_owned(), "raw".to_owned()));
        let count = records(record_io::open(&path, &walked)).unwrap().len();
        assert_eq!(count, common::rows_of(case).len(), "{} without its index", common::name(case));
    }
}

#[test]
fn damage_is_named() {
    for damaged in common::damaged("recordio") {
        let path = damaged.files().remove(0);
        let words: &[&str] = match damaged.name {
            "recordio_magic" => &["images.rec", "byte 2036", "no magic number"],
            "recordio_cut_data" => &["record 39", "length", "there"],
            "recordio_cut_header" => &["record 39", "ends inside a header"],
            "recordio_length" => &["record 2", "length 536870911"],
            "recordio_flag_middle" => &["record 2", "a part without a beginning"],
            "recordio_idx_inside" => &["images.idx", "record 5", "no magic number", "3152", "key 5"],
            "recordio_idx_garbage" => &["images.idx, line 8", "no key, tab and offset"],
            "recordio_label_count" => &["100000 labels", "leave it"],
            "recordio_parts_cut" => &["magic.idx", "the file is cut"],
            other => panic!("{other} is new"),
        };
        damaged.fails(&|options| record_io::open(&path, options), words);
        if damaged.name == "recordio_parts_cut" {
            let mut walked = options(Access::Mapped, &[("index", "none")]);
            fails(record_io::open(&path, &walked), &["without its last part"]);
            walked.access = Access::Read;
            fails(record_io::open(&path, &walked), &["without its last part"]);
        }
    }
}

#[test]
fn changed_files_are_errors_or_read() {
    for case in common::cases("recordio") {
        let name = case["files"][0]["path"].as_str().unwrap();
        survival::survives(case, &|folder, options| record_io::open(&folder.join(name), options));
    }
}

#[test]
fn whole_records_are_lent_and_parts_are_joined() {
    let rec = [part(0, b"whole"), part(1, b"head"), part(2, b""), part(3, b"tail!")].concat();
    let made = made(&rec, None);
    let shard = record_io::open(&made.path("a.rec"), &options(Access::Mapped, &[])).unwrap().remove(0);
    assert_eq!((shard.seeks(), shard.records()), (Seeks::ByPlace, None));
    let mut cursor = shard.cursor().unwrap();

    let record = cursor.advance().unwrap().unwrap();
    assert!(matches!(record.value, Lent::Mapped(_, ref range) if *range == (8..13)), "{record:?}");
    assert_eq!((record.key, record.place), (Key::None, [0, 0]));
    let record = cursor.advance().unwrap().unwrap();
    assert_eq!(record.value.bytes(), [b"head", &MAGIC[..], &MAGIC, b"tail!"].concat());
    assert_eq!(record.place, [16, 0]);
}

#[test]
fn parts_follow_their_beginning() {
    let cases: [(&[Vec<u8>], &str); 7] = [
        (&[part(2, b"x")], "a part without a beginning"),
        (&[part(3, b"x")], "a part without a beginning"),
        (&[part(1, b"x"), part(0, b"y")], "lacks its last part"),
        (&[part(1, b"x"), part(1, b"y"), part(3, b"z")], "lacks its last part"),
        (&[part(1, b"x"), part(2, b"y")], "without its last part"),
        (&[part(4, b"x")], "flag 4"),
        (&[part(0, b"x"), vec![0; 8]], "record 1, byte 12"),
    ];
    for (parts, words) in cases {
        let error = read(&parts.concat(), None, &[]).unwrap_err();
        assert!(error.contains(words), "{words}: {error}");
    }
    let unpadded = &part(0, b"x")[..9];
    assert!(read(unpadded, None, &[]).unwrap_err().contains("with its padding"), "the padding is due");
}

#[test]
fn the_index_gives_keys_in_the_files_order() {
    let rec = [part(0, b"one"), part(0, b"two"), part(0, b"three")].concat();
    let order = "30\t24\r\n10\t0\n\n20\t12\n";
    let made = made(&rec, Some(order));
    let shard = record_io::open(&made.path("a.idx"), &Options::default()).unwrap().remove(0);
    assert_eq!(shard.path(), made.path("a.rec"));
    assert_eq!(shard.files(), [made.path("a.rec"), made.path("a.idx")]);
    assert_eq!((shard.records(), shard.place(2).unwrap()), (Some(3), [24, 0]));
    assert!(shard.place(3).is_err());
    let mut cursor = shard.cursor().unwrap();
    for key in [10, 20, 30] {
        assert_eq!(cursor.advance().unwrap().unwrap().key, Key::Number(key));
    }
    assert!(cursor.advance().unwrap().is_none());
    assert!(cursor.seek([4, 0], 1).is_err(), "it is not the place of record 1");
    cursor.seek([12, 0], 1).unwrap();
    assert_eq!(cursor.advance().unwrap().unwrap().key, Key::Number(20));
}

#[test]
fn keys_may_be_texts() {
    let rec = [part(0, b"one"), part(0, b"two")].concat();
    let made = made(&rec, Some("b\t0\n7\t12\n"));
    let shard = record_io::open(&made.path("a.rec"), &Options::default()).unwrap().remove(0);
    let mut cursor = shard.cursor().unwrap();
    assert_eq!(cursor.advance().unwrap().unwrap().key, Key::Bytes(b"b"));
    assert_eq!(cursor.advance().unwrap().unwrap().key, Key::Bytes(b"7"));
}

/// Whoever reads by position would never see what an index leaves out.
#[test]
fn an_index_that_is_cut_is_noticed_before_anything_is_read() {
    let rec = [part(0, b"one"), part(0, b"two"), part(0, b"three")].concat();
    let open = |idx: &str| {
        let made = made(&rec, Some(idx));
        record_io::open(&made.path("a.rec"), &options(Access::Mapped, &[])).map(drop)
    };
    assert_eq!(open("0\t0\n1\t12\n2\t24\n"), Ok(()));
    for (idx, words) in [
        ("0\t0\n1\t12\n", "the index ends after 2 records"),
        ("", "the index ends after 0 records"),
        ("1\t12\n2\t24\n", "the index leaves out what is at byte 0"),
    ] {
        let error = open(idx).unwrap_err().to_string();
        assert!(error.contains("a.idx") && error.contains(words), "{words}: {error}");
    }
}

#[test]
fn an_index_of_another_file_is_noticed() {
    let rec = [part(0, b"one"), part(0, b"two"), part(0, b"three")].concat();
    let cases = [
        ("0\t0\n1\t12\n", "the index ends after 2 records"),
        ("0\t0\n1\t24\n", "the index leaves out what is at byte 12"),
        ("0\t12\n1\t24\n", "the index leaves out what is at byte 0"),
        ("0\t0\n1\t12\n2\t12\n", "line 3: the keys 1 and 2 are at the same offset 12"),
        ("0\t0\n1\t18446744073709551615\n", "line 2: the index gives the offset 18446744073709551615"),
        ("0\t0\n1\t-5\n", "line 2"),
        ("0\t0\n1\t4\n", "no magic number is at the offset 4"),
    ];
    for (index, words) in cases {
        let error = read(&rec, Some(index), &[]).unwrap_err();
        assert!(error.contains(words), "{words}: {error}");
        assert_eq!(read(&rec, Some(index), &[("index", "none")]).unwrap().len(), 3);
    }
}

#[test]
fn image_records_are_told_from_others_or_are_named() {
    let images: Vec<u8> = (0..3_u16).flat_map(|i| part(0, &image(0, f32::from(i), b"img"))).collect();
    let first = json!({
        "flag": 0, "label": {"$array": "<f4", "shape": [], "values": [0.0]}, "id": 7,
        "id2": "18446744073709551615", "image": {"$bytes": 3, "hex": "696d67"},
    });
    assert_eq!(read(&images, None, &[]).unwrap()[0], first);
    assert_eq!(read(&images, None, &[("records", "raw")]).unwrap()[0]["record"]["$bytes"], 27);
    let labels = [1.5_f32.to_le_bytes(), 2.5_f32.to_le_bytes(), *b"jpeg"].concat();
    let vector = &read(&part(0, &image(2, 0.0, &labels)), None, &[]).unwrap()[0];
    assert_eq!(vector["label"], json!({"$array": "<f4", "shape": [2], "values": [1.5, 2.5]}));
    assert_eq!(vector["image"], json!({"$bytes": 4, "hex": "6a706567"}));

    let text = part(0, b"a text that is longer than a header of 24 bytes");
    assert!(read(&text, None, &[]).unwrap()[0].get("record").is_some());
    assert!(read(&text, None, &[("records", "image")]).unwrap_err().contains("labels"));
    assert_eq!(read(&part(0, b"x"), None, &[]), Ok(vec![json!({"record": "x"})]), "text");
    assert!(read(&part(0, b"x"), None, &[("records", "image")]).unwrap_err().contains("24 bytes"));
}

#[test]
fn one_damaged_image_record_does_not_make_the_others_plain() {
    let damaged = image(1000, 0.0, b"img");
    let whole = image(0, 1.0, b"img");
    for order in [[&damaged, &whole], [&whole, &damaged]] {
        let rec: Vec<u8> = order.iter().flat_map(|record| part(0, record)).collect();
        assert!(read(&rec, None, &[]).unwrap_err().contains("1000 labels"));
    }
}

#[test]
fn settings_are_known_or_refused() {
    for (name, value, words) in
        [("keys", "1", "no setting \"keys\""), ("records", "x", "raw or image"), ("index", "x", "none")]
    {
        fails(
            record_io::open(&common::golden("recordio/keys.rec"), &options(Access::Read, &[(name, value)])),
            &[words],
        );
    }
    assert!(record_io::is(Path::new("a.rec"), b"") && !record_io::is(Path::new("a"), b""));
    assert!(!record_io::is(Path::new("a.rec"), &part(2, b"x")) && !record_io::is(Path::new("a.rec"), &MAGIC));
}
