//! If a limit is measured wrong, every share of it is wrong. A rate cannot be tested, but its conditions can:
//! it exists where it must, and a damaged record is named and not skipped.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;
use std::time::Duration;

use percolator::proto::Datum;
use percolator::{ColorMode, FeedError, limits};
use prost::Message as _;

use crate::common::source::MemorySource;
use crate::common::{datum, key};

fn encoded(data: Vec<u8>) -> Vec<u8> {
    Datum { data: Some(data), encoded: Some(true), ..Datum::default() }.encode_to_vec()
}

fn photo() -> Vec<u8> {
    std::fs::read(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/percolator-cli/src/bench/photos/chelsea.jpg"),
    )
    .unwrap()
}

fn source(values: impl IntoIterator<Item = Vec<u8>>) -> MemorySource {
    MemorySource::new("limits", values.into_iter().enumerate().map(|(index, value)| (key(index), value)))
}

#[test]
fn memory_is_copied_and_stored_at_some_rate() {
    for threads in [0, 1, 3] {
        assert!(limits::copy_bytes_per_second(threads, Duration::ZERO) > 0.0);
        assert!(limits::store_bytes_per_second(threads, Duration::ZERO) > 0.0);
        assert!(limits::fresh_bytes_per_second(threads, threads << 20) > 0.0);
    }
}

#[test]
fn encoded_records_are_decoded_and_others_have_no_such_limit() {
    let rate =
        |source: &MemorySource, color| limits::decodes_per_second(source, color, Duration::ZERO).unwrap();
    for color in [ColorMode::Native, ColorMode::Color, ColorMode::Gray] {
        assert!(rate(&source([encoded(photo())]), color).is_some_and(|rate| rate > 0.0));
    }
    assert_eq!(rate(&source([datum(1, 1, 2, 3, vec![4, 5])]), ColorMode::Native), None);
    assert_eq!(rate(&source([]), ColorMode::Native), None);
}

#[test]
fn a_record_that_cannot_be_decoded_is_named() {
    let mut cut = photo();
    cut.truncate(1000);
    let source = source([encoded(photo()), encoded(cut)]);
    let error = limits::decodes_per_second(&source, ColorMode::Color, Duration::MAX).unwrap_err();
    let FeedError::Record(error) = error else { panic!("{error}") };
    assert_eq!(error.id.index, 1);
    assert!(error.to_string().contains("00000001"), "{error}");
}

#[test]
fn what_there_is_no_memory_for_has_no_rate() {
    assert!(limits::copy_bytes_per_second_of(1, Duration::ZERO) > 0.0);
    assert_eq!(limits::copy_bytes_per_second_of(usize::MAX / 4, Duration::ZERO).to_bits(), 0);
}
