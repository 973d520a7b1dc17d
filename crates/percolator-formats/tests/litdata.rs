//! Chunks of LitData.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod common;
mod survival;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{case, cases, check, damaged, golden, name};
use percolator_formats::{FormatError, Options, Seeks, Shard, Value, litdata};

fn open(folder: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    assert!(litdata::is(folder, &[]), "{}", folder.display());
    litdata::open(folder, options)
}

/// A case's folder: `litdata_pytree` is in `litdata/pytree`.
fn folder_of(case: &str) -> PathBuf {
    golden(&case.replacen('_', "/", 1))
}

fn with_block(options: &Options, block: &str) -> Options {
    let mut options = options.clone();
    options.settings.push(("block".to_owned(), block.to_owned()));
    options
}

#[test]
fn every_case_has_its_rows() {
    for case in cases("litdata") {
        check(case, &|options| open(&folder_of(name(case)), options));
    }
}

#[test]
fn tokens_are_cut_into_blocks() {
    check(case("litdata_tokens"), &|options| open(&golden("litdata/tokens"), &with_block(options, "16")));
}

#[test]
fn tokens_without_a_block_are_the_items_as_they_were_written() {
    let shards = open(&golden("litdata/tokens"), &Options::default()).unwrap();
    let lengths: Vec<_> = shards
        .iter()
        .map(|shard| {
            let mut cursor = Arc::clone(shard).cursor().unwrap();
            let record = cursor.advance().unwrap().unwrap();
            let grammar = shard.grammar();
            let Value::Array(tokens) = grammar.part(record.value.bytes(), "tokens").unwrap().unwrap() else {
                panic!()
            };
            assert_eq!(tokens.dtype.numpy(), "<i4");
            tokens.shape[0]
        })
        .collect();
    assert_eq!(lengths, [7, 33, 64, 5, 50, 12]);
}

