//! An array as a file of NumPy.

use crate::{Array, ElementType};

/// The bytes before an array are a multiple of this many.
const ALIGNMENT: usize = 64;

/// The file; `None` of numbers that NumPy has not.
pub(super) fn file_of(array: &Array<'_>) -> Option<Vec<u8>> {
    if array.dtype == ElementType::Bf16 {
        return None;
    }
    let extents: Vec<_> = array.shape.iter().map(ToString::to_string).collect();
    let shape = match &extents[..] {
        [only] => format!("({only},)"),
        several => format!("({})", several.join(", ")),
    };
    let mut header =
        format!("{{'descr': '{}', 'fortran_order': False, 'shape': {shape}, }}", array.dtype.numpy());
    const PREFIX: usize = 10;
    let unpadded = PREFIX + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(ALIGNMENT) - unpadded));
    header.push('\n');
    let length = u16::try_from(header.len()).ok()?;
    Some([b"\x93NUMPY\x01\x00", &length.to_le_bytes()[..], header.as_bytes(), &array.bytes].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Shape, Value, npy};

    #[test]
    fn arrays_are_read_back() {
        for (dtype, shape, bytes) in [
            (ElementType::F32, &[][..], vec![0, 0, 128, 63]),
            (ElementType::I16, &[3], vec![1, 0, 2, 0, 3, 0]),
            (ElementType::Bool, &[2, 0, 3], vec![]),
            (ElementType::C64, &[1, 2], (0..16).collect()),
        ] {
            let array = Array { dtype, shape: Shape::from_slice(shape), bytes: bytes.into() };
            let file = file_of(&array).unwrap();
            assert!((file.len() - array.bytes.len()).is_multiple_of(ALIGNMENT));
            assert_eq!(npy::value(&file), Ok(Value::Array(array)));
        }
    }
}
