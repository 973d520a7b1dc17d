//! The values of tensors, for people and for JSON.

use std::fmt::{self, Write as _};

use percolator::half::{bf16, f16};
use percolator_tensorflow::{DataType, Elements, Tensor};
use serde_json::{Number, Value as Json, json};

/// An element of a type of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Bool(bool),
    Integer(i128),
    Single(f32),
    Double(f64),
    ComplexSingle([f32; 2]),
    ComplexDouble([f64; 2]),
    /// Of a type whose values are not known here: its byte.
    Raw(u8),
}

/// Reads an element of this type from its bytes.
pub(super) fn value(data_type: DataType, bytes: &[u8]) -> Option<Value> {
    use DataType as T;

    /// The bytes, if they are as many as the type has.
    fn of<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.try_into().ok()
    }
    fn two<const N: usize>(bytes: &[u8]) -> Option<[[u8; N]; 2]> {
        let (one, other) = bytes.split_at_checked(N)?;
        Some([of(one)?, of(other)?])
    }
    Some(match data_type {
        T::Bool => Value::Bool(of::<1>(bytes)? != [0]),
        T::Int8 | T::Qint8 | T::Int4 | T::Int2 => Value::Integer(i8::from_le_bytes(of(bytes)?).into()),
        T::Uint8 | T::Quint8 | T::Uint4 | T::Uint2 => Value::Integer(u8::from_le_bytes(of(bytes)?).into()),
        T::Int16 | T::Qint16 => Value::Integer(i16::from_le_bytes(of(bytes)?).into()),
        T::Uint16 | T::Quint16 => Value::Integer(u16::from_le_bytes(of(bytes)?).into()),
        T::Int32 | T::Qint32 => Value::Integer(i32::from_le_bytes(of(bytes)?).into()),
        T::Uint32 => Value::Integer(u32::from_le_bytes(of(bytes)?).into()),
        T::Int64 => Value::Integer(i64::from_le_bytes(of(bytes)?).into()),
        T::Uint64 => Value::Integer(u64::from_le_bytes(of(bytes)?).into()),
        T::Float16 => Value::Single(f16::from_le_bytes(of(bytes)?).to_f32()),
        T::Bfloat16 => Value::Single(bf16::from_le_bytes(of(bytes)?).to_f32()),
        T::Float32 => Value::Single(f32::from_le_bytes(of(bytes)?)),
        T::Float64 => Value::Double(f64::from_le_bytes(of(bytes)?)),
        T::Complex64 => Value::ComplexSingle(two(bytes)?.map(f32::from_le_bytes)),
        T::Complex128 => Value::ComplexDouble(two(bytes)?.map(f64::from_le_bytes)),
        _ => Value::Raw(*bytes.first()?),
    })
}

/// `0.1`, `1e20`, `NaN`, and for complex numbers `1.0-2.5i`.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(value) => write!(f, "{value}"),
            Value::Integer(value) => write!(f, "{value}"),
            Value::Single(value) => write!(f, "{value:?}"),
            Value::Double(value) => write!(f, "{value:?}"),
            Value::ComplexSingle([real, imaginary]) => write!(f, "{real:?}{imaginary:+?}i"),
            Value::ComplexDouble([real, imaginary]) => write!(f, "{real:?}{imaginary:+?}i"),
            Value::Raw(byte) => write!(f, "{byte:#04x}"),
        }
    }
}

impl Value {
    fn json(self) -> Json {
        match self {
            Value::Bool(value) => json!(value),
            Value::Integer(value) => match (i64::try_from(value), u64::try_from(value)) {
                (Ok(value), _) => json!(value),
                (_, Ok(value)) => json!(value),
                _ => json!(value.to_string()),
            },
            Value::Single(value) => single(value),
            Value::Double(value) => double(value),
            Value::ComplexSingle(parts) => json!(parts.map(single)),
            Value::ComplexDouble(parts) => json!(parts.map(double)),
            Value::Raw(_) => json!(self.to_string()),
        }
    }
}

/// With the digits that tell it from other numbers of 32 bits.
fn single(value: f32) -> Json {
    let shortest = value.to_string().parse().ok().filter(|_| value.is_finite());
    shortest.map_or_else(|| double(value.into()), double)
}

