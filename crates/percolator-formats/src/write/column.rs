//! The parts of records as columns of Arrow: their types, found in the records, and their values.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Float16Array, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, ListArray, NullArray, StringArray, StructArray, UInt8Array, UInt16Array,
    UInt32Array, UInt64Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields};
use half::{bf16, f16};

use crate::{Array, ElementType, Shape, Value};

/// The type of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ColumnType {
    /// Nothing but nulls so far.
    Null,
    Bool,
    Int,
    UInt,
    Float,
    /// Numbers of a stated type.
    Number(ElementType),
    Bytes,
    Text,
    List(Box<ColumnType>),
    Struct(Vec<(String, ColumnType)>),
}

impl ColumnType {
    /// The type of a value.
    pub(super) fn of(value: &Value<'_>) -> Result<Self, String> {
        Ok(match value {
            Value::Null => ColumnType::Null,
            Value::Bool(_) => ColumnType::Bool,
            Value::Int(_) => ColumnType::Int,
            Value::UInt(_) => ColumnType::UInt,
            Value::Float(_) => ColumnType::Float,
            Value::Number(_) | Value::Text(_) => ColumnType::Text,
            Value::Bytes(_) => ColumnType::Bytes,
            Value::Array(array) => {
                let dtype = of_elements(array.dtype)?;
                array.shape.iter().fold(dtype, |inner, _| ColumnType::List(Box::new(inner)))
            }
            Value::Listed(array) => ColumnType::List(Box::new(of_elements(array.dtype)?)),
            Value::List(values) => {
                let inner = values
                    .iter()
                    .try_fold(ColumnType::Null, |inner, value| inner.with(ColumnType::of(value)?))?;
                ColumnType::List(Box::new(inner))
            }
            Value::Struct(members) => {
                let members = members
                    .iter()
                    .map(|(name, value)| Ok((name.clone().into_owned(), ColumnType::of(value)?)));
                ColumnType::Struct(members.collect::<Result<_, String>>()?)
            }
        })
    }

    /// The type that has values of both.
    pub(super) fn with(self, other: Self) -> Result<Self, String> {
        use ColumnType as C;

        Ok(match (self, other) {
            (C::Null, known) | (known, C::Null) => known,
            (C::Int | C::UInt, C::Int) | (C::Int, C::UInt) => C::Int,
            (C::List(one), C::List(other)) => C::List(Box::new(one.with(*other)?)),
            (C::Struct(mut members), C::Struct(others)) => {
                for (name, dtype) in others {
                    match members.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, known)) => *known = std::mem::replace(known, C::Null).with(dtype)?,
                        None => members.push((name, dtype)),
                    }
                }
                C::Struct(members)
            }
            (one, other) if one == other => one,
            (one, other) => return Err(format!("{} and {}", one.arrow(), other.arrow())),
        })
    }

    pub(super) fn arrow(&self) -> DataType {
        match self {
            ColumnType::Null => DataType::Null,
            ColumnType::Bool | ColumnType::Number(ElementType::Bool) => DataType::Boolean,
            ColumnType::Int | ColumnType::Number(ElementType::I64) => DataType::Int64,
            ColumnType::UInt | ColumnType::Number(ElementType::U64) => DataType::UInt64,
            ColumnType::Float | ColumnType::Number(ElementType::F64) => DataType::Float64,
            ColumnType::Number(dtype) => match dtype {
                ElementType::I8 => DataType::Int8,
                ElementType::I16 => DataType::Int16,
                ElementType::I32 => DataType::Int32,
                ElementType::U8 => DataType::UInt8,
                ElementType::U16 => DataType::UInt16,
                ElementType::U32 => DataType::UInt32,
                ElementType::F16 => DataType::Float16,
                _ => DataType::Float32,
            },
            ColumnType::Bytes => DataType::Binary,
            ColumnType::Text => DataType::Utf8,
            ColumnType::List(inner) => DataType::List(Arc::new(Field::new("item", inner.arrow(), true))),
            ColumnType::Struct(members) => DataType::Struct(fields_of(members)),
        }
    }

    /// The values as an array of this type, which they have.
    pub(super) fn build(&self, values: &[Option<Value<'_>>]) -> Result<ArrayRef, String> {
        macro_rules! numbers {
            ($array:ident, $number:ty) => {
                Arc::new($array::from_iter(
                    values.iter().map(|value| number(value.as_ref()).map(<$number>::from_le_bytes)),
                ))
            };
        }
        let found = |value: &Option<Value<'_>>| value.as_ref().map(|value| ColumnType::of(value)).transpose();
        for value in values {
            let dtype = found(value)?.unwrap_or(ColumnType::Null);
            if self.clone().with(dtype.clone()).as_ref() != Ok(self) {
                return Err(format!("{}, and the column has {}", dtype.arrow(), self.arrow()));
            }
        }
        Ok(match self {
            ColumnType::Null => Arc::new(NullArray::new(values.len())),
            ColumnType::Bool => Arc::new(BooleanArray::from_iter(values.iter().map(|value| match value {
                Some(Value::Bool(truth)) => Some(*truth),
                _ => None,
            }))),
            ColumnType::Number(ElementType::Bool) => Arc::new(BooleanArray::from_iter(
                values.iter().map(|value| number(value.as_ref()).map(|[byte]| byte != 0)),
            )),
            ColumnType::Int => {
                Arc::new(Int64Array::from_iter(values.iter().map(int).collect::<Result<Vec<_>, _>>()?))
            }
            ColumnType::UInt => Arc::new(UInt64Array::from_iter(values.iter().map(|value| match value {
                Some(Value::UInt(number)) => Some(*number),
                _ => None,
            }))),
            ColumnType::Float => Arc::new(Float64Array::from_iter(values.iter().map(|value| match value {
                Some(Value::Float(number)) => Some(*number),
                _ => None,
            }))),
            ColumnType::Number(dtype) => {
                match dtype {
                    ElementType::I8 => numbers!(Int8Array, i8),
                    ElementType::I16 => numbers!(Int16Array, i16),
                    ElementType::I32 => numbers!(Int32Array, i32),
                    ElementType::I64 => numbers!(Int64Array, i64),
                    ElementType::U8 => numbers!(UInt8Array, u8),
                    ElementType::U16 => numbers!(UInt16Array, u16),
                    ElementType::U32 => numbers!(UInt32Array, u32),
                    ElementType::U64 => numbers!(UInt64Array, u64),
                    ElementType::F16 => numbers!(Float16Array, f16),
                    ElementType::F64 => numbers!(Float64Array, f64),
                    // Every bfloat16 is a float of 32 bits.
                    ElementType::Bf16 => Arc::new(Float32Array::from_iter(values.iter().map(|value| {
                        number(value.as_ref()).map(|bytes| bf16::from_le_bytes(bytes).to_f32())
                    }))),
                    _ => numbers!(Float32Array, f32),
                }
            }
            ColumnType::Bytes => Arc::new(BinaryArray::from_iter(values.iter().map(|value| match value {
                Some(Value::Bytes(bytes)) => Some(&**bytes),
                _ => None,
            }))),
            ColumnType::Text => Arc::new(StringArray::from_iter(values.iter().map(|value| match value {
                Some(Value::Text(text) | Value::Number(text)) => Some(&**text),
                _ => None,
            }))),
            ColumnType::List(inner) => list(inner, values)?,
            ColumnType::Struct(members) => structure(members, values)?,
        })
    }
}

