//! Headers of HDF5 2.0, as the crate reads them.
//!
//! Version 5 of the layout message is version 4, but for the width of packed chunks' lengths, which the
//! chunks' index states as well: the crate takes it from there. It knows no version 5, so it is given 4.

/// What a header's blocks begin with.
const FIRST: &[u8] = b"OHDR\x02";
const OTHER: &[u8] = b"OCHK";

const LAYOUT: u8 = 8;
const NEWER: u8 = 5;
const KNOWN: u8 = 4;

/// Whether a header's messages have numbers: a flag of its first block.
pub(super) fn has_numbers(block: &[u8]) -> Option<bool> {
    let flags = block.strip_prefix(FIRST)?.first()?;
    Some(flags & 4 != 0)
}

/// Gives layout messages the version that the crate knows, in a block that is whole: its checksum says so.
/// Any other bytes stay as they are.
pub(super) fn make_known(block: &mut [u8], numbers: bool) {
    let Some(begin) = messages_of(block) else { return };
    let Some((body, sum)) = block.split_last_chunk_mut::<4>() else { return };
    if u32::from_le_bytes(*sum) != lookup3(body) {
        return;
    }
    let header = if numbers { 6 } else { 4 };
    let (mut at, mut is_changed) = (begin, false);
    while let Some([kind, low, high, ..]) = body.get(at..) {
        let (kind, length) = (*kind, usize::from(u16::from_le_bytes([*low, *high])));
        let data = at.saturating_add(header);
        if let Some(version) = body.get_mut(data).filter(|version| kind == LAYOUT && **version == NEWER) {
            *version = KNOWN;
            is_changed = true;
        }
        at = data.saturating_add(length);
    }
    if is_changed {
        *sum = lookup3(body).to_le_bytes();
    }
}

/// Where the messages of a block begin.
fn messages_of(block: &[u8]) -> Option<usize> {
    if block.starts_with(OTHER) {
        return Some(OTHER.len());
    }
    let flags = block.strip_prefix(FIRST)?.first()?;
    let times = if flags & 0x20 != 0 { 16 } else { 0 };
    let phases = if flags & 0x10 != 0 { 4 } else { 0 };
    let length = 1_usize.checked_shl(u32::from(flags & 3))?;
    FIRST.len().checked_add(1)?.checked_add(times)?.checked_add(phases)?.checked_add(length)
}

/// Bob Jenkins's hash, which HDF5 has as its checksum.
fn lookup3(bytes: &[u8]) -> u32 {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut state = [0xdead_beef_u32.wrapping_add(length); 3];
    let mut rest = bytes;
    while rest.len() > 12 {
        let (block, after) = rest.split_at_checked(12).unwrap_or_default();
        add(&mut state, block);
        mix(&mut state);
        rest = after;
    }
    if !rest.is_empty() {
        add(&mut state, rest);
        finish(&mut state);
    }
    let [.., last] = state;
    last
}

/// Adds up to twelve bytes, four to each number.
fn add(state: &mut [u32; 3], bytes: &[u8]) {
    for (number, four) in state.iter_mut().zip(bytes.chunks(4)) {
        let word = four.iter().rev().fold(0_u32, |word, byte| (word << 8) | u32::from(*byte));
        *number = number.wrapping_add(word);
    }
}

fn mix([a, b, c]: &mut [u32; 3]) {
    for round in [4, 6, 8, 16, 19, 4] {
        *a = a.wrapping_sub(*c) ^ c.rotate_left(round);
        *c = c.wrapping_add(*b);
        (*a, *b, *c) = (*b, *c, *a);
    }
}

fn finish([a, b, c]: &mut [u32; 3]) {
    for round in [14, 11, 25, 16, 4, 14, 24] {
        *c = (*c ^ *b).wrapping_sub(b.rotate_left(round));
        (*a, *b, *c) = (*b, *c, *a);
    }
    // Seven turns leave the numbers one place on.
    (*a, *b, *c) = (*c, *a, *b);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_its_author() {
        assert_eq!(lookup3(b""), 0xdead_beef);
        // From the test in lookup3.c.
        assert_eq!(lookup3(b"Four score and seven years ago"), 0x1777_0551);
    }

    #[test]
    fn only_whole_headers_are_changed() {
        let mut block = b"OHDR\x02\x00\x06\x08\x02\x00\x00\x05\x01".to_vec();
        block.extend(lookup3(&block).to_le_bytes());
        let mut known = block.clone();
        make_known(&mut known, has_numbers(&block).unwrap());
        let (body, sum) = known.split_last_chunk::<4>().unwrap();
        assert_eq!(body, b"OHDR\x02\x00\x06\x08\x02\x00\x00\x04\x01");
        assert_eq!(u32::from_le_bytes(*sum), lookup3(body));
        let mut damaged = block;
        *damaged.last_mut().unwrap() ^= 1;
        let before = damaged.clone();
        make_known(&mut damaged, false);
        assert_eq!(damaged, before);
    }
}
