//! A cursor that moves to the records of a plan: by an index, or by skipping those in between.

use std::collections::VecDeque;
use std::ops::Range;

use super::schedule_slice::StepShare;
use crate::order::{Plan, ReplicaShare};
use crate::record::RecordId;
use crate::source::{Cursor, Source, SourceError};

/// A cursor that is used by position.
pub(super) struct Seeker<'a> {
    pub(super) cursor: Box<dyn Cursor>,
    source: &'a dyn Source,
    /// The end of each file, if the cursor can find the files' beginnings; otherwise the end of all records.
    ends: Vec<u64>,
    /// Whether it can seek to the beginning of a file, though perhaps to no other record.
    is_seekable: bool,
    /// Whether an index leads it to each record, so that none is skipped.
    is_indexed: bool,
    /// The position of the cursor's next record, if known: a cursor need not begin at the first record.
    at: Option<u64>,
    /// Whether it has been past the last record.
    has_seen_end: bool,
    /// The next records of a share, already announced to the cursor.
    pub(super) foreseen: VecDeque<RecordId>,
    /// How far the cursor reads without a seek, as announced to it.
    until: u64,
}

/// Up to this many records are skipped instead of seeking past them, so that read-ahead continues.
const SKIPPED_MAX: u64 = 16;

/// How many records are announced to a cursor before it seeks to them.
const FORESEEN: usize = 8;

impl<'a> Seeker<'a> {
    /// Prepares a cursor that has not been moved yet for the records of a plan.
    pub(super) fn new(plan: &Plan, source: &'a dyn Source, cursor: Box<dyn Cursor>) -> Self {
        let is_indexed = source.is_seekable();
        // The beginning of a file is found without an index.
        let is_joined = !source.parts().is_empty();
        let finds_files = (plan.shuffles_files() || is_joined) && source.file_records().is_some();
        let is_seekable = is_indexed || finds_files;
        Seeker {
            cursor,
            source,
            ends: if finds_files { plan.job().file_ends() } else { vec![plan.job().records()] },
            is_seekable,
            is_indexed,
            at: (!is_seekable).then_some(0),
            has_seen_end: false,
            foreseen: VecDeque::with_capacity(FORESEEN),
            until: u64::MAX,
        }
    }

    /// Moves to the record at a position. Returns `false` if the reader is stopped on the way, which may be
    /// long.
    pub(super) fn seek(
        &mut self,
        position: u64,
        is_stopping: impl Fn() -> bool,
    ) -> Result<bool, SourceError> {
        // If the cursor leaves the end of another file, it checks that end itself.
        if self.at == self.ends.last().copied() {
            self.check_end()?;
        }
        let start = self.start_of(position);
        let at = match self.at {
            Some(at) if at <= position && (position - at <= SKIPPED_MAX || start <= at) => at,
            _ if self.is_seekable => {
                self.cursor.seek(start)?;
                start
            }
            _ => {
                self.cursor.rewind()?;
                0
            }
        };
        if !self.pass_over(at..position, is_stopping)? {
            return Ok(false);
        }
        // The next step reads the record, or ends everything.
        self.at = Some(position + 1);
        Ok(true)
    }

    /// The last record up to a position that the cursor finds without skipping others.
    fn start_of(&self, position: u64) -> u64 {
        if self.is_indexed {
            return position;
        }
        let files = self.ends.partition_point(|&end| end <= position);
        files.checked_sub(1).and_then(|before| self.ends.get(before).copied()).unwrap_or(0)
    }

    /// Skips the records that come next. Returns `false` if the reader is stopped on the way.
    fn pass_over(
        &mut self,
        positions: Range<u64>,
        is_stopping: impl Fn() -> bool,
    ) -> Result<bool, SourceError> {
        for position in positions {
            if is_stopping() {
                return Ok(false);
            }
            if !self.cursor.skip()? {
                return Err(self.cut_short(position));
            }
        }
        Ok(true)
    }

