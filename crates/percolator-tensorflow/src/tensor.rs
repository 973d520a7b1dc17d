//! A tensor: a type, a shape, and elements in row-major order.

use std::borrow::Cow;

use bytemuck::{AnyBitPattern, NoUninit};
use half::{bf16, f16};

use crate::DataType;

// Files are little-endian, and `Tensor::values` lends their bytes as numbers.
#[cfg(not(target_endian = "little"))]
compile_error!("percolator-tensorflow needs a little-endian machine");

/// A tensor, with its elements or a loan of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor<'a> {
    data_type: DataType,
    shape: Vec<usize>,
    elements: Elements<'a>,
}

/// The elements of a tensor, in row-major order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Elements<'a> {
    /// Of a type of fixed size: little-endian, one after the other.
    Bytes(Cow<'a, [u8]>),
    /// Of [`DataType::String`] and [`DataType::Variant`].
    Strings(Vec<Cow<'a, [u8]>>),
}

/// Why something is not a tensor, or not the tensor that a caller takes it for.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// No memory could hold that many elements.
    #[error("a tensor of shape {shape:?} has more elements than memory can hold")]
    TooLarge {
        /// The shape.
        shape: Vec<usize>,
    },
    /// The elements are not as many as the shape has places.
    #[error("a tensor of type {data_type} and shape {shape:?} has {allowed} {unit}, not {found}")]
    Length {
        /// The type of an element.
        data_type: DataType,
        /// The shape.
        shape: Vec<usize>,
        /// What is counted: bytes or strings.
        unit: &'static str,
        /// How many there are.
        found: usize,
        /// How many there must be.
        allowed: usize,
    },
    /// The elements are of another type.
    #[error("the tensor is of type {found}, and was read as {wanted}")]
    Type {
        /// The tensor's type.
        found: DataType,
        /// The type that was asked for.
        wanted: &'static str,
    },
    /// A string is no text.
    #[error("string {number} of the tensor is no UTF-8: read it as bytes")]
    Text {
        /// Its place, in row-major order.
        number: usize,
    },
    /// A truth value is neither 0 nor 1.
    #[error("element {number} of the tensor is the byte {found}, and a bool is 0 or 1")]
    Bool {
        /// Its place, in row-major order.
        number: usize,
        /// The byte.
        found: u8,
    },
}

impl<'a> Tensor<'a> {
    /// Returns the tensor of these bytes: elements in row-major order, little-endian.
    ///
    /// # Errors
    ///
    /// [`TensorError`] if the type has elements of no fixed size, or the bytes are not as many as type and
    /// shape say.
    pub fn new(
        data_type: DataType,
        shape: impl Into<Vec<usize>>,
        bytes: impl Into<Cow<'a, [u8]>>,
    ) -> Result<Self, TensorError> {
        let (shape, bytes) = (shape.into(), bytes.into());
        let Some(size) = data_type.size() else {
            return Err(TensorError::Type { found: data_type, wanted: "numbers" });
        };
        let allowed = elements(&shape).and_then(|count| count.checked_mul(size));
        let allowed = allowed.ok_or_else(|| TensorError::TooLarge { shape: shape.clone() })?;
        if bytes.len() != allowed {
            let (unit, found) = ("bytes", bytes.len());
            return Err(TensorError::Length { data_type, shape, unit, found, allowed });
        }
        Ok(Tensor { data_type, shape, elements: Elements::Bytes(bytes) })
    }

    /// Returns the tensor of these numbers, in row-major order. It lends them.
    ///
    /// # Errors
    ///
    /// [`TensorError`] if they are not as many as the shape says.
    pub fn from_values<T: Element>(
        shape: impl Into<Vec<usize>>,
        values: &'a [T],
    ) -> Result<Self, TensorError> {
        Self::new(T::DATA_TYPE, shape, bytemuck::cast_slice(values))
    }

    /// Returns the tensor of these truth values, in row-major order. It lends them.
    ///
    /// # Errors
    ///
    /// [`TensorError`] if they are not as many as the shape says.
    pub fn from_bools(shape: impl Into<Vec<usize>>, values: &'a [bool]) -> Result<Self, TensorError> {
        Self::new(DataType::Bool, shape, bytemuck::cast_slice::<_, u8>(values))
    }

