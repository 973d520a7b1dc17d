//! Steps whose batches become something else: the tensors of a framework.

use super::Feed;
use super::batch::Batch;
use super::config::ConfigError;
use super::error::FeedError;
use super::steps::Steps;
use crate::batch::field::{Field, FieldError, find};
use crate::receipt::Receipt;
use crate::snapshot::{Snapshot, SnapshotError};

/// Makes something of each batch of a feed, such as the tensors of a framework, on a device for each lane.
pub trait Maker {
    /// What it makes.
    type Made;
    /// What it fails with.
    type Error: From<FeedError>;

    /// Checks the fields of a feed before its first step is taken, because that step would be lost.
    ///
    /// # Errors
    ///
    /// The error of a field that nothing can be made of.
    fn check(&self, _fields: &[Field]) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Makes something of a batch.
    ///
    /// # Errors
    ///
    /// Why it cannot. No further steps follow.
    fn make(&self, batch: Batch) -> Result<Self::Made, Self::Error>;
}

/// A maker that can leave fields out: one to which a field that nobody needs has a cost, such as a copy.
pub trait SelectiveMaker: Maker<Error: From<FieldError>> {
    /// Leaves out all fields but these.
    fn only(&mut self, fields: Vec<String>);
}

/// An iterator over the steps of a feed: what was made of the batches of a step, in the order of the lanes.
///
/// In the last step of a single pass, lanes that have run out are missing. After an error there are no
/// further steps. If nothing can be made of a batch, its step counts as delivered: resume from a snapshot
/// that was taken before it.
#[derive(Debug)]
pub struct MadeSteps<'a, M> {
    fields: Vec<Field>,
    steps: Steps<'a>,
    maker: M,
    is_checked: bool,
    has_ended: bool,
}

/// The same for a feed with one lane: what was made of its batches.
#[derive(Debug)]
pub struct MadeBatches<'a, M>(MadeSteps<'a, M>);

impl<'a, M: Maker> MadeSteps<'a, M> {
    /// Begins with the next step of a feed, whose lanes have so many devices. `maker` is called once it is
    /// known that there is one for each.
    ///
    /// # Errors
    ///
    /// [`ConfigError::DevicesOfLanes`] if there is not one device for each lane; the error of `maker`.
    pub fn of(
        feed: &'a mut Feed,
        devices: usize,
        maker: impl FnOnce(&Feed) -> Result<M, M::Error>,
    ) -> Result<Self, M::Error> {
        let lanes = feed.spec().devices.len();
        if devices != lanes {
            return Err(FeedError::from(ConfigError::DevicesOfLanes { lanes, devices }).into());
        }
        let maker = maker(feed)?;
        let fields = feed.layout().fields().to_vec();
        Ok(MadeSteps { fields, steps: feed.steps(), maker, is_checked: false, has_ended: false })
    }

    /// Leaves out all fields but these, with their offsets or lengths.
    ///
    /// # Errors
    ///
    /// [`FieldError::Unknown`] if the feed has not one of them.
    pub fn only<'n>(mut self, fields: impl IntoIterator<Item = &'n str>) -> Result<Self, M::Error>
    where
        M: SelectiveMaker,
    {
        let known = |name: &str| find(&self.fields, name).map(|_| name.to_owned());
        let fields = fields.into_iter().map(known).collect::<Result<Vec<_>, FieldError>>()?;
        self.maker.only(fields);
        Ok(self)
    }

    /// Returns where the run is, after the step that was handed over last: see [`Feed::snapshot`].
    ///
    /// # Errors
    ///
    /// As [`Feed::snapshot`].
    pub fn snapshot(&self) -> Result<Snapshot, SnapshotError> {
        self.steps.snapshot()
    }

    /// Returns what was handed over since the last call, and begins another receipt: see
    /// [`Steps::take_receipt`].
    #[must_use]
    pub fn take_receipt(&mut self) -> Option<Receipt> {
        self.steps.take_receipt()
    }

    fn step(&mut self) -> Option<Result<Vec<M::Made>, M::Error>> {
        if !std::mem::replace(&mut self.is_checked, true)
            && let Err(error) = self.maker.check(&self.fields)
        {
            return Some(Err(error));
        }
        Some(match self.steps.next()? {
            Ok(batches) => batches.into_iter().map(|batch| self.maker.make(batch)).collect(),
            Err(error) => Err(error.into()),
        })
    }
}

impl<M: Maker> Iterator for MadeSteps<'_, M> {
    type Item = Result<Vec<M::Made>, M::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let step = self.step();
        self.has_ended = !matches!(step, Some(Ok(_)));
        step
    }
}

impl<M: Maker> std::iter::FusedIterator for MadeSteps<'_, M> {}

impl<'a, M: Maker> MadeBatches<'a, M> {
    /// Begins with the next step of a feed. `maker` is called once it is known that the feed has one lane.
    ///
    /// # Errors
    ///
    /// [`ConfigError::BatchesOfOneLane`] if the feed has several lanes; the error of `maker`.
    pub fn of(
        feed: &'a mut Feed,
        maker: impl FnOnce(&Feed) -> Result<M, M::Error>,
    ) -> Result<Self, M::Error> {
        match feed.spec().devices.len() {
            1 => MadeSteps::of(feed, 1, maker).map(MadeBatches),
            lanes => Err(FeedError::from(ConfigError::BatchesOfOneLane { lanes }).into()),
        }
    }

    /// Leaves out all fields but these: see [`MadeSteps::only`].
    ///
    /// # Errors
    ///
    /// As [`MadeSteps::only`].
    pub fn only<'n>(self, fields: impl IntoIterator<Item = &'n str>) -> Result<Self, M::Error>
    where
        M: SelectiveMaker,
    {
        self.0.only(fields).map(MadeBatches)
    }

    /// Returns where the run is: see [`MadeSteps::snapshot`].
    ///
    /// # Errors
    ///
    /// As [`MadeSteps::snapshot`].
    pub fn snapshot(&self) -> Result<Snapshot, SnapshotError> {
        self.0.snapshot()
    }

    /// Returns what was handed over since the last call: see [`MadeSteps::take_receipt`].
    #[must_use]
    pub fn take_receipt(&mut self) -> Option<Receipt> {
        self.0.take_receipt()
    }
}

impl<M: Maker> Iterator for MadeBatches<'_, M> {
    type Item = Result<M::Made, M::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        // In a feed with one lane, a step has one batch.
        self.0.next().and_then(|step| step.map(|mut made| made.pop()).transpose())
    }
}

impl<M: Maker> std::iter::FusedIterator for MadeBatches<'_, M> {}