#[test]
fn settings_are_refused_where_they_mean_nothing() {
    let tokens = golden("litdata/tokens");
    for (folder, options, what) in [
        (&tokens, with_block(&Options::default(), "0"), "a number of tokens, 1 at least"),
        (&tokens, with_block(&Options::default(), "x"), "a number of tokens, 1 at least"),
        (&golden("litdata/pytree"), with_block(&Options::default(), "16"), "its items have other leaves"),
    ] {
        let error = open(folder, &options).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn parts_that_are_wanted_are_the_only_ones() {
    let mut options = Options::default();
    options.parts = Some(vec!["label".to_owned(), "meta.words".to_owned()]);
    let shards = open(&golden("litdata/json_leaves"), &options).unwrap();
    assert_eq!(shards[0].grammar().names().unwrap(), ["meta", "label"]);
    let mut cursor = Arc::clone(&shards[0]).cursor().unwrap();
    let record = cursor.advance().unwrap().unwrap();
    assert_eq!(shards[0].grammar().part(record.value.bytes(), "label").unwrap(), Some(Value::Int(9)));
    assert_eq!(shards[0].grammar().part(record.value.bytes(), "vec").unwrap(), None);
}

/// A copy of a case, in which an index says something else.
fn changed(case: &str, from: &str, to: &str) -> tempfile::TempDir {
    let copy = copied(&folder_of(case));
    let index = copy.path().join("index.json");
    let text = fs::read_to_string(&index).unwrap();
    assert!(text.contains(from), "{case} has no {from}");
    fs::write(&index, text.replace(from, to)).unwrap();
    copy
}

fn copied(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    copy
}

#[test]
fn what_is_not_read_is_refused() {
    for (case, from, to, words) in [
        ("litdata_tuple", "\"bytes\"", "\"pickle\"", "the part \"1\" is a pickle"),
        ("litdata_tuple", "\"bytes\"", "\"holograms\"", "\"holograms\", which is not known"),
        ("litdata_tuple", "PyTreeLoader", "TemporalArrayLoader", "written for TemporalArrayLoader"),
        ("litdata_tuple", "\"encryption\": null", "\"encryption\": {}", "are encrypted"),
        ("litdata_tuple", "builtins.tuple", "collections.deque", "collections.deque"),
        ("litdata_tuple", "chunk-0-0.bin", "../chunk-0-0.bin", "which leaves its folder"),
        (
            "litdata_tuple",
            "\"data_format\": [\"int\", ",
            "\"data_format\": [",
            "2 leaves, and data_format has 1",
        ),
        ("litdata_zstd_chunk", "\"zstd\"", "\"lz4\"", "compressed by \"lz4\""),
        ("litdata_zstd_batch", "\"batch\"", "\"pair\"", "compression_level \"pair\""),
        (
            "litdata_json_rows",
            "\"chunk_size\": 2, \"dim\"",
            "\"chunk_size\": 3, \"dim\"",
            "it has 2 items, and",
        ),
        ("litdata_tokens", "\"dim\": 7,", "\"dim\": 8,", "its tokens have 28 bytes"),
    ] {
        let copy = changed(case, from, to);
        let error = open(copy.path(), &Options::default()).unwrap_err().to_string();
        assert!(error.contains(words), "{case}, {to}: {error}");
    }
}

#[test]
fn a_part_that_is_a_pickle_is_passed_over_if_others_are_wanted() {
    let copy = changed("litdata_tuple", "\"bytes\"", "\"pickle\"");
    let mut options = Options::default();
    options.parts = Some(vec!["0".to_owned()]);
    let shards = open(copy.path(), &options).unwrap();
    let mut cursor = Arc::clone(&shards[0]).cursor().unwrap();
    let record = cursor.advance().unwrap().unwrap();
    let parts = shards[0].grammar();
    assert_eq!(parts.parts(record.value.bytes()).unwrap(), [("0".into(), Value::Int(9))]);
}

#[test]
fn a_chunk_that_is_compressed_as_a_whole_is_read_in_order() {
    let shards = open(&golden("litdata/zstd_chunk"), &Options::default()).unwrap();
    assert!(shards.iter().all(|shard| matches!(shard.seeks(), Seeks::InOrder(_))));
    let shards = open(&golden("litdata/zstd_batch"), &Options::default()).unwrap();
    assert!(shards.iter().all(|shard| shard.seeks() == Seeks::ByPosition));
}

#[test]
fn damage_is_named() {
    let words: [(&str, &[&str]); 8] = [
        ("litdata_cut", &["chunk-0-0.bin", "it has 11660 bytes, and", "says that it has 11960: it is cut"]),
        ("litdata_count", &["it has 15 items, and", "says that it has 17"]),
        ("litdata_offset", &["record 1", "items lie from"]),
        ("litdata_leaf_size", &["leaf 0 has 16777215 bytes, and"]),
        ("litdata_frame_cut", &["it has 2802 bytes, and"]),
        ("litdata_frame_data", &["leaf 0 has 4294967295 bytes"]),
        ("litdata_magic", &["the layout of the chunk is unknown"]),
        ("litdata_arrow_length", &["the length of its Arrow part, 4518 bytes, does not fit"]),
    ];
    let variants = damaged("litdata");
    assert_eq!(variants.len(), words.len());
    for variant in variants {
        let due = words.iter().find(|(name, _)| *name == variant.name).unwrap().1;
        let index = variant.files().into_iter().find(|path| path.ends_with("index.json")).unwrap();
        variant.fails(&|options| open(index.parent().unwrap(), options), due);
    }
}

#[test]
fn changed_files_are_errors_or_read() {
    for case in cases("litdata") {
        let below = name(case).replacen('_', "/", 1);
        survival::survives(case, &|folder, options| litdata::open(&folder.join(&below), options));
    }
    survival::survives(case("litdata_tokens"), &|folder, options| {
        litdata::open(&folder.join("litdata/tokens"), &with_block(options, "16"))
    });
}
