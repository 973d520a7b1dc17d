//! One encoding of a record whose parts lie apart: columns of a table, arrays side by side, files of a
//! folder.
//!
//! A cursor packs the parts of a record, one after the other, in the order of the grammar's names; a
//! [`PackedGrammar`] finds them. A value is a byte that says what it is, the length of the rest in 8 bytes,
//! and the rest; numbers are little-endian. The encoding lives in memory only, and in receipts' hashes.

use std::borrow::Cow;
use std::fmt;

use crate::{Array, ElementType, Fault, Grammar, Part, Shape, Value};

const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const INT: u8 = 3;
const UINT: u8 = 4;
const FLOAT: u8 = 5;
pub(crate) const NUMBER: u8 = 6;
pub(crate) const TEXT: u8 = 7;
const BYTES: u8 = 8;
const ARRAY: u8 = 9;
pub(crate) const LIST: u8 = 10;
pub(crate) const STRUCT: u8 = 11;
const LISTED: u8 = 12;

const TYPES: [ElementType; 15] = [
    ElementType::Bool,
    ElementType::I8,
    ElementType::I16,
    ElementType::I32,
    ElementType::I64,
    ElementType::U8,
    ElementType::U16,
    ElementType::U32,
    ElementType::U64,
    ElementType::F16,
    ElementType::Bf16,
    ElementType::F32,
    ElementType::F64,
    ElementType::C64,
    ElementType::C128,
];

/// Appends a value.
pub fn pack(value: &Value<'_>, into: &mut Vec<u8>) {
    let tag = match value {
        Value::Null => NULL,
        Value::Bool(false) => FALSE,
        Value::Bool(true) => TRUE,
        Value::Int(_) => INT,
        Value::UInt(_) => UINT,
        Value::Float(_) => FLOAT,
        Value::Number(_) => NUMBER,
        Value::Text(_) => TEXT,
        Value::Bytes(_) => BYTES,
        Value::Array(_) => ARRAY,
        Value::Listed(_) => LISTED,
        Value::List(_) => LIST,
        Value::Struct(_) => STRUCT,
    };
    framed(tag, into, |into| match value {
        Value::Null | Value::Bool(_) => {}
        Value::Int(number) => into.extend_from_slice(&number.to_le_bytes()),
        Value::UInt(number) => into.extend_from_slice(&number.to_le_bytes()),
        Value::Float(number) => into.extend_from_slice(&number.to_le_bytes()),
        Value::Number(text) | Value::Text(text) => into.extend_from_slice(text.as_bytes()),
        Value::Bytes(bytes) => into.extend_from_slice(bytes),
        Value::Array(array) | Value::Listed(array) => {
            let dtype = TYPES.iter().position(|dtype| *dtype == array.dtype).unwrap_or_default();
            into.push(u8::try_from(dtype).unwrap_or_default());
            into.extend_from_slice(&(array.shape.len() as u64).to_le_bytes());
            array.shape.iter().for_each(|extent| into.extend_from_slice(&extent.to_le_bytes()));
            into.extend_from_slice(&array.bytes);
        }
        Value::List(values) => values.iter().for_each(|value| pack(value, into)),
        Value::Struct(values) => {
            for (name, value) in values {
                framed(TEXT, into, |into| into.extend_from_slice(name.as_bytes()));
                pack(value, into);
            }
        }
    });
}

/// Appends a value of bytes whose length is known only once they are written.
pub fn framed(tag: u8, into: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    into.push(tag);
    let at = into.len();
    into.extend_from_slice(&[0; 8]);
    write(into);
    let bytes = (into.len() - at - 8) as u64;
    into[at..at + 8].copy_from_slice(&bytes.to_le_bytes());
}

/// Takes the first value off packed bytes, its tag and its rest.
fn take<'a>(packed: &mut &'a [u8]) -> Result<(u8, &'a [u8]), Fault> {
    let cut = || Fault::new("a packed record is cut");
    let (&tag, rest) = packed.split_first().ok_or_else(cut)?;
    let (length, rest) = rest.split_first_chunk::<8>().ok_or_else(cut)?;
    let length = usize::try_from(u64::from_le_bytes(*length)).map_err(|_| cut())?;
    let (value, rest) = rest.split_at_checked(length).ok_or_else(cut)?;
    *packed = rest;
    Ok((tag, value))
}

