//! Rows of Arrow's columns, as packed records.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::borrow::Cow;
use std::io::Write as _;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray as _;
use arrow_array::types::{
    Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType,
    Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array as _, ArrayRef};
use arrow_schema::{DataType, Schema, TimeUnit};

use crate::packed::{self, PackedGrammar, framed, pack};
use crate::{Array, ElementType, Fault, FormatError, Options, Shape, Value};

/// How deep types may stand in each other: the stack that a value takes grows with it.
const DEPTH_MAX: usize = 64;

const DAY_MILLISECONDS: i64 = 86_400_000;

/// The columns of a table that are used.
#[derive(Clone, Debug)]
pub(crate) struct Columns {
    /// Their numbers in the schema, rising.
    pub(crate) numbers: Vec<usize>,
    /// Their names.
    pub(crate) names: Vec<String>,
    /// Finds them in a packed row.
    pub(crate) grammar: Arc<PackedGrammar>,
}

impl Columns {
    /// Those of a file's schema that the options ask for.
    ///
    /// # Errors
    ///
    /// [`FormatError::Refused`] if one of them has the name of another one, or a type that has no value.
    pub(crate) fn of(path: &Path, schema: &Schema, options: &Options) -> Result<Self, FormatError> {
        let refused = |what: String| FormatError::refused(path, what);
        let (mut numbers, mut names, mut described) = (Vec::new(), Vec::<String>::new(), Vec::new());
        for (number, field) in
            schema.fields().iter().enumerate().filter(|(_, field)| options.wants(field.name()))
        {
            let name = field.name();
            if names.contains(name) {
                return Err(refused(format!("two of its columns are called {name:?}; rename one of them")));
            }
            let described_as = description(field.data_type(), 0)
                .map_err(|what| refused(format!("column {name:?} {what}: leave it out, or convert it")))?;
            numbers.push(number);
            names.push(name.clone());
            described.push((name.clone(), described_as));
        }
        Ok(Columns { numbers, names, grammar: Arc::new(PackedGrammar::new(described)) })
    }
}

/// What a type's values are, whatever stores them; else why it is refused.
fn description(dtype: &DataType, depth: usize) -> Result<String, String> {
    use DataType as D;

    if depth >= DEPTH_MAX {
        return Err(format!("has types more than {DEPTH_MAX} deep in each other"));
    }
    let inner = |dtype: &DataType| description(dtype, depth.saturating_add(1));
    Ok(match dtype {
        D::Null => "null".to_owned(),
        D::Boolean => "bool".to_owned(),
        D::Utf8 | D::LargeUtf8 | D::Utf8View => "text".to_owned(),
        D::Binary | D::LargeBinary | D::BinaryView | D::FixedSizeBinary(_) => "bytes".to_owned(),
        D::Date32 | D::Date64 => "date".to_owned(),
        D::Timestamp(unit, None) => format!("timestamp[{}]", unit_name(unit)),
        D::Timestamp(unit, Some(zone)) => format!("timestamp[{}, {zone}]", unit_name(unit)),
        D::Time32(unit) | D::Time64(unit) => format!("time[{}]", unit_name(unit)),
        D::Duration(unit) => format!("duration[{}]", unit_name(unit)),
        D::Decimal32(..) | D::Decimal64(..) | D::Decimal128(..) | D::Decimal256(..) => "decimal".to_owned(),
        D::Dictionary(_, value) => inner(value)?,
        D::RunEndEncoded(_, values) => inner(values.data_type())?,
        D::List(field) | D::LargeList(field) | D::ListView(field) | D::LargeListView(field) => {
            format!("list<{}>", inner(field.data_type())?)
        }
        D::FixedSizeList(field, length) => format!("{}[{length}]", inner(field.data_type())?),
        D::Map(entries, _) => format!("map<{}>", inner(entries.data_type())?),
        D::Struct(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|field| Ok(format!("{}: {}", field.name(), inner(field.data_type())?)))
                .collect::<Result<_, String>>()?;
            format!("struct{{{}}}", fields.join(", "))
        }
        D::Union(..) | D::Interval(_) => return Err(format!("has the type {dtype}, which is not read")),
        D::Int8 | D::Int16 | D::Int32 | D::Int64 | D::UInt8 | D::UInt16 | D::UInt32 | D::UInt64 => {
            dtype.to_string().to_lowercase()
        }
        D::Float16 | D::Float32 | D::Float64 => dtype.to_string().to_lowercase(),
    })
}

