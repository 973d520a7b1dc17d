//! A source in memory.

use std::path::Path;
use std::sync::Arc;

use percolator::source::{Cursor, Entry, Source, SourceError};
use shuttle::sync::atomic::{AtomicBool, Ordering};

/// What the source does after its last record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Ends,
    Fails,
    Panics,
}

/// A source in memory: record `n` holds the byte `n`.
#[derive(Debug)]
pub(crate) struct Memory {
    records: u8,
    end: End,
    /// Whether the next cursor cannot be opened.
    pub(crate) fails_to_open: AtomicBool,
}

impl Memory {
    pub(crate) fn of(records: u8) -> Arc<Self> {
        Self::that(End::Ends, records)
    }

    pub(crate) fn that(end: End, records: u8) -> Arc<Self> {
        Arc::new(Memory { records, end, fails_to_open: AtomicBool::new(false) })
    }

    pub(crate) fn broken(&self) -> SourceError {
        let (path, message) = (self.path().to_owned(), "torn".to_owned());
        SourceError::Broken { path, index: self.records.into(), message }
    }
}

/// A cursor over state that the reader's thread shares with the scenario.
struct Walk {
    source: Memory,
    next: u8,
    value: [u8; 1],
}

impl Source for Memory {
    fn path(&self) -> &Path {
        Path::new("memory")
    }

    fn records(&self) -> Option<u64> {
        Some(self.records.into())
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        if self.fails_to_open.swap(false, Ordering::SeqCst) {
            return Err(self.broken());
        }
        let source = Memory { records: self.records, end: self.end, fails_to_open: AtomicBool::new(false) };
        Ok(Box::new(Walk { source, next: 0, value: [0] }))
    }
}

impl Cursor for Walk {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        if self.next == self.source.records {
            return match self.source.end {
                End::Ends => Ok(None),
                End::Fails => Err(self.source.broken()),
                // Not `panic!`: the checker's hook would print every schedule that reaches this.
                End::Panics => std::panic::resume_unwind(Box::new("torn")),
            };
        }
        self.value = [self.next];
        self.next += 1;
        Ok(Some(Entry::borrowed(b"", &self.value)))
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.next = 0;
        Ok(())
    }
}
