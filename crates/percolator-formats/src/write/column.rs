//! The parts of records as columns of Arrow: their types, found in the records, and their values.

use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow_array::{
    Array as _, ArrayRef, BinaryArray, BooleanArray, Float16Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int32Array, Int64Array, ListArray, NullArray, StringArray, StructArray, UInt8Array,
    UInt16Array, UInt32Array, UInt64Array,
};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Fields};
use half::{bf16, f16};

use crate::fields::has_twice;
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
                if members.is_empty() {
                    return Err("a structure without members, which Parquet has not".to_owned());
                }
                if has_twice(members.iter().map(|(name, _)| &**name)) {
                    return Err("a structure with two members of one name".to_owned());
                }
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
            // A list with a null has its values one by one, and one without has numbers of a stated type.
            (C::Number(dtype), C::Int | C::UInt) | (C::Int | C::UInt, C::Number(dtype)) if is_int(dtype) => {
                C::Number(dtype)
            }
            (C::Number(ElementType::Bool), C::Bool) | (C::Bool, C::Number(ElementType::Bool)) => {
                C::Number(ElementType::Bool)
            }
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
            ColumnType::Number(dtype) => numbers(*dtype, values)?,
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

fn is_int(dtype: ElementType) -> bool {
    use ElementType::{I8, I16, I32, I64, U8, U16, U32, U64};
    matches!(dtype, I8 | I16 | I32 | I64 | U8 | U16 | U32 | U64)
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

/// Numbers of a stated type: those of arrays, and integers and truth values that fit.
fn numbers(dtype: ElementType, values: &[Option<Value<'_>>]) -> Result<ArrayRef, String> {
    let mut bytes = Vec::with_capacity(values.len().saturating_mul(dtype.bytes()));
    for value in values {
        let number = match value {
            Some(Value::Array(array)) => {
                bytes.extend_from_slice(&array.bytes);
                continue;
            }
            Some(Value::Int(number)) => i128::from(*number),
            Some(Value::UInt(number)) => i128::from(*number),
            Some(Value::Bool(truth)) => i128::from(*truth),
            _ => 0,
        };
        if !integers_of(dtype).contains(&number) {
            return Err(format!("{number} in a column of {}", ColumnType::Number(dtype).arrow()));
        }
        bytes.extend(number.to_le_bytes().iter().take(dtype.bytes()));
    }
    let nulls = NullBuffer::from_iter(values.iter().map(Option::is_some));
    Ok(primitive(dtype, &bytes, Some(nulls)))
}

/// The integers that a type has; of floats, the zero of a null.
fn integers_of(dtype: ElementType) -> RangeInclusive<i128> {
    macro_rules! all_of {
        ($number:ty) => {
            <$number>::MIN.into()..=<$number>::MAX.into()
        };
    }
    match dtype {
        ElementType::I8 => all_of!(i8),
        ElementType::I16 => all_of!(i16),
        ElementType::I32 => all_of!(i32),
        ElementType::I64 => all_of!(i64),
        ElementType::U8 => all_of!(u8),
        ElementType::U16 => all_of!(u16),
        ElementType::U32 => all_of!(u32),
        ElementType::U64 => all_of!(u64),
        ElementType::Bool => 0..=1,
        _ => 0..=0,
    }
}

/// The most values of a column that is, or is in, lists.
const VALUES_MAX: u64 = i32::MAX as u64;

/// The values, if they all are arrays of as many axes as lists stand in each other, of these elements.
fn arrays<'a>(
    depth: usize,
    dtype: ElementType,
    values: &'a [Option<Value<'_>>],
) -> Option<Vec<Option<&'a Array<'a>>>> {
    let array = |value: &'a Option<Value<'_>>| match value {
        None => Some(None),
        Some(Value::Array(array) | Value::Listed(array)) => {
            (array.dtype == dtype && array.shape.len() == depth).then_some(Some(array))
        }
        _ => None,
    };
    values.iter().map(array).collect()
}

