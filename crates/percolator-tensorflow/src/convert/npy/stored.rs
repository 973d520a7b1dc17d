//! How NumPy's files name types of elements.
//!
//! | TensorFlow | NumPy |
//! |---|---|
//! | numbers, `bool`, complex numbers | `<f4`, `\|b1`, `<c8` and so on |
//! | `bfloat16` | `<V2`, as `numpy.save` writes the type of `ml_dtypes`; `numpy.load` gives `V2` |
//! | `qint8` and the other quantised types | a field of the type's name: `[('qint8', '\|i1')]` |
//! | float8, float4, int4, int2 | the same: `[('float8_e5m2', '\|V1')]` |
//! | `string` | `\|S7`: bytes, as many as the longest string has, with zeros after the end of shorter ones |
//!
//! `numpy.save` by itself writes most of the one-byte types of `ml_dtypes` as `<V1`, which does not say which
//! it was, and `float8_e5m2` as `<f1`, which `numpy.load` refuses. So a field names them here, as it does the
//! quantised types in TensorFlow's own arrays; `array.view(ml_dtypes.float8_e5m2)` brings them back. Text
//! (`<U7`) is read as UTF-8 strings.

use std::sync::LazyLock;

use percolator_files::shown;
use regex_lite::Regex;

use super::super::file::Part;
use crate::DataType;
use crate::convert::ConvertError;

/// How an array's elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    Numbers {
        data_type: DataType,
        is_big_endian: bool,
    },
    /// Byte strings of at most this many bytes, with zeros after the end.
    Bytes(usize),
    /// Text of at most this many characters, of four bytes each, with zeros after the end.
    Text {
        characters: usize,
        is_big_endian: bool,
    },
}

/// Returns NumPy's letter for a type, and whether a field names the type, which NumPy itself does not have.
fn letter(data_type: DataType) -> Option<(char, bool)> {
    use DataType as T;
    Some(match data_type {
        T::Float16 | T::Float32 | T::Float64 => ('f', false),
        T::Int8 | T::Int16 | T::Int32 | T::Int64 => ('i', false),
        T::Uint8 | T::Uint16 | T::Uint32 | T::Uint64 => ('u', false),
        T::Bool => ('b', false),
        T::Complex64 | T::Complex128 => ('c', false),
        T::Qint8 | T::Qint16 | T::Qint32 => ('i', true),
        T::Quint8 | T::Quint16 => ('u', true),
        T::Float8E5m2 | T::Float8E4m3fn | T::Float8E4m3fnuz | T::Float8E4m3b11fnuz | T::Float8E5m2fnuz => {
            ('V', true)
        }
        T::Int4 | T::Uint4 | T::Int2 | T::Uint2 | T::Float4E2m1fn => ('V', true),
        T::Bfloat16 | T::String | T::Resource | T::Variant => return None,
    })
}

/// Returns the bytes of an element of a type of numbers.
fn size(data_type: DataType) -> usize {
    data_type.size().unwrap_or(0)
}

/// A type as NumPy writes it: byte order, letter, size.
fn simple(letter: char, size: usize) -> String {
    // A single byte has no order.
    let order = if size == 1 { '|' } else { '<' };
    format!("{order}{letter}{size}")
}

impl Stored {
    /// Returns the bytes of an element.
    pub(super) fn size(self) -> Option<usize> {
        match self {
            Stored::Numbers { data_type, .. } => data_type.size(),
            Stored::Bytes(bytes) => Some(bytes),
            Stored::Text { characters, .. } => characters.checked_mul(4),
        }
    }

    pub(super) fn data_type(self) -> DataType {
        match self {
            Stored::Numbers { data_type, .. } => data_type,
            Stored::Bytes(_) | Stored::Text { .. } => DataType::String,
        }
    }

    /// Returns the type as NumPy writes it, with its quotes; `None` of a type that NumPy cannot hold.
    pub(super) fn descr(self) -> Option<String> {
        match self {
            Stored::Bytes(bytes) => Some(format!("'|S{bytes}'")),
            Stored::Text { characters, .. } => Some(format!("'<U{characters}'")),
            Stored::Numbers { data_type: DataType::Bfloat16, .. } => Some("'<V2'".to_owned()),
            Stored::Numbers { data_type, .. } => {
                let (letter, is_named) = letter(data_type)?;
                let simple = simple(letter, size(data_type));
                Some(if is_named { format!("[('{data_type}', '{simple}')]") } else { format!("'{simple}'") })
            }
        }
    }

    /// Reads a type as Python writes it.
    pub(super) fn parse(descr: &str, part: Part<'_>) -> Result<Self, ConvertError> {
        let unquoted = |quote: char| descr.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
        let text = unquoted('\'').or(unquoted('"'));
        let stored = text.map_or_else(|| of_fields(descr), of_text);
        let remedy = || remedy(text.unwrap_or_default());
        stored.ok_or_else(|| part.foreign(format!("of NumPy's type {}", shown::line(descr)), remedy()))
    }
}

