//! NumPy's array files (`.npy`): versions 1.0 to 3.0 are read, and version 1.0 is written, byte for byte as
//! `numpy.save` does.
//!
//! Arrays of another order (Fortran's, or big-endian numbers) are read into TensorFlow's: row-major and
//! little-endian.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

mod header;
mod stored;

use std::io::{self, Read as _, Write};

pub use self::header::npy_header;
pub(super) use self::header::{Header, PREFIX_BYTES, length};
use self::stored::Stored;
use super::file::{InputFile, Part};
use super::{ConvertError, Format};
use crate::{DataType, Elements, Tensor};

impl Header {
    pub(super) fn data_type(&self) -> DataType {
        self.stored.data_type()
    }

    pub(super) fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The bytes of the elements in the file.
    pub(super) fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    /// Returns the tensor whose elements are stored in these bytes.
    pub(super) fn tensor(&self, mut data: Vec<u8>, part: Part<'_>) -> Result<Tensor<'static>, ConvertError> {
        if data.len() != self.data_bytes {
            let found = format!("{} bytes of elements", data.len());
            let allowed = format!("type and shape need {}", self.data_bytes);
            return Err(part.damaged(0, found, allowed));
        }
        let size = self.stored.size().unwrap_or(0);
        self.check_strings(&data, part)?;
        if self.is_fortran && self.shape.len() > 1 {
            let ordered = row_major(&data, &self.shape, size);
            data = ordered.map_err(ConvertError::read(part.path))?;
        }
        let tensor = match self.stored {
            Stored::Numbers { data_type, is_big_endian } => {
                if is_big_endian {
                    let number = data_type.number_size().unwrap_or(1);
                    data.chunks_exact_mut(number).for_each(<[u8]>::reverse);
                }
                Tensor::new(data_type, &*self.shape, data)
            }
            Stored::Bytes(_) => {
                // Strings of no bytes are those of an array without elements.
                let strings = data.chunks_exact(size.max(1)).map(|string| without_zeros(string).to_vec());
                Tensor::strings(&*self.shape, strings)
            }
            Stored::Text { is_big_endian, .. } => {
                let strings = data.chunks_exact(size.max(1)).enumerate().map(|(place, string)| {
                    let text = text(string, is_big_endian);
                    text.ok_or_else(|| {
                        let offset = place.saturating_mul(size) as u64;
                        part.damaged(offset, "a number that is no character of Unicode", "text is UTF-32")
                    })
                });
                Tensor::strings(&*self.shape, strings.collect::<Result<Vec<_>, _>>()?)
            }
        };
        let tensor_name = part.tensor.unwrap_or_default().to_owned();
        tensor.map_err(|source| ConvertError::Tensor {
            path: part.path.to_owned(),
            tensor: tensor_name,
            source,
        })
    }
}

impl Header {
    /// Checks that the strings in these bytes fit into memory. Their places in the file may be a byte each,
    /// and compressed to almost none; in memory, each has a place, and bytes of its own.
    fn check_strings(&self, data: &[u8], part: Part<'_>) -> Result<(), ConvertError> {
        let size = match self.stored {
            Stored::Numbers { .. } => return Ok(()),
            Stored::Bytes(_) | Stored::Text { .. } => self.stored.size().unwrap_or(0).max(1),
        };
        let strings = self.data_bytes.checked_div(size).unwrap_or(0);
        let filled = data.chunks_exact(size).filter(|string| !without_zeros(string).is_empty()).count();
        let needed = memory_of_strings(strings, filled, self.data_bytes);
        if needed > STRINGS_BYTES_MAX {
            let found = format!("{strings} strings, which need {needed} bytes of memory");
            return Err(part.damaged(0, found, format!("at most {STRINGS_BYTES_MAX} are used for strings")));
        }
        Ok(())
    }
}

/// The most memory that the strings of an array are given, in bytes.
const STRINGS_BYTES_MAX: usize = 1 << 30;
/// The memory that a string needs besides its bytes.
const STRING_BYTES: usize = size_of::<Vec<u8>>();
/// The least memory that the allocator takes for the bytes of a string that is not empty.
const CHUNK_BYTES: usize = 32;

/// The memory that this many strings need, whose places in the file have these bytes, and of which `filled`
/// are not empty.
fn memory_of_strings(strings: usize, filled: usize, data_bytes: usize) -> usize {
    let chunks = filled.saturating_mul(CHUNK_BYTES);
    strings.saturating_mul(STRING_BYTES).saturating_add(chunks).saturating_add(data_bytes)
}

/// A string without the zeros that fill its place.
fn without_zeros(string: &[u8]) -> &[u8] {
    let end = string.iter().rposition(|&byte| byte != 0).map_or(0, |last| last.saturating_add(1));
    string.get(..end).unwrap_or_default()
}

/// The UTF-8 of UTF-32, without the zeros that fill its place.
fn text(string: &[u8], is_big_endian: bool) -> Option<Vec<u8>> {
    let codes = string.as_chunks().0.iter().map(|&code| match is_big_endian {
        true => u32::from_be_bytes(code),
        false => u32::from_le_bytes(code),
    });
    let text: String = codes.map(char::from_u32).collect::<Option<_>>()?;
    Some(text.trim_end_matches('\0').as_bytes().to_vec())
}

/// Puts elements of this many bytes from Fortran's order (the first axis varies fastest) into row-major
/// order. The slow version: for each index, in row-major order, the element at the sum of `index[a] *
/// shape[..a]`'s product.
fn row_major(data: &[u8], shape: &[usize], size: usize) -> io::Result<Vec<u8>> {
    let mut ordered = Vec::new();
    ordered.try_reserve_exact(data.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
    if data.is_empty() {
        return Ok(ordered);
    }
    // Bytes from one element to the next along each axis. No product overflows: all elements are in `data`.
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = size;
    for &extent in shape {
        strides.push(stride);
        stride = stride.saturating_mul(extent);
    }
    let mut index = vec![0_usize; shape.len()];
    let mut at = 0_usize;
    loop {
        ordered.extend_from_slice(data.get(at..at.saturating_add(size)).unwrap_or_default());
        // The next index, in row-major order.
        let axes = index.iter_mut().zip(shape).zip(&strides).rev();
        let mut is_done = true;
        for ((index, &extent), &stride) in axes {
            *index = index.saturating_add(1);
            at = at.saturating_add(stride);
            if *index < extent {
                is_done = false;
                break;
            }
            at = at.saturating_sub(stride.saturating_mul(extent));
            *index = 0;
        }
        if is_done {
            return Ok(ordered);
        }
    }
}

/// Reads the header of an array that is a whole file.
pub(super) fn read_header(file: &InputFile) -> Result<(Header, u64), ConvertError> {
    let part = file.part(None, 0);
    let front = file.read(None, 0..file.length().min(PREFIX_BYTES as u64))?;
    let whole = length(&front, part)? as u64;
    let header = Header::parse(&file.read(None, 0..whole)?, part)?;
    let rest = file.length().saturating_sub(whole);
    if rest != header.data_bytes as u64 {
        let found = format!("{rest} bytes of elements");
        let allowed = format!("type and shape need {}: the file has been cut or changed", header.data_bytes);
        return Err(part.damaged(whole, found, allowed));
    }
    Ok((header, whole))
}

/// What is written of a tensor: its header, and the bytes of each string's place if it has strings.
#[derive(Clone, Debug)]
pub(super) struct Written<'a> {
    tensor: &'a Tensor<'a>,
    header: Vec<u8>,
    /// The bytes of each string's place.
    width: usize,
}

impl<'a> Written<'a> {
    /// Prepares a tensor for being written. `name` and `format` are for messages.
    pub(super) fn new(name: &str, tensor: &'a Tensor<'_>, format: Format) -> Result<Self, ConvertError> {
        let unfit = |found: String, remedy: &str| ConvertError::Unfit {
            tensor: name.to_owned(),
            format,
            found,
            remedy: remedy.to_owned(),
        };
        let (stored, width) = match tensor.elements() {
            Elements::Bytes(_) => {
                (Stored::Numbers { data_type: tensor.data_type(), is_big_endian: false }, 0)
            }
            Elements::Strings(strings) => {
                if let Some(place) = strings.iter().position(|string| string.ends_with(&[0])) {
                    let found = format!("string {place} ends with a zero byte, which NumPy would remove");
                    return Err(unfit(found, "leave the tensor out, or write a checkpoint"));
                }
                let width = strings.iter().map(|string| string.len()).max().unwrap_or(0).max(1);
                let count = strings.len();
                // Each gets the place of the longest, which nothing bounds: what is written can be read.
                let filled = strings.iter().filter(|string| !string.is_empty()).count();
                let needed = memory_of_strings(count, filled, count.saturating_mul(width));
                if needed > STRINGS_BYTES_MAX {
                    let found = format!(
                        "{count} strings, the longest of {width} bytes, would need {needed} bytes as NumPy \
                         keeps them, and at most {STRINGS_BYTES_MAX} are read"
                    );
                    return Err(unfit(found, "leave the tensor out, or write a checkpoint"));
                }
                (Stored::Bytes(width), width)
            }
        };
        let descr = stored.descr().filter(|_| is_kept(tensor.data_type()));
        let descr = descr.ok_or_else(|| ConvertError::NoSuchType {
            tensor: name.to_owned(),
            data_type: tensor.data_type(),
            format,
            remedy: "leave the tensor out, or write a checkpoint",
        })?;
        let header = npy_header(&descr, tensor.shape()).ok_or_else(|| {
            let found = format!("it has {} axes", tensor.shape().len());
            unfit(found, "NumPy's arrays have at most 64: write safetensors")
        })?;
        Ok(Written { tensor, header, width })
    }

    /// Writes the file.
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&self.header)?;
        match self.tensor.elements() {
            Elements::Bytes(bytes) => out.write_all(bytes),
            Elements::Strings(strings) => strings.iter().try_for_each(|string| {
                out.write_all(string)?;
                let missing = self.width.saturating_sub(string.len()) as u64;
                io::copy(&mut io::repeat(0).take(missing), out).map(drop)
            }),
        }
    }
}

/// Whether NumPy's files hold elements of this type.
pub(super) fn is_kept(data_type: DataType) -> bool {
    data_type == DataType::String || Stored::Numbers { data_type, is_big_endian: false }.descr().is_some()
}

/// Writes a whole file to memory; for tests.
#[cfg(test)]
pub(super) fn to_bytes(tensor: &Tensor<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    Written::new("t", tensor, Format::Npy).unwrap().write(&mut bytes).unwrap();
    bytes
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests;
