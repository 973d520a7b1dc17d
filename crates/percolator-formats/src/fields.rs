//! Values in the bytes of a column or a leaf, as several formats encode them.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::HashSet;

use crate::{Array, ElementType, Fault, Shape, Value};

/// Text.
pub(crate) fn text(bytes: &[u8]) -> Result<&str, Fault> {
    std::str::from_utf8(bytes).map_err(|error| Fault::new(format!("not UTF-8: {error}")))
}

/// A number in 4 bytes, and what follows it.
pub(crate) fn number(bytes: &[u8]) -> Result<(u32, &[u8]), Fault> {
    let (number, rest) = bytes
        .split_first_chunk()
        .ok_or_else(|| Fault::new(format!("{} bytes are no number", bytes.len())))?;
    Ok((u32::from_le_bytes(*number), rest))
}

/// Values behind their number and their sizes.
pub(crate) fn listed(bytes: &[u8]) -> Result<Vec<&[u8]>, Fault> {
    let (count, rest) = number(bytes)?;
    let head = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(size_of::<u32>());
    let (sizes, mut rest) = rest.split_at_checked(head).ok_or_else(|| {
        Fault::new(format!("a list of {count} values does not fit its {} bytes", bytes.len()))
    })?;
    let mut values = Vec::new();
    for size in sizes.as_chunks::<4>().0 {
        let size = u32::from_le_bytes(*size);
        let (value, after) =
            rest.split_at_checked(usize::try_from(size).unwrap_or(usize::MAX)).ok_or_else(|| {
                Fault::new(format!("a value of a list has {size} bytes, and {} are left", rest.len()))
            })?;
        values.push(value);
        rest = after;
    }
    if rest.is_empty() { Ok(values) } else { Err(Fault::new(format!("{} bytes follow a list", rest.len()))) }
}

/// An array whose bytes are as many as its type and its shape say.
pub(crate) fn array(dtype: ElementType, shape: Shape, bytes: &[u8]) -> Result<Array<'_>, Fault> {
    let size = u64::try_from(dtype.bytes()).unwrap_or(u64::MAX);
    let due = shape.iter().try_fold(size, |due, extent| due.checked_mul(*extent));
    if due != Some(bytes.len() as u64) {
        let shape: Vec<_> = shape.iter().map(ToString::to_string).collect();
        let what = format!(
            "an array of {} [{}] does not have {} bytes",
            dtype.numpy(),
            shape.join("x"),
            bytes.len()
        );
        return Err(Fault::new(what));
    }
    Ok(Array { dtype, shape, bytes: bytes.into() })
}

/// Width, height, and the name of Pillow's mode, before the pixels.
pub(crate) fn pil(bytes: &[u8]) -> Result<Value<'_>, Fault> {
    let (width, rest) = number(bytes)?;
    let (height, rest) = number(rest)?;
    let (length, rest) = number(rest)?;
    let (mode, pixels) =
        rest.split_at_checked(usize::try_from(length).unwrap_or(usize::MAX)).ok_or_else(|| {
            Fault::new(format!(
                "the name of a picture's mode has {length} bytes, and {} are left",
                rest.len()
            ))
        })?;
    Ok(Value::Struct(vec![
        ("width".into(), Value::Int(width.into())),
        ("height".into(), Value::Int(height.into())),
        ("mode".into(), Value::Text(text(mode)?.into())),
        ("raw".into(), Value::Bytes(pixels.into())),
    ]))
}

/// Whether a name comes twice: by it, the second could not be found.
pub(crate) fn has_twice<'a>(names: impl IntoIterator<Item = &'a str>) -> bool {
    let mut known = HashSet::new();
    !names.into_iter().all(|name| known.insert(name))
}
