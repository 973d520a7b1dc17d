//! How a lane ends: with its records, by a fault in the data, by its device, or with the whole feed. What
//! comes before the end is handed over first, and nothing new is begun, unless all records are dealt again.

use super::frontier::Clearance;
use super::{BatchInput, ConsumerGone, Prefetcher};
use crate::bad::BadCount;
use crate::feed::FeedError;
use crate::record::StepId;
use crate::transform::Draws;
use percolator_files::shown;

/// Where a lane begins.
pub(crate) struct Start {
    pub(crate) next: StepId,
    pub(crate) draws: Draws,
}

/// Why a lane begins no more batches, and what comes after those that it has begun.
pub(super) enum Ending {
    /// Its records have ended.
    Source,
    /// Something in the data, at this step.
    Data(StepId, FeedError),
    /// The same: the frontier knows, and says what ends the lane.
    Known,
    /// Its device, or something that ends the whole feed independently of the data.
    Now(FeedError),
}

impl Prefetcher {
    /// Hands over the batches that the frontier has passed. Returns the lane's outcome when there is no more
    /// to do.
    pub(super) fn hand_over(&mut self) -> Result<Option<Result<(), FeedError>>, ConsumerGone> {
        self.tell_ending();
        loop {
            let has_ended =
                self.state.in_flight.is_empty() && matches!(self.state.ending, Some(Ending::Source));
            let first = self.state.submitted.front().map(|(at, _)| *at);
            let at = first.unwrap_or_else(|| self.state.next_complete());
            let has_failed = matches!(self.state.ending, Some(Ending::Known));
            match self.feed.frontier.look(at, first.is_some() || has_ended || has_failed) {
                Clearance::Cleared => match self.state.submitted.pop_front() {
                    Some((_, batch)) => self.deliver(batch)?,
                    None if has_ended => return Ok(Some(Ok(()))),
                    None => break,
                },
                Clearance::NotYet => break,
                Clearance::Over(error) => {
                    tracing::info!(error = %shown::with_sources(&error), "the feed ends");
                    self.abandon();
                    return Ok(Some(Err(error)));
                }
            }
        }
        match &self.state.ending {
            Some(Ending::Now(error)) if self.state.in_flight.is_empty() => {
                if let FeedError::Device(_) = error {
                    if !self.state.submitted.is_empty() {
                        return Ok(None);
                    }
                    tracing::info!(error = %shown::with_sources(error), "the lane ends; the others continue");
                    return Ok(Some(Err(error.clone())));
                }
                if self.feed.first_error.set(error.clone()) {
                    tracing::info!(error = %shown::with_sources(error), "the feed ends");
                }
                Ok(Some(Err(self.feed.first_error.get().unwrap_or_else(|| error.clone()))))
            }
            _ => Ok(None),
        }
    }

    /// Tells the frontier that no more batches are completed, once it is so.
    fn tell_ending(&mut self) {
        if !self.state.in_flight.is_empty() {
            return;
        }
        match self.state.ending.take() {
            // Only now: a batch that was in flight may have failed because of an earlier record.
            Some(Ending::Data(at, error)) => {
                self.feed.frontier.fail(at, error);
                self.state.ending = Some(Ending::Known);
            }
            Some(ending @ (Ending::Source | Ending::Now(_))) => {
                self.feed.frontier.withdraw();
                self.state.ending = Some(ending);
            }
            ending => self.state.ending = ending,
        }
    }

    /// Handles the end of the reader. The last batch may be short; if the reader ended with an error, the
    /// records of an incomplete batch are discarded.
    pub(super) fn runs_ended(&mut self) {
        self.state.runs_over = true;
        if self.state.ending.is_some() {
            return;
        }
        let BatchInput::Dealt(dealt) = &self.input else { return };
        match dealt.reader.error() {
            Some(error) => self.fail(error.into()),
            None => self.records_ended(),
        }
    }

    /// Completes the last batch.
    pub(super) fn records_ended(&mut self) {
        if self.state.early.is_empty() {
            self.close_batch(None);
        } else {
            self.begin_and_close(None);
        }
        self.state.ending.get_or_insert(Ending::Source);
    }

    /// Makes the lane what it was before its first record, if its records can be dealt again. The ring stays.
    pub(super) fn return_to_start(&mut self) -> bool {
        let BatchInput::Dealt(dealt) = &mut self.input else { return false };
        let Some(Start { next, draws }) = dealt.start.as_ref().filter(|_| !self.state.runs_over) else {
            return false;
        };
        dealt.draws = draws.clone();
        dealt.tolerance.count = BadCount::default();
        self.state.next = *next;
        self.feed.frontier.advance(*next);
        self.state.ending = None;
        self.state.is_at_start = true;
        self.batches.layout = self.batches.first_layout.clone();
        true
    }

    /// Ends the lane with an error at the batch that comes next, once what is in flight is complete.
    pub(super) fn fail(&mut self, error: FeedError) {
        self.fail_at(self.state.next, error);
    }

    /// Ends the lane with an error at this step, once what is in flight is complete. It replaces an error of
    /// a later batch, but not what ends the whole feed at once.
    pub(super) fn fail_at(&mut self, at: StepId, error: FeedError) {
        self.close_ring();
        let ends_all = |error: &FeedError| {
            matches!(error, FeedError::Panicked { .. } | FeedError::Cancelled | FeedError::AllHeld { .. })
        };
        match &self.state.ending {
            Some(Ending::Now(before)) if ends_all(before) => {}
            _ if ends_all(&error) || matches!(error, FeedError::Device(_)) => {
                self.state.ending = Some(Ending::Now(error));
            }
            _ => self.state.ending = Some(Ending::Data(at, error)),
        }
    }

    /// Discards what is neither complete nor in flight.
    fn close_ring(&mut self) {
        self.ring.0.close();
        if let Some((header, filling)) = self.state.open.take() {
            self.state.abandoned.push((header, Box::new(filling)));
        }
        self.state.run = None;
        if let BatchInput::Supplied(line) = &mut self.input {
            let given = line.close().into_iter();
            self.state.abandoned.extend(given.map(|header| (header, Box::new(()) as Box<dyn Send>)));
        }
    }

    /// Discards all batches that were not handed over.
    fn abandon(&mut self) {
        self.close_ring();
        self.abandon_in_flight();
        let submitted = self.state.submitted.drain(..).map(|(_, batch)| batch.into_slot());
        self.state.resting.extend(submitted);
    }

    pub(super) fn abandon_in_flight(&mut self) {
        while let Some((_, header, pending)) = self.state.in_flight.pop_front() {
            self.state.abandoned.push((header, Box::new(pending)));
        }
    }
}