fn of_elements(dtype: ElementType) -> Result<ColumnType, String> {
    match dtype {
        ElementType::C64 | ElementType::C128 => Err("complex numbers, which Parquet has not".to_owned()),
        dtype => Ok(ColumnType::Number(dtype)),
    }
}

fn fields_of(members: &[(String, ColumnType)]) -> Fields {
    members.iter().map(|(name, dtype)| Field::new(name, dtype.arrow(), true)).collect()
}

fn int(value: &Option<Value<'_>>) -> Result<Option<i64>, String> {
    match value {
        Some(Value::Int(number)) => Ok(Some(*number)),
        Some(Value::UInt(number)) => i64::try_from(*number)
            .map(Some)
            .map_err(|_| format!("{number} in a column of integers with a sign")),
        _ => Ok(None),
    }
}

/// The bytes of an array of one number.
fn number<const N: usize>(value: Option<&Value<'_>>) -> Option<[u8; N]> {
    match value {
        Some(Value::Array(array)) => array.bytes.first_chunk().copied(),
        _ => None,
    }
}

/// The rows of an array: what is behind its first axis.
fn rows<'a>(array: &'a Array<'_>) -> impl Iterator<Item = Option<Value<'a>>> {
    let rows = array.shape.first().copied().unwrap_or_default();
    let shape: Shape = array.shape.iter().skip(1).copied().collect();
    let bytes =
        array.bytes.len().checked_div(usize::try_from(rows).unwrap_or(usize::MAX)).unwrap_or_default();
    let row = move |number: usize| array.bytes.get(number * bytes..(number + 1) * bytes).unwrap_or_default();
    (0..usize::try_from(rows).unwrap_or_default()).map(move |number| {
        Some(Value::Array(Array { dtype: array.dtype, shape: shape.clone(), bytes: row(number).into() }))
    })
}

fn list(inner: &ColumnType, values: &[Option<Value<'_>>]) -> Result<ArrayRef, String> {
    let (mut children, mut lengths, mut is_there) = (Vec::new(), Vec::new(), Vec::new());
    for value in values {
        let before = children.len();
        match value {
            Some(Value::List(values)) => children.extend(values.iter().map(|value| match value {
                Value::Null => None,
                value => Some(value.clone()),
            })),
            Some(Value::Array(array) | Value::Listed(array)) => children.extend(rows(array)),
            _ => {}
        }
        lengths.push(children.len() - before);
        is_there.push(value.is_some());
    }
    let field = Arc::new(Field::new("item", inner.arrow(), true));
    let nulls = NullBuffer::from(is_there);
    let array =
        ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), inner.build(&children)?, Some(nulls));
    Ok(Arc::new(array.map_err(|error| error.to_string())?))
}

fn structure(members: &[(String, ColumnType)], values: &[Option<Value<'_>>]) -> Result<ArrayRef, String> {
    let columns = members.iter().map(|(name, dtype)| {
        let of_member: Vec<_> = values
            .iter()
            .map(|value| match value {
                Some(Value::Struct(members)) => {
                    let member = members.iter().find(|(member, _)| member == name).map(|(_, value)| value);
                    member.filter(|value| **value != Value::Null).cloned()
                }
                _ => None,
            })
            .collect();
        dtype.build(&of_member).map_err(|what| format!("{name:?}: {what}"))
    });
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let nulls = NullBuffer::from_iter(values.iter().map(Option::is_some));
    let array = StructArray::try_new_with_length(fields_of(members), columns, Some(nulls), values.len());
    Ok(Arc::new(array.map_err(|error| error.to_string())?))
}
