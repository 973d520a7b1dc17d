//! JSON Lines as several libraries wrote them.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
mod mutations;

use std::fs;

use common::{case, cases, check, damaged, files_of, name, rows_of};
use mutations::{made, options, records, survives};
use std::sync::Arc;

use percolator_files::Access;
use percolator_formats::{Seeks, jsonl};
use serde_json::json;

fn is_raw(case: &serde_json::Value) -> bool {
    case["rows"].as_array().is_some_and(|rows| rows.iter().any(|row| row.get("raw").is_some()))
}

#[test]
fn files_of_every_library_are_read() {
    let mut read = 0;
    for case in cases("jsonl") {
        // Pandas rounds, so the manifest's numbers are not those of the file.
        if is_raw(case) || case["vec_exact"] == false {
            continue;
        }
        let files = files_of(case);
        assert!(jsonl::is(&files[0], b""), "{}", name(case));
        check(case, &|options| jsonl::open(&files[0], options));
        read += 1;
    }
    assert_eq!(read, 12);
}

#[test]
fn a_record_is_its_line_whatever_the_line_is() {
    for case in cases("jsonl").into_iter().filter(|case| is_raw(case)) {
        let shard = jsonl::open(&files_of(case)[0], &options(Access::Read, &[])).unwrap().remove(0);
        let mut cursor = shard.cursor().unwrap();
        for row in rows_of(case) {
            let record = cursor.advance().unwrap().unwrap();
            let line = row["raw"].as_str().unwrap().as_bytes();
            assert_eq!(record.value.bytes(), line, "{}", name(case));
        }
        assert!(cursor.advance().unwrap().is_none());
    }
}

#[test]
fn odd_values_lose_nothing() {
    let file = &files_of(case("jsonl_odd_values"))[0];
    let read = records(file, &options(Access::Mapped, &[]), &jsonl::open).unwrap();
    assert_eq!(
        read,
        [
            json!({"a": "12345678901234567890", "b": "9007199254740993", "c": "1e400", "d": -0.0}),
            json!({"a": 2}),
            json!({"deep": [[[[{"x": null}]]]], "t": true}),
            json!({"s": "😀 \0 /"}),
            json!({"value": [1, 2]}),
            json!({"value": "only a string"}),
            json!({}),
        ]
    );
}

