//! Reads a source and deals its records.
//!
//! **The dealing rule.** Records are counted from the start, and no pass restarts the count: global record
//! `g` is record `g mod M` of the database and goes to consumer `g mod N`, with the consumers in the order in
//! which they registered. Because the count does not restart at the end of a pass, the records of a consumer
//! shift from pass to pass if `N` does not divide `M`, as Caffe's do. If this reader's consumers are only
//! some of the ranks of a larger job, `N` is the size of the job, and the records of other ranks are skipped.
//!
//! If there is a plan, the plan decides who gets what ([`schedule_slice`](super::schedule_slice)). Records
//! are handed over in the same way.
//!
//! Records are handed over in runs, but each record is dealt by itself: a run only changes how many are
//! handed over at once.

use std::convert::Infallible;
use std::sync::Arc;

use tracing::field::Empty;
use tracing::span::EnteredSpan;

use super::ReaderError;
use super::key::ReaderKey;
use super::queue_pair::{Disconnected, ReaderEnd, RunSlot};
use super::thread::{Activity, ReaderMeters, Share, Shared};
use crate::base::offload::Helpers;
use crate::base::trace::{self, TARGET};
use crate::record::{RecordId, StepEnd};
use crate::source::{Cursor, Run, Source, SourceError, VerifiesLater};

/// A consumer as the dealer sees it.
struct ConsumerState {
    /// Declared before `slot`, so that a slot dropped with its consumer finds its pair closed.
    end: ReaderEnd,
    /// The run being filled.
    slot: Option<RunSlot>,
    round_robin: RoundRobin,
    left: bool,
    /// The number of batches whose last run was handed over.
    batches: u64,
    /// Whether a batch has records, and more may follow.
    is_in_batch: bool,
}

/// A consumer's place in round-robin order, in which a step is one batch of records.
#[derive(Default)]
struct RoundRobin {
    /// Records dealt into the current batch.
    dealt: usize,
    /// The number of batches before that.
    steps: u64,
}

/// A record's place in the step that it is dealt in.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// Round-robin order counts the records itself.
    RoundRobin,
    /// More records of the consumer's share follow.
    Continues,
    /// It is the last record of its consumer's share.
    EndsWith(StepEnd),
}

/// Deals records to consumers one by one, in round-robin order or by a plan.
pub(super) struct Dealer<'a> {
    shared: &'a Shared,
    consumers: Vec<ConsumerState>,
    share: Share,
    /// The rank whose turn it is.
    rank: usize,
    /// The commit that was dealt, if one was: all repetitions are of one.
    commit: Option<u64>,
    /// The work since a run was handed over, for traces. While dealing, it is `Some` except between two runs.
    span: Option<EnteredSpan>,
}

/// Dealing stopped early: all consumers have left, or the reader is stopping.
pub(super) struct NobodyLeft;

impl<'a> Dealer<'a> {
    /// Calls nothing that could panic: the ends would close before the cause is recorded.
    pub(super) fn new(shared: &'a Shared, ends: Vec<ReaderEnd>) -> Self {
        let consumer = |end| ConsumerState {
            end,
            slot: None,
            round_robin: RoundRobin::default(),
            left: false,
            batches: 0,
            is_in_batch: false,
        };
        let consumers = ends.into_iter().map(consumer).collect();
        let share = shared.terms.share();
        Dealer { shared, consumers, share, rank: 0, commit: None, span: None }
    }

