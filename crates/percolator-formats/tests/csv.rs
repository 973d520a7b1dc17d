//! CSV files and lists as several libraries wrote them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;
mod mutations;

use std::path::Path;
use std::sync::Arc;

use common::{Damaged, case, cases, check, damaged, files_of, name};
use mutations::{made, options, records, survives};
use percolator_files::Access;
use percolator_formats::{FormatError, Key, Options, Seeks, Shard, csv, list, lst};
use serde_json::{Value as Json, json};

/// What the user must say of a file.
fn settings(case: &str) -> &'static [(&'static str, &'static str)] {
    match case {
        "csv_no_header_csv" => &[("header", "false"), ("columns", "path,label")],
        "csv_bom_semicolon_csv" => &[("delimiter", ";")],
        _ => &[],
    }
}

fn open(case: &Json, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    let file = &files_of(case)[0];
    match name(case) {
        "csv_caffe_list_txt" => list::open(file, options),
        "csv_im2rec_lst" => lst::open(file, options),
        other => csv::open(file, &mutations::options(options.access, settings(other))),
    }
}

#[test]
fn files_of_every_library_are_read() {
    let mut read = 0;
    for case in cases("csv") {
        if ["csv_ragged_csv", "csv_latin1_csv"].contains(&name(case)) {
            continue;
        }
        check(case, &|options| open(case, options));
        read += 1;
    }
    assert_eq!(read, 11);
}

#[test]
fn what_is_ragged_or_not_utf8_is_said_with_its_line() {
    for (name, words) in [
        (
            "csv_ragged_csv",
            &["record 1, line 3, byte 19", "has 1 field, and 2 are expected: path, label"][..],
        ),
        ("csv_latin1_csv", &["line 2, byte 17", "not UTF-8", "iconv"]),
    ] {
        let error = records(&files_of(case(name))[0], &options(Access::Read, &[]), &csv::open).unwrap_err();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
    let long = made("a.csv", "a,b\n1,2\n\n1,2,3\n");
    let error = records(&long.path, &options(Access::Read, &[]), &csv::open).unwrap_err();
    assert!(error.contains("line 4") && error.contains("has 3 fields, and 2"), "{error}");
}

#[test]
fn damage_is_said() {
    for variant in damaged("csv") {
        let words: &[&str] = match variant.name {
            "csv_open_quote" => &["line 10", "the quote that opens here is not closed"],
            "csv_nul" => &["line 3", "NUL"],
            "csv_cut" => &["line 41", "has 1 field, and 2 are expected"],
            other => panic!("{other} is not expected"),
        };
        let Damaged { name, .. } = variant;
        let file = &variant.files()[0];
        variant.fails(&|options| csv::open(file, options), words);
        let error = records(file, &options(Access::Read, &[]), &csv::open).unwrap_err();
        assert!(words.iter().all(|word| error.contains(word)), "{name}, read: {error}");
    }
}

#[test]
fn any_bytes_are_read_or_refused() {
    for case in cases("csv") {
        let file = &files_of(case)[0];
        let open: mutations::OpenFile<'_> = match name(case) {
            "csv_caffe_list_txt" => &list::open,
            "csv_im2rec_lst" => &lst::open,
            _ => &csv::open,
        };
        survives(file, settings(name(case)), open);
    }
}

/// Reads a text, plain and compressed, and each record by its place.
fn read(name: &str, text: &str, settings: &[(&str, &str)]) -> Result<Vec<Json>, String> {
    let plain = made(name, text);
    let result = records(&plain.path, &options(Access::Mapped, settings), &csv::open);
    assert_eq!(
        result.is_ok(),
        records(&plain.path, &options(Access::Read, settings), &csv::open).is_ok(),
        "{text:?}"
    );
    let packed = made(&format!("{name}.zst"), zstd::encode_all(text.as_bytes(), 1).unwrap());
    match (&result, records(&packed.path, &options(Access::Read, settings), &csv::open)) {
        (Ok(plain), Ok(packed)) => assert_eq!(*plain, packed),
        (plain, packed) => assert!(plain.is_err() && packed.is_err(), "{text:?}: {plain:?}, {packed:?}"),
    }
    result
}