#[test]
fn what_python_writes_that_is_no_json_is_said() {
    for (case_name, words) in [
        ("jsonl_nan", "column 7: NaN is no JSON"),
        ("jsonl_lone_surrogate", "column 8: half of a surrogate pair"),
    ] {
        let file = &files_of(case(case_name))[0];
        let error = records(file, &options(Access::Mapped, &[]), &jsonl::open).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn numbers_that_pandas_rounded_are_read_as_they_are_written() {
    let case = case("jsonl_hf");
    let file = &files_of(case)[0];
    let read = records(file, &options(Access::Mapped, &[]), &jsonl::open).unwrap();
    assert_eq!(read.len(), rows_of(case).len());
    for (read, row) in read.iter().zip(rows_of(case)) {
        for field in ["label", "ints", "text", "key"] {
            assert_eq!(read[field], row["fields"][field]);
        }
    }
}

#[test]
fn damage_is_said() {
    for variant in damaged("jsonl") {
        let words: &[&str] = match variant.name {
            "jsonl_cut" => &["column", "does not end in its line", "cut"],
            "jsonl_bad_utf8" => &["not UTF-8, at byte 12"],
            "jsonl_nul" => &["column 195", "'\\0'"],
            "jsonl_garbage_line" => &["column 7"],
            "jsonl_gz_cut" | "jsonl_zst_cut_frame" => &["plain.jsonl.gz", "ends early", "cut"],
            "jsonl_gz_trailing" => &["bytes stand behind the end", "no member"],
            "jsonl_zst_checksum" => &["checksum"],
            other => panic!("{other} is not expected"),
        };
        let file = &variant.files()[0];
        let words = if variant.name == "jsonl_zst_cut_frame" { &words[1..] } else { words };
        variant.fails(&|options| jsonl::open(file, options), words);
    }
}

#[test]
fn lines_before_a_cut_are_whole() {
    for name in ["jsonl_gz_cut", "jsonl_zst_cut_frame"] {
        let variant = damaged("jsonl").into_iter().find(|variant| variant.name == name).unwrap();
        let file = &variant.files()[0];
        let (read, _) = variant.read(&|options| jsonl::open(file, options)).unwrap_err();
        assert!((10..40).contains(&read), "{name}: {read}");
    }
}

#[test]
fn the_line_of_a_fault_is_found() {
    let variant = damaged("jsonl").into_iter().find(|variant| variant.name == "jsonl_garbage_line").unwrap();
    let file = &variant.files()[0];
    let shard = jsonl::open(file, &options(Access::Mapped, &[])).unwrap().remove(0);
    let grammar = shard.grammar();
    let mut cursor = Arc::clone(&shard).cursor().unwrap();
    let place = loop {
        let record = cursor.advance().unwrap().unwrap();
        if grammar.parts(record.value.bytes()).is_err() {
            break record.place;
        }
    };
    assert_eq!(shard.line(place), Some(6));
}

#[test]
fn any_bytes_are_read_or_refused() {
    for case in cases("jsonl") {
        survives(&files_of(case)[0], &[], &jsonl::open);
    }
}

#[test]
fn a_long_line_is_one_record() {
    let long = format!("{{\"a\": \"{}\"}}", "x".repeat(1_000_000));
    let made = made("long.jsonl", format!("{{}}\n{long}\r\n{long}"));
    for access in [Access::Mapped, Access::Read] {
        let read = records(&made.path, &options(access, &[]), &jsonl::open).unwrap();
        assert_eq!(read.len(), 3);
        assert_eq!(read[1], read[2]);
        assert_eq!(read[2]["a"].as_str().unwrap().len(), 1_000_000);
    }
}

#[test]
fn a_file_that_has_changed_is_noticed_at_its_places() {
    let made = made("data.jsonl", "[1]\n\n[23]\n");
    let shard = jsonl::open(&made.path, &options(Access::Read, &[])).unwrap().remove(0);
    assert_eq!(shard.seeks(), Seeks::ByPlace);
    let mut cursor = shard.clone().cursor().unwrap();
    cursor.seek([5, 4], 1).unwrap();
    assert_eq!(cursor.advance().unwrap().unwrap().value.bytes(), b"[23]");
    fs::write(&made.path, "[1]\n\n[2]\n\n").unwrap();
    let mut cursor = shard.cursor().unwrap();
    cursor.seek([5, 4], 1).unwrap();
    let error = cursor.advance().unwrap_err().to_string();
    assert!(error.contains("record 1, line 3, byte 5") && error.contains("has changed"), "{error}");
    assert_eq!(cursor.advance().unwrap_err().to_string(), error);
    for place in [[6, 3], [900, 3], [4, u64::MAX]] {
        let result = cursor.seek(place, 1).and_then(|()| cursor.advance().map(|_| ()));
        assert!(result.unwrap_err().to_string().contains("changed"), "{place:?}");
    }
}

#[test]
fn what_is_no_utf8_text_and_what_is_unknown_is_refused() {
    let utf16 = made("utf16.jsonl", b"\xff\xfe{\0}\0\n\0");
    let error = jsonl::open(&utf16.path, &options(Access::Read, &[])).unwrap_err().to_string();
    assert!(error.contains("UTF-16") && error.contains("iconv"), "{error}");
    let plain = made("a.jsonl", "{}\n");
    let error =
        jsonl::open(&plain.path, &options(Access::Read, &[("lines", "true")])).unwrap_err().to_string();
    assert!(error.contains("\"lines\"") && error.contains("none"), "{error}");
    let empty = made("empty.jsonl", "");
    assert!(records(&empty.path, &options(Access::Mapped, &[]), &jsonl::open).unwrap().is_empty());
}