/// JSON has no infinite numbers, and no NaN: they are texts.
fn double(value: f64) -> Json {
    Number::from_f64(value).map_or_else(|| json!(value.to_string()), Json::Number)
}

/// A string, as text if it is text.
pub(super) fn text(string: &[u8]) -> String {
    match std::str::from_utf8(string) {
        Ok(text) => text.to_owned(),
        Err(_) => string.escape_ascii().to_string(),
    }
}

/// A tensor's element, as it is shown.
fn shown(tensor: &Tensor<'_>, at: usize) -> String {
    match tensor.elements() {
        Elements::Strings(strings) => strings.get(at).map_or_else(String::new, |string| quoted(string)),
        Elements::Bytes(bytes) => {
            number(tensor, bytes, at).map_or_else(String::new, |value| value.to_string())
        }
    }
}

/// The element of a tensor of numbers, which has these bytes.
fn number(tensor: &Tensor<'_>, bytes: &[u8], at: usize) -> Option<Value> {
    let size = tensor.data_type().size().unwrap_or(1);
    value(tensor.data_type(), bytes.get(at * size..(at + 1) * size)?)
}

/// A string in quotes, and no more of it than is useful.
fn quoted(string: &[u8]) -> String {
    /// The most characters shown of a string.
    const CHARACTERS_MAX: usize = 80;

    let text = text(string);
    match text.char_indices().nth(CHARACTERS_MAX) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?}... ({} bytes)", &text[..end], string.len()),
    }
}

/// The number of a tensor's elements.
pub(super) fn elements(tensor: &Tensor<'_>) -> usize {
    match tensor.elements() {
        Elements::Strings(strings) => strings.len(),
        Elements::Bytes(bytes) => bytes.len() / tensor.data_type().size().unwrap_or(1),
    }
}

/// What is shown in place of values that would nest too deep: each axis is a level of brackets.
fn excess(tensor: &Tensor<'_>) -> Option<String> {
    /// The most axes that TensorFlow's tensors have.
    const AXES_MAX: usize = 254;

    let axes = tensor.shape().len();
    (axes > AXES_MAX).then(|| format!("not shown: {axes} axes, of which tensors have {AXES_MAX} at most"))
}

/// The values in nested brackets. Of an axis of a large tensor, only both ends are shown.
pub(super) fn nested(tensor: &Tensor<'_>, elements_max: usize) -> String {
    let elements = elements(tensor);
    // Without elements, the extents could be any number.
    if elements == 0 {
        return "[]".to_owned();
    }
    if let Some(axes) = excess(tensor) {
        return axes;
    }
    let mut out = String::new();
    let nesting = Nesting { tensor, is_shortened: elements > elements_max };
    nesting.write(tensor.shape(), 0, 0, &mut out);
    out
}

struct Nesting<'a> {
    tensor: &'a Tensor<'a>,
    is_shortened: bool,
}

impl Nesting<'_> {
    /// Writes the part of the tensor with this shape that starts at this element.
    fn write(&self, shape: &[usize], at: usize, depth: usize, out: &mut String) {
        /// The places shown at either end of an axis.
        const EDGE: usize = 3;

        let Some((&extent, inner)) = shape.split_first() else {
            out.push_str(&shown(self.tensor, at));
            return;
        };
        let stride: usize = inner.iter().product();
        let separator = match inner.len() {
            0 => ", ".to_owned(),
            axes => format!(",{}{}", "\n".repeat(axes), " ".repeat(depth + 1)),
        };
        out.push('[');
        let mut place = 0;
        while place < extent {
            if place > 0 {
                out.push_str(&separator);
            }
            if self.is_shortened && place == EDGE && extent > 2 * EDGE {
                out.push_str("...");
                place = extent - EDGE;
                continue;
            }
            self.write(inner, at + place * stride, depth + 1, out);
            place += 1;
        }
        out.push(']');
    }
}

/// The first values of a tensor, one after the other.
pub(super) fn front(tensor: &Tensor<'_>, values_max: usize) -> String {
    let elements = elements(tensor);
    let mut out: Vec<_> = (0..elements.min(values_max)).map(|at| shown(tensor, at)).collect();
    if elements > values_max {
        out.push("...".to_owned());
    }
    if tensor.shape().is_empty() { out.concat() } else { format!("[{}]", out.join(", ")) }
}

