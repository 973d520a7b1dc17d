//! Arrow's files and streams.
#![cfg(feature = "arrow")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, too")]

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use common::{Damaged, cases, check, damaged, files_of, name};
use percolator_formats::{FormatError, Options, Shard, arrow_ipc};

fn open_all(files: &[std::path::PathBuf], options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    let mut shards = Vec::new();
    for file in files {
        shards.extend(arrow_ipc::open(file, options)?);
    }
    Ok(shards)
}

fn all_cases() -> Vec<&'static serde_json::Value> {
    [cases("arrow-ipc-file"), cases("arrow-ipc-stream")].concat()
}

#[test]
fn every_case_is_read() {
    for case in all_cases() {
        check(case, &|options| open_all(&files_of(case), options));
        let head = fs::read(&files_of(case)[0]).unwrap();
        assert!(arrow_ipc::is(Path::new("x"), &head[..head.len().min(512)]), "{}", name(case));
    }
}

/// What an error must say.
fn words(variant: &Damaged) -> &'static [&'static str] {
    match variant.name {
        "arrow_file_cut" => &["ARROW1", "cut"],
        "arrow_file_footer_length" => &["footer", "60484", "30242"],
        "arrow_offsets_not_rising" | "arrow_offset_negative" => &["record 0", "column \"text\""],
        "arrow_bad_utf8" => &["record 0", "column \"text\"", "UTF"],
        "arrow_list_offsets" => &["record 0", "column \"ints\""],
        "arrow_stream_cut" => &["3296 bytes", "8080", "cut"],
        "arrow_stream_metadata_size" => &["2147483632 bytes", "10080"],
        "arrow_stream_negative_size" => &["negative"],
        "arrow_zstd_length" => &["record 0", "1099511627776", "at most"],
        "arrow_zstd_frame" => &["record 0", "no zstd frame"],
        other => panic!("{other} is new: {}", variant.honest),
    }
}

#[test]
fn every_damage_is_told() {
    for variant in [damaged("arrow-ipc-file"), damaged("arrow-ipc-stream")].into_iter().flatten() {
        let open = |options: &Options| open_all(&variant.files(), options);
        match variant.name {
            // The format allows it.
            "arrow_stream_no_end" => assert_eq!(variant.read(&open), Ok(12)),
            _ => variant.fails(&open, words(&variant)),
        }
    }
}
