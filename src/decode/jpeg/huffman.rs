//! Huffman codes and bits of a JPEG's scan data.

use super::damaged;
use crate::decode::DecodeError;

/// What is wrong with the data of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// They end before all codes are there.
    Short,
    /// A code that the table does not have, or that has no meaning in this scan.
    NoCode,
    /// A code that belongs to no coefficient of its block.
    Outside,
    /// No table, or one that is none.
    Table,
}

impl Fault {
    /// Of the scan data from `start` to `end`.
    #[cold]
    pub(super) fn at(self, start: usize, end: usize) -> DecodeError {
        match self {
            Fault::Short => damaged(end, "a marker, before the data of the scan are complete"),
            Fault::NoCode => {
                damaged(start, "a stretch of scan data with a code that its table does not have")
            }
            Fault::Outside => damaged(start, "a stretch of scan data with a code that is in no block"),
            Fault::Table => damaged(start, "a scan, and a Huffman table of it is missing or wrong"),
        }
    }
}

/// The tables that a file has defined so far, as they lie there: how many codes there are of each length, and the
/// symbols.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Specs<'a> {
    dc: [Option<&'a [u8]>; 4],
    ac: [Option<&'a [u8]>; 4],
}

/// How many lengths a code may have.
const LENGTHS: usize = 16;

impl<'a> Specs<'a> {
    /// The tables of a segment. `None` where it is malformed.
    pub(super) fn define(&mut self, mut segment: &'a [u8]) -> Option<()> {
        while let Some((&class, rest)) = segment.split_first() {
            let symbols: usize = rest.get(..LENGTHS)?.iter().map(|&count| usize::from(count)).sum();
            let (table, rest) = rest.split_at_checked(LENGTHS + symbols)?;
            let tables = if class & 0x10 == 0 { &mut self.dc } else { &mut self.ac };
            *tables.get_mut(usize::from(class & !0x10))? = Some(table);
            segment = rest;
        }
        Some(())
    }

    pub(super) fn dc(&self, at: usize) -> Result<&'a [u8], Fault> {
        let table = self.dc.get(at).copied().flatten().ok_or(Fault::Table)?;
        // A symbol is a number of bits.
        if table[LENGTHS..].iter().all(|&symbol| symbol < 16) { Ok(table) } else { Err(Fault::Table) }
    }

    pub(super) fn ac(&self, at: usize) -> Result<&'a [u8], Fault> {
        self.ac.get(at).copied().flatten().ok_or(Fault::Table)
    }
}

/// Codes of so many bits are looked up at once.
const LOOKUP_BITS: u32 = 9;

/// A code's length and symbol. A length of zero is no code, or a longer one.
type Entry = (u8, u8);

/// A table to read codes with.
#[derive(Debug)]
pub(super) struct Table {
    short: [Entry; 1 << LOOKUP_BITS],
    /// Of each length, the code after the last, left-aligned in 16 bits.
    ends: [u32; LENGTHS],
    /// What has to be added to the code of a length to come to its symbol.
    offsets: [i32; LENGTHS],
    symbols: [u8; 256],
}

impl Table {
    pub(super) fn new(spec: &[u8]) -> Result<Self, Fault> {
        let (counts, symbols) = spec.split_at_checked(LENGTHS).ok_or(Fault::Table)?;
        let mut table = Self {
            short: [(0, 0); 1 << LOOKUP_BITS],
            ends: [0; LENGTHS],
            offsets: [0; LENGTHS],
            symbols: [0; 256],
        };
        table.symbols.get_mut(..symbols.len()).ok_or(Fault::Table)?.copy_from_slice(symbols);
        let (mut code, mut at) = (0u32, 0usize);
        for ((index, &count), len) in counts.iter().enumerate().zip(1u32..) {
            #[expect(clippy::cast_possible_wrap, clippy::cast_possible_truncation, reason = "at most 2^16")]
            let offset = at as i32 - code as i32;
            table.offsets[index] = offset;
            for _ in 0..count {
                if len <= LOOKUP_BITS {
                    let first = (code as usize) << (LOOKUP_BITS - len);
                    let alike = table.short.get_mut(first..first + (1 << (LOOKUP_BITS - len)));
                    #[expect(clippy::cast_possible_truncation, reason = "at most 16")]
                    alike.ok_or(Fault::Table)?.fill((len as u8, symbols[at]));
                }
                code += 1;
                at += 1;
            }
            // No code is all ones, nor is one longer than its length.
            if count > 0 && code >= 1 << len {
                return Err(Fault::Table);
            }
            table.ends[index] = code << (16 - len);
            code <<= 1;
        }
        Ok(table)
    }

