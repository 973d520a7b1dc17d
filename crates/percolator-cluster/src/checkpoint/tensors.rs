//! A model's tensors, as a safetensors file: a header of JSON, then their bytes without gaps.
//!
//! Types and header are those of the crate `safetensors`, whose reader and writer take the whole file in
//! memory; here one tensor after the other is read and written, so that a checkpoint is one copy of them.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read, Write};

use bytemuck::{AnyBitPattern, NoUninit};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use super::{Checkpoint, error_within, invalid, read_array};

/// The bytes of the header's length, and what the header's length is a multiple of.
const LENGTH_BYTES: usize = 8;
/// The longest header, by the format's definition.
const HEADER_BYTES_MAX: u64 = 100_000_000;
/// The name in the header that the format keeps for itself: no tensor's.
const METADATA: &str = "__metadata__";
/// Memory grows by so many words at a time while what a header states has not been read.
const GROWTH_WORDS: usize = 8 << 20;

/// Numbers that a tensor can have.
pub trait Element: NoUninit + AnyBitPattern {
    /// The type that the file says.
    const DTYPE: Dtype;
}

macro_rules! elements {
    ($($element:ty: $dtype:ident),*) => {
        $(impl Element for $element {
            const DTYPE: Dtype = Dtype::$dtype;
        })*
    };
}

elements!(u8: U8, i8: I8, u16: U16, i16: I16, u32: U32, i32: I32, u64: U64, i64: I64, f32: F32, f64: F64);

/// Why a tensor cannot be made, or used like this.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// There is no tensor of this name.
    #[error("there is no tensor {name:?}")]
    Missing {
        /// The name.
        name: String,
    },
    /// Its elements have another type.
    #[error("the tensor {name:?} has elements of type {found}, and not {wanted}")]
    Type {
        /// The name.
        name: String,
        /// What it has.
        found: Dtype,
        /// What was asked for.
        wanted: Dtype,
    },
    /// Its shape needs another number of bytes.
    #[error("a tensor of type {dtype} and shape {shape:?} does not have {bytes} bytes")]
    Size {
        /// The type.
        dtype: Dtype,
        /// The shape.
        shape: Vec<usize>,
        /// How many there are.
        bytes: usize,
    },
}

/// A tensor: a type, a shape, and the elements in the order of C.
#[derive(Clone, PartialEq, Eq)]
pub struct Tensor {
    dtype: Dtype,
    shape: Vec<usize>,
    /// The elements. Words are aligned for any of them.
    words: Vec<u64>,
    /// How many bytes of the words are elements.
    bytes: usize,
}

/// The bytes that a tensor takes.
fn bytes_of(dtype: Dtype, shape: &[usize]) -> Option<usize> {
    let elements = shape.iter().try_fold(1_usize, |product, &extent| product.checked_mul(extent))?;
    let bits = elements.checked_mul(dtype.bitsize())?;
    bits.is_multiple_of(8).then_some(bits / 8)
}

impl Tensor {
    /// Returns a tensor of zeros.
    ///
    /// # Errors
    ///
    /// [`TensorError::Size`] if its bytes cannot be counted.
    pub fn zeros(dtype: Dtype, shape: &[usize]) -> Result<Self, TensorError> {
        let bytes = bytes_of(dtype, shape);
        let bytes =
            bytes.ok_or_else(|| TensorError::Size { dtype, shape: shape.to_vec(), bytes: usize::MAX })?;
        Ok(Tensor { dtype, shape: shape.to_vec(), words: vec![0; bytes.div_ceil(size_of::<u64>())], bytes })
    }

    /// Returns a tensor with these bytes, little-endian.
    ///
    /// # Errors
    ///
    /// [`TensorError::Size`] if they are not as many as the shape takes.
    pub fn from_bytes(dtype: Dtype, shape: &[usize], bytes: &[u8]) -> Result<Self, TensorError> {
        if bytes_of(dtype, shape) != Some(bytes.len()) {
            return Err(TensorError::Size { dtype, shape: shape.to_vec(), bytes: bytes.len() });
        }
        let mut tensor = Tensor::zeros(dtype, shape)?;
        tensor.bytes_mut().copy_from_slice(bytes);
        Ok(tensor)
    }

