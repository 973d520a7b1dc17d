//! A cursor that can seek by position: a merged walk, and next to it a cursor that follows the index.

use std::sync::Arc;

use percolator_leveldb::table::Verify;
use percolator_leveldb::{LevelDbError, RecordPlace};

use super::LevelDb;
use super::lending::{RecordCursor, Walk};
use crate::record::RecordId;
use crate::source::index::RecordIndex;
use crate::source::{Cursor, Entry, HeldBytes, Run, SourceError};

/// After this many steps since a jump, the merged walk takes over: it reads and unpacks blocks ahead.
const STEPS_APART: u32 = 32;

/// A cursor over a database.
#[derive(Debug)]
pub(super) struct LevelDbCursor {
    source: LevelDb,
    walk: Walk,
    verify: Verify,
    /// The position of the next step.
    position: u64,
    /// Finds entries by the index; kept between seeks for its buffers.
    by_position: Option<PositionCursor>,
    /// Whether `by_position` is at the position, rather than the merged walk.
    is_by_position: bool,
}

impl LevelDbCursor {
    /// `walk` must cover all of the source and be before its first step. It verifies blocks as `verify`
    /// says.
    pub(super) fn new(source: &LevelDb, walk: Walk, verify: Verify) -> Self {
        LevelDbCursor {
            source: source.clone(),
            walk,
            verify,
            position: 0,
            by_position: None,
            is_by_position: false,
        }
    }

    /// Moves to the record at the position; returns `false` past the last record.
    fn step(&mut self) -> Result<bool, SourceError> {
        let Some(by_position) = &mut self.by_position else { return Ok(false) };
        let is_there = by_position.step(&self.source, self.position, self.verify)?;
        self.position = self.position.saturating_add(u64::from(is_there));
        Ok(is_there)
    }

    /// Lets the merged walk continue after the current record, if the steps since the last jump are enough.
    fn resume_merge(&mut self) {
        let apart = self.by_position.as_ref().filter(|_| self.is_by_position);
        let apart = apart.filter(|by_position| by_position.steps >= STEPS_APART);
        if let Some(entry) = apart.and_then(|by_position| by_position.records.entry()) {
            self.walk.go_after(entry.key());
            self.is_by_position = false;
        }
    }
}

impl Cursor for LevelDbCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        self.resume_merge();
        if self.is_by_position {
            let is_there = self.step()?;
            let by_position = self.by_position.as_ref().filter(|_| is_there);
            return Ok(by_position.and_then(|by_position| by_position.records.entry()));
        }
        let entry = self.walk.advance()?;
        self.position = self.position.saturating_add(u64::from(entry.is_some()));
        Ok(entry)
    }

    /// With an index, skipped records are not looked at.
    fn skip(&mut self) -> Result<bool, SourceError> {
        self.resume_merge();
        let is_there = match self.by_position.as_mut().filter(|_| self.is_by_position) {
            Some(by_position) => {
                by_position.records.clear();
                by_position.steps = by_position.steps.saturating_add(1);
                self.position < by_position.index.records()
            }
            None => self.walk.skip()?,
        };
        self.position = self.position.saturating_add(u64::from(is_there));
        Ok(is_there)
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        (self.position, self.is_by_position) = (0, false);
        self.walk.rewind()
    }

    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        if position == self.position {
            return Ok(());
        }
        if self.by_position.is_none() {
            let index = self.source.indexed.lock().as_ref().map(|indexed| indexed.index.clone());
            let records = || RecordCursor::new(&self.source.opened);
            self.by_position = index.map(|index| PositionCursor { index, steps: 0, records: records() });
        }
        if let Some(by_position) = &mut self.by_position {
            (by_position.steps, self.position, self.is_by_position) = (0, position, true);
            self.walk.rest();
            return Ok(());
        }
        if position < self.position {
            self.rewind()?;
        }
        while self.position < position && self.skip()? {}
        Ok(())
    }

    fn reads_until(&mut self, position: u64) {
        // Looked up outside the lock: a part of the index may have to be read.
        let index = self.source.indexed.lock().as_ref().map(|indexed| indexed.index.clone());
        let last = position.checked_sub(1).filter(|_| position != u64::MAX).zip(index);
        let place = last.and_then(|(last, index)| index.place(last).ok().flatten());
        self.walk.reads_until(place.map(RecordPlace::of_numbers));
    }

    fn give(&mut self, id: RecordId, run: &mut Run) -> bool {
        // An entry found by the index never offers its buffer.
        !self.is_by_position && self.walk.give(id, run)
    }

    fn held_bytes(&mut self, value_bytes: usize) -> HeldBytes {
        self.walk.held_bytes(value_bytes)
    }
}

/// Finds records by the index.
#[derive(Debug)]
struct PositionCursor {
    index: Arc<RecordIndex>,
    /// Steps since the last jump.
    steps: u32,
    records: RecordCursor,
}

impl PositionCursor {
    fn step(&mut self, source: &LevelDb, position: u64, verify: Verify) -> Result<bool, SourceError> {
        self.records.clear();
        let place = match self.index.place(position) {
            Ok(place) => place,
            Err(damage) => {
                self.index = source.mend(&damage)?;
                self.index.place(position).unwrap_or_default()
            }
        };
        let Some(place) = place.map(RecordPlace::of_numbers) else { return Ok(false) };
        self.records.go_to(place, verify).map_err(|error| match error {
            LevelDbError::NoRecord { path, found } => {
                let message = format!("the record index is wrong ({found}); remove it");
                SourceError::Broken { path, index: position, message }
            }
            error => error.into(),
        })?;
        self.steps = self.steps.saturating_add(1);
        Ok(true)
    }
}
