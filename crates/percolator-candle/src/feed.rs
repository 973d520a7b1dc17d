//! A feed as steps of tensors.

use candle_core::Device;
use percolator::snapshot::SnapshotError;
use percolator::{Batch, Feed, Field, Receipt, Snapshot, Steps};

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
    /// [`CandleError::Lanes`] if the feed has several lanes; [`CandleError::NotBuilt`] if this build has no
    /// such device.
    fn tensors(&mut self, device: &Device) -> Result<TensorSteps<'_>, CandleError>;

    /// Returns an iterator over the steps of all lanes: each has the tensors of the next batch of every lane,
    /// in the order of the lanes, on the lane's device. In the last step of a single pass, lanes that have
    /// run out are missing: [`Tensors::lane`] tells which are present.
    ///
    /// # Errors
    ///
    /// [`CandleError::Devices`] if there is not one device for each lane; [`CandleError::NotBuilt`] if this
    /// build has not one of them.
    fn tensors_on(&mut self, devices: &[Device]) -> Result<TensorStepsOn<'_>, CandleError>;
}

impl CandleFeed for Feed {
    fn tensors(&mut self, device: &Device) -> Result<TensorSteps<'_>, CandleError> {
        match self.spec().devices.len() {
            1 => Ok(TensorSteps(self.tensors_on(std::slice::from_ref(device))?)),
            lanes => Err(CandleError::Lanes { lanes }),
        }
    }

    fn tensors_on(&mut self, devices: &[Device]) -> Result<TensorStepsOn<'_>, CandleError> {
        let lanes = self.spec().devices.len();
        if devices.len() != lanes {
            return Err(CandleError::Devices { lanes, devices: devices.len() });
        }
        devices.iter().try_for_each(check)?;
        let fields = self.layout().fields().to_vec();
        let (devices, wanted) = (devices.to_vec(), None);
        Ok(TensorStepsOn { steps: self.steps(), devices, fields, wanted, state: State::Unchecked })
    }
}

/// An iterator over the steps of a feed with one lane. See [`CandleFeed::tensors`].
#[derive(Debug)]
pub struct TensorSteps<'a>(TensorStepsOn<'a>);

impl TensorSteps<'_> {
    /// Copies only these fields of a batch, with their offsets or lengths.
    ///
    /// # Errors
    ///
    /// [`CandleError::Unknown`] if the feed has not one of them.
    pub fn only<'n>(self, fields: impl IntoIterator<Item = &'n str>) -> Result<Self, CandleError> {
        self.0.only(fields).map(TensorSteps)
    }

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
    type Item = Result<Tensors, CandleError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = self.0.next()?;
        Some(step.map(|mut lanes| lanes.pop().expect("a step has the batch of one lane at least")))
    }
}

impl std::iter::FusedIterator for TensorSteps<'_> {}

/// An iterator over the steps of a feed with any number of lanes. See [`CandleFeed::tensors_on`].
///
/// If a copy fails, its step counts as delivered: resume from a snapshot that was taken before it.
#[derive(Debug)]
pub struct TensorStepsOn<'a> {
    steps: Steps<'a>,
    /// One for each lane.
    devices: Vec<Device>,
    /// The fields of a batch.
    fields: Vec<Field>,
    /// The names of the fields that are copied; `None` is all.
    wanted: Option<Vec<String>>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is not known whether candle has the types of all fields.
    Unchecked,
    Running,
    Ended,
}

impl TensorStepsOn<'_> {
    /// Copies only these fields of a batch, with their offsets or lengths.
    ///
    /// # Errors
    ///
    /// [`CandleError::Unknown`] if the feed has not one of them.
    pub fn only<'n>(self, fields: impl IntoIterator<Item = &'n str>) -> Result<Self, CandleError> {
        let mut wanted = Vec::new();
        for name in fields {
            if !self.fields.iter().any(|field| field.name() == name) {
                return Err(CandleError::unknown(name, self.fields.iter().map(Field::name)));
            }
            wanted.push(name.to_owned());
        }
        Ok(TensorStepsOn { wanted: Some(wanted), ..self })
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

    /// Whether an array is copied: that of a wanted field, or its offsets or lengths. No field's name has a
    /// dot.
    fn is_wanted(&self, array: &str) -> bool {
        let field = array.split_once('.').map_or(array, |(field, _)| field);
        self.wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|name| name == field))
    }

    /// Refuses types that candle does not have, and fields that the host does not have, before a step is
    /// taken from the feed, because that step would be lost.
    fn check(&self) -> Result<(), CandleError> {
        let is_host_read = !self.devices.iter().all(|device| matches!(device, Device::Cuda(_)));
        let mut wanted = self.fields.iter().filter(|field| self.is_wanted(field.name()));
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
    fn copy(&self, batch: Batch) -> Result<Tensors, CandleError> {
        let tensors = copies(&batch, &self.devices[batch.lane()], &|array| self.is_wanted(array))?;
        Ok(Tensors::new(&batch, tensors))
    }

    fn step(&mut self) -> Option<Result<Vec<Tensors>, CandleError>> {
        if self.state == State::Unchecked
            && let Err(error) = self.check()
        {
            return Some(Err(error));
        }
        match self.steps.next()? {
            Ok(batches) => Some(batches.into_iter().map(|batch| self.copy(batch)).collect()),
            Err(error) => Some(Err(error.into())),
        }
    }
}

/// After an error there are no further steps.
impl Iterator for TensorStepsOn<'_> {
    type Item = Result<Vec<Tensors>, CandleError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.state == State::Ended {
            return None;
        }
        let step = self.step();
        self.state = if matches!(step, Some(Ok(_))) { State::Running } else { State::Ended };
        step
    }
}

impl std::iter::FusedIterator for TensorStepsOn<'_> {}
