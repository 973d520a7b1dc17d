//! A source of a caller's own that lends its values and leaves their checksums to the feed's workers.

#![expect(unsafe_code, reason = "the source lends its values")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use percolator::source::{Cursor, Entry, Lender, Source, SourceError, Verifier, VerifiesLater};
use percolator::{BadRecords, Epochs, Feed, FeedBuilder, RawBytes};

const RECORDS: usize = 20;
const VALUE_BYTES: usize = 100;
const RECORD_BYTES: usize = VALUE_BYTES + 4;

/// Values of one length, each with its crc32c behind it.
#[derive(Debug)]
struct Stored {
    path: PathBuf,
    bytes: Vec<u8>,
    /// How many values were verified.
    verified: AtomicUsize,
    /// Whether somebody has written to the values.
    is_changed: bool,
}

impl Verifier for Stored {
    fn check_value(&self, value: &[u8]) -> Result<(), SourceError> {
        self.verified.fetch_add(1, Ordering::Relaxed);
        let start = value.as_ptr().addr() - self.bytes.as_ptr().addr();
        let end = start + VALUE_BYTES;
        if self.bytes[end..end + 4] == crc32c::crc32c(value).to_le_bytes() {
            return Ok(());
        }
        let (path, index) = (self.path.clone(), (start / RECORD_BYTES) as u64);
        Err(SourceError::Broken { path, index, message: "its checksum is wrong".to_owned() })
    }

    fn check_used(&self) -> Result<(), SourceError> {
        if self.is_changed { Err(SourceError::other(&self.path, "it was written to")) } else { Ok(()) }
    }
}

#[derive(Clone, Debug)]
struct Summed {
    stored: Arc<Stored>,
    /// Whether its deferring cursors do defer.
    defers: bool,
}

impl Summed {
    /// A source whose records at these positions are damaged.
    fn new(name: &str, bad: &[usize], defers: bool) -> Self {
        let mut bytes = Vec::new();
        for index in 0..RECORDS {
            let mut value = value(index);
            let sum = crc32c::crc32c(&value);
            value[50] ^= u8::from(bad.contains(&index));
            bytes.extend(value);
            bytes.extend(sum.to_le_bytes());
        }
        let path = Path::new("memory").join(name);
        let stored = Stored { path, bytes, verified: AtomicUsize::new(0), is_changed: false };
        Summed { stored: Arc::new(stored), defers }
    }

    fn verified(&self) -> usize {
        self.stored.verified.load(Ordering::Relaxed)
    }

    fn walk(&self, lender: Lender, verifies: bool) -> Box<dyn Cursor> {
        Box::new(Walk { stored: self.stored.clone(), lender, verifies, next: 0, key: String::new() })
    }
}

impl Source for Summed {
    fn path(&self) -> &Path {
        &self.stored.path
    }

    fn records(&self) -> Option<u64> {
        Some(RECORDS as u64)
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(self.walk(Lender::new(self.stored.clone()), true))
    }

    fn deferring_cursor(&self, _promise: VerifiesLater) -> Result<Box<dyn Cursor>, SourceError> {
        if self.defers { Ok(self.walk(Lender::verifying(self.stored.clone()), false)) } else { self.cursor() }
    }
}

struct Walk {
    stored: Arc<Stored>,
    lender: Lender,
    verifies: bool,
    next: usize,
    key: String,
}

impl Cursor for Walk {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        let start = self.next * RECORD_BYTES;
        let Some(value) = self.stored.bytes.get(start..start + VALUE_BYTES) else { return Ok(None) };
        if self.verifies {
            self.stored.check_value(value)?;
        }
        self.key = format!("{:08}", self.next);
        self.next += 1;
        // SAFETY: the lender keeps the bytes where they are, and nobody writes to them.
        Ok(Some(unsafe { Entry::lent_value(self.key.as_bytes(), value, &self.lender) }))
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.next = 0;
        Ok(())
    }
}

