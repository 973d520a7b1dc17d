//! Bagz, plain and compressed, alone and in several files.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;
mod survival;

use std::path::{Path, PathBuf};

use percolator_files::Access;
use percolator_formats::{Lent, Options, bagz};
use serde_json::{Value as Json, json};
use survival::{Made, fails, options, records};

fn limits(records: &[&[u8]]) -> Vec<u8> {
    let ends = records.iter().scan(0, |end, record| {
        *end += record.len() as u64;
        Some(*end)
    });
    ends.flat_map(u64::to_le_bytes).collect()
}

fn bag(records: &[&[u8]]) -> Vec<u8> {
    [records.concat(), limits(records)].concat()
}

/// What a case opens, and with which settings.
fn opened(case: &Json) -> (PathBuf, Vec<(&'static str, &'static str)>) {
    let first = common::files_of(case).remove(0);
    match common::name(case) {
        "bagz_shards" => (first.with_file_name("shard@4.bag"), Vec::new()),
        "bagz_interleaved" => (first.with_file_name("inter@3.bag"), vec![("interleaved", "true")]),
        "bagz_override" => (first, vec![("compression", "none")]),
        _ => (first, Vec::new()),
    }
}

fn with(options: &Options, settings: &[(&str, &str)]) -> Options {
    let mut options = options.clone();
    options.settings = settings.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    options
}

#[test]
fn golden_files_are_read() {
    for case in common::cases("bagz") {
        let (path, settings) = opened(case);
        common::check(case, &|options| bagz::open(&path, &with(options, &settings)));
        assert!(bagz::is(&path, b"") && bagz::is(&common::files_of(case)[0], b""));
    }
    assert!(!bagz::is(Path::new("bagz/limits.sep.bag"), b""), "limits are no bag");
}

#[test]
fn a_name_that_misleads_is_named() {
    let path = common::golden("bagz/uncompressed.bagz");
    fails(bagz::open(&path, &Options::default()), &["record 0", "no zstd frame", "compression=none"]);
    let path = common::golden("bagz/text.bag");
    fails(bagz::open(&path, &options(Access::Mapped, &[("compression", "zstd")])), &["record 0"]);
}

#[test]
fn damage_is_named() {
    for damaged in common::damaged("bagz") {
        let first = damaged.files().remove(0);
        let words: &[&str] = match damaged.name {
            "bagz_cut1" => &["text.bag", "split point", "beyond"],
            "bagz_cut8" => &["text.bag", "no multiple of 8"],
            "bagz_limit_beyond" => &["text.bag", "split point 1099511627776", "beyond"],
            "bagz_limit_falls" => &["text.bag, record 2", "limits fall"],
            "bagz_tiny" => &["text.bag", "5 bytes"],
            "bagz_frame" => &["zstd.bagz, record 1", "no zstd frame"],
            "bagz_missing_shard" => &["shard-00002-of-00004.bag", "cannot open"],
            other => panic!("{other} is new"),
        };
        let shards = damaged.name == "bagz_missing_shard";
        let path = if shards { first.with_file_name("shard@4.bag") } else { first };
        damaged.fails(&|options| bagz::open(&path, options), words);
    }
}

#[test]
fn changed_files_are_errors_or_read() {
    for case in common::cases("bagz") {
        let (path, settings) = opened(case);
        let name = Path::new("bagz").join(path.file_name().unwrap());
        survival::survives(case, &|folder, options| {
            bagz::open(&folder.join(&name), &with(options, &settings))
        });
    }
}

#[test]
fn an_empty_record_may_have_a_frame_or_none() {
    let (empty, one) = (zstd::encode_all(&[][..], 3).unwrap(), zstd::encode_all(&b"1"[..], 3).unwrap());
    let made = Made::new(&[("a.bagz", &bag(&[&empty, b"", &one, &[one.as_slice(), &one].concat()]))]);
    let read = records(bagz::open(&made.path("a.bagz"), &Options::default())).unwrap();
    let hex: Vec<_> = read.iter().map(|record| record["record"]["hex"].clone()).collect();
    assert_eq!(hex, ["", "", "31", "3131"]);
}

