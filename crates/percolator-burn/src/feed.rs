//! A feed as steps of tensors, for custom training loops.

use burn_core::tensor::Device;
use percolator::feed::{MadeBatches, MadeSteps, Maker};
use percolator::{Batch, Feed};

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
    /// [`BurnError::Feed`] if the feed has several lanes, for which [`tensors_on`](Self::tensors_on) is.
    fn tensors(&mut self, device: &Device) -> Result<TensorSteps<'_>, BurnError>;

    /// Returns an iterator over the steps of all lanes: each has the tensors of the next batch of every lane,
    /// in the order of the lanes, on the lane's device. In the last step of a single pass, lanes that have
    /// run out are missing: [`Tensors::lane`] tells which are present.
    ///
    /// # Errors
    ///
    /// [`BurnError::Feed`] if there is not one device for each lane.
    fn tensors_on(&mut self, devices: &[Device]) -> Result<TensorStepsOn<'_>, BurnError>;
}

impl BurnFeed for Feed {
    fn tensors(&mut self, device: &Device) -> Result<TensorSteps<'_>, BurnError> {
        MadeBatches::of(self, |_| Ok(TensorMaker(vec![device.clone()])))
    }

    fn tensors_on(&mut self, devices: &[Device]) -> Result<TensorStepsOn<'_>, BurnError> {
        MadeSteps::of(self, devices.len(), |_| Ok(TensorMaker(devices.to_vec())))
    }
}

/// An iterator over the steps of a feed with one lane. See [`BurnFeed::tensors`].
pub type TensorSteps<'a> = MadeBatches<'a, TensorMaker>;

/// An iterator over the steps of a feed with any number of lanes. See [`BurnFeed::tensors_on`].
///
/// If a lane's device fails on the way, the step counts as delivered: resume from a snapshot that was taken
/// before it.
pub type TensorStepsOn<'a> = MadeSteps<'a, TensorMaker>;

/// Makes tensors, on a device for each lane.
#[derive(Debug)]
pub struct TensorMaker(Vec<Device>);

impl Maker for TensorMaker {
    type Made = Tensors;
    type Error = BurnError;

    fn make(&self, batch: Batch) -> Result<Tensors, BurnError> {
        let device = &self.0[batch.lane()];
        batch.into_tensors(device)
    }
}
