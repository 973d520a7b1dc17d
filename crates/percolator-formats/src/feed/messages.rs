//! The parts of the records that Percolator's own sources have: Datums, Examples, and whatever else.

use std::borrow::Cow;

use percolator_messages::example::{Example, Feature};
use percolator_messages::{Datum, Value as Kind};

use crate::{Array, ElementType, Part, Shape, Value};

/// The parts of a record of an LMDB, a LevelDB or a TFRecord file: the fields of a Datum, the features of an
/// Example, or one part `value`.
#[must_use]
pub fn parts_of_record(record: &[u8]) -> Vec<Part<'_>> {
    match Kind::of(record) {
        Some(Kind::Datum) => Datum::parse(record).map(datum).unwrap_or_else(|_| whole(record)),
        Some(Kind::Example) => {
            Example::parse(record).map(|it| example(&it)).unwrap_or_else(|_| whole(record))
        }
        _ => whole(record),
    }
}

/// The parts of such a record as a sample of training has them, for whoever writes it in another format: a
/// Datum is its image and its label, and a feature with one value is that value.
#[must_use]
pub fn sample_of_record(record: &[u8]) -> Vec<Part<'_>> {
    match Kind::of(record) {
        Some(Kind::Datum) => Datum::parse(record).map(sample).unwrap_or_else(|_| whole(record)),
        Some(Kind::Example) => parts_of_record(record).into_iter().map(only).collect(),
        _ => whole(record),
    }
}

fn sample(datum: Datum<'_>) -> Vec<Part<'_>> {
    let label = ("label".into(), Value::Int(datum.label.into()));
    // One that has more than an image keeps all of its fields.
    if !datum.floats.is_empty() && (datum.encoded || !datum.data.is_empty()) {
        return self::datum(datum);
    }
    if datum.encoded {
        return vec![("image".into(), Value::Bytes(datum.data.into())), label];
    }
    let extent = |extent: i32| u64::try_from(extent).unwrap_or_default();
    let shape = Shape::from_slice(&[datum.channels, datum.height, datum.width].map(extent));
    let (dtype, bytes) = match datum.floats.is_empty() {
        true => (ElementType::U8, Cow::Borrowed(datum.data)),
        false => {
            let mut floats = Vec::new();
            datum.floats.gather(&mut floats);
            (ElementType::F32, floats.iter().flat_map(|float| float.to_le_bytes()).collect::<Vec<_>>().into())
        }
    };
    let elements = shape.iter().product::<u64>();
    match elements == (bytes.len() / dtype.bytes()) as u64 {
        true => vec![("pixels".into(), Value::Array(Array { dtype, shape, bytes })), label],
        false => self::datum(datum),
    }
}

/// A part whose only value is not in a list.
fn only((name, value): Part<'_>) -> Part<'_> {
    let value = match value {
        Value::List(mut values) if values.len() == 1 => values.remove(0),
        Value::Array(array) if array.shape[..] == [1] && array.dtype == ElementType::I64 => {
            match array.bytes.first_chunk() {
                Some(number) => Value::Int(i64::from_le_bytes(*number)),
                None => Value::Array(array),
            }
        }
        Value::Array(array) if array.shape[..] == [1] => Value::Array(Array { shape: Shape::new(), ..array }),
        other => other,
    };
    (name, value)
}

fn whole(record: &[u8]) -> Vec<Part<'_>> {
    let value = match std::str::from_utf8(record) {
        Ok(text) => Value::Text(text.into()),
        Err(_) => Value::Bytes(record.into()),
    };
    vec![("value".into(), value)]
}

fn datum(datum: Datum<'_>) -> Vec<Part<'_>> {
    let number = |number: i32| Value::Int(number.into());
    let mut parts: Vec<Part<'_>> = vec![
        ("channels".into(), number(datum.channels)),
        ("height".into(), number(datum.height)),
        ("width".into(), number(datum.width)),
        ("label".into(), number(datum.label)),
        ("encoded".into(), Value::Bool(datum.encoded)),
        ("data".into(), Value::Bytes(datum.data.into())),
    ];
    if !datum.floats.is_empty() {
        let mut floats = Vec::new();
        datum.floats.gather(&mut floats);
        parts.push((
            "float_data".into(),
            array(ElementType::F32, floats.iter().flat_map(|f| f.to_le_bytes())),
        ));
    }
    parts
}

fn example<'a>(example: &Example<'a>) -> Vec<Part<'a>> {
    let value = |feature: Feature<'a>| match feature {
        Feature::Unset => Value::Null,
        Feature::Ints(ints) => array(ElementType::I64, ints.iter().flat_map(i64::to_le_bytes)),
        Feature::Floats(floats) => array(ElementType::F32, floats.iter().flat_map(f32::to_le_bytes)),
        Feature::Bytes(strings) => {
            Value::List(strings.iter().map(|string| Value::Bytes(string.into())).collect())
        }
    };
    example.features().entries().map(|(name, feature)| (Cow::Borrowed(name), value(feature))).collect()
}

/// Numbers on one axis.
fn array<'a>(dtype: ElementType, bytes: impl Iterator<Item = u8>) -> Value<'a> {
    let bytes: Vec<u8> = bytes.collect();
    let shape = Shape::from_slice(&[(bytes.len() / dtype.bytes()) as u64]);
    Value::Array(Array { dtype, shape, bytes: bytes.into() })
}