fn value(index: usize) -> Vec<u8> {
    (0..VALUE_BYTES).map(|at| u8::try_from((index * 7 + at) % 251).unwrap()).collect()
}

/// The values without those at these positions.
fn values_without(bad: &[usize]) -> Vec<u8> {
    (0..RECORDS).filter(|index| !bad.contains(index)).flat_map(value).collect()
}

fn feed(source: &Summed) -> FeedBuilder {
    Feed::builder().source(source.clone()).decoder(RawBytes::fixed()).epochs(Epochs::OnePass)
}

/// The values of all batches, the positions of the bad records, and the error that ended the feed.
fn fed(builder: FeedBuilder) -> (Vec<u8>, Vec<usize>, Option<String>) {
    let (mut values, mut bad) = (Vec::new(), Vec::new());
    let mut feed = match builder.batch_size(4).threads(2).build() {
        Ok(feed) => feed,
        Err(error) => return (values, bad, Some(error.to_string())),
    };
    for step in feed.steps() {
        match step {
            Ok(batches) => {
                for batch in batches {
                    values.extend_from_slice(&batch.get::<u8>("data").unwrap());
                    let records = batch.bad_records().iter();
                    bad.extend(records.map(|bad| usize::try_from(bad.id.index).unwrap()));
                }
            }
            Err(error) => return (values, bad, Some(error.to_string())),
        }
    }
    (values, bad, None)
}

#[test]
fn the_workers_verify_every_value_that_a_cursor_leaves_to_them() {
    for defers in [false, true] {
        let source = Summed::new("whole", &[], defers);
        assert_eq!(fed(feed(&source)), (values_without(&[]), Vec::new(), None), "{defers}");
        assert!(source.verified() >= RECORDS, "{defers}: {}", source.verified());
    }
}

#[test]
fn damage_that_a_worker_finds_is_said_as_the_cursor_says_it() {
    for bad in [0, 7, RECORDS - 1] {
        let due = format!("memory/damaged: record {bad}: its checksum is wrong");
        for defers in [false, true] {
            let (values, _, error) = fed(feed(&Summed::new("damaged", &[bad], defers)));
            assert_eq!(error.as_ref(), Some(&due), "{defers}");
            assert_eq!(values, values_without(&[])[..bad / 4 * 4 * VALUE_BYTES], "{defers}");
        }
    }
}

#[test]
fn a_value_that_a_worker_finds_damaged_is_a_bad_record_and_one_that_the_cursor_finds_ends_the_feed() {
    let bad = vec![0, 7, 8, RECORDS - 1];
    let deferring = Summed::new("damaged", &bad, true);
    let skipped = fed(feed(&deferring).bad_records(BadRecords::skip()));
    assert_eq!(skipped, (values_without(&bad), bad.clone(), None));
    let (_, _, error) = fed(feed(&Summed::new("damaged", &bad, false)).bad_records(BadRecords::skip()));
    assert_eq!(error.unwrap(), "memory/damaged: record 0: its checksum is wrong");
}

#[test]
fn a_plain_cursor_verifies_before_it_returns_a_value() {
    let source = Summed::new("damaged", &[2], true);
    let mut cursor = source.cursor().unwrap();
    for index in 0..2 {
        assert_eq!(cursor.advance().unwrap().unwrap().value(), value(index));
        assert_eq!(source.verified(), index + 1);
    }
    let error = cursor.advance().unwrap_err();
    assert_eq!(error.to_string(), "memory/damaged: record 2: its checksum is wrong");
}

#[test]
fn values_that_were_written_to_are_an_error_even_if_they_look_right() {
    let mut source = Summed::new("changed", &[], true);
    Arc::get_mut(&mut source.stored).unwrap().is_changed = true;
    let (values, _, error) = fed(feed(&source));
    assert_eq!((values.len(), error.unwrap()), (0, "memory/changed: it was written to".to_owned()));
}
