//! The Huffman tables of a JPEG's scan data.

use super::damaged;
use crate::DecodeError;

/// An error in the data of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The data ends before all codes were read.
    Short,
    /// A code that the table does not have, or that is invalid in this scan.
    NoCode,
    /// A code for a coefficient beyond its block.
    Outside,
    /// A Huffman table is missing or invalid.
    Table,
    /// A quantization table is missing.
    Quantizer,
    /// The data continues after the last code.
    Long,
    /// The component has already had a scan, which contained all of it.
    Twice,
}

impl Fault {
    /// The error for scan data from `start` to `end`.
    #[cold]
    pub(super) fn at(self, start: usize, end: usize) -> DecodeError {
        match self {
            Fault::Short => damaged(end, "a marker, before the scan data is complete"),
            Fault::NoCode => damaged(start, "scan data with a code that its table does not have"),
            Fault::Outside => damaged(start, "scan data with a code for a coefficient beyond its block"),
            Fault::Table => damaged(start, "a scan whose Huffman table is missing or invalid"),
            Fault::Quantizer => damaged(start, "a scan whose quantization table is missing"),
            Fault::Long => damaged(end, "a marker, preceded by stray bytes after the last code of the scan"),
            Fault::Twice => damaged(start, "a second scan of a component: one is allowed"),
        }
    }
}

/// The tables that a file has defined so far, as stored there: the number of codes of each length, and the
/// symbols.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Specs<'a> {
    dc: [Option<&'a [u8]>; 4],
    ac: [Option<&'a [u8]>; 4],
}

/// The number of code lengths.
pub(super) const LENGTHS: usize = 16;

/// The tables that the JPEG standard proposes (annex K.3), for luma (0) and chroma (1): the number of codes
/// of each length, then the symbols.
#[rustfmt::skip]
static STANDARD_DC_0: [u8; 28] = [
    0x00, 0x01, 0x05, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b,
];

/// See above.
#[rustfmt::skip]
static STANDARD_DC_1: [u8; 28] = [
    0x00, 0x03, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b,
];

/// See above.
#[rustfmt::skip]
static STANDARD_AC_0: [u8; 178] = [
    0x00, 0x02, 0x01, 0x03, 0x03, 0x02, 0x04, 0x03, 0x05, 0x05, 0x04, 0x04, 0x00, 0x00, 0x01, 0x7d,
    0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61, 0x07,
    0x22, 0x71, 0x14, 0x32, 0x81, 0x91, 0xa1, 0x08, 0x23, 0x42, 0xb1, 0xc1, 0x15, 0x52, 0xd1, 0xf0,
    0x24, 0x33, 0x62, 0x72, 0x82, 0x09, 0x0a, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x25, 0x26, 0x27, 0x28,
    0x29, 0x2a, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49,
    0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69,
    0x6a, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89,
    0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7,
    0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xc2, 0xc3, 0xc4, 0xc5,
    0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda, 0xe1, 0xe2,
    0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8,
    0xf9, 0xfa,
];

/// See above.
#[rustfmt::skip]
static STANDARD_AC_1: [u8; 178] = [
    0x00, 0x02, 0x01, 0x02, 0x04, 0x04, 0x03, 0x04, 0x07, 0x05, 0x04, 0x04, 0x00, 0x01, 0x02, 0x77,
    0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61, 0x71,
    0x13, 0x22, 0x32, 0x81, 0x08, 0x14, 0x42, 0x91, 0xa1, 0xb1, 0xc1, 0x09, 0x23, 0x33, 0x52, 0xf0,
    0x15, 0x62, 0x72, 0xd1, 0x0a, 0x16, 0x24, 0x34, 0xe1, 0x25, 0xf1, 0x17, 0x18, 0x19, 0x1a, 0x26,
    0x27, 0x28, 0x29, 0x2a, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,
    0x49, 0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68,
    0x69, 0x6a, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87,
    0x88, 0x89, 0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0xa2, 0xa3, 0xa4, 0xa5,
    0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xc2, 0xc3,
    0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda,
    0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8,
    0xf9, 0xfa,
];

impl<'a> Specs<'a> {
    /// Gives tables that are not defined the standard's. The frames of Motion JPEG leave them out;
    /// libjpeg-turbo does the same for files that are not progressive.
    pub(super) fn complete(&mut self) {
        for (tables, standard) in [
            (&mut self.dc, [&STANDARD_DC_0[..], &STANDARD_DC_1]),
            (&mut self.ac, [&STANDARD_AC_0[..], &STANDARD_AC_1]),
        ] {
            for (table, standard) in tables.iter_mut().zip(standard) {
                table.get_or_insert(standard);
            }
        }
    }

    /// Adds the tables of a segment. `None` if it is malformed.
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

/// Codes of up to this many bits are looked up directly, together with the number after them if it fits.
const LOOKUP_BITS: u32 = 10;

/// What the symbols of a table mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The number of bits of a DC difference.
    Difference,
    /// A run of zeros, and the number of bits of the coefficient after it. A run of less than 15 with no bits
    /// is the end of the block.
    Coefficient,
    /// The same, except for ends of blocks, which are left to the reader.
    Band,
    /// Left to the reader.
    Symbol,
}

/// What a table says about the next [`LOOKUP_BITS`] bits. A whole entry has the value, its distance from the
/// last one, and the combined length of code and value. Other entries have the symbol and the code's length,
/// or nothing.
///
/// From the lowest bit: length (6 bits, so that a shift by it needs no mask), one unused, whether it is not
/// whole (1), advance (8), value or symbol (16).
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry(u32);

/// The advance of an end of block: beyond the end of any block.
pub(super) const END: usize = 128;

impl Entry {
    const NOT_WHOLE: u32 = 0x80;
    const NONE: Entry = Entry(Self::NOT_WHOLE);

    fn whole(len: u32, advance: usize, value: i32) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "at most END, and a number of LOOKUP_BITS")]
        let (advance, value) = (advance as u32, value as u16);
        Entry(len | advance << 8 | u32::from(value) << 16)
    }

    /// The entry for these bits, which start with a code of this length.
    fn new(len: u32, symbol: u8, meaning: Meaning, bits: u32) -> Self {
        let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
        let (advance, size) = match (meaning, run, size) {
            (Meaning::Difference, ..) => (0, symbol.into()),
            (Meaning::Coefficient, 0..15, 0) => (END, 0),
            (Meaning::Coefficient | Meaning::Band, _, 1..) | (_, 15, 0) => (run + 1, size),
            _ => (0, u32::MAX),
        };
        let is_symbol = meaning == Meaning::Symbol || size > LOOKUP_BITS - len;
        if is_symbol {
            return Entry(len | Self::NOT_WHOLE | u32::from(symbol) << 16);
        }
        let value = bits >> (LOOKUP_BITS - len - size) & !(!0 << size);
        let is_negative = size > 0 && value >> (size - 1) == 0;
        let below = if is_negative { (1 << size) - 1 } else { 0 };
        Entry::whole(len + size, advance, value.cast_signed() - below)
    }

    #[inline(always)]
    pub(super) fn is_whole(self) -> bool {
        self.0 & Self::NOT_WHOLE == 0
    }

    /// The number of bits of the entry.
    #[inline(always)]
    pub(super) fn len(self) -> u32 {
        self.0 & 0x3f
    }

    #[inline(always)]
    pub(super) fn advance(self) -> usize {
        (self.0 >> 8 & 0xff) as usize
    }

    #[inline(always)]
    pub(super) fn value(self) -> i16 {
        (self.0 >> 16) as i16
    }

    /// The code's length and symbol, for an entry that is not whole.
    #[inline(always)]
    pub(super) fn symbol(self) -> Option<(u32, u8)> {
        let [_, _, symbol, _] = self.0.to_le_bytes();
        (self.len() > 0).then_some((self.len(), symbol))
    }
}

