//! Deals the steps of a plan.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::ReaderError;
use super::dealer::{Dealer, NobodyLeft, Step};
use super::thread::Activity;
use crate::order::{Block, BlockSource, Blocks, OrderError, Plan, ReplicaShare};
use crate::record::{RecordId, StepEnd, StepId};
use crate::source::{Cursor, Source, SourceError};
use percolator_files::shown::with_sources;

/// The steps that a reader deals, and to whom: consumer `i` is replica `first_replica + i` of the plan's job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScheduleSlice {
    pub(crate) plan: Arc<Plan>,
    pub(crate) first_replica: usize,
    /// The first step of each consumer. Another reader dealt it the earlier steps.
    pub(crate) starts: Vec<StepId>,
    /// The first step that is not dealt, if there is one.
    pub(crate) end: Option<StepId>,
    /// The source of the steps, block by block. Without one, the steps follow one another.
    pub(crate) blocks: Option<BlockSource>,
    /// The source's commit when the plan was made, if it says so.
    pub(crate) commit: Option<u64>,
    /// Whether this resumes Caffe's round-robin order. That order counts steps from the start, has no epochs,
    /// and has no batches without records.
    pub(crate) is_round_robin: bool,
}

impl ScheduleSlice {
    /// The first step of all.
    fn start(&self) -> StepId {
        self.starts.iter().copied().min().unwrap_or_default()
    }

    /// A consumer's share of a step, unless it already had it.
    fn share(&self, id: StepId, consumer: usize) -> Result<Option<ReplicaShare<'_>>, OrderError> {
        if self.starts.get(consumer).is_some_and(|start| id < *start) {
            return Ok(None);
        }
        self.plan.share(id.epoch, id.step, self.first_replica + consumer).map(Some)
    }

    /// How a share of this many records ends.
    fn end_of(&self, id: StepId, is_last: bool, records: usize) -> Result<Option<StepEnd>, OrderError> {
        Ok(match self.is_round_robin {
            false => Some(StepEnd { epoch: id.epoch, step: id.step, is_last }),
            // The round-robin order ends here.
            true if (records as u64) < self.plan.batch_size_max() => None,
            true => Some(StepEnd { epoch: 0, step: self.plan.step_number(id)?, is_last: false }),
        })
    }
}

/// What is left of a consumer's share of a step, and how the step ends.
struct StepShare<'a> {
    share: ReplicaShare<'a>,
    end: Option<StepEnd>,
}

impl StepShare<'_> {
    /// The next record's place in the step, with `follow` more records after it.
    fn step(&self, follow: usize) -> Step {
        match self.end {
            Some(end) if follow == 0 => Step::EndsWith(end),
            _ => Step::Continues,
        }
    }
}

impl fmt::Display for ScheduleSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StepId { epoch, step } = self.start();
        write!(
            f,
            "by a plan for {} replicas, from replica {}",
            self.plan.world().replicas(),
            self.first_replica
        )?;
        if self.blocks.is_some() {
            return f.write_str(", block by block");
        }
        write!(f, ", step {step} of epoch {epoch} on")?;
        match self.end {
            Some(end) => write!(f, " and before {end}"),
            None => Ok(()),
        }
    }
}

/// A cursor that is used by position.
struct Seeker<'a> {
    cursor: Box<dyn Cursor>,
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
    foreseen: VecDeque<RecordId>,
    /// How far the cursor reads without a seek, as announced to it.
    until: u64,
}

/// Up to this many records are skipped instead of seeking past them, so that read-ahead continues.
const SKIPPED_MAX: u64 = 16;

/// How many records are announced to a cursor before it seeks to them.
const FORESEEN: usize = 8;

