//! A JPEG's scan: which bits of which coefficients it brings, and what the scans of a file come to together.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::damaged;
use super::frame::{Component, Frame, unsupported};
use crate::image::DecodeError;

/// The coefficients of a block.
pub(super) const COEFFICIENTS: usize = 64;

/// The most bits that a scan may leave to later ones.
const LOW_MAX: u8 = 13;

/// The most blocks in a unit.
pub(super) const UNIT_BLOCKS_MAX: usize = 10;

/// A component of a scan, by its place in the frame, and the Huffman tables that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Member {
    pub(super) component: usize,
    pub(super) dc: usize,
    pub(super) ac: usize,
}

/// A scan's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scan {
    members: [Member; 3],
    count: usize,
    /// The coefficients it brings, in zigzag order. All of them where the frame is not progressive.
    pub(super) first: usize,
    pub(super) last: usize,
    /// The lowest bit that was brought before, and the one that is brought now. No bit was before the first scan.
    high: Option<u8>,
    pub(super) low: u8,
}

impl Scan {
    /// Reads the header, whose marker lies before `offset`.
    pub(super) fn parse(frame: &Frame, offset: usize, header: &[u8]) -> Result<Self, DecodeError> {
        let count = usize::from(header.first().copied().unwrap_or(0));
        let (ids, rest) = header.get(1..).unwrap_or_default().as_chunks::<2>();
        let (Some((ids, &[[first, last]])), &[bits], true) =
            (ids.split_at_checked(count), rest, (1..=frame.components().len()).contains(&count))
        else {
            return Err(damaged(offset, format!("a scan of {count} components in {} bytes", header.len())));
        };
        let (first, last, high, low) = (usize::from(first), usize::from(last), bits >> 4, bits & 15);
        let high = (high > 0).then_some(high);
        let mut scan = Self { members: [Member::default(); 3], count, first, last, high, low };
        for (at, &[id, tables]) in ids.iter().enumerate() {
            let component = frame.components().iter().position(|component| component.id == id);
            let known = scan.members().iter().take(at).any(|member| Some(member.component) == component);
            match (component, scan.members.get_mut(at)) {
                (Some(component), Some(member)) if !known => {
                    *member = Member { component, dc: (tables >> 4).into(), ac: (tables & 15).into() };
                }
                _ => {
                    return Err(damaged(offset, format!("a scan of component {id}, unknown or named twice")));
                }
            }
        }
        scan.check_size(frame)?;
        if !frame.progressive {
            // What the header says is passed over, as by libjpeg.
            (scan.first, scan.last, scan.high, scan.low) = (0, COEFFICIENTS.saturating_sub(1), None, 0);
        } else if !scan.is_possible() {
            let found = format!("a scan of coefficients {first} to {last}, bits {} to {low}", bits >> 4);
            return Err(damaged(offset, found));
        }
        Ok(scan)
    }

    /// Fails where a unit has more blocks than the format allows, and libjpeg reads.
    fn check_size(&self, frame: &Frame) -> Result<(), DecodeError> {
        let components = self.members().iter().filter_map(|member| frame.components().get(member.component));
        let blocks: usize =
            components.map(|component| self.blocks_of(component).into_iter().product::<usize>()).sum();
        if blocks > UNIT_BLOCKS_MAX {
            return Err(unsupported(
                format!("a scan of {blocks} blocks in a unit"),
                "scans of at most 10 blocks in a unit",
            ));
        }
        Ok(())
    }

    /// Whether a progressive file may have such a scan.
    fn is_possible(&self) -> bool {
        let band = if self.first == 0 {
            self.last == 0
        } else {
            self.count == 1 && (self.first..COEFFICIENTS).contains(&self.last)
        };
        let one_bit = self.high.is_none_or(|high| high == self.low.saturating_add(1));
        band && one_bit && self.low <= LOW_MAX
    }

    pub(super) fn members(&self) -> &[Member] {
        self.members.get(..self.count).unwrap_or_default()
    }

    /// Whether it brings another bit of coefficients that were there before.
    pub(super) fn refines(&self) -> bool {
        self.high.is_some()
    }

    /// Rows and columns of the units it is coded in: blocks of its only component, or groups of blocks of all.
    pub(super) fn units(&self, frame: &Frame) -> [usize; 2] {
        match self.members() {
            [only] => frame.components().get(only.component).map_or([0; 2], |only| frame.blocks(only)),
            _ => frame.groups(),
        }
    }

    /// Rows and columns of blocks of a component in a unit.
    pub(super) fn blocks_of(&self, component: &Component) -> [usize; 2] {
        if self.count == 1 { [1; 2] } else { [component.down, component.across] }
    }
}

/// How far the scans have come: for each coefficient of each component the lowest bit that was brought.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    lowest: [[Option<u8>; COEFFICIENTS]; 3],
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { lowest: [[None; COEFFICIENTS]; 3] }
    }

    /// A scan, whose header lies at `offset`. Fails where it does not go on from those before it.
    pub(super) fn add(&mut self, scan: &Scan, offset: usize) -> Result<(), DecodeError> {
        for member in scan.members() {
            let Some(lowest) = self.lowest.get_mut(member.component) else { continue };
            if scan.first > 0 && lowest.first() == Some(&None) {
                return Err(damaged(offset, "a scan of details, before any of the means"));
            }
            for lowest in lowest.iter_mut().take(scan.last.saturating_add(1)).skip(scan.first) {
                if lowest.unwrap_or(0) != scan.high.unwrap_or(0) {
                    return Err(damaged(offset, "a scan that does not go on from those before it"));
                }
                *lowest = Some(scan.low);
            }
        }
        Ok(())
    }

    /// Whether every bit of every coefficient has come.
    pub(super) fn is_complete(&self, frame: &Frame) -> bool {
        let mut components = self.lowest.iter().take(frame.components().len());
        components.all(|lowest| lowest.iter().all(|lowest| *lowest == Some(0)))
    }
}
