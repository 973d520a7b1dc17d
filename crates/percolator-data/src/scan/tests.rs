//! A bug in a source ends a scan with an error, and never makes it wait for ever. Behind a record that cannot
//! be read, the others have their numbers; where a file may be read another time, the scan ends.

use std::io;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use percolator::source::{Cursor, Entry, Source, SourceError};
use rustix::io::Errno;

use super::{Event, OnDamage, Progress, Scan, ScanError};
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

/// A seekable source whose cursor stays where it is at a record that cannot be read.
#[derive(Clone, Debug)]
struct Stays {
    at: u64,
    error: SourceError,
}

struct StayingCursor {
    source: Stays,
    next: u64,
    value: [u8; 8],
}

const STAYS_RECORDS: u64 = 20;

impl Source for Stays {
    fn path(&self) -> &Path {
        Path::new("stays")
    }

    fn records(&self) -> Option<u64> {
        Some(STAYS_RECORDS)
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        Ok(Box::new(StayingCursor { source: self.clone(), next: 0, value: [0; 8] }))
    }

    fn is_seekable(&self) -> bool {
        true
    }
}

impl Cursor for StayingCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        if self.next == self.source.at {
            return Err(self.source.error.clone());
        }
        self.value = self.next.to_le_bytes();
        self.next += 1;
        Ok((self.next <= STAYS_RECORDS).then(|| Entry::borrowed(b"key", &self.value)))
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.seek(0)
    }

    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        self.next = position;
        Ok(())
    }
}

/// What a scan that goes on finds.
#[derive(Debug, Default, PartialEq)]
struct Found {
    /// The numbers and values of records.
    records: Vec<(u64, u64)>,
    /// The numbers of those that cannot be read.
    lost: Vec<u64>,
}

fn found_in(source: Stays) -> Result<Found, ScanError> {
    let scan = Scan { threads: NonZeroUsize::new(1), on_damage: OnDamage::GoOn, ..Scan::default() };
    let mut found = Found::default();
    let done = scan.run(
        &DataSet::of_source(Arc::new(source)),
        &Progress::new(),
        || (),
        |(), seen| (seen.number, u64::from_le_bytes(seen.value.try_into().unwrap())),
        |event| {
            match event {
                Event::Done(record) => found.records.push(record),
                Event::Unreadable(unreadable) => {
                    assert_eq!(unreadable.records, Some(1));
                    found.lost.push(unreadable.first);
                }
            }
            Ok::<_, ScanError>(())
        },
    );
    done.map(|_| found)
}

pub(super) fn system_error(error: Errno) -> SourceError {
    let error = io::Error::from(error);
    SourceError::Io {
        path: "stays".into(),
        action: "read the file",
        message: error.to_string(),
        kind: error.kind(),
        code: error.raw_os_error(),
    }
}

#[test]
fn a_cursor_that_failed_is_taken_to_the_next_record() {
    // A worker takes 8 records at once, so 7 is the last of them.
    for at in [3, 7, STAYS_RECORDS - 1] {
        for error in
            [SourceError::other("stays", "on purpose"), system_error(Errno::IO), system_error(Errno::TXTBSY)]
        {
            let records = (0..STAYS_RECORDS).filter(|number| *number != at).map(|of| (of, of)).collect();
            assert_eq!(found_in(Stays { at, error }).unwrap(), Found { records, lost: vec![at] });
        }
    }
}

#[test]
fn a_record_that_may_be_read_another_time_is_not_given_up() {
    for error in [
        Errno::TIMEDOUT,
        Errno::STALE,
        Errno::NOTCONN,
        Errno::CONNABORTED,
        Errno::CONNRESET,
        Errno::CONNREFUSED,
        Errno::PIPE,
        Errno::NETDOWN,
        Errno::NETUNREACH,
        Errno::NETRESET,
        Errno::HOSTDOWN,
        Errno::HOSTUNREACH,
        Errno::SHUTDOWN,
        #[cfg(target_os = "linux")]
        Errno::REMOTEIO,
        Errno::NODEV,
        Errno::BUSY,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
    ] {
        let due = system_error(error);
        let ended = found_in(Stays { at: 3, error: due.clone() });
        assert!(matches!(&ended, Err(ScanError::Source(error)) if *error == due), "{error:?}: {ended:?}");
    }
}
