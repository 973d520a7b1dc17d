//! Lists and dictionaries in a leaf: LitData's own encoding, or JSON.
//!
//! A byte says what follows; numbers are little-endian, counts and lengths have 4 bytes. Lists of texts, of
//! numbers of one type and of dictionaries with the same keys have encodings of their own.

use std::borrow::Cow;

use crate::fields::{number, text};
use crate::{Array, ElementType, Fault, Shape, Value, json};

/// How deep dictionaries may stand in each other: the stack grows with it.
const DEPTH_MAX: usize = 64;

const JSON: u8 = 0;
const TEXTS: u8 = 1;
const INTS: u8 = 2;
const FLOATS: u8 = 3;
const BOOLS: u8 = 4;
const DICTIONARY: u8 = 5;
/// Dictionaries with the same keys.
const ROWS: u8 = 6;
const TEXT: u8 = 7;
const INT: u8 = 8;
const FLOAT: u8 = 9;
const BOOL: u8 = 10;
const NONE: u8 = 11;

/// What a byte before a value of a row is more than that before others; none of those that have it is a list.
const IN_ROWS: u8 = 0x10;

/// The value of a leaf.
pub(super) fn value(bytes: &[u8]) -> Result<Value<'_>, Fault> {
    // No mark of the encoding is a character that JSON begins with.
    if bytes.first().is_none_or(|first| *first > 0x20) {
        return json::value(bytes);
    }
    let mut rest = bytes;
    let value = take(&mut rest, DEPTH_MAX)?;
    if rest.is_empty() { Ok(value) } else { Err(Fault::new(format!("{} bytes follow a value", rest.len()))) }
}

fn take<'a>(rest: &mut &'a [u8], depth: usize) -> Result<Value<'a>, Fault> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(Fault::new(format!("dictionaries are more than {DEPTH_MAX} deep in each other")));
    };
    let [tag] = *array(rest)?;
    Ok(match tag {
        JSON => json::value(counted(rest, 1)?)?,
        TEXTS => {
            let count = count(rest)?;
            Value::List((0..count).map(|_| Ok(Value::Text(named(rest)?))).collect::<Result<_, Fault>>()?)
        }
        INTS => {
            let bytes = counted(rest, 8)?;
            Value::Listed(Array { dtype: ElementType::I64, shape: one(bytes.len() / 8), bytes: bytes.into() })
        }
        FLOATS => {
            let numbers = counted(rest, 8)?.as_chunks::<8>().0.iter();
            Value::List(numbers.map(|number| Value::Float(f64::from_le_bytes(*number))).collect())
        }
        BOOLS => {
            let bytes = counted(rest, 1)?;
            bytes.iter().try_for_each(|byte| truth(*byte).map(drop))?;
            Value::Listed(Array { dtype: ElementType::Bool, shape: one(bytes.len()), bytes: bytes.into() })
        }
        DICTIONARY => {
            let count = count(rest)?;
            let members = (0..count).map(|_| Ok((named(rest)?, take(rest, depth)?)));
            Value::Struct(members.collect::<Result<_, Fault>>()?)
        }
        ROWS => rows(rest)?,
        tag => scalar(tag, rest)?,
    })
}

/// A text, a number, a truth value, or nothing.
fn scalar<'a>(tag: u8, rest: &mut &'a [u8]) -> Result<Value<'a>, Fault> {
    Ok(match tag {
        TEXT => Value::Text(named(rest)?),
        INT => Value::Int(i64::from_le_bytes(*array(rest)?)),
        FLOAT => Value::Float(f64::from_le_bytes(*array(rest)?)),
        BOOL => {
            let [byte] = *array(rest)?;
            Value::Bool(truth(byte)?)
        }
        NONE => Value::Null,
        other => return Err(Fault::new(format!("a value has the unknown mark {other}"))),
    })
}

