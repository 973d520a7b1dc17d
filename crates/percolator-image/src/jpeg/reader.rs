//! Decodes the data of a JPEG's scans to samples.

use super::bits::Bits;
use super::frame::{COMPONENTS_MAX, Frame};
use super::huffman::{Fault, Meaning, Specs};
use super::picture::Planes;
use super::progressive::{self, Coefficients};
use super::quantize::Quantizers;
use super::scan::Scan;
use super::sequential::{self, Batch};
use super::tables::Tables;
use crate::simd::InstructionSet;
use crate::{DecodeError, Window};

/// Reads scan after scan, and keeps its buffers.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) planes: Planes,
    coefficients: Coefficients,
    batch: Batch,
    dc: Tables,
    ac: Tables,
    /// Which components have had a scan.
    seen: [bool; COMPONENTS_MAX],
    /// Whether one scan has contained all components.
    is_complete: bool,
    /// Whether this scan's samples are needed.
    wanted: bool,
    /// The number of this scan's units that have been read.
    done: usize,
}

impl Reader {
    /// Starts a file of which a window is needed, computed from the first `components` components.
    pub(super) fn start(
        &mut self,
        frame: &Frame,
        window: Window,
        components: usize,
    ) -> Result<(), DecodeError> {
        self.planes.start(frame, window, components)?;
        (self.seen, self.is_complete) = ([false; COMPONENTS_MAX], false);
        if frame.progressive { self.coefficients.start(frame) } else { Ok(()) }
    }

    /// Starts a scan with the tables defined so far.
    pub(super) fn start_scan(
        &mut self,
        frame: &Frame,
        scan: &Scan,
        specs: &Specs<'_>,
        quantizers: &Quantizers,
    ) -> Result<(), Fault> {
        self.done = 0;
        // A file that is not progressive is complete after one scan of all components; libjpeg reads no
        // further.
        self.wanted = frame.progressive || !self.is_complete;
        self.is_complete |= scan.members().len() == frame.components().len();
        for member in scan.members() {
            let seen = std::mem::replace(&mut self.seen[member.component], true);
            if seen && !frame.progressive && self.wanted {
                return Err(Fault::Twice);
            }
            if !seen {
                // The table defined at the component's first scan counts.
                let quantizer = quantizers.get(frame.components()[member.component].quantizer);
                self.planes.0[member.component].steps = *quantizer.ok_or(Fault::Quantizer)?;
            }
            if scan.first == 0 && !scan.refines() {
                self.dc.set(member.dc, specs.dc(member.dc)?, Meaning::Difference)?;
            }
            if !frame.progressive || scan.first > 0 {
                let meaning = match (frame.progressive, scan.refines()) {
                    (false, _) => Meaning::Coefficient,
                    (true, false) => Meaning::Band,
                    (true, true) => Meaning::Symbol,
                };
                self.ac.set(member.ac, specs.ac(member.ac)?, meaning)?;
            }
        }
        Ok(())
    }

    /// Reads the next `units` of a scan from their data. With `may_end_late`, trailing data is allowed.
    pub(super) fn read(
        &mut self,
        frame: &Frame,
        scan: &Scan,
        units: usize,
        data: &[u8],
        may_end_late: bool,
    ) -> Result<(), Fault> {
        let Self { planes, coefficients, batch, dc, ac, .. } = self;
        let (bits, first) = (Bits::new(data), self.done);
        let bits = if frame.progressive {
            let interval = progressive::Interval { coefficients, frame, scan, dc, ac, first, units, bits };
            InstructionSet::widest().run(interval)
        } else {
            let wanted = self.wanted;
            let interval =
                sequential::Interval { frame, scan, dc, ac, planes, batch, wanted, first, units, bits };
            InstructionSet::widest().run(interval)
        }?;
        self.done += units;
        if bits.bytes_left() > 0 && !may_end_late { Err(Fault::Long) } else { Ok(()) }
    }

    /// Transforms what is not yet transformed.
    pub(super) fn finish(&mut self, frame: &Frame) {
        if frame.progressive {
            self.coefficients.transform(frame, &mut self.planes);
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.planes.bytes() + self.coefficients.bytes()
    }
}
