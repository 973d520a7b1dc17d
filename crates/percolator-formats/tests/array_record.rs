//! ArrayRecord.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod common;
mod survival;

use std::path::Path;

use highway::{HighwayHash as _, HighwayHasher, Key};
use percolator_files::Access;
use percolator_formats::{Lent, Options, array_record};
use serde_json::Value as Json;
use survival::{Made, fails, options, records};

const BLOCK: usize = 1 << 16;

fn hash(bytes: &[u8]) -> [u8; 8] {
    let (first, second) = (u64::from_le_bytes(*b"Riegeli/"), u64::from_le_bytes(*b"records\n"));
    HighwayHasher::new(Key([first, second, first, second])).hash64(bytes).to_le_bytes()
}

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
    bytes
}

/// Fields of a message: numbers.
fn message(fields: &[(u8, u64)]) -> Vec<u8> {
    fields.iter().flat_map(|(field, number)| [vec![field << 3], varint(*number)].concat()).collect()
}

/// Writes a file as ArrayRecord does, in any compression, and with lies.
#[derive(Default)]
struct Writer {
    file: Vec<u8>,
    footer: Vec<Vec<u8>>,
    records: u64,
}

impl Writer {
    fn new() -> Self {
        let mut writer = Writer::default();
        writer.chunk(b's', 0, 0, &[]);
        writer
    }

    /// Appends bytes, with a header wherever a block begins.
    fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.file.len().is_multiple_of(BLOCK) {
                let rest = [[0; 8], 64_u64.to_le_bytes()].concat();
                self.file.extend(hash(&rest));
                self.file.extend(rest);
            }
            let room = BLOCK - self.file.len() % BLOCK;
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.file.extend(now);
            bytes = later;
        }
    }

    fn chunk(&mut self, kind: u8, records: u64, decoded: u64, data: &[u8]) -> u64 {
        let at = self.file.len() as u64;
        let mut header = (data.len() as u64).to_le_bytes().to_vec();
        header.extend(hash(data));
        header.extend((records << 8 | u64::from(kind)).to_le_bytes());
        header.extend(decoded.to_le_bytes());
        let header = [&hash(&header)[..], &header].concat();
        self.put(&header);
        self.put(data);
        at
    }

    fn records(&mut self, codec: u8, records: &[&[u8]]) -> u64 {
        let sizes: Vec<u8> = records.iter().flat_map(|record| varint(record.len() as u64)).collect();
        let values = records.concat();
        let pack = |bytes: &[u8]| {
            let packed = match codec {
                0 => return bytes.to_vec(),
                b'z' => zstd::encode_all(bytes, 3).unwrap(),
                b's' => snap::raw::Encoder::new().compress_vec(bytes).unwrap(),
                _ => bytes.to_vec(),
            };
            [varint(bytes.len() as u64), packed].concat()
        };
        let sizes = pack(&sizes);
        let data = [vec![codec], varint(sizes.len() as u64), sizes, pack(&values)].concat();
        self.chunk(b'r', records.len() as u64, values.len() as u64, &data)
    }

    /// A chunk of records that the footer lists.
    fn listed(&mut self, codec: u8, records: &[&[u8]]) {
        let at = self.records(codec, records);
        self.list(at, records.concat().len() as u64, records.len() as u64);
    }

    fn list(&mut self, at: u64, decoded: u64, records: u64) {
        self.footer.push(message(&[(1, at), (2, decoded), (3, records)]));
        self.records += records;
    }

    fn finish(self) -> Vec<u8> {
        let (chunks, records) = (self.footer.len() as u64, self.records);
        self.finish_with(&message(&[(1, 1), (2, chunks), (3, records)]))
    }

    fn finish_with(mut self, metadata: &[u8]) -> Vec<u8> {
        let first = [&[0x0a, u8::try_from(metadata.len()).unwrap()], metadata].concat();
        let footer = std::mem::take(&mut self.footer);
        let footer: Vec<&[u8]> = std::iter::once(&first).chain(&footer).map(Vec::as_slice).collect();
        let footer_at = self.records(b'z', &footer);
        self.file.resize(self.file.len().next_multiple_of(BLOCK), 0);
        let postscript = [message(&[(1, footer_at)]), vec![0x10], varint(0x7193_0e70_4fda_e05e)].concat();
        self.records(0, &[&postscript, &postscript]);
        self.file.resize(self.file.len().next_multiple_of(BLOCK), 0);
        self.file
    }
}

