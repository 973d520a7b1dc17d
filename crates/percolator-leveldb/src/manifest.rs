//! The list of a database's tables, for a program that writes tables: a MANIFEST that only grows.
//!
//! A database that is written once needs neither a log nor compactions, and no LevelDB: tables of
//! [`tagged`] keys, this list, and a CURRENT that names it. A MANIFEST is a log of edits. The first states
//! how keys are compared, each of the others adds a table.

use percolator_files::checksum::masked_crc32c;

use crate::edit::{self, Edits, State, TableFile};
use crate::key::{Tag, VALUE};
use crate::log::{BLOCK_BYTES, FIRST, FULL, HEADER_BYTES, LAST, LogReader, MIDDLE};

/// The list's name, with the number 1, which no table may have.
pub const NAME: &str = "MANIFEST-000001";

/// Returns a key as a table has it: with the number of its write.
#[must_use]
pub fn tagged(key: &[u8], sequence: u64) -> Vec<u8> {
    [key, &Tag::new(sequence, VALUE).to_bytes()].concat()
}

/// Returns the bytes of a list without tables.
#[must_use]
pub fn begun() -> Vec<u8> {
    log_record(&edit::first(), 0)
}

/// Returns what is appended to a list of `at` bytes for one more table. `sequence` is the number of the last
/// write so far.
#[must_use]
pub fn added(at: u64, level: u32, table: &TableFile, sequence: u64) -> Vec<u8> {
    log_record(&edit::of_table(level, table, sequence), at)
}

/// Returns the tables of a list, by their numbers, and the number of the last write; `None` if it is damaged
/// or cut.
#[must_use]
pub fn read(list: &[u8]) -> Option<(Vec<TableFile>, u64)> {
    let (mut log, mut edits) = (LogReader::new(list), Edits::default());
    while let Some(pieces) = log.next().ok()? {
        let pieces: Vec<_> = pieces.iter().filter_map(|piece| list.get(piece.clone())).collect();
        edits.add(&pieces.concat()).ok()?;
    }
    if log.cut().is_some() {
        return None;
    }
    let State { levels, last_sequence, .. } = edits.finish().ok()?;
    let mut tables = levels.concat();
    tables.sort_by_key(|table| table.number);
    Some((tables, last_sequence))
}

/// Returns what is appended to a log of `at` bytes for a record.
fn log_record(mut record: &[u8], at: u64) -> Vec<u8> {
    let mut log = Vec::new();
    let mut room = BLOCK_BYTES - usize::try_from(at % BLOCK_BYTES as u64).expect("it is less than a block");
    let mut is_first = true;
    loop {
        if room < HEADER_BYTES {
            log.resize(log.len() + room, 0);
            room = BLOCK_BYTES;
        }
        let (piece, rest) = record.split_at(record.len().min(room - HEADER_BYTES));
        let kind = match (is_first, rest.is_empty()) {
            (true, true) => FULL,
            (true, false) => FIRST,
            (false, true) => LAST,
            (false, false) => MIDDLE,
        };
        let covered = [&[kind], piece].concat();
        log.extend(masked_crc32c(&covered, &[]).to_le_bytes());
        let length = u16::try_from(piece.len()).expect("a block has fewer bytes than 65,536");
        log.extend(length.to_le_bytes());
        log.extend(covered);
        if rest.is_empty() {
            return log;
        }
        (record, is_first, room) = (rest, false, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_at_each_length() {
        let mut list = begun();
        let mut lengths = vec![list.len()];
        // Keys of all lengths about a block's end.
        let table = |number: u64| TableFile {
            number,
            bytes: number * 3,
            smallest: tagged(&vec![1; 32_692 + usize::try_from(number).unwrap()], number).into(),
            largest: tagged(&vec![2; usize::try_from(1 + number % 5).unwrap()], number).into(),
        };
        for number in 0..70 {
            list.extend(added(list.len() as u64, 0, &table(number), number * 10));
            lengths.push(list.len());
        }
        for (count, bytes) in lengths.iter().enumerate() {
            let (tables, sequence) = read(&list[..*bytes]).unwrap();
            let wanted: Vec<_> = (0..count as u64).map(table).collect();
            assert!(tables == wanted, "{} tables, not {count}", tables.len());
            assert_eq!(sequence, 10 * (count as u64).saturating_sub(1));
            assert_eq!(read(&list[..*bytes - 1]), None, "it is cut");
        }
        let last = list.len() - 1;
        list[last] ^= 1;
        assert_eq!(read(&list), None, "it is damaged");
    }
}