    /// Returns the type of its elements.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Returns its extents.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns its elements' bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.words).get(..self.bytes).unwrap_or_default()
    }

    /// Returns its elements' bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        bytemuck::cast_slice_mut(&mut self.words).get_mut(..self.bytes).unwrap_or_default()
    }

    /// Reads a tensor whose size a header states, which the file need not have.
    fn read(info: &TensorInfo, from: &mut dyn Read) -> io::Result<Self> {
        let bytes = bytes_of(info.dtype, &info.shape).ok_or_else(|| invalid("its size cannot be counted"))?;
        let mut tensor = Tensor { dtype: info.dtype, shape: info.shape.clone(), words: Vec::new(), bytes };
        let words = bytes.div_ceil(size_of::<u64>());
        while tensor.words.len() < words {
            let before = tensor.words.len();
            let more = words.saturating_sub(before).min(GROWTH_WORDS);
            tensor.words.try_reserve(more).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
            tensor.words.resize(before.saturating_add(more), 0);
            let start = before.saturating_mul(size_of::<u64>());
            let all: &mut [u8] = bytemuck::cast_slice_mut(&mut tensor.words);
            let end = all.len().min(bytes);
            from.read_exact(all.get_mut(start..end).unwrap_or_default())?;
        }
        Ok(tensor)
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:?}", self.dtype, self.shape)
    }
}

/// Tensors by their names.
///
/// If there are none, reading takes everything that the file has. If there are some, those of the file must
/// have the same names, types and shapes, and their values go into the memory that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tensors {
    tensors: BTreeMap<String, Tensor>,
}

impl Tensors {
    /// Returns no tensors.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a tensor, in place of the one that has this name.
    ///
    /// # Errors
    ///
    /// [`TensorError::Size`] if there are not as many values as the shape takes.
    pub fn insert<T: Element>(
        &mut self,
        name: impl Into<String>,
        shape: &[usize],
        values: &[T],
    ) -> Result<(), TensorError> {
        self.insert_tensor(name, Tensor::from_bytes(T::DTYPE, shape, bytemuck::cast_slice(values))?);
        Ok(())
    }

    /// Adds a tensor, in place of the one that has this name.
    pub fn insert_tensor(&mut self, name: impl Into<String>, tensor: Tensor) {
        self.tensors.insert(name.into(), tensor);
    }

    /// Returns a tensor.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// Returns a tensor to be changed.
    #[must_use]
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Tensor> {
        self.tensors.get_mut(name)
    }

    /// Returns the tensors and their names, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// Returns the values of a tensor.
    ///
    /// # Errors
    ///
    /// [`TensorError::Missing`] if there is none of this name, [`TensorError::Type`] if its elements have
    /// another type.
    pub fn values<T: Element>(&self, name: &str) -> Result<&[T], TensorError> {
        let tensor = self.get(name).ok_or_else(|| TensorError::Missing { name: name.to_owned() })?;
        check_type::<T>(name, tensor.dtype)?;
        Ok(bytemuck::cast_slice(tensor.bytes()))
    }

    /// Returns the values of a tensor, to be changed.
    ///
    /// # Errors
    ///
    /// As [`values`](Self::values).
    pub fn values_mut<T: Element>(&mut self, name: &str) -> Result<&mut [T], TensorError> {
        let tensor =
            self.tensors.get_mut(name).ok_or_else(|| TensorError::Missing { name: name.to_owned() })?;
        check_type::<T>(name, tensor.dtype)?;
        Ok(bytemuck::cast_slice_mut(tensor.bytes_mut()))
    }

