//! A few records copied together, so that handing them to another thread costs little.

use percolator::record::Key;
use percolator::source::{Entry, SourceError};

/// A record, as the workers of a scan see it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Its number: its position in the data set, counted from 0. Behind records that could not be read, and
    /// whose count is not known, it is counted as if there were none.
    pub number: u64,
    /// Its key.
    pub key: &'a [u8],
    /// Its value.
    pub value: &'a [u8],
}

/// Records that could not be read.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub struct Unreadable {
    /// The number of the first of them.
    pub first: u64,
    /// How many they are; `None` if nothing that is left tells.
    pub records: Option<u64>,
    /// The key of the last record before them, if there is one.
    pub after: Option<Key>,
    /// The key of the first record that could be read again, if that is known.
    pub before: Option<Key>,
    /// Why. If they were given up, why the first of them cannot be read.
    pub error: SourceError,
    /// Whether all but the first were not tried, because [`FAULTS_IN_A_ROW_MAX`] records in a row failed.
    pub are_given_up: bool,
}

impl Unreadable {
    /// Where they are, by the keys around them; nothing if neither is known.
    pub(crate) fn place(&self) -> String {
        match (&self.after, &self.before) {
            (Some(after), Some(before)) => format!(", between the keys {after} and {before}"),
            (Some(after), None) => format!(", behind the key {after}"),
            (None, Some(before)) => format!(", before the key {before}"),
            (None, None) => String::new(),
        }
    }
}

/// After so many faults in a row without a record between them, the rest of a source that is read in order is
/// given up: a disk that is gone fails for each record.
pub const FAULTS_IN_A_ROW_MAX: u64 = 10_000;

#[derive(Debug)]
enum Item {
    /// The lengths of a key and a value, which follow one another in the chunk's bytes.
    Record {
        number: u64,
        key: usize,
        value: usize,
    },
    Unreadable(Box<Unreadable>),
}

/// What a chunk has, in order.
#[derive(Debug)]
pub(crate) enum Held<'a> {
    Record(Seen<'a>),
    Unreadable(&'a Unreadable),
}

/// A recycled buffer of a few records.
#[derive(Debug)]
pub(crate) struct Chunk {
    bytes: Vec<u8>,
    items: Vec<Item>,
    records: u64,
    /// The most records it takes.
    records_max: u64,
}

/// How many bytes end a chunk, and how many items, most of which then cannot be read.
const BYTES_ENOUGH: usize = 1 << 20;
const ITEMS_ENOUGH: usize = 4096;
/// A buffer that grew longer than this is not kept.
const BYTES_KEPT_MAX: usize = 16 << 20;

impl Chunk {
    /// A chunk that is full with so many records.
    pub(crate) fn with_records(records_max: u64) -> Self {
        Chunk { bytes: Vec::new(), items: Vec::new(), records: 0, records_max }
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        if self.bytes.capacity() > BYTES_KEPT_MAX {
            self.bytes = Vec::new();
        }
        self.items.clear();
        self.records = 0;
    }

    pub(super) fn push(&mut self, number: u64, entry: &Entry<'_>) {
        self.bytes.extend_from_slice(entry.key());
        self.bytes.extend_from_slice(entry.value());
        self.items.push(Item::Record { number, key: entry.key().len(), value: entry.value().len() });
        self.records += 1;
    }

    pub(super) fn push_unreadable(&mut self, unreadable: Unreadable) {
        self.items.push(Item::Unreadable(Box::new(unreadable)));
    }

    pub(super) fn is_full(&self) -> bool {
        self.records >= self.records_max
            || self.bytes.len() >= BYTES_ENOUGH
            || self.items.len() >= ITEMS_ENOUGH
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn records(&self) -> u64 {
        self.records
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// What it has, in order.
    pub(crate) fn held(&self) -> impl Iterator<Item = Held<'_>> {
        let mut left = &self.bytes[..];
        self.items.iter().map(move |item| match *item {
            Item::Record { number, key, value } => {
                let (key, rest) = left.split_at(key);
                let (value, rest) = rest.split_at(value);
                left = rest;
                Held::Record(Seen { number, key, value })
            }
            Item::Unreadable(ref unreadable) => Held::Unreadable(unreadable),
        })
    }
}
