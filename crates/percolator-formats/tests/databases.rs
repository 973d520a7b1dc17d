//! LMDBs with other people's records.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{Damaged, cases, check, damaged, files_of, name, rows_of};
use percolator_formats::{DataSet, FormatError, Options, Shard};

fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    // An LMDB is named by its folder.
    let folder = path.parent().unwrap();
    DataSet::open(&[folder], options).map(|data| data.shards().to_vec())
}

#[test]
fn pairs_and_messages_are_read() {
    for format in ["lmdb-ocr", "lmdb-msgpack"] {
        for case in cases(format) {
            if name(case) == "lmdb_ocr_short" {
                continue;
            }
            check(case, &|options| open(&files_of(case)[0], options));
        }
    }
}

/// One label is missing: what comes before it is read, and the key is named.
#[test]
fn a_missing_key_is_named() {
    let short = common::case("lmdb_ocr_short");
    let shards = open(&files_of(short)[0], &Options::default()).unwrap();
    let mut cursor = Arc::clone(&shards[0]).cursor().unwrap();
    let mut records = 0;
    let error = loop {
        match cursor.advance() {
            Ok(Some(_)) => records += 1,
            Ok(None) => panic!("it ends without an error"),
            Err(error) => break error.to_string(),
        }
    };
    assert_eq!(records, rows_of(short).len());
    assert!(error.ends_with("record 4: the key label-000000005 is missing"), "{error}");
}

#[test]
fn damage_is_named() {
    let words: [(&str, &[&str]); 6] = [
        ("lmdb_cut", &["page"]),
        ("lmdb_meta", &["not an LMDB data file"]),
        ("lmdb_num_samples", &["num-samples is no number, but \"4x\""]),
        ("lmdb_num_samples_more", &["the key image-000000041 is missing"]),
        ("lmdb_msgpack_type", &["not a whole MessagePack value"]),
        ("lmdb_msgpack_reserved", &["not a whole MessagePack value at its byte"]),
    ];
    let variants: Vec<Damaged> = ["lmdb-ocr", "lmdb-msgpack"].into_iter().flat_map(damaged).collect();
    assert_eq!(variants.len(), words.len());
    for variant in variants {
        let due = words.iter().find(|(name, _)| *name == variant.name).unwrap().1;
        // What cannot be opened is no longer known by what is in it.
        variant.fails(
            &|options| {
                let mut options = options.clone();
                options.format = variant.base["format"].as_str().map(str::to_owned);
                open(&variant.files()[0], &options)
            },
            due,
        );
    }
}

/// What decides the records is the data file, wherever a link to it leads.
#[test]
fn the_file_of_an_lmdb_is_named() {
    for format in ["lmdb-ocr", "lmdb-msgpack"] {
        let file = &files_of(cases(format)[0])[0];
        assert_eq!(open(file, &Options::default()).unwrap()[0].files(), [file.as_path()]);
    }
}
