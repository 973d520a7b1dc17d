//! PBM, PGM and PPM files: bits, greys and colours, as text or as bytes.
//!
//! | the file has | Native | Color, Gray | Rgb |
//! |---|---|---|---|
//! | bits | 1 | 1 is black, 0 white | as Color |
//! | levels up to 255, as bytes | 1 or 3 | as stored | spread over 0 to 255 |
//! | levels up to 255, as text | 1 or 3 | spread over 0 to 255, rounded down | spread over 0 to 255 |
//! | greys of 16 bits | refused | the upper byte | spread over 0 to 65535, and cut at 255 |
//! | colours of 16 bits | refused | the upper byte | spread over 0 to 255 |
//!
//! Pillow spreads levels to the nearest, halves to even. A level above the most that the file allows is an
//! error in text; in bytes, OpenCV keeps it and Pillow cuts it.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use super::exif::Orientation;
use super::luma::Luma;
use super::still::{Bytes, Outline, Pixels, Still, unpacked};
use super::{ColorMode, DecodeError, room};

const FORMAT: &str = "PNM";

/// Whether a file starts as a PNM does.
pub(super) fn starts(file: &[u8]) -> bool {
    matches!(file, [b'P', b'1'..=b'6', space, ..] if is_space(*space))
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// A file's header.
#[derive(Debug)]
pub(super) struct Pnm<'a> {
    height: usize,
    width: usize,
    /// Samples per pixel: 1 or 3.
    samples: usize,
    /// The level that is full. 1 of bits, of which none is white.
    most: u32,
    is_bits: bool,
    is_text: bool,
    /// The samples.
    data: Bytes<'a>,
}

impl<'a> Still<'a> for Pnm<'a> {
    const NAME: &'static str = FORMAT;

    fn parse(file: &'a [u8]) -> Result<Self, DecodeError> {
        let mut words = Numbers(Bytes { file, at: 1, format: FORMAT });
        let [kind] = words.0.array("its first bytes")?;
        let is_bits = matches!(kind, b'1' | b'4');
        let width = words.number("its width")? as usize;
        let height = words.number("its height")? as usize;
        let at = words.0.at;
        let most = if is_bits { 1 } else { words.number("its highest level")? };
        if !(1..=65_535).contains(&most) {
            return Err(words.0.damaged(at, format!("a highest level of {most}: allowed are 1 to 65535")));
        }
        let is_text = kind <= b'3';
        let mut data = words.0;
        if !is_text {
            let at = data.at;
            let [space] = data.array("its header")?;
            if !is_space(space) {
                return Err(data.damaged(at, "no space between the header and the pixels"));
            }
        }
        let samples = if matches!(kind, b'3' | b'6') { 3 } else { 1 };
        Ok(Self { height, width, samples, most, is_bits, is_text, data })
    }

    fn head(&self, color: ColorMode) -> Result<Outline, DecodeError> {
        if self.most > 255 && color == ColorMode::Native {
            return Err(DecodeError::Depth { format: FORMAT, bits: 16 });
        }
        let row = self.width.saturating_mul(self.samples);
        let row_bytes = match (self.is_bits, self.is_text) {
            (true, false) => row.div_ceil(8),
            (true, true) => row,
            // A digit and a space.
            (false, true) => row.saturating_mul(2),
            (false, false) => row.saturating_mul(self.sample_bytes()),
        };
        // The last number needs no space behind it.
        let least = row_bytes.saturating_mul(self.height).saturating_sub(self.is_text.into());
        let bytes = self.data.file.len().saturating_sub(self.data.at);
        let (height, width, turn) = (self.height, self.width, Orientation::default());
        Ok(Outline { height, width, native: self.samples, turn, least, bytes })
    }

    fn pixels(self, color: ColorMode, out: &mut Vec<u8>) -> Result<Pixels, DecodeError> {
        let row = self.width.saturating_mul(self.samples);
        let out = room(out, row.saturating_mul(self.height))?;
        let level = Level::new(&self, color);
        if self.is_text {
            let mut words = Numbers(self.data);
            for sample in out {
                let at = words.0.at;
                let number = if self.is_bits { words.digit()? } else { words.number("its pixels")? };
                if number > self.most {
                    let found = format!("a level of {number}, above the highest, {}", self.most);
                    return Err(words.0.damaged(at, found));
                }
                *sample = level.of(number);
            }
        } else if self.is_bits {
            let data = self.stored(row.div_ceil(8))?;
            for (row, stored) in out.chunks_exact_mut(row).zip(data.chunks_exact(row.div_ceil(8))) {
                row.iter_mut()
                    .zip(unpacked(stored, 1))
                    .for_each(|(sample, bit)| *sample = level.of(bit.into()));
            }
        } else if self.sample_bytes() == 2 {
            let stored = self.stored(row.saturating_mul(2))?.as_chunks::<2>().0;
            let numbers = stored.iter().map(|&pair| u16::from_be_bytes(pair).into());
            out.iter_mut().zip(numbers).for_each(|(sample, number)| *sample = level.of(number));
        } else {
            let table: Vec<u8> = (0..=255).map(|number| level.of(number)).collect();
            for (sample, &stored) in out.iter_mut().zip(self.stored(row)?) {
                *sample = table.get(usize::from(stored)).copied().unwrap_or(stored);
            }
        }
        Ok(Pixels { start: 0, samples: self.samples, luma: Luma::Readers })
    }
}

