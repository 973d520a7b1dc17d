//! A limit of the address space, which one large record exceeds.

use std::path::Path;
use std::sync::Arc;

use percolator::decoder::Decoded;
use percolator::source::{Cursor, Entry, Source, SourceError};
use percolator::{Dtype, Feed, Field};

use crate::common::process::{check, child_command, role, this_test, under_a_limit_of_address_space};

const LIMIT_KIB: usize = 3 << 20;
/// One fits within the limit, and two do not.
const GIANT_BYTES: usize = 1700 << 20;

const RECORDS: usize = 12;
const GIANT: usize = 9;

/// A source whose records are small, but for one that its cursor has in memory and does not lend.
#[derive(Clone, Debug)]
struct Large(Arc<Vec<u8>>);

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
        let bytes = if number == GIANT { GIANT_BYTES } else { 8 };
        Ok((number < RECORDS).then(|| Entry::borrowed(b"key", &self.0.0[..bytes])))
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.1 = 0;
        Ok(())
    }
}

#[test]
fn a_record_that_there_is_no_memory_to_keep_is_an_error_of_its_source() {
    if role().is_none() {
        let child = child_command(this_test!(), "child");
        let output = under_a_limit_of_address_space(&child, Some(LIMIT_KIB)).output().unwrap();
        return check(this_test!(), &output);
    }
    // Zeros that nobody touches take address space alone.
    let feed = Feed::builder().source(Large(Arc::new(vec![0; GIANT_BYTES])));
    let feed = feed.fields([Field::scalar("bytes", Dtype::I64)]);
    let feed = feed.decode(|record, row| -> Decoded { Ok(row.set(0, record.value.len() as i64)?) });
    let (mut records, mut error) = (0, None);
    for batch in feed.batch_size(4).threads(1).once().build().unwrap() {
        match batch {
            Ok(batch) => records += batch.len(),
            Err(found) => error = Some(found.to_string()),
        }
    }
    let error = error.expect("two copies do not fit");
    assert!(error.contains("large: cannot keep a record"), "{error}");
    assert_eq!(records, 8, "the batches before it are whole");
}
