//! Reads records into chunks, and goes on after unreadable ones where the source allows.
//!
//! A cursor promises nothing after its first error. What this file does then is known for the crate's own
//! sources, and tested with each:
//!
//! - An LMDB's cursor goes on after a damaged value, and ends after a damaged page of the tree. The tree's
//!   own count tells how many records are lost.
//! - A TFRecord file's goes on after data with a wrong checksum, and fails again at a length with one.
//! - A LevelDB's ends. A search for a later key finds the next block that is whole.
//! - A list's goes on after a file that cannot be read.

use std::io;

use percolator::leveldb::LevelDbError;
use percolator::record::Key;
use percolator::source::{Cursor, ImageListError, LmdbError, Source, SourceError};
use percolator_tfrecord::TfRecordError;
use rustix::io::Errno;

use super::chunk::{Chunk, FAULTS_IN_A_ROW_MAX, Unreadable};
use super::selection::Selection;
use super::{OnDamage, resume};
use crate::open::{DataSet, Kind};

/// Where a scan is in its data set.
pub(crate) struct Feeder<'a> {
    data: &'a DataSet,
    selection: Selection,
    on_damage: OnDamage,
    /// The source that is read, and its cursor once it is open.
    source: usize,
    cursor: Option<Box<dyn Cursor>>,
    /// The number of the cursor's next record.
    next: u64,
    /// Whether the cursor has failed since it was last taken to a position: it may be before or after the
    /// record at which it failed.
    has_failed: bool,
    /// The place of the next record among those that are selected.
    place: u64,
    /// The number of the source's first record.
    start: u64,
    last_key: Option<Key>,
    /// What could not be read, until it is known where reading goes on.
    lost: Option<Unreadable>,
    faults_in_a_row: u64,
    /// The key from which a LevelDB was read again last; it is never read again from there.
    resumed_at: Vec<u8>,
}

impl<'a> Feeder<'a> {
    pub(crate) fn new(data: &'a DataSet, selection: Selection, on_damage: OnDamage) -> Self {
        Feeder {
            data,
            selection,
            on_damage,
            source: 0,
            cursor: None,
            next: 0,
            has_failed: false,
            place: 0,
            start: 0,
            last_key: None,
            lost: None,
            faults_in_a_row: 0,
            resumed_at: Vec::new(),
        }
    }

    /// Fills a chunk with the next records; it stays empty after the last one.
    pub(crate) fn fill(&mut self, chunk: &mut Chunk) -> Result<(), SourceError> {
        chunk.clear();
        while !chunk.is_full() && self.step(chunk)? {}
        Ok(())
    }

    /// Fills a chunk with the records at these places of those that are selected. The data set has one
    /// source, which is seekable.
    pub(super) fn fill_range(
        &mut self,
        chunk: &mut Chunk,
        places: std::ops::Range<u64>,
    ) -> Result<(), SourceError> {
        chunk.clear();
        self.place = places.start;
        self.last_key = None;
        // Each place is sought by itself, so faults before it say nothing of it.
        self.faults_in_a_row = 0;
        while self.place < places.end && self.step(chunk)? {}
        self.report(chunk);
        Ok(())
    }

    /// How many records it has passed: the number of the next one.
    pub(crate) fn passed(&self) -> u64 {
        self.next
    }

    /// Passes over the records before this number, as far as there are any, without their values. The chunk
    /// gets the error that cannot be skipped.
    pub(crate) fn pass_to(&mut self, number: u64, chunk: &mut Chunk) -> Result<(), SourceError> {
        chunk.clear();
        self.place = self.place.max(number);
        while self.next < number {
            let Some(source) = self.data.sources().get(self.source) else { break };
            match self.reach(&**source, number) {
                Ok(true) => break,
                Ok(false) => self.end_of_source(&**source, chunk),
                Err(error) => self.fail(&**source, error, chunk)?,
            }
        }
        self.report(chunk);
        Ok(())
    }