impl Seeker<'_> {
    /// Moves to the record at a position. Returns `false` if the reader is stopped on the way, which may be
    /// long.
    fn seek(&mut self, position: u64, is_stopping: impl Fn() -> bool) -> Result<bool, SourceError> {
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
    fn end_epoch(&mut self, plan: &Plan, is_stopping: impl Fn() -> bool) -> Result<(), SourceError> {
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
    fn look_ahead(&mut self, consumers: &[Option<StepShare<'_>>], next: Option<&ReplicaShare<'_>>) {
        let until = end_of_reading(consumers.iter().flatten().map(|consumer| &consumer.share), next);
        if self.is_seekable && until != self.until {
            self.until = until;
            self.cursor.reads_until(until);
        }
    }

    /// The next record of a share. Records that come soon and do not follow their predecessor are announced
    /// to the cursor.
    fn next_of(&mut self, share: &mut ReplicaShare<'_>) -> Option<RecordId> {
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
    fn cut_short(&self, index: u64) -> SourceError {
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

impl Dealer<'_> {
    /// Deals the steps of a plan until they end or all consumers have left.
    pub(super) fn deal_steps(
        &mut self,
        schedule_slice: &ScheduleSlice,
        source: &dyn Source,
        mut cursor: Box<dyn Cursor>,
    ) -> Result<(), ReaderError> {
        if schedule_slice.commit.is_some_and(|commit| commit != cursor.commit()) {
            return Err(SourceError::Committed { path: source.path().to_owned() }.into());
        }
        let plan = &schedule_slice.plan;
        let is_indexed = source.is_seekable();
        // The beginning of a file is found without an index.
        let is_joined = source.internals().is_some_and(|own| !own.parts().is_empty());
        let finds_files = (plan.shuffles_files() || is_joined) && source.file_records().is_some();
        let is_seekable = is_indexed || finds_files;
        let mut seeker = Seeker {
            cursor,
            source,
            ends: if finds_files { plan.job().file_ends() } else { vec![plan.job().records()] },
            is_seekable,
            is_indexed,
            at: (!is_seekable).then_some(0),
            has_seen_end: false,
            foreseen: VecDeque::with_capacity(FORESEEN),
            until: u64::MAX,
        };
        // Reused for all steps to avoid allocations.
        let mut consumers = Vec::with_capacity(self.consumers());
        let Some(blocks) = &schedule_slice.blocks else {
            let whole =
                schedule_slice.start()..schedule_slice.end.unwrap_or(StepId { epoch: u64::MAX, step: 0 });
            return self.deal_range(schedule_slice, whole, &mut consumers, &mut seeker).map(|_| ());
        };
        let Some(mut blocks) = blocks.take() else {
            return Err(ReaderError::BlocksTaken { key: self.key().to_string() });
        };
        while let Some(block) = self.next_block(schedule_slice, &mut *blocks)? {
            let Block { first, steps } = block;
            let range = first..StepId { epoch: first.epoch, step: first.step + steps };
            if self.deal_range(schedule_slice, range, &mut consumers, &mut seeker)?.is_err() {
                break;
            }
            if first.step + steps == schedule_slice.plan.steps(first.epoch)? {
                seeker.end_epoch(&schedule_slice.plan, || self.is_stopping())?;
                self.epoch_ended(first.epoch);
            }
        }
        Ok(())
    }

    /// Returns the next block, which the plan has; `None` if there are no more, or the reader is stopping.
    fn next_block(
        &self,
        schedule_slice: &ScheduleSlice,
        blocks: &mut dyn Blocks,
    ) -> Result<Option<Block>, ReaderError> {
        if self.is_stopping() {
            return Ok(None);
        }
        self.set_activity(Activity::WaitingForBlock);
        let next = blocks.next(&schedule_slice.plan, &|| self.is_stopping());
        self.set_activity(Activity::Reading);
        let key = || self.key().to_string();
        let failed = |error: Box<dyn Error + Send + Sync>| {
            let message = with_sources(&*error);
            ReaderError::Blocks { key: key(), message }
        };
        let Some(block) = next.map_err(failed)? else { return Ok(None) };
        let refused = |message: String| Err(ReaderError::NoSuchBlock { key: key(), block, message });
        if schedule_slice.end.is_some_and(|end| block.first >= end) {
            return refused(format!("the feed has {} epochs", schedule_slice.end.unwrap_or_default().epoch));
        }
        let steps = schedule_slice.plan.steps(block.first.epoch)?;
        match block.first.step.checked_add(block.steps) {
            Some(end) if end <= steps && block.steps > 0 => Ok(Some(block)),
            _ => refused(format!("the epoch has {steps} steps, and a block at least one of them")),
        }
    }

    /// Deals the steps of a range. Steps beyond the end of an epoch are those of the next one.
    fn deal_range<'p>(
        &mut self,
        schedule_slice: &'p ScheduleSlice,
        range: Range<StepId>,
        consumers: &mut Vec<Option<StepShare<'p>>>,
        seeker: &mut Seeker<'_>,
    ) -> Result<Result<(), NobodyLeft>, ReaderError> {
        let mut id = range.start;
        while id < range.end {
            if self.is_stopping() {
                return Ok(Err(NobodyLeft));
            }
            let steps = schedule_slice.plan.steps(id.epoch)?;
            if id.step >= steps {
                seeker.end_epoch(&schedule_slice.plan, || self.is_stopping())?;
                self.epoch_ended(id.epoch);
                id = StepId { epoch: id.epoch + 1, step: 0 };
                continue;
            }
            consumers.clear();
            for consumer in 0..self.consumers() {
                consumers.push(match schedule_slice.share(id, consumer)? {
                    Some(share) => {
                        let end = schedule_slice.end_of(id, id.step + 1 == steps, share.len())?;
                        Some(StepShare { share, end })
                    }
                    None => None,
                });
            }
            let next = StepId { step: id.step + 1, ..id };
            let dealt = if schedule_slice.plan.deals_in_turn() {
                self.deal_in_turn(consumers, seeker)?
            } else {
                let is_known = next.step < steps && next < range.end;
                let next = if is_known { schedule_slice.share(next, 0)? } else { None };
                self.deal_shares(consumers, next.as_ref(), seeker)?
            };
            if dealt.is_err() {
                return Ok(dealt);
            }
            id = next;
        }
        Ok(Ok(()))
    }

    /// Deals one consumer after the other, for shares whose records are contiguous.
    fn deal_shares(
        &mut self,
        consumers: &mut [Option<StepShare<'_>>],
        next: Option<&ReplicaShare<'_>>,
        seeker: &mut Seeker<'_>,
    ) -> Result<Result<(), NobodyLeft>, SourceError> {
        for turn in 0..consumers.len() {
            seeker.look_ahead(&consumers[turn..], next);
            let Some(consumer) = &mut consumers[turn] else { continue };
            if let (0, Some(end)) = (consumer.share.len(), consumer.end)
                && let Err(NobodyLeft) = self.deal_nothing(turn, end)
            {
                return Ok(Err(NobodyLeft));
            }
            while let Some(id) = seeker.next_of(&mut consumer.share) {
                let step = consumer.step(seeker.foreseen.len());
                if let Err(NobodyLeft) = self.deal_from(seeker, turn, id, step)? {
                    return Ok(Err(NobodyLeft));
                }
            }
        }
        Ok(Ok(()))
    }

    /// Deals record by record, for shares whose records are interleaved.
    fn deal_in_turn(
        &mut self,
        consumers: &mut [Option<StepShare<'_>>],
        seeker: &mut Seeker<'_>,
    ) -> Result<Result<(), NobodyLeft>, SourceError> {
        for (turn, consumer) in consumers.iter().enumerate() {
            if let Some(StepShare { share, end: Some(end) }) = consumer
                && share.len() == 0
                && let Err(NobodyLeft) = self.deal_nothing(turn, *end)
            {
                return Ok(Err(NobodyLeft));
            }
        }
        while consumers.iter().flatten().any(|consumer| consumer.share.len() > 0) {
            for (turn, consumer) in consumers.iter_mut().enumerate() {
                let Some(consumer) = consumer else { continue };
                let Some(id) = consumer.share.next() else { continue };
                let step = consumer.step(consumer.share.len());
                if let Err(NobodyLeft) = self.deal_from(seeker, turn, id, step)? {
                    return Ok(Err(NobodyLeft));
                }
            }
        }
        Ok(Ok(()))
    }

    /// Deals the record with this id.
    fn deal_from(
        &mut self,
        seeker: &mut Seeker<'_>,
        turn: usize,
        id: RecordId,
        step: Step,
    ) -> Result<Result<(), NobodyLeft>, SourceError> {
        if self.has_left(turn) {
            self.pass_over();
            return Ok(Ok(()));
        }
        if !seeker.seek(id.index, || self.is_stopping())? {
            return Ok(Err(NobodyLeft));
        }
        match self.deal_next(&mut *seeker.cursor, turn, id, step)? {
            Some(dealt) => Ok(dealt),
            None => Err(seeker.cut_short(id.index)),
        }
    }
}
