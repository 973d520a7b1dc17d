//! The records of a MANIFEST: edits, which add up to the list of a database's tables; read and written.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::mem;

use crate::coding::{Coded, put_varint};
use crate::key;

/// How many levels LevelDB has.
pub(crate) const LEVELS: usize = 7;
/// The only supported order of keys.
pub(crate) const COMPARATOR: &str = "leveldb.BytewiseComparator";

// The tags of an edit; each says what follows it.
const COMPARATOR_NAME: u32 = 1;
const LOG_NUMBER: u32 = 2;
const NEXT_FILE_NUMBER: u32 = 3;
const LAST_SEQUENCE: u32 = 4;
const COMPACT_POINTER: u32 = 5;
const DELETED_FILE: u32 = 6;
const NEW_FILE: u32 = 7;
const PREVIOUS_LOG_NUMBER: u32 = 9;

/// A table, as the MANIFEST describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFile {
    /// Its number, which its name has.
    pub number: u64,
    /// Its length.
    pub bytes: u64,
    /// Its first key, with its tag.
    pub smallest: Box<[u8]>,
    /// Its last key, with its tag.
    pub largest: Box<[u8]>,
}

impl TableFile {
    /// Returns its first key, without the tag.
    #[must_use]
    pub fn first_user_key(&self) -> &[u8] {
        key::user(&self.smallest)
    }

    /// Returns its last key, without the tag.
    #[must_use]
    pub fn last_user_key(&self) -> &[u8] {
        key::user(&self.largest)
    }
}

/// The sum of the edits so far.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    comparator: Option<String>,
    log_number: Option<u64>,
    previous_log_number: Option<u64>,
    next_file_number: Option<u64>,
    last_sequence: Option<u64>,
    /// From the edit that set the log number, with the last sequence number known by then.
    log_start: Option<(Option<u64>, LogStart)>,
    levels: [BTreeMap<u64, TableFile>; LEVELS],
}

/// What the edit contains that made a log the oldest one needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogStart {
    /// The number of the last write by then.
    pub(crate) last_sequence: u64,
    /// Whether no edit before it named a log, as when a writer opens the database. The log then starts with
    /// the write after `last_sequence`. A log that follows another of the same writer may have had writes by
    /// then.
    pub(crate) is_first: bool,
    /// The tables that the edit added: everything the logs had before it.
    pub(crate) tables: Vec<u64>,
}

/// What the edits add up to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct State {
    /// Logs below this number are in tables, except for the previous one, which only a very old LevelDB has.
    pub(crate) log_number: u64,
    pub(crate) previous_log_number: u64,
    pub(crate) last_sequence: u64,
    pub(crate) log_start: LogStart,
    /// Level 0 has its newest table first, and its tables may overlap. Every other level is in key order, and
    /// its tables do not overlap.
    pub(crate) levels: [Vec<TableFile>; LEVELS],
}

impl Edits {
    /// Adds an edit. An error says what is wrong with it.
    pub(crate) fn add(&mut self, edit: &[u8]) -> Result<(), String> {
        let mut coded = Coded::new(edit);
        // Files are removed before any are added: an edit that moves a file to the next level does both.
        let mut new = Vec::new();
        let log_before = self.log_number;
        while !coded.is_empty() {
            let at = coded.offset();
            let tag = coded.varint32();
            let read = match tag {
                None => None,
                Some(NEW_FILE) => new_file(&mut coded).map(|file| new.push(file)),
                Some(tag) => self.read(tag, &mut coded)?,
            };
            read.ok_or_else(|| match tag {
                Some(tag) => {
                    format!("what tag {tag} at its byte {at} announces is missing or impossible")
                }
                None => format!("there is no tag at its byte {at}"),
            })?;
        }
        if self.log_number != log_before {
            let (is_first, tables) =
                (log_before.is_none(), new.iter().map(|(_, file)| file.number).collect());
            self.log_start = Some((self.last_sequence, LogStart { last_sequence: 0, is_first, tables }));
        }
        for (level, file) in new {
            let table = file.number;
            let (smallest, largest) = (key::split(&file.smallest), key::split(&file.largest));
            if smallest.zip(largest).is_none_or(|(smallest, largest)| order(smallest, largest).is_gt()) {
                return Err(format!("table {table} has malformed keys, or ends before it starts"));
            }
            if let Some(files) = self.levels.get_mut(level) {
                files.insert(table, file);
            }
        }
        Ok(())
    }