    /// At the end of an epoch, skips the records that the last step leaves out, if the source is read in
    /// order, and checks the end.
    pub(super) fn end_epoch(
        &mut self,
        plan: &Plan,
        is_stopping: impl Fn() -> bool,
    ) -> Result<(), SourceError> {
        self.look_behind_the_end()?;
        let Some(at) = self.at else { return Ok(()) };
        // After a step that wraps, the cursor is in the next epoch.
        if !self.is_indexed && !plan.wraps() {
            let end = match plan.shuffles_files() {
                true => self.ends.get(self.ends.partition_point(|&end| end < at)).copied().unwrap_or(at),
                false => self.records(),
            };
            // Any further records are not left out, but are another worker's.
            if end - at < plan.step_records() {
                if !self.pass_over(at..end, is_stopping)? {
                    return Ok(());
                }
                self.at = Some(end);
            }
        }
        self.check_end()
    }

    /// Skips over the plan's last record, the first time, if an index leads the cursor to each record: it
    /// seeks anywhere, and may never get past the last record by itself.
    fn look_behind_the_end(&mut self) -> Result<(), SourceError> {
        let records = self.records();
        if !self.is_indexed || self.has_seen_end || self.at == Some(records) {
            return Ok(());
        }
        let last = records.saturating_sub(1);
        self.cursor.seek(last)?;
        if !self.cursor.skip()? {
            return Err(self.cut_short(last));
        }
        self.at = Some(records);
        Ok(())
    }

    /// If the cursor is past the plan's last record, or the last of a file, checks that the source or the
    /// file ends there. The plan was made for as many records as the source states for each file, and nothing
    /// else would detect more.
    fn check_end(&mut self) -> Result<(), SourceError> {
        if self.at != Some(self.records()) {
            return self.cursor.check_end();
        }
        // Checked once: the cursor goes elsewhere from here.
        (self.at, self.has_seen_end) = (None, true);
        if !self.cursor.skip()? {
            return Ok(());
        }
        let records = self.records();
        let message = format!(
            "expected {records} records, but the database continues; a source has to state all of its records"
        );
        Err(SourceError::Broken { path: self.source.path().to_owned(), index: records, message })
    }

    /// The number of records that the plan covers.
    fn records(&self) -> u64 {
        self.ends.last().copied().unwrap_or_default()
    }

    /// Announces how far the cursor reads from the next record of the first share, through the shares after
    /// it and into the first share of the next step.
    pub(super) fn look_ahead(
        &mut self,
        consumers: &[Option<StepShare<'_>>],
        next: Option<&ReplicaShare<'_>>,
    ) {
        let until = end_of_reading(consumers.iter().flatten().map(|consumer| &consumer.share), next);
        if self.is_seekable && until != self.until {
            self.until = until;
            self.cursor.reads_until(until);
        }
    }

    /// The next record of a share. Records that come soon and do not follow their predecessor are announced
    /// to the cursor.
    pub(super) fn next_of(&mut self, share: &mut ReplicaShare<'_>) -> Option<RecordId> {
        while self.foreseen.len() < FORESEEN
            && let Some(id) = share.next()
        {
            let follows = self.foreseen.back().is_some_and(|before| before.index + 1 == id.index);
            if self.is_seekable && !follows {
                self.cursor.foresee(id.index);
            }
            self.foreseen.push_back(id);
        }
        self.foreseen.pop_front()
    }

    /// The error for a source with fewer records than its plan was made for.
    pub(super) fn cut_short(&self, index: u64) -> SourceError {
        let message = format!("expected {} records, but the database ends", self.records());
        SourceError::Broken { path: self.source.path().to_owned(), index, message }
    }
}

/// The position after the last record that a cursor reads through these shares without a seek; `u64::MAX` if
/// that is not known, or if the next step's first share continues from there.
fn end_of_reading<'a>(
    shares: impl Iterator<Item = &'a ReplicaShare<'a>>,
    next: Option<&ReplicaShare<'_>>,
) -> u64 {
    let continues = |end: u64, start: u64| start.checked_sub(end).is_some_and(|gap| gap <= SKIPPED_MAX);
    let mut until = None;
    for share in shares.filter(|share| share.len() > 0) {
        let Some((positions, is_all)) = share.neighbours() else { return u64::MAX };
        if until.is_some_and(|until| !continues(until, positions.start)) {
            return until.unwrap_or(u64::MAX);
        }
        until = Some(positions.end);
        if !is_all {
            return positions.end;
        }
    }
    let next = next.and_then(ReplicaShare::neighbours);
    match (until, next) {
        (Some(until), Some((next, _))) if continues(until, next.start) => u64::MAX,
        (until, _) => until.unwrap_or(u64::MAX),
    }
}
