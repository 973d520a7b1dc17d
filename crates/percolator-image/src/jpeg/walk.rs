//! Reads a JPEG file marker by marker.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::bits;
use super::frame::Frame;
use super::huffman::{Fault, Specs};
use super::quantize::Quantizers;
use super::reader::Reader;
use super::scan::{Progress, Scan};
use super::{Colors, FORMAT, Head, SCANS_MAX, damaged};
use crate::DecodeError;
use crate::exif::{self, Orientation};

/// The marker codes that matter here.
mod marker {
    pub(super) const TEM: u8 = 0x01;
    pub(super) const DHT: u8 = 0xc4;
    pub(super) const RST: std::ops::RangeInclusive<u8> = 0xd0..=0xd7;
    pub(super) const SOI: u8 = 0xd8;
    pub(super) const EOI: u8 = 0xd9;
    pub(super) const SOS: u8 = 0xda;
    pub(super) const DQT: u8 = 0xdb;
    pub(super) const DNL: u8 = 0xdc;
    pub(super) const DRI: u8 = 0xdd;
    pub(super) const APP0: u8 = 0xe0;
    pub(super) const APP1: u8 = 0xe1;
    pub(super) const APP14: u8 = 0xee;
    pub(super) const APP15: u8 = 0xef;
    pub(super) const COM: u8 = 0xfe;
}

/// libjpeg does not recognise a JFIF segment shorter than this.
const JFIF_BYTES_MIN: usize = 14;

/// A position in a file that moves from marker to marker.
pub(super) struct Walk<'a> {
    file: &'a [u8],
    at: usize,
    /// The number of a scan's units between two restart markers. Zero is none.
    interval: usize,
    tables: Specs<'a>,
    quantizers: Quantizers,
}

impl<'a> Walk<'a> {
    pub(super) fn new(file: &'a [u8]) -> Self {
        Self { file, at: 2, interval: 0, tables: Specs::default(), quantizers: Quantizers::default() }
    }

    /// Reads up to the first scan.
    pub(super) fn head(&mut self) -> Result<Head, DecodeError> {
        let (mut frame, mut adobe, mut jfif, mut exif) = (None, None, false, None);
        loop {
            let offset = self.at;
            match self.marker()? {
                marker::SOS => break,
                marker::APP0 => {
                    let segment = self.note()?.unwrap_or_default();
                    jfif |= segment.starts_with(b"JFIF\0") && segment.len() >= JFIF_BYTES_MIN;
                }
                marker::APP1 => {
                    // As in OpenCV, only the first counts, and its name is not checked.
                    let segment = self.note()?.map(|segment| segment.get(6..).unwrap_or_default());
                    exif = exif.or(segment);
                }
                marker::APP14 => {
                    let segment = self.note()?.unwrap_or_default();
                    if segment.starts_with(b"Adobe") {
                        adobe = segment.get(11).copied().or(adobe);
                    }
                }
                code @ 0xc0..=0xcf if code != marker::DHT => {
                    if frame.is_some() {
                        return Err(damaged(offset, "a second frame: one is allowed"));
                    }
                    let segment = self.segment()?;
                    frame = Some(Frame::parse(code, offset, segment)?);
                }
                marker::EOI => return Err(damaged(offset, "the end marker, before any scan")),
                code => self.other(code, offset)?,
            }
        }
        let frame: Frame = frame.ok_or_else(|| damaged(self.at, "a scan, before any frame"))?;
        let adobe_rgb = adobe.map(|transform| transform == 0);
        let rgb = match frame.components().len() {
            // Inks, of which only Adobe's marker says that they were converted.
            4 => adobe_rgb.unwrap_or(true),
            _ => !jfif && adobe_rgb.unwrap_or_else(|| frame.is_named_rgb()),
        };
        let colors = if rgb { Colors::Rgb } else { Colors::Ycc };
        let orientation = exif.map_or_else(Orientation::default, exif::orientation);
        Ok(Head { frame, colors, orientation })
    }