/// Takes a type apart: whether it is big-endian, its letter, its size.
fn taken_apart(text: &str) -> Option<(bool, char, usize)> {
    let order = text.chars().next().filter(|first| "<>|=".contains(*first));
    let rest = text.get(order.map_or(0, char::len_utf8)..)?;
    let letter = rest.chars().next()?;
    let digits = rest.get(letter.len_utf8()..)?;
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let size = if is_number { digits.parse().ok()? } else { return None };
    Some((order == Some('>'), letter, size))
}

fn of_text(text: &str) -> Option<Stored> {
    let (is_big_endian, letter, bytes) = taken_apart(text)?;
    let found = match (letter, bytes) {
        ('S' | 'a', _) => return Some(Stored::Bytes(bytes)),
        ('U', _) => return Some(Stored::Text { characters: bytes, is_big_endian }),
        ('V', 2) => DataType::Bfloat16,
        ('f', 1) => DataType::Float8E5m2,
        _ => {
            let known = Some((letter, false));
            DataType::all().find(|one| self::letter(*one) == known && size(*one) == bytes)?
        }
    };
    Some(Stored::Numbers { data_type: found, is_big_endian })
}

/// The type of a single field that has the type's name.
fn of_fields(descr: &str) -> Option<Stored> {
    static FIELD: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#"^\[\s*\(\s*['"](\w+)['"]\s*,\s*['"]([^'"]*)['"]\s*\)\s*,?\s*\]$"#)
            .expect("it is an expression")
    });
    let field = FIELD.captures(descr)?;
    let (is_big_endian, letter, bytes) = taken_apart(field.get(2)?.as_str())?;
    let data_type: DataType = field[1].parse().ok()?;
    let (own, is_named) = self::letter(data_type)?;
    let fits = is_named && (letter == own || letter == 'V') && bytes == size(data_type);
    fits.then_some(Stored::Numbers { data_type, is_big_endian })
}

fn remedy(text: &str) -> &'static str {
    match taken_apart(text).map(|(_, letter, size)| (letter, size)) {
        Some(('O', _)) => {
            "objects are pickled, and nothing is unpickled here: save an array of numbers or bytes"
        }
        Some(('V', 1)) => {
            "NumPy writes several types of ml_dtypes so (float8, int4), and does not say which: save \
             array.view([('float8_e4m3fn', 'V1')]), with the type's own name, or array.view('u1')"
        }
        Some(('M' | 'm', _)) => "save the times as numbers: array.view('i8')",
        Some(('f', 16) | ('c', 32)) => {
            "TensorFlow has no numbers of this size: save array.astype('f8') or 'c16'"
        }
        _ => "save an array of one of TensorFlow's types: each field of a structure by itself",
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use std::path::Path;

    use super::*;

    fn parsed(descr: &str) -> Result<Stored, ConvertError> {
        let part = Part { path: Path::new("x.npy"), tensor: None, offset: 10 };
        Stored::parse(descr, part)
    }

    #[test]
    fn each_type_comes_back() {
        let mut missing = Vec::new();
        for data_type in DataType::all() {
            match (Stored::Numbers { data_type, is_big_endian: false }).descr() {
                Some(descr) => {
                    let stored = parsed(&descr).unwrap();
                    assert_eq!(stored, Stored::Numbers { data_type, is_big_endian: false }, "{descr}");
                }
                None => missing.push(data_type),
            }
        }
        assert_eq!(missing, [DataType::String, DataType::Resource, DataType::Variant]);
        assert_eq!(parsed("'|S7'").unwrap(), Stored::Bytes(7));
        assert_eq!(parsed("'>U3'").unwrap(), Stored::Text { characters: 3, is_big_endian: true });
        assert_eq!(parsed("'u1'").unwrap().data_type(), DataType::Uint8);
        assert_eq!(parsed("'<f1'").unwrap().data_type(), DataType::Float8E5m2);
        let quantised = Stored::Numbers { data_type: DataType::Qint32, is_big_endian: true };
        assert_eq!(parsed("[('qint32', '>i4')]").unwrap(), quantised);
    }

    #[test]
    fn other_types_are_refused_with_what_to_do() {
        for (descr, remedy) in [
            ("'|O8'", "pickled"),
            ("'|V1'", "ml_dtypes"),
            ("'<M8'", "view('i8')"),
            ("'<f16'", "astype"),
            ("[('qint8', '<i2')]", "field"),
            ("[('a', '<i2'), ('b', '<i2')]", "field"),
            ("('<i2', (2,))", "field"),
            ("7", "field"),
            ("'<i3'", "field"),
            ("'<i'", "field"),
            ("'é4'", "field"),
            ("''", "field"),
            ("'<f99999999999999999999999'", "field"),
        ] {
            let error = parsed(descr).unwrap_err().to_string();
            assert!(error.starts_with("x.npy: its elements are of NumPy's type "), "{error}");
            assert!(error.contains(remedy), "{error}");
        }
        let error = parsed("'<M8[ns]'").unwrap_err().to_string();
        assert!(error.contains("<M8[ns]"), "{error}");
    }
}
