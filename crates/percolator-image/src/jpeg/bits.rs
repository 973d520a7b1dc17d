//! Reads the bits of scan data, from the highest bit of the first byte down.
//!
//! The data has neither the zero that a file stuffs after each 0xff byte nor fill bytes: [`unescape`] removes
//! them while it looks for the marker that ends the data. So eight bytes can be loaded at any position.

use super::huffman::{Entry, Fault, Table};

/// Copies scan data up to the marker that ends it, without stuffed bytes and fill bytes. Returns the position
/// of the marker, or `None` if the data ends without one.
pub(super) fn unescape(file: &[u8], data: &mut Vec<u8>) -> Option<usize> {
    let mut at = 0usize;
    loop {
        let rest = file.get(at..)?;
        let clean = find_ones(rest)?;
        data.extend_from_slice(rest.get(..clean)?);
        at = at.saturating_add(clean);
        match file.get(at.saturating_add(1))? {
            0 => {
                data.push(0xff);
                at = at.saturating_add(2);
            }
            // Any number of fill bytes may come first.
            0xff => at = at.saturating_add(1),
            _ => return Some(at),
        }
    }
}

/// The position of the first 0xff byte, which may start a marker.
fn find_ones(bytes: &[u8]) -> Option<usize> {
    // Testing whole chunks is vectorised; a search for the first position is not.
    let (chunks, _) = bytes.as_chunks::<32>();
    let clean =
        chunks.iter().take_while(|chunk| !chunk.iter().fold(false, |any, &byte| any | (byte == 0xff)));
    let start = clean.count().saturating_mul(32);
    let found = bytes.get(start..)?.iter().position(|&byte| byte == 0xff)?;
    Some(start.saturating_add(found))
}

/// The number of bits that are ready after [`Bits::refill`].
const READY: u32 = 56;

/// A bit reader. The data is followed by any number of zeros. Callers use [`Bits::check`] from time to time
/// to find out whether those were read.
///
/// Invariant: the `count` upper bits of `bits` are the next ones. Those below are either zero or equal to the
/// data at that position, so that it can be loaded again.
pub(super) struct Bits<'a> {
    data: &'a [u8],
    /// The first byte of which not all bits are counted.
    at: usize,
    bits: u64,
    count: u32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self { data, at: 0, bits: 0, count: 0 }
    }

    /// Fails if more was read than there is.
    #[inline(always)]
    pub(super) fn check(&self) -> Result<(), Fault> {
        if 8 * self.at - self.count as usize > 8 * self.data.len() { Err(Fault::Short) } else { Ok(()) }
    }

    /// The number of whole bytes that have not been read.
    pub(super) fn bytes_left(&self) -> usize {
        self.data.len().saturating_sub((8 * self.at - self.count as usize).div_ceil(8))
    }

    /// Makes at least [`READY`] bits ready.
    #[inline(always)]
    pub(super) fn refill(&mut self) {
        let word = match self.data.get(self.at..).and_then(<[u8]>::first_chunk) {
            Some(word) => u64::from_be_bytes(*word),
            None => self.last_word(),
        };
        self.bits |= word >> self.count;
        self.at += ((63 - self.count) / 8) as usize;
        self.count |= READY;
    }

    /// The rest of the data, padded with zeros.
    #[cold]
    #[inline(never)]
    fn last_word(&self) -> u64 {
        let mut word = [0; 8];
        for (byte, &data) in word.iter_mut().zip(self.data.get(self.at..).unwrap_or_default()) {
            *byte = data;
        }
        u64::from_be_bytes(word)
    }

    /// The table's entry for the next bits, which must be ready.
    #[inline(always)]
    pub(super) fn entry(&self, table: &Table) -> Entry {
        table.entry(self.bits)
    }

    /// Skips bits, which must be ready.
    #[inline(always)]
    pub(super) fn skip(&mut self, count: u32) {
        debug_assert!(count <= self.count);
        self.count -= count;
        self.bits <<= count;
    }

    /// Takes an unsigned number of up to 32 bits, which must be ready.
    #[inline(always)]
    pub(super) fn take(&mut self, count: u32) -> u32 {
        let number = (self.bits >> 32 >> (32 - count)) as u32;
        self.skip(count);
        number
    }

    /// Takes a signed number of up to 16 bits, which must be ready: numbers that start with a zero bit are
    /// negative.
    #[inline(always)]
    pub(super) fn take_signed(&mut self, count: u32) -> i32 {
        let negative = if self.bits >> 63 == 0 { -1 } else { 0 };
        let number = self.take(count).cast_signed();
        number + (negative & ((-1 << count) + 1))
    }

    /// Takes the symbol of the next code, which its entry does not fully decode. Afterwards 32 bits are
    /// ready.
    #[inline(always)]
    pub(super) fn rest_of(&mut self, entry: Entry, table: &Table) -> Result<u8, Fault> {
        self.refill();
        let (len, symbol) = match entry.symbol() {
            Some(found) => found,
            None => table.long(self.bits)?,
        };
        self.skip(len);
        Ok(symbol)
    }

    /// Takes the next code's symbol. Afterwards 32 bits are ready.
    #[inline(always)]
    pub(super) fn symbol(&mut self, table: &Table) -> Result<u8, Fault> {
        self.refill();
        self.rest_of(self.entry(table), table)
    }

    /// Takes the next DC difference: a code, and the bits that it announces. The table must be one of
    /// differences.
    #[inline(always)]
    pub(super) fn difference(&mut self, table: &Table) -> Result<i32, Fault> {
        self.refill();
        let entry = self.entry(table);
        if entry.is_whole() {
            self.skip(entry.len());
            return Ok(entry.value().into());
        }
        let size = self.rest_of(entry, table)?;
        Ok(self.take_signed(size.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn matches_one_bit_at_a_time(
            data in prop::collection::vec(any::<u8>(), 0..40),
            steps in prop::collection::vec((any::<bool>(), 0..17u32), 0..60),
        ) {
            let (mut bits, mut at) = (Bits::new(&data), 0);
            let bit = |at: usize| data.get(at / 8).map_or(0, |byte| u32::from(byte >> (7 - at % 8) & 1));
            for (signed, count) in steps {
                bits.refill();
                let wanted = (at..at + count as usize).fold(0, |number, at| number << 1 | bit(at));
                let first = bit(at);
                at += count as usize;
                if signed {
                    let below = if count > 0 && first == 0 { (1 << count) - 1 } else { 0 };
                    prop_assert_eq!(bits.take_signed(count), wanted.cast_signed() - below);
                } else {
                    prop_assert_eq!(bits.take(count), wanted);
                }
                prop_assert_eq!(bits.check().is_err(), at > 8 * data.len());
            }
        }

        #[test]
        fn stuffed_bytes_are_removed(
            data in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xff)], 0..200),
            fill in 0..3usize,
            marker in 1..0xffu8,
            behind in prop::collection::vec(any::<u8>(), 0..9),
        ) {
            let mut file = Vec::new();
            for &byte in &data {
                file.push(byte);
                if byte == 0xff {
                    file.extend(vec![0xff; fill]);
                    file.push(0);
                }
            }
            file.extend(vec![0xff; fill]);
            let end = file.len();
            file.extend([0xff, marker]);
            let mut found = Vec::new();
            prop_assert_eq!(unescape(&[&file[..], &behind].concat(), &mut found), Some(end));
            prop_assert_eq!(&found, &data);
            prop_assert_eq!(unescape(&file[..end + 1], &mut found), None);
        }
    }
}
