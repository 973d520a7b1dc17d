//! The scans of a JPEG that is not progressive: each has its blocks whole, one after the other.
//!
//! ```text
//! for each unit, for each member of the scan, for each of its blocks:
//!     the DC's difference to the previous one, then codes of (zeros, coefficient) up to the block's end
//! ```
//!
//! A block that the window needs is transformed soon after it is read, in a batch with some others, and is
//! then discarded. The codes of other blocks are skipped. So are those of all coefficients but the DC if the
//! block becomes one sample.

#![expect(clippy::cast_possible_truncation, reason = "coefficients are of 16 bits, and wrap as libjpeg's do")]

use super::bits::Bits;
use super::frame::{COMPONENTS_MAX, Frame};
use super::huffman::{END, Fault, Table};
use super::picture::Planes;
use super::quantize::{Block, ZIGZAG};
use super::scan::{COEFFICIENTS, Scan, UNIT_BLOCKS_MAX};
use super::tables::Tables;
use crate::simd::Kernel;

/// The number of blocks that are read before they are transformed. They are few enough to stay in the
/// first-level cache, and enough that a coefficient has left the processor's store buffer when it is loaded
/// with its neighbours.
const BATCH: usize = 32;

/// Blocks that are read and not yet transformed.
#[derive(Debug)]
pub(super) struct Batch {
    blocks: [Block; BATCH],
    places: [Place; BATCH],
    len: usize,
}

/// Where a block's samples go.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    component: usize,
    start: usize,
    /// Greater than the index of every nonzero coefficient.
    coded: usize,
}

impl Default for Batch {
    fn default() -> Self {
        Self { blocks: [[0; COEFFICIENTS]; BATCH], places: [Place::default(); BATCH], len: 0 }
    }
}

impl Batch {
    #[inline(always)]
    fn transform(&mut self, planes: &mut Planes) {
        for (block, place) in self.blocks.iter().zip(&self.places).take(self.len) {
            planes.0[place.component].transform(block, place.coded, place.start);
        }
        self.len = 0;
    }
}

/// The units of a scan up to a marker.
pub(super) struct Interval<'a> {
    pub(super) frame: &'a Frame,
    pub(super) scan: &'a Scan,
    pub(super) dc: &'a Tables,
    pub(super) ac: &'a Tables,
    pub(super) planes: &'a mut Planes,
    pub(super) batch: &'a mut Batch,
    /// Whether the blocks that the window needs are transformed.
    pub(super) wanted: bool,
    /// The first unit, and the number of units.
    pub(super) first: usize,
    pub(super) units: usize,
    pub(super) bits: Bits<'a>,
}

/// How a member of the scan is read in each unit.
#[derive(Clone, Copy)]
struct Member<'a> {
    component: usize,
    dc: &'a Table,
    ac: &'a Table,
    /// The rows and columns of its blocks in a unit.
    blocks: [usize; 2],
    /// The previous block's DC coefficient.
    dc_value: i32,
}

impl<'a> Kernel for Interval<'a> {
    type Output = Result<Bits<'a>, Fault>;

    #[inline(always)]
    fn run(mut self) -> Self::Output {
        let mut members = [None; COMPONENTS_MAX];
        for (slot, member) in members.iter_mut().zip(self.scan.members()) {
            let blocks = self.scan.blocks_of(&self.frame.components()[member.component]);
            let (dc, ac) = (self.dc.get(member.dc)?, self.ac.get(member.ac)?);
            *slot = Some(Member { component: member.component, dc, ac, blocks, dc_value: 0 });
        }
        let [_, across] = self.scan.units(self.frame);
        let (mut row, mut column) = (self.first / across, self.first % across);
        // A damaged interval may have left some blocks.
        self.batch.len = 0;
        let mut left = self.units;
        while left > 0 {
            while left > 0 && self.batch.len + UNIT_BLOCKS_MAX <= BATCH {
                self.unit(&mut members, row, column)?;
                left -= 1;
                column += 1;
                if column == across {
                    (row, column) = (row + 1, 0);
                }
            }
            self.batch.transform(self.planes);
        }
        Ok(self.bits)
    }
}

