//! Records as JSON, one object each, in which nothing of a value is lost or ambiguous.
//!
//! `{"n": 0, "key": "000000", "parts": {"jpg": {"$bytes": 1234, "sha256": "..."}, "cls": "3"}}`: text, truth
//! values and null are JSON's own; integers too, or text beyond 2^53; bytes are `{"$bytes": length}` with
//! `hex` (up to 32 bytes) or `sha256`; numbers of a stated type are `{"$array": NumPy's name, "shape"}` with
//! `values` (up to 16), `le_hex` (up to 32 bytes, and what JSON has no number for), or `sha256_le`, a hash of
//! the little-endian bytes in C order. Bytes that are an NPY file have its array as `decoded`, too.

use std::path::Path;

use serde_json::{Map, Number, Value as Json, json};
use sha2::{Digest as _, Sha256};

use crate::{Array, ElementType, Key, Part, Value, npy};

/// The most bytes that are written out.
const HEX_MAX: usize = 32;

/// The most numbers of an array that are written out.
const VALUES_MAX: usize = 16;

/// The largest integer up to which every one is a double, too.
const EXACT_MAX: u64 = 1 << 53;

/// A record as an object: its number, its key unless it has none, its parts.
#[must_use]
pub fn record(number: u64, key: &Key<'_>, parts: &[Part<'_>]) -> Json {
    let mut object = Map::new();
    object.insert("n".to_owned(), number.into());
    match key {
        Key::None => {}
        Key::Number(key) => drop(object.insert("key".to_owned(), (*key).into())),
        Key::Bytes(key) => {
            let key = std::str::from_utf8(key).map_or_else(|_| bytes(key), Json::from);
            object.insert("key".to_owned(), key);
        }
    }
    let parts = parts.iter().map(|(name, part)| (name.clone().into_owned(), value(part))).collect();
    object.insert("parts".to_owned(), Json::Object(parts));
    Json::Object(object)
}

/// A value.
#[must_use]
pub fn value(value: &Value<'_>) -> Json {
    match value {
        Value::Null => Json::Null,
        Value::Bool(truth) => Json::from(*truth),
        Value::Int(number) if number.unsigned_abs() > EXACT_MAX => Json::from(number.to_string()),
        Value::Int(number) => Json::from(*number),
        Value::UInt(number) if *number > EXACT_MAX => Json::from(number.to_string()),
        Value::UInt(number) => Json::from(*number),
        // JSON has neither infinities nor NaN.
        Value::Float(number) => {
            Number::from_f64(*number).map_or_else(|| number.to_string().into(), Json::Number)
        }
        Value::Number(text) | Value::Text(text) => Json::from(text.as_ref()),
        Value::Bytes(value) => bytes(value),
        Value::Array(value) => array(value),
        Value::Listed(value) => listed(value),
        Value::List(values) => values.iter().map(self::value).collect(),
        Value::Struct(values) => Json::Object(
            values.iter().map(|(name, part)| (name.clone().into_owned(), self::value(part))).collect(),
        ),
    }
}

fn bytes(bytes: &[u8]) -> Json {
    if bytes.len() <= HEX_MAX {
        return json!({"$bytes": bytes.len(), "hex": hex(bytes)});
    }
    let mut shown = json!({"$bytes": bytes.len(), "sha256": hash(bytes)});
    if npy::is(Path::new(""), bytes)
        && let Ok(decoded) = npy::value(bytes)
    {
        shown["decoded"] = value(&decoded);
    }
    shown
}

/// Integers, beyond 2^53 as text, or truth values.
fn listed(array: &Array<'_>) -> Json {
    let numbers = numbers(array.dtype, &array.bytes).unwrap_or_default().into_iter();
    let exact = |number: Json| match (number.as_i64(), number.as_u64()) {
        (Some(number), _) => value(&Value::Int(number)),
        (None, Some(number)) => value(&Value::UInt(number)),
        (None, None) => number,
    };
    numbers.map(exact).collect()
}

fn array(array: &Array<'_>) -> Json {
    let Array { dtype, shape, bytes } = array;
    let (dtype_name, shape) = (dtype.numpy(), shape.as_slice());
    let values = if array.elements() <= VALUES_MAX { numbers(*dtype, bytes) } else { None };
    match values {
        Some(values) => json!({"$array": dtype_name, "shape": shape, "values": values}),
        None if array.elements() <= VALUES_MAX || bytes.len() <= HEX_MAX => {
            json!({"$array": dtype_name, "shape": shape, "le_hex": hex(bytes)})
        }
        None => json!({"$array": dtype_name, "shape": shape, "sha256_le": hash(bytes)}),
    }
}

/// The elements as JSON's numbers; `None` if one of them is none.
fn numbers(dtype: ElementType, bytes: &[u8]) -> Option<Vec<Json>> {
    bytes.chunks_exact(dtype.bytes()).map(|element| number(dtype, element)).collect()
}

/// Reads an element as an integer, sign-extended where it has a sign.
#[expect(clippy::cast_possible_wrap, reason = "the bits of a signed number")]
fn number(dtype: ElementType, element: &[u8]) -> Option<Json> {
    let mut eight = [0; 8];
    eight.get_mut(..element.len())?.copy_from_slice(element);
    let bits = u64::from_le_bytes(eight);
    let unused = 64 - 8 * u32::try_from(element.len()).ok()?;
    let signed = (bits << unused) as i64 >> unused;
    let float = |number: f64| Number::from_f64(number).map(Json::Number);
    match dtype {
        ElementType::Bool => Some(Json::from(bits != 0)),
        ElementType::U8 | ElementType::U16 | ElementType::U32 | ElementType::U64 => Some(Json::from(bits)),
        ElementType::I8 | ElementType::I16 | ElementType::I32 | ElementType::I64 => Some(Json::from(signed)),
        ElementType::F64 => float(f64::from_bits(bits)),
        ElementType::F32 => float(f64::from(f32::from_bits(u32::try_from(bits).ok()?))),
        ElementType::F16 => float(half::f16::from_bits(u16::try_from(bits).ok()?).to_f64()),
        ElementType::Bf16 => float(half::bf16::from_bits(u16::try_from(bits).ok()?).to_f64()),
        ElementType::C64 | ElementType::C128 => None,
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;

    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}
