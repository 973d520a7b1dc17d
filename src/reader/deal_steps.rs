//! Deals the steps of a plan.

use std::error::Error;
use std::ops::Range;

use super::ReaderError;
use super::dealer::{Dealer, NobodyLeft, Step};
use super::schedule_slice::{ScheduleSlice, StepShare};
use super::seeker::Seeker;
use super::thread::Activity;
use crate::order::{Block, Blocks, ReplicaShare};
use crate::record::{RecordId, StepId};
use crate::source::{Cursor, Source, SourceError};
use percolator_files::shown::with_sources;

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
        let mut seeker = Seeker::new(&schedule_slice.plan, source, cursor);
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
