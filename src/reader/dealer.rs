//! Walks a source and deals its records.
//!
//! **The law of dealing.** Records are counted from the start and never again: global record `g` is
//! record `g mod M` of the database and goes to consumer `g mod N`, in the order in which the consumers
//! registered. The count does not restart at the end of a pass, so where `N` does not divide `M` the
//! records a consumer sees shift from pass to pass, as Caffe's do. Where this reader's consumers are but
//! some of the ranks of a larger job, `N` is the size of the job, and the other ranks' records are passed
//! over.
//!
//! Where there is a plan, who gets what is the plan's to say ([`schedule_slice`](super::schedule_slice)); how it is handed over is the
//! same.
//!
//! Records travel in runs, but which record goes where is decided one by one: a run only changes how many
//! are handed over at once.

use std::sync::Arc;

use super::ReaderError;
use super::outstanding::Outstanding;
use super::queue_pair::{Left, ReaderEnd, Slot};
use super::thread::{Activity, ReaderMeters, Share, Shared, Terms};
use crate::base::offload::Helpers;
use crate::record::{RecordId, StepEnd};
use crate::source::{Cursor, Run, Source, SourceError, VerifiesLater};

/// A consumer as the dealer sees it.
struct ConsumerState {
    /// Before `slot`, so that a slot dropped with its hand finds its pair closed.
    end: ReaderEnd,
    /// The run being dealt.
    slot: Option<Slot>,
    ring: Ring,
    left: bool,
}

/// Where a consumer is in the ring, whose steps are as many records as a batch has.
#[derive(Default)]
struct Ring {
    /// Records dealt into the batch that it is at.
    dealt: usize,
    /// The batches before that.
    steps: u64,
}

/// What a record is to the step that it is dealt in.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// The ring counts.
    OfRing,
    /// More records of the consumer's share follow.
    GoesOn,
    /// It is the last of its consumer's share.
    EndsWith(StepEnd),
}

/// Deals records to hands, one by one, round and round or by a plan.
pub(super) struct Dealer<'a> {
    shared: &'a Shared,
    consumers: Vec<ConsumerState>,
    share: Share,
    /// The rank whose turn it is.
    rank: usize,
    /// The runs that are out, where the walk wants to know.
    outstanding: Option<Outstanding>,
}

/// Why dealing stopped before the source ended.
pub(super) struct NobodyLeft;

impl<'a> Dealer<'a> {
    pub(super) fn new(shared: &'a Shared, ends: Vec<ReaderEnd>) -> Self {
        let consumer = |end| ConsumerState { end, slot: None, ring: Ring::default(), left: false };
        let consumers = ends.into_iter().map(consumer).collect();
        Dealer { shared, consumers, share: shared.terms.share(), rank: 0, outstanding: None }
    }

    /// Walks the source until all that was asked for has been dealt, or nobody is left.
    pub(super) fn deal_all(
        &mut self,
        source: &dyn Source,
        helpers: Option<Arc<dyn Helpers>>,
    ) -> Result<(), ReaderError> {
        if self.is_stopping() {
            return Ok(());
        }
        let shared = self.shared;
        shared.set_activity(Activity::Reading);
        let cursor = self.open(source, helpers)?;
        match &shared.terms.schedule_slice {
            Some(schedule_slice) => self.deal_steps(schedule_slice, source, cursor),
            None => self.deal_round(source, cursor),
        }
    }

    /// Deals by the law of dealing, until the source has been passed as often as was asked.
    fn deal_round(&mut self, source: &dyn Source, mut cursor: Box<dyn Cursor>) -> Result<(), ReaderError> {
        let shared = self.shared;
        let mut epoch = 0;
        while shared.terms.passes.is_none_or(|passes| epoch < passes.get()) {
            let mut index = 0;
            loop {
                if shared.is_stopping() {
                    return Ok(());
                }
                // A rank below the first wraps to a number that no hand has.
                let turn = self.rank.wrapping_sub(self.share.first);
                if self.consumers.get(turn).is_some_and(|consumer| !consumer.left) {
                    match self.deal_next(&mut *cursor, turn, RecordId { epoch, index }, Step::OfRing)? {
                        Some(Ok(())) => {}
                        Some(Err(NobodyLeft)) => return Ok(()),
                        None => break,
                    }
                } else {
                    if !cursor.skip()? {
                        break;
                    }
                    if turn < self.consumers.len() {
                        self.pass_over();
                    }
                }
                self.rank = if self.rank + 1 == self.share.of { 0 } else { self.rank + 1 };
                index += 1;
            }
            if index == 0 {
                return Err(SourceError::Empty { path: source.path().to_owned() }.into());
            }
            self.epoch_ended(epoch);
            epoch += 1;
            cursor.rewind()?;
        }
        Ok(())
    }

