//! A batch, as a training loop gets it.

use std::fmt;
use std::sync::Arc;

use super::view::{FieldView, Ragged, Values};
use crate::bad::BadRecord;
use crate::base::return_queue::ReturnQueue;
use crate::base::shape::{BatchShape, Element};
use crate::batch::Filled;
use crate::batch::field::{Field, FieldError, FieldKey};
use crate::decoder::image::name;
use crate::device::{DeviceError, Event, HostArray, HostBatch, Transfer};
use crate::prefetch::{Delivered, LaneMeters, Returned, give_back};
use crate::receipt::content::ContentHash;
use crate::record::{RecordId, StepEnd};

/// A batch, complete and in order. Dropping it, on any thread, returns its memory to the lane, which fills it
/// again: hold it only as long as you read it. The drop never waits.
pub struct Batch {
    /// `Some` until the drop.
    delivered: Option<Delivered>,
    lane: usize,
    returns: ReturnQueue<Returned>,
    meters: Arc<LaneMeters>,
}

impl Batch {
    pub(super) fn new(
        delivered: Delivered,
        lane: usize,
        returns: &ReturnQueue<Returned>,
        meters: &Arc<LaneMeters>,
    ) -> Self {
        Batch { delivered: Some(delivered), lane, returns: returns.clone(), meters: meters.clone() }
    }

    fn delivered(&self) -> &Delivered {
        self.delivered.as_ref().expect("the batch is taken only by the drop")
    }

    pub(super) fn filled(&self) -> &Filled {
        &self.delivered().filled
    }

    /// Returns the number of the lane that delivered it.
    #[must_use]
    pub fn lane(&self) -> usize {
        self.lane
    }

