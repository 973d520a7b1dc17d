//! Steps: the batches of all devices together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::error::FeedError;
use super::lane::Lane;
use super::progress::{self, LaneProgress};
use crate::base::meter::{Wait, WaitMeter};
use crate::receipt::Receipt;
use crate::snapshot::{Snapshot, SnapshotError};

/// An iterator over the steps of a feed's lanes. See [`Feed::steps`](super::Feed::steps).
///
/// A step is the next batch of every lane, in the order of the lanes. In the last step of a single pass,
/// lanes that have run out are missing: [`Batch::lane`] tells which are present. The wait for a step counts
/// for all of its lanes.
#[derive(Debug)]
pub struct Steps<'a> {
    lanes: &'a mut [Lane],
    progress: &'a [Arc<LaneProgress>],
    /// Returned instead of the first step.
    refused: Option<FeedError>,
    ended: bool,
    /// Room for the waits of a step.
    waits: Vec<Wait<Arc<WaitMeter>>>,
}

impl<'a> Steps<'a> {
    pub(super) fn new(
        lanes: &'a mut [Lane],
        progress: &'a [Arc<LaneProgress>],
        refused: Option<FeedError>,
    ) -> Self {
        Steps { lanes, progress, refused, ended: false, waits: Vec::new() }
    }
}

impl Steps<'_> {
    /// Returns where the run is, after the step that was handed over last: see
    /// [`Feed::snapshot`](super::Feed::snapshot).
    ///
    /// # Errors
    ///
    /// As [`Feed::snapshot`](super::Feed::snapshot).
    pub fn snapshot(&self) -> Result<Snapshot, SnapshotError> {
        progress::snapshot(self.progress)
    }

    /// Returns what was handed over since the last call, as a separate receipt, and begins a new one; `None`
    /// if [receipts](crate::FeedBuilder::receipts) are off. The receipts of all calls together equal a single
    /// receipt.
    #[must_use]
    pub fn take_receipt(&mut self) -> Option<Receipt> {
        progress::take_receipt(self.progress)
    }
}

impl Steps<'_> {
    /// Waits until the next step is complete, or there is an error, or the end, but no longer than this.
    /// Returns whether that is the case: then [`next`](Self::next) does not wait. Nothing is taken. Otherwise
    /// the same as [`Lane::wait_timeout`].
    pub fn wait_timeout(&mut self, timeout: Duration) -> bool {
        if self.ended || self.refused.is_some() {
            return true;
        }
        let until = Instant::now().checked_add(timeout);
        waiting(self.lanes, &mut self.waits, |lanes| {
            if !wait_for_held(lanes, until) {
                return false;
            }
            for lane in lanes {
                if !lane.wait_until(until) {
                    return false;
                }
                // The step ends with it, whatever the other lanes wait for.
                if lane.has_failed() {
                    break;
                }
            }
            true
        })
    }
}

impl Steps<'_> {
    /// The next batch of a feed with one lane: a step without a vector around it.
    pub(super) fn next_batch(&mut self) -> Option<Result<Batch, FeedError>> {
        if self.ended {
            return None;
        }
        if let Some(error) = self.refusal() {
            return Some(Err(error));
        }
        let taken = waiting(self.lanes, &mut self.waits, |lanes| lanes.first_mut()?.next_uncounted());
        self.ended = !matches!(taken, Some(Ok(_)));
        for lane in &mut *self.lanes {
            match &taken {
                Some(Ok(batch)) => lane.count_delivered(batch),
                Some(Err(_)) => lane.end(),
                None => {}
            }
        }
        taken
    }

    /// The error that is returned instead of the first step, if there is one. Then nothing follows.
    fn refusal(&mut self) -> Option<FeedError> {
        self.ended = self.refused.is_some();
        self.refused.take()
    }
}

impl Iterator for Steps<'_> {
    type Item = Result<Vec<Batch>, FeedError>;

    /// Allocates only the step's vector.
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        if let Some(error) = self.refusal() {
            return Some(Err(error));
        }
        let step = waiting(self.lanes, &mut self.waits, |lanes| {
            wait_for_held(lanes, None);
            let mut step = Vec::with_capacity(lanes.len());
            for lane in lanes {
                if let Some(batch) = lane.next_uncounted() {
                    step.push(batch?);
                }
            }
            Ok(step)
        });
        self.ended = step.as_ref().map_or(true, Vec::is_empty);
        match &step {
            Ok(step) => {
                // In the order of the lanes, of which some may have ended.
                let mut batches = step.iter().peekable();
                for lane in &*self.lanes {
                    if let Some(batch) = batches.next_if(|batch| batch.lane() == lane.number()) {
                        lane.count_delivered(batch);
                    }
                }
            }
            // If one lane fails, the batches of the others are not handed over. Another step would be the
            // next one for some lanes only: those that had a batch of this one have lost it.
            Err(_) => self.lanes.iter_mut().for_each(Lane::end),
        }
        match step {
            Ok(batches) if batches.is_empty() => None,
            step => Some(step),
        }
    }
}

impl std::iter::FusedIterator for Steps<'_> {}

/// Takes the next batch of every lane, or none from a lane that has ended. This is for code that hands over
/// the batches of several feeds as one step, or none of them: they count as delivered only once each is given
/// to [`Lane::count_delivered`].
///
/// # Errors
///
/// The first error of a lane. The batches of the others go back to their lanes, and do not count; all lanes
/// end, because another step would be the next one for only some of them.
pub fn take_step(lanes: &mut [Lane]) -> Result<Vec<Option<Batch>>, FeedError> {
    let next = |lane: &mut Lane| lane.next_uncounted().transpose();
    let taken: Result<Vec<_>, _> = waiting(lanes, &mut Vec::new(), |lanes| {
        wait_for_held(lanes, None);
        lanes.iter_mut().map(next).collect()
    });
    if taken.is_err() {
        lanes.iter_mut().for_each(Lane::end);
    }
    taken
}

/// Waits first for a lane all of whose batches the consumer holds, if there is one, until a moment or for
/// ever; returns whether the next batch is there. The other lanes get nothing before that lane completes its
/// batch, and only a wait for that lane can end with the error that says so.
fn wait_for_held(lanes: &mut [Lane], until: Option<Instant>) -> bool {
    lanes.iter_mut().find(|lane| lane.would_wait_for_itself()).is_none_or(|lane| lane.wait_until(until))
}

/// Counts the time of `wait` as a wait of all lanes, if one of them would wait: one thread waits for all,
/// whichever is polled first. `waits` is empty, and its memory is reused.
fn waiting<T>(
    lanes: &mut [Lane],
    waits: &mut Vec<Wait<Arc<WaitMeter>>>,
    wait: impl FnOnce(&mut [Lane]) -> T,
) -> T {
    // If the consumer holds all batches of one lane, it waits for itself, whatever the others have.
    let is_for_itself = lanes.iter().any(Lane::would_wait_for_itself);
    if is_for_itself || lanes.iter().any(Lane::would_wait) {
        let waiting = lanes.iter().filter(|lane| !lane.ended);
        waits.extend(waiting.map(|lane| lane.meters.of_consumer(is_for_itself).begin_owned()));
    }
    let waited = wait(lanes);
    waits.clear();
    waited
}
