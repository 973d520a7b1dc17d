//! BMP files, of Windows and of OS/2: 1, 4 and 8 bits with a palette, packed by runs or not; 16, 24 and 32
//! bits.
//!
//! | the file has | Native | Color | Gray | Rgb |
//! |---|---|---|---|---|
//! | a palette of greys | 1 | 3, all the same | 1 | as Color |
//! | a palette, or 24 bits, or 32 without masks | 3 | 3 | grey from colour | as Color |
//! | 32 bits with masks | 4 | 3 | grey from colour | by Pillow's masks |
//! | 16 bits | 3 | levels of 5 or 6 bits, shifted up | grey from colour | levels, spread over 0 to 255 |
//! | the header of OS/2 | 1: grey, as OpenCV reads it | 3 | grey from colour | as Color |
//!
//! Masks count for OpenCV from the third version of the header on; before, the bytes are blue, green, red and
//! alpha. Where no place is stated, the pixels follow the headers and the palette, as in Pillow. What a file
//! of runs skips has the first colour, as in OpenCV.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::exif::Orientation;
use super::luma::Luma;
use super::still::{Bytes, Outline, Pixels, Still, least_of_blank, unpacked};
use super::{ColorMode, DecodeError, room};

/// The first bytes of a BMP file.
pub(super) const SIGNATURE: &[u8] = b"BM";

const FORMAT: &str = "BMP";

/// The length of the file's header, after which that of the image begins.
const FILE_HEADER_BYTES: usize = 14;
/// The lengths of the image's header: of OS/2, and of Windows' first, third and last version.
const OS2_BYTES: u32 = 12;
const FIRST_BYTES: u32 = 40;
const THIRD_BYTES: u32 = 56;
const LAST_BYTES: u32 = 124;
/// Where the file's header says where the pixels start, and the image's how wide it is.
const START_AT: usize = 10;
const WIDTH_AT: usize = 18;
/// Where masks are, in each header that has them.
const MASKS_AT: usize = 54;

/// How pixels are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    /// Places in the palette of so many bits: 1, 4 or 8.
    Indexed { bits: u32 },
    /// Places in the palette of 4 or 8 bits, packed by runs.
    Runs { bits: u32 },
    /// Pixels of two bytes, with green in 5 or 6 bits.
    Packed { green_bits: u32 },
    /// Blue, green, red, and a byte that says nothing if there are 32 bits.
    Plain { bytes: usize },
    /// Pixels of four bytes with a mask for each of red, green, blue and alpha.
    Masked { masks: [u32; 4], are_opencvs: bool },
}

/// A file's headers.
#[derive(Debug)]
pub(super) struct Bmp<'a> {
    height: usize,
    width: usize,
    is_top_down: bool,
    coding: Coding,
    /// Red, green and blue. What the file does not say is black.
    palette: Vec<[u8; 3]>,
    is_os2: bool,
    /// The pixels, and what comes after them.
    data: &'a [u8],
    /// Where they start.
    start: usize,
}

