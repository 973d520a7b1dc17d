//! What the records of a group hold: JSON, and the words of a round as bytes.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::GroupError;
use crate::metadata::{Record, VALUE_BYTES_MAX};

/// The version of these records.
pub(super) const VERSION: u32 = 1;
/// How many words are written into the record that says how many there are.
pub(super) const INLINE_WORDS: usize = 64;
/// The most bytes of a part: several records fit into what etcd takes at once.
pub(super) const PART_BYTES: usize = VALUE_BYTES_MAX / 2;
/// The most words that a process brings to a round.
pub(super) const WORDS_MAX: usize = 1 << 21;

/// Who is in a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GroupRecord {
    pub(super) version: u32,
    pub(super) generation: String,
    pub(super) size: usize,
    /// By rank. The generation begins when all are there, and none is added after that.
    pub(super) members: BTreeMap<usize, WhoRecord>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WhoRecord {
    pub(super) host: String,
    pub(super) pid: u32,
}

/// What a process brings to a round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MarkRecord {
    /// The number of words.
    pub(super) words: usize,
    /// The words, if they are few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) inline: Vec<u64>,
}

/// A process that has left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LeftRecord {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

impl WhoRecord {
    /// This process.
    pub(super) fn here() -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        WhoRecord { host, pid: std::process::id() }
    }
}

impl MarkRecord {
    pub(super) fn of(words: &[u64]) -> Self {
        let inline = if words.len() <= INLINE_WORDS { words.to_vec() } else { Vec::new() };
        MarkRecord { words: words.len(), inline }
    }

    /// Reads a mark, whose sizes are then what they may be.
    pub(super) fn read(record: &Record) -> Result<Self, GroupError> {
        let mark: MarkRecord = read(record)?;
        let due = if mark.words <= INLINE_WORDS { mark.words } else { 0 };
        if mark.words > WORDS_MAX || mark.inline.len() != due {
            let (words, inline) = (mark.words, mark.inline.len());
            let message = format!("it states {words} words, of which {inline} are in it");
            return Err(GroupError::Record { key: record.key.clone(), message });
        }
        Ok(mark)
    }
}

/// The number of parts of so many words.
pub(super) fn parts(words: usize) -> usize {
    if words <= INLINE_WORDS { 0 } else { (words * size_of::<u64>()).div_ceil(PART_BYTES) }
}

/// The bytes of each part of these words.
pub(super) fn part_bytes(words: &[u64]) -> impl Iterator<Item = Vec<u8>> {
    let parts = words.chunks(PART_BYTES / size_of::<u64>()).take(parts(words.len()));
    parts.map(|words| words.iter().flat_map(|word| word.to_le_bytes()).collect())
}

/// Adds the words of a part.
pub(super) fn add_words(all: &mut Vec<u64>, record: &Record) -> Result<(), GroupError> {
    let (words, []) = record.value.as_chunks::<{ size_of::<u64>() }>() else {
        let message = format!("it has {} bytes, which are no 64-bit words", record.value.len());
        return Err(GroupError::Record { key: record.key.clone(), message });
    };
    all.extend(words.iter().copied().map(u64::from_le_bytes));
    Ok(())
}

/// Returns a record's bytes.
pub(super) fn write(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("these records have nothing that JSON has not")
}

/// Reads a record.
pub(super) fn read<T: DeserializeOwned>(record: &Record) -> Result<T, GroupError> {
    serde_json::from_slice(&record.value)
        .map_err(|error| GroupError::Record { key: record.key.clone(), message: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Revision;

    fn record(value: &[u8]) -> Record {
        let (key, revision) = ("k".to_owned(), Revision(1));
        Record { key, value: value.to_vec(), created: revision, modified: revision, lease: None }
    }

    #[test]
    fn words_become_parts_and_words_again() {
        for words in [0, 1, 64, 65, PART_BYTES / 8, PART_BYTES / 8 + 1, 3 * PART_BYTES / 8 - 1] {
            let given: Vec<u64> =
                (0..words as u64).map(|word| word.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
            let mark = MarkRecord::read(&record(&write(&MarkRecord::of(&given)))).unwrap();
            assert_eq!(mark.words, words);
            let mut found = mark.inline;
            assert_eq!(part_bytes(&given).count(), parts(words));
            for part in part_bytes(&given) {
                assert!(part.len() <= PART_BYTES);
                add_words(&mut found, &record(&part)).unwrap();
            }
            assert!(found == given, "{words} words");
        }
    }

    #[test]
    fn records_that_are_not_what_they_must_be_are_refused() {
        let refused = |value: &[u8], due: &str| {
            let message = MarkRecord::read(&record(value)).unwrap_err().to_string();
            assert!(message.contains(due), "{message}");
        };
        refused(b"", "EOF");
        refused(br#"{"words": 2, "inline": [1]}"#, "2 words, of which 1 are in it");
        refused(br#"{"words": 65, "inline": [1]}"#, "65 words, of which 1 are in it");
        refused(br#"{"words": 2097153}"#, "2097153 words");
        refused(br#"{"words": 1, "inline": [-1]}"#, "invalid value");
        let message = add_words(&mut Vec::new(), &record(&[0; 9])).unwrap_err().to_string();
        assert!(message.contains("it has 9 bytes"), "{message}");
    }
}
