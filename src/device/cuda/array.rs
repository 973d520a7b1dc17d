//! Describes an array on a device without allocating, because a consumer asks for several in each batch.

use crate::base::shape::{Dtype, Extents};

/// An array on a device.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceArray {
    /// The device address of its first element; a multiple of 64.
    pub pointer: u64,
    /// The type of its elements.
    pub dtype: Dtype,
    /// Its extents, outermost first.
    pub shape: Extents,
    /// The strides in elements. There are no gaps.
    pub strides: Extents,
}

impl DeviceArray {
    pub(super) fn new(pointer: u64, dtype: Dtype, shape: Extents) -> Self {
        DeviceArray { pointer, dtype, shape, strides: shape.strides() }
    }
}
