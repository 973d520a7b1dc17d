//! The list of a LevelDB's tables: its MANIFEST, and the file CURRENT, which names it.
//!
//! A MANIFEST is a log with one record, the edit that adds all tables. A log consists of blocks of 32 KiB,
//! and a record of pieces, none of which crosses a block's end:
//!
//! ```text
//! masked crc32c of the kind and the bytes: 4 | length: 2 | kind: whole, first, middle or last | bytes
//! ```

use std::path::Path;

use percolator::whole_file;
use percolator_table::checksum::Crc32c;
use percolator_table::coding::put_varint;

use super::StoreError;
use super::leveldb::Tables;

/// The only order of keys.
const COMPARATOR: &[u8] = b"leveldb.BytewiseComparator";

/// The MANIFEST, whose number is 1.
const NAME: &str = "MANIFEST-000001";

// The tags of an edit; each says what follows it.
const COMPARATOR_NAME: u64 = 1;
const LOG_NUMBER: u64 = 2;
const NEXT_FILE_NUMBER: u64 = 3;
const LAST_SEQUENCE: u64 = 4;
const NEW_FILE: u64 = 7;

/// A key as a table has it: with the number of its write, and the kind of that: a value.
pub(super) fn tagged(key: &[u8], sequence: u64) -> Vec<u8> {
    const VALUE: u64 = 1;

    [key, &(sequence << 8 | VALUE).to_le_bytes()].concat()
}

/// Completes a LevelDB of these tables. It has no log.
pub(super) fn write(folder: &Path, tables: &Tables) -> Result<(), StoreError> {
    let manifest = folder.join(NAME);
    whole_file::write(&manifest, &[&log_of(&edit(tables))])
        .map_err(StoreError::io(&manifest, "write the list of tables"))?;
    let current = folder.join("CURRENT");
    whole_file::write(&current, &[NAME.as_bytes(), b"\n"])
        .map_err(StoreError::io(&current, "name the list of tables"))
}

/// The edit that adds all tables.
fn edit(tables: &Tables) -> Vec<u8> {
    let mut edit = Vec::new();
    put_varint(&mut edit, COMPARATOR_NAME);
    put_bytes(&mut edit, COMPARATOR);
    // The manifest's own number is below those of the tables.
    let next = tables.tables.last().map_or(2, |last| last.number + 1);
    for (tag, number) in [(LOG_NUMBER, 0), (NEXT_FILE_NUMBER, next), (LAST_SEQUENCE, tables.sequence)] {
        put_varint(&mut edit, tag);
        put_varint(&mut edit, number);
    }
    for table in &tables.tables {
        put_varint(&mut edit, NEW_FILE);
        for number in [table.level.into(), table.number, table.bytes] {
            put_varint(&mut edit, number);
        }
        put_bytes(&mut edit, &table.smallest);
        put_bytes(&mut edit, &table.largest);
    }
    edit
}

fn put_bytes(edit: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(edit, bytes.len() as u64);
    edit.extend_from_slice(bytes);
}

/// A log with this record.
fn log_of(record: &[u8]) -> Vec<u8> {
    const BLOCK_BYTES: usize = 32 << 10;
    const HEAD_BYTES: usize = 7;
    const WHOLE: u8 = 1;
    const FIRST: u8 = 2;
    const MIDDLE: u8 = 3;
    const LAST: u8 = 4;

    let mut log = Vec::new();
    let pieces = record.chunks(BLOCK_BYTES - HEAD_BYTES);
    let count = pieces.len();
    for (number, piece) in pieces.enumerate() {
        let kind = match (number == 0, number + 1 == count) {
            (true, true) => WHOLE,
            (true, false) => FIRST,
            (false, true) => LAST,
            (false, false) => MIDDLE,
        };
        let mut checksum = Crc32c::new();
        checksum.update(&[kind]);
        checksum.update(piece);
        log.extend_from_slice(&checksum.masked().to_le_bytes());
        let length = u16::try_from(piece.len()).expect("a block has fewer bytes than 65,536");
        log.extend_from_slice(&length.to_le_bytes());
        log.push(kind);
        log.extend_from_slice(piece);
    }
    log
}
