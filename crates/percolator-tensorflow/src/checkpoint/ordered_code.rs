//! TensorFlow's ordered code: numbers and byte strings as bytes that sort as they do.
//!
//! ```text
//! unsigned number   its length in bytes (0 to 8), then those bytes, big-endian, without leading zeros
//! signed number     1 to 10 bytes, big-endian: a sign bit (1 for 0 and more), as many bits like it as bytes
//!                   follow the first, a bit unlike it, and the number in two's complement
//! string            00 as 00 ff, ff as ff 00, and 00 01 at the end
//! ```

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

const ESCAPE_ZERO: u8 = 0x00;
const ESCAPE_ONES: u8 = 0xff;
const SEPARATOR: u8 = 0x01;

/// The longest signed number.
const SIGNED_BYTES_MAX: usize = 10;
/// Of a signed number, each byte has this many bits that are neither sign nor length.
const BITS_PER_BYTE: u32 = 7;

/// Appends an unsigned number.
pub(crate) fn write_number(code: &mut Vec<u8>, number: u64) {
    let bytes = number.to_be_bytes();
    let used = bytes.get(zero_bytes(number)..).unwrap_or_default();
    code.push(u8::try_from(used.len()).unwrap_or_default());
    code.extend_from_slice(used);
}

fn zero_bytes(number: u64) -> usize {
    usize::try_from(number.leading_zeros() / u8::BITS).unwrap_or_default()
}

/// Appends a signed number.
pub(crate) fn write_signed(code: &mut Vec<u8>, number: i64) {
    let length = signed_bytes(number);
    // The number in ten bytes, its sign extended.
    let mut bytes = i128::from(number).to_be_bytes();
    let start = bytes.len().saturating_sub(length);
    let head = head_bits(length);
    for (byte, mask) in bytes.iter_mut().skip(start).zip(head) {
        *byte ^= mask;
    }
    code.extend_from_slice(bytes.get(start..).unwrap_or_default());
}

/// The bytes that a signed number takes.
fn signed_bytes(number: i64) -> usize {
    let magnitude = if number < 0 { !number } else { number };
    // With one bit more, for the sign.
    let bits = (u64::BITS.saturating_sub(magnitude.leading_zeros())).saturating_add(1);
    usize::try_from(bits.div_ceil(BITS_PER_BYTE)).unwrap_or(SIGNED_BYTES_MAX)
}

/// The sign bit of 0 and the length bits after it: as many ones as the number has bytes.
fn head_bits(length: usize) -> [u8; 2] {
    let ones = u32::try_from(length).unwrap_or_default();
    (!u16::MAX.checked_shr(ones).unwrap_or_default()).to_be_bytes()
}

/// Appends a byte string.
pub(crate) fn write_string(code: &mut Vec<u8>, string: &[u8]) {
    for &byte in string {
        code.push(byte);
        match byte {
            ESCAPE_ZERO => code.push(0xff),
            ESCAPE_ONES => code.push(0x00),
            _ => {}
        }
    }
    code.extend([ESCAPE_ZERO, SEPARATOR]);
}

/// Reads an unsigned number from the front, and takes it off. Only the shortest code is read.
pub(crate) fn read_number(code: &mut &[u8]) -> Option<u64> {
    let (&length, rest) = code.split_first()?;
    let (bytes, rest) = rest.split_at_checked(usize::from(length))?;
    if bytes.len() > size_of::<u64>() || bytes.first() == Some(&0) {
        return None;
    }
    *code = rest;
    Some(bytes.iter().fold(0, |number, &byte| number << u8::BITS | u64::from(byte)))
}

/// Reads a signed number from the front, and takes it off. Only the shortest code is read.
pub(crate) fn read_signed(code: &mut &[u8]) -> Option<i64> {
    let (&first, _) = code.split_first()?;
    let second = code.get(1).copied().unwrap_or_default();
    let head = u16::from_be_bytes([first, second]);
    let is_negative = first & 0x80 == 0;
    let ones = if is_negative { head.leading_zeros() } else { head.leading_ones() };
    let length = usize::try_from(ones).ok().filter(|&length| length <= SIGNED_BYTES_MAX)?;
    let (bytes, rest) = code.split_at_checked(length)?;
    let extended = if is_negative { -1_i128 } else { 0 };
    let number = bytes.iter().enumerate().fold(extended, |number, (at, &byte)| {
        let mask = head_bits(length).get(at).copied().unwrap_or_default();
        number << u8::BITS | i128::from(byte ^ mask)
    });
    let number = i64::try_from(number).ok().filter(|&number| signed_bytes(number) == length)?;
    *code = rest;
    Some(number)
}

