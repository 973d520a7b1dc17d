//! Parquet files.
#![cfg(feature = "parquet")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests, too")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use common::{Damaged, cases, check, damaged, files_of, name};
use parquet::file::metadata::ParquetMetaDataReader;
use percolator_formats::{FormatError, Options, Shard, parquet_file};

fn open_all(files: &[PathBuf], options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    let mut shards = Vec::new();
    for file in files {
        shards.extend(parquet_file::open(file, options)?);
    }
    Ok(shards)
}

#[test]
fn every_case_is_read() {
    for case in cases("parquet") {
        check(case, &|options| open_all(&files_of(case), options));
        let head = fs::read(&files_of(case)[0]).unwrap();
        assert!(parquet_file::is(Path::new("x"), &head[..head.len().min(512)]), "{}", name(case));
    }
}

/// What an error must say.
fn words(variant: &Damaged) -> &'static [&'static str] {
    match variant.name {
        "parquet_cut_last_byte" => &["PAR1", "cut"],
        "parquet_footer_length" => &["footer", "16100"],
        "parquet_footer_length_small" => &["footer", "parsed"],
        "parquet_page_header" => &["record 0", "byte 4", "column \"id\"", "row group 0", "head", "parsed"],
        "parquet_bytes_missing" => &["footer"],
        "parquet_crc" => &["record 0", "column", "row group 0", "CRC"],
        "parquet_plain_length" => &["record 0", "column \"key\"", "row group 0"],
        other => panic!("{other} is new: {}", variant.honest),
    }
}

#[test]
fn every_damage_is_told() {
    for variant in damaged("parquet") {
        let open = |options: &Options| open_all(&variant.files(), options);
        match variant.name {
            // Nothing in the file tells.
            "parquet_snappy_data" => assert_eq!(variant.read(&open), Ok(7)),
            _ => variant.fails(&open, words(&variant)),
        }
    }
}

/// The reader of the offsets of pages takes as much memory as their number is stated to need.
#[test]
fn an_index_that_states_more_pages_than_it_has_bytes_is_damage() {
    let mut bytes = fs::read(common::golden("parquet/page_index.parquet")).unwrap();
    let metadata = ParquetMetaDataReader::new().parse_and_finish(&Bytes::from(bytes.clone())).unwrap();
    let index = metadata.row_group(0).column(0).offset_index_range().unwrap();
    let at = usize::try_from(index.start).unwrap();
    // A list of structures, 2^31 - 1 of them.
    bytes[at..at + 7].copy_from_slice(&[0x19, 0xFC, 0xFF, 0xFF, 0xFF, 0xFF, 0x07]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.parquet");
    fs::write(&path, &bytes).unwrap();
    let error = parquet_file::open(&path, &Options::default()).unwrap_err().to_string();
    assert!(error.contains("an index of pages cannot be parsed"), "{error}");
    assert!(error.contains(&format!("byte {at}")), "{error}");
}
