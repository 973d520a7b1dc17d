//! Tensors that are stored in a graph.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::borrow::Cow;

use crate::proto::TensorProto;
use crate::tensor::{AXES_MAX, elements};
use crate::{DataType, Tensor, TensorError};

/// The most bytes of a constant's value, unless a caller [allows more](Constant::value_within): 1 GiB. It
/// limits what a few bytes of a file may unfold to.
pub const CONSTANT_BYTES_MAX: usize = 1 << 30;

/// A tensor that is stored in a graph: a constant's value, an attribute, or a default.
///
/// The value is read when it is [asked for](Self::value). A graph may store fewer elements than the shape has
/// places: the last one is repeated, and a list without elements means zeros or empty strings. A few bytes of
/// a file may so stand for a large tensor. That is allowed up to a limit, and takes memory only once the
/// value is read. A value that is stored whole in bytes is lent from the graph.
#[derive(Clone, Copy, Debug)]
pub struct Constant<'a> {
    proto: &'a TensorProto,
}

/// Why a stored tensor has no value.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConstantError {
    /// What is stored is no value: the node is not a constant, the type is not one of TensorFlow's or has no
    /// values outside a running program, the shape is not that of a value, or strings are damaged.
    #[error("{0}")]
    NoValue(String),
    /// The elements are more than any memory can hold, or more bytes than the caller allows.
    #[error("the value of type {data_type} and shape {shape:?} has {found} bytes: {allowed} are allowed")]
    TooLarge {
        /// The type of an element.
        data_type: DataType,
        /// The shape.
        shape: Vec<usize>,
        /// The bytes, or `usize::MAX` if they are not countable.
        found: usize,
        /// The most bytes allowed.
        allowed: usize,
    },
    /// The elements are not as many as the shape says.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

impl<'a> Constant<'a> {
    /// Returns the tensor that a message stores.
    #[must_use]
    pub fn new(proto: &'a TensorProto) -> Self {
        Constant { proto }
    }

    /// Returns the type of its elements, or `None` if the number in the file is not one of TensorFlow 2.21's.
    #[must_use]
    pub fn data_type(&self) -> Option<DataType> {
        DataType::from_proto(self.proto.dtype)
    }

    /// Returns its extents.
    ///
    /// # Errors
    ///
    /// [`ConstantError::NoValue`] if they are not those of a value.
    pub fn shape(&self) -> Result<Vec<usize>, ConstantError> {
        let refused = |found: &str| {
            let allowed = format!("a value has up to {AXES_MAX} axes, and extents of 0 or more");
            ConstantError::NoValue(format!("the value has {found}, but {allowed}"))
        };
        let Some(shape) = &self.proto.tensor_shape else { return Ok(Vec::new()) };
        if shape.unknown_rank {
            return Err(refused("an unknown rank"));
        }
        if shape.dim.len() > AXES_MAX {
            return Err(refused(&format!("{} axes", shape.dim.len())));
        }
        let extent = |size: i64| usize::try_from(size).map_err(|_| refused(&format!("the extent {size}")));
        shape.dim.iter().map(|dim| extent(dim.size)).collect()
    }