/// Reads a byte string from the front, and takes it off.
pub(crate) fn read_string(code: &mut &[u8]) -> Option<Vec<u8>> {
    let mut string = Vec::new();
    let mut rest = *code;
    loop {
        let (&byte, after) = rest.split_first()?;
        rest = after;
        if matches!(byte, ESCAPE_ZERO | ESCAPE_ONES) {
            let (&second, after) = rest.split_first()?;
            rest = after;
            match (byte, second) {
                (ESCAPE_ZERO, SEPARATOR) => {
                    *code = rest;
                    return Some(string);
                }
                (ESCAPE_ZERO, 0xff) | (ESCAPE_ONES, 0x00) => {}
                _ => return None,
            }
        }
        string.push(byte);
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn number(number: u64) -> Vec<u8> {
        let mut code = Vec::new();
        write_number(&mut code, number);
        code
    }

    fn signed(number: i64) -> Vec<u8> {
        let mut code = Vec::new();
        write_signed(&mut code, number);
        code
    }

    fn string(string: &[u8]) -> Vec<u8> {
        let mut code = Vec::new();
        write_string(&mut code, string);
        code
    }

    /// The examples in the comments of TensorFlow's own code, and the ends of each length.
    #[test]
    fn codes_are_tensorflows() {
        assert_eq!(number(0), [0]);
        assert_eq!(number(0x1234), [2, 0x12, 0x34]);
        assert_eq!(number(u64::MAX), [8, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(signed(0x42_4242), [0xf0, 0x42, 0x42, 0x42]);
        assert_eq!(signed(-0x800), [0x38, 0x00]);
        assert_eq!(signed(0), [0x80]);
        assert_eq!(signed(-1), [0x7f]);
        assert_eq!([signed(63), signed(-64)], [[0xbf], [0x40]]);
        assert_eq!([signed(64), signed(-65)], [[0xc0, 0x40], [0x3f, 0xbf]]);
        assert_eq!(signed(i64::MAX), [255, 192, 127, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(signed(i64::MIN), [0, 0x3f, 0x80, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(string(b"foo"), b"foo\0\x01");
        assert_eq!(string(b"\0\x13\xff"), b"\0\xff\x13\xff\0\0\x01");
        for bytes in 1..SIGNED_BYTES_MAX {
            let end = 1_i64 << (7 * bytes - 1);
            assert_eq!([end - 1, end, -end, -end - 1].map(|one| signed(one).len() - bytes), [0, 1, 0, 1]);
        }
    }

    #[test]
    fn what_is_no_code_is_refused_and_consumes_nothing() {
        let refused = |bytes: &[u8]| {
            let mut codes = [bytes; 3];
            let [one, other, third] = &mut codes;
            let all = (read_number(one), read_signed(other), read_string(third));
            assert_eq!(all, (None, None, None), "{bytes:x?}");
            assert_eq!(codes, [bytes; 3]);
        };
        refused(b"");
        refused(&[0xff; 11]);
        let mut code = &[1, 0][..];
        assert_eq!(read_number(&mut code), None, "there is a shorter code");
        code = &[0xc0, 0x05];
        assert_eq!(read_signed(&mut code), None, "there is a shorter code");
        code = b"a\0\x02";
        assert_eq!(read_string(&mut code), None);
        code = b"a\xff\xff";
        assert_eq!(read_string(&mut code), None, "infinity is no string");
        code = b"a\0";
        assert_eq!(read_string(&mut code), None);
    }

    fn numbers() -> impl Strategy<Value = i64> {
        (any::<i64>(), 0..64_u32).prop_map(|(number, shift)| number >> shift)
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            unsigned in numbers(), integer in numbers(), text: Vec<u8>, rest: Vec<u8>,
        ) {
            let unsigned = unsigned.cast_unsigned();
            let code = [number(unsigned), signed(integer), string(&text), rest.clone()].concat();
            let mut code = &code[..];
            prop_assert_eq!(read_number(&mut code), Some(unsigned));
            prop_assert_eq!(read_signed(&mut code), Some(integer));
            prop_assert_eq!(read_string(&mut code), Some(text));
            prop_assert_eq!(code, rest);
        }

        #[test]
        fn codes_sort_as_what_they_are_of(one in numbers(), other in numbers(), texts: [Vec<u8>; 2]) {
            prop_assert_eq!(signed(one).cmp(&signed(other)), one.cmp(&other));
            let unsigned = [one.cast_unsigned(), other.cast_unsigned()];
            prop_assert_eq!(number(unsigned[0]).cmp(&number(unsigned[1])), unsigned[0].cmp(&unsigned[1]));
            prop_assert_eq!(string(&texts[0]).cmp(&string(&texts[1])), texts[0].cmp(&texts[1]));
        }

        /// What is read from any bytes is written as these bytes again.
        #[test]
        fn any_bytes_are_a_code_or_nothing(bytes in prop::collection::vec(
            prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(1)], 0..14,
        )) {
            let used = |rest: &[u8]| &bytes[..bytes.len() - rest.len()];
            let mut rest = &bytes[..];
            if let Some(found) = read_number(&mut rest) {
                prop_assert_eq!(number(found), used(rest));
            }
            rest = &bytes[..];
            if let Some(found) = read_signed(&mut rest) {
                prop_assert_eq!(signed(found), used(rest));
            }
            rest = &bytes[..];
            if let Some(found) = read_string(&mut rest) {
                prop_assert_eq!(string(&found), used(rest));
            }
        }
    }
}