/// Lists in lists, out of the bytes of arrays: an array's elements are never values of their own.
fn nested(depth: usize, dtype: ElementType, arrays: &[Option<&Array<'_>>]) -> Result<ArrayRef, String> {
    let mut levels = vec![Vec::new(); depth];
    for array in arrays {
        let Some(array) = array else {
            levels[0].push(0);
            continue;
        };
        let mut lists = 1_u64;
        for (level, extent) in levels.iter_mut().zip(array.shape.iter()) {
            // An array without elements may state any number of rows.
            if lists.saturating_mul(*extent) > VALUES_MAX || lists > (array.bytes.len() as u64).max(1 << 16) {
                return Err(format!("{:?} lists, and a column has up to {VALUES_MAX} values", array.shape));
            }
            let fits = |count: u64| usize::try_from(count).map_err(|error| error.to_string());
            level.extend(std::iter::repeat_n(fits(*extent)?, fits(lists)?));
            lists = lists.saturating_mul(*extent);
        }
    }
    let bytes: Vec<u8> = arrays.iter().flatten().flat_map(|array| array.bytes.iter().copied()).collect();
    let mut built = primitive(dtype, &bytes, None);
    for (level, lengths) in levels.into_iter().enumerate().rev() {
        let field = Arc::new(Field::new("item", built.data_type().clone(), true));
        let nulls = (level == 0).then(|| NullBuffer::from_iter(arrays.iter().map(Option::is_some)));
        built = Arc::new(lists(field, lengths, built, nulls)?);
    }
    Ok(built)
}

/// Numbers out of their bytes.
fn primitive(dtype: ElementType, bytes: &[u8], nulls: Option<NullBuffer>) -> ArrayRef {
    macro_rules! of {
        ($array:ident, $number:ty) => {{
            let numbers = bytes.as_chunks::<{ size_of::<$number>() }>().0;
            let numbers: ScalarBuffer<_> = numbers.iter().map(|it| <$number>::from_le_bytes(*it)).collect();
            Arc::new($array::new(numbers, nulls))
        }};
    }
    match dtype {
        ElementType::Bool => {
            let truths: BooleanBuffer = bytes.iter().map(|byte| *byte != 0).collect();
            Arc::new(BooleanArray::new(truths, nulls))
        }
        ElementType::I8 => of!(Int8Array, i8),
        ElementType::I16 => of!(Int16Array, i16),
        ElementType::I32 => of!(Int32Array, i32),
        ElementType::I64 => of!(Int64Array, i64),
        ElementType::U8 => of!(UInt8Array, u8),
        ElementType::U16 => of!(UInt16Array, u16),
        ElementType::U32 => of!(UInt32Array, u32),
        ElementType::U64 => of!(UInt64Array, u64),
        ElementType::F16 => of!(Float16Array, f16),
        ElementType::F64 => of!(Float64Array, f64),
        // Every bfloat16 is a float of 32 bits.
        ElementType::Bf16 => {
            let numbers = bytes.as_chunks::<2>().0.iter().map(|it| bf16::from_le_bytes(*it).to_f32());
            Arc::new(Float32Array::new(numbers.collect(), nulls))
        }
        _ => of!(Float32Array, f32),
    }
}

fn lists(
    field: Arc<Field>,
    lengths: Vec<usize>,
    values: ArrayRef,
    nulls: Option<NullBuffer>,
) -> Result<ListArray, String> {
    let total = lengths.iter().fold(0_u64, |sum, length| sum.saturating_add(*length as u64));
    if total > VALUES_MAX {
        return Err(format!("{total} values in lists, and a row group has up to {VALUES_MAX}"));
    }
    ListArray::try_new(field, OffsetBuffer::from_lengths(lengths), values, nulls)
        .map_err(|error| error.to_string())
}

fn list(inner: &ColumnType, values: &[Option<Value<'_>>]) -> Result<ArrayRef, String> {
    let (mut leaf, mut depth) = (inner, 1);
    while let ColumnType::List(inner) = leaf {
        (leaf, depth) = (inner, depth + 1);
    }
    if let ColumnType::Number(dtype) = leaf
        && let Some(arrays) = arrays(depth, *dtype, values)
    {
        return nested(depth, *dtype, &arrays);
    }
    let (mut children, mut lengths, mut is_there) = (Vec::new(), Vec::new(), Vec::new());
    for value in values {
        let before = children.len();
        match value {
            Some(Value::List(values)) => children.extend(values.iter().map(|value| match value {
                Value::Null => None,
                value => Some(value.clone()),
            })),
            Some(Value::Array(array) | Value::Listed(array)) => {
                let rows = array.shape.first().copied().unwrap_or_default();
                if rows > (array.bytes.len() as u64).max(1 << 16) {
                    return Err(format!("{rows} rows without elements"));
                }
                children.extend(rows_of(array));
            }
            _ => {}
        }
        lengths.push(children.len() - before);
        is_there.push(value.is_some());
    }
    let field = Arc::new(Field::new("item", inner.arrow(), true));
    let nulls = NullBuffer::from(is_there);
    Ok(Arc::new(lists(field, lengths, inner.build(&children)?, Some(nulls))?))
}

/// The rows of an array: what is behind its first axis.
fn rows_of<'a>(array: &'a Array<'_>) -> impl Iterator<Item = Option<Value<'a>>> {
    let rows = array.shape.first().copied().unwrap_or_default();
    let shape: Shape = array.shape.iter().skip(1).copied().collect();
    let bytes =
        array.bytes.len().checked_div(usize::try_from(rows).unwrap_or(usize::MAX)).unwrap_or_default();
    let row = move |number: usize| array.bytes.get(number * bytes..(number + 1) * bytes).unwrap_or_default();
    (0..usize::try_from(rows).unwrap_or_default()).map(move |number| {
        Some(Value::Array(Array { dtype: array.dtype, shape: shape.clone(), bytes: row(number).into() }))
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn array(dtype: ElementType, shape: &[u64], bytes: &[u8]) -> Option<Value<'static>> {
        let shape = shape.iter().copied().collect();
        Some(Value::Array(Array { dtype, shape, bytes: bytes.to_vec().into() }))
    }

    fn built(values: &[Option<Value<'_>>]) -> Result<ArrayRef, String> {
        let mut found = values.iter().flatten().map(ColumnType::of);
        found.try_fold(ColumnType::Null, |known, found| known.with(found?))?.build(values)
    }

    #[test]
    fn arrays_are_the_lists_that_their_elements_make() {
        let whole = built(&[array(ElementType::U8, &[2, 3], &[1, 2, 3, 4, 5, 6]), None]).unwrap();
        let of = |numbers: [u8; 3]| Value::List(numbers.map(|it| Value::UInt(it.into())).to_vec());
        let one_by_one = Some(Value::List(vec![of([1, 2, 3]), of([4, 5, 6])]));
        let dtype = ColumnType::of(&array(ElementType::U8, &[0, 0], &[]).unwrap()).unwrap();
        assert_eq!(&dtype.build(&[one_by_one, None]).unwrap(), &whole);
        assert_eq!(whole.data_type(), &dtype.arrow());
    }

    #[test]
    fn lists_with_and_without_nulls_are_one_column() {
        let listed = |dtype, bytes: &[u8]| {
            let shape = [bytes.len() as u64].into_iter().collect();
            Some(Value::Listed(Array { dtype, shape, bytes: bytes.to_vec().into() }))
        };
        let with_null = |value| Some(Value::List(vec![value, Value::Null]));
        let numbers = built(&[listed(ElementType::I8, &[1, 255]), with_null(Value::Int(7))]).unwrap();
        assert_eq!(
            numbers.data_type(),
            &ColumnType::List(Box::new(ColumnType::Number(ElementType::I8))).arrow()
        );
        assert_eq!(numbers.null_count(), 0);
        let truths = built(&[with_null(Value::Bool(true)), listed(ElementType::Bool, &[0, 1])]).unwrap();
        assert_eq!(truths.len(), 2);
        let error = built(&[listed(ElementType::I8, &[1]), with_null(Value::Int(300))]).unwrap_err();
        assert!(error.contains("300") && error.contains("Int8"), "{error}");
    }

    #[test]
    fn what_no_column_holds_is_an_error() {
        let error = built(&[array(ElementType::U8, &[1 << 40, 0], &[])]).unwrap_err();
        assert!(error.contains("1099511627776"), "{error}");
        let error = built(&[array(ElementType::U8, &[1 << 20, 1 << 12, 0], &[])]).unwrap_err();
        assert!(error.contains("up to 2147483647"), "{error}");
        let error = built(&[Some(Value::Struct(Vec::new()))]).unwrap_err();
        assert!(error.contains("without members"), "{error}");
        let twice = vec![("a".into(), Value::Int(1)), ("a".into(), Value::Int(2))];
        let error = built(&[Some(Value::Struct(twice))]).unwrap_err();
        assert!(error.contains("one name"), "{error}");
    }
}