    /// Reads the source until everything requested has been dealt, or all consumers have left.
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
        self.span = Some(deal_span());
        let mut cursor = match shared.terms.is_for_workers {
            true => source.deferring_cursor(VerifiesLater::promised(helpers))?,
            false => source.cursor()?,
        };
        let commit = cursor.commit();
        if self.commit.replace(commit).is_some_and(|before| before != commit) {
            return Err(SourceError::Committed { path: source.path().to_owned() }.into());
        }
        match &shared.terms.schedule_slice {
            Some(schedule_slice) => self.deal_steps(schedule_slice, source, cursor),
            None => self.deal_round_robin(source, cursor),
        }
    }

    /// Deals by the dealing rule until the requested number of passes is complete.
    fn deal_round_robin(
        &mut self,
        source: &dyn Source,
        mut cursor: Box<dyn Cursor>,
    ) -> Result<(), ReaderError> {
        let shared = self.shared;
        let mut epoch = 0;
        while shared.terms.passes.is_none_or(|passes| epoch < passes.get()) {
            // Before a pass, not after it: a source that cannot go back can still be read once.
            if epoch > 0 {
                cursor.rewind()?;
            }
            let mut index = 0;
            loop {
                if shared.is_stopping() {
                    return Ok(());
                }
                // A rank below the first wraps to a number that no consumer has.
                let turn = self.rank.wrapping_sub(self.share.first);
                if self.consumers.get(turn).is_some_and(|consumer| !consumer.left) {
                    match self.deal_next(&mut *cursor, turn, RecordId { epoch, index }, Step::RoundRobin)? {
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
        }
        Ok(())
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    pub(super) fn key(&self) -> &ReaderKey {
        &self.shared.key
    }

    pub(super) fn set_activity(&self, activity: Activity) {
        self.shared.set_activity(activity);
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

    /// Reports the end of a pass over the source.
    pub(super) fn epoch_ended(&self, epoch: u64) {
        self.shared.meters.passes.add(1);
        tracing::debug!(epoch, "the end of a pass over the source");
    }

    /// Deals the cursor's next record, and the end of the step if the record ends one; `None` past the last
    /// record.
    pub(super) fn deal_next(
        &mut self,
        cursor: &mut dyn Cursor,
        turn: usize,
        id: RecordId,
        step: Step,
    ) -> Result<Option<Result<(), NobodyLeft>>, SourceError> {
        let Some(entry) = cursor.advance()? else { return Ok(None) };
        let source = &self.shared.key.source;
        // A run of one record takes over a large value together with its buffer.
        let dealt = match entry.is_whole() && self.shared.pool.run_records == 1 {
            true => self.deal(turn, step, 1, |run| {
                if cursor.give(id, run) && run.len() == 1 {
                    return Ok(());
                }
                let message = "its cursor says that the value fills a buffer, and does not give it; one that \
                               wraps another cursor must pass on `give`";
                Err(SourceError::Broken { path: source.clone(), index: id.index, message: message.into() })
            }),
            false => self.deal(turn, step, 1, |run| {
                let room = run.make_room(&entry);
                room.map_err(|error| SourceError::io(source, "keep a record", &error.into()))?;
                run.push(id, entry);
                Ok(())
            }),
        }?;
        Ok(Some(dealt))
    }

    /// Deals the end of a step in which a consumer gets no record.
    pub(super) fn deal_nothing(&mut self, turn: usize, end: StepEnd) -> Result<(), NobodyLeft> {
        if self.has_left(turn) {
            return Ok(());
        }
        let Ok(dealt) = self.deal(turn, Step::EndsWith(end), 0, |_| Ok::<(), Infallible>(()));
        dealt
    }

    /// Deals the records, one or none, that `add` adds to a run. If it fails, nothing is dealt.
    fn deal<E>(
        &mut self,
        turn: usize,
        step: Step,
        records: u64,
        add: impl FnOnce(&mut Run) -> Result<(), E>,
    ) -> Result<Result<(), NobodyLeft>, E> {
        let shared = self.shared;
        let consumer = &mut self.consumers[turn];
        if consumer.slot.is_none() {
            if consumer.take_slot(shared, turn).is_err() {
                return Ok(self.consumer_left(turn, records));
            }
            shared.wait_while_paused();
        }
        let slot = consumer.slot.as_mut().expect("a slot was taken just now");
        add(&mut slot.run)?;
        let end = match step {
            Step::RoundRobin => consumer.round_robin.count(shared.terms.batch_size),
            Step::Continues => None,
            Step::EndsWith(end) => Some(end),
        };
        if let Some(end) = end {
            slot.run.end_step(end);
        }
        consumer.is_in_batch = end.is_none();
        if end.is_some() || slot.run.len() == shared.pool.run_records {
            let records = slot.run.len();
            if self.give(turn, end.is_some()).is_err() {
                return Ok(self.consumer_left(turn, records as u64));
            }
        }
        Ok(Ok(()))
    }

    /// Hands over a consumer's run, which may end a step.
    fn give(&mut self, turn: usize, ends_step: bool) -> Result<(), Disconnected> {
        let consumer = &mut self.consumers[turn];
        let batch = consumer.batches;
        consumer.batches += u64::from(ends_step);
        let (records, bytes) = consumer.give(&self.shared.meters)?;
        if let Some(span) = self.span.take().filter(|span| !span.is_disabled()) {
            span.record("lane", turn).record("batch", batch);
            span.record("records", records).record("bytes", bytes);
        }
        // After the previous one has ended, so that they follow each other.
        self.span = Some(deal_span());
        Ok(())
    }

    /// Handles a consumer that has left. Its share goes to nobody from now on, so the shares of the others
    /// stay the same. `lost` records were held for it.
    fn consumer_left(&mut self, turn: usize, lost: u64) -> Result<(), NobodyLeft> {
        self.consumers[turn].left = true;
        if self.consumers.iter().all(|consumer| consumer.left) {
            return Err(NobodyLeft);
        }
        self.shared.meters.undelivered.add(lost);
        if !self.shared.is_stopping() {
            tracing::info!(
                consumer = turn,
                of = self.consumers.len(),
                "a consumer has left; its records are dealt to nobody, and the others continue"
            );
        }
        Ok(())
    }

    /// Hands over everything that was dealt to the only consumer, and then the end: an empty run that ends no
    /// step. The next record is dealt as the first one was. Returns whether the consumer is there.
    pub(super) fn end_all(&mut self) -> bool {
        self.flush();
        // Nothing is dealt while the thread waits.
        self.span = None;
        self.rank = 0;
        let consumer = &mut self.consumers[0];
        consumer.round_robin = RoundRobin::default();
        consumer.batches += u64::from(std::mem::take(&mut consumer.is_in_batch));
        let is_given = consumer.take_slot(self.shared, 0).and_then(|()| consumer.give(&self.shared.meters));
        is_given.is_ok() && !self.is_stopping()
    }

    /// Hands over partly filled runs.
    pub(super) fn flush(&mut self) {
        for turn in 0..self.consumers.len() {
            if self.consumers[turn].slot.as_ref().is_some_and(|slot| !slot.run.is_empty()) {
                // A consumer that has left does not need it.
                let _ = self.give(turn, false);
            }
        }
    }
}

/// The span of the next run that is handed over, to any consumer.
fn deal_span() -> EnteredSpan {
    tracing::trace_span!(
        target: TARGET, "deal", lane = Empty, batch = Empty, records = Empty, bytes = Empty
    )
    .entered()
}

impl RoundRobin {
    /// Counts one more record; the end of the step if this record completes it.
    fn count(&mut self, batch_size: usize) -> Option<StepEnd> {
        self.dealt += 1;
        if self.dealt < batch_size {
            return None;
        }
        let step = self.steps;
        *self = RoundRobin { dealt: 0, steps: step + 1 };
        Some(StepEnd { epoch: 0, step, is_last: false })
    }
}

impl ConsumerState {
    fn take_slot(&mut self, shared: &Shared, turn: usize) -> Result<(), Disconnected> {
        let slot = shared.meters.free_slot.take(
            || self.end.try_pop(),
            || {
                shared.set_activity(Activity::WaitingFor(turn));
                let _wait = trace::wait("free");
                let slot = self.end.pop();
                shared.set_activity(Activity::Reading);
                slot
            },
        )?;
        self.slot = Some(slot);
        Ok(())
    }

    /// Hands over the run that was filled; returns its records, and the bytes of their values.
    fn give(&mut self, meters: &ReaderMeters) -> Result<(u64, u64), Disconnected> {
        let Some(slot) = self.slot.take() else { return Ok((0, 0)) };
        let (records, bytes) = (slot.run.len() as u64, slot.run.value_bytes() as u64);
        self.end.push(slot)?;
        meters.records.add(records);
        meters.value_bytes.add(bytes);
        Ok((records, bytes))
    }
}
