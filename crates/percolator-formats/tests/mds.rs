//! Shards of MosaicML Streaming.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common;
mod mutations;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use common::{cases, check, damaged, files_of, golden, name};
use percolator_formats::{FormatError, Options, Shard, mds};

fn open(index: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    let folder = index.parent().unwrap();
    assert!(mds::is(folder, &[]), "{}", folder.display());
    mds::open(folder, options)
}

#[test]
fn every_case_has_its_rows() {
    for case in cases("mds") {
        if name(case) != "mds_pkl" {
            check(case, &|options| open(&files_of(case)[0], options));
        }
    }
}

#[test]
fn a_pickle_is_refused_and_the_columns_beside_it_are_read() {
    let index = golden("mds/pkl/index.json");
    let error = open(&index, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("the column \"o\" is a pickle"), "{error}");
    let mut options = Options::default();
    options.parts = Some(vec!["label".to_owned()]);
    let shards = open(&index, &options).unwrap();
    let mut cursor = Arc::clone(&shards[0]).cursor().unwrap();
    let mut records = 0;
    while let Some(record) = cursor.advance().unwrap() {
        let grammar = shards[0].grammar();
        let parts = grammar.parts(record.value.bytes()).unwrap();
        assert_eq!(parts.len(), 1);
        assert_eq!(parts[0].0, "label");
        records += 1;
    }
    assert_eq!(records, 3);
}

#[test]
fn damage_is_named() {
    let words: [(&str, &[&str]); 9] = [
        ("mds_cut", &["it has 15149 bytes, and", "index.json says"]),
        ("mds_offset_falls", &["record 2", "the offsets of the sample fall"]),
        ("mds_offset_beyond", &["record 2", "samples lie from"]),
        ("mds_count_differs", &["it has 20 samples, and", "says that it has 25"]),
        ("mds_size_too_big", &["the column \"image\" has 16777215 bytes, and"]),
        ("mds_version", &["it is of version 3, and version 2 is read"]),
        ("mds_path_leaves", &["../zstd/shard.00000.mds, which leaves its folder"]),
        ("mds_bad_json", &["it is no JSON"]),
        ("mds_zip_hash", &["shard.00001.mds.zstd", "of the compressed shard is"]),
    ];
    let variants = damaged("mds");
    assert_eq!(variants.len(), words.len());
    for variant in variants {
        let due = words.iter().find(|(name, _)| *name == variant.name).unwrap().1;
        variant.fails(&|options| open(&variant.files()[0], options), due);
    }
}

#[test]
fn changed_bytes_are_survived() {
    for (folder, file) in [
        ("full", "shard.00000.mds"),
        ("full", "index.json"),
        ("scalars", "shard.00000.mds"),
        ("jpeg_png", "shard.00000.mds"),
        ("comp_snappy", "shard.00000.mds.snappy"),
        ("comp_bz2", "shard.00000.mds.bz2"),
        ("comp_br", "shard.00000.mds.br"),
    ] {
        let whole = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(golden("mds").join(folder)).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, whole.path().join(path.file_name().unwrap())).unwrap();
        }
        mutations::survives(&golden("mds").join(folder).join(file), &[], &|changed, options| {
            fs::copy(changed, whole.path().join(file)).unwrap();
            mds::open(whole.path(), options)
        });
    }
}
