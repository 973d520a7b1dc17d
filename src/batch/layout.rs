//! What lies where in a batch's memory.
//!
//! The arrays lie one after the other, so that one copy takes all of them to a device: the pixels, the targets where
//! each record has one, the labels, the labels as floats, and, where the device has still to transform the pixels, what
//! is cut out of each record.

use crate::shape::BatchShape;
use crate::transform::Cut;

/// The arrays of a batch that its records are written to. All have as many records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrays {
    pub(crate) pixels: BatchShape,
    pub(crate) target: Option<BatchShape>,
    /// What the device makes of the pixels, where it is the device that transforms them; in memory of its own.
    pub(crate) transformed: Option<BatchShape>,
}

impl Arrays {
    /// The room that the batch takes, or `None` where no memory can be as large.
    pub(crate) fn room(&self) -> Option<Room> {
        Some(Room {
            bytes: self.offsets()?.end,
            transformed_bytes: self.transformed.map_or(Some(0), |shape| shape.checked_bytes())?,
            records: self.pixels.records,
        })
    }

    /// The shape that the consumer's pixels have, wherever they are.
    pub(crate) fn shape(&self) -> BatchShape {
        self.transformed.unwrap_or(self.pixels)
    }

    /// Where each array begins, or `None` where no memory can be as large.
    pub(super) fn offsets(&self) -> Option<Offsets> {
        let target_bytes = self.target.map_or(Some(0), |target| target.checked_bytes())?;
        let label_bytes = self.pixels.records.checked_mul(LABEL_BYTES)?;
        let after =
            |start: usize, bytes: usize| start.checked_add(bytes)?.checked_next_multiple_of(ARRAY_ALIGNMENT);
        let targets = after(0, self.pixels.checked_bytes()?)?;
        let labels = after(targets, target_bytes)?;
        let labels_f32 = after(labels, label_bytes)?;
        let (mut cuts, mut end) = (labels_f32, labels_f32.checked_add(label_bytes)?);
        if self.transformed.is_some() {
            cuts = after(labels_f32, label_bytes)?;
            end = cuts.checked_add(self.pixels.records.checked_mul(size_of::<Cut>())?)?;
        }
        isize::try_from(end).is_ok().then_some(Offsets { targets, labels, labels_f32, cuts, end })
    }

    /// The same, of a batch of so many records.
    pub(crate) fn of(self, records: usize) -> Self {
        let of = |shape| BatchShape { records, ..shape };
        Arrays { pixels: of(self.pixels), target: self.target.map(of), transformed: self.transformed.map(of) }
    }
}

/// The room that a batch takes, on its way and at its device.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Bytes of the host's memory, all of which are sent.
    pub bytes: usize,
    /// Bytes of what the device makes of the pixels; 0 where it transforms none.
    pub transformed_bytes: usize,
    /// How many records a batch has.
    pub records: usize,
}

impl Room {
    /// Whether another fits in.
    pub(crate) fn holds(self, other: Room) -> bool {
        self.or(other) == self
    }

    /// Room for either.
    pub(crate) fn or(self, other: Room) -> Self {
        Room {
            bytes: self.bytes.max(other.bytes),
            transformed_bytes: self.transformed_bytes.max(other.transformed_bytes),
            records: self.records.max(other.records),
        }
    }

    /// Bytes of a device's memory that so many such batches take there.
    pub(crate) fn checked_device_bytes(self, batches: usize) -> Option<usize> {
        let bytes = self.bytes.checked_next_multiple_of(ARRAY_ALIGNMENT)?;
        bytes.checked_add(self.transformed_bytes)?.checked_mul(batches)
    }
}

/// Where the arrays of a batch begin in its memory, behind the pixels, and where the last one ends.
#[derive(Clone, Copy)]
pub(super) struct Offsets {
    pub(super) targets: usize,
    pub(super) labels: usize,
    pub(super) labels_f32: usize,
    /// As `labels_f32` where there are none.
    pub(super) cuts: usize,
    pub(super) end: usize,
}

/// Of a label, in either form.
const LABEL_BYTES: usize = size_of::<i32>();
const _: () = assert!(LABEL_BYTES == size_of::<f32>());

/// Arrays begin at a cache line, which every vector and every copy engine takes well to.
pub(crate) const ARRAY_ALIGNMENT: usize = 64;
