//! The leaves of an item: how each is encoded.

use super::nested;
use crate::fields::{array, listed, pil, text};
use crate::{Array, ElementType, Fault, Shape, Value};

/// An encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaf {
    /// The bytes of a file, or of whatever they are.
    Bytes,
    Text,
    Int,
    Float,
    Bool,
    /// Numbers alone, of one dimension.
    Numbers(ElementType),
    /// NumPy's type, rank and extents, little-endian, before the numbers.
    Numpy,
    /// PyTorch's type, rank and extents, big-endian, before the numbers, which are little-endian.
    Tensor,
    /// Width, height and mode of Pillow before the pixels.
    Pil,
    /// Several files of images.
    Images,
    /// Lists and dictionaries.
    Nested,
    /// Reading it runs code.
    Pickle,
}

impl Leaf {
    /// The encoding of a name, behind whose colon stands what only some encodings have.
    pub(super) fn of(name: &str) -> Option<Self> {
        let (name, more) = name.split_once(':').unwrap_or((name, ""));
        Some(match name {
            "bytes" | "jpeg" | "image" | "file" | "video" | "audio" | "nifti" | "mesh" | "pdf"
            | "tifffile" | "tiff" => Leaf::Bytes,
            "str" | "text" => Leaf::Text,
            "int" => Leaf::Int,
            "float" => Leaf::Float,
            "bool" => Leaf::Bool,
            "no_header_numpy" => Leaf::Numbers(of_numpy(more.parse().ok()?)?),
            "no_header_tensor" => Leaf::Numbers(of_torch(more.parse().ok()?)?),
            "numpy" => Leaf::Numpy,
            "tensor" => Leaf::Tensor,
            "pil" => Leaf::Pil,
            "jpeg_array" => Leaf::Images,
            "json" => Leaf::Nested,
            "pickle" | "graph" => Leaf::Pickle,
            _ => return None,
        })
    }

    /// What a value is, for messages.
    pub(super) fn described(self) -> String {
        match self {
            Leaf::Bytes => "bytes".to_owned(),
            Leaf::Text => "text".to_owned(),
            Leaf::Int => "int".to_owned(),
            Leaf::Float => "float".to_owned(),
            Leaf::Bool => "bool".to_owned(),
            Leaf::Numbers(dtype) => format!("array of {}", dtype.numpy()),
            Leaf::Numpy | Leaf::Tensor => "array".to_owned(),
            Leaf::Pil => "Pillow's image".to_owned(),
            Leaf::Images => "images".to_owned(),
            Leaf::Nested => "json".to_owned(),
            Leaf::Pickle => "pickle".to_owned(),
        }
    }

    /// The value that bytes encode.
    pub(super) fn value(self, bytes: &[u8]) -> Result<Value<'_>, Fault> {
        Ok(match self {
            Leaf::Bytes => Value::Bytes(bytes.into()),
            Leaf::Text => Value::Text(text(bytes)?.into()),
            Leaf::Int => match bytes.try_into() {
                Ok(number) => Value::Int(i64::from_le_bytes(number)),
                Err(_) => return Err(Fault::new(format!("an int has 8 bytes, and not {}", bytes.len()))),
            },
            Leaf::Float => Value::Array(array(ElementType::F64, Shape::new(), bytes)?),
            Leaf::Bool => match bytes {
                [0] => Value::Bool(false),
                [1] => Value::Bool(true),
                other => return Err(Fault::new(format!("a bool is a byte of 0 or 1, and not {other:?}"))),
            },
            Leaf::Numbers(dtype) => Value::Array(numbers(dtype, bytes)?),
            Leaf::Numpy => Value::Array(headed(bytes, u32::from_le_bytes, of_numpy)?),
            Leaf::Tensor => Value::Array(headed(bytes, u32::from_be_bytes, of_torch)?),
            Leaf::Pil => pil(bytes)?,
            Leaf::Images => {
                Value::List(listed(bytes)?.into_iter().map(|image| Value::Bytes(image.into())).collect())
            }
            Leaf::Nested => nested::value(bytes)?,
            Leaf::Pickle => return Err(Fault::new("a pickle, which runs code when it is read")),
        })
    }
}

/// Numbers of one dimension, as many as the bytes have.
pub(super) fn numbers(dtype: ElementType, bytes: &[u8]) -> Result<Array<'_>, Fault> {
    let size = dtype.bytes();
    let count = bytes.len().checked_div(size).unwrap_or_default() as u64;
    array(dtype, Shape::from_slice(&[count]), bytes)
}

/// An array behind its type, its rank and its extents, of 4 bytes each.
fn headed(
    bytes: &[u8],
    number: fn([u8; 4]) -> u32,
    dtype: fn(u32) -> Option<ElementType>,
) -> Result<Array<'_>, Fault> {
    let cut = || Fault::new(format!("the head of an array is cut: {} bytes", bytes.len()));
    let (code, rest) = bytes.split_first_chunk().ok_or_else(cut)?;
    let (rank, rest) = rest.split_first_chunk().ok_or_else(cut)?;
    let code = number(*code);
    let dtype = dtype(code).ok_or_else(|| Fault::new(format!("an array has the unknown type {code}")))?;
    let head = usize::try_from(number(*rank)).unwrap_or(usize::MAX).saturating_mul(size_of::<u32>());
    let (extents, values) = rest.split_at_checked(head).ok_or_else(cut)?;
    let shape = extents.as_chunks::<4>().0.iter().map(|extent| u64::from(number(*extent))).collect();
    array(dtype, shape, values)
}

/// The number that LitData gives to a type of NumPy. Those of objects and texts have no numbers.
fn of_numpy(code: u32) -> Option<ElementType> {
    use ElementType as E;

    const TYPES: [ElementType; 14] = [
        E::I8,
        E::I16,
        E::I32,
        E::I64,
        E::U8,
        E::U16,
        E::U32,
        E::U64,
        E::F16,
        E::F32,
        E::F64,
        E::C64,
        E::C128,
        E::Bool,
    ];
    TYPES.get(usize::try_from(code).ok()?).copied()
}

/// The number that LitData gives to a type of PyTorch, of which some have two.
fn of_torch(code: u32) -> Option<ElementType> {
    Some(match code {
        0 | 1 => ElementType::F32,
        2 | 3 => ElementType::F64,
        4 | 5 => ElementType::C64,
        6 | 7 => ElementType::C128,
        8 | 9 => ElementType::F16,
        10 => ElementType::Bf16,
        11 => ElementType::U8,
        12 => ElementType::I8,
        13 | 14 => ElementType::I16,
        15 | 16 => ElementType::I32,
        17 | 18 => ElementType::I64,
        19 => ElementType::Bool,
        20 => ElementType::U16,
        _ => return None,
    })
}