    /// Reads what a tag announces; `None` if it is missing.
    fn read(&mut self, tag: u32, coded: &mut Coded<'_>) -> Result<Option<()>, String> {
        let read = match tag {
            COMPARATOR_NAME => {
                coded.string().map(|name| self.comparator = Some(String::from_utf8_lossy(name).into_owned()))
            }
            LOG_NUMBER => coded.varint64().map(|number| self.log_number = Some(number)),
            PREVIOUS_LOG_NUMBER => coded.varint64().map(|number| self.previous_log_number = Some(number)),
            NEXT_FILE_NUMBER => coded.varint64().map(|number| self.next_file_number = Some(number)),
            LAST_SEQUENCE => coded.varint64().map(|number| self.last_sequence = Some(number)),
            // Where the next compaction of a level would start; not needed.
            COMPACT_POINTER => level(coded).and_then(|_| coded.string()).map(drop),
            DELETED_FILE => level(coded).zip(coded.varint64()).map(|(level, number)| {
                self.levels.get_mut(level).and_then(|files| files.remove(&number));
            }),
            unknown => return Err(format!("tag {unknown} is unknown: LevelDB's are 1 to 7, and 9")),
        };
        Ok(read)
    }

    /// Returns the comparator that the edits name, if any.
    pub(crate) fn comparator(&self) -> Option<&str> {
        self.comparator.as_deref()
    }

    /// Returns the sum of the edits. An error says what they lack or contradict.
    pub(crate) fn finish(mut self) -> Result<State, String> {
        let lacks = |what| format!("the MANIFEST ends without a {what}");
        self.comparator.ok_or_else(|| lacks("name of a comparator"))?;
        self.next_file_number.ok_or_else(|| lacks("next file number"))?;
        let log_number = self.log_number.ok_or_else(|| lacks("log number"))?;
        let last_sequence = self.last_sequence.ok_or_else(|| lacks("last sequence number"))?;
        let previous_log_number = self.previous_log_number.unwrap_or(0);
        if last_sequence > key::SEQUENCE_MAX {
            return Err(format!(
                "its last sequence number is {last_sequence}: at most {} is allowed",
                key::SEQUENCE_MAX
            ));
        }
        let (of_log, log_start) = self.log_start.take().unwrap_or_default();
        let log_start = LogStart { last_sequence: of_log.unwrap_or(last_sequence), ..log_start };
        let levels = std::array::from_fn(|level| {
            let files = self.levels.get_mut(level).map(mem::take).unwrap_or_default();
            let mut files: Vec<_> = files.into_values().collect();
            match level {
                0 => files.reverse(),
                _ => files.sort_by(|one, other| internal_order(&one.smallest, &other.smallest)),
            }
            files
        });
        check_apart(&levels)?;
        check_once(&levels)?;
        Ok(State { log_number, previous_log_number, last_sequence, log_start, levels })
    }
}

/// Returns the edit that a list without tables has. No log is needed, and the list's own number is 1.
pub(crate) fn first() -> Vec<u8> {
    let mut edit = Vec::new();
    put_varint(&mut edit, COMPARATOR_NAME.into());
    put_string(&mut edit, COMPARATOR.as_bytes());
    for (tag, number) in [(LOG_NUMBER, 0), (NEXT_FILE_NUMBER, 2), (LAST_SEQUENCE, 0)] {
        put_varint(&mut edit, tag.into());
        put_varint(&mut edit, number);
    }
    edit
}

