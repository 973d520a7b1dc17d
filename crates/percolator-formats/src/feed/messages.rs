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