impl<'a> Still<'a> for Bmp<'a> {
    const NAME: &'static str = FORMAT;

    fn parse(file: &'a [u8]) -> Result<Self, DecodeError> {
        const INSIDE: &str = "its headers";
        let mut bytes = Bytes { file, at: START_AT, format: FORMAT };
        let start = bytes.u32(INSIDE)? as usize;
        let header = bytes.u32(INSIDE)?;
        let is_os2 = header == OS2_BYTES;
        let ([width, height], is_top_down) = if is_os2 {
            ([bytes.u16(INSIDE)?.into(), bytes.u16(INSIDE)?.into()], false)
        } else if (FIRST_BYTES..=LAST_BYTES).contains(&header) {
            let [width, height] = [bytes.u32(INSIDE)?.cast_signed(), bytes.u32(INSIDE)?.cast_signed()];
            if width < 0 {
                return Err(bytes.damaged(WIDTH_AT, format!("a width of {width}")));
            }
            ([width, height].map(i32::unsigned_abs), height < 0)
        } else {
            let found = format!("a header of {header} bytes: allowed are 12, and 40 to 124");
            return Err(bytes.damaged(FILE_HEADER_BYTES, found));
        };
        bytes.u16(INSIDE)?;
        let bits = bytes.u16(INSIDE)?;
        let (mut packing, mut colours) = (0, 0);
        if !is_os2 {
            packing = bytes.u32(INSIDE)?;
            bytes.array::<12>(INSIDE)?;
            colours = bytes.u32(INSIDE)? as usize;
        }
        let coding = coding(file, header, bits, packing)?;
        let mut palette = Vec::new();
        let mut headers = FILE_HEADER_BYTES.saturating_add(header as usize);
        if packing == 3 {
            headers = headers.max(MASKS_AT.saturating_add(12));
        }
        bytes.at = headers;
        if let Coding::Indexed { bits } | Coding::Runs { bits } = coding {
            let count = if colours == 0 { 1 << bits } else { colours.min(256) };
            let entry = if is_os2 { 3 } else { 4 };
            let stored = bytes.take(count.saturating_mul(entry), "its palette")?.chunks_exact(entry);
            palette.extend(stored.map(|entry| match *entry {
                [blue, green, red, ..] => [red, green, blue],
                _ => [0; 3],
            }));
            palette.resize(256, [0; 3]);
        }
        // OpenCV would take the headers for pixels. Pillow has them follow at once, where no place is stated.
        let start = if start == 0 { bytes.at } else { start };
        if start < headers {
            let found = format!("{start} as the place of the pixels, and the headers end at {headers}");
            return Err(bytes.damaged(START_AT, found));
        }
        let data = file.get(start..).unwrap_or_default();
        let [height, width] = [height as usize, width as usize];
        Ok(Self { height, width, is_top_down, coding, palette, is_os2, data, start })
    }

    fn head(&self, _: ColorMode) -> Result<Outline, DecodeError> {
        let native = match self.coding {
            _ if self.is_os2 => 1,
            Coding::Masked { .. } => 4,
            Coding::Indexed { bits } | Coding::Runs { bits } => {
                let mut named = self.palette.iter().take(1 << bits);
                if named.all(|[red, green, blue]| red == green && green == blue) { 1 } else { 3 }
            }
            Coding::Packed { .. } | Coding::Plain { .. } => 3,
        };
        let least = match self.coding {
            Coding::Runs { .. } => least_of_blank(self.height, self.width),
            _ => self.row_bytes().saturating_mul(self.height),
        };
        let (height, width, turn) = (self.height, self.width, Orientation::default());
        Ok(Outline { height, width, native, turn, least, bytes: self.data.len() })
    }

    fn pixels(self, color: ColorMode, out: &mut Vec<u8>) -> Result<Pixels, DecodeError> {
        let luma = match self.coding {
            Coding::Masked { are_opencvs: true, .. } => Luma::Masks,
            _ => Luma::Readers,
        };
        let samples = if matches!(self.coding, Coding::Masked { .. }) { 4 } else { 3 };
        let count = self.height.saturating_mul(self.width);
        let pixels = Pixels { start: 0, samples, luma };
        let colours = count.saturating_mul(samples);
        if let Coding::Runs { bits } = self.coding {
            let (colours, places) = room(out, colours.saturating_add(count))?.split_at_mut(colours);
            places.fill(0);
            Runs { bytes: Bytes { file: self.data, at: 0, format: FORMAT }, start: self.start, bits }
                .unpack(places, self.width)?;
            let rows = places.chunks_exact(self.width);
            for (place, row) in self.rows(colours, samples).zip(rows) {
                self.look_up(row.iter().copied(), place);
            }
            return Ok(pixels);
        }
        let stored = self.data.chunks_exact(self.row_bytes());
        for (row, stored) in self.rows(room(out, colours)?, samples).zip(stored) {
            self.unpack_row(color, stored, row);
        }
        Ok(pixels)
    }
}

