//! A feed as steps of tensors.

use candle_core::Device;
use percolator::feed::{MadeBatches, MadeSteps, Maker, SelectiveMaker};
use percolator::{Batch, Feed, Field};

use crate::batch::{check, copies};
use crate::dtype;
use crate::error::CandleError;
use crate::tensors::Tensors;

/// A [`Feed`] as candle's tensors, step by step.
///
/// ```no_run
/// use candle_core::Device;
/// use percolator::Feed;
/// use percolator_candle::{CandleError, CandleFeed as _};
///
/// fn main() -> Result<(), CandleError> {
///     let device = Device::Cpu;
///     let mut feed = Feed::builder().lmdb("mnist_train_lmdb").batch_size(64).epochs(10).build()?;
///     for step in feed.tensors(&device)? {
///         let step = step?;
///         let (images, labels) = (step.get("data")?, step.get("label")?);
///         println!("{:?} {:?}", images.shape(), labels.shape());
///     }
///     Ok(())
/// }
/// ```
pub trait CandleFeed {
    /// Returns an iterator over the steps of a feed with one lane: each is the lane's next batch as tensors
    /// on the device.
    ///
    /// The memory of a batch returns to its lane before its tensors are handed over (on a GPU: once the
    /// copies are done), so any number of tensors may be kept.
    ///
    /// # Errors
    ///
    /// [`CandleError::Feed`] if the feed has several lanes, for which [`tensors_on`](Self::tensors_on) is;
    /// [`CandleError::NotBuilt`] if this build has no such device.
    fn tensors(&mut self, device: &Device) -> Result<TensorSteps<'_>, CandleError>;

    /// Returns an iterator over the steps of all lanes: each has the tensors of the next batch of every lane,
    /// in the order of the lanes, on the lane's device. In the last step of a single pass, lanes that have
    /// run out are missing: [`Tensors::lane`] tells which are present.
    ///
    /// # Errors
    ///
    /// [`CandleError::Feed`] if there is not one device for each lane; [`CandleError::NotBuilt`] if this
    /// build has not one of them.
    fn tensors_on(&mut self, devices: &[Device]) -> Result<TensorStepsOn<'_>, CandleError>;
}

impl CandleFeed for Feed {
    fn tensors(&mut self, device: &Device) -> Result<TensorSteps<'_>, CandleError> {
        MadeBatches::of(self, |_| TensorMaker::new(std::slice::from_ref(device)))
    }

    fn tensors_on(&mut self, devices: &[Device]) -> Result<TensorStepsOn<'_>, CandleError> {
        MadeSteps::of(self, devices.len(), |_| TensorMaker::new(devices))
    }
}

/// An iterator over the steps of a feed with one lane. See [`CandleFeed::tensors`].
pub type TensorSteps<'a> = MadeBatches<'a, TensorMaker>;

/// An iterator over the steps of a feed with any number of lanes. See [`CandleFeed::tensors_on`].
///
/// If a copy fails, its step counts as delivered: resume from a snapshot that was taken before it.
pub type TensorStepsOn<'a> = MadeSteps<'a, TensorMaker>;

/// Copies batches, on a device for each lane.
#[derive(Debug)]
pub struct TensorMaker {
    /// One for each lane.
    devices: Vec<Device>,
    /// The names of the fields that are copied; `None` is all.
    wanted: Option<Vec<String>>,
}

impl TensorMaker {
    fn new(devices: &[Device]) -> Result<Self, CandleError> {
        devices.iter().try_for_each(check)?;
        Ok(TensorMaker { devices: devices.to_vec(), wanted: None })
    }

    /// Whether an array is copied: that of a wanted field, or its offsets or lengths. No field's name has a
    /// dot.
    fn is_wanted(&self, array: &str) -> bool {
        let field = array.split_once('.').map_or(array, |(field, _)| field);
        self.wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|name| name == field))
    }
}

impl Maker for TensorMaker {
    type Made = Tensors;
    type Error = CandleError;

    /// Refuses types that candle does not have, and fields that the host does not have.
    fn check(&self, fields: &[Field]) -> Result<(), CandleError> {
        let is_host_read = !self.devices.iter().all(|device| matches!(device, Device::Cuda(_)));
        let mut wanted = fields.iter().filter(|field| self.is_wanted(field.name()));
        wanted.try_for_each(|field| {
            let made = field.made_on_device();
            if is_host_read && made.is_some() {
                return Err(CandleError::OnDevice { field: field.name().to_owned() });
            }
            let dtype = made.map_or(field.dtype(), |made| made.dtype);
            dtype::of(field.name(), dtype).map(|_| ())
        })
    }

    /// Copies a batch, and drops it.
    fn make(&self, batch: Batch) -> Result<Tensors, CandleError> {
        let tensors = copies(&batch, &self.devices[batch.lane()], &|array| self.is_wanted(array))?;
        Ok(Tensors::new(&batch, tensors))
    }
}

impl SelectiveMaker for TensorMaker {
    fn only(&mut self, fields: Vec<String>) {
        self.wanted = Some(fields);
    }
}