    /// The code with which these 16 bits start, which is not in `short`.
    #[cold]
    fn long(&self, bits: u32) -> Result<Entry, Fault> {
        let index = self.ends.iter().position(|&end| bits < end).ok_or(Fault::NoCode)?;
        #[expect(clippy::cast_possible_wrap, reason = "16 bits")]
        let at = (bits >> (15 - index)) as i32 + self.offsets[index];
        let symbol = usize::try_from(at).ok().and_then(|at| self.symbols.get(at)).ok_or(Fault::NoCode)?;
        #[expect(clippy::cast_possible_truncation, reason = "at most 16")]
        let len = index as u8 + 1;
        Ok((len, *symbol))
    }
}

/// The bits of scan data, without what is put between them lest they be taken for a marker. Behind the last there are
/// zeros, any number of them: whether they were there is asked once in a while, by [`Bits::check`].
pub(super) struct Bits<'a> {
    data: &'a [u8],
    /// The next bits, from the highest down. Behind those that are counted there may be some more of the data, or
    /// zeros.
    bits: u64,
    /// Less than zero where more were read than there are; then there are no more data either.
    count: i32,
}

impl<'a> Bits<'a> {
    pub(super) fn new(data: &'a [u8]) -> Self {
        Self { data, bits: 0, count: 0 }
    }

    /// Fails where more was read than there is.
    #[inline(always)]
    pub(super) fn check(&self) -> Result<(), Fault> {
        if self.count < 0 { Err(Fault::Short) } else { Ok(()) }
    }

    /// Makes at least 32 bits ready.
    #[inline(always)]
    fn refill(&mut self) {
        if self.count >= 32 {
            return;
        }
        if let Some(word) = self.data.first_chunk().map(|word| u64::from_be_bytes(*word))
            && !has_ones(word)
        {
            self.bits |= word >> self.count;
            let bytes = (63 - self.count) / 8;
            self.data = &self.data[bytes.unsigned_abs() as usize..];
            self.count += 8 * bytes;
        } else {
            self.refill_bytes();
        }
    }

    #[inline(never)]
    fn refill_bytes(&mut self) {
        while self.count <= 56 {
            let (byte, rest) = match *self.data {
                // Any number of fill bytes may come before the zero.
                [0xff, ref rest @ ..] => {
                    let fill = rest.iter().take_while(|&&byte| byte == 0xff).count();
                    let [0, rest @ ..] = &rest[fill..] else { return };
                    (0xff, rest)
                }
                [byte, ref rest @ ..] => (byte, rest),
                [] => return,
            };
            self.data = rest;
            self.bits |= u64::from(byte) << (56 - self.count);
            self.count += 8;
        }
    }

    /// The next code's symbol. Behind it 16 bits are ready.
    #[inline(always)]
    pub(super) fn symbol(&mut self, table: &Table) -> Result<u8, Fault> {
        self.refill();
        let (mut len, mut symbol) = table.short[(self.bits >> (64 - LOOKUP_BITS)) as usize];
        if len == 0 {
            (len, symbol) = match table.long((self.bits >> 48) as u32) {
                Err(_) if self.count < 16 => return Err(Fault::Short),
                entry => entry?,
            };
        }
        self.pass(len.into());
        Ok(symbol)
    }

    /// Passes over bits that are ready.
    #[inline(always)]
    pub(super) fn pass(&mut self, count: i32) {
        self.count -= count;
        self.bits <<= count;
    }

    /// The number that up to 16 bits make, which are ready.
    #[inline(always)]
    pub(super) fn take(&mut self, count: i32) -> u32 {
        let number = (self.bits >> 32 >> (32 - count)) as u32;
        self.pass(count);
        number
    }