impl Interval<'_> {
    #[inline(always)]
    fn unit(
        &mut self,
        members: &mut [Option<Member<'_>>; COMPONENTS_MAX],
        row: usize,
        column: usize,
    ) -> Result<(), Fault> {
        for member in members.iter_mut().flatten() {
            let part = &self.planes.0[member.component].part;
            let [down, across] = member.blocks;
            for y in row * down..(row + 1) * down {
                for x in column * across..(column + 1) * across {
                    member.dc_value = member.dc_value.wrapping_add(self.bits.difference(member.dc)?);
                    if self.wanted && part.contains(y, x) {
                        let at = self.batch.len;
                        let block = &mut self.batch.blocks[at];
                        *block = [0; COEFFICIENTS];
                        block[0] = member.dc_value as i16;
                        let coded = if part.side > 1 {
                            read(&mut self.bits, member.ac, block)?
                        } else {
                            skip(&mut self.bits, member.ac)?;
                            1
                        };
                        let start = part.start_of(y, x);
                        self.batch.places[at] = Place { component: member.component, start, coded };
                        self.batch.len = at + 1;
                    } else {
                        skip(&mut self.bits, member.ac)?;
                    }
                    self.bits.check()?;
                }
            }
        }
        Ok(())
    }
}

/// The number of table lookups per refill of the bits.
const LOOKUPS: usize = 4;

/// Reads all coefficients of a block but the DC. Returns a number greater than the index of every nonzero
/// one.
#[inline(always)]
fn read(bits: &mut Bits<'_>, table: &Table, block: &mut Block) -> Result<usize, Fault> {
    let mut at = 0;
    loop {
        bits.refill();
        for _ in 0..LOOKUPS {
            let (advance, value) = next(bits, table)?;
            let last = at;
            at += advance;
            if at >= COEFFICIENTS - 1 {
                return end(block, last, at, value);
            }
            block[usize::from(ZIGZAG[at & 63] & 63)] = value;
        }
    }
}

/// Handles the last coefficient of a block, or the end-of-block code.
#[inline(always)]
fn end(block: &mut Block, last: usize, at: usize, value: i16) -> Result<usize, Fault> {
    if at == COEFFICIENTS - 1 {
        block[at] = value;
        return Ok(COEFFICIENTS);
    }
    // A run of zeros may extend past the end.
    if value == 0 { Ok(last + 1) } else { Err(Fault::Outside) }
}

/// Returns the distance of the next coefficient from the last one, and its value. Bits must be ready for one
/// table lookup; if they were ready for more, they still are for one less.
#[inline(always)]
fn next(bits: &mut Bits<'_>, table: &Table) -> Result<(usize, i16), Fault> {
    let entry = bits.entry(table);
    if entry.is_whole() {
        bits.skip(entry.len());
        return Ok((entry.advance(), entry.value()));
    }
    let symbol = bits.rest_of(entry, table)?;
    let coefficient = coefficient(bits, symbol);
    bits.refill();
    Ok(coefficient)
}

/// The same for a coefficient that no entry fully decodes. Its bits must be ready.
#[inline(always)]
fn coefficient(bits: &mut Bits<'_>, symbol: u8) -> (usize, i16) {
    let (run, size) = (usize::from(symbol >> 4), u32::from(symbol & 15));
    if size == 0 && run < 15 {
        return (END, 0);
    }
    (run + 1, bits.take_signed(size) as i16)
}

/// Skips all coefficients of a block but the DC.
#[inline(always)]
fn skip(bits: &mut Bits<'_>, table: &Table) -> Result<(), Fault> {
    let mut at = 0;
    loop {
        bits.refill();
        for _ in 0..LOOKUPS {
            let (advance, value) = next(bits, table)?;
            at += advance;
            if at >= COEFFICIENTS - 1 {
                let outside = at >= COEFFICIENTS && value != 0;
                return if outside { Err(Fault::Outside) } else { Ok(()) };
            }
        }
    }
}
