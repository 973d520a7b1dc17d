//! The codes of a JPEG's scans, read for their lengths alone: whether all are there.
//!
//! ```text
//! first scan, or the only one   for each block: for each coefficient: a code, and as many bits as it says
//! refinement of the means       for each block: a bit
//! refinement of the others      for each block: codes, and a bit for each coefficient that is not zero so far
//! ```
//!
//! So nothing has to be kept of a coefficient but whether it is zero. A run of blocks that have no more codes is
//! longer than the codes that say so; where one ends at the end of a scan, only this reading can tell that the bits
//! of its refinement are missing.

use super::frame::Frame;
use super::huffman::{Bits, Fault, Specs, Table};
use super::scan::{COEFFICIENTS, Scan};

/// Reads the codes of scan after scan. Its buffers are kept.
#[derive(Debug, Default)]
pub(super) struct Codes {
    /// For each block of each component, which coefficients are not zero: the lowest bit is the first in zigzag
    /// order.
    coded: Vec<u64>,
    /// Where each component's blocks start. They lie in the order in which a scan of it alone reads them.
    starts: [usize; 3],
    tables: Vec<Table>,
    /// Blocks of this scan that have been read.
    done: usize,
}

impl Codes {
    /// Starts a file.
    pub(super) fn start(&mut self, frame: &Frame) {
        self.coded.clear();
        if !frame.progressive {
            return;
        }
        let mut blocks = 0;
        for (component, start) in frame.components().iter().zip(&mut self.starts) {
            *start = blocks;
            blocks += frame.blocks(component);
        }
        self.coded.reserve_exact(blocks);
        self.coded.resize(blocks, 0);
    }

    /// Starts a scan with the tables that are defined so far.
    pub(super) fn start_scan(&mut self, frame: &Frame, scan: &Scan, specs: &Specs<'_>) -> Result<(), Fault> {
        self.done = 0;
        self.tables.clear();
        for member in scan.members() {
            if scan.first == 0 && !scan.refines() {
                self.tables.push(Table::new(specs.dc(member.dc)?)?);
            }
            if !frame.progressive || scan.first > 0 {
                self.tables.push(Table::new(specs.ac(member.ac)?)?);
            }
        }
        Ok(())
    }

    /// Reads the next `units` of a scan, whose data are these. More data than that are no fault.
    pub(super) fn read(
        &mut self,
        frame: &Frame,
        scan: &Scan,
        units: usize,
        data: &[u8],
    ) -> Result<(), Fault> {
        // Counting bits takes an instruction that not every processor has.
        pulp::Arch::new().dispatch(Stretch { codes: self, frame, scan, units, data })
    }
}

/// Codes of a scan, up to a marker.
struct Stretch<'a> {
    codes: &'a mut Codes,
    frame: &'a Frame,
    scan: &'a Scan,
    units: usize,
    data: &'a [u8],
}

impl pulp::WithSimd for Stretch<'_> {
    type Output = Result<(), Fault>;

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, _: S) -> Self::Output {
        let Self { codes, frame, scan, units, data } = self;
        let mut bits = Bits::new(data);
        match (frame.progressive, scan.first, scan.refines(), &codes.tables[..]) {
            (false, ..) => sequential(&mut bits, scan, frame, &codes.tables, units),
            (true, 0, false, tables) => means(&mut bits, scan, frame, tables, units),
            (true, 0, true, _) => {
                let blocks = scan.members().iter().map(|member| blocks_of(scan, frame, member.component));
                let blocks: u32 = blocks.sum();
                (0..units).try_for_each(|_| {
                    bits.skip(blocks);
                    bits.check()
                })
            }
            (true, _, refines, tables) => {
                let start = codes.starts[scan.members()[0].component];
                let blocks = &mut codes.coded[start + codes.done..][..units];
                codes.done += units;
                let band = !0 << scan.first & !0 >> (COEFFICIENTS - 1 - scan.last);
                if refines {
                    refinement(&mut bits, &tables[0], band, blocks)
                } else {
                    details(&mut bits, &tables[0], scan, blocks)
                }
            }
        }
    }
}

/// Blocks of a component in a unit.
fn blocks_of(scan: &Scan, frame: &Frame, component: usize) -> u32 {
    let component = &frame.components()[component];
    #[expect(clippy::cast_possible_truncation, reason = "at most 16")]
    let blocks = (component.across * component.down) as u32;
    if scan.members().len() == 1 { 1 } else { blocks }
}

