//! A feed with one device as an iterator: over all its batches, or over one epoch's.

use super::batch::Batch;
use super::config::ConfigError;
use super::error::FeedError;
use super::lane::Lane;
use super::{Feed, Steps};
use crate::order::Epochs;
use crate::snapshot::{DealtBy, RoundRobin};

/// An iterator over the batches of one epoch of a feed with one device. See [`Feed::epoch`].
#[derive(Debug)]
pub struct Epoch<'a> {
    steps: Steps<'a>,
    is_over: bool,
}

impl Feed {
    /// Returns an iterator over one epoch of a feed with one device. The next call returns the next epoch.
    /// After the last epoch that the feed was [built for](crate::FeedBuilder::epochs), it starts again with
    /// the first: a feed of one epoch, or of a [single pass](crate::Epochs::OnePass), delivers the same
    /// batches at each call, as validation needs.
    ///
    /// When it starts again, threads and buffers stay, and statistics go on, without the time in between; a
    /// new receipt is begun. Batches that are still held are missing from the ring. Until it is dropped, a
    /// feed that has ended keeps its memory and its database for that. A feed that
    /// [resumed](crate::FeedBuilder::resume) in the middle [seeks](Self::seek) the first time, and one of a
    /// list with a `rand_skip` each time, which takes new threads and buffers.
    ///
    /// A call after the last epoch waits until the reader has come to the end. Only what comes next shows
    /// whether a single pass in round-robin order is over: if one was begun, the call waits for the next
    /// batch, or for the end.
    ///
    /// If the iterator is dropped early, the next call continues with the rest of its epoch. An epoch may
    /// have no batch, in two cases: a run that [resumes](crate::FeedBuilder::resume) as another job has less
    /// than a step of it and drops that, or batches wrap and a step is larger than an epoch.
    ///
    /// ```no_run
    /// use percolator::{Epochs, Feed};
    ///
    /// let validation = Feed::builder().lmdb("val_lmdb").batch_size(50).epochs(Epochs::OnePass);
    /// let mut validation = validation.build()?;
    /// for round in 0..10 {
    ///     for batch in validation.epoch()? {
    ///         let batch = batch?;
    ///         // ... the same batches in every round
    ///         # let _ = (round, batch);
    ///     }
    /// }
    /// # Ok::<(), percolator::FeedError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`FeedError`] if the feed has no [epochs](crate::FeedBuilder::epochs), or several devices, if its
    /// lanes were taken, if its steps come in [blocks](crate::FeedBuilder::blocks), or if it cannot start
    /// again. If the database was committed to since it began,
    /// [`SourceError::Committed`](crate::source::SourceError). If one of its batches was an error, or the
    /// last [seek](Self::seek) failed, that error: no epoch comes after it.
    pub fn epoch(&mut self) -> Result<Epoch<'_>, FeedError> {
        self.check_single()?;
        if self.facts.has_blocks {
            return Err(ConfigError::WithBlocks { option: "epoch" }.into());
        }
        let lane = match self.lanes.as_deref_mut() {
            Ok([lane, ..]) => lane,
            Ok([]) => return Err(FeedError::LanesTaken),
            Err(error) => return Err(error.clone()),
        };
        if let Some(error) = &lane.error {
            return Err(error.clone());
        }
        if let DealtBy::RoundRobin(RoundRobin { passes: None, .. }) = self.facts.dealt_by {
            return Err(ConfigError::NeedsEpochs { option: "epoch()", order: Epochs::RoundRobin }.into());
        }
        let next = lane.progress.next().1;
        let mut empty_epoch = None;
        let is_over = match &self.facts.dealt_by {
            DealtBy::Plan(plan) => {
                let epoch = next.epoch.max(self.empty_epoch.map_or(0, |epoch| epoch + 1));
                let is_over = self.facts.end.is_some_and(|end| epoch >= end.epoch);
                if !is_over && plan.steps(epoch).map_err(ConfigError::Order)? == 0 {
                    empty_epoch = Some(epoch);
                }
                is_over
            }
            // The number of records may be unknown.
            DealtBy::RoundRobin(RoundRobin { passes, .. }) => {
                passes.is_some() && (lane.ended || next.step > 0 && lane.is_at_end())
            }
        };
        if is_over && lane.can_repeat {
            lane.begin_again()?;
            self.empty_epoch = None;
        } else if is_over {
            self.seek((0, 0))?;
        } else if empty_epoch.is_some() {
            self.empty_epoch = empty_epoch;
        }
        Ok(Epoch { steps: self.steps(), is_over: empty_epoch.is_some() })
    }

    fn check_single(&self) -> Result<(), FeedError> {
        match self.builder.spec.devices.len() {
            1 => Ok(()),
            devices => Err(ConfigError::SeveralLanes { devices }.into()),
        }
    }
}

impl Epoch<'_> {
    /// Returns whether nothing more comes, as far as that is known without waiting. An epoch without a batch
    /// has ended from the start.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.is_over
    }
}

impl Iterator for Epoch<'_> {
    type Item = Result<Batch, FeedError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let batch = self.steps.next_batch();
        self.is_over = match &batch {
            Some(Ok(batch)) => batch.step().is_some_and(|step| step.is_last),
            Some(Err(_)) | None => true,
        };
        batch
    }
}

impl std::iter::FusedIterator for Epoch<'_> {}

/// An iterator over all batches of a feed with one device.
#[derive(Debug)]
pub struct IntoBatches {
    lane: Option<Lane>,
    /// Returned instead of the first batch.
    refused: Option<FeedError>,
    /// Kept as long as the iterator.
    feed: Feed,
}

/// Iterates over the batches of a feed with one device. A feed with several yields an error instead: use its
/// steps or its lanes.
///
/// ```no_run
/// use percolator::{Epochs, Feed};
///
/// let feed = Feed::builder().lmdb("mnist_train_lmdb").batch_size(64).epochs(Epochs::OnePass);
/// for batch in feed.build()? {
///     let batch = batch?;
///     println!("{} labels", batch.labels()?.len());
/// }
/// # Ok::<(), percolator::FeedError>(())
/// ```
impl IntoIterator for Feed {
    type Item = Result<Batch, FeedError>;
    type IntoIter = IntoBatches;

    fn into_iter(mut self) -> IntoBatches {
        let lane = self.check_single().and_then(|()| Ok(self.take_lanes()?.pop()));
        match lane {
            Ok(lane) => IntoBatches { lane, refused: None, feed: self },
            Err(error) => IntoBatches { lane: None, refused: Some(error), feed: self },
        }
    }
}

impl IntoBatches {
    /// Returns the feed, for its statistics, snapshots and receipts.
    #[must_use]
    pub fn feed(&self) -> &Feed {
        &self.feed
    }
}

impl Iterator for IntoBatches {
    type Item = Result<Batch, FeedError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.refused.take() {
            Some(error) => Some(Err(error)),
            None => self.lane.as_mut()?.next(),
        }
    }
}

impl std::iter::FusedIterator for IntoBatches {}