fn unit_name(unit: &TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

/// Replaces what a buffer has with a row, packed.
///
/// # Errors
///
/// [`Fault`] if a value contradicts its type: column, and what is wrong.
pub(crate) fn pack_row(
    columns: &[ArrayRef],
    names: &[String],
    row: usize,
    into: &mut Vec<u8>,
) -> Result<(), Fault> {
    into.clear();
    columns.iter().zip(names).try_for_each(|(column, name)| {
        put(column, row, into).map_err(|Fault(what)| Fault::new(format!("column {name:?}: {what}")))
    })
}

/// Appends the value of a row of an array. The array is valid, and has this row.
fn put(array: &ArrayRef, row: usize, into: &mut Vec<u8>) -> Result<(), Fault> {
    use DataType as D;

    if array.is_null(row) {
        pack(&Value::Null, into);
        return Ok(());
    }
    match array.data_type() {
        D::List(_) => {
            let list = array.as_list::<i32>();
            let offsets = list.value_offsets();
            return put_list(list.values(), between(offsets, row)?, false, into);
        }
        D::LargeList(_) => {
            let list = array.as_list::<i64>();
            let offsets = list.value_offsets();
            return put_list(list.values(), between(offsets, row)?, false, into);
        }
        D::ListView(_) => {
            let list = array.as_list_view::<i32>();
            return put_list(list.values(), viewed(list.offsets(), list.sizes(), row)?, false, into);
        }
        D::LargeListView(_) => {
            let list = array.as_list_view::<i64>();
            return put_list(list.values(), viewed(list.offsets(), list.sizes(), row)?, false, into);
        }
        D::FixedSizeList(_, length) => {
            let list = array.as_fixed_size_list();
            return put_list(list.values(), fixed(*length, &(row..row.saturating_add(1)))?, true, into);
        }
        D::Map(..) => {
            let map = array.as_map();
            return put_map(map, between(map.value_offsets(), row)?, into);
        }
        D::Struct(fields) => {
            let columns = array.as_struct().columns();
            let mut result = Ok(());
            framed(packed::STRUCT, into, |into| {
                result = fields.iter().zip(columns).try_for_each(|(field, column)| {
                    pack(&Value::Text(Cow::Borrowed(field.name())), into);
                    put(column, row, into)
                });
            });
            return result;
        }
        D::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let key = unsigned(dictionary.keys(), row).ok_or_else(|| Fault::new("a negative key"))?;
            return put(dictionary.values(), key, into);
        }
        D::RunEndEncoded(ends, _) => {
            let run = match ends.data_type() {
                D::Int16 => array.as_run::<Int16Type>().get_physical_index(row),
                D::Int32 => array.as_run::<Int32Type>().get_physical_index(row),
                _ => array.as_run::<Int64Type>().get_physical_index(row),
            };
            return put(array.as_any_ree().values(), run, into);
        }
        _ => {}
    }
    put_scalar(array, row, into)
}