    /// Reads from the first scan, whose marker has been read, through the end marker. `data` is a buffer for
    /// scan data.
    pub(super) fn scans(
        &mut self,
        frame: &Frame,
        reader: &mut Reader,
        data: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let (mut scans, mut progress) = (0usize, Progress::new());
        if !frame.progressive {
            self.tables.complete();
        }
        let mut code = marker::SOS;
        while code != marker::EOI {
            let offset = self.at;
            match code {
                marker::SOS => {
                    scans = scans.saturating_add(1);
                    if scans > SCANS_MAX {
                        let allowed = "files of at most 100";
                        let found = format!("{scans} scans or more");
                        return Err(DecodeError::Unsupported { format: FORMAT, found, allowed });
                    }
                    let scan = Scan::parse(frame, offset, self.segment()?)?;
                    progress.add(&scan, offset)?;
                    self.data(frame, &scan, reader, data)?;
                }
                0xc0..=0xc3 | 0xc5..=0xcf => {
                    return Err(damaged(offset, "a second frame: one is allowed"));
                }
                code => self.other(code, offset)?,
            }
            code = self.marker()?;
        }
        if !progress.is_complete(frame) {
            return Err(damaged(
                self.at,
                "the end, but a component has had no scan, or not all of its scans",
            ));
        }
        Ok(())
    }

    /// Handles any other marker: takes its tables or its restart interval, or skips it and its segment.
    fn other(&mut self, code: u8, offset: usize) -> Result<(), DecodeError> {
        match code {
            marker::TEM => Ok(()),
            code if marker::RST.contains(&code) => Ok(()),
            marker::DHT => {
                let segment = self.segment()?;
                self.tables.define(segment).ok_or_else(|| damaged(offset, "a malformed Huffman table"))
            }
            marker::DRI => {
                let interval = self.segment()?.try_into().map(u16::from_be_bytes);
                self.interval = interval.map_err(|_| damaged(offset, "a malformed restart interval"))?.into();
                Ok(())
            }
            marker::DQT => {
                let segment = self.segment()?;
                self.quantizers
                    .define(segment)
                    .ok_or_else(|| damaged(offset, "a malformed quantization table"))
            }
            marker::DNL | marker::APP0..=marker::APP15 | marker::COM => self.note().map(drop),
            marker::SOI => Err(damaged(offset, "the start of another file")),
            code => Err(damaged(offset, format!("a marker unknown to JPEG, 0x{code:02x}"))),
        }
    }

    /// Returns the next marker. Stray bytes may precede it, which some cameras leave, and fill bytes. libjpeg
    /// skips both.
    fn marker(&mut self) -> Result<u8, DecodeError> {
        loop {
            let Some(&[fill, code]) = self.file.get(self.at..).and_then(<[u8]>::first_chunk) else {
                return Err(self.truncated("the data before its end marker"));
            };
            if fill == 0xff && code != 0xff && code != 0 {
                self.at = self.at.saturating_add(2);
                return Ok(code);
            }
            self.at = self.at.saturating_add(1);
        }
    }

