//! The cost of decoding a `Datum` from a record's bytes.
//!
//! `cargo bench -p percolator-messages`. A view copies no pixel, so its time must depend on the number of
//! fields only; floats that are not packed are a field each. The records stay in the caches; a feed pays, in
//! addition, for fetching the first line of a record from memory.

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use percolator_messages::Datum;
use percolator_net::proto;
use prost::Message as _;

const SMALL: usize = 3 * 32 * 32;
const LARGE: usize = 3 * 224 * 224;

fn record(data: Option<Vec<u8>>, float_data: Vec<f32>, encoded: Option<bool>, side: i32) -> Vec<u8> {
    let (channels, height, width, label) = (Some(3), Some(side), Some(side), Some(7));
    proto::Datum { channels, height, width, label, data, float_data, encoded }.encode_to_vec()
}

/// As proto2, and therefore Caffe, writes floats: each a field of its own.
fn unpacked(floats: usize, side: i32) -> Vec<u8> {
    let mut record = record(None, Vec::new(), None, side);
    record.extend([0x35, 0, 0, 0x80, 0x3f].repeat(floats));
    record
}

/// As newer writers do it: all in one field.
fn packed(floats: usize, side: i32) -> Vec<u8> {
    let mut record = record(None, Vec::new(), None, side);
    record.push(0x32);
    prost::encode_length_delimiter(4 * floats, &mut record).unwrap();
    record.extend([0, 0, 0x80, 0x3f].repeat(floats));
    record
}

fn views(criterion: &mut Criterion) {
    let raw = |bytes: usize, side| record(Some(vec![7; bytes]), Vec::new(), None, side);
    let cases = [
        ("bytes, 3 KB", raw(SMALL, 32)),
        ("bytes, 150 KB", raw(LARGE, 224)),
        ("encoded, 40 KB", record(Some(vec![7; 40_000]), Vec::new(), Some(true), 0)),
        ("packed floats, 3 KB", packed(SMALL / 4, 16)),
        ("packed floats, 600 KB", packed(LARGE, 224)),
        ("floats one by one, 4 KB", unpacked(SMALL / 4, 16)),
        ("floats one by one, 750 KB", unpacked(LARGE, 224)),
    ];
    let mut group = criterion.benchmark_group("datum");
    group.throughput(Throughput::Elements(1));
    for (name, record) in &cases {
        let datum = Datum::parse(record).unwrap();
        assert!(datum.encoded || datum.image().is_ok(), "{name}");
        group.bench_function(*name, |bencher| {
            bencher.iter(|| black_box(Datum::parse(black_box(record)).unwrap()));
        });
    }
    group.finish();
}

criterion_group!(benches, views);
criterion_main!(benches);