fn read(file: &[u8]) -> Result<Vec<Json>, String> {
    let made = Made::new(&[("a.array_record", file)]);
    let open = |access| records(array_record::open(&made.path("a.array_record"), &options(access, &[])));
    let [mapped, read] = [Access::Mapped, Access::Read].map(open);
    assert_eq!(mapped, read);
    mapped
}

#[test]
fn golden_files_are_read() {
    for case in common::cases("array_record") {
        let path = common::files_of(case).remove(0);
        let bytes = std::fs::read(&path).unwrap();
        assert!(array_record::is(&path, &bytes[..512]));
        if common::name(case) != "array_record_transpose" {
            common::check(case, &|options| array_record::open(&path, options));
        }
    }
}

#[test]
fn transposed_chunks_are_refused_by_name() {
    let path = common::golden("array_record/transpose.array_record");
    fails(
        array_record::open(&path, &Options::default()),
        &["records 0 to 9", "transposed", "transpose:false"],
    );
}

#[test]
fn damage_is_named() {
    for damaged in common::damaged("array_record") {
        let path = damaged.files().remove(0);
        let words: &[&str] = match damaged.name {
            "array_record_cut_block" => &["65536 bytes", "no postscript", "incomplete"],
            "array_record_cut" => &["130072 bytes", "no postscript"],
            "array_record_small" => &["3000 bytes", "no postscript"],
            "array_record_postscript" => &["postscript", "data hash mismatch", "HighwayHash-64"],
            "array_record_chunk_data" => {
                &["records 0 to 6", "data hash mismatch", "0xee115fb0fe28eb4e stored"]
            }
            "array_record_chunk_header" => &["header hash mismatch", "byte 64"],
            "array_record_block_header" => &["block header hash mismatch at byte 65536"],
            other => panic!("{other} is new"),
        };
        damaged.fails(&|options| array_record::open(&path, options), words);
    }
}

#[test]
fn changed_files_are_errors_or_read() {
    for case in common::cases("array_record") {
        let name = case["files"][0]["path"].as_str().unwrap();
        survival::survives(case, &|folder, options| array_record::open(&folder.join(name), options));
    }
}

#[test]
fn every_compression_is_read_and_groups_may_differ() {
    let long = vec![7_u8; 100_000];
    let mut writer = Writer::new();
    writer.listed(0, &[b"a", b"", b"ccc"]);
    writer.chunk(b'p', 0, 0, &[0; 50]);
    writer.listed(b's', &[b"snappy", &long]);
    writer.listed(b'z', &[&long]);
    writer.listed(b'z', &[b"", b""]);
    writer.listed(0, &[&long, b"end"]);
    let lengths: Vec<_> =
        read(&writer.finish()).unwrap().iter().map(|record| record["record"]["$bytes"].clone()).collect();
    assert_eq!(lengths, [1, 0, 3, 6, 100_000, 100_000, 0, 0, 100_000, 3]);
}

#[test]
fn a_plain_chunk_in_one_block_is_lent() {
    let mut writer = Writer::new();
    writer.listed(0, &[b"one", b"two"]);
    let made = Made::new(&[("a", &writer.finish())]);
    let shard = array_record::open(&made.path("a"), &options(Access::Mapped, &[])).unwrap().remove(0);
    let mut cursor = shard.cursor().unwrap();
    cursor.seek([1, 0], 1).unwrap();
    let record = cursor.advance().unwrap().unwrap();
    assert!(matches!(record.value, Lent::Mapped(..)) && record.value.bytes() == b"two");
    assert!(cursor.seek([2, 0], 2).is_err());
}

