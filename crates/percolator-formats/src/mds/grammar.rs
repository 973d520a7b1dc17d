//! The columns of a sample.

use std::borrow::Cow;
use std::path::Path;

use super::index::Column;
use crate::fields::{array, listed, number, pil, text};
use crate::{Array, ElementType, Fault, FormatError, Grammar, Options, Part, Shape, Value, json};

/// Finds the columns of a sample.
#[derive(Debug)]
pub(super) struct MdsGrammar {
    columns: Vec<(Column, Encoding)>,
    /// Whether a column is one of the parts; the others are passed over.
    is_wanted: Vec<bool>,
}

/// What a column's bytes mean.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Encoding {
    Bytes,
    Text,
    Json,
    /// `int` of Python.
    Int,
    Scalar(ElementType),
    /// Type and shape are stated, or else stand before the values.
    Array(Option<ElementType>, Option<Vec<u64>>),
    Pil,
    JpegArray,
    List(Box<Encoding>),
    /// A pickle runs code when it is read.
    Refused(&'static str),
}

/// Lists may stand in each other so deep.
const DEPTH_MAX: usize = 8;

impl Encoding {
    /// What a column's encoding means; `None` if it is not known, or its lists stand deeper in each other.
    fn of(text: &str, depth: usize) -> Option<Self> {
        if let Some(inner) = text.strip_prefix("list[").and_then(|inner| inner.strip_suffix(']')) {
            return Encoding::of(inner, depth.checked_sub(1)?).map(|inner| Encoding::List(Box::new(inner)));
        }
        let mut words = text.split(':');
        let word = words.next().unwrap_or_default();
        Some(match word {
            "bytes" | "jpeg" | "png" => Encoding::Bytes,
            "str" | "str_int" | "str_float" | "str_decimal" => Encoding::Text,
            "json" => Encoding::Json,
            "int" | "int64" => Encoding::Int,
            "pil" => Encoding::Pil,
            "jpeg_array" | "jpegarray" => Encoding::JpegArray,
            "pkl" => Encoding::Refused("a pickle, which runs code when it is read"),
            "ndarray" => {
                let dtype = match words.next() {
                    None => None,
                    Some(name) => Some(scalar(name)?),
                };
                let shape: Option<Vec<u64>> = match words.next() {
                    None => None,
                    Some(shape) => {
                        let extents = shape.split(',').map(|extent| extent.parse().ok());
                        Some(extents.collect::<Option<_>>()?)
                    }
                };
                Encoding::Array(dtype, shape)
            }
            other => Encoding::Scalar(scalar(other)?),
        })
    }
}

fn scalar(name: &str) -> Option<ElementType> {
    Some(match name {
        "uint8" => ElementType::U8,
        "int8" => ElementType::I8,
        "uint16" => ElementType::U16,
        "int16" => ElementType::I16,
        "uint32" => ElementType::U32,
        "int32" => ElementType::I32,
        "uint64" => ElementType::U64,
        "int64" => ElementType::I64,
        "float16" => ElementType::F16,
        "float32" => ElementType::F32,
        "float64" => ElementType::F64,
        _ => return None,
    })
}

/// The type that an array's first byte states.
fn coded(code: u8) -> Option<ElementType> {
    Some(match code {
        8 => ElementType::U8,
        9 => ElementType::I8,
        16 => ElementType::U16,
        17 => ElementType::I16,
        18 => ElementType::F16,
        32 => ElementType::U32,
        33 => ElementType::I32,
        34 => ElementType::F32,
        64 => ElementType::U64,
        65 => ElementType::I64,
        66 => ElementType::F64,
        _ => return None,
    })
}