/// Appends a number, a text, bytes.
fn put_scalar(array: &ArrayRef, row: usize, into: &mut Vec<u8>) -> Result<(), Fault> {
    use DataType as D;

    let text = |text| Value::Text(Cow::Borrowed(text));
    let bytes = |bytes| Value::Bytes(Cow::Borrowed(bytes));
    let value = match array.data_type() {
        D::Null => Value::Null,
        D::Boolean => Value::Bool(array.as_boolean().value(row)),
        D::Int8 => Value::Int(array.as_primitive::<Int8Type>().value(row).into()),
        D::Int16 => Value::Int(array.as_primitive::<Int16Type>().value(row).into()),
        D::Int32 => Value::Int(array.as_primitive::<Int32Type>().value(row).into()),
        D::Int64 => Value::Int(array.as_primitive::<Int64Type>().value(row)),
        D::UInt8 => Value::UInt(array.as_primitive::<UInt8Type>().value(row).into()),
        D::UInt16 => Value::UInt(array.as_primitive::<UInt16Type>().value(row).into()),
        D::UInt32 => Value::UInt(array.as_primitive::<UInt32Type>().value(row).into()),
        D::UInt64 => Value::UInt(array.as_primitive::<UInt64Type>().value(row)),
        D::Float16 | D::Float32 | D::Float64 => {
            let one = row..row.saturating_add(1);
            Value::Array(array_of(array, one, Shape::new()).ok_or_else(|| Fault::new("a float is missing"))?)
        }
        D::Date32 => Value::Int(array.as_primitive::<Date32Type>().value(row).into()),
        D::Date64 => Value::Int(days(array.as_primitive::<Date64Type>().value(row))?),
        D::Utf8 => text(array.as_string::<i32>().value(row)),
        D::LargeUtf8 => text(array.as_string::<i64>().value(row)),
        D::Utf8View => text(array.as_string_view().value(row)),
        D::Binary => bytes(array.as_binary::<i32>().value(row)),
        D::LargeBinary => bytes(array.as_binary::<i64>().value(row)),
        D::BinaryView => bytes(array.as_binary_view().value(row)),
        D::FixedSizeBinary(_) => bytes(array.as_fixed_size_binary().value(row)),
        D::Decimal32(_, scale) => {
            return put_decimal(array.as_primitive::<Decimal32Type>().value(row).into(), *scale, into);
        }
        D::Decimal64(_, scale) => {
            return put_decimal(array.as_primitive::<Decimal64Type>().value(row).into(), *scale, into);
        }
        D::Decimal128(_, scale) => {
            return put_decimal(array.as_primitive::<Decimal128Type>().value(row), *scale, into);
        }
        D::Decimal256(_, scale) => {
            put_digits(&array.as_primitive::<Decimal256Type>().value(row).to_string(), *scale, into);
            return Ok(());
        }
        other => return put_time(array, other, row, into),
    };
    pack(&value, into);
    Ok(())
}

/// Appends a time as the number that is stored: its unit is the type's.
fn put_time(array: &ArrayRef, dtype: &DataType, row: usize, into: &mut Vec<u8>) -> Result<(), Fault> {
    use DataType as D;
    use TimeUnit as T;

    let number: i64 = match dtype {
        D::Timestamp(T::Second, _) => array.as_primitive::<TimestampSecondType>().value(row),
        D::Timestamp(T::Millisecond, _) => array.as_primitive::<TimestampMillisecondType>().value(row),
        D::Timestamp(T::Microsecond, _) => array.as_primitive::<TimestampMicrosecondType>().value(row),
        D::Timestamp(T::Nanosecond, _) => array.as_primitive::<TimestampNanosecondType>().value(row),
        D::Time32(T::Second) => array.as_primitive::<Time32SecondType>().value(row).into(),
        D::Time32(_) => array.as_primitive::<Time32MillisecondType>().value(row).into(),
        D::Time64(T::Microsecond) => array.as_primitive::<Time64MicrosecondType>().value(row),
        D::Time64(_) => array.as_primitive::<Time64NanosecondType>().value(row),
        D::Duration(T::Second) => array.as_primitive::<DurationSecondType>().value(row),
        D::Duration(T::Millisecond) => array.as_primitive::<DurationMillisecondType>().value(row),
        D::Duration(T::Microsecond) => array.as_primitive::<DurationMicrosecondType>().value(row),
        D::Duration(T::Nanosecond) => array.as_primitive::<DurationNanosecondType>().value(row),
        other => return Err(Fault::new(format!("the type {other} is not read"))),
    };
    // A vector takes all that is written to it.
    framed(packed::NUMBER, into, |into| drop(write!(into, "{number}")));
    Ok(())
}