impl<'a> Pnm<'a> {
    fn sample_bytes(&self) -> usize {
        if self.most > 255 { 2 } else { 1 }
    }

    /// The samples as they are stored.
    fn stored(&self, row_bytes: usize) -> Result<&'a [u8], DecodeError> {
        let mut data = self.data;
        data.take(row_bytes.saturating_mul(self.height), "its pixels")
    }
}

/// What becomes of a sample.
#[derive(Clone, Copy)]
enum Level {
    /// Of bits: 1 is black.
    Bit,
    AsItIs,
    /// Spread over 0 to the second from 0 to the first, and cut at 255.
    Pillows(u32, u32),
    RoundedDown(u32),
    UpperByte,
}

impl Level {
    fn new(file: &Pnm<'_>, color: ColorMode) -> Self {
        match (file.most, file.samples) {
            _ if file.is_bits => Level::Bit,
            (255, _) => Level::AsItIs,
            (256.., 1) if color.is_rgb() => Level::Pillows(file.most, 65_535),
            (most, _) if color.is_rgb() => Level::Pillows(most, 255),
            (256.., _) => Level::UpperByte,
            (most, _) if file.is_text => Level::RoundedDown(most),
            _ => Level::AsItIs,
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "what may be above 255 is cut there first, and nothing is below 0"
    )]
    fn of(self, number: u32) -> u8 {
        match self {
            Level::Bit if number == 0 => u8::MAX,
            Level::Bit => 0,
            Level::AsItIs => number.min(255) as u8,
            // In this order, in floats, as Python computes it.
            Level::Pillows(most, full) => {
                (f64::from(number) / f64::from(most) * f64::from(full)).round_ties_even().min(255.0) as u8
            }
            Level::RoundedDown(most) => {
                number.saturating_mul(255).checked_div(most).unwrap_or(0).min(255) as u8
            }
            Level::UpperByte => (number >> 8).min(255) as u8,
        }
    }
}

/// Numbers as text, with spaces and comments between them.
struct Numbers<'a>(Bytes<'a>);

impl Numbers<'_> {
    /// The next byte, or none at the end.
    fn peek(&self) -> Option<u8> {
        self.0.file.get(self.0.at).copied()
    }

    fn skip_spaces(&mut self) {
        while let Some(byte) = self.peek() {
            if byte == b'#' {
                let rest = self.0.file.get(self.0.at..).unwrap_or_default();
                let line = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
                self.0.at = self.0.at.saturating_add(line.unwrap_or(rest.len()));
            } else if is_space(byte) {
                self.0.at = self.0.at.saturating_add(1);
            } else {
                break;
            }
        }
    }

    fn number(&mut self, inside: &'static str) -> Result<u32, DecodeError> {
        self.skip_spaces();
        let (start, mut number) = (self.0.at, 0_u32);
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            let next = number.checked_mul(10).and_then(|ten| ten.checked_add(u32::from(digit & 15)));
            number = next.ok_or_else(|| self.0.damaged(start, "a number above 2^32 - 1"))?;
            self.0.at = self.0.at.saturating_add(1);
        }
        if self.0.at == start {
            let [byte] = self.0.array(inside)?;
            return Err(self.0.damaged(start, format!("'{}', and not a number", byte.escape_ascii())));
        }
        Ok(number)
    }

    /// A bit, which needs no space behind it.
    fn digit(&mut self) -> Result<u32, DecodeError> {
        self.skip_spaces();
        let at = self.0.at;
        match self.0.array("its pixels")? {
            [digit @ (b'0' | b'1')] => Ok(u32::from(digit & 1)),
            [byte] => Err(self.0.damaged(at, format!("'{}', and not a bit", byte.escape_ascii()))),
        }
    }
}