impl MdsGrammar {
    pub(super) fn new(index: &Path, columns: Vec<Column>, options: &Options) -> Result<Self, FormatError> {
        let mut known = Vec::with_capacity(columns.len());
        let mut is_wanted = Vec::with_capacity(columns.len());
        for column in columns {
            let Column { name, encoding, .. } = &column;
            let decoded = Encoding::of(encoding, DEPTH_MAX).ok_or_else(|| {
                FormatError::refused(
                    index,
                    format!("the column {name:?} has the encoding {encoding:?}, which is not known"),
                )
            })?;
            let wanted = options.wants(name);
            if let (Encoding::Refused(what), true) = (&decoded, wanted) {
                let what =
                    format!("the column {name:?} is {what}: name the other columns that are to be read");
                return Err(FormatError::refused(index, what));
            }
            known.push((column, decoded));
            is_wanted.push(wanted);
        }
        Ok(MdsGrammar { columns: known, is_wanted })
    }

    /// Each column's bytes, in order.
    fn each<'a>(
        &'a self,
        sample: &'a [u8],
    ) -> Result<impl Iterator<Item = Result<(usize, &'a [u8]), Fault>>, Fault> {
        let varying = self.columns.iter().filter(|(column, _)| column.bytes.is_none()).count();
        let head = varying.saturating_mul(size_of::<u32>());
        let (sizes, mut rest) = sample.split_at_checked(head).ok_or_else(|| {
            Fault::new(format!("the sample has {} bytes, and its columns' sizes take {head}", sample.len()))
        })?;
        let mut sizes = sizes.as_chunks::<4>().0.iter();
        Ok(self.columns.iter().enumerate().map(move |(number, (column, _))| {
            let stated = column
                .bytes
                .unwrap_or_else(|| sizes.next().map_or(0, |size| u32::from_le_bytes(*size).into()));
            let size = usize::try_from(stated).unwrap_or(usize::MAX);
            let (value, after) = rest.split_at_checked(size).ok_or_else(|| {
                let (name, left) = (&column.name, rest.len());
                Fault::new(format!(
                    "the column {name:?} has {stated} bytes, and {left} are left of the sample"
                ))
            })?;
            rest = after;
            Ok((number, value))
        }))
    }

    fn value<'a>(&'a self, number: usize, bytes: &'a [u8]) -> Result<Value<'a>, Fault> {
        let Some((column, encoding)) = self.columns.get(number) else { return Ok(Value::Null) };
        decoded(encoding, bytes).map_err(|fault| Fault::new(format!("the column {:?}: {fault}", column.name)))
    }
}

impl Grammar for MdsGrammar {
    fn description(&self) -> String {
        let columns = self.columns.iter().zip(&self.is_wanted).filter(|(_, is_wanted)| **is_wanted);
        let described = columns.map(|((column, _), _)| format!("{}: {}", column.name, column.encoding));
        described.collect::<Vec<_>>().join(", ")
    }

    fn names(&self) -> Option<Vec<String>> {
        let columns = self.columns.iter().zip(&self.is_wanted).filter(|(_, is_wanted)| **is_wanted);
        Some(columns.map(|((column, _), _)| column.name.clone()).collect())
    }

    fn parts<'a>(&'a self, sample: &'a [u8]) -> Result<Vec<Part<'a>>, Fault> {
        let mut parts = Vec::with_capacity(self.columns.len());
        let mut used =
            self.columns.iter().filter(|(column, _)| column.bytes.is_none()).count().saturating_mul(4);
        for found in self.each(sample)? {
            let (number, bytes) = found?;
            used = used.saturating_add(bytes.len());
            if self.is_wanted.get(number) == Some(&true)
                && let Some((column, _)) = self.columns.get(number)
            {
                parts.push((Cow::Borrowed(column.name.as_str()), self.value(number, bytes)?));
            }
        }
        if used != sample.len() {
            let what = format!("the sample has {} bytes, and its columns have {used}", sample.len());
            return Err(Fault::new(what));
        }
        Ok(parts)
    }