    /// The header, padded with spaces, and the names in the order of the file: the widest type first.
    fn header(&self) -> io::Result<(Vec<u8>, Vec<&str>)> {
        if self.tensors.contains_key(METADATA) {
            let message =
                format!("no tensor may have the name {METADATA:?}, which safetensors keeps for itself");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut sorted: Vec<_> = self.iter().collect();
        sorted.sort_by(|(one, left), (other, right)| right.dtype.cmp(&left.dtype).then(one.cmp(other)));
        let mut end = 0_usize;
        let infos = sorted.iter().map(|&(name, tensor)| {
            let start = end;
            end = end.saturating_add(tensor.bytes);
            let (dtype, shape) = (tensor.dtype, tensor.shape.clone());
            (name.to_owned(), TensorInfo { dtype, shape, data_offsets: (start, end) })
        });
        let metadata = Metadata::new(None, infos.collect()).map_err(io::Error::other)?;
        let mut header = serde_json::to_vec(&metadata)?;
        header.resize(header.len().next_multiple_of(LENGTH_BYTES), b' ');
        if header.len() as u64 > HEADER_BYTES_MAX {
            let message = format!("the names of the tensors take more than {HEADER_BYTES_MAX} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok((header, sorted.into_iter().map(|(name, _)| name).collect()))
    }

    /// Checks that the tensors of a header are those that there are.
    fn check(&self, metadata: &Metadata) -> io::Result<()> {
        let found = metadata.tensors();
        for (name, tensor) in self.iter() {
            let Some(info) = found.get(name) else {
                return Err(invalid(format!("the tensor {name:?} is missing")));
            };
            if (info.dtype, &info.shape) != (tensor.dtype, &tensor.shape) {
                let (dtype, shape) = (info.dtype, &info.shape);
                return Err(invalid(format!("the tensor {name:?} is {dtype}{shape:?}, and not {tensor:?}")));
            }
        }
        let unknown = found.keys().filter(|name| self.get(name).is_none()).min();
        unknown.map_or(Ok(()), |name| Err(invalid(format!("the tensor {name:?} is not known"))))
    }
}

fn check_type<T: Element>(name: &str, found: Dtype) -> Result<(), TensorError> {
    match found == T::DTYPE {
        true => Ok(()),
        false => Err(TensorError::Type { name: name.to_owned(), found, wanted: T::DTYPE }),
    }
}

/// The format is little-endian, and elements are used as they are.
fn check_machine() -> io::Result<()> {
    match cfg!(target_endian = "little") {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::Unsupported, "tensors need a little-endian machine")),
    }
}

/// Reads the header, which must not be longer than the file.
fn read_header(from: &mut dyn Read) -> io::Result<Metadata> {
    let length = u64::from_le_bytes(read_array(from, "the tensors end within the length of its header")?);
    if length > HEADER_BYTES_MAX {
        return Err(invalid(format!(
            "the header of the tensors has {length} bytes: {HEADER_BYTES_MAX} are allowed"
        )));
    }
    let mut header = Vec::new();
    from.take(length).read_to_end(&mut header)?;
    if (header.len() as u64) < length {
        return Err(invalid("the tensors end within their header"));
    }
    serde_json::from_slice(&header).map_err(|error| invalid(format!("the header of the tensors: {error}")))
}

impl Checkpoint for Tensors {
    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        check_machine()?;
        let (header, names) = self.header()?;
        to.write_all(&(header.len() as u64).to_le_bytes())?;
        to.write_all(&header)?;
        names
            .into_iter()
            .filter_map(|name| self.get(name))
            .try_for_each(|tensor| to.write_all(tensor.bytes()))
    }

    fn read(&mut self, from: &mut dyn Read) -> io::Result<()> {
        check_machine()?;
        let metadata = read_header(from)?;
        let is_new = self.tensors.is_empty();
        if !is_new {
            self.check(&metadata)?;
        }
        for name in metadata.offset_keys() {
            let within =
                |error| error_within(error, format_args!("the tensors end within the tensor {name:?}"));
            if let Some(tensor) = self.tensors.get_mut(&name) {
                from.read_exact(tensor.bytes_mut()).map_err(within)?;
            } else if let Some(info) = metadata.info(&name) {
                let tensor = Tensor::read(info, from).map_err(within)?;
                self.tensors.insert(name, tensor);
            }
        }
        Ok(())
    }
}
