//! Steps: the batches of all devices together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::batch::Batch;
use super::lane::Lane;
use super::progress::{self, Progress};
use crate::error::FeedError;
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
    progress: &'a [Arc<Progress>],
    /// Returned in place of the first step.
    refused: Option<FeedError>,
    ended: bool,
}

impl<'a> Steps<'a> {
    pub(super) fn new(
        lanes: &'a mut [Lane],
        progress: &'a [Arc<Progress>],
        refused: Option<FeedError>,
    ) -> Self {
        Steps { lanes, progress, refused, ended: false }
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

    /// Returns what was handed over since the last call, as a receipt of its own, and begins another; `None`
    /// if [receipts](crate::FeedBuilder::receipts) are off. Those of all calls together are what one receipt
    /// would be.
    #[must_use]
    pub fn take_receipt(&mut self) -> Option<Receipt> {
        progress::take_receipt(self.progress)
    }
}

impl Steps<'_> {
    /// Waits until the next step is complete, or there is an error, or the end, but no longer than this.
    /// Returns whether it is so: then [`next`](Self::next) does not wait. Nothing is taken. Otherwise the
    /// same as [`Lane::wait_timeout`].
    pub fn wait_timeout(&mut self, timeout: Duration) -> bool {
        if self.ended || self.refused.is_some() {
            return true;
        }
        let until = Instant::now().checked_add(timeout);
        waiting(self.lanes, |lanes| {
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

impl Iterator for Steps<'_> {
    type Item = Result<Vec<Batch>, FeedError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        if let Some(error) = self.refused.take() {
            self.ended = true;
            return Some(Err(error));
        }
        let taken = take_step(self.lanes);
        // If one lane fails, nobody gets the batches of the others.
        for (lane, batch) in self.lanes.iter().zip(taken.iter().flatten()) {
            batch.iter().for_each(|batch| lane.note(batch));
        }
        let step: Result<Vec<Batch>, FeedError> = taken.map(|taken| taken.into_iter().flatten().collect());
        self.ended = step.as_ref().map_or(true, Vec::is_empty);
        if step.is_err() {
            // Another step would be the next one for some lanes only: those that had a batch of this one have
            // lost it.
            self.lanes.iter_mut().for_each(Lane::end);
        }
        match step {
            Ok(batches) if batches.is_empty() => None,
            step => Some(step),
        }
    }
}

impl std::iter::FusedIterator for Steps<'_> {}

/// Takes the next batch of every lane, or none from a lane that has ended, or the first error.
pub(crate) fn take_step(lanes: &mut [Lane]) -> Result<Vec<Option<Batch>>, FeedError> {
    waiting(lanes, |lanes| lanes.iter_mut().map(|lane| lane.next_uncounted().transpose()).collect())
}

/// Counts what `wait` does as a wait of all lanes, if one of them would wait: one thread waits for all,
/// whichever is polled first.
fn waiting<T>(lanes: &mut [Lane], wait: impl FnOnce(&mut [Lane]) -> T) -> T {
    let meters: Vec<_> = lanes.iter().filter(|lane| !lane.ended).map(|lane| lane.meters.clone()).collect();
    // If the consumer holds all batches of one lane, it waits for itself, whatever the others have.
    let is_for_itself = lanes.iter().any(Lane::would_wait_for_itself);
    let must_wait = is_for_itself || lanes.iter().any(Lane::would_wait);
    let waits = meters.iter().filter(|_| must_wait);
    let _waits: Vec<_> = waits.map(|meters| meters.of_consumer(is_for_itself).begin()).collect();
    wait(lanes)
}
