//! The frontier of a feed: the first step that one of its lanes has yet to complete.
//!
//! A lane hands over a batch only when the frontier has passed it: when every lane that goes on has completed
//! its batch of that step. So the end of a feed is a function of the data (docs/design.md, "Where a feed
//! ends"): no batch is delivered that another lane's error should precede. The same holds for the end of a
//! lane that has no more records.
//!
//! # Why every wait here ends
//!
//! - The lanes at the frontier wait only for the source, the workers, and their own devices and consumers.
//!   They wait for no lane that is ahead of them: the reader deals one step after another, so when it waits
//!   for such a lane, it deals a later step, and has dealt all of the frontier's.
//! - A lane that completes no more batches says so and is no longer waited for: it has ended, its device has
//!   failed, or its consumer has left.
//! - A lane that has found an error goes on taking records, and drops them, until the others have reached its
//!   step.

use std::sync::Arc;

use crate::base::sync::{Mutex, Receiver, Sender, bounded};
use crate::feed::FeedError;
use crate::record::{RecordId, StepId};

/// How far the lanes of a feed are.
#[derive(Debug)]
pub(crate) struct Frontier(Mutex<Lanes>);

#[derive(Debug)]
struct Lanes {
    lanes: Vec<LaneState>,
    /// What ends the feed, as far as the lanes know.
    failure: Option<Failure>,
}

#[derive(Debug)]
struct LaneState {
    /// The first step that it has yet to complete; `None` if it completes no more.
    next: Option<StepId>,
    /// The step of the batch that it waits to hand over, if it waits: it is woken when the frontier moves.
    waits: Option<StepId>,
    wake: Sender<()>,
}

#[derive(Debug)]
struct Failure {
    at: StepId,
    lane: usize,
    error: FeedError,
}

impl Failure {
    /// Of several, the least ends the feed. In one step, a record's error comes before the reader's, because
    /// the reader reached that record first.
    fn rank(&self) -> (StepId, bool, Option<RecordId>, usize) {
        let id = match &self.error {
            FeedError::Record(error) => Some(error.id),
            FeedError::TooManyBad(error) => Some(error.record.id),
            _ => None,
        };
        (self.at, matches!(self.error, FeedError::Reader(_)), id, self.lane)
    }
}

impl Lanes {
    /// `None` if no lane completes any more batches.
    fn frontier(&self) -> Option<StepId> {
        self.lanes.iter().filter_map(|lane| lane.next).min()
    }

    /// The failure that ends the feed, if no lane can find an earlier one.
    fn end(&self) -> Option<&Failure> {
        let frontier = self.frontier();
        self.failure.as_ref().filter(|failure| frontier.is_none_or(|frontier| failure.at < frontier))
    }
}

impl Frontier {
    /// The frontier of lanes that begin at these steps, and each lane's part of it.
    pub(crate) fn of(starts: impl IntoIterator<Item = StepId>) -> Vec<LaneFrontier> {
        let (lanes, wakes): (Vec<_>, Vec<_>) = starts
            .into_iter()
            .map(|start| {
                let (wake, woken) = bounded(1);
                (LaneState { next: Some(start), waits: None, wake }, woken)
            })
            .unzip();
        let frontier = Arc::new(Frontier(Mutex::new(Lanes { lanes, failure: None })));
        let part = |(lane, woken)| LaneFrontier { frontier: frontier.clone(), lane, woken };
        wakes.into_iter().enumerate().map(part).collect()
    }

    /// The lane that is furthest behind, if this one waits to hand over a batch, or its end, until that has
    /// completed its own of the step.
    pub(crate) fn behind(&self, lane: usize) -> Option<usize> {
        let lanes = self.0.lock();
        let waits = lanes.lanes[lane].waits?;
        let steps = lanes.lanes.iter().enumerate().filter_map(|(number, lane)| Some((lane.next?, number)));
        let (last, number) = steps.min()?;
        (last <= waits && number != lane).then_some(number)
    }

    fn change(&self, change: impl FnOnce(&mut Lanes)) {
        let mut lanes = self.0.lock();
        let before = (lanes.frontier(), lanes.end().is_some());
        change(&mut lanes);
        let ends = lanes.end().is_some();
        if (lanes.frontier(), ends) == before {
            return;
        }
        for lane in &mut lanes.lanes {
            if lane.waits.is_some() || ends {
                // If there is no room, it has not yet taken the previous message.
                let _ = lane.wake.try_send(());
            }
        }
    }
}

/// Whether a lane may hand something over.
pub(crate) enum Clearance {
    /// The frontier has passed it.
    Cleared,
    /// Another lane has to complete its batch first.
    NotYet,
    /// The feed ended before it, with this error.
    Over(FeedError),
}

/// A lane's part of the frontier. Dropping it says that the lane completes no more batches.
#[derive(Debug)]
pub(crate) struct LaneFrontier {
    frontier: Arc<Frontier>,
    lane: usize,
    /// Receives a message when the lane should check again.
    woken: Receiver<()>,
}