#[test]
fn what_contradicts_itself_is_an_error() {
    type Lie = fn(Writer) -> Vec<u8>;
    let lies: [(&str, Lie); 12] = [
        ("footer states 3 records", |mut writer| {
            let at = writer.records(0, &[b"a", b"b"]);
            writer.list(at, 2, 3);
            writer.finish()
        }),
        ("of 9 bytes", |mut writer| {
            let at = writer.records(0, &[b"a"]);
            writer.list(at, 9, 1);
            writer.finish()
        }),
        ("states 2 chunks, and lists 1", |mut writer| {
            writer.listed(0, &[b"a"]);
            writer.finish_with(&message(&[(1, 1), (2, 2), (3, 1)]))
        }),
        ("states 5 records, and its chunks have 1", |mut writer| {
            writer.listed(0, &[b"a"]);
            writer.finish_with(&message(&[(1, 1), (2, 1), (3, 5)]))
        }),
        ("version 2", |writer| writer.finish_with(&message(&[(1, 2)]))),
        ("entry 1 is damaged", |mut writer| {
            writer.list(1 << 40, 1, 1);
            writer.finish()
        }),
        ("entry 1 is damaged", |mut writer| {
            writer.list(64, 1, 1 << 60);
            writer.finish()
        }),
        ("sizes of its records have the sum 1", |mut writer| {
            let at = writer.chunk(b'r', 1, 2, &[0, 1, 1, b'a', b'b']);
            writer.list(at, 2, 1);
            writer.finish()
        }),
        ("states 3 records, and has 1 bytes of sizes", |mut writer| {
            let at = writer.chunk(b'r', 3, 1, &[0, 1, 1, b'a']);
            writer.list(at, 1, 3);
            writer.finish()
        }),
        ("sizes are stated to have 100 bytes", |mut writer| {
            let at = writer.chunk(b'r', 1, 1, &[0, 100, 1, b'a']);
            writer.list(at, 1, 1);
            writer.finish()
        }),
        ("compression 'x'", |mut writer| {
            writer.listed(b'x', &[b"a"]);
            writer.finish()
        }),
        ("type is 'p'", |mut writer| {
            let at = writer.chunk(b'p', 0, 0, &[0; 9]);
            writer.list(at, 0, 1);
            writer.finish()
        }),
    ];
    for (words, lie) in lies {
        let error = read(&lie(Writer::new())).unwrap_err();
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[test]
fn stated_lengths_are_no_allocations() {
    let huge = varint(1 << 62);
    for codec in [b'z', b's', b'b'] {
        let mut writer = Writer::new();
        // Packed sizes of a length that no chunk has.
        let data = [&[codec][..], &varint(huge.len() as u64), &huge, b"x"].concat();
        let at = writer.chunk(b'r', 1, 1, &data);
        writer.list(at, 1, 1);
        assert!(read(&writer.finish()).unwrap_err().contains("stated to unpack to 4611686018427387904"));
    }
    let mut writer = Writer::new();
    let at = writer.chunk(b'r', 1, 1 << 62, &[0, 1, 1, b'a']);
    writer.list(at, 1 << 62, 1);
    assert!(read(&writer.finish()).unwrap_err().contains("8 GiB"));

    // Snappy that states more than its bytes can be.
    let mut writer = Writer::new();
    let length = 1_u64 << 31;
    let values = [varint(length), varint(length)].concat();
    let sizes = [varint(5), snap::raw::Encoder::new().compress_vec(&varint(length)).unwrap()].concat();
    let data = [vec![b's'], varint(sizes.len() as u64), sizes, values].concat();
    let at = writer.chunk(b'r', 1, length, &data);
    writer.list(at, length, 1);
    assert!(read(&writer.finish()).unwrap_err().contains("5 snappy bytes"));
}

#[test]
fn other_riegeli_files_are_no_array_records() {
    let mut writer = Writer::new();
    writer.records(0, &[b"a"]);
    writer.file.resize(2 * BLOCK, 0);
    assert!(read(&writer.file).unwrap_err().contains("postscript"));
    assert!(read(&[0; 2 * BLOCK]).unwrap_err().contains("signature"));
    assert!(!array_record::is(Path::new("a"), b"") && array_record::is(Path::new("a"), &writer.file));
}