/// All values in nested arrays.
pub(super) fn json(tensor: &Tensor<'_>) -> Json {
    fn part(tensor: &Tensor<'_>, shape: &[usize], at: usize) -> Json {
        match (shape.split_first(), tensor.elements()) {
            (Some((&extent, inner)), _) => {
                let stride: usize = inner.iter().product();
                Json::Array((0..extent).map(|place| part(tensor, inner, at + place * stride)).collect())
            }
            (None, Elements::Strings(strings)) => json!(strings.get(at).map(|string| text(string))),
            (None, Elements::Bytes(bytes)) => number(tensor, bytes, at).map_or(Json::Null, Value::json),
        }
    }
    // Of a shape without elements, the extents could be any number.
    match (tensor.shape().contains(&0), excess(tensor)) {
        (true, _) => json!([]),
        (false, Some(axes)) => json!(axes),
        (false, None) => part(tensor, tensor.shape(), 0),
    }
}

/// Writes a line of text with what a terminal would interpret escaped.
pub(super) fn line(
    out: &mut impl std::io::Write,
    depth: usize,
    text: fmt::Arguments<'_>,
) -> std::io::Result<()> {
    let mut whole = String::new();
    let _ = write!(whole, "{text}");
    writeln!(out, "{}{}", "  ".repeat(depth), percolator_files::shown::message(&whole))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn single(shape: &[usize], values: &[f32]) -> Tensor<'static> {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Tensor::new(DataType::Float32, shape, bytes).unwrap()
    }

    #[test]
    fn values_are_shown_in_nested_brackets() {
        let tensor = single(&[2, 2], &[1.0, 0.1, f32::NAN, -1e20]);
        assert_eq!(nested(&tensor, 100), "[[1.0, 0.1],\n [NaN, -1e20]]");
        assert_eq!(json(&tensor), json!([[1.0, 0.1], ["NaN", -1e20]]));
        assert_eq!(front(&tensor, 3), "[1.0, 0.1, NaN, ...]");
        assert_eq!(nested(&single(&[], &[3.0]), 100), "3.0");
        assert_eq!(nested(&single(&[usize::MAX, 0], &[]), 100), "[]");
        assert_eq!(nested(&single(&[8], &[0.0; 8]), 4), "[0.0, 0.0, 0.0, ..., 0.0, 0.0, 0.0]");
        let strings = Tensor::strings([2], [&b"a\""[..], b"\xff"]).unwrap();
        assert_eq!(nested(&strings, 9), r#"["a\"", "\\xff"]"#);
        let complex =
            Tensor::new(DataType::Complex64, [], single(&[2], &[1.0, -2.5]).bytes().unwrap().to_vec());
        assert_eq!(nested(&complex.unwrap(), 9), "1.0-2.5i");
    }

    #[test]
    fn values_of_too_many_axes_are_not_nested() {
        let most = single(&[1; 254], &[3.0]);
        assert_eq!(nested(&most, 9), format!("{}3.0{}", "[".repeat(254), "]".repeat(254)));
        assert!(json(&most).is_array());
        let more = single(&[1; 100_000], &[3.0]);
        assert_eq!(nested(&more, 9), "not shown: 100000 axes, of which tensors have 254 at most");
        assert_eq!(json(&more), json!(nested(&more, 9)));
        assert_eq!(front(&more, 9), "[3.0]");
    }

    #[test]
    fn each_type_has_values() {
        for data_type in DataType::all().filter(|data_type| data_type.size().is_some()) {
            let bytes = vec![1; data_type.size().unwrap()];
            let found = value(data_type, &bytes).unwrap();
            let is_raw = data_type.name().starts_with("float8") || data_type.name().starts_with("float4");
            assert_eq!(matches!(found, Value::Raw(1)), is_raw, "{data_type}");
        }
        let least = i64::MIN.to_le_bytes();
        assert_eq!(value(DataType::Int64, &least), Some(Value::Integer(i64::MIN.into())));
        assert_eq!(value(DataType::Uint64, &[255; 8]).unwrap().json(), json!(u64::MAX));
    }
}