impl LaneFrontier {
    /// All lanes' frontier.
    pub(crate) fn shared(&self) -> &Arc<Frontier> {
        &self.frontier
    }

    pub(crate) fn woken(&self) -> &Receiver<()> {
        &self.woken
    }

    /// The lane has completed its batches of all steps before this one.
    pub(crate) fn advance(&self, next: StepId) {
        self.frontier.change(|lanes| lanes.lanes[self.lane].next = Some(next));
    }

    /// The lane completes no more batches.
    pub(crate) fn withdraw(&self) {
        self.frontier.change(|lanes| lanes.lanes[self.lane].next = None);
    }

    /// This ends the feed, unless something earlier does. The lane has completed all batches before it.
    pub(crate) fn fail(&self, at: StepId, error: FeedError) {
        let failure = Failure { at, lane: self.lane, error };
        self.frontier.change(|lanes| {
            lanes.lanes[self.lane].next = None;
            if lanes.failure.as_ref().is_none_or(|first| failure.rank() < first.rank()) {
                lanes.failure = Some(failure);
            }
        });
    }

    /// Whether the lane may hand over its batch of this step, or its end there. If it `waits` to do so, it is
    /// woken.
    pub(crate) fn look(&self, step: StepId, waits: bool) -> Clearance {
        let mut lanes = self.frontier.0.lock();
        if let Some(failure) = lanes.end().filter(|failure| failure.at <= step) {
            return Clearance::Over(failure.error.clone());
        }
        let is_before = |other: StepId| step < other;
        let is_cleared = lanes.frontier().is_none_or(is_before)
            && lanes.failure.as_ref().is_none_or(|failure| is_before(failure.at));
        lanes.lanes[self.lane].waits = (waits && !is_cleared).then_some(step);
        if is_cleared { Clearance::Cleared } else { Clearance::NotYet }
    }
}

impl Drop for LaneFrontier {
    fn drop(&mut self) {
        self.withdraw();
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use std::io;

    use super::*;

    fn step(step: u64) -> StepId {
        StepId { epoch: 0, step }
    }

    fn said(name: &str) -> FeedError {
        FeedError::Thread { name: name.to_owned(), source: io::Error::other("on purpose").into() }
    }

    #[test]
    fn a_batch_is_cleared_when_every_lane_has_completed_its_own() {
        let lanes = Frontier::of([step(0), step(0), step(2)]);
        lanes[0].advance(step(1));
        assert!(matches!(lanes[0].look(step(0), true), Clearance::NotYet));
        assert_eq!([0, 1, 2].map(|lane| lanes[0].shared().behind(lane)), [Some(1), None, None]);
        assert!(lanes[0].woken().try_recv().is_err());
        lanes[1].advance(step(1));
        assert!(lanes[0].woken().try_recv().is_ok(), "it waited");
        assert!(lanes[1].woken().try_recv().is_err(), "it did not");
        assert!(matches!(lanes[0].look(step(0), true), Clearance::Cleared));
        assert!(matches!(lanes[0].look(step(1), true), Clearance::NotYet), "its own is not complete");
        assert_eq!(lanes[0].shared().behind(0), None, "it does not wait any more");
        // Lane 0 has ended, and waits to say so.
        lanes[0].withdraw();
        assert!(matches!(lanes[0].look(step(1), true), Clearance::NotYet));
        assert_eq!(lanes[0].shared().behind(0), Some(1));
        lanes[1].withdraw();
        assert!(matches!(lanes[0].look(step(1), true), Clearance::Cleared), "lane 2 is further ahead");
        assert_eq!(lanes[0].shared().behind(0), None);
        drop(lanes.into_iter().nth(2));
    }

    #[test]
    fn the_first_failure_ends_all_lanes_when_none_can_come_before_it() {
        let lanes = Frontier::of([step(0), step(0), step(0)]);
        lanes[0].advance(step(3));
        lanes[0].fail(step(3), said("late"));
        assert!(matches!(lanes[0].look(step(3), false), Clearance::NotYet), "others may fail before");
        lanes[1].advance(step(1));
        lanes[1].fail(step(1), said("early"));
        assert!(matches!(lanes[1].look(step(1), false), Clearance::NotYet));
        lanes[2].advance(step(1));
        assert!(matches!(lanes[0].look(step(0), false), Clearance::Cleared));
        assert!(matches!(lanes[0].look(step(1), false), Clearance::NotYet), "lane 2 may fail in step 1");
        lanes[2].advance(step(2));
        for lane in &lanes {
            assert!(lane.woken().try_recv().is_ok());
            assert!(matches!(lane.look(step(0), false), Clearance::Cleared));
            for at in 1..4 {
                assert!(
                    matches!(lane.look(step(at), false), Clearance::Over(error) if error == said("early"))
                );
            }
        }
    }
}