#[inline(always)]
fn means(
    bits: &mut Bits<'_>,
    scan: &Scan,
    frame: &Frame,
    tables: &[Table],
    units: usize,
) -> Result<(), Fault> {
    for _ in 0..units {
        for (member, table) in scan.members().iter().zip(tables) {
            for _ in 0..blocks_of(scan, frame, member.component) {
                let size = bits.symbol(table)?;
                bits.pass(size.into());
                bits.check()?;
            }
        }
    }
    Ok(())
}

#[inline(always)]
fn sequential(
    bits: &mut Bits<'_>,
    scan: &Scan,
    frame: &Frame,
    tables: &[Table],
    units: usize,
) -> Result<(), Fault> {
    for _ in 0..units {
        for (member, tables) in scan.members().iter().zip(tables.as_chunks::<2>().0) {
            for _ in 0..blocks_of(scan, frame, member.component) {
                let [dc, ac] = tables;
                let size = bits.symbol(dc)?;
                bits.pass(size.into());
                let mut at = 1;
                while at < COEFFICIENTS {
                    let symbol = bits.symbol(ac)?;
                    let (zeros, size) = (usize::from(symbol >> 4), symbol & 15);
                    match (zeros, size) {
                        (15, 0) => {}
                        (_, 0) => break,
                        _ if at + zeros >= COEFFICIENTS => return Err(Fault::Outside),
                        _ => bits.pass(size.into()),
                    }
                    at += zeros + 1;
                }
                bits.check()?;
            }
        }
    }
    Ok(())
}

#[inline(always)]
fn details(bits: &mut Bits<'_>, table: &Table, scan: &Scan, blocks: &mut [u64]) -> Result<(), Fault> {
    let mut blocks = blocks.iter_mut();
    while let Some(coded) = blocks.next() {
        let mut at = scan.first;
        while at <= scan.last {
            let symbol = bits.symbol(table)?;
            let (zeros, size) = (usize::from(symbol >> 4), symbol & 15);
            match (zeros, size) {
                (15, 0) => {}
                (_, 0) => {
                    // This block is the first of the run.
                    let run = (1 << zeros) + bits.take((symbol >> 4).into());
                    if run > 1 {
                        blocks.nth(run as usize - 2);
                    }
                    break;
                }
                _ if at + zeros > scan.last => return Err(Fault::Outside),
                _ => {
                    bits.pass(size.into());
                    *coded |= 1 << (at + zeros);
                }
            }
            at += zeros + 1;
        }
        bits.check()?;
    }
    Ok(())
}

/// The bit of these behind so many others, or none.
#[inline(always)]
fn behind(bits: u64, others: i32) -> u64 {
    // No loop with so many rounds, for nobody can foresee where it ends.
    let mut left = [bits; 4];
    let mut others = others.unsigned_abs() as usize;
    loop {
        for at in 1..4 {
            left[at] = left[at - 1] & left[at - 1].wrapping_sub(1);
        }
        if others < 4 {
            let left = left[others];
            return left & left.wrapping_neg();
        }
        others -= 4;
        left[0] = left[3] & left[3].wrapping_sub(1);
    }
}

#[inline(always)]
fn refinement(bits: &mut Bits<'_>, table: &Table, band: u64, blocks: &mut [u64]) -> Result<(), Fault> {
    // Blocks that have no more codes, this one included.
    let mut run = 0;
    for coded in blocks {
        let mut rest = band;
        while run == 0 && rest != 0 {
            let symbol = bits.symbol(table)?;
            let (zeros, size) = (i32::from(symbol >> 4), symbol & 15);
            match (zeros, size) {
                (0..15, 0) => {
                    run = (1 << zeros) + bits.take(zeros);
                    break;
                }
                (_, 0) => {}
                (_, 1) => bits.pass(1),
                _ => return Err(Fault::NoCode),
            }
            // The coefficient that the code is about; all before it that are not zero have a bit.
            let about = behind(rest & !*coded, zeros);
            let passed = rest & about.wrapping_sub(1);
            bits.skip((passed & *coded).count_ones());
            rest &= !(passed | about);
            if size == 1 {
                if about == 0 {
                    return Err(Fault::Outside);
                }
                *coded |= about;
            }
        }
        if run > 0 {
            bits.skip((rest & *coded).count_ones());
            run -= 1;
        }
        bits.check()?;
    }
    Ok(())
}
