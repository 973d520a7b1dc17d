//! Numbers and messages of Protocol Buffers, as far as the footer has them.

/// Takes a number off the front.
pub(super) fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number: u64 = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        let shifted = bits << shift;
        if shifted >> shift != bits {
            return None;
        }
        number |= shifted;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Takes so many bytes off the front.
pub(super) fn take_bytes<'a>(bytes: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(taken)
}

/// A field of a message: a number, or bytes.
enum ProtoField<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The field of a number; the outer `None` if the message is damaged. Of repeated ones, the last counts.
fn field(mut message: &[u8], wanted: u64) -> Option<Option<ProtoField<'_>>> {
    let mut found = None;
    while !message.is_empty() {
        let key = take_varint(&mut message)?;
        let value = match key & 7 {
            0 => ProtoField::Number(take_varint(&mut message)?),
            1 => ProtoField::Number(u64::from_le_bytes(*take_bytes(&mut message, 8)?.first_chunk()?)),
            2 => {
                let length = take_varint(&mut message)?;
                ProtoField::Bytes(take_bytes(&mut message, length)?)
            }
            5 => ProtoField::Number(u32::from_le_bytes(*take_bytes(&mut message, 4)?.first_chunk()?).into()),
            _ => return None,
        };
        if key >> 3 == wanted {
            found = Some(value);
        }
    }
    Some(found)
}

/// A number of a message, 0 if it is left out; `None` if the message is damaged.
pub(super) fn number(message: &[u8], wanted: u64) -> Option<u64> {
    match field(message, wanted)? {
        None => Some(0),
        Some(ProtoField::Number(number)) => Some(number),
        Some(ProtoField::Bytes(_)) => None,
    }
}

/// A message inside a message; `None` if it is not there.
pub(super) fn inner(message: &[u8], wanted: u64) -> Option<&[u8]> {
    match field(message, wanted)? {
        Some(ProtoField::Bytes(bytes)) => Some(bytes),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_at_most_64_bits() {
        let taken = |mut bytes: &[u8]| take_varint(&mut bytes).map(|number| (number, bytes.len()));
        assert_eq!(taken(&[5, 1]), Some((5, 1)));
        assert_eq!(taken(&[0x80 | 44, 2]), Some((300, 0)));
        let most = [&[0xff; 9][..], &[1]].concat();
        assert_eq!(taken(&most), Some((u64::MAX, 0)));
        assert_eq!(taken(&[&[0xff; 9][..], &[2]].concat()), None);
        assert_eq!(taken(&[0xff; 11]), None);
        assert_eq!(taken(&[0x80]), None);
        assert_eq!(taken(&[]), None);
    }

    #[test]
    fn fields_are_found_by_their_number() {
        let message = [0x08, 7, 0x12, 2, 0x08, 9, 0x19, 1, 0, 0, 0, 0, 0, 0, 0, 0x25, 3, 0, 0, 0];
        assert_eq!(number(&message, 1), Some(7));
        assert_eq!(inner(&message, 2), Some(&[0x08, 9][..]));
        assert_eq!(number(&message, 3), Some(1));
        assert_eq!(number(&message, 4), Some(3));
        assert_eq!(number(&message, 5), Some(0), "it is left out");
        assert_eq!(number(&message, 2), None, "it is no number");
        assert_eq!(inner(&message, 1), None);
        assert_eq!(number(&[0x12, 9, 0], 1), None, "it is cut");
        assert_eq!(number(&[0x0b], 1), None, "groups are not used");
    }
}
