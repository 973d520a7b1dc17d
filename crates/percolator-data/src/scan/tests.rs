//! A bug in a source ends a scan with an error, and never makes it wait for ever.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use percolator::source::{Cursor, Entry, Source, SourceError};

use super::{Progress, Scan, ScanError};
use crate::open::DataSet;

/// A source whose cursor panics at a record.
#[derive(Clone, Debug)]
struct Breaks {
    at: u64,
    is_seekable: bool,
}

struct BreakingCursor {
    breaks_at: u64,
    next: u64,
}

impl Source for Breaks {
    fn path(&self) -> &Path {
        Path::new("breaks")
    }

    fn records(&self) -> Option<u64> {
        Some(1000)
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(BreakingCursor { breaks_at: self.at, next: 0 }))
    }

    fn is_seekable(&self) -> bool {
        self.is_seekable
    }
}

impl Cursor for BreakingCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        assert!(self.next != self.breaks_at, "on purpose");
        self.next += 1;
        Ok((self.next <= 1000).then(|| Entry::borrowed(b"key", b"value")))
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.next = 0;
        Ok(())
    }

    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        self.next = position;
        Ok(())
    }
}

#[test]
fn a_panic_of_a_source_ends_the_scan() {
    for is_seekable in [false, true] {
        for threads in [1, 4] {
            let data = DataSet::of_source(Arc::new(Breaks { at: 300, is_seekable }));
            let scan = Scan { threads: NonZeroUsize::new(threads), ..Scan::default() };
            let mut taken = 0;
            let ended = scan.run(
                &data,
                &Progress::new(),
                || (),
                |(), _| (),
                |_| {
                    taken += 1;
                    Ok::<_, ScanError>(())
                },
            );
            let error = ended.unwrap_err();
            assert!(matches!(error, ScanError::ReadingPanicked { .. }), "{error}");
            assert!(error.to_string().starts_with("breaks: reading it panicked: "), "{error}");
            assert!(taken <= 300, "{taken}");
        }
    }
}
