//! An array on a device, described without memory of its own: a consumer asks for several a batch.

use crate::base::shape::{Dtype, Extents};

/// An array on a device.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceArray {
    /// The address of its first element, on the device; a multiple of 64.
    pub pointer: u64,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its extents, outermost first.
    pub shape: Extents,
    /// How many elements apart neighbours along each axis lie. There are no gaps.
    pub strides: Extents,
}

impl DeviceArray {
    pub(super) fn new(pointer: u64, dtype: Dtype, shape: Extents) -> Self {
        DeviceArray { pointer, dtype, shape, strides: shape.strides() }
    }
}