/// A table to read codes with.
#[derive(Debug)]
pub(super) struct Table {
    short: [Entry; 1 << LOOKUP_BITS],
    /// For each length, the code after the last one, left-aligned in 16 bits.
    ends: [u32; LENGTHS],
    /// For each length, the number to add to a code to get its symbol's index.
    offsets: [i32; LENGTHS],
    symbols: [u8; 256],
}

impl Table {
    pub(super) fn new(spec: &[u8], meaning: Meaning) -> Result<Self, Fault> {
        let (counts, symbols) = spec.split_at_checked(LENGTHS).ok_or(Fault::Table)?;
        let mut table = Self {
            short: [Entry::NONE; 1 << LOOKUP_BITS],
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
                    let first = code << (LOOKUP_BITS - len);
                    let alike = first..first + (1 << (LOOKUP_BITS - len));
                    let entries = table.short.get_mut(alike.start as usize..alike.end as usize);
                    for (entry, bits) in entries.ok_or(Fault::Table)?.iter_mut().zip(alike) {
                        *entry = Entry::new(len, symbols[at], meaning, bits);
                    }
                }
                code += 1;
                at += 1;
            }
            // No code is all ones, and none exceeds its length.
            if count > 0 && code >= 1 << len {
                return Err(Fault::Table);
            }
            table.ends[index] = code << (16 - len);
            code <<= 1;
        }
        Ok(table)
    }

    /// The entry for the uppermost bits.
    #[inline(always)]
    pub(super) fn entry(&self, bits: u64) -> Entry {
        self.short[(bits >> (64 - LOOKUP_BITS)) as usize]
    }

    /// The length and the symbol of the code at the start of these bits, which is not in `short`.
    #[cold]
    #[inline(never)]
    pub(super) fn long(&self, bits: u64) -> Result<(u32, u8), Fault> {
        let bits = (bits >> 48) as u32;
        let (index, len) =
            (0..LENGTHS).zip(1u32..).find(|&(index, _)| bits < self.ends[index]).ok_or(Fault::NoCode)?;
        #[expect(clippy::cast_possible_wrap, reason = "16 bits")]
        let at = (bits >> (16 - len)) as i32 + self.offsets[index];
        let symbol = usize::try_from(at).ok().and_then(|at| self.symbols.get(at)).ok_or(Fault::NoCode)?;
        Ok((len, *symbol))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jpeg::bits::Bits;
    use proptest::prelude::*;

    /// The bits one by one, followed by zeros.
    struct Naive(Vec<bool>, usize);

    impl Naive {
        fn take(&mut self, count: usize) -> i32 {
            (0..count).fold(0, |number, _| {
                self.1 += 1;
                number << 1 | i32::from(self.0.get(self.1 - 1).is_some_and(|&bit| bit))
            })
        }

        fn take_signed(&mut self, count: usize) -> i32 {
            let number = self.take(count);
            if count > 0 && number < 1 << (count - 1) { number - (1 << count) + 1 } else { number }
        }

        /// Counts up the codes of each length in turn.
        fn symbol(&mut self, spec: &[u8]) -> Option<u8> {
            let (mut code, mut first, mut at) = (0, 0, 0);
            for &count in &spec[..LENGTHS] {
                code = code << 1 | self.take(1);
                if code < first + i32::from(count) {
                    return Some(spec[LENGTHS + at + (code - first).unsigned_abs() as usize]);
                }
                at += usize::from(count);
                first = (first + i32::from(count)) << 1;
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
            bytes in prop::collection::vec(any::<u8>(), 0..60),
            steps in prop::collection::vec(0..4u8, 0..90),
        ) {
            let bit = |at: usize| bytes[at / 8] >> (7 - at % 8) & 1 == 1;
            let mut naive = Naive((0..8 * bytes.len()).map(bit).collect(), 0);
            let small =
                spec.iter().enumerate().map(|(at, &byte)| if at < LENGTHS { byte } else { byte % 16 });
            let small: Vec<u8> = small.collect();
            let new = |spec: &[u8], meaning| Table::new(spec, meaning).unwrap();
            let differences = new(&small, Meaning::Difference);
            let meanings = [Meaning::Coefficient, Meaning::Band, Meaning::Symbol];
            let tables = meanings.map(|meaning| new(&spec, meaning));
            let mut bits = Bits::new(&bytes);
            for step in steps {
                let found = match step {
                    0 => match (bits.difference(&differences), naive.symbol(&small)) {
                        (Ok(found), Some(size)) => {
                            prop_assert_eq!(found, naive.take_signed(size.into()));
                            true
                        }
                        (found, wanted) => found.is_ok() || wanted.is_some(),
                    },
                    1 => {
                        let (found, wanted) = (bits.symbol(&tables[2]).ok(), naive.symbol(&spec));
                        prop_assert_eq!(found, wanted);
                        found.is_some()
                    }
                    step => {
                        let (table, ends) = (&tables[usize::from(step - 2)], step == 2);
                        bits.refill();
                        let entry = bits.entry(table);
                        let wanted = naive.symbol(&spec);
                        if entry.is_whole() {
                            let (run, size) = (wanted.unwrap() >> 4, wanted.unwrap() & 15);
                            let advance = if size == 0 && run < 15 { END } else { usize::from(run) + 1 };
                            prop_assert!(ends || advance != END);
                            prop_assert_eq!(entry.advance(), advance);
                            prop_assert_eq!(i32::from(entry.value()), naive.take_signed(size.into()));
                            bits.skip(entry.len());
                            true
                        } else {
                            let found = bits.rest_of(entry, table).ok();
                            prop_assert_eq!(found, wanted);
                            found.is_some()
                        }
                    }
                };
                if !found {
                    return Ok(());
                }
                prop_assert_eq!(bits.check().is_err(), naive.1 > naive.0.len());
            }
        }
    }

    #[test]
    fn invalid_tables_are_refused() {
        let mut counts = [0; LENGTHS];
        counts[0] = 2;
        let none = Table::new(&[&counts[..], &[1, 2]].concat(), Meaning::Symbol);
        assert_eq!(none.unwrap_err(), Fault::Table, "a code of ones");
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