fn unpacked(tag: u8, rest: &[u8]) -> Result<Value<'_>, Fault> {
    let wrong = || Fault::new(format!("a packed value of type {tag} is damaged"));
    let eight = || rest.first_chunk::<8>().copied().ok_or_else(wrong);
    let text = || std::str::from_utf8(rest).map(Cow::Borrowed).map_err(|_| wrong());
    Ok(match tag {
        NULL => Value::Null,
        FALSE => Value::Bool(false),
        TRUE => Value::Bool(true),
        INT => Value::Int(i64::from_le_bytes(eight()?)),
        UINT => Value::UInt(u64::from_le_bytes(eight()?)),
        FLOAT => Value::Float(f64::from_le_bytes(eight()?)),
        NUMBER => Value::Number(text()?),
        TEXT => Value::Text(text()?),
        BYTES => Value::Bytes(Cow::Borrowed(rest)),
        ARRAY => Value::Array(array(rest).ok_or_else(wrong)?),
        LISTED => Value::Listed(array(rest).ok_or_else(wrong)?),
        LIST => {
            let (mut rest, mut values) = (rest, Vec::new());
            while !rest.is_empty() {
                let (tag, value) = take(&mut rest)?;
                values.push(unpacked(tag, value)?);
            }
            Value::List(values)
        }
        STRUCT => {
            let (mut rest, mut values) = (rest, Vec::new());
            while !rest.is_empty() {
                let (_, name) = take(&mut rest)?;
                let name = std::str::from_utf8(name).map_err(|_| wrong())?;
                let (tag, value) = take(&mut rest)?;
                values.push((Cow::Borrowed(name), unpacked(tag, value)?));
            }
            Value::Struct(values)
        }
        _ => return Err(wrong()),
    })
}

fn array(rest: &[u8]) -> Option<Array<'_>> {
    let (&dtype, rest) = rest.split_first()?;
    let (rank, mut rest) = rest.split_first_chunk::<8>()?;
    let mut shape = Shape::new();
    for _ in 0..u64::from_le_bytes(*rank) {
        let (extent, after) = rest.split_first_chunk::<8>()?;
        shape.push(u64::from_le_bytes(*extent));
        rest = after;
    }
    Some(Array { dtype: *TYPES.get(usize::from(dtype))?, shape, bytes: Cow::Borrowed(rest) })
}

/// Finds the parts of packed records.
#[derive(Clone, PartialEq, Eq)]
pub struct PackedGrammar {
    names: Vec<String>,
    description: String,
}

impl PackedGrammar {
    /// Of records with parts of these names and types, in this order.
    pub fn new(columns: impl IntoIterator<Item = (String, String)>) -> Self {
        let (names, types): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
        let described: Vec<_> =
            names.iter().zip(&types).map(|(name, dtype)| format!("{name}: {dtype}")).collect();
        PackedGrammar { names, description: described.join(", ") }
    }
}

impl fmt::Debug for PackedGrammar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PackedGrammar").field(&self.description).finish()
    }
}

impl Grammar for PackedGrammar {
    fn description(&self) -> String {
        self.description.clone()
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(self.names.clone())
    }

    fn parts<'a>(&'a self, value: &'a [u8]) -> Result<Vec<Part<'a>>, Fault> {
        let mut rest = value;
        self.names
            .iter()
            .map(|name| {
                let (tag, value) = take(&mut rest)?;
                Ok((Cow::Borrowed(name.as_str()), unpacked(tag, value)?))
            })
            .collect()
    }

    fn part<'a>(&'a self, value: &'a [u8], name: &str) -> Result<Option<Value<'a>>, Fault> {
        let Some(index) = self.names.iter().position(|known| known == name) else { return Ok(None) };
        let mut rest = value;
        for _ in 0..index {
            take(&mut rest)?;
        }
        let (tag, value) = take(&mut rest)?;
        unpacked(tag, value).map(Some)
    }
}
