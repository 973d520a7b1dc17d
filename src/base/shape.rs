//! Shapes of images and batches, element types, and the order of axes.

use std::fmt;
use std::ops::Deref;

use bytemuck::{CheckedBitPattern, NoUninit};
use half::{bf16, f16};
pub use percolator_image::ImageShape;
pub use percolator_net::Phase;

/// The type of an element of a batch's array. Image arrays are [`F32`](Self::F32), [`U8`](Self::U8),
/// [`F16`](Self::F16) or [`Bf16`](Self::Bf16); a custom decoder's [field](crate::Field) may have any of these
/// types.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Dtype {
    /// 32-bit IEEE floats, Caffe's own.
    #[default]
    F32,
    /// Bytes. For an image: as stored in the record; crop and mirror only.
    U8,
    /// 16-bit IEEE floats. For an image: the f32 result rounded to nearest even.
    F16,
    /// bfloat16. For an image: the f32 result rounded to nearest even.
    Bf16,
    /// 64-bit IEEE floats.
    F64,
    /// Signed 8-bit integers.
    I8,
    /// Signed 16-bit integers.
    I16,
    /// Signed 32-bit integers.
    I32,
    /// Signed 64-bit integers.
    I64,
    /// Unsigned 16-bit integers.
    U16,
    /// Unsigned 32-bit integers.
    U32,
    /// Unsigned 64-bit integers.
    U64,
    /// Booleans, one byte each: 0 or 1.
    Bool,
}

impl Dtype {
    /// The size of an element in bytes.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Dtype::F64 | Dtype::I64 | Dtype::U64 => 8,
            Dtype::F32 | Dtype::I32 | Dtype::U32 => 4,
            Dtype::F16 | Dtype::Bf16 | Dtype::I16 | Dtype::U16 => 2,
            Dtype::U8 | Dtype::I8 | Dtype::Bool => 1,
        }
    }

    /// Whether an image array can have this type.
    #[must_use]
    pub const fn is_of_images(self) -> bool {
        matches!(self, Dtype::F32 | Dtype::U8 | Dtype::F16 | Dtype::Bf16)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dtype::F32 => "f32",
            Dtype::U8 => "u8",
            Dtype::F16 => "f16",
            Dtype::Bf16 => "bf16",
            Dtype::F64 => "f64",
            Dtype::I8 => "i8",
            Dtype::I16 => "i16",
            Dtype::I32 => "i32",
            Dtype::I64 => "i64",
            Dtype::U16 => "u16",
            Dtype::U32 => "u32",
            Dtype::U64 => "u64",
            Dtype::Bool => "bool",
        })
    }
}

/// The order of a batch's axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Layout {
    /// Record, channel, row, column: Caffe's.
    #[default]
    Nchw,
    /// Record, row, column, channel.
    Nhwc,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layout::Nchw => "NCHW",
            Layout::Nhwc => "NHWC",
        })
    }
}

/// The shape of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchShape {
    /// The number of records: the batch size, or fewer in the last batch of a single pass.
    pub records: usize,
    /// Each record's shape after the transform.
    pub image: ImageShape,
    /// The order of the axes.
    pub layout: Layout,
    /// The type of an element.
    pub dtype: Dtype,
}

impl BatchShape {
    /// The extents of the four axes, in the order of the layout.
    #[must_use]
    pub fn dims(&self) -> [usize; 4] {
        let ImageShape { channels, height, width } = self.image;
        match self.layout {
            Layout::Nchw => [self.records, channels, height, width],
            Layout::Nhwc => [self.records, height, width, channels],
        }
    }

    /// The number of elements of one record.
    #[must_use]
    pub fn record_elements(&self) -> usize {
        self.image.channels * self.image.height * self.image.width
    }

    /// The size of one record in bytes. Records are contiguous, without gaps.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        self.record_elements() * self.dtype.size()
    }

    /// The size of the whole batch in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.records * self.record_bytes()
    }
}

impl fmt::Display for BatchShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = self.dims();
        write!(f, "{a}x{b}x{c}x{d} {} {}", self.layout, self.dtype)
    }
}

/// A type as which a batch's elements can be read and written. Implemented for the Rust type of each
/// [`Dtype`] and for no other.
pub trait Element: NoUninit + CheckedBitPattern + sealed::Sealed {
    /// The corresponding [`Dtype`].
    const DTYPE: Dtype;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($element:ty => $dtype:ident),* $(,)?) => {$(
        impl sealed::Sealed for $element {}
        impl Element for $element {
            const DTYPE: Dtype = Dtype::$dtype;
        }
    )*};
}

elements! {
    f32 => F32, u8 => U8, f16 => F16, bf16 => Bf16, f64 => F64, i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u16 => U16, u32 => U32, u64 => U64, bool => Bool,
}

/// The most axes that a batch's array can have, including the record axis.
pub const AXES_MAX: usize = 8;

/// One number for each axis of an array, outermost first: a `Copy` slice of up to [`AXES_MAX`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Extents {
    /// Entries after the last axis are 0.
    each: [usize; AXES_MAX],
    axes: usize,
}

impl Extents {
    /// Copies `extents`.
    ///
    /// # Panics
    ///
    /// If there are more than [`AXES_MAX`].
    #[must_use]
    pub fn new(extents: &[usize]) -> Self {
        let mut each = [0; AXES_MAX];
        each[..extents.len()].copy_from_slice(extents);
        Extents { each, axes: extents.len() }
    }

    /// The strides, in elements, of an array of these extents without gaps.
    #[must_use]
    pub fn strides(self) -> Self {
        let mut strides = self;
        let mut stride = 1;
        for (of_axis, extent) in strides.each[..self.axes].iter_mut().zip(&*self).rev() {
            *of_axis = stride;
            stride *= extent;
        }
        strides
    }

    /// The product of all extents, or `None` if it does not fit a `usize`.
    #[must_use]
    pub fn checked_elements(self) -> Option<usize> {
        self.iter().try_fold(1_usize, |elements, &extent| elements.checked_mul(extent))
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

/// Writes `3x32x32`, or `scalar` if there are no axes.
impl fmt::Display for Extents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((first, rest)) = self.split_first() else { return f.write_str("scalar") };
        write!(f, "{first}")?;
        rest.iter().try_for_each(|extent| write!(f, "x{extent}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_are_those_of_an_array_without_gaps() {
        assert_eq!(&*Extents::new(&[2, 3, 5, 7]).strides(), &[105, 35, 7, 1]);
        assert_eq!(&*Extents::new(&[4]).strides(), &[1]);
        assert_eq!(&*Extents::new(&[]).strides(), &[0_usize; 0]);
    }

    #[test]
    fn extents_are_used_as_the_slice_that_they_are() {
        let extents = Extents::new(&[2, 0, 5]);
        assert_eq!((extents.len(), extents[2], extents.iter().sum::<usize>()), (3, 5, 7));
        assert_eq!((format!("{extents:?}"), extents.to_string()), ("[2, 0, 5]".into(), "2x0x5".into()));
        assert!(extents != Extents::new(&[2, 0, 5, 0]), "an axis of no extent is an axis");
        assert_eq!(Extents::new(&[usize::MAX, 2]).checked_elements(), None);
    }
}
