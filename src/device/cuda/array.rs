//! An array on a device, described without memory of its own: a consumer asks for several a batch.

use std::fmt;
use std::ops::Deref;

/// An array on a device.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceArray {
    /// The address of its first element, on the device; a multiple of 64.
    pub pointer: u64,
    /// Its extents, outermost first.
    pub shape: Extents,
    /// How many elements apart neighbours along each axis lie. There are no gaps.
    pub strides: Extents,
}

impl DeviceArray {
    /// # Panics
    ///
    /// If there are more axes than a batch's array has.
    pub(super) fn new(pointer: u64, shape: &[usize]) -> Self {
        let shape = Extents::new(shape);
        let mut strides = shape;
        let mut stride = 1;
        for (of_axis, extent) in strides.used_mut().iter_mut().zip(&*shape).rev() {
            *of_axis = stride;
            stride *= extent;
        }
        DeviceArray { pointer, shape, strides }
    }
}

/// The most axes that a batch's array has.
const AXES_MAX: usize = 4;

/// A number for each axis of an array, outermost first: a slice of up to four, which is copied as it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Extents {
    /// Those after the last axis are 0.
    each: [usize; AXES_MAX],
    axes: usize,
}

impl Extents {
    fn new(extents: &[usize]) -> Self {
        let mut each = [0; AXES_MAX];
        each[..extents.len()].copy_from_slice(extents);
        Extents { each, axes: extents.len() }
    }

    fn used_mut(&mut self) -> &mut [usize] {
        &mut self.each[..self.axes]
    }
}

impl Deref for Extents {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.each[..self.axes]
    }
}

impl fmt::Debug for Extents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_are_those_of_an_array_without_gaps() {
        let array = DeviceArray::new(64, &[2, 3, 5, 7]);
        assert_eq!(
            (array.pointer, &*array.shape, &*array.strides),
            (64, &[2, 3, 5, 7][..], &[105, 35, 7, 1][..])
        );
        let array = DeviceArray::new(0, &[4]);
        assert_eq!((&*array.shape, &*array.strides), (&[4][..], &[1][..]));
    }

    #[test]
    fn extents_are_used_as_the_slice_that_they_are() {
        let extents = DeviceArray::new(0, &[2, 0, 5]).shape;
        assert_eq!((extents.len(), extents[2], extents.iter().sum::<usize>()), (3, 5, 7));
        assert_eq!(format!("{extents:?}"), "[2, 0, 5]");
        assert!(extents != DeviceArray::new(0, &[2, 0, 5, 0]).shape, "an axis of no extent is an axis");
    }
}