    /// Reads one record, or finds that it cannot be read; `false` after the last one.
    fn step(&mut self, chunk: &mut Chunk) -> Result<bool, SourceError> {
        let Some(position) = self.selection.position(self.place) else {
            self.report(chunk);
            return Ok(false);
        };
        let Some(source) = self.data.sources().get(self.source) else { return Ok(false) };
        match self.advance(&**source, position, chunk) {
            Ok(true) => {
                self.faults_in_a_row = 0;
                Ok(true)
            }
            Ok(false) => {
                self.end_of_source(&**source, chunk);
                Ok(true)
            }
            Err(error) => self.fail(&**source, error, chunk).map(|()| true),
        }
    }

    /// Takes the cursor to a position; `false` if the source ends before it.
    fn reach(&mut self, source: &dyn Source, position: u64) -> Result<bool, SourceError> {
        if self.cursor.is_none() {
            self.cursor = Some(source.cursor()?);
            self.has_failed = false;
        }
        let Some(cursor) = &mut self.cursor else { return Ok(false) };
        if source.is_seekable() && (position != self.next || self.has_failed) {
            cursor.seek(position - self.start)?;
            (self.next, self.has_failed) = (position, false);
        }
        while self.next < position {
            if !cursor.skip()? {
                return Ok(false);
            }
            self.next += 1;
        }
        Ok(true)
    }

    /// Reads the record at a position; `false` if the source ends before it.
    fn advance(
        &mut self,
        source: &dyn Source,
        position: u64,
        chunk: &mut Chunk,
    ) -> Result<bool, SourceError> {
        if !self.reach(source, position)? {
            return Ok(false);
        }
        let Some(cursor) = &mut self.cursor else { return Ok(false) };
        let Some(entry) = cursor.advance()? else { return Ok(false) };
        if let Some(lost) = self.lost.take() {
            let before = Some(Key(entry.key().to_owned()));
            chunk.push_unreadable(Unreadable { before, ..lost });
        }
        chunk.push(self.next, &entry);
        match &mut self.last_key {
            Some(Key(last)) => {
                last.clear();
                last.extend_from_slice(entry.key());
            }
            none => *none = Some(Key(entry.key().to_owned())),
        }
        self.next += 1;
        self.place += 1;
        Ok(true)
    }

    /// Notes that a record cannot be read, and skips it if possible.
    fn fail(
        &mut self,
        source: &dyn Source,
        error: SourceError,
        chunk: &mut Chunk,
    ) -> Result<(), SourceError> {
        self.faults_in_a_row += 1;
        self.has_failed = true;
        if self.on_damage == OnDamage::End || ends_scan(&error) || self.cursor.is_none() {
            return Err(error);
        }
        // The same error twice says that the cursor does not move. An LMDB's always does, and errors of the
        // system do not say where they are.
        let is_again =
            self.data.kind() != Kind::Lmdb && self.lost.as_ref().is_some_and(|lost| lost.error == error);
        if !is_again {
            self.report(chunk);
        }
        let lost = self.lost.take().unwrap_or_else(|| Unreadable {
            first: self.next,
            records: None,
            after: self.last_key.clone(),
            before: None,
            error,
            are_given_up: false,
        });
        let are_given_up = !is_again && self.faults_in_a_row >= FAULTS_IN_A_ROW_MAX;
        if is_again || are_given_up {
            let records = self.left_from(source, lost.first);
            self.lost = Some(Unreadable { records, are_given_up, ..lost });
            self.leave_source(chunk);
            return Ok(());
        }
        match self.data.kind() {
            Kind::LevelDb => {
                self.find_next_block(&lost)?;
                self.lost = Some(lost);
                if self.cursor.is_none() {
                    self.leave_source(chunk);
                }
            }
            // Without a length, or the unpacked data of a file, it is unknown where the next record is.
            Kind::TfRecord if !matches!(lost.error, SourceError::TfRecord(TfRecordError::Data { .. })) => {
                self.lost = Some(lost);
                self.leave_source(chunk);
            }
            Kind::Lmdb | Kind::TfRecord | Kind::ImageList | Kind::Files => {
                self.lost = Some(Unreadable { records: Some(1), ..lost });
                self.next += 1;
                // A record that was merely on the way to a selected one is not missed.
                self.place += u64::from(self.selection.position(self.place) < Some(self.next));
            }
        }
        Ok(())
    }