    /// Returns the tensor of these strings, in row-major order.
    ///
    /// # Errors
    ///
    /// [`TensorError`] if they are not as many as the shape says.
    pub fn strings<S: Into<Cow<'a, [u8]>>>(
        shape: impl Into<Vec<usize>>,
        strings: impl IntoIterator<Item = S>,
    ) -> Result<Self, TensorError> {
        Self::of_strings(DataType::String, shape.into(), strings.into_iter().map(Into::into).collect())
    }

    /// Returns the tensor of these variants, each as it is serialized, in row-major order.
    ///
    /// # Errors
    ///
    /// [`TensorError`] if they are not as many as the shape says.
    pub fn variants<S: Into<Cow<'a, [u8]>>>(
        shape: impl Into<Vec<usize>>,
        serialized: impl IntoIterator<Item = S>,
    ) -> Result<Self, TensorError> {
        Self::of_strings(DataType::Variant, shape.into(), serialized.into_iter().map(Into::into).collect())
    }

    fn of_strings(
        data_type: DataType,
        shape: Vec<usize>,
        strings: Vec<Cow<'a, [u8]>>,
    ) -> Result<Self, TensorError> {
        let allowed = elements(&shape).ok_or_else(|| TensorError::TooLarge { shape: shape.clone() })?;
        if strings.len() != allowed {
            let (unit, found) = ("strings", strings.len());
            return Err(TensorError::Length { data_type, shape, unit, found, allowed });
        }
        Ok(Tensor { data_type, shape, elements: Elements::Strings(strings) })
    }

    /// Returns the type of its elements.
    #[must_use]
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// Returns its extents, the outermost first; none for a scalar.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns its elements.
    #[must_use]
    pub fn elements(&self) -> &Elements<'a> {
        &self.elements
    }

    /// Returns its elements, without the rest.
    #[must_use]
    pub fn into_elements(self) -> Elements<'a> {
        self.elements
    }

    /// Returns the bytes of its elements, or `None` if they are strings.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.elements {
            Elements::Bytes(bytes) => Some(bytes),
            Elements::Strings(_) => None,
        }
    }

    /// Returns the bytes of its elements to be changed, or `None` if they are strings. Lent bytes are copied.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.elements {
            Elements::Bytes(bytes) => Some(bytes.to_mut()),
            Elements::Strings(_) => None,
        }
    }

    /// Returns how many bytes its elements have: of strings, of all of them joined by zero bytes.
    pub(crate) fn byte_length(&self) -> usize {
        match &self.elements {
            Elements::Bytes(bytes) => bytes.len(),
            Elements::Strings(strings) => {
                let joints = strings.len().saturating_sub(1);
                strings.iter().fold(joints, |sum, string| sum.saturating_add(string.len()))
            }
        }
    }

    /// Returns its elements as numbers: lent if their bytes are aligned, copied if not.
    ///
    /// # Errors
    ///
    /// [`TensorError::Type`] if the elements are of another type.
    pub fn values<T: Element>(&self) -> Result<Cow<'_, [T]>, TensorError> {
        match &self.elements {
            Elements::Bytes(bytes) if T::DATA_TYPE == self.data_type => Ok(bytemuck::try_cast_slice(bytes)
                .map_or_else(|_| Cow::Owned(bytemuck::pod_collect_to_vec::<u8, T>(bytes)), Cow::Borrowed)),
            _ => Err(TensorError::Type { found: self.data_type, wanted: T::DATA_TYPE.name() }),
        }
    }

    /// Returns its truth values.
    ///
    /// # Errors
    ///
    /// [`TensorError::Type`] if the elements are of another type; [`TensorError::Bool`] if one is neither 0
    /// nor 1.
    pub fn bools(&self) -> Result<&[bool], TensorError> {
        match &self.elements {
            Elements::Bytes(bytes) if self.data_type == DataType::Bool => {
                bytemuck::checked::try_cast_slice(bytes).map_err(|_| {
                    let is_wrong = |&(_, &byte): &(usize, &u8)| byte > 1;
                    let (number, &found) = bytes.iter().enumerate().find(is_wrong).unwrap_or((0, &0));
                    TensorError::Bool { number, found }
                })
            }
            _ => Err(TensorError::Type { found: self.data_type, wanted: DataType::Bool.name() }),
        }
    }

    /// Returns its strings as texts, in row-major order.
    ///
    /// # Errors
    ///
    /// [`TensorError::Type`] if its elements are no strings; [`TensorError::Text`] if one is not UTF-8.
    pub fn texts(&self) -> Result<Vec<&str>, TensorError> {
        let (Elements::Strings(strings), DataType::String) = (&self.elements, self.data_type) else {
            return Err(TensorError::Type { found: self.data_type, wanted: DataType::String.name() });
        };
        let strings = strings.iter().enumerate();
        strings.map(|(number, one)| str::from_utf8(one).map_err(|_| TensorError::Text { number })).collect()
    }

    /// Returns the same tensor, with elements of its own.
    #[must_use]
    pub fn into_owned(self) -> Tensor<'static> {
        let Tensor { data_type, shape, elements } = self;
        let elements = match elements {
            Elements::Bytes(bytes) => Elements::Bytes(Cow::Owned(bytes.into_owned())),
            Elements::Strings(strings) => {
                Elements::Strings(strings.into_iter().map(|one| Cow::Owned(one.into_owned())).collect())
            }
        };
        Tensor { data_type, shape, elements }
    }
}