    /// Starts the walk.
    fn open(
        &mut self,
        source: &dyn Source,
        helpers: Option<Arc<dyn Helpers>>,
    ) -> Result<Box<dyn Cursor>, SourceError> {
        let Terms { is_for_workers, drops_behind, .. } = self.shared.terms;
        let mut cursor = match is_for_workers {
            true => source.deferring_cursor(VerifiesLater::promised(helpers))?,
            false => source.cursor()?,
        };
        if drops_behind && cursor.drop_behind() {
            self.outstanding = Some(Outstanding::of(self.shared.pool.runs * self.consumers.len()));
        } else if drops_behind {
            tracing::warn!(
                source = %source.path().display(),
                "drop_behind has no effect on this source: it is for LMDB and LevelDB, on Linux"
            );
        }
        Ok(cursor)
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    pub(super) fn consumers(&self) -> usize {
        self.consumers.len()
    }

    pub(super) fn has_left(&self, turn: usize) -> bool {
        self.consumers[turn].left
    }

    /// Counts a record whose consumer has left.
    pub(super) fn pass_over(&self) {
        self.shared.meters.undelivered.add(1);
    }

    /// Notes the end of a pass over the source.
    pub(super) fn epoch_ended(&self, epoch: u64) {
        self.shared.meters.passes.add(1);
        tracing::debug!(epoch, "the end of a pass over the source");
    }

    /// Deals the record that the walk comes to next, and with it what it ends; `None` past the last one.
    pub(super) fn deal_next(
        &mut self,
        cursor: &mut dyn Cursor,
        turn: usize,
        id: RecordId,
        step: Step,
    ) -> Result<Option<Result<(), NobodyLeft>>, SourceError> {
        let Some(entry) = cursor.advance()? else { return Ok(None) };
        // A run of one record takes a large value over together with its buffer.
        let dealt = match entry.is_whole() && self.shared.pool.run_records == 1 {
            true => self.deal(turn, step, 1, |run| {
                assert!(cursor.give(id, run), "a value that fills its buffer can be given");
            }),
            false => self.deal(turn, step, 1, |run| run.push(id, entry)),
        };
        if let Some(outstanding) = self.outstanding.as_ref().filter(|_| dealt.is_ok()) {
            cursor.dealt(outstanding.dealt());
        }
        Ok(Some(dealt))
    }

    /// Deals the end of a step in which a consumer gets no record.
    pub(super) fn deal_nothing(&mut self, turn: usize, end: StepEnd) -> Result<(), NobodyLeft> {
        if self.has_left(turn) { Ok(()) } else { self.deal(turn, Step::EndsWith(end), 0, |_| {}) }
    }

    /// Deals the record, or none of them, that `add` adds to a run.
    fn deal(
        &mut self,
        turn: usize,
        step: Step,
        records: u64,
        add: impl FnOnce(&mut Run),
    ) -> Result<(), NobodyLeft> {
        let shared = self.shared;
        let consumer = &mut self.consumers[turn];
        if consumer.slot.is_none() && consumer.take_slot(shared, turn).is_err() {
            return self.see_off(turn, records);
        }
        let slot = consumer.slot.as_mut().expect("a slot was taken just now");
        if let Some(outstanding) = self.outstanding.as_mut().filter(|_| slot.run.is_empty()) {
            // What it was filled with before has come back with it.
            if let Some(before) = slot.number.take() {
                outstanding.end(before);
            }
            slot.number = Some(outstanding.begin(turn));
        }
        add(&mut slot.run);
        let end = match step {
            Step::OfRing => consumer.ring.count(shared.terms.batch_size),
            Step::GoesOn => None,
            Step::EndsWith(end) => Some(end),
        };
        if let Some(end) = end {
            slot.run.end_step(end);
        }
        if end.is_some() || slot.run.len() == shared.pool.run_records {
            let records = slot.run.len();
            if consumer.give(&shared.meters).is_err() {
                return self.see_off(turn, records as u64);
            }
        }
        Ok(())
    }

    /// A consumer has left. Its share is dealt to nobody from now on, so that the others' shares stay
    /// what they were. `lost` records were in hand for it.
    fn see_off(&mut self, turn: usize, lost: u64) -> Result<(), NobodyLeft> {
        self.consumers[turn].left = true;
        if let Some(outstanding) = &mut self.outstanding {
            outstanding.see_off(turn);
        }
        if self.consumers.iter().all(|consumer| consumer.left) {
            return Err(NobodyLeft);
        }
        self.shared.meters.undelivered.add(lost);
        if !self.shared.is_stopping() {
            tracing::info!(
                consumer = turn,
                of = self.consumers.len(),
                "a consumer has left; its records are dealt to nobody, the others go on"
            );
        }
        Ok(())
    }

    /// Gives what is in hand, however little.
    pub(super) fn flush(&mut self) {
        for consumer in &mut self.consumers {
            if consumer.slot.as_ref().is_some_and(|slot| !slot.run.is_empty()) {
                // Whoever has left does not want it.
                let _ = consumer.give(&self.shared.meters);
            }
        }
    }
}

impl Ring {
    /// Counts one more record; the end of the step that it fills, if it fills one.
    fn count(&mut self, batch_size: usize) -> Option<StepEnd> {
        self.dealt += 1;
        if self.dealt < batch_size {
            return None;
        }
        let step = self.steps;
        *self = Ring { dealt: 0, steps: step + 1 };
        Some(StepEnd { epoch: 0, step, is_last: false })
    }
}

impl ConsumerState {
    fn take_slot(&mut self, shared: &Shared, turn: usize) -> Result<(), Left> {
        let slot = shared.meters.free_slot.take(
            || self.end.try_pop(),
            || {
                shared.set_activity(Activity::WaitingFor(turn));
                let slot = self.end.pop();
                shared.set_activity(Activity::Reading);
                slot
            },
        )?;
        self.slot = Some(slot);
        Ok(())
    }

    fn give(&mut self, meters: &ReaderMeters) -> Result<(), Left> {
        let Some(slot) = self.slot.take() else { return Ok(()) };
        let (records, bytes) = (slot.run.len() as u64, slot.run.value_bytes() as u64);
        self.end.push(slot)?;
        meters.records.add(records);
        meters.value_bytes.add(bytes);
        Ok(())
    }
}