#[test]
fn the_user_says_what_the_file_does_not() {
    let text = "img/0.jpg,9\nimg/1.jpg,5\n";
    let error = read("a.csv", text, &[]).unwrap_err();
    assert!(error.contains("does not look like a header") && error.contains("\"9\""), "{error}");
    let named = [json!({"path": "img/0.jpg", "label": "9"}), json!({"path": "img/1.jpg", "label": "5"})];
    assert_eq!(read("a.csv", text, &[("columns", "path,label")]).unwrap(), named);
    assert_eq!(read("a.csv", text, &[("columns", "path,label"), ("header", "true")]).unwrap(), named[1..]);
    assert_eq!(
        read("a.csv", text, &[("header", "true")]).unwrap(),
        [json!({"img/0.jpg": "img/1.jpg", "9": "5"})]
    );
    assert_eq!(read("a.csv", text, &[("header", "false")]).unwrap()[0], json!({"0": "img/0.jpg", "1": "9"}));
    assert!(read("a.csv", text, &[("columns", "path")]).unwrap_err().contains("has 2 fields"));
    assert_eq!(read("a.tsv", "a\tb\n1,2\t3\n", &[]).unwrap(), [json!({"a": "1,2", "b": "3"})]);
    assert_eq!(
        read("a.txt", "a\tb\n1\t3\n", &[("delimiter", "tab")]).unwrap(),
        [json!({"a": "1", "b": "3"})]
    );
    let quotes = [("quote", "none"), ("columns", "a,b")];
    assert_eq!(read("a.csv", "\"x,y\"\n", &quotes).unwrap(), [json!({"a": "\"x", "b": "y\""})]);
    let quotes = [("quote", "'"), ("columns", "a,b")];
    assert_eq!(read("a.csv", "'x,''y\n',\"\n", &quotes).unwrap(), [json!({"a": "x,'y\n", "b": "\""})]);
    for (settings, words) in [
        (&[("delimiter", ";;")][..], "one ASCII character"),
        (&[("delimiter", "\"")], "other than the delimiter"),
        (&[("header", "yes")], "true or false"),
        (&[("separator", ";")], "\"separator\""),
        (&[("columns", "a,a")], "two columns have the name \"a\""),
    ] {
        let error = read("a.csv", text, settings).unwrap_err();
        assert!(error.contains(words), "no {words:?} in {error}");
    }
}

#[test]
fn quotes_and_line_ends_are_those_of_the_rfc() {
    let columns = &[("columns", "a,b")];
    let one = |text: &str| read("a.csv", text, columns);
    assert_eq!(one("\"\r\n\",\"\"\"\"\r\n").unwrap(), [json!({"a": "\r\n", "b": "\""})]);
    assert_eq!(one(" \"x\" ,y\"z").unwrap(), [json!({"a": " \"x\" ", "b": "y\"z"})]);
    assert_eq!(one(",\n\n\r\n\"\",\"\"").unwrap(), [json!({"a": "", "b": ""}), json!({"a": "", "b": ""})]);
    assert_eq!(one("").unwrap(), [] as [Json; 0]);
    for (text, words) in [
        ("\"x\"y,z\n", "text follows the quote"),
        ("x,\"y\"\rz\n", "a carriage return without a line feed"),
        ("x\ry,z\n", "a carriage return without a line feed"),
        ("x,y\n\"x\ny,z", "line 2"),
        ("a,b\nx,\"y\n\n\",\n", "line 2"),
    ] {
        let error = one(text).unwrap_err();
        assert!(error.contains(words), "{text:?}: no {words:?} in {error}");
    }
}