/// Returns the edit that adds a table to a level. `sequence` is the number of the last write so far.
pub(crate) fn of_table(level: u32, table: &TableFile, sequence: u64) -> Vec<u8> {
    let mut edit = Vec::new();
    let next = table.number.saturating_add(1);
    for (tag, number) in [(NEXT_FILE_NUMBER, next), (LAST_SEQUENCE, sequence)] {
        put_varint(&mut edit, tag.into());
        put_varint(&mut edit, number);
    }
    for number in [NEW_FILE.into(), level.into(), table.number, table.bytes] {
        put_varint(&mut edit, number);
    }
    put_string(&mut edit, &table.smallest);
    put_string(&mut edit, &table.largest);
    edit
}

fn put_string(edit: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(edit, bytes.len() as u64);
    edit.extend_from_slice(bytes);
}

fn level(coded: &mut Coded<'_>) -> Option<usize> {
    usize::try_from(coded.varint32()?).ok().filter(|&level| level < LEVELS)
}

fn new_file(coded: &mut Coded<'_>) -> Option<(usize, TableFile)> {
    let level = level(coded)?;
    let (number, bytes) = (coded.varint64()?, coded.varint64()?);
    let (smallest, largest) = (coded.string()?.into(), coded.string()?.into());
    Some((level, TableFile { number, bytes, smallest, largest }))
}

/// The order of keys in a table: by user key, then newest first.
fn order(one: (&[u8], key::Tag), other: (&[u8], key::Tag)) -> Ordering {
    one.0.cmp(other.0).then(other.1.cmp(&one.1))
}

fn internal_order(one: &[u8], other: &[u8]) -> Ordering {
    key::split(one).zip(key::split(other)).map_or(Ordering::Equal, |(one, other)| order(one, other))
}

fn check_apart(levels: &[Vec<TableFile>; LEVELS]) -> Result<(), String> {
    for (level, files) in levels.iter().enumerate().skip(1) {
        for (one, next) in files.iter().zip(files.iter().skip(1)) {
            if internal_order(&one.largest, &next.smallest).is_ge() {
                let (one, next) = (one.number, next.number);
                return Err(format!("tables {one} and {next} of level {level} overlap"));
            }
        }
    }
    Ok(())
}

