//! Walks a source and deals its records.
//!
//! **The law of dealing.** Records are counted from the start and never again: global record `g` is
//! record `g mod M` of the database and goes to consumer `g mod N`, in the order in which the consumers
//! registered. The count does not restart at the end of a pass, so where `N` does not divide `M` the
//! records a consumer sees shift from pass to pass, as Caffe's do. Where this reader's consumers are but
//! some of the ranks of a larger job, `N` is the size of the job, and the other ranks' records are passed
//! over.
//!
//! Records travel in runs, but which record goes where is decided one by one: a run only changes how many
//! are handed over at once.

use std::sync::Arc;

use super::ReaderError;
use super::body::{Activity, ReaderMeters, Share, Shared, Terms};
use super::outstanding::Outstanding;
use super::queue_pair::{Left, ReaderEnd, Slot};
use crate::errand::Helpers;
use crate::record::RecordId;
use crate::source::{ChecksSeals, Cursor, Run, Source, SourceError};

/// A consumer as the dealer sees it.
struct Hand {
    /// Before `slot`, so that a slot dropped with its hand finds its pair closed.
    end: ReaderEnd,
    /// The run being dealt.
    slot: Option<Slot>,
    /// Records dealt into the batch that the consumer is at.
    dealt: usize,
    left: bool,
}

/// Deals records to hands, one by one, round and round.
pub(super) struct Dealer<'a> {
    shared: &'a Shared,
    hands: Vec<Hand>,
    share: Share,
    /// The rank whose turn it is.
    rank: usize,
    /// The runs that are out, where the walk wants to know.
    outstanding: Option<Outstanding>,
}

/// Why dealing stopped before the source ended.
struct NobodyLeft;

impl<'a> Dealer<'a> {
    pub(super) fn new(shared: &'a Shared, ends: Vec<ReaderEnd>) -> Self {
        let hands = ends.into_iter().map(|end| Hand { end, slot: None, dealt: 0, left: false }).collect();
        Dealer { shared, hands, share: shared.terms.share(), rank: 0, outstanding: None }
    }

    /// Walks the source until it has passed as often as was asked, or nobody is left.
    pub(super) fn deal_all(
        &mut self,
        source: &dyn Source,
        helpers: Option<Arc<dyn Helpers>>,
    ) -> Result<(), ReaderError> {
        let shared = self.shared;
        if shared.is_stopping() {
            return Ok(());
        }
        shared.set_activity(Activity::Reading);
        let mut cursor = self.open(source, helpers)?;
        let mut epoch = 0;
        while shared.terms.passes.is_none_or(|passes| epoch < passes.get()) {
            let mut index = 0;
            loop {
                if shared.is_stopping() {
                    return Ok(());
                }
                // A rank below the first wraps to a number that no hand has.
                let turn = self.rank.wrapping_sub(self.share.first);
                let hand = self.hands.get(turn);
                if hand.is_some_and(|hand| !hand.left) {
                    let Some(entry) = cursor.advance()? else { break };
                    let id = RecordId { epoch, index };
                    // A run of one record takes a large value over together with its buffer.
                    let dealt = match entry.is_whole() && shared.pool.run_records == 1 {
                        true => self.deal(turn, |run| {
                            assert!(cursor.give(id, run), "a value that fills its buffer can be given");
                        }),
                        false => self.deal(turn, |run| run.push(id, entry)),
                    };
                    if let Err(NobodyLeft) = dealt {
                        return Ok(());
                    }
                    if let Some(outstanding) = &self.outstanding {
                        cursor.dealt(outstanding.dealt());
                    }
                } else {
                    let has_left = hand.is_some();
                    if !cursor.skip()? {
                        break;
                    }
                    shared.meters.undelivered.add(u64::from(has_left));
                }
                self.rank = if self.rank + 1 == self.share.of { 0 } else { self.rank + 1 };
                index += 1;
            }
            if index == 0 {
                return Err(SourceError::Empty { path: source.path().to_owned() }.into());
            }
            epoch += 1;
            shared.meters.passes.add(1);
            tracing::debug!(epoch, records = index, "the end of a pass over the source");
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
            true => source.sealing_cursor(ChecksSeals::promised(helpers))?,
            false => source.cursor()?,
        };
        if drops_behind && cursor.drop_behind() {
            self.outstanding = Some(Outstanding::of(self.shared.pool.runs * self.hands.len()));
        } else if drops_behind {
            tracing::warn!(
                source = %source.path().display(),
                "drop_behind has no effect on this source: it is for LMDB and LevelDB, on Linux"
            );
        }
        Ok(cursor)
    }

    /// Deals the record that `add` adds to a run.
    fn deal(&mut self, turn: usize, add: impl FnOnce(&mut Run)) -> Result<(), NobodyLeft> {
        let shared = self.shared;
        let hand = &mut self.hands[turn];
        if hand.slot.is_none() && hand.take_slot(shared, turn).is_err() {
            return self.see_off(turn, 1);
        }
        let slot = hand.slot.as_mut().expect("a slot was taken just now");
        if let Some(outstanding) = self.outstanding.as_mut().filter(|_| slot.run.is_empty()) {
            // What it was filled with before has come back with it.
            if let Some(before) = slot.number.take() {
                outstanding.end(before);
            }
            slot.number = Some(outstanding.begin(turn));
        }
        add(&mut slot.run);
        hand.dealt += 1;
        let batch_is_full = hand.dealt == shared.terms.batch_size;
        if batch_is_full || slot.run.len() == shared.pool.run_records {
            hand.dealt = if batch_is_full { 0 } else { hand.dealt };
            let records = slot.run.len();
            if hand.give(&shared.meters).is_err() {
                return self.see_off(turn, records as u64);
            }
        }
        Ok(())
    }

    /// A consumer has left. Its share is dealt to nobody from now on, so that the others' shares stay
    /// what they were. `lost` records were in hand for it.
    fn see_off(&mut self, turn: usize, lost: u64) -> Result<(), NobodyLeft> {
        self.hands[turn].left = true;
        if let Some(outstanding) = &mut self.outstanding {
            outstanding.see_off(turn);
        }
        if self.hands.iter().all(|hand| hand.left) {
            return Err(NobodyLeft);
        }
        self.shared.meters.undelivered.add(lost);
        if !self.shared.is_stopping() {
            tracing::info!(
                consumer = turn,
                of = self.hands.len(),
                "a consumer has left; its records are dealt to nobody, the others go on"
            );
        }
        Ok(())
    }

    /// Gives what is in hand, however little.
    pub(super) fn flush(&mut self) {
        for hand in &mut self.hands {
            if hand.slot.as_ref().is_some_and(|slot| !slot.run.is_empty()) {
                // Whoever has left does not want it.
                let _ = hand.give(&self.shared.meters);
            }
        }
    }
}

impl Hand {
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