/// How the pixels of a file are stored.
fn coding(file: &[u8], header: u32, bits: u16, packing: u32) -> Result<Coding, DecodeError> {
    let mut bytes = Bytes { file, at: MASKS_AT, format: FORMAT };
    let mut masks = |count: usize| {
        let mut masks = [0; 4];
        for mask in masks.iter_mut().take(count) {
            *mask = bytes.u32("its masks")?;
        }
        Ok(masks)
    };
    let unsupported = |found| DecodeError::Unsupported {
        format: FORMAT,
        found,
        allowed: "1, 4, 8, 16, 24 and 32 bits a pixel, runs of 4 and 8 bits, and masks of whole bytes, or of \
                  5 and 6 bits",
    };
    Ok(match (bits, packing) {
        (1 | 4 | 8, 0) => Coding::Indexed { bits: bits.into() },
        (8, 1) | (4, 2) => Coding::Runs { bits: bits.into() },
        (24, 0) => Coding::Plain { bytes: 3 },
        (32, 0) => Coding::Plain { bytes: 4 },
        (16, 0) => Coding::Packed { green_bits: 5 },
        (16, 3) => match masks(3)? {
            [0x7c00, 0x03e0, 0x001f, _] => Coding::Packed { green_bits: 5 },
            [0xf800, 0x07e0, 0x001f, _] => Coding::Packed { green_bits: 6 },
            masks => return Err(unsupported(format!("16 bits with the masks {masks:x?}"))),
        },
        (32, 3) => {
            let are_opencvs = header >= THIRD_BYTES;
            let masks = masks(if are_opencvs { 4 } else { 3 })?;
            let is_byte = |mask: u32| mask == 0xff << (mask.trailing_zeros() & 24);
            let [red, green, blue, alpha] = masks;
            if ![red, green, blue].into_iter().all(is_byte) || !(alpha == 0 || is_byte(alpha)) {
                return Err(unsupported(format!("32 bits with the masks {masks:x?}")));
            }
            Coding::Masked { masks, are_opencvs }
        }
        (_, 4 | 5) => return Err(unsupported("a JPEG or PNG inside".to_owned())),
        _ => return Err(unsupported(format!("{bits} bits a pixel, packed by method {packing}"))),
    })
}

impl Bmp<'_> {
    /// The length of a stored row: whole groups of four bytes.
    fn row_bytes(&self) -> usize {
        let bits = match self.coding {
            Coding::Indexed { bits } | Coding::Runs { bits } => bits as usize,
            Coding::Packed { .. } => 16,
            Coding::Plain { bytes } => bytes.saturating_mul(8),
            Coding::Masked { .. } => 32,
        };
        self.width.saturating_mul(bits).div_ceil(32).saturating_mul(4)
    }

    /// The rows of the image in the order in which they are stored.
    fn rows<'o>(&self, out: &'o mut [u8], samples: usize) -> impl Iterator<Item = &'o mut [u8]> {
        let mut rows = out.chunks_exact_mut(self.width.saturating_mul(samples));
        let is_top_down = self.is_top_down;
        std::iter::from_fn(move || if is_top_down { rows.next() } else { rows.next_back() })
    }

    fn look_up(&self, places: impl Iterator<Item = u8>, row: &mut [u8]) {
        for (pixel, place) in row.as_chunks_mut::<3>().0.iter_mut().zip(places) {
            *pixel = self.palette.get(usize::from(place)).copied().unwrap_or_default();
        }
    }

    fn unpack_row(&self, color: ColorMode, stored: &[u8], row: &mut [u8]) {
        match self.coding {
            Coding::Indexed { bits: 8 } | Coding::Runs { .. } => self.look_up(stored.iter().copied(), row),
            Coding::Indexed { bits } => self.look_up(unpacked(stored, bits), row),
            Coding::Packed { green_bits } => {
                let words = stored.as_chunks::<2>().0;
                for (pixel, &word) in row.as_chunks_mut::<3>().0.iter_mut().zip(words) {
                    let word = u32::from(u16::from_le_bytes(word));
                    let red = word >> 5 >> green_bits;
                    *pixel = [(red, 5), (word >> 5, green_bits), (word, 5)]
                        .map(|(level, bits)| widened(level, bits, color.is_rgb()));
                }
            }
            Coding::Plain { bytes } => {
                for (pixel, stored) in row.as_chunks_mut::<3>().0.iter_mut().zip(stored.chunks_exact(bytes)) {
                    if let &[blue, green, red, ..] = stored {
                        *pixel = [red, green, blue];
                    }
                }
            }
            Coding::Masked { masks, are_opencvs } => {
                // Before the third version, OpenCV does not read the masks.
                let masks = if are_opencvs || color.is_rgb() {
                    masks
                } else {
                    [0x00ff_0000, 0x0000_ff00, 0x0000_00ff, 0xff00_0000]
                };
                let words = stored.as_chunks::<4>().0;
                for (pixel, &word) in row.as_chunks_mut::<4>().0.iter_mut().zip(words) {
                    *pixel = masks.map(|mask| masked(u32::from_le_bytes(word), mask));
                }
            }
        }
    }
}