    /// Returns its fields, in the order in which they were declared.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        self.filled().layout().fields()
    }

    /// Returns one of its fields, with its elements on the host.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if it has no such field.
    pub fn field(&self, field: impl FieldKey) -> Result<FieldView<'_>, FieldError> {
        FieldView::of(self.filled(), field)
    }

    /// Returns its arrays on the host, in the order of their fields: the elements of each, and after those of
    /// a ragged or padded field, `FIELD.offsets` or `FIELD.lengths`.
    pub fn arrays(&self) -> impl ExactSizeIterator<Item = HostArray<'_>> {
        HostBatch::new(self.filled()).arrays()
    }

    /// Returns the elements of a field on the host, records one after the other, with their shape. A
    /// [padded](Field::padded) field includes its padding.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if it has no such field, one of another type, or one that is [ragged](Self::ragged).
    pub fn get<T: Element>(&self, field: impl FieldKey) -> Result<Values<'_, T>, FieldError> {
        self.field(field)?.get()
    }

    /// Returns the elements of a ragged field on the host, and where each record's elements start.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if it has no such field, one of another type, or one that is not ragged.
    pub fn ragged<T: Element>(&self, field: impl FieldKey) -> Result<Ragged<'_, T>, FieldError> {
        self.field(field)?.ragged()
    }

    /// Returns the shape, layout and type of its pixels as its consumer gets them: on the host, or on the
    /// device if the device [transforms](crate::FeedBuilder::transform_on) them. For a batch without images,
    /// it is that of its first field, whose elements count as the channels of one pixel.
    #[must_use]
    pub fn shape(&self) -> BatchShape {
        self.filled().image_shape()
    }

    /// Returns the shape, layout and type of the pixels on the host. They differ from [`shape`](Self::shape)
    /// if the device transforms the pixels: then these are the records' windows, as they were sent.
    #[must_use]
    pub fn host_shape(&self) -> BatchShape {
        self.fields()[0].image_shape(self.rows())
    }

    /// Returns the number of rows of its arrays: its [records](Self::len), and the padding after them.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.filled().rows()
    }

    /// Returns the number of records in it: the batch size, or fewer at the end of an epoch or if [bad
    /// records](Self::bad_records) were left out. A batch that was [padded](crate::LastBatch::Pad) has more
    /// rows than that: those from `len()` on are zeros on the host, not records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records().len()
    }

    /// Whether it has no records. At the end of an epoch a replica may get none while others still have some.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns which of its rows are records, not padding: `true` for the first [`len`](Self::len), then
    /// `false`.
    pub fn mask(&self) -> impl ExactSizeIterator<Item = bool> {
        let records = self.len();
        (0..self.rows()).map(move |row| row < records)
    }

    /// Returns the step that it is the lane's share of, and whether that step is the last of its epoch. It is
    /// `None` for the short batch at the end of a [single pass](crate::Epochs::OnePass), and for a batch that
    /// [stands in](crate::Lane::empty_batch) for a lane that has ended before others of its job.
    #[must_use]
    pub fn step(&self) -> Option<StepEnd> {
        self.delivered().header.step
    }

    /// Returns the pixels of images on the host, in the order of [`BatchShape::dims`] of the
    /// [`host_shape`](Self::host_shape), without gaps. Reads the field named `data`.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if the feed was built for another type, or if the device makes the elements of this
    /// type: the host's pixels, which are not transformed, are available as [`bytes`](Self::bytes).
    pub fn pixels<T: Element>(&self) -> Result<&[T], FieldError> {
        Ok(self.get(name::DATA)?.into_slice())
    }

    /// Returns the shape of its targets, if the feed has [targets](crate::FeedBuilder::target).
    #[must_use]
    pub fn target_shape(&self) -> Option<BatchShape> {
        let target = self.fields().iter().find(|field| field.name() == name::TARGET)?;
        Some(target.image_shape(self.rows()))
    }

    /// Returns the elements of its targets, in the order of [`target_shape`](Self::target_shape), without
    /// gaps. Reads the field named `target`.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if the feed has no targets, or if they are of another type.
    pub fn target_pixels<T: Element>(&self) -> Result<&[T], FieldError> {
        Ok(self.get(name::TARGET)?.into_slice())
    }

    /// Returns the elements of its first field on the host as bytes, in the machine's byte order: for images,
    /// their pixels.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.filled().array_bytes(&self.filled().layout().arrays()[0])
    }

    /// Returns the labels of images, as the database has them: one for each row. In a batch that was
    /// [padded](crate::LastBatch::Pad), the first [`len`](Self::len) are the records'. Those after them are
    /// zeros that belong to no record: see [`mask`](Self::mask). Reads the field named `label`.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if the batch has no field of that name, or if it is not of type i32. Batches of a
    /// [decoder](crate::FeedBuilder::decoder) have the fields that it declares: read those with
    /// [`get`](Self::get).
    pub fn labels(&self) -> Result<&[i32], FieldError> {
        Ok(self.get(name::LABEL)?.into_slice())
    }

    /// Returns the labels as Caffe's nets see them: floats, exact up to 2^24, and as many as
    /// [`labels`](Self::labels). Reads the field named `label_f32`.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if the batch has no field of that name, or if it is not of type f32.
    pub fn labels_f32(&self) -> Result<&[f32], FieldError> {
        Ok(self.get(name::LABEL_F32)?.into_slice())
    }

    /// Returns which records these are: the epoch and the position of each, in the order of the rows.
    /// [`len`](Self::len) is how many there are.
    #[must_use]
    pub fn records(&self) -> &[RecordId] {
        self.filled().ids()
    }

    /// Returns the bad records that the batch [leaves out](crate::FeedBuilder::bad_records), in the order in
    /// which they would have come. None of them is among its [`records`](Self::records); a row that
    /// [replaces](crate::BadRecords::replace) one has the name of the record that it is a copy of.
    #[must_use]
    pub fn bad_records(&self) -> &[BadRecord] {
        self.filled().bad()
    }

    /// The hashes of these records' bytes, in their order, if the feed's receipts cover them.
    pub(super) fn contents(&self) -> &[ContentHash] {
        self.filled().contents()
    }

    /// Returns the event that the batch has arrived at its device. On the host it always has.
    #[must_use]
    pub fn arrival(&self) -> &dyn Event {
        self.delivered().header.transfer.arrival()
    }

    /// Returns the transfer that brought it to its device. Its type is the device's own: `(batch.transfer()
    /// as &dyn Any).downcast_ref()` gives access to it.
    #[must_use]
    pub fn transfer(&self) -> &dyn Transfer {
        &*self.delivered().header.transfer
    }

    /// Returns the batch on its CUDA device; `None` if its lane has another kind of device.
    #[cfg(feature = "cuda-driver")]
    #[must_use]
    pub fn cuda(&self) -> Option<crate::device::CudaBatch<'_>> {
        crate::device::CudaBatch::of(self.transfer().innermost())
    }

    /// Waits until the batch has arrived at its device.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the device failed on the way.
    pub fn wait(&self) -> Result<(), DeviceError> {
        self.arrival().wait()
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let Some(delivered) = self.delivered.take() {
            give_back(delivered, self.lane, &self.returns, &self.meters);
        }
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Batch(")?;
        match self.fields()[0].layout() {
            Some(_) => write!(f, "{}", self.shape())?,
            None => write!(f, "{}", self.filled().layout())?,
        }
        write!(f, ", lane {}", self.lane)?;
        match self.records() {
            [first, .., last] => write!(f, ", {first} to {last})"),
            [only] => write!(f, ", {only})"),
            [] => f.write_str(")"),
        }
    }
}