    /// Returns the value: lent from the graph where it is stored as bytes, copied where not.
    ///
    /// # Errors
    ///
    /// [`ConstantError`] if the value is damaged, or has more than [`CONSTANT_BYTES_MAX`] bytes.
    pub fn value(&self) -> Result<Tensor<'a>, ConstantError> {
        self.value_within(CONSTANT_BYTES_MAX)
    }

    /// The same with a limit of the caller's. What is lent, and not copied, is not limited.
    ///
    /// # Errors
    ///
    /// As [`value`](Self::value).
    pub fn value_within(&self, bytes_max: usize) -> Result<Tensor<'a>, ConstantError> {
        self.read(None, bytes_max)
    }

    /// Returns the first elements of the value in row-major order, as a tensor of one axis: so many, or all
    /// if there are fewer. Only these are read, so that a large constant costs no more than a small one.
    ///
    /// # Errors
    ///
    /// [`ConstantError`] if the value is damaged, or the elements asked for have more than
    /// [`CONSTANT_BYTES_MAX`] bytes.
    pub fn front(&self, most: usize) -> Result<Tensor<'a>, ConstantError> {
        self.read(Some(most), CONSTANT_BYTES_MAX)
    }

    /// Reads the value; its first elements as a tensor of one axis, if `most` is given.
    fn read(&self, most: Option<usize>, bytes_max: usize) -> Result<Tensor<'a>, ConstantError> {
        let no_value = |fault: &str| ConstantError::NoValue(format!("the value is of type {fault}"));
        let data_type = self.data_type().ok_or_else(|| {
            no_value(&format!("number {}, which TensorFlow 2.21 does not have", self.proto.dtype))
        })?;
        let whole = self.shape()?;
        let is_string = data_type == DataType::String;
        let size = match data_type.size() {
            Some(size) => size,
            // A string takes this much memory, however short it is. The bytes themselves are lent.
            None if is_string => size_of::<Cow<'_, [u8]>>(),
            None => {
                let why = "such values mean something to the program that has them only";
                return Err(no_value(&format!("{data_type}: {why}")));
            }
        };
        let content = &*self.proto.tensor_content;
        let is_lent = !content.is_empty() && !is_string;
        // What is lent may have any size that there is, and so may what is not asked for.
        let allowed = if is_lent { usize::MAX } else { bytes_max };
        let all = Self::count(data_type, &whole, size, if most.is_some() { usize::MAX } else { allowed })?;
        let shape = most.map_or_else(|| whole.clone(), |most| vec![all.min(most)]);
        let count = Self::count(data_type, &shape, size, allowed)?;
        if is_string {
            let strings = match content {
                [_, ..] if all > 0 => packed_strings(content, all, count)?,
                _ => {
                    let stored = &self.proto.string_val;
                    let last = stored.last().map_or(&[][..], |last| last);
                    stored.iter().map(|one| &**one).chain(std::iter::repeat(last)).take(count).collect()
                }
            };
            return Ok(Tensor::strings(shape, strings)?);
        }
        let bytes = count.saturating_mul(size);
        if !is_lent || all == 0 {
            return Ok(Tensor::new(data_type, shape, self.listed(data_type, size, bytes))?);
        }
        // The whole must be there, also if a part is wanted.
        let allowed = all.saturating_mul(size);
        match content.get(..bytes) {
            Some(wanted) if content.len() == allowed => Ok(Tensor::new(data_type, shape, wanted)?),
            _ => {
                let (unit, found) = ("bytes", content.len());
                Err(TensorError::Length { data_type, shape: whole, unit, found, allowed }.into())
            }
        }
    }

    /// The strings that are stored, which may be fewer than the shape has places: they take no more memory
    /// than the file. None if the value is damaged, or not of strings.
    pub(super) fn stored_strings(&self) -> Vec<&'a [u8]> {
        let content = &*self.proto.tensor_content;
        if self.data_type() != Some(DataType::String) {
            return Vec::new();
        }
        if content.is_empty() {
            return self.proto.string_val.iter().map(|one| &**one).collect();
        }
        let count = self.shape().ok().and_then(|shape| elements(&shape));
        count.and_then(|count| packed_strings(content, count, count).ok()).unwrap_or_default()
    }

    /// Returns how many places a shape has, if elements of this size may be so many.
    fn count(
        data_type: DataType,
        shape: &[usize],
        size: usize,
        allowed: usize,
    ) -> Result<usize, ConstantError> {
        let count = elements(shape);
        let bytes = count.and_then(|count| count.checked_mul(size));
        let found = bytes.unwrap_or(usize::MAX);
        match count {
            Some(count) if found <= allowed => Ok(count),
            _ => Err(ConstantError::TooLarge { data_type, shape: shape.to_owned(), found, allowed }),
        }
    }

    /// So many bytes of the list that this type is stored in, whose last element is repeated.
    fn listed(&self, data_type: DataType, size: usize, bytes_max: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(bytes_max);
        // No element has less than a byte.
        self.put_elements(data_type, bytes_max, &mut bytes);
        bytes.truncate(bytes_max);
        // A list that is cut inside its only element has no element, which is zero.
        let whole = bytes.len().checked_div(size).unwrap_or_default().saturating_mul(size);
        bytes.truncate(whole);
        repeat_last(&mut bytes, size, bytes_max);
        bytes
    }

    /// Writes the elements of the list that this type is stored in, but not many more than needed.
    #[expect(clippy::cast_possible_truncation, reason = "TensorFlow's readers cut off what is too large")]
    #[expect(clippy::cast_sign_loss, reason = "the bits are those of the unsigned type")]
    fn put_elements(&self, data_type: DataType, most: usize, out: &mut Vec<u8>) {
        use DataType as T;
        fn put<T: Copy, const N: usize>(
            list: &[T],
            most: usize,
            out: &mut Vec<u8>,
            bytes: impl Fn(T) -> [u8; N],
        ) {
            list.iter().take(most).for_each(|value| out.extend_from_slice(&bytes(*value)));
        }
        let proto = self.proto;
        match data_type {
            T::Float16 | T::Bfloat16 => put(&proto.half_val, most, out, |bits| (bits as u16).to_le_bytes()),
            T::Float32 => put(&proto.float_val, most, out, f32::to_le_bytes),
            T::Float64 => put(&proto.double_val, most, out, f64::to_le_bytes),
            T::Int32 | T::Qint32 => put(&proto.int_val, most, out, i32::to_le_bytes),
            T::Int16 | T::Uint16 | T::Qint16 | T::Quint16 => {
                put(&proto.int_val, most, out, |value| (value as u16).to_le_bytes());
            }
            T::Int8 | T::Uint8 | T::Qint8 | T::Quint8 | T::Int4 | T::Uint4 | T::Int2 | T::Uint2 => {
                put(&proto.int_val, most, out, |value| [value as u8]);
            }
            T::Int64 => put(&proto.int64_val, most, out, i64::to_le_bytes),
            T::Uint32 => put(&proto.uint32_val, most, out, u32::to_le_bytes),
            T::Uint64 => put(&proto.uint64_val, most, out, u64::to_le_bytes),
            T::Bool => put(&proto.bool_val, most, out, |value| [u8::from(value)]),
            T::Complex64 => put(&proto.scomplex_val, most, out, f32::to_le_bytes),
            T::Complex128 => put(&proto.dcomplex_val, most, out, f64::to_le_bytes),
            T::Float8E5m2
            | T::Float8E4m3fn
            | T::Float8E4m3fnuz
            | T::Float8E4m3b11fnuz
            | T::Float8E5m2fnuz
            | T::Float4E2m1fn => put(&proto.float8_val, most, out, |byte| [byte]),
            T::String | T::Resource | T::Variant => {}
        }
    }
}