fn days(milliseconds: i64) -> Result<i64, Fault> {
    match (milliseconds.checked_div(DAY_MILLISECONDS), milliseconds.checked_rem(DAY_MILLISECONDS)) {
        (Some(days), Some(0)) => Ok(days),
        _ => Err(Fault::new(format!("a date of {milliseconds} milliseconds is no whole number of days"))),
    }
}

fn put_decimal(number: i128, scale: i8, into: &mut Vec<u8>) -> Result<(), Fault> {
    let mut digits = [0; 48];
    let mut rest = &mut digits[..];
    let full = |_| Fault::new("a decimal has more than 48 digits");
    write!(rest, "{number}").map_err(full)?;
    let left = rest.len();
    let written = digits.len().saturating_sub(left);
    let digits = digits.get(..written).and_then(|digits| std::str::from_utf8(digits).ok());
    put_digits(digits.unwrap_or_default(), scale, into);
    Ok(())
}

/// Appends a whole number that is to be divided by ten to the power of `scale`.
fn put_digits(number: &str, scale: i8, into: &mut Vec<u8>) {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", number),
    };
    let fraction = usize::try_from(scale).unwrap_or_default();
    let zeros = |count: usize, into: &mut Vec<u8>| into.extend(std::iter::repeat_n(b'0', count));
    framed(packed::NUMBER, into, |into| {
        into.extend_from_slice(sign.as_bytes());
        if fraction == 0 {
            into.extend_from_slice(digits.as_bytes());
            if digits != "0" {
                zeros(usize::from(scale.unsigned_abs()), into);
            }
            return;
        }
        let whole = digits.len().saturating_sub(fraction);
        let (before, after) = digits.split_at(whole);
        into.extend_from_slice(if whole == 0 { b"0" } else { before.as_bytes() });
        into.push(b'.');
        zeros(fraction.saturating_sub(after.len()), into);
        into.extend_from_slice(after.as_bytes());
    });
}

/// Appends the values of a range. Numbers without a null among them are an array.
fn put_list(values: &ArrayRef, range: Range<usize>, fixed: bool, into: &mut Vec<u8>) -> Result<(), Fault> {
    if range.start > range.end || range.end > values.len() {
        return Err(Fault::new(format!("a list of values {range:?} of {}", values.len())));
    }
    let length = range.end.saturating_sub(range.start);
    if matches!(values.data_type(), DataType::Boolean) && !has_null(values, &range) {
        let truths: Vec<u8> = range.map(|row| u8::from(values.as_boolean().value(row))).collect();
        let shape = Shape::from_slice(&[length as u64]);
        pack(&Value::Listed(Array { dtype: ElementType::Bool, shape, bytes: truths.into() }), into);
        return Ok(());
    }
    let nested = matches!(values.data_type(), DataType::FixedSizeList(..));
    let shape = Shape::from_slice(&[length as u64]);
    if let Some(array) = array_of(values, range.clone(), shape).filter(|_| fixed || !nested) {
        let is_listed = !fixed && values.data_type().is_integer();
        pack(&if is_listed { Value::Listed(array) } else { Value::Array(array) }, into);
        return Ok(());
    }
    let mut result = Ok(());
    framed(packed::LIST, into, |into| result = range.into_iter().try_for_each(|row| put(values, row, into)));
    result
}

/// Appends a list of keys and values, each pair a list of two.
fn put_map(map: &arrow_array::MapArray, range: Range<usize>, into: &mut Vec<u8>) -> Result<(), Fault> {
    let mut result = Ok(());
    framed(packed::LIST, into, |into| {
        result = range.into_iter().try_for_each(|row| {
            let mut pair = Ok(());
            framed(packed::LIST, into, |into| {
                pair = put(map.keys(), row, into).and_then(|()| put(map.values(), row, into));
            });
            pair
        });
    });
    result
}