    /// Returns the content of a segment that decodes nothing. `None` if its length does not even count its
    /// own two bytes, which libjpeg allows in such a segment.
    fn note(&mut self) -> Result<Option<&'a [u8]>, DecodeError> {
        match self.file.get(self.at..).and_then(<[u8]>::first_chunk) {
            Some([0, 0 | 1]) => {
                self.at = self.at.saturating_add(2);
                Ok(None)
            }
            _ => self.segment().map(Some),
        }
    }

    /// Returns the content of a segment after its length.
    fn segment(&mut self) -> Result<&'a [u8], DecodeError> {
        let rest = self.file.get(self.at..).unwrap_or_default();
        let Some((len, rest)) = rest.split_first_chunk() else { return Err(self.truncated("a segment")) };
        let Some(len) = usize::from(u16::from_be_bytes(*len)).checked_sub(2) else {
            return Err(damaged(self.at, "a segment with a length of less than 2"));
        };
        let Some(segment) = rest.get(..len) else { return Err(self.truncated("a segment")) };
        self.at = self.at.saturating_add(2).saturating_add(len);
        Ok(segment)
    }

    /// Reads the data of a scan, which ends at a marker that does not belong to it.
    fn data(
        &mut self,
        frame: &Frame,
        scan: &Scan,
        reader: &mut Reader,
        data: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let mut start = self.at;
        let fault = |start: usize, end: usize| move |fault: Fault| fault.at(start, end);
        reader.start_scan(frame, scan, &self.tables, &self.quantizers).map_err(fault(start, start))?;
        let mut units = scan.units(frame).into_iter().fold(1, usize::saturating_mul);
        let interval = if self.interval > 0 { self.interval } else { units };
        let mut due = *marker::RST.start();
        loop {
            data.clear();
            let rest = self.file.get(start..).unwrap_or_default();
            let end =
                bits::unescape(rest, data).ok_or_else(|| self.truncated("a scan"))?.saturating_add(start);
            self.at = end;
            let code = self.file.get(end.saturating_add(1));
            let is_restart = code.is_some_and(|code| marker::RST.contains(code));
            if units == 0 {
                // Some encoders end the last interval with a marker too.
                let found = "scan data after the last restart marker that is due";
                return if is_restart || end != start { Err(damaged(start, found)) } else { Ok(()) };
            }
            // Many cameras leave stray bytes before the end marker.
            let may_end_late = code == Some(&marker::EOI);
            reader.read(frame, scan, units.min(interval), data, may_end_late).map_err(fault(start, end))?;
            units = units.saturating_sub(interval);
            match code {
                Some(code) if is_restart => {
                    if due != *code {
                        return Err(damaged(end, format!("the marker 0x{code:02x}, but 0x{due:02x} is due")));
                    }
                    due = marker::RST.start() | due.wrapping_add(1) & 7;
                }
                _ if units > 0 => {
                    let found = format!("a marker that ends the scan, with {units} of its units missing");
                    return Err(damaged(end, found));
                }
                _ => return Ok(()),
            }
            start = end.saturating_add(2);
            self.at = start;
        }
    }

    #[cold]
    fn truncated(&self, inside: &'static str) -> DecodeError {
        DecodeError::Truncated { format: FORMAT, offset: self.file.len(), inside }
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::Window;

    fn file(name: &str) -> Vec<u8> {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/images");
        std::fs::read(folder.join(name)).unwrap()
    }

    fn walk(file: &[u8]) -> Result<(), DecodeError> {
        let (mut walk, mut reader) = (Walk::new(file), Reader::default());
        let frame = walk.head()?.frame;
        let window = Window { top: 0, left: 0, height: frame.height, width: frame.width };
        reader.start(&frame, window, frame.components().len())?;
        walk.scans(&frame, &mut reader, &mut Vec::new())
    }

    /// The file with these bytes before the first segment of this kind.
    fn with(name: &str, code: u8, bytes: &[u8]) -> Vec<u8> {
        let mut file = file(name);
        let at = file.windows(2).position(|pair| pair == [0xff, code]).unwrap();
        file.splice(at..at, bytes.iter().copied());
        file
    }

    #[test]
    fn fill_bytes_and_stray_bytes_are_skipped() {
        for code in [marker::DQT, 0xc0, marker::DHT, marker::SOS, marker::EOI] {
            for bytes in [&[0xff, 0xff][..], &[0, 1], &[0xff, 0, 7, 0xff, 0xff, 0, 0xff], &[0; 3000]] {
                assert!(walk(&with("444.jpg", code, bytes)).is_ok(), "{code:#x}");
            }
        }
    }

    #[test]
    fn markers_out_of_place_are_errors() {
        let frame = &file("444.jpg")[..];
        let at = frame.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
        for (bytes, code) in [
            (&frame[at..at + 19], marker::SOS),
            (&[0xff, marker::SOI], marker::DQT),
            (&[0xff, marker::EOI], marker::SOS),
            (&[0xff, 0x02, 0, 2], marker::DHT),
            (&[0xff, marker::DRI, 0, 1], marker::DHT),
            (&[0xff, marker::SOS, 0, 2], 0xc0),
        ] {
            let error = walk(&with("444.jpg", code, bytes)).unwrap_err();
            assert!(matches!(error, DecodeError::Damaged { .. }), "{bytes:x?}: {error}");
        }
        for length in 0..=2 {
            for code in [marker::COM, marker::DNL, marker::APP0, marker::APP1, 0xe5, marker::APP14] {
                assert!(walk(&with("444.jpg", marker::DHT, &[0xff, code, 0, length])).is_ok(), "{code:x}");
            }
        }
    }

    #[test]
    fn every_component_has_a_scan() {
        // Only the scans of the first two components.
        let mut file = file("separate_scans.jpg");
        let last = file.windows(2).rposition(|pair| pair == [0xff, marker::SOS]).unwrap();
        file.truncate(last);
        file.extend([0xff, marker::EOI]);
        let error = walk(&file).unwrap_err();
        assert!(error.to_string().contains("a component has had no scan"), "{error}");
    }

    #[test]
    fn scans_are_bounded() {
        let whole = file("grey.jpg");
        let last = whole.windows(2).rposition(|pair| pair == [0xff, marker::SOS]).unwrap();
        let (rest, scan) = (&whole[..last], &whole[last..whole.len() - 2]);
        let many = |count| [rest, &scan.repeat(count), &[0xff, marker::EOI]].concat();
        assert!(walk(&many(1)).is_ok());
        assert!(walk(&many(SCANS_MAX)).is_ok());
        let error = walk(&many(SCANS_MAX + 1)).unwrap_err();
        assert!(matches!(error, DecodeError::Unsupported { .. }), "{error}");
    }
}