/// Repeats the last element, or zero if there is none, up to so many bytes.
fn repeat_last(bytes: &mut Vec<u8>, size: usize, bytes_max: usize) {
    let Some(from) = bytes.len().checked_sub(size) else { return bytes.resize(bytes_max, 0) };
    // Each copy doubles what can be copied next.
    while let Some(missing @ 1..) = bytes_max.checked_sub(bytes.len()) {
        let there = bytes.len().saturating_sub(from);
        bytes.extend_from_within(from..from.saturating_add(there.min(missing)));
    }
}

/// Reads the first strings of those that TensorFlow packs into bytes: all lengths, then all strings.
fn packed_strings(content: &[u8], count: usize, wanted: usize) -> Result<Vec<&[u8]>, ConstantError> {
    let damaged = |fault: String| ConstantError::NoValue(format!("the value's strings are damaged: {fault}"));
    // A length has a byte at least, which bounds the work, and what is allocated.
    if count > content.len() {
        return Err(damaged(format!("{} bytes cannot hold {count} lengths", content.len())));
    }
    let next = |rest: &mut &[u8], number| {
        let length =
            prost::encoding::decode_varint(rest).ok().and_then(|length| usize::try_from(length).ok());
        length.ok_or_else(|| damaged(format!("the length of string {number} is no number")))
    };
    // The lengths are read twice: to find where the strings begin, and beside the strings.
    let (mut lengths, mut rest) = (content, content);
    for number in 0..count {
        next(&mut rest, number)?;
    }
    let mut strings = Vec::with_capacity(wanted);
    for number in 0..count {
        let length = next(&mut lengths, number)?;
        let Some((one, after)) = rest.split_at_checked(length) else {
            let left = rest.len();
            return Err(damaged(format!("string {number} has {length} bytes, where {left} are left")));
        };
        if number < wanted {
            strings.push(one);
        }
        rest = after;
    }
    match rest.len() {
        0 => Ok(strings),
        left => Err(damaged(format!("{left} bytes are left after the last string"))),
    }
}
