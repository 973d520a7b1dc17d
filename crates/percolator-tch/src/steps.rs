//! A feed's steps as torch's tensors.

use percolator::feed::{MadeBatches, MadeSteps, Maker};
use percolator::{Batch, Feed};
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
    /// [`TchError`] if the feed has several lanes, for which [`tensors_on`](Self::tensors_on) is, if torch
    /// does not have the device, or if a field has a type that tch does not have.
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
        MadeBatches::of(self, |feed| TensorMaker::new(feed, &[device]))
    }

    fn tensors_on(&mut self, devices: &[Device]) -> Result<TensorStepsOn<'_>, TchError> {
        MadeSteps::of(self, devices.len(), |feed| TensorMaker::new(feed, devices))
    }
}

/// An iterator over the steps of a feed with one lane. See [`TchFeed::tensors`].
pub type TensorSteps<'a> = MadeBatches<'a, TensorMaker>;

/// An iterator over the steps of all lanes of a feed: the tensors of each, in the order of the lanes. See
/// [`TchFeed::tensors_on`].
///
/// In the last step of a single pass, lanes that have run out are missing: [`Tensors::lane`] tells which are
/// present. After an error there is no further step. If torch refuses a step, that step counts as delivered:
/// resume from a snapshot that was taken before it.
pub type TensorStepsOn<'a> = MadeSteps<'a, TensorMaker>;

/// Makes tensors, on a device for each lane.
#[derive(Debug)]
pub struct TensorMaker(Vec<Device>);

impl TensorMaker {
    fn new(feed: &Feed, devices: &[Device]) -> Result<Self, TchError> {
        devices.iter().try_for_each(|&device| device::check(device))?;
        check_fields(feed.layout().fields())?;
        Ok(TensorMaker(devices.to_vec()))
    }
}

impl Maker for TensorMaker {
    type Made = Tensors;
    type Error = TchError;

    fn make(&self, batch: Batch) -> Result<Tensors, TchError> {
        let device = self.0[batch.lane()];
        batch.into_tensors(device)
    }
}
