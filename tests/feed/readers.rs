//! Readers for tests: what each consumer takes, and what it is due.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::time::Duration;

use percolator::reader::{DataReader, DataReaderBuilder, ReaderError, Registry};
use percolator::source::{Run, Source};

use crate::common;
use crate::common::source::MemorySource;

pub(crate) const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// Records, as (epoch, index).
pub(crate) type Names = Vec<(u64, u64)>;

pub(crate) fn names(run: &Run) -> Names {
    run.iter().map(|record| (record.id.epoch, record.id.index)).collect()
}

/// Takes everything and checks that each value is its record's; returns the records, and the error that ended
/// them.
pub(crate) fn drain(reader: &DataReader) -> (Names, Option<ReaderError>) {
    let mut seen = Names::new();
    loop {
        match reader.full().pop() {
            Ok(Some(run)) => {
                check_values(&run);
                seen.extend(names(&run));
                reader.free().push(run);
            }
            Ok(None) => return (seen, None),
            Err(error) => return (seen, Some(error)),
        }
    }
}

pub(crate) fn check_values(run: &Run) {
    for record in run.iter() {
        assert_eq!(record.value[..8], record.id.index.to_le_bytes(), "the value of {}", record.id);
        assert_eq!(record.key, common::key(usize::try_from(record.id.index).unwrap()));
        assert!(record.value[8..].iter().all(|&byte| byte == record.value[0]));
    }
}

/// The dealing rule: global record `g` is record `g mod M` of the source and goes to consumer `g mod N`.
pub(crate) fn share(records: u64, consumer: usize, consumers: usize, global: std::ops::Range<u64>) -> Names {
    global.filter(|g| g % consumers as u64 == consumer as u64).map(|g| (g / records, g % records)).collect()
}

/// Opens every consumer of one reader, and drains each on a thread of its own.
pub(crate) fn drain_all(
    consumers: usize,
    registry: &Registry,
    builder: impl Fn() -> DataReaderBuilder,
) -> Vec<(Names, Option<ReaderError>)> {
    let handles: Vec<DataReader> =
        (0..consumers).map(|_| builder().consumers(consumers).open_in(registry).unwrap()).collect();
    std::thread::scope(|scope| {
        let drains: Vec<_> = handles
            .into_iter()
            .enumerate()
            .map(|(number, reader)| {
                assert_eq!(reader.number(), number);
                scope.spawn(move || drain(&reader))
            })
            .collect();
        drains.into_iter().map(|drain| drain.join().unwrap()).collect()
    })
}

pub(crate) fn shared(source: MemorySource) -> Arc<dyn Source> {
    Arc::new(source)
}

/// Takes runs until they hold this many records; the last run may bring a few more.
pub(crate) fn pop_names(reader: &DataReader, records: usize) -> Names {
    let mut seen = Names::new();
    while seen.len() < records {
        seen.extend(names(&reader.full().pop().unwrap().expect("the reader goes on")));
    }
    seen
}
