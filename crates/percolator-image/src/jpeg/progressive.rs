//! The scans of a progressive JPEG: each contains a few bits of a few coefficients of every block.
//!
//! ```text
//! first scan of the DCs         for each block: a code, and as many bits as it says
//! first scan of the ACs         for each block: for each coefficient: a code, and as many bits as it says
//! refinement of the DCs         for each block: a bit
//! refinement of the ACs         for each block: codes, and a bit for each coefficient not zero so far
//! ```
//!
//! For each block, a bit mask records which coefficients are not zero: a refinement visits those. A run of
//! blocks without further codes can be longer than the codes that announce it. If a run ends at the end of a
//! scan, the bits of its refinement must still be present.

#![expect(clippy::cast_possible_truncation, reason = "coefficients are of 16 bits, and wrap as libjpeg's do")]

use super::bits::Bits;
use super::frame::{COMPONENTS_MAX, Frame};
use super::huffman::{Fault, Table};
use super::picture::Planes;
use super::quantize::{Block, ZIGZAG};
use super::scan::{COEFFICIENTS, Scan};
use super::tables::Tables;
use crate::DecodeError;
use crate::simd::{InstructionSet, Kernel};

/// All coefficients of a file. The buffers are kept.
#[derive(Debug, Default)]
pub(super) struct Coefficients {
    blocks: Vec<Block>,
    /// For each block, which coefficients are not zero: the lowest bit is the first in order of frequency.
    coded: Vec<u64>,
    /// Where each component's blocks start. They are in the order in which a scan of that component alone
    /// reads them.
    starts: [usize; COMPONENTS_MAX],
}

impl Coefficients {
    /// Starts a file.
    pub(super) fn start(&mut self, frame: &Frame) -> Result<(), DecodeError> {
        let mut count = 0;
        for (component, start) in frame.components().iter().zip(&mut self.starts) {
            *start = count;
            count += frame.blocks(component).into_iter().product::<usize>();
        }
        self.blocks.clear();
        self.coded.clear();
        let bytes = count.saturating_mul(size_of::<Block>());
        let refused = |_| DecodeError::Memory { bytes };
        self.blocks.try_reserve_exact(count).map_err(refused)?;
        self.coded.try_reserve_exact(count).map_err(refused)?;
        self.blocks.resize(count, [0; COEFFICIENTS]);
        self.coded.resize(count, 0);
        Ok(())
    }

    /// Transforms the blocks that the planes need.
    pub(super) fn transform(&self, frame: &Frame, planes: &mut Planes) {
        InstructionSet::widest().run(Transform { coefficients: self, frame, planes });
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>() + self.coded.capacity() * size_of::<u64>()
    }
}

struct Transform<'a> {
    coefficients: &'a Coefficients,
    frame: &'a Frame,
    planes: &'a mut Planes,
}

impl Kernel for Transform<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Coefficients { blocks, coded, starts } = self.coefficients;
        for ((plane, component), start) in self.planes.0.iter_mut().zip(self.frame.components()).zip(starts) {
            let [_, across] = self.frame.blocks(component);
            for y in plane.part.rows.clone() {
                for x in plane.part.columns.clone() {
                    let at = start + y * across + x;
                    let coded = (64 - coded[at].leading_zeros()) as usize;
                    plane.transform(&blocks[at], coded, plane.part.start_of(y, x));
                }
            }
        }
    }
}

/// The units of a scan up to a marker.
pub(super) struct Interval<'a> {
    pub(super) coefficients: &'a mut Coefficients,
    pub(super) frame: &'a Frame,
    pub(super) scan: &'a Scan,
    pub(super) dc: &'a Tables,
    pub(super) ac: &'a Tables,
    /// The first unit, and the number of units.
    pub(super) first: usize,
    pub(super) units: usize,
    pub(super) bits: Bits<'a>,
}

impl<'a> Kernel for Interval<'a> {
    type Output = Result<Bits<'a>, Fault>;

    // Counting bits takes an instruction that not every processor has.
    #[inline(always)]
    fn run(mut self) -> Self::Output {
        if self.scan.first == 0 {
            self.read_dc()?;
            return Ok(self.bits);
        }
        let member = self.scan.members()[0];
        let table = self.ac.get(member.ac)?;
        let start = self.coefficients.starts[member.component] + self.first;
        let blocks = self.coefficients.blocks[start..][..self.units].iter_mut();
        let coded = self.coefficients.coded[start..][..self.units].iter_mut();
        let mut band = Band { blocks: blocks.zip(coded), scan: self.scan, table, bits: self.bits };
        if self.scan.refines() {
            band.refine()?
        } else {
            band.read()?
        }
        Ok(band.bits)
    }
}

