//! If a limit is measured wrong, every share of it is wrong. A rate cannot be tested, but its conditions can:
//! it exists where it must, and a damaged record is named and not skipped.

use std::path::Path;
use std::time::Duration;

use percolator::proto::Datum;
use percolator::source::FnSource;
use percolator::{ColorMode, FeedError};
use percolator_measure::limits;
use prost::Message as _;

fn encoded(data: Vec<u8>) -> Vec<u8> {
    Datum { data: Some(data), encoded: Some(true), ..Datum::default() }.encode_to_vec()
}

fn photo() -> Vec<u8> {
    let photos = Path::new(env!("CARGO_MANIFEST_DIR")).join("../percolator-cli/src/commands/bench/photos");
    std::fs::read(photos.join("chelsea.jpg")).unwrap()
}

fn source<const N: usize>(values: [Vec<u8>; N]) -> FnSource {
    FnSource::new("limits", N as u64, move |position, value| {
        value.extend_from_slice(&values[usize::try_from(position).unwrap()]);
        Ok(())
    })
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
    let rate = |source: &FnSource, color| limits::decodes_per_second(source, color, Duration::ZERO).unwrap();
    for color in [ColorMode::Native, ColorMode::Color, ColorMode::Gray] {
        assert!(rate(&source([encoded(photo())]), color).is_some_and(|rate| rate > 0.0));
    }
    let pixels = Datum { data: Some(vec![4, 5]), ..Datum::default() };
    assert_eq!(rate(&source([pixels.encode_to_vec()]), ColorMode::Native), None);
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