/// A table in two levels would be walked, and held by walks, twice. LevelDB removes a table from its level
/// before it adds it to another.
fn check_once(levels: &[Vec<TableFile>; LEVELS]) -> Result<(), String> {
    let mut seen = BTreeMap::new();
    for (level, files) in levels.iter().enumerate() {
        for TableFile { number, .. } in files {
            if let Some(other) = seen.insert(number, level) {
                return Err(format!("table {number} is in level {other} and in level {level}"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, reason = "a test may panic")]
#[allow(clippy::cast_possible_truncation, reason = "a test's numbers are small")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn internal(user: &[u8], sequence: u64) -> Vec<u8> {
        [user, &(sequence << 8 | 1).to_le_bytes()].concat()
    }

    fn string(bytes: &[u8]) -> Vec<u8> {
        [&[u8::try_from(bytes.len()).unwrap()], bytes].concat()
    }

    fn new(level: u8, number: u8, smallest: &[u8], largest: &[u8]) -> Vec<u8> {
        let head = [NEW_FILE as u8, level, number, 77];
        [&head[..], &string(&internal(smallest, 9)), &string(&internal(largest, 9))].concat()
    }

    fn start() -> Vec<u8> {
        [&[1][..], &string(COMPARATOR.as_bytes()), &[2, 4, 9, 0, 3, 8, 4, 99]].concat()
    }

    fn sum(edits: &[Vec<u8>]) -> Result<State, String> {
        let mut sum = Edits::default();
        for edit in edits {
            sum.add(edit)?;
        }
        sum.finish()
    }

    fn numbers(state: &State) -> Vec<Vec<u64>> {
        state.levels.iter().map(|level| level.iter().map(|file| file.number).collect()).collect()
    }

    #[test]
    fn edits_come_to_tables_in_order() {
        let moved =
            [&[DELETED_FILE as u8, 1, 12][..], &new(2, 12, b"p", b"q"), &[5, 1, 9], &internal(b"x", 1)];
        let edits = [
            start(),
            new(0, 10, b"a", b"z"),
            new(0, 11, b"a", b"z"),
            new(1, 12, b"p", b"q"),
            new(1, 13, b"a", b"b"),
            new(1, 14, b"c", b"d"),
            new(1, 15, b"x", b"y"),
            vec![DELETED_FILE as u8, 1, 14],
            moved.concat(),
            vec![LAST_SEQUENCE as u8, 100],
        ];
        let state = sum(&edits).unwrap();
        let none = Vec::new;
        assert_eq!(numbers(&state), [vec![11, 10], vec![13, 15], vec![12], none(), none(), none(), none()]);
        assert_eq!((state.log_number, state.previous_log_number, state.last_sequence), (4, 0, 100));
        assert_eq!(state.log_start, LogStart { last_sequence: 99, is_first: true, tables: Vec::new() });
        let file = &state.levels[2][0];
        assert_eq!((file.bytes, file.first_user_key(), file.last_user_key()), (77, &b"p"[..], &b"q"[..]));
    }

    #[test]
    fn the_edit_that_names_the_oldest_log_is_known() {
        let flush = [&[LOG_NUMBER as u8, 6, LAST_SEQUENCE as u8, 110][..], &new(0, 16, b"a", b"z")].concat();
        let later = [&[LOG_NUMBER as u8, 6, LAST_SEQUENCE as u8, 120][..], &new(1, 17, b"a", b"z")].concat();
        let state = sum(&[start(), flush, later]).unwrap();
        assert_eq!(state.log_start, LogStart { last_sequence: 110, is_first: false, tables: vec![16] });
        assert_eq!(state.last_sequence, 120);
    }

    #[test]
    fn what_is_no_edit_says_why() {
        let refused = |edit: &[u8], message: &str| {
            assert_eq!(sum(&[start(), edit.to_vec()]), Err(message.to_owned()));
        };
        let cannot = |tag: u32| format!("what tag {tag} at its byte 0 announces is missing or impossible");
        refused(&[8, 0], "tag 8 is unknown: LevelDB's are 1 to 7, and 9");
        refused(&[0x80], "there is no tag at its byte 0");
        refused(&[2], &cannot(2));
        refused(&[1, 9, b'a'], &cannot(1));
        refused(&[DELETED_FILE as u8, 7, 1], &cannot(6));
        refused(&new(7, 1, b"a", b"b"), &cannot(7));
        refused(&new(1, 1, b"b", b"a"), "table 1 has malformed keys, or ends before it starts");
        refused(&[7, 1, 1, 1, 0, 0], "table 1 has malformed keys, or ends before it starts");
        let overlap = [new(3, 1, b"a", b"c"), new(3, 2, b"b", b"d")].concat();
        refused(&overlap, "tables 1 and 2 of level 3 overlap");
        let huge = [&[LAST_SEQUENCE as u8][..], &[0xff; 9], &[1]].concat();
        let most = "at most 72057594037927935 is allowed";
        refused(&huge, &format!("its last sequence number is 18446744073709551615: {most}"));
        assert_eq!(sum(&[]), Err("the MANIFEST ends without a name of a comparator".to_owned()));
        let name = [&[1][..], &string(COMPARATOR.as_bytes())].concat();
        assert_eq!(sum(&[name]), Err("the MANIFEST ends without a next file number".to_owned()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_edit_or_an_error(
            edits in prop::collection::vec(
                prop::collection::vec(prop_oneof![0..12_u8, any::<u8>()], 0..60), 1..6,
            ),
        ) {
            let _ = sum(&edits);
            let _ = sum(&[vec![start()], edits].concat());
        }
    }
}