impl Interval<'_> {
    #[inline(always)]
    fn read_dc(&mut self) -> Result<(), Fault> {
        let [_, units_across] = self.scan.units(self.frame);
        let (mut values, low) = ([0i32; COMPONENTS_MAX], self.scan.low);
        for unit in self.first..self.first + self.units {
            let (row, column) = (unit / units_across, unit % units_across);
            for (member, value) in self.scan.members().iter().zip(&mut values) {
                let component = &self.frame.components()[member.component];
                let ([down, across], [rows, columns]) =
                    (self.scan.blocks_of(component), self.frame.blocks(component));
                for y in row * down..(row + 1) * down {
                    for x in column * across..(column + 1) * across {
                        let bits = if self.scan.refines() {
                            self.bits.refill();
                            self.bits.take(1).cast_signed() << low
                        } else {
                            *value = value.wrapping_add(self.bits.difference(self.dc.get(member.dc)?)?);
                            *value << low
                        };
                        if y < rows && x < columns {
                            let at = self.coefficients.starts[member.component] + y * columns + x;
                            let dc = &mut self.coefficients.blocks[at][0];
                            *dc = if self.scan.refines() { *dc | bits as i16 } else { bits as i16 };
                        }
                        self.bits.check()?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// A band of coefficients, of consecutive blocks.
struct Band<'a, B> {
    blocks: B,
    scan: &'a Scan,
    table: &'a Table,
    bits: Bits<'a>,
}

impl<'b, B: Iterator<Item = (&'b mut Block, &'b mut u64)>> Band<'_, B> {
    /// The first scan of the band.
    #[inline(always)]
    fn read(&mut self) -> Result<(), Fault> {
        let Self { blocks, scan, table, bits } = self;
        while let Some((block, coded)) = blocks.next() {
            let mut at = scan.first - 1;
            while at < scan.last {
                bits.refill();
                let entry = bits.entry(table);
                let (advance, value) = if entry.is_whole() {
                    bits.skip(entry.len());
                    (entry.advance(), entry.value())
                } else {
                    let symbol = bits.rest_of(entry, table)?;
                    let (zeros, size) = (u32::from(symbol >> 4), u32::from(symbol & 15));
                    if size == 0 && zeros < 15 {
                        // This block is the first of the run.
                        let run = (1 << zeros) + bits.take(zeros);
                        if run > 1 {
                            blocks.nth(run as usize - 2);
                        }
                        break;
                    }
                    (zeros as usize + 1, bits.take_signed(size) as i16)
                };
                at += advance;
                if value != 0 {
                    if at > scan.last {
                        return Err(Fault::Outside);
                    }
                    let level = value << scan.low;
                    if level == 0 {
                        // The number is too large for its bits: in libjpeg, whose coefficients are equally
                        // wide, it becomes zero.
                        return Err(Fault::Outside);
                    }
                    block[usize::from(ZIGZAG[at])] = level;
                    *coded |= 1 << at;
                }
            }
            bits.check()?;
        }
        Ok(())
    }

    #[inline(always)]
    fn refine(&mut self) -> Result<(), Fault> {
        let Self { blocks, scan, table, bits } = self;
        let band = !0 << scan.first & !0 >> (COEFFICIENTS - 1 - scan.last);
        // The number of blocks without further codes, this one included.
        let mut run = 0;
        for (block, coded) in blocks {
            let mut rest = band;
            while run == 0 && rest != 0 {
                let symbol = bits.symbol(table)?;
                let (zeros, size) = (u32::from(symbol >> 4), symbol & 15);
                let value = match (zeros, size) {
                    (0..15, 0) => {
                        run = (1 << zeros) + bits.take(zeros);
                        break;
                    }
                    (_, 0) => 0,
                    (_, 1) if bits.take(1) == 1 => 1,
                    (_, 1) => -1,
                    _ => return Err(Fault::NoCode),
                };
                // The coefficient that the code refers to. Each nonzero one before it has a refinement bit.
                let target = nth_set(rest & !*coded, zeros);
                let skipped = rest & target.wrapping_sub(1);
                refine(bits, block, skipped & *coded, scan.low);
                rest &= !(skipped | target);
                if value != 0 {
                    if target == 0 {
                        return Err(Fault::Outside);
                    }
                    block[usize::from(ZIGZAG[target.trailing_zeros() as usize & 63])] = value << scan.low;
                    *coded |= target;
                }
            }
            if run > 0 {
                refine(bits, block, rest & *coded, scan.low);
                run -= 1;
            }
            bits.check()?;
        }
        Ok(())
    }
}

/// Reads one more bit of each of these coefficients, which moves it away from zero.
#[inline(always)]
fn refine(bits: &mut Bits<'_>, block: &mut Block, mut coded: u64, low: u8) {
    while coded != 0 {
        bits.refill();
        let count = coded.count_ones().min(32);
        let mut news = u64::from(bits.take(count)) << (64 - count);
        for _ in 0..count {
            let coefficient = &mut block[usize::from(ZIGZAG[coded.trailing_zeros() as usize & 63])];
            let away = if *coefficient < 0 { -1i16 } else { 1 };
            let bit = (news >> 63) as i16;
            *coefficient = coefficient.wrapping_add((away << low) * bit);
            news <<= 1;
            coded &= coded - 1;
        }
    }
}

/// The bit of `bits` after `others` lower ones, or zero if there is none.
#[inline(always)]
fn nth_set(bits: u64, mut others: u32) -> u64 {
    // Not a loop with `others` iterations: the processor cannot predict its end.
    let mut left = [bits; 4];
    loop {
        for at in 1..4 {
            left[at] = left[at - 1] & left[at - 1].wrapping_sub(1);
        }
        if others < 4 {
            let left = left[others as usize];
            return left & left.wrapping_neg();
        }
        others -= 4;
        left[0] = left[3] & left[3].wrapping_sub(1);
    }
}