/// The crate `csv` reads the same, wherever it does not guess.
#[test]
fn another_reader_reads_the_same() {
    let pieces = ["x", "\"", ",", "\n", "\r\n", "\"\"", "ü", "\"a,b\"", " "];
    let mut state = 1_u64;
    let mut compared = 0;
    for _ in 0..800 {
        let text: String = (0..10)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                pieces[usize::try_from(state >> 33).unwrap() % pieces.len()]
            })
            .collect();
        let file = made("a.csv", &text);
        let Ok(ours) = records(&file.path, &options(Access::Mapped, &[("header", "false")]), &csv::open)
        else {
            continue;
        };
        let mut reader = ::csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
        let theirs: Vec<Vec<String>> =
            reader.records().map(|record| record.unwrap().iter().map(str::to_owned).collect()).collect();
        let ours: Vec<Vec<String>> = ours
            .iter()
            .map(|record| {
                let fields = record.as_object().unwrap().len();
                (0..fields).map(|n| record[n.to_string()].as_str().unwrap().to_owned()).collect()
            })
            .collect();
        assert_eq!(ours, theirs, "{text:?}");
        compared += 1;
    }
    assert!(compared > 100, "{compared}");
}

#[test]
fn a_record_of_several_lines_is_reached_by_its_place() {
    let file = made("a.csv", "a,b\n1,\"x\ny\"\n2,\"z\"\n3,z\n");
    for access in [Access::Mapped, Access::Read] {
        let shard = csv::open(&file.path, &options(access, &[])).unwrap().remove(0);
        assert_eq!(shard.seeks(), Seeks::ByPlace);
        let mut cursor = shard.clone().cursor().unwrap();
        let places: Vec<_> = std::iter::from_fn(|| cursor.skip().unwrap()).collect();
        assert_eq!(places, [[4, 7], [12, 5], [18, 3]]);
        cursor.seek(places[1], 1).unwrap();
        assert_eq!(cursor.advance().unwrap().unwrap().value.bytes(), b"2,\"z\"");
        // The middle of the first record.
        cursor.seek([9, 2], 1).unwrap();
        assert!(cursor.advance().unwrap_err().to_string().contains("line 3"));
        assert!(cursor.seek([0, 3], 1).is_err(), "the header is no record");
    }
}

#[test]
fn lists_of_paths_may_have_spaces_and_any_bytes() {
    let file = made("a.txt", b"a b.jpg 3\r\n\n\xfc.jpg -1\n");
    assert!(list::is(&file.path, b"a b.jpg 3\r\n"));
    assert!(!list::is(Path::new("README.txt"), b"plain text of 5 words\nand more\n"));
    let read = records(&file.path, &options(Access::Read, &[]), &list::open).unwrap();
    assert_eq!(read[0], json!({"path": "a b.jpg", "label": "3"}));
    assert_eq!(read[1]["path"]["hex"], "fc2e6a7067");
    for (text, words) in [
        (
            "a.jpg 1\na b.jpg\n",
            "line 2, byte 8: a space and an integer must end the line, and it ends with \"b.jpg\"",
        ),
        ("a.jpg", "a space and an integer must end the line"),
        ("a.jpg 1 \n", "must end the line"),
        (" 1\n", "no path"),
        ("a\0b 1\n", "NUL"),
    ] {
        let error = records(&made("a.txt", text).path, &options(Access::Read, &[]), &list::open).unwrap_err();
        assert!(error.contains(words), "no {words:?} in {error}");
    }
}

#[test]
fn a_line_of_an_lst_may_have_several_labels() {
    let file = made("a.lst", "7\t1.0\ta.jpg\n3\t1\t-2e3\tb c.jpg\r\n");
    let read = records(&file.path, &options(Access::Mapped, &[]), &lst::open).unwrap();
    assert_eq!(
        read,
        [json!({"label": "1.0", "path": "a.jpg"}), json!({"label": ["1", "-2e3"], "path": "b c.jpg"})]
    );
    let shard = lst::open(&file.path, &options(Access::Mapped, &[])).unwrap().remove(0);
    assert_eq!(shard.cursor().unwrap().advance().unwrap().unwrap().key, Key::Number(7));
    for (text, words) in [
        ("1\ta.jpg\n", "separated by tabs"),
        ("x\t1\ta.jpg\n", "the key, \"x\""),
        ("1\tx\ta.jpg\n", "the labels, \"x\""),
        ("0\t1\ta\n1\t1\t\n", "line 2, byte 6: the line has no path"),
    ] {
        let error = records(&made("a.lst", text).path, &options(Access::Read, &[]), &lst::open).unwrap_err();
        assert!(error.contains(words), "no {words:?} in {error}");
    }
}
