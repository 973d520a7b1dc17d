//! A feed as steps of tensors, for custom training loops.

use burn_core::tensor::Device;
use percolator::snapshot::SnapshotError;
use percolator::{Feed, Receipt, Snapshot, Steps};

use crate::error::BurnError;
use crate::tensors::{BurnBatch as _, Tensors};

/// A [`Feed`] as burn's tensors, step by step.
///
/// ```no_run
/// use burn::tensor::Device;
/// use percolator::Feed;
/// use percolator_burn::{BurnError, BurnFeed as _};
///
/// fn main() -> Result<(), BurnError> {
///     let device = Device::flex();
///     let mut feed = Feed::builder().lmdb("mnist_train_lmdb").batch_size(64).epochs(10).build()?;
///     for step in feed.tensors(&device)? {
///         let step = step?;
///         let (images, labels) = (step.get::<4>("data")?, step.get_int::<1>("label")?);
///         println!("{:?} {:?}", images.dims(), labels.dims());
///     }
///     Ok(())
/// }
/// ```
pub trait BurnFeed {
    /// Returns an iterator over the steps of a feed with one lane: each is the lane's next batch, as tensors
    /// on the device.
    ///
    /// # Errors
    ///
    /// [`BurnError::Lanes`] if the feed has several lanes.
    fn tensors(&mut self, device: &Device) -> Result<TensorSteps<'_>, BurnError>;

    /// Returns an iterator over the steps of all lanes: each has the tensors of the next batch of every lane,
    /// in the order of the lanes, on the lane's device. In the last step of a single pass, lanes that have
    /// run out are missing: [`Tensors::lane`] tells which are present.
    ///
    /// # Errors
    ///
    /// [`BurnError::Devices`] if there is not one device for each lane.
    fn tensors_on(&mut self, devices: &[Device]) -> Result<TensorStepsOn<'_>, BurnError>;
}

impl BurnFeed for Feed {
    fn tensors(&mut self, device: &Device) -> Result<TensorSteps<'_>, BurnError> {
        match self.spec().devices.len() {
            1 => Ok(TensorSteps(self.tensors_on(std::slice::from_ref(device))?)),
            lanes => Err(BurnError::Lanes { lanes }),
        }
    }

    fn tensors_on(&mut self, devices: &[Device]) -> Result<TensorStepsOn<'_>, BurnError> {
        let lanes = self.spec().devices.len();
        if devices.len() != lanes {
            return Err(BurnError::Devices { lanes, devices: devices.len() });
        }
        Ok(TensorStepsOn { steps: self.steps(), devices: devices.to_vec(), has_failed: false })
    }
}

/// An iterator over the steps of a feed with one lane. See [`BurnFeed::tensors`].
#[derive(Debug)]
pub struct TensorSteps<'a>(TensorStepsOn<'a>);

impl TensorSteps<'_> {
    /// Returns where the run is, after the step that was handed over last: see [`Feed::snapshot`].
    ///
    /// # Errors
    ///
    /// As [`Feed::snapshot`].
    pub fn snapshot(&self) -> Result<Snapshot, SnapshotError> {
        self.0.snapshot()
    }

    /// Returns what was handed over since the last call, and begins another receipt: see
    /// [`Steps::take_receipt`].
    #[must_use]
    pub fn take_receipt(&mut self) -> Option<Receipt> {
        self.0.take_receipt()
    }
}

/// After an error there are no further steps.
impl Iterator for TensorSteps<'_> {
    type Item = Result<Tensors, BurnError>;

    fn next(&mut self) -> Option<Self::Item> {
        // In a feed with one lane, a step has one batch.
        self.0.next().and_then(|step| step.map(|mut tensors| tensors.pop()).transpose())
    }
}

impl std::iter::FusedIterator for TensorSteps<'_> {}

/// An iterator over the steps of a feed with any number of lanes. See [`BurnFeed::tensors_on`].
///
/// If a lane's device fails on the way, the step counts as delivered: resume from a snapshot that was taken
/// before it.
#[derive(Debug)]
pub struct TensorStepsOn<'a> {
    steps: Steps<'a>,
    devices: Vec<Device>,
    has_failed: bool,
}

impl TensorStepsOn<'_> {
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
}

/// After an error there are no further steps.
impl Iterator for TensorStepsOn<'_> {
    type Item = Result<Vec<Tensors>, BurnError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let step = self.steps.next()?.map_err(BurnError::from).and_then(|batches| {
            batches
                .into_iter()
                .map(|batch| {
                    let device = &self.devices[batch.lane()];
                    batch.into_tensors(device)
                })
                .collect()
        });
        self.has_failed = step.is_err();
        Some(step)
    }
}

impl std::iter::FusedIterator for TensorStepsOn<'_> {}
