//! One epoch of a loader, as burn iterates over it.

use std::collections::VecDeque;
use std::fmt;

use burn_core::data::dataloader::{DataLoaderIterator, Progress};
use burn_core::data::dataset::DatasetError;
use percolator::Batch;

use super::FeedLoader;
use super::source::Session;
use crate::error::BurnError;
use crate::tensors::BurnBatch as _;

/// An iterator over the batches of one epoch.
pub(super) struct EpochItems<'a, O> {
    loader: &'a FeedLoader<O>,
    /// `None` once the epoch is over.
    session: Option<Session>,
    /// Batches of the present step that have not been handed over.
    batches: VecDeque<Batch>,
    /// Returned instead of the first item.
    refused: Option<BurnError>,
    items_processed: usize,
    items_total: usize,
}

impl<'a, O> EpochItems<'a, O> {
    pub(super) fn begin(loader: &'a FeedLoader<O>) -> Self {
        let (session, refused) = match loader.source().and_then(Session::begin) {
            Ok(session) => (Some(session), None),
            Err(error) => (None, Some(error)),
        };
        let items_processed = session.as_ref().map_or(0, |session| session.items_before);
        let items_total = session.as_ref().map_or_else(|| loader.items(), |session| session.extent.items);
        let mut items =
            EpochItems { loader, session, batches: VecDeque::new(), refused, items_processed, items_total };
        // A part may have no items.
        items.finish_if_over();
        items
    }

    /// The next batch that has rows, and `None` after the last one.
    fn next_batch(&mut self) -> Option<Result<Batch, BurnError>> {
        while self.batches.is_empty() {
            let session = self.session.as_mut()?;
            match session.feed.steps().next() {
                Some(Ok(step)) => {
                    let ends = step.iter().filter_map(Batch::step);
                    session.at = ends.map(|end| end.next()).max().unwrap_or(session.at);
                    self.items_processed += step.iter().map(skipped).sum::<usize>();
                    // A lane may get nothing at the end of an epoch, or bad records alone.
                    self.batches.extend(step.into_iter().filter(|batch| batch.rows() > 0));
                    self.finish_if_over();
                }
                Some(Err(error)) => {
                    self.session.take()?.fail(error.clone());
                    return Some(Err(error.into()));
                }
                None => return Some(Err(self.ended_early())),
            }
        }
        let batch = self.batches.pop_front()?;
        self.items_processed += batch.len();
        self.finish_if_over();
        Some(Ok(batch))
    }

    /// Gives the feed back once the last batch has been taken from it.
    fn finish_if_over(&mut self) {
        let is_over = |session: &Session| {
            let extent = &session.extent;
            session.at.epoch != extent.epoch || session.at.step >= extent.steps.end
        };
        if self.batches.is_empty()
            && let Some(session) = self.session.take_if(|session| is_over(session))
        {
            session.finish();
        }
    }

    /// The feed has nothing more, although its plan has. The loader begins this epoch again, with a new feed:
    /// one that ended where it began would not be sought.
    fn ended_early(&mut self) -> BurnError {
        let epoch = self.session.as_ref().map_or(0, |session| session.extent.epoch);
        if let Some(session) = self.session.take() {
            session.discard();
        }
        BurnError::EndedEarly { epoch, delivered: self.items_processed, items: self.items_total }
    }
}

impl<O> Iterator for EpochItems<'_, O> {
    type Item = Result<O, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = match self.refused.take() {
            Some(error) => Err(error),
            None => self.next_batch()?,
        };
        let item = batch.and_then(|batch| {
            let tensors = batch.into_tensors(&self.loader.device)?;
            (self.loader.batcher)(tensors)
        });
        Some(item.map_err(DatasetError::new))
    }
}

impl<O> DataLoaderIterator<O> for EpochItems<'_, O> {
    fn progress(&self) -> Progress {
        Progress::new(self.items_processed, self.items_total, Some("items".to_owned()))
    }
}

impl<O> Drop for EpochItems<'_, O> {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            session.abandon();
        }
    }
}

impl<O> fmt::Debug for EpochItems<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EpochItems")
            .field("items_processed", &self.items_processed)
            .field("items_total", &self.items_total)
            .finish_non_exhaustive()
    }
}

/// The number of bad records that the batch leaves out: items that were skipped.
fn skipped(batch: &Batch) -> usize {
    batch.bad_records().iter().filter(|bad| bad.replaced_by.is_none()).count()
}
