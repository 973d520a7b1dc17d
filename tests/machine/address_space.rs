//! A limit of the address space, which one large record, or a copy of it, exceeds.

use std::error::Error as _;
use std::hint::black_box;
use std::io;
use std::path::Path;
use std::sync::Arc;

use percolator::bad::{BadRecords, Quarantined};
use percolator::decoder::Decoded;
use percolator::source::{Cursor, Entry, Source, SourceError};
use percolator::{DecodeFailure, Dtype, Epochs, Feed, FeedBuilder, Field};

use crate::common::process::{check, child_command, role, this_test, under_a_limit_of_address_space};

const RECORDS: usize = 12;
const SMALL_BYTES: usize = 8;

/// A source whose cursor has all records in memory and does not lend them: each is some of the zeros.
#[derive(Clone, Debug)]
struct Large {
    /// Zeros that nobody touches take address space alone.
    zeros: Arc<Vec<u8>>,
    /// The numbers of the large records, and their bytes.
    large: &'static [(usize, usize)],
}

impl Large {
    fn of(large: &'static [(usize, usize)]) -> Self {
        let bytes = large.iter().map(|(_, bytes)| *bytes).max().unwrap();
        Large { zeros: Arc::new(vec![0; bytes]), large }
    }
}

impl Source for Large {
    fn path(&self) -> &Path {
        Path::new("large")
    }

    fn records(&self) -> Option<u64> {
        Some(RECORDS as u64)
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(LargeCursor(self.clone(), 0)))
    }
}

struct LargeCursor(Large, usize);

impl Cursor for LargeCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        let number = self.1;
        self.1 += 1;
        let large = self.0.large.iter().find(|(large, _)| *large == number);
        let bytes = large.map_or(SMALL_BYTES, |(_, bytes)| *bytes);
        Ok((number < RECORDS).then(|| Entry::borrowed(b"key", &self.0.zeros[..bytes])))
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.1 = 0;
        Ok(())
    }
}

/// Whether this is the child that has so much address space. If not, runs it.
fn is_under_a_limit(test: &str, limit_mib: usize) -> bool {
    if role().is_some() {
        return true;
    }
    let mut child = child_command(test, "child");
    // Each arena of the allocator would take an address space of its own.
    child.env("MALLOC_ARENA_MAX", "1");
    let output = under_a_limit_of_address_space(&child, Some(limit_mib << 10)).output().unwrap();
    check(test, &output);
    false
}

/// The number of records that a feed of the source delivers, and its error. Records of more bytes are bad.
fn fed(
    source: Large,
    bytes_max: usize,
    options: impl FnOnce(FeedBuilder) -> FeedBuilder,
) -> (usize, Option<String>) {
    let bytes = Field::scalar("bytes", Dtype::I64);
    let feed = Feed::builder().source(source).decode([bytes], move |record, row| -> Decoded {
        match record.value.len() {
            bytes if bytes > bytes_max => Err(DecodeFailure::new("it is too large")),
            bytes => Ok(row.set(0, bytes as i64)?),
        }
    });
    let (mut records, mut error) = (0, None);
    // A batch is one run, so that a run has several records.
    for batch in options(feed.batch_size(8).threads(1)).epochs(Epochs::OnePass).build().unwrap() {
        match batch {
            Ok(batch) => records += batch.len(),
            Err(found) => error = Some(found.to_string()),
        }
    }
    (records, error)
}

#[test]
fn a_record_that_there_is_no_memory_to_keep_is_an_error_of_its_source() {
    if !is_under_a_limit(this_test!(), 1024) {
        return;
    }
    let (records, error) = fed(Large::of(&[(9, 600 << 20)]), usize::MAX, |feed| feed);
    let error = error.expect("two copies do not fit");
    assert!(error.contains("large: cannot keep a record: "), "{error}");
    assert_eq!(records, 8, "the batch before it is whole");
}

/// The second of them would double the memory of the first.
#[test]
fn a_run_takes_no_more_memory_than_there_is_for_a_record_that_fits() {
    if !is_under_a_limit(this_test!(), 1050) {
        return;
    }
    let (records, error) = fed(Large::of(&[(8, 400 << 20), (9, 40 << 20)]), usize::MAX, |feed| feed);
    assert_eq!((records, error), (RECORDS, None));
}

#[test]
fn a_bad_record_is_named_without_a_copy_of_its_bytes() {
    const BYTES: usize = 500 << 20;
    if !is_under_a_limit(this_test!(), 1331) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bad.tfrecord");
    let policy = BadRecords::skip().quarantine(&file);
    let source = Large::of(&[(9, BYTES)]);
    assert_eq!(fed(source, SMALL_BYTES, |feed| feed.bad_records(policy)), (RECORDS - 1, None));
    let written = std::fs::metadata(&file).unwrap().len();
    assert!(written > BYTES as u64, "{written} bytes");
    // Beside this there is room for the entry, and none for a copy of its bytes.
    let zeros = black_box(vec![0_u8; 400 << 20]);
    let error = Quarantined::read(&file).unwrap_err();
    assert!(error.to_string().ends_with("bad.tfrecord: cannot read it"), "{error}");
    let cause: &io::Error = error.source().unwrap().downcast_ref().unwrap();
    assert_eq!(cause.kind(), io::ErrorKind::OutOfMemory);
    drop(black_box(zeros));
}
