//! A JPEG's scan: which bits of which coefficients it contains, and whether a file's scans are complete.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::damaged;
use super::frame::{COMPONENTS_MAX, Component, Frame, unsupported};
use crate::DecodeError;

/// The number of coefficients in a block.
pub(super) const COEFFICIENTS: usize = 64;

/// The maximum number of bits that a scan may leave to later ones.
const LOW_MAX: u8 = 13;

/// The maximum number of blocks in a unit.
pub(super) const UNIT_BLOCKS_MAX: usize = 10;

/// A component of a scan, by its index in the frame, and the Huffman tables that it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Member {
    pub(super) component: usize,
    pub(super) dc: usize,
    pub(super) ac: usize,
}

/// A scan's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scan {
    members: [Member; COMPONENTS_MAX],
    count: usize,
    /// The coefficients it contains, in zigzag order. All of them if the frame is not progressive.
    pub(super) first: usize,
    pub(super) last: usize,
    /// The lowest bit of the scans before this one, and of this one. There is no earlier bit before the first
    /// scan.
    high: Option<u8>,
    pub(super) low: u8,
}

impl Scan {
    /// Parses the header, whose marker is before `offset`.
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
        let mut scan = Self { members: [Member::default(); COMPONENTS_MAX], count, first, last, high, low };
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
            // The header's values are ignored, as by libjpeg.
            (scan.first, scan.last, scan.high, scan.low) = (0, COEFFICIENTS.saturating_sub(1), None, 0);
        } else if !scan.is_possible() {
            let found = format!("a scan of coefficients {first} to {last}, bits {} to {low}", bits >> 4);
            return Err(damaged(offset, found));
        }
        Ok(scan)
    }

    /// Fails if a unit has more blocks than the format allows and libjpeg reads.
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

    /// Whether the scan refines coefficients of earlier scans by another bit.
    pub(super) fn refines(&self) -> bool {
        self.high.is_some()
    }

    /// The rows and columns of the units it is coded in: blocks of its only component, or groups of blocks of
    /// all.
    pub(super) fn units(&self, frame: &Frame) -> [usize; 2] {
        match self.members() {
            [only] => frame.components().get(only.component).map_or([0; 2], |only| frame.blocks(only)),
            _ => frame.groups(),
        }
    }

    /// The rows and columns of a component's blocks in a unit.
    pub(super) fn blocks_of(&self, component: &Component) -> [usize; 2] {
        if self.count == 1 { [1; 2] } else { [component.down, component.across] }
    }
}

/// The progress of the scans: for each coefficient of each component, the lowest bit read so far.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    lowest: [[Option<u8>; COEFFICIENTS]; COMPONENTS_MAX],
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { lowest: [[None; COEFFICIENTS]; COMPONENTS_MAX] }
    }

    /// Adds a scan, whose header is at `offset`. Fails if it does not continue the scans before it.
    pub(super) fn add(&mut self, scan: &Scan, offset: usize) -> Result<(), DecodeError> {
        for member in scan.members() {
            let Some(lowest) = self.lowest.get_mut(member.component) else { continue };
            if scan.first > 0 && lowest.first() == Some(&None) {
                return Err(damaged(offset, "an AC scan, before any DC scan of its component"));
            }
            for lowest in lowest.iter_mut().take(scan.last.saturating_add(1)).skip(scan.first) {
                // A first scan may come again, whole: its coefficients replace those before. With fewer bits,
                // it would leave bits in place that later scans add once more.
                let is_anew = lowest.is_some() && !scan.refines() && scan.low > 0;
                if is_anew || lowest.unwrap_or(0) != scan.high.unwrap_or(0) {
                    return Err(damaged(offset, "a scan that does not continue the scans before it"));
                }
                *lowest = Some(scan.low);
            }
        }
        Ok(())
    }

    /// Whether every bit of every coefficient has been read.
    pub(super) fn is_complete(&self, frame: &Frame) -> bool {
        let mut components = self.lowest.iter().take(frame.components().len());
        components.all(|lowest| lowest.iter().all(|lowest| *lowest == Some(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The AC coefficients of the only component, or its DC coefficient.
    fn scan(is_ac: bool, high: Option<u8>, low: u8) -> Scan {
        let (first, last) = if is_ac { (1, COEFFICIENTS - 1) } else { (0, 0) };
        Scan { members: [Member::default(); COMPONENTS_MAX], count: 1, first, last, high, low }
    }

    /// libjpeg leaves a bit that is set already as it is when it refines.
    #[test]
    fn complete_coefficients_do_not_begin_anew_with_fewer_bits() {
        let mut progress = Progress::new();
        for whole in [scan(false, None, 0), scan(true, None, 0), scan(true, None, 0)] {
            progress.add(&whole, 0).unwrap();
        }
        for is_ac in [false, true] {
            let error = progress.clone().add(&scan(is_ac, None, 1), 7).unwrap_err().to_string();
            assert!(error.contains("does not continue the scans before it"), "{error}");
        }
        let mut progress = Progress::new();
        for step in [scan(false, None, 1), scan(false, Some(1), 0), scan(true, None, 2)] {
            progress.add(&step, 0).unwrap();
        }
        assert!(progress.clone().add(&scan(true, None, 2), 0).is_err());
        assert!(progress.add(&scan(true, Some(2), 1), 0).is_ok());
    }
}