    /// Passes over as many bits as a block has at the most.
    #[inline(always)]
    pub(super) fn skip(&mut self, count: u32) {
        debug_assert!(count <= 64);
        let count = count.cast_signed();
        // As a rule there is no more than this, and whether there is none cannot be foreseen.
        self.refill();
        self.pass(count.min(32));
        if count > 32 {
            self.refill();
            self.pass(count - 32);
        }
    }
}

/// Whether a byte of the word is 0xff.
fn has_ones(word: u64) -> bool {
    const LOWS: u64 = 0x0101_0101_0101_0101;
    (!word).wrapping_sub(LOWS) & word & (LOWS << 7) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The bits one by one, and then zeros.
    struct Naive(Vec<bool>, usize);

    impl Naive {
        fn take(&mut self, count: usize) -> u32 {
            (0..count).fold(0, |number, _| {
                self.1 += 1;
                number << 1 | u32::from(self.0.get(self.1 - 1).is_some_and(|&bit| bit))
            })
        }

        /// By the codes of each length in turn, counted up.
        fn symbol(&mut self, spec: &[u8]) -> Option<u8> {
            let (mut code, mut first, mut at) = (0, 0, 0);
            for &count in &spec[..LENGTHS] {
                code = code << 1 | self.take(1);
                if code < first + u32::from(count) {
                    return Some(spec[LENGTHS + at + (code - first) as usize]);
                }
                at += usize::from(count);
                first = (first + u32::from(count)) << 1;
            }
            None
        }
    }

    /// Lengths that leave the last code free, and their symbols.
    fn spec() -> impl Strategy<Value = Vec<u8>> {
        (prop::collection::vec(any::<u8>(), LENGTHS), prop::collection::vec(any::<u8>(), 256)).prop_map(
            |(wishes, symbols)| {
                let (mut free, mut total, mut spec) = (1usize, 0, Vec::new());
                for wish in wishes {
                    free *= 2;
                    let count = usize::from(wish % 5).min(free - 1).min(200 - total);
                    spec.push(u8::try_from(count).unwrap());
                    (free, total) = (free - count, total + count);
                }
                spec.extend_from_slice(&symbols[..total]);
                spec
            },
        )
    }

    proptest! {
        #[test]
        fn matches_naive(
            spec in spec(),
            bytes in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xff)], 0..60),
            steps in prop::collection::vec((0..3u8, 0..17i32), 0..90),
        ) {
            let escaped: Vec<u8> =
                bytes.iter().flat_map(|&byte| [byte, 0].into_iter().take(if byte == 0xff { 2 } else { 1 })).collect();
            let bit = |at: usize| bytes[at / 8] >> (7 - at % 8) & 1 == 1;
            let mut naive = Naive((0..8 * bytes.len()).map(bit).collect(), 0);
            let (table, mut bits) = (Table::new(&spec).unwrap(), Bits::new(&escaped));
            for (step, count) in steps {
                match step {
                    0 => {
                        bits.skip(4 * count.unsigned_abs());
                        naive.1 += 4 * count.unsigned_abs() as usize;
                    }
                    _ => match (bits.symbol(&table), naive.symbol(&spec)) {
                        (Ok(found), wanted) => {
                            prop_assert_eq!(Some(found), wanted);
                            prop_assert_eq!(bits.take(count), naive.take(count.unsigned_abs() as usize));
                        }
                        (Err(_), wanted) => {
                            prop_assert_eq!(wanted, None);
                            return Ok(());
                        }
                    },
                }
                prop_assert_eq!(bits.check().is_err(), naive.1 > naive.0.len());
            }
        }
    }

    #[test]
    fn tables_that_are_none_are_refused() {
        let mut counts = [0; LENGTHS];
        counts[0] = 2;
        assert_eq!(Table::new(&[&counts[..], &[1, 2]].concat()).unwrap_err(), Fault::Table, "a code of ones");
        let fifth = [&[4], &[0; LENGTHS][..]].concat();
        counts[0] = 1;
        let large = [&[0], &counts[..], &[16]].concat();
        let mut specs = Specs::default();
        assert_eq!(specs.define(&[0; 16]), None, "cut short");
        assert_eq!(specs.define(&fifth), None, "a fifth table");
        assert_eq!(specs.dc(0).unwrap_err(), Fault::Table, "none");
        specs.define(&large).unwrap();
        assert_eq!(specs.dc(0).unwrap_err(), Fault::Table, "a number of 16 bits");
    }
}
