//! The data of a JPEG's scans, into samples.

use super::bits::Bits;
use super::frame::Frame;
use super::huffman::{Fault, Meaning, Specs};
use super::picture::Planes;
use super::progressive::{self, Coefficients};
use super::quantize::Quantizers;
use super::scan::Scan;
use super::sequential::{self, Batch};
use super::tables::Tables;
use crate::image::Window;

/// Reads scan after scan. Its buffers are kept.
#[derive(Debug, Default)]
pub(super) struct Reader {
    pub(super) planes: Planes,
    coefficients: Coefficients,
    batch: Batch,
    dc: Tables,
    ac: Tables,
    /// Which components have had a scan.
    seen: [bool; 3],
    /// Whether a scan has brought all components at once.
    is_complete: bool,
    /// Whether this scan's samples are wanted.
    wanted: bool,
    /// Units of this scan that have been read.
    done: usize,
}

impl Reader {
    /// Starts a file, of which a window is needed, made of so many of its components.
    pub(super) fn start(&mut self, frame: &Frame, window: Window, components: usize) {
        self.planes.start(frame, window, components);
        (self.seen, self.is_complete) = ([false; 3], false);
        if frame.progressive {
            self.coefficients.start(frame);
        }
    }

    /// Starts a scan with the tables that are defined so far.
    pub(super) fn start_scan(
        &mut self,
        frame: &Frame,
        scan: &Scan,
        specs: &Specs<'_>,
        quantizers: &Quantizers,
    ) -> Result<(), Fault> {
        self.done = 0;
        // A file that is not progressive is complete with a scan of all components, and libjpeg looks at no more.
        self.wanted = frame.progressive || !self.is_complete;
        self.is_complete |= scan.members().len() == frame.components().len();
        for member in scan.members() {
            let seen = std::mem::replace(&mut self.seen[member.component], true);
            if seen && !frame.progressive && self.wanted {
                return Err(Fault::Twice);
            }
            if !seen {
                // The table counts that is there when the first scan comes.
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

    /// Reads the next `units` of a scan, whose data are these. There may be more data, `may_end_late`.
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
            let stretch = progressive::Stretch { coefficients, frame, scan, dc, ac, first, units, bits };
            pulp::Arch::new().dispatch(stretch)
        } else {
            let wanted = self.wanted;
            let stretch =
                sequential::Stretch { frame, scan, dc, ac, planes, batch, wanted, first, units, bits };
            pulp::Arch::new().dispatch(stretch)
        }?;
        self.done += units;
        if bits.bytes_left() > 0 && !may_end_late { Err(Fault::Long) } else { Ok(()) }
    }

    /// Makes samples of what is not yet.
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
