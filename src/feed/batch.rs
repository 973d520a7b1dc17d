//! What a training loop gets.

use std::fmt;
use std::sync::Arc;

use super::view::{FieldView, Ragged, Values};
use crate::base::return_queue::ReturnQueue;
use crate::base::shape::{BatchShape, Element};
use crate::batch::Filled;
use crate::batch::field::{Field, FieldError, FieldKey};
use crate::decoder::image::name;
use crate::device::{DeviceError, Event, Transfer};
use crate::prefetch::{Delivered, LaneMeters, Returned, give_back};
use crate::receipt::content::ContentHash;
use crate::record::{RecordId, StepEnd};

/// A batch, complete and in order. Dropping it, on any thread, gives its memory back to the lane, which
/// fills it again: hold it as long as it is read and no longer. The drop waits for nobody.
pub struct Batch {
    /// `Some` until the drop.
    delivered: Option<Delivered>,
    lane: usize,
    home: ReturnQueue<Returned>,
    meters: Arc<LaneMeters>,
}

impl Batch {
    pub(super) fn new(
        delivered: Delivered,
        lane: usize,
        home: &ReturnQueue<Returned>,
        meters: &Arc<LaneMeters>,
    ) -> Self {
        Batch { delivered: Some(delivered), lane, home: home.clone(), meters: meters.clone() }
    }

    fn delivered(&self) -> &Delivered {
        self.delivered.as_ref().expect("the batch is taken only by the drop")
    }

    pub(super) fn filled(&self) -> &Filled {
        &self.delivered().filled
    }

    /// Which lane of its feed it came through.
    #[must_use]
    pub fn lane(&self) -> usize {
        self.lane
    }

    /// Its fields, in the order in which they were declared: what each record has of them.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        self.filled().layout().fields()
    }

    /// One of its fields, with its elements on the host.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if it has no such field.
    pub fn field(&self, field: impl FieldKey) -> Result<FieldView<'_>, FieldError> {
        FieldView::of(self.filled(), field)
    }

    /// The elements of a field on the host, records one after the other, with their shape; of a [padded](Field::padded) field,
    /// with the padding.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if it has no such field, one of another type, or one that is [ragged](Self::ragged).
    pub fn get<T: Element>(&self, field: impl FieldKey) -> Result<Values<'_, T>, FieldError> {
        self.field(field)?.get()
    }

    /// The elements of a ragged field on the host, and where each record's begin.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if it has no such field, one of another type, or one that is not ragged.
    pub fn ragged<T: Element>(&self, field: impl FieldKey) -> Result<Ragged<'_, T>, FieldError> {
        self.field(field)?.ragged()
    }

    /// The shape, layout and type of its pixels, as its consumer wants them: on the host, or, where the device
    /// [transforms](crate::FeedBuilder::transform_on) them, there. Of a batch without images, it is that of its first
    /// field, whose elements are seen as channels of one pixel.
    #[must_use]
    pub fn shape(&self) -> BatchShape {
        self.filled().image_shape()
    }

    /// The shape, layout and type of what lies on the host: the same, but where the device transforms the pixels. Then it is
    /// the records' windows, as they were sent.
    #[must_use]
    pub fn host_shape(&self) -> BatchShape {
        self.fields()[0].image_shape(self.rows())
    }

    /// Rows of its arrays: its [records](Self::len), and padding behind them.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.filled().rows()
    }

    /// Records in it: the batch size, or fewer at the end of an epoch. A batch that was [padded](crate::LastBatch::Pad)
    /// has more rows than that: those from `len()` on are zeros on the host, and no records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records().len()
    }

    /// Whether there is no record in it: at the end of an epoch a replica may get none while others still have some.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Which of its rows are records, and not padding: as many as [`len`](Self::len), then none.
    pub fn mask(&self) -> impl ExactSizeIterator<Item = bool> {
        let records = self.len();
        (0..self.rows()).map(move |row| row < records)
    }

    /// The step that it is the lane's share of, and whether that is the last of its epoch; `None` for the short batch at the end
    /// of a [single pass](crate::FeedBuilder::once), and for one that stands in for a lane that has ended before [others of its
    /// job](crate::distribute::distribute_from_fn).
    #[must_use]
    pub fn step(&self) -> Option<StepEnd> {
        self.delivered().header.step
    }

    /// Where it is of images: their pixels on the host, in the order of [`BatchShape::dims`] of the
    /// [`host_shape`](Self::host_shape), without gaps. Reads the field named `data`.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if the feed was built for another type, or if it is the device that makes the elements of
    /// this type: the host's, which nothing was done to, are seen as [`bytes`](Self::bytes).
    pub fn pixels<T: Element>(&self) -> Result<&[T], FieldError> {
        Ok(self.get(name::DATA)?.into_slice())
    }

    /// The shape of its targets, if the feed was given [targets](crate::FeedBuilder::target).
    #[must_use]
    pub fn target_shape(&self) -> Option<BatchShape> {
        let target = self.fields().iter().find(|field| field.name() == name::TARGET)?;
        Some(target.image_shape(self.rows()))
    }

    /// The elements of its targets, in the order of [`target_shape`](Self::target_shape), without gaps. It is the field
    /// `target`.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if the feed has no targets, or if they are of another type.
    pub fn target_pixels<T: Element>(&self) -> Result<&[T], FieldError> {
        Ok(self.get(name::TARGET)?.into_slice())
    }

    /// The elements of its first field on the host as bytes, in the machine's byte order: of images, their pixels.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.filled().array_bytes(&self.filled().layout().arrays()[0])
    }

    /// The labels of images, as the database has them: one a row. In a batch that was [padded](crate::LastBatch::Pad)
    /// the first [`len`](Self::len) are the records'; those behind them are zeros, and of no record:
    /// [`mask`](Self::mask) tells which. It is the field `label`; of a batch without a field of that name and of type i32
    /// there are none.
    #[must_use]
    pub fn labels(&self) -> &[i32] {
        self.get(name::LABEL).map_or(&[], Values::into_slice)
    }

    /// The labels as Caffe's nets see them: floats, exact up to 2^24; as many as [`labels`](Self::labels). It is the field
    /// `label_f32`.
    #[must_use]
    pub fn labels_f32(&self) -> &[f32] {
        self.get(name::LABEL_F32).map_or(&[], Values::into_slice)
    }

    /// Which records these are.
    #[must_use]
    pub fn records(&self) -> &[RecordId] {
        self.filled().ids()
    }

    /// What these records' bytes came to, in their order, where the feed's receipts have that.
    pub(super) fn contents(&self) -> &[ContentHash] {
        self.filled().contents()
    }

    /// The event that the batch has arrived at its device. On the host it always has.
    #[must_use]
    pub fn arrival(&self) -> &dyn Event {
        self.delivered().header.transfer.arrival()
    }

    /// The way it went to its device. The kind of it is the device's own:
    /// `(batch.transfer() as &dyn Any).downcast_ref()` finds it.
    #[must_use]
    pub fn transfer(&self) -> &dyn Transfer {
        &*self.delivered().header.transfer
    }

    /// The batch on its CUDA device; `None` where its lane ends elsewhere.
    #[cfg(feature = "cuda-driver")]
    #[must_use]
    pub fn cuda(&self) -> Option<crate::device::CudaBatch<'_>> {
        crate::device::CudaBatch::of(self.transfer())
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
            give_back(delivered, self.lane, &self.home, &self.meters);
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