#[test]
fn plain_records_are_lent() {
    let made = Made::new(&[("a.bag", &bag(&[b"one", b"", b"three"]))]);
    let shard = bagz::open(&made.path("a.bag"), &options(Access::Mapped, &[])).unwrap().remove(0);
    let mut cursor = shard.cursor().unwrap();
    cursor.seek([2, 0], 2).unwrap();
    assert!(matches!(cursor.advance().unwrap().unwrap().value, Lent::Mapped(_, range) if range == (3..8)));
    assert!(cursor.advance().unwrap().is_none());
    assert!(cursor.seek([3, 0], 3).is_err());
}

#[test]
fn limits_may_lie_apart() {
    let parts: &[&[u8]] = &[b"one", b"two"];
    let whole = bag(parts);
    type Apart<'a> = (&'a [u8], &'a [u8], &'a [(&'a str, &'a str)], Result<usize, &'a str>);
    let cases: [Apart<'_>; 6] = [
        (b"onetwo", &limits(parts), &[], Ok(2)),
        (b"onetwo!", &limits(parts), &[], Err("the last limit is 6")),
        (b"onetw", &limits(parts), &[], Err("ends at byte 6")),
        (b"onetwo", &limits(parts)[..15], &[], Err("no multiple of 8")),
        (&whole, b"stale", &[("limits", "tail")], Ok(2)),
        (b"", b"", &[], Ok(0)),
    ];
    for (data, limits, settings, expected) in cases {
        let made = Made::new(&[("a.bag", data), ("limits.a.bag", limits)]);
        let read = records(bagz::open(&made.path("a.bag"), &options(Access::Read, settings)));
        match (read, expected) {
            (Ok(records), Ok(count)) => assert_eq!(records.len(), count),
            (Err(error), Err(words)) => assert!(error.contains(words), "{words}: {error}"),
            (read, expected) => panic!("{read:?}, not {expected:?}"),
        }
    }
    let made = Made::new(&[("a.bag", &whole)]);
    fails(
        bagz::open(&made.path("a.bag"), &options(Access::Read, &[("limits", "separate")])),
        &["limits.a.bag"],
    );
}

#[test]
fn interleaved_files_have_records_in_turns() {
    let [first, second]: [&[&[u8]]; 2] = [&[b"0", b"2", b"4"], &[b"1", b"3"]];
    let names = ["a-00000-of-00002.bag", "a-00001-of-00002.bag"];
    let made = Made::new(&[(names[0], &bag(first)), (names[1], &bag(second))]);
    let turns = options(Access::Mapped, &[("interleaved", "true")]);
    let shard = bagz::open(&made.path("a@2.bag"), &turns).unwrap().remove(0);
    assert_eq!(shard.files(), names.map(|name| made.path(name)));
    let read = records(Ok(vec![shard])).unwrap();
    let hex: Vec<_> = read.iter().map(|record| record["record"]["hex"].clone()).collect();
    assert_eq!(hex, ["30", "31", "32", "33", "34"]);

    let made = Made::new(&[(names[0], &bag(second)), (names[1], &bag(first))]);
    fails(bagz::open(&made.path("a@2.bag"), &turns), &[names[0], "2 records", "3 are due"]);
}

#[test]
fn a_file_may_have_the_name_of_several() {
    let made = Made::new(&[("a@2.bag", &bag(&[b"x"]))]);
    let expected = json!({"record": {"$bytes": 1, "hex": "78"}});
    assert_eq!(records(bagz::open(&made.path("a@2.bag"), &Options::default())), Ok(vec![expected]));
    fails(bagz::open(&made.path("a@0.bag"), &Options::default()), &["0 files"]);
    fails(bagz::open(&made.path("a@999999999.bag"), &Options::default()), &["999999999 files"]);
    fails(bagz::open(&made.path("a@b.bag"), &Options::default()), &["a@b.bag", "cannot open"]);
}

#[test]
fn settings_are_known_or_refused() {
    let path = common::golden("bagz/text.bag");
    let cases = [
        ("level", "3", "no setting \"level\""),
        ("compression", "gzip", "none or zstd"),
        ("interleaved", "maybe", "true or false"),
        ("limits", "here", "tail or separate"),
    ];
    for (name, value, words) in cases {
        fails(bagz::open(&path, &options(Access::Read, &[(name, value)])), &[words]);
    }
}