/// The level in the lowest bits, as 8 bits: spread over 0 to 255, as Pillow has it, or shifted up.
#[expect(clippy::cast_possible_truncation, reason = "of levels that are less than 2^bits")]
fn widened(level: u32, bits: u32, is_spread: bool) -> u8 {
    let most = u32::MAX >> 32_u32.saturating_sub(bits);
    let level = level & most;
    if is_spread {
        level.saturating_mul(255).checked_div(most).unwrap_or(0) as u8
    } else {
        (level << 8_u32.saturating_sub(bits)) as u8
    }
}

/// The byte of a pixel that a mask selects. No mask is a channel that is full everywhere.
fn masked(word: u32, mask: u32) -> u8 {
    if mask == 0 { u8::MAX } else { (word >> mask.trailing_zeros()).to_le_bytes()[0] }
}

/// The data of an image that is packed by runs.
struct Runs<'a> {
    bytes: Bytes<'a>,
    /// Where they start in the file.
    start: usize,
    bits: u32,
}

impl Runs<'_> {
    /// Unpacks the places in the palette, in the order of the rows in the file. What is skipped stays.
    fn unpack(mut self, places: &mut [u8], width: usize) -> Result<(), DecodeError> {
        const INSIDE: &str = "the runs of its pixels";
        let height = places.len().checked_div(width).unwrap_or(0);
        let (mut x, mut y) = (0_usize, 0_usize);
        while y < height {
            let at = self.bytes.at;
            let [count, what] = self.bytes.array(INSIDE)?;
            let (len, is_literal) = match (count, what) {
                (0, 0) => {
                    (x, y) = (0, y.saturating_add(1));
                    continue;
                }
                (0, 1) => break,
                (0, 2) => {
                    let [right, up] = self.bytes.array(INSIDE)?.map(usize::from);
                    (x, y) = (x.saturating_add(right), y.saturating_add(up));
                    if x > width || y > height {
                        return Err(self.beyond(at));
                    }
                    continue;
                }
                (0, len) => (usize::from(len), true),
                (len, _) => (usize::from(len), false),
            };
            // Literal pixels fill whole groups of two bytes.
            let literal_bytes = len.saturating_mul(self.bits as usize).div_ceil(16).saturating_mul(2);
            let literal = if is_literal { self.bytes.take(literal_bytes, INSIDE)? } else { &[what] };
            let from = y.saturating_mul(width).saturating_add(x);
            let end = x.saturating_add(len);
            let Some(run) = places.get_mut(from..from.saturating_add(len)).filter(|_| end <= width) else {
                return Err(self.beyond(at));
            };
            for (at, place) in run.iter_mut().enumerate() {
                let byte = |at: usize| literal.get(if is_literal { at } else { 0 }).copied().unwrap_or(0);
                *place = match self.bits {
                    8 => byte(at),
                    _ if at % 2 == 0 => byte(at / 2) >> 4,
                    _ => byte(at / 2) & 15,
                };
            }
            x = end;
        }
        Ok(())
    }

    #[cold]
    fn beyond(&self, at: usize) -> DecodeError {
        self.bytes.damaged(self.start.saturating_add(at), "a run of pixels that leaves the image")
    }
}