/// The most axes of a tensor, which is TensorFlow's own limit.
pub(crate) const AXES_MAX: usize = 254;

/// Returns the number of elements of a shape, or `None` if it is no number. An extent of 0 makes it 0,
/// whatever the others are.
pub(crate) fn elements(shape: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1_usize, |count, &extent| count.checked_mul(extent))
}

/// A Rust type that elements can be read as.
pub trait Element: AnyBitPattern + NoUninit + sealed::Sealed {
    /// TensorFlow's type.
    const DATA_TYPE: DataType;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($rust:ty => $tensorflow:ident),+ $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const DATA_TYPE: DataType = DataType::$tensorflow;
        }
    )+};
}

elements! {
    f16 => Float16, bf16 => Bfloat16, f32 => Float32, f64 => Float64,
    i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    u8 => Uint8, u16 => Uint16, u32 => Uint32, u64 => Uint64,
    [f32; 2] => Complex64, [f64; 2] => Complex128,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_as_many_as_type_and_shape_say() {
        let tensor = Tensor::new(DataType::Int16, [2, 1], vec![1, 0, 2, 1]).unwrap();
        assert_eq!(*tensor.values::<i16>().unwrap(), [1, 258]);
        let error = tensor.values::<u16>().unwrap_err();
        assert_eq!(error, TensorError::Type { found: DataType::Int16, wanted: "uint16" });
        let error = Tensor::new(DataType::Int16, [3], vec![0; 4]).unwrap_err().to_string();
        assert_eq!(error, "a tensor of type int16 and shape [3] has 6 bytes, not 4");
        assert!(Tensor::new(DataType::Float32, [], vec![0; 4]).is_ok());
        assert!(Tensor::new(DataType::Float32, [usize::MAX, 0, 2], vec![]).is_ok());
        assert!(Tensor::new(DataType::Float32, [usize::MAX, 2], vec![]).is_err());
        assert!(Tensor::new(DataType::String, [0], vec![]).is_err());
    }

    #[test]
    fn bytes_that_are_not_aligned_are_copied() {
        let memory = [0_u64; 2];
        let bytes: &[u8] = bytemuck::cast_slice(&memory);
        let is_lent = |from: usize| {
            let tensor = Tensor::new(DataType::Float32, [2], &bytes[from..from + 8]).unwrap();
            matches!(tensor.values::<f32>(), Ok(Cow::Borrowed([0.0, 0.0])))
        };
        assert_eq!([0, 1, 2, 4].map(is_lent), [true, false, false, true]);
    }

    #[test]
    fn values_are_lent_and_read_back() {
        let values = [1.5_f32, -2.0, 0.25];
        let tensor = Tensor::from_values([3, 1], &values).unwrap();
        assert_eq!((tensor.data_type(), &*tensor.values::<f32>().unwrap()), (DataType::Float32, &values[..]));
        assert!(Tensor::from_values([2], &values).is_err());

        let tensor = Tensor::from_bools([3], &[true, false, true]).unwrap();
        assert_eq!(tensor.bools(), Ok(&[true, false, true][..]));
        let damaged = Tensor::new(DataType::Bool, [3], vec![0, 1, 7]).unwrap();
        assert_eq!(damaged.bools(), Err(TensorError::Bool { number: 2, found: 7 }));
        assert!(Tensor::new(DataType::Uint8, [1], vec![0]).unwrap().bools().is_err());

        let tensor = Tensor::strings([2], [&b"a"[..], b"\xc3\xa9"]).unwrap();
        assert_eq!(tensor.texts().unwrap(), ["a", "\u{e9}"]);
        let bytes = Tensor::strings([2], [&b"a"[..], b"\xff"]).unwrap();
        assert_eq!(bytes.texts(), Err(TensorError::Text { number: 1 }));
        assert!(Tensor::variants([1], [&b"a"[..]]).unwrap().texts().is_err());
    }

    #[test]
    fn strings_are_as_many_as_the_shape_says() {
        let tensor = Tensor::strings([2], [&b"a"[..], b""]).unwrap();
        assert_eq!((tensor.data_type(), tensor.bytes()), (DataType::String, None));
        assert!(Tensor::strings([3], [&b"a"[..]]).is_err());
        assert_eq!(Tensor::variants([1], [&b"a"[..]]).unwrap().data_type(), DataType::Variant);
    }
}