/// Dictionaries whose keys stand before them once.
fn rows<'a>(rest: &mut &'a [u8]) -> Result<Value<'a>, Fault> {
    let (rows, keys) = (count(rest)?, count(rest)?);
    let keys: Vec<_> = (0..keys).map(|_| named(rest)).collect::<Result<_, _>>()?;
    if keys.is_empty() && rows > 0 {
        return Err(Fault::new("rows without keys"));
    }
    let row = |_| {
        let members = keys.iter().map(|key| {
            let [tag] = *array(rest)?;
            // Nothing, text, int, float, bool.
            let tag = match tag.wrapping_sub(IN_ROWS) {
                0 => NONE,
                known @ 1..=4 => TEXT.saturating_add(known).saturating_sub(1),
                _ => return Err(Fault::new(format!("a value of a row has the unknown mark {tag}"))),
            };
            Ok((key.clone(), scalar(tag, rest)?))
        });
        Ok(Value::Struct(members.collect::<Result<_, Fault>>()?))
    };
    Ok(Value::List((0..rows).map(row).collect::<Result<_, Fault>>()?))
}

fn cut() -> Fault {
    Fault::new("a value is cut")
}

fn array<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; N], Fault> {
    let (array, after) = rest.split_first_chunk().ok_or_else(cut)?;
    *rest = after;
    Ok(array)
}

/// A count, which may be that of the bytes that are left: each of what is counted has one at least.
fn count(rest: &mut &[u8]) -> Result<u32, Fault> {
    let (count, after) = number(rest)?;
    *rest = after;
    if usize::try_from(count).is_ok_and(|count| count <= after.len()) {
        return Ok(count);
    }
    Err(Fault::new(format!("{count} values do not fit {} bytes", after.len())))
}

/// Bytes behind the number of their groups.
fn counted<'a>(rest: &mut &'a [u8], size: usize) -> Result<&'a [u8], Fault> {
    let (count, after) = number(rest)?;
    let bytes = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(size);
    let (bytes, after) = after.split_at_checked(bytes).ok_or_else(cut)?;
    *rest = after;
    Ok(bytes)
}

fn named<'a>(rest: &mut &'a [u8]) -> Result<Cow<'a, str>, Fault> {
    text(counted(rest, 1)?).map(Cow::Borrowed)
}

fn truth(byte: u8) -> Result<bool, Fault> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(Fault::new(format!("a truth value is 0 or 1, and not {other}"))),
    }
}

fn one(extent: usize) -> Shape {
    Shape::from_slice(&[extent as u64])
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "nothing hostile is read")]
mod tests {
    use super::*;

    /// A dictionary of each kind of value.
    fn all() -> Vec<u8> {
        let mut bytes = vec![DICTIONARY, 4, 0, 0, 0];
        let mut member = |name: &str, value: &[u8]| {
            bytes.extend_from_slice(&u32::try_from(name.len()).unwrap().to_le_bytes());
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(value);
        };
        member("j", &[&[JSON, 5, 0, 0, 0][..], b"[1,2]"].concat());
        member("t", &[BOOLS, 2, 0, 0, 0, 1, 0]);
        member("n", &[NONE]);
        let row = [IN_ROWS, IN_ROWS + 4, 1];
        member(
            "r",
            &[&[ROWS, 1, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, b'a', 1, 0, 0, 0, b'b'][..], &row].concat(),
        );
        bytes
    }

    #[test]
    fn values_are_read() {
        let bytes = all();
        let Value::Struct(members) = value(&bytes).unwrap() else { panic!() };
        let names: Vec<_> = members.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["j", "t", "n", "r"]);
        assert_eq!(members[2].1, Value::Null);
        let row = Value::Struct(vec![("a".into(), Value::Null), ("b".into(), Value::Bool(true))]);
        assert_eq!(members[3].1, Value::List(vec![row]));
        assert_eq!(value(br#"{"a": true}"#), Ok(Value::Struct(vec![("a".into(), Value::Bool(true))])));
    }

    #[test]
    fn a_cut_at_any_byte_is_a_fault() {
        let bytes = all();
        for length in 0..bytes.len() {
            value(&bytes[..length]).unwrap_err();
        }
        value(&[&bytes[..], &[0]].concat()).unwrap_err();
    }

    #[test]
    fn counts_and_depths_have_limits() {
        for tag in [TEXTS, INTS, FLOATS, BOOLS, DICTIONARY, ROWS] {
            value(&[tag, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]).unwrap_err();
        }
        let deep = [DICTIONARY, 1, 0, 0, 0, 0, 0, 0, 0].repeat(65);
        assert!(value(&[&deep[..], &[NONE]].concat()).unwrap_err().to_string().contains("64 deep"));
        assert!(value(&[12]).unwrap_err().to_string().contains("unknown mark 12"));
    }
}