    fn part<'a>(&'a self, sample: &'a [u8], name: &str) -> Result<Option<Value<'a>>, Fault> {
        let Some(wanted) = self.columns.iter().position(|(column, _)| column.name == name) else {
            return Ok(None);
        };
        if self.is_wanted.get(wanted) != Some(&true) {
            return Ok(None);
        }
        for found in self.each(sample)? {
            let (number, bytes) = found?;
            if number == wanted {
                return self.value(number, bytes).map(Some);
            }
        }
        Ok(None)
    }
}

fn decoded<'a>(encoding: &Encoding, bytes: &'a [u8]) -> Result<Value<'a>, Fault> {
    Ok(match encoding {
        Encoding::Bytes => Value::Bytes(bytes.into()),
        Encoding::Text => Value::Text(text(bytes)?.into()),
        // The writer stores bytes as they are given, whatever the encoding is.
        Encoding::Json => json::value(bytes)?,
        Encoding::Int => match bytes.try_into() {
            Ok(number) => Value::Int(i64::from_le_bytes(number)),
            Err(_) => return Err(Fault::new(format!("an int has 8 bytes, and not {}", bytes.len()))),
        },
        Encoding::Scalar(ElementType::U64) => match bytes.try_into() {
            Ok(number) => Value::UInt(u64::from_le_bytes(number)),
            Err(_) => return Err(Fault::new(format!("a uint64 has 8 bytes, and not {}", bytes.len()))),
        },
        Encoding::Scalar(dtype) => Value::Array(array(*dtype, Shape::new(), bytes)?),
        Encoding::Array(dtype, shape) => Value::Array(ndarray(*dtype, shape.as_deref(), bytes)?),
        Encoding::Pil => pil(bytes)?,
        Encoding::JpegArray => {
            let values = listed(bytes)?;
            Value::List(values.into_iter().map(|value| Value::Bytes(value.into())).collect())
        }
        Encoding::List(inner) => {
            let (zero, rest) = number(bytes)?;
            if zero != 0 {
                return Err(Fault::new(format!("a list begins with {zero}, and not with 0")));
            }
            let values = listed(rest)?.into_iter().map(|value| decoded(inner, value));
            Value::List(values.collect::<Result<_, _>>()?)
        }
        Encoding::Refused(what) => return Err(Fault::new(*what)),
    })
}

/// An array whose type, or whose shape, may stand before its values.
fn ndarray<'a>(
    dtype: Option<ElementType>,
    shape: Option<&[u64]>,
    bytes: &'a [u8],
) -> Result<Array<'a>, Fault> {
    let cut = || Fault::new(format!("an array is cut: {} bytes", bytes.len()));
    let (dtype, rest) = match dtype {
        Some(dtype) => (dtype, bytes),
        None => {
            let (&code, rest) = bytes.split_first().ok_or_else(cut)?;
            (coded(code).ok_or_else(|| Fault::new(format!("an array has the unknown type {code}")))?, rest)
        }
    };
    if let Some(shape) = shape {
        return array(dtype, Shape::from_slice(shape), rest);
    }
    let (&head, mut rest) = rest.split_first().ok_or_else(cut)?;
    let (rank, width) = (head >> 2, 1_usize << (head & 3));
    let mut extents = Shape::new();
    for _ in 0..rank {
        let (extent, after) = rest.split_at_checked(width).ok_or_else(cut)?;
        let mut eight = [0; 8];
        eight.iter_mut().zip(extent).for_each(|(to, from)| *to = *from);
        extents.push(u64::from_le_bytes(eight));
        rest = after;
    }
    array(dtype, extents, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_has_an_end() {
        let nested = |depth| "list[".repeat(depth) + "int" + &"]".repeat(depth);
        assert!(Encoding::of(&nested(DEPTH_MAX), DEPTH_MAX).is_some());
        for depth in [DEPTH_MAX + 1, 1_000_000] {
            assert_eq!(Encoding::of(&nested(depth), DEPTH_MAX), None);
        }
    }
}
