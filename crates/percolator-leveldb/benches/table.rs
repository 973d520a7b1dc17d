//! What a block of a LevelDB table costs: to parse, to verify and to unpack.
//!
//! Run with `cargo bench -p percolator-leveldb`. Tables have 64 MB, more than the caches hold, with one
//! record per block. "parse" is what a feed's reader does with an uncompressed block; "verify" is what its
//! workers do with one. The reader itself verifies and unpacks a snappy block. Half of each value compresses.
//! Rates count blocks and their unpacked bytes.

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use percolator_leveldb::table::{DeferredChecksum, TableCursor, TableError, Unverified, Verify};

const TABLE_BYTES: usize = 64 << 20;

/// LevelDB's block types.
const PLAIN: u8 = 0;
const SNAPPY: u8 = 1;

/// As in a feed: the verification of uncompressed blocks is left to the workers, here however short the block
/// is.
const BY_THE_USER: Verify = Verify::ByTheUser { block_bytes_min: 1 };

/// Writes tables of random bytes.
struct Writer {
    table: Vec<u8>,
    index: Vec<u8>,
    random: u64,
}

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
    bytes
}

fn entry(key: &[u8], value: &[u8]) -> Vec<u8> {
    [&varint(0), &varint(key.len()), &varint(value.len()), key, value].concat()
}

impl Writer {
    /// Adds a block with its only restart point; returns its handle.
    fn add(&mut self, kind: u8, entries: &[u8]) -> Vec<u8> {
        let mut block = [entries, &[0, 0, 0, 0, 1, 0, 0, 0]].concat();
        if kind == SNAPPY {
            block = snap::raw::Encoder::new().compress_vec(&block).unwrap();
        }
        let handle = [varint(self.table.len()), varint(block.len())].concat();
        block.push(kind);
        let masked = crc32c::crc32c(&block).rotate_right(15).wrapping_add(0xa282_ead8);
        self.table.extend(block);
        self.table.extend(masked.to_le_bytes());
        handle
    }

    /// Returns a value; half of it is noise.
    fn value(&mut self, bytes: usize) -> Vec<u8> {
        let noise = |_| {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
            self.random.to_le_bytes()[6]
        };
        let mut value: Vec<u8> = (0..bytes / 2).map(noise).collect();
        value.resize(bytes, 7);
        value
    }

    fn finish(mut self) -> Vec<u8> {
        let filters = self.add(PLAIN, &[]);
        let index = std::mem::take(&mut self.index);
        let mut footer = [filters, self.add(PLAIN, &index)].concat();
        footer.resize(40, 0);
        self.table.extend(footer);
        self.table.extend(0xdb47_7524_8b80_fb57_u64.to_le_bytes());
        self.table
    }
}

/// Returns a table whose blocks have one value of `value_bytes` bytes each.
fn table(blocks: usize, value_bytes: usize, kind: u8) -> Vec<u8> {
    let mut writer = Writer { table: Vec::new(), index: Vec::new(), random: 1701 };
    for number in 0..blocks {
        let (key, value) = (format!("{number:08}"), writer.value(value_bytes));
        let handle = writer.add(kind, &entry(key.as_bytes(), &value));
        writer.index.extend(entry(key.as_bytes(), &handle));
    }
    writer.finish()
}

/// Reads the blocks of a table, as a feed's reader and its workers do.
struct Walk<'a> {
    file: &'a [u8],
    cursor: TableCursor<&'a [u8]>,
    /// Those of the uncompressed blocks.
    checksums: Vec<DeferredChecksum>,
}

impl<'a> Walk<'a> {
    fn new(file: &'a [u8]) -> Result<Self, TableError> {
        let mut walk = Self { file, cursor: TableCursor::new(8), checksums: Vec::new() };
        walk.cursor.open(file, BY_THE_USER)?;
        while walk.cursor.advance()? {
            let checksum = walk.cursor.unverified().map(Unverified::take);
            walk.checksums.extend(checksum.filter(|checksum| walk.checksums.last() != Some(checksum)));
        }
        Ok(walk)
    }

    /// Reads all entries, as the reader does, leaving the verification of uncompressed blocks to the workers.
    /// Returns the number of entries.
    fn parse(&mut self) -> Result<usize, TableError> {
        self.walk(BY_THE_USER)
    }

    /// Reads all entries and verifies each block when it is entered.
    fn parse_verified(&mut self) -> Result<usize, TableError> {
        self.walk(Verify::AtOnce)
    }

    fn walk(&mut self, verify: Verify) -> Result<usize, TableError> {
        self.cursor.open(self.file, verify)?;
        let mut entries = 0;
        while self.cursor.advance()? {
            self.cursor.unverified().map(Unverified::take);
            entries += 1;
        }
        Ok(entries)
    }

    /// Verifies the uncompressed blocks, as the workers do. Returns how many there are.
    fn verify(&self) -> Result<usize, TableError> {
        self.checksums.iter().try_for_each(|checksum| checksum.check(self.file, 0))?;
        Ok(self.checksums.len())
    }
}

fn blocks(criterion: &mut Criterion) {
    for (name, block_bytes) in [("blocks of 4 KiB", 4 << 10), ("blocks of 150 KB", 150_000)] {
        let (count, value_bytes) = (TABLE_BYTES / block_bytes, block_bytes - 20);
        let (plain, packed) = (table(count, value_bytes, PLAIN), table(count, value_bytes, SNAPPY));
        let mut group = criterion.benchmark_group(name);
        group.sample_size(20).measurement_time(Duration::from_secs(3));
        let (elements, bytes) = (count as u64, (count * value_bytes) as u64);
        group.throughput(Throughput::ElementsAndBytes { elements, bytes });
        let mut walk = Walk::new(&plain).unwrap();
        assert_eq!((walk.parse().unwrap(), walk.verify().unwrap()), (count, count));
        group.bench_function("parse", |bencher| bencher.iter(|| black_box(walk.parse().unwrap())));
        group.bench_function("verify", |bencher| bencher.iter(|| black_box(walk.verify().unwrap())));
        group.bench_function("verify and parse", |bencher| {
            bencher.iter(|| black_box(walk.parse_verified().unwrap()));
        });
        let mut walk = Walk::new(&packed).unwrap();
        assert_eq!(walk.verify().unwrap(), 0, "compressed blocks are verified when they are entered");
        group.bench_function("verify, unpack and parse", |bencher| {
            bencher.iter(|| black_box(walk.parse_verified().unwrap()));
        });
        group.finish();
    }
}

criterion_group!(benches, blocks);
criterion_main!(benches);