/// Numbers as an array, if none of them is null; those of fixed lists in each other, too.
fn array_of(values: &ArrayRef, range: Range<usize>, mut shape: Shape) -> Option<Array<'_>> {
    if has_null(values, &range) {
        return None;
    }
    if let DataType::FixedSizeList(_, length) = values.data_type() {
        shape.push(u64::try_from(*length).ok()?);
        return array_of(values.as_fixed_size_list().values(), fixed(*length, &range).ok()?, shape);
    }
    let (dtype, bytes) = numbers(values)?;
    let start = range.start.checked_mul(dtype.bytes())?;
    let end = range.end.checked_mul(dtype.bytes())?;
    Some(Array { dtype, shape, bytes: Cow::Borrowed(bytes.get(start..end)?) })
}

/// The bytes of all of an array's numbers, and their type.
fn numbers(values: &ArrayRef) -> Option<(ElementType, &[u8])> {
    macro_rules! of {
        ($($dtype:ident, $element:ident, $primitive:ty;)*) => {
            match values.data_type() {
                $(DataType::$dtype => Some((
                    ElementType::$element,
                    values.as_primitive::<$primitive>().values().inner().as_slice(),
                )),)*
                _ => None,
            }
        };
    }
    of! {
        Int8, I8, Int8Type; Int16, I16, Int16Type; Int32, I32, Int32Type; Int64, I64, Int64Type;
        UInt8, U8, UInt8Type; UInt16, U16, UInt16Type; UInt32, U32, UInt32Type; UInt64, U64, UInt64Type;
        Float16, F16, Float16Type; Float32, F32, Float32Type; Float64, F64, Float64Type;
    }
}

/// An integer that is not negative.
fn unsigned(keys: &dyn arrow_array::Array, row: usize) -> Option<usize> {
    macro_rules! of {
        ($($dtype:ident, $primitive:ty;)*) => {
            match keys.data_type() {
                $(DataType::$dtype => usize::try_from(keys.as_primitive::<$primitive>().value(row)).ok(),)*
                _ => None,
            }
        };
    }
    of! {
        Int8, Int8Type; Int16, Int16Type; Int32, Int32Type; Int64, Int64Type;
        UInt8, UInt8Type; UInt16, UInt16Type; UInt32, UInt32Type; UInt64, UInt64Type;
    }
}

fn has_null(values: &ArrayRef, range: &Range<usize>) -> bool {
    values.nulls().is_some_and(|nulls| {
        nulls.null_count() > 0
            && nulls.slice(range.start, range.end.saturating_sub(range.start)).null_count() > 0
    })
}

/// The values of a row between two offsets.
fn between<O: Copy + TryInto<usize>>(offsets: &[O], row: usize) -> Result<Range<usize>, Fault> {
    let at = |row: usize| offsets.get(row).and_then(|offset| (*offset).try_into().ok());
    at(row)
        .zip(row.checked_add(1).and_then(at))
        .map(|(start, end)| start..end)
        .ok_or_else(|| Fault::new("a list without offsets"))
}

/// The values of a row of a view.
fn viewed<O: Copy + TryInto<usize>>(offsets: &[O], sizes: &[O], row: usize) -> Result<Range<usize>, Fault> {
    let of = |numbers: &[O]| numbers.get(row).and_then(|number| (*number).try_into().ok());
    of(offsets)
        .zip(of(sizes))
        .and_then(|(start, size): (usize, usize)| Some(start..start.checked_add(size)?))
        .ok_or_else(|| Fault::new("a list without offsets"))
}

/// The values of rows of a fixed number each.
fn fixed(length: i32, rows: &Range<usize>) -> Result<Range<usize>, Fault> {
    let times = |row: usize| usize::try_from(length).ok().and_then(|length| row.checked_mul(length));
    times(rows.start)
        .zip(times(rows.end))
        .map(|(start, end)| start..end)
        .ok_or_else(|| Fault::new("a list of a negative length"))
}
