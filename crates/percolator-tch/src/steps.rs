//! A feed's steps as torch's tensors.

use std::iter::FusedIterator;

use percolator::feed::Steps;
use percolator::snapshot::SnapshotError;
use percolator::{Batch, Feed, Receipt, Snapshot};
use tch::Device;

use crate::device;
use crate::error::TchError;
use crate::tensors::{TchBatch as _, Tensors, check_fields};

/// Gives a feed's steps as torch's tensors.
///
/// ```no_run
/// use percolator::Feed;
/// use percolator_tch::{TchError, TchFeed as _};
/// use tch::{Device, Tensor};
///
/// # fn train(_: &Tensor, _: &Tensor) {}
/// let mut feed = Feed::builder().lmdb("mnist_train_lmdb").labels_i64(true).batch_size(64).build()?;
/// for step in feed.tensors(Device::Cpu)?.take(10_000) {
///     let tensors = step?;
///     train(tensors.get("data")?, tensors.get("label_i64")?);
/// }
/// # Ok::<(), TchError>(())
/// ```
pub trait TchFeed {
    /// Returns an iterator over the steps of a feed that has one lane.
    ///
    /// After [`Feed::take_lanes`] there is no lane left: the first and only step is that error.
    ///
    /// # Errors
    ///
    /// [`TchError`] if the feed has several lanes, if torch does not have the device, or if a field has a
    /// type that tch does not have.
    fn tensors(&mut self, device: Device) -> Result<TensorSteps<'_>, TchError>;

    /// Returns an iterator over the steps of all lanes, the tensors of each on a device of torch's: lane `n`
    /// on `devices[n]`.
    ///
    /// # Errors
    ///
    /// [`TchError`] if there are not as many devices as lanes, if torch does not have one of them, or if a
    /// field has a type that tch does not have.
    fn tensors_on(&mut self, devices: &[Device]) -> Result<TensorStepsOn<'_>, TchError>;
}

impl TchFeed for Feed {
    fn tensors(&mut self, device: Device) -> Result<TensorSteps<'_>, TchError> {
        match self.spec().devices.len() {
            1 => self.tensors_on(&[device]).map(TensorSteps),
            lanes => Err(TchError::Lanes { lanes }),
        }
    }

    fn tensors_on(&mut self, devices: &[Device]) -> Result<TensorStepsOn<'_>, TchError> {
        let lanes = self.spec().devices.len();
        if devices.len() != lanes {
            return Err(TchError::Devices { lanes, devices: devices.len() });
        }
        devices.iter().try_for_each(|&device| device::check(device))?;
        check_fields(self.layout().fields())?;
        Ok(TensorStepsOn { steps: self.steps(), devices: devices.to_vec(), has_failed: false })
    }
}

/// An iterator over the steps of a feed with one lane. See [`TchFeed::tensors`].
#[derive(Debug)]
pub struct TensorSteps<'a>(TensorStepsOn<'a>);

/// An iterator over the steps of all lanes of a feed: the tensors of each, in the order of the lanes. See
/// [`TchFeed::tensors_on`].
///
/// In the last step of a single pass, lanes that have run out are missing: [`Tensors::lane`] tells which are
/// present. After an error there is no further step. If torch refuses a step, that step counts as delivered:
/// resume from a snapshot that was taken before it.
#[derive(Debug)]
pub struct TensorStepsOn<'a> {
    steps: Steps<'a>,
    devices: Vec<Device>,
    has_failed: bool,
}

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

impl Iterator for TensorSteps<'_> {
    type Item = Result<Tensors, TchError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.0.next()?;
        Some(step.map(|mut lanes| lanes.pop().expect("a step has a batch of its only lane")))
    }
}

impl FusedIterator for TensorSteps<'_> {}

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

impl Iterator for TensorStepsOn<'_> {
    type Item = Result<Vec<Tensors>, TchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let at_its_device = |batch: Batch| {
            let device = self.devices[batch.lane()];
            batch.into_tensors(device)
        };
        let step = match self.steps.next()? {
            Ok(batches) => batches.into_iter().map(at_its_device).collect(),
            Err(error) => Err(error.into()),
        };
        self.has_failed = step.is_err();
        Some(step)
    }
}

impl FusedIterator for TensorStepsOn<'_> {}
