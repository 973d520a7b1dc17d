//! What a training loop gets.

use std::fmt;
use std::sync::Arc;

use crate::content::ContentHash;
use crate::device::{DeviceError, Event, Passage};
use crate::prefetch::{Delivered, LaneMeters, Returned, give_back};
use crate::record::{RecordId, StepEnd};
use crate::shape::{BatchShape, Dtype, Element};
use crate::transform::Place;
use crate::way_home::WayHome;

/// A batch, complete and in order. Dropping it, on any thread, gives its memory back to the lane, which
/// fills it again: hold it as long as it is read and no longer. The drop waits for nobody.
pub struct Batch {
    /// `Some` until the drop.
    delivered: Option<Delivered>,
    lane: usize,
    home: WayHome<Returned>,
    meters: Arc<LaneMeters>,
}

/// A batch was asked for elements of a type that it does not hold on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the batch holds {found}{}, and {wanted} was asked for; {}", where_held(*.place), what_helps(*.place))]
pub struct DtypeMismatch {
    /// What the batch holds.
    pub found: Dtype,
    /// What was asked for.
    pub wanted: Dtype,
    /// Where the elements that were asked for are made.
    pub place: Place,
}

fn where_held(place: Place) -> &'static str {
    match place {
        Place::Host => "",
        Place::Device => " on the host, to be transformed on its device",
    }
}

fn what_helps(place: Place) -> &'static str {
    match place {
        Place::Host => "say .dtype(...) when the feed is built",
        Place::Device => {
            "look for the result there, or say .transform_on(Place::Host) when the feed is built"
        }
    }
}

impl Batch {
    pub(super) fn new(
        delivered: Delivered,
        lane: usize,
        home: &WayHome<Returned>,
        meters: &Arc<LaneMeters>,
    ) -> Self {
        Batch { delivered: Some(delivered), lane, home: home.clone(), meters: meters.clone() }
    }

    fn delivered(&self) -> &Delivered {
        self.delivered.as_ref().expect("the batch is taken only by the drop")
    }

    /// Which lane of its feed it came through.
    #[must_use]
    pub fn lane(&self) -> usize {
        self.lane
    }

    /// The shape, layout and type of its pixels, as its consumer wants them: on the host, or, where the device
    /// [transforms](crate::FeedBuilder::transform_on) them, there.
    #[must_use]
    pub fn shape(&self) -> BatchShape {
        self.delivered().filled.arrays().shape()
    }

    /// The shape, layout and type of what lies on the host: the same, but where the device transforms the pixels. Then
    /// it is the records' windows, as they were sent.
    #[must_use]
    pub fn host_shape(&self) -> BatchShape {
        self.delivered().filled.arrays().pixels
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
        (0..self.shape().records).map(move |row| row < records)
    }

    /// The step that it is the lane's share of, and whether that is the last of its epoch; `None` for the short batch at the end
    /// of a [single pass](crate::FeedBuilder::once), and for one that stands in for a lane that has ended before [others of its
    /// job](crate::distribute_from_fn).
    #[must_use]
    pub fn step(&self) -> Option<StepEnd> {
        self.delivered().berth.step
    }

    /// Its elements on the host, in the order of [`BatchShape::dims`] of the [`host_shape`](Self::host_shape),
    /// without gaps.
    ///
    /// # Errors
    ///
    /// [`DtypeMismatch`] if the feed was built for another type, or if it is the device that makes the elements of
    /// this type: the host's, which nothing was done to, are seen as [`bytes`](Self::bytes).
    pub fn pixels<T: Element>(&self) -> Result<&[T], DtypeMismatch> {
        let (found, transformed) = (self.host_shape().dtype, self.delivered().filled.arrays().transformed);
        let is_elsewhere = transformed.is_some_and(|shape| shape.dtype == T::DTYPE);
        if found != T::DTYPE || is_elsewhere {
            let place = if is_elsewhere { Place::Device } else { Place::Host };
            return Err(DtypeMismatch { found, wanted: T::DTYPE, place });
        }
        Ok(bytemuck::cast_slice(self.bytes()))
    }

    /// The shape of its targets, if the feed was given [targets](crate::FeedBuilder::target).
    #[must_use]
    pub fn target_shape(&self) -> Option<BatchShape> {
        self.delivered().filled.arrays().target
    }

    /// The elements of its targets, in the order of [`target_shape`](Self::target_shape), without gaps; none
    /// if the feed has no targets.
    ///
    /// # Errors
    ///
    /// [`DtypeMismatch`] if the targets are of another type.
    pub fn target_pixels<T: Element>(&self) -> Result<&[T], DtypeMismatch> {
        match self.target_shape() {
            Some(shape) if shape.dtype != T::DTYPE => {
                Err(DtypeMismatch { found: shape.dtype, wanted: T::DTYPE, place: Place::Host })
            }
            Some(_) => Ok(bytemuck::cast_slice(self.delivered().filled.target_bytes())),
            None => Ok(&[]),
        }
    }

    /// Its elements on the host as bytes, in the machine's byte order.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.delivered().filled.bytes()
    }

    /// Where its pixels, its targets and its labels lie on the host. Whoever consumes the batch may write there.
    pub(super) fn addresses(&self) -> [*mut u8; 3] {
        self.delivered().filled.addresses()
    }

    /// The labels, as the database has them: one a row. In a batch that was [padded](crate::LastBatch::Pad)
    /// the first [`len`](Self::len) are the records'; those behind them are zeros, and of no record:
    /// [`mask`](Self::mask) tells which.
    #[must_use]
    pub fn labels(&self) -> &[i32] {
        self.delivered().filled.labels()
    }

    /// The labels as Caffe's nets see them: floats, exact up to 2^24; as many as [`labels`](Self::labels).
    #[must_use]
    pub fn labels_f32(&self) -> &[f32] {
        self.delivered().filled.labels_f32()
    }

    /// Which records these are.
    #[must_use]
    pub fn records(&self) -> &[RecordId] {
        self.delivered().filled.ids()
    }

    /// What these records' bytes came to, in their order, where the feed's receipts have that.
    pub(super) fn contents(&self) -> &[ContentHash] {
        self.delivered().filled.contents()
    }

    /// The event that the batch has arrived at its device. On the host it always has.
    #[must_use]
    pub fn arrival(&self) -> &dyn Event {
        self.delivered().berth.passage.arrival()
    }

    /// The way it went to its device. The kind of it is the device's own:
    /// `(batch.passage() as &dyn Any).downcast_ref()` finds it.
    #[must_use]
    pub fn passage(&self) -> &dyn Passage {
        &*self.delivered().berth.passage
    }

    /// The batch on its CUDA device; `None` where its lane ends elsewhere.
    #[cfg(feature = "cuda-driver")]
    #[must_use]
    pub fn cuda(&self) -> Option<crate::device::CudaBatch<'_>> {
        crate::device::CudaBatch::of(self.passage())
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
        write!(f, "Batch({}, lane {}", self.shape(), self.lane)?;
        match self.records() {
            [first, .., last] => write!(f, ", {first} to {last})"),
            [only] => write!(f, ", {only})"),
            [] => f.write_str(")"),
        }
    }
}