    /// Goes on after a damaged block of a LevelDB, or leaves no cursor.
    fn find_next_block(&mut self, lost: &Unreadable) -> Result<(), SourceError> {
        self.cursor = None;
        let is_of_table = matches!(
            &lost.error,
            SourceError::LevelDb(LevelDbError::Table { .. })
                | SourceError::LevelDb(LevelDbError::Length { .. })
        );
        let Some(leveldb) = self.data.leveldb.as_ref().filter(|_| is_of_table) else { return Ok(()) };
        let last = lost.after.as_ref().map_or(&[][..], |Key(key)| key);
        let bound = last.max(&self.resumed_at);
        let from = |start: &[u8]| leveldb.range(Some(start), None);
        let read_first = |start: &[u8]| from(start)?.advance().map(drop);
        let Some(start) = resume::behind(bound, &lost.error, read_first)? else { return Ok(()) };
        self.cursor = match from(&start) {
            Err(error) if ends_scan(&error) => return Err(error),
            opened => opened.ok(),
        };
        self.has_failed = false;
        self.resumed_at = start;
        Ok(())
    }

    /// The number of records from this one to the end of a source, if that is known. It is not if there
    /// should be none: what cannot be read there is more than the source states.
    fn left_from(&self, source: &dyn Source, first: u64) -> Option<u64> {
        let left = source.records().and_then(|records| (self.start + records).checked_sub(first));
        left.filter(|&left| left > 0)
    }

    fn end_of_source(&mut self, source: &dyn Source, chunk: &mut Chunk) {
        if let Some(lost) = self.lost.take() {
            // An LMDB's cursor that cannot go on says that it has ended.
            let records = match self.data.kind() {
                Kind::Lmdb => self.left_from(source, lost.first),
                _ => lost.records,
            };
            self.lost = Some(Unreadable { records, ..lost });
        }
        self.leave_source(chunk);
    }

    fn leave_source(&mut self, chunk: &mut Chunk) {
        self.report(chunk);
        self.source += 1;
        self.cursor = None;
        self.start = self.next;
        self.faults_in_a_row = 0;
    }

    fn report(&mut self, chunk: &mut Chunk) {
        if let Some(lost) = self.lost.take() {
            chunk.push_unreadable(lost);
        }
    }
}

/// Whether an error ends even a scan that goes on after damage: then nothing is known about the record.
pub(super) fn ends_scan(error: &SourceError) -> bool {
    match error {
        SourceError::Lmdb(
            LmdbError::WrittenTo { .. } | LmdbError::Busy { .. } | LmdbError::Replaced { .. },
        )
        | SourceError::ImageList(ImageListError::ListedFile { is_of_file: false, .. }) => true,
        SourceError::Io { kind, code, .. } => may_pass(*kind, *code),
        _ => false,
    }
}

/// Whether a file may be read another time: the system has too little of something, or the file is elsewhere
/// and cannot be reached. EIO is not among these errors: a disk reports it for a bad block.
fn may_pass(kind: io::ErrorKind, code: Option<i32>) -> bool {
    use io::ErrorKind;

    /// What has no kind of its own.
    const CODES: &[Errno] = &[
        // Too few file handles, of the process or of the system.
        Errno::MFILE,
        Errno::NFILE,
        // A server is gone, as of a CIFS mount, ...
        Errno::HOSTDOWN,
        Errno::SHUTDOWN,
        Errno::NETRESET,
        #[cfg(target_os = "linux")]
        Errno::REMOTEIO,
        // ... or what a FUSE mount or a disk was attached by.
        Errno::NODEV,
    ];
    let is_passing = matches!(
        kind,
        ErrorKind::TimedOut
            | ErrorKind::StaleNetworkFileHandle
            | ErrorKind::OutOfMemory
            | ErrorKind::NetworkDown
            | ErrorKind::NetworkUnreachable
            | ErrorKind::HostUnreachable
            | ErrorKind::ConnectionRefused
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::NotConnected
            | ErrorKind::BrokenPipe
            | ErrorKind::ResourceBusy
    );
    is_passing || code.is_some_and(|code| CODES.iter().any(|error| error.raw_os_error() == code))
}
