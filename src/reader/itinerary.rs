//! Deals the steps of a plan.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::ReaderError;
use super::dealer::{Dealer, NobodyLeft, Step};
use crate::order::{Plan, ReplicaShare};
use crate::record::{RecordId, StepEnd};
use crate::source::{Cursor, Source, SourceError};

/// The steps that a reader deals, and to whom: consumer `i` is replica `first_replica + i` of the plan's job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Itinerary {
    pub(crate) plan: Arc<Plan>,
    pub(crate) first_replica: usize,
    /// The first epoch, and its first step.
    pub(crate) start: (u64, u64),
    /// The epoch that is not dealt any more, if there is one.
    pub(crate) end: Option<u64>,
}

impl fmt::Display for Itinerary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (epoch, step) = self.start;
        write!(
            f,
            "by a plan for {} replicas, from replica {}",
            self.plan.world().replicas(),
            self.first_replica
        )?;
        write!(f, ", step {step} of epoch {epoch} on")?;
        match self.end {
            Some(end) => write!(f, " to the end of epoch {}", end.saturating_sub(1)),
            None => Ok(()),
        }
    }
}

/// A walk that comes to records by their positions.
struct Walk<'a> {
    cursor: Box<dyn Cursor>,
    source: &'a dyn Source,
    is_seekable: bool,
    /// The position that the next step comes to, where that is known: a walk need not begin at the first.
    at: Option<u64>,
    /// The next records of a share, of which the cursor has been told.
    foreseen: VecDeque<RecordId>,
}

/// How many records are passed over on the way to one, and not jumped over: what is read ahead of a walk goes on.
const SKIPPED_MAX: u64 = 16;

/// How many records a cursor is told of before it is sent there.
const FORESEEN: usize = 8;

impl Walk<'_> {
    /// Comes before the record at a position.
    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        let mut at = match self.at {
            Some(at) if at <= position && (position - at <= SKIPPED_MAX || !self.is_seekable) => at,
            _ if self.is_seekable => {
                self.cursor.seek(position)?;
                position
            }
            _ => {
                self.cursor.rewind()?;
                0
            }
        };
        while at < position {
            if !self.cursor.skip()? {
                return Err(self.cut_short(at));
            }
            at += 1;
        }
        // The step that follows comes to the record, or ends everything.
        self.at = Some(position + 1);
        Ok(())
    }

    /// The next record of a share. Those that come soon, and do not follow the one before, are told of.
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

    /// A source that has fewer records than its plan was made for.
    fn cut_short(&self, index: u64) -> SourceError {
        let message = "the database ends, and was said to have more,".to_owned();
        SourceError::Broken { path: self.source.path().to_owned(), index, message }
    }
}

impl Dealer<'_> {
    /// Deals the steps of a plan, until they end or nobody is left.
    pub(super) fn deal_steps(
        &mut self,
        itinerary: &Itinerary,
        source: &dyn Source,
        cursor: Box<dyn Cursor>,
    ) -> Result<(), ReaderError> {
        let is_seekable = source.is_seekable();
        let mut walk = Walk {
            cursor,
            source,
            is_seekable,
            at: (!is_seekable).then_some(0),
            foreseen: VecDeque::with_capacity(FORESEEN),
        };
        // Kept from step to step, lest each allocates.
        let mut shares = Vec::with_capacity(self.consumers());
        let (mut epoch, mut step) = itinerary.start;
        while itinerary.end.is_none_or(|end| epoch < end) {
            let steps = itinerary.plan.steps(epoch)?;
            while step < steps {
                if self.is_stopping() {
                    return Ok(());
                }
                let end = StepEnd { epoch, step, is_last: step + 1 == steps };
                shares.clear();
                for consumer in 0..self.consumers() {
                    shares.push(itinerary.plan.share(epoch, step, itinerary.first_replica + consumer)?);
                }
                let dealt = match itinerary.plan.deals_in_turn() {
                    true => self.deal_in_turn(&mut shares, end, &mut walk)?,
                    false => self.deal_shares(&mut shares, end, &mut walk)?,
                };
                if let Err(NobodyLeft) = dealt {
                    return Ok(());
                }
                step += 1;
            }
            self.epoch_ended(epoch);
            (epoch, step) = (epoch + 1, 0);
        }
        Ok(())
    }

    /// One consumer after the other, for shares each of which lies together.
    fn deal_shares(
        &mut self,
        shares: &mut [ReplicaShare<'_>],
        end: StepEnd,
        walk: &mut Walk<'_>,
    ) -> Result<Result<(), NobodyLeft>, SourceError> {
        for (turn, share) in shares.iter_mut().enumerate() {
            if share.len() == 0
                && let Err(NobodyLeft) = self.deal_nothing(turn, end)
            {
                return Ok(Err(NobodyLeft));
            }
            while let Some(id) = walk.next_of(share) {
                let step = if walk.foreseen.is_empty() { Step::EndsWith(end) } else { Step::GoesOn };
                if let Err(NobodyLeft) = self.deal_from(walk, turn, id, step)? {
                    return Ok(Err(NobodyLeft));
                }
            }
        }
        Ok(Ok(()))
    }

    /// Record by record, for shares that lie between each other.
    fn deal_in_turn(
        &mut self,
        shares: &mut [ReplicaShare<'_>],
        end: StepEnd,
        walk: &mut Walk<'_>,
    ) -> Result<Result<(), NobodyLeft>, SourceError> {
        for (turn, share) in shares.iter().enumerate() {
            if share.len() == 0
                && let Err(NobodyLeft) = self.deal_nothing(turn, end)
            {
                return Ok(Err(NobodyLeft));
            }
        }
        while shares.iter().any(|share| share.len() > 0) {
            for (turn, share) in shares.iter_mut().enumerate() {
                let Some(id) = share.next() else { continue };
                let step = if share.len() == 0 { Step::EndsWith(end) } else { Step::GoesOn };
                if let Err(NobodyLeft) = self.deal_from(walk, turn, id, step)? {
                    return Ok(Err(NobodyLeft));
                }
            }
        }
        Ok(Ok(()))
    }

    /// Deals the record of a name.
    fn deal_from(
        &mut self,
        walk: &mut Walk<'_>,
        turn: usize,
        id: RecordId,
        step: Step,
    ) -> Result<Result<(), NobodyLeft>, SourceError> {
        if self.has_left(turn) {
            self.pass_over();
            return Ok(Ok(()));
        }
        walk.seek(id.index)?;
        match self.deal_next(&mut *walk.cursor, turn, id, step)? {
            Some(dealt) => Ok(dealt),
            None => Err(walk.cut_short(id.index)),
        }
    }
}
