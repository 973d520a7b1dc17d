//! TIFF files: the first image, of baseline TIFF but for fax, and packed by LZW or deflate, in strips or
//! tiles.
//!
//! | the file has | Native | Color, Gray | Rgb, Upright |
//! |---|---|---|---|
//! | grey of 1 to 8 bits | 1 | the grey | the grey |
//! | grey and alpha | 1 | the grey | the grey |
//! | a palette | 3; 1 if it has two colours | its upper bytes, or the lower if those are 0 | the upper |
//! | colour | 3 | the colour | the colour |
//! | colour with alpha beside it | 4 | multiplied by the alpha, rounded | the colour |
//! | colour multiplied by alpha | 4 | as stored | divided by the alpha |
//! | grey of 16 bits | refused | the upper byte | cut at 255, and never inverted |
//! | colour of 16 bits | refused | rounded to 8 | the upper byte |
//!
//! The orientation is applied in every mode: so do OpenCV and Pillow, with TIFF alone.
//!
//! The crate `tiff` reads the headers and unpacks the samples. It is told that they are grey, whatever the
//! file says, because then it gives them as they are stored: what they mean is worked out here.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io::{self, Read, Seek, SeekFrom};

use ::tiff::decoder::{ChunkType, Decoder, Limits};
use ::tiff::tags::Tag;
use ::tiff::{TiffError, TiffUnsupportedError};

use super::exif::Orientation;
use super::luma::Luma;
use super::still::{Outline, Pixels, Still, guarded, unpacked};
use super::{ColorMode, DecodeError, room};

const FORMAT: &str = "TIFF";

/// The strips or tiles that any file may have, and the samples that a further one takes: to unpack one takes
/// time and memory however small it is.
const PARTS_MAX: usize = 1 << 16;
const BYTES_PER_PART: usize = 4096;

/// What the samples of a pixel are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Grey { is_inverted: bool },
    GreyAlpha,
    Palette,
    Rgb,
    Rgba(Alpha),
}

/// How colours depend on their alpha.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alpha {
    /// Not said.
    Unknown,
    /// They are multiplied by it.
    Associated,
    Separate,
}

/// A file's headers, and its samples to come.
pub(super) struct TiffFile<'a> {
    decoder: Decoder<Relabelled<'a>>,
    height: usize,
    width: usize,
    bits: u8,
    kind: Meaning,
    is_planar: bool,
    /// Red, green and blue of the palette.
    palette: Vec<[u16; 3]>,
    turn: Orientation,
    /// The most bytes that a byte of data unpacks to.
    per_byte: usize,
    least: usize,
    bytes: usize,
}

impl<'a> Still<'a> for TiffFile<'a> {
    const NAME: &'static str = FORMAT;

    fn parse(file: &'a [u8]) -> Result<Self, DecodeError> {
        guarded(FORMAT, || Self::read_tags(file))
    }

    fn head(&self, color: ColorMode) -> Result<Outline, DecodeError> {
        if self.bits == 16 && color == ColorMode::Native {
            return Err(DecodeError::Depth { format: FORMAT, bits: self.bits });
        }
        let native = match self.kind {
            Meaning::Palette if self.bits == 1 => 1,
            Meaning::Grey { .. } | Meaning::GreyAlpha => 1,
            Meaning::Palette | Meaning::Rgb => 3,
            Meaning::Rgba(_) => 4,
        };
        let Self { height, width, turn, least, bytes, .. } = *self;
        Ok(Outline { height, width, native, turn, least, bytes })
    }

    fn pixels(mut self, color: ColorMode, out: &mut Vec<u8>) -> Result<Pixels, DecodeError> {
        let parts = guarded(FORMAT, || self.parts())?;
        self.decoder.inner().limit_to(parts);
        let count = self.height.saturating_mul(self.width);
        let samples = self.kind.samples();
        let stored = self.row_bytes().saturating_mul(self.height).saturating_mul(self.planes());
        let made = if self.kind == Meaning::Palette { 3 } else { 1 };
        let is_made = samples == 1 && self.bits != 16;
        let more = if is_made {
            count.saturating_mul(made)
        } else if self.is_planar {
            count.saturating_mul(samples)
        } else {
            0
        };
        // Samples of 16 bits leave half of their room, once they are of 8.
        let halved = if self.bits == 16 { stored / 2 } else { stored };
        let out = room(out, stored.max(halved.saturating_add(more)))?;
        let raw = out.get_mut(..stored).unwrap_or_default();
        guarded(FORMAT, || self.decoder.read_image_bytes(raw).map_err(of_library))?;
        if is_made {
            let (raw, made) = out.split_at_mut(stored);
            self.expand(color, raw, made);
            let samples = if self.kind == Meaning::Palette { 3 } else { 1 };
            return Ok(Pixels { start: stored, samples, luma: Luma::Readers });
        }
        if self.bits == 16 {
            self.to_bytes(color, raw);
        }
        let mut start = 0;
        if self.is_planar && samples > 1 {
            let (planes, pixels) = out.split_at_mut(halved);
            for (at, plane) in planes.chunks_exact(count).enumerate() {
                let places = pixels.iter_mut().skip(at).step_by(samples);
                places.zip(plane).for_each(|(place, sample)| *place = *sample);
            }
            start = halved;
        }
        let pixels = out.get_mut(start..).unwrap_or_default();
        let samples =
            self.kind.finish(color, pixels.get_mut(..count.saturating_mul(samples)).unwrap_or_default());
        Ok(Pixels { start, samples, luma: Luma::Readers })
    }
}

impl<'a> TiffFile<'a> {
    fn read_tags(file: &'a [u8]) -> Result<Self, DecodeError> {
        let (reader, photometric) = Relabelled::new(file)?;
        let directory = reader.directory;
        let mut decoder = Decoder::new(reader).map_err(of_library)?;
        let mut limits = Limits::default();
        limits.ifd_value_size = file.len();
        limits.intermediate_buffer_size = file.len();
        decoder = decoder.with_limits(limits);
        let (width, height) = decoder.dimensions().map_err(of_library)?;
        let mut number = |tag, default| {
            decoder
                .find_tag_unsigned_vec::<u16>(tag)
                .map_err(of_library)
                .map(|numbers| numbers.and_then(|numbers| numbers.first().copied()).unwrap_or(default))
        };
        let (bits, samples) = (number(Tag::BitsPerSample, 1)?, number(Tag::SamplesPerPixel, 1)?);
        let (packing, layout) = (number(Tag::Compression, 1)?, number(Tag::PlanarConfiguration, 1)?);
        let (format, extra) = (number(Tag::SampleFormat, 1)?, number(Tag::ExtraSamples, 0)?);
        let turn = Orientation::from_exif(number(Tag::Orientation, 1)?);
        // The crate does not look at it, and would read each byte in the other order.
        if number(Tag::FillOrder, 1)? == 2 {
            let found = "bytes that are filled from their lowest bit on".to_owned();
            let allowed = "those filled from the highest";
            return Err(DecodeError::Unsupported { format: FORMAT, found, allowed });
        }
        let per_byte = expansion(packing)?;
        let kind = Meaning::new(photometric, samples, bits, format, extra)?;
        let palette = if kind == Meaning::Palette { palette(&mut decoder, bits)? } else { Vec::new() };
        let mut bytes = 0_u64;
        for tag in [Tag::StripByteCounts, Tag::TileByteCounts] {
            let counts = decoder.find_tag_unsigned_vec::<u64>(tag).map_err(of_library)?;
            bytes = counts.iter().flatten().fold(bytes, |sum, &count| sum.saturating_add(count));
        }
        if bytes > file.len() as u64 {
            let found = format!("a directory whose strips or tiles have {bytes} of {} bytes", file.len());
            return Err(DecodeError::Damaged { format: FORMAT, offset: directory, found });
        }
        let mut tiff = Self {
            decoder,
            height: height as usize,
            width: width as usize,
            bits: u8::try_from(bits).unwrap_or(u8::MAX),
            kind,
            is_planar: layout == 2 && samples > 1,
            palette,
            turn,
            per_byte,
            least: 0,
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
        };
        let stored = tiff.row_bytes().saturating_mul(tiff.height).saturating_mul(tiff.planes());
        tiff.least = stored.div_ceil(per_byte);
        Ok(tiff)
    }

    /// The lengths of the strips' or tiles' data, in the order in which the crate reads them.
    ///
    /// A file may state tiles that are far larger than its image, all of the same data: the crate unpacks
    /// each to its end. So each by itself must be long enough for what it unpacks to.
    fn parts(&mut self) -> Result<Vec<usize>, DecodeError> {
        let is_tiled = self.decoder.get_chunk_type() == ChunkType::Tile;
        let (name, places, lengths) = if is_tiled {
            ("tile", Tag::TileOffsets, Tag::TileByteCounts)
        } else {
            ("strip", Tag::StripOffsets, Tag::StripByteCounts)
        };
        let mut numbers = |tag| {
            let numbers = self.decoder.find_tag_unsigned_vec::<u64>(tag).map_err(of_library)?;
            Ok(numbers.unwrap_or_default())
        };
        let (places, lengths) = (numbers(places)?, numbers(lengths)?);
        let stored = self.row_bytes().saturating_mul(self.height).saturating_mul(self.planes());
        if lengths.len() > PARTS_MAX.saturating_add(stored / BYTES_PER_PART) {
            let found = format!("{} {name}s for {stored} bytes of samples", lengths.len());
            let allowed = "65,536, and one more for each 4 KiB of samples";
            return Err(DecodeError::Unsupported { format: FORMAT, found, allowed });
        }
        let (width, most_rows) = self.decoder.chunk_dimensions();
        let row_bytes = self.samples_bytes(width as usize);
        for ((at, &length), &place) in (0..).zip(&lengths).zip(&places) {
            // The last strip may be shorter, and a tile never.
            let rows = if is_tiled { most_rows } else { self.decoder.chunk_data_dimensions(at).1 };
            let wanted = row_bytes.saturating_mul(rows as usize).div_ceil(self.per_byte);
            if (wanted as u64) > length {
                let found =
                    format!("a {name} of {length} bytes: its {rows}x{width} pixels take {wanted} at least");
                let offset = usize::try_from(place).unwrap_or(usize::MAX);
                return Err(DecodeError::Damaged { format: FORMAT, offset, found });
            }
        }
        let planes = self.planes();
        let in_plane = lengths.len().checked_div(planes).unwrap_or(0);
        let of_planes = |at| lengths.iter().skip(at).step_by(in_plane.max(1)).take(planes);
        Ok((0..in_plane)
            .flat_map(of_planes)
            .map(|&length| usize::try_from(length).unwrap_or(usize::MAX))
            .collect())
    }

    /// The length of a row of samples: of one plane, if planes are apart.
    fn row_bytes(&self) -> usize {
        self.samples_bytes(self.width)
    }

    /// The length of the samples of so many pixels of a row.
    fn samples_bytes(&self, width: usize) -> usize {
        let samples = if self.is_planar { 1 } else { self.kind.samples() };
        width.saturating_mul(samples).saturating_mul(self.bits.into()).div_ceil(8)
    }

    fn planes(&self) -> usize {
        if self.is_planar { self.kind.samples() } else { 1 }
    }

    /// Makes bytes of samples of less than 8 bits, or looks them up in the palette.
    fn expand(&self, color: ColorMode, raw: &[u8], made: &mut [u8]) {
        // If no colour is brighter than that, OpenCV takes the palette for one of bytes.
        let is_of_bytes = !color.is_rgb() && self.palette.iter().flatten().all(|&level| level < 256);
        let samples = if self.kind == Meaning::Palette { 3 } else { 1 };
        let most = u8::MAX >> 8_u8.saturating_sub(self.bits);
        let scale = u8::MAX.checked_div(most).unwrap_or(1);
        let rows = made.chunks_exact_mut(self.width.saturating_mul(samples));
        for (stored, row) in raw.chunks_exact(self.row_bytes()).zip(rows) {
            let numbers = unpacked(stored, self.bits.into());
            for (pixel, number) in row.chunks_exact_mut(samples).zip(numbers) {
                if let [level] = pixel {
                    let shown = number.saturating_mul(scale);
                    *level = if self.kind == (Meaning::Grey { is_inverted: true }) { !shown } else { shown };
                } else {
                    let colour = self.palette.get(usize::from(number)).copied().unwrap_or_default();
                    let bytes = colour
                        .map(|level| if is_of_bytes { level.to_le_bytes() } else { level.to_be_bytes() });
                    pixel.copy_from_slice(&bytes.map(|[byte, _]| byte));
                }
            }
        }
    }

    /// Makes bytes of samples of 16 bits, in their place.
    fn to_bytes(&self, color: ColorMode, raw: &mut [u8]) {
        for at in 0..raw.len() / 2 {
            let place = at.saturating_mul(2);
            let Some(&pair) = raw.get(place..).and_then(<[u8]>::first_chunk) else { break };
            // The crate has put them in the order of this machine.
            let level = bytemuck::cast::<[u8; 2], u16>(pair);
            let [upper, _] = level.to_be_bytes();
            let byte = match self.kind {
                // Pillow reads grey of 16 bits as numbers, which it cuts and does not invert.
                Meaning::Grey { .. } if color.is_rgb() => u8::try_from(level).unwrap_or(u8::MAX),
                Meaning::Grey { is_inverted: true } => !upper,
                // libtiff rounds colours, and OpenCV and Pillow themselves do not.
                Meaning::Rgb | Meaning::Rgba(_) if !color.is_rgb() => rounded(level),
                _ => upper,
            };
            raw.get_mut(at).into_iter().for_each(|place| *place = byte);
        }
    }
}

impl Meaning {
    fn new(photometric: u16, samples: u16, bits: u16, format: u16, extra: u16) -> Result<Self, DecodeError> {
        Ok(match (photometric, samples, bits, format) {
            (0 | 1, 1, 1 | 2 | 4 | 8 | 16, 1) => Meaning::Grey { is_inverted: photometric == 0 },
            (1, 2, 8 | 16, 1) => Meaning::GreyAlpha,
            (3, 1, 1 | 2 | 4 | 8, 1) => Meaning::Palette,
            (2, 3, 8 | 16, 1) => Meaning::Rgb,
            (2, 4, 8 | 16, 1) => Meaning::Rgba(match extra {
                1 => Alpha::Associated,
                2 => Alpha::Separate,
                _ => Alpha::Unknown,
            }),
            _ => {
                let format = match format {
                    1 => "",
                    2 => "signed ",
                    3 => "floating-point ",
                    _ => "unknown ",
                };
                let found =
                    format!("{samples} {format}samples of {bits} bits, of the colour space {photometric}");
                let allowed = "grey and palettes of 1 to 8 bits, grey of 16, red, green and blue of 8 or 16, \
                               and one channel of alpha";
                return Err(DecodeError::Unsupported { format: FORMAT, found, allowed });
            }
        })
    }

    fn samples(self) -> usize {
        match self {
            Meaning::Grey { .. } | Meaning::Palette => 1,
            Meaning::GreyAlpha => 2,
            Meaning::Rgb => 3,
            Meaning::Rgba(_) => 4,
        }
    }

    /// Makes of interleaved bytes what is shown, in their place. Returns the samples of a pixel.
    fn finish(self, color: ColorMode, pixels: &mut [u8]) -> usize {
        match self {
            Meaning::GreyAlpha => {
                for at in 0..pixels.len() / 2 {
                    let grey = pixels.get(at.saturating_mul(2)).copied().unwrap_or(0);
                    pixels.get_mut(at).into_iter().for_each(|place| *place = grey);
                }
                return 1;
            }
            Meaning::Rgba(Alpha::Separate) if !color.is_rgb() => {
                for [colour @ .., alpha] in pixels.as_chunks_mut::<4>().0 {
                    multiply(colour, *alpha);
                }
            }
            Meaning::Rgba(Alpha::Associated) if color.is_rgb() => {
                for [colour @ .., alpha] in pixels.as_chunks_mut::<4>().0 {
                    divide(colour, *alpha);
                }
            }
            _ => {}
        }
        self.samples()
    }
}

/// A level of 16 bits as one of 8, rounded to the nearest.
#[expect(clippy::cast_possible_truncation, reason = "65535 / 257 is 255")]
fn rounded(level: u16) -> u8 {
    ((u32::from(level) + 128) / 257) as u8
}

/// Multiplies a colour by its alpha, rounded to the nearest, as libtiff does.
#[expect(
    clippy::cast_possible_truncation,
    clippy::arithmetic_side_effects,
    reason = "a product of two bytes, divided by the most that one is"
)]
fn multiply(colour: &mut [u8; 3], alpha: u8) {
    for level in colour {
        *level = ((u32::from(*level) * u32::from(alpha) + 127) / 255) as u8;
    }
}

/// Divides a colour by its alpha, rounded down and cut, as Pillow does. Without alpha, it is black.
fn divide(colour: &mut [u8; 3], alpha: u8) {
    for level in colour {
        let quotient = (u32::from(*level) * 255).checked_div(alpha.into()).unwrap_or(0);
        *level = u8::try_from(quotient).unwrap_or(u8::MAX);
    }
}

/// The most bytes that a byte of data unpacks to, by how they are packed.
fn expansion(packing: u16) -> Result<usize, DecodeError> {
    let found = match packing {
        1 => return Ok(1),
        // Codes of 12 bits, of which the longest stands for 4,096 bytes at most.
        5 => return Ok(4096),
        8 | 32_946 => return Ok(crate::png::INFLATED_PER_BYTE_MAX),
        // A count and a byte stand for 128.
        32_773 => return Ok(64),
        2..=4 => "samples that are packed as a fax".to_owned(),
        6 | 7 => "a JPEG inside".to_owned(),
        other => format!("samples that are packed by method {other}"),
    };
    let allowed = "samples that are not packed, or by PackBits, LZW or deflate";
    Err(DecodeError::Unsupported { format: FORMAT, found, allowed })
}

/// The colours of a palette, which are stored channel by channel.
fn palette(decoder: &mut Decoder<Relabelled<'_>>, bits: u16) -> Result<Vec<[u16; 3]>, DecodeError> {
    let levels = decoder.find_tag_unsigned_vec::<u16>(Tag::ColorMap).map_err(of_library)?.unwrap_or_default();
    let len = 1_usize << bits;
    if levels.len() != len.saturating_mul(3) {
        let levels = levels.len();
        let found = format!("a directory whose palette has {levels} levels: {bits} bits take 3 times {len}");
        return Err(DecodeError::Damaged { format: FORMAT, offset: decoder.inner().directory, found });
    }
    let channel = |at: usize| levels.iter().skip(at.saturating_mul(len)).copied();
    Ok(channel(0).zip(channel(1)).zip(channel(2)).map(|((red, green), blue)| [red, green, blue]).collect())
}

/// A file whose colour space is said to be grey.
struct Relabelled<'a> {
    file: &'a [u8],
    at: usize,
    /// Where two bytes are others, and which.
    label_at: usize,
    label: [u8; 2],
    /// Where the first directory is.
    directory: usize,
    /// The lengths of what is read next: each after a jump to where it starts.
    parts: std::vec::IntoIter<usize>,
    /// Where what is read ends.
    end: usize,
}

impl<'a> Relabelled<'a> {
    /// The file with another label, and the number of the colour space that it has.
    fn new(file: &'a [u8]) -> Result<(Self, u16), DecodeError> {
        let numbers = Stored { file, is_little: file.starts_with(b"II") };
        let is_big = numbers.short(2)? == 43;
        let (offset_at, offset_len, count_len, entry_len) =
            if is_big { (8, 8, 8, 20) } else { (4, 4, 2, 12) };
        let start = numbers.number(offset_at, offset_len)?;
        let count = numbers.number(start, count_len)?;
        let mut found = None;
        let mut at = start.saturating_add(count_len);
        for _ in 0..count {
            let (tag, kind) = (numbers.short(at)?, numbers.short(at.saturating_add(2))?);
            let values = numbers.number(at.saturating_add(4), offset_len)?;
            let place = at.saturating_add(4).saturating_add(offset_len);
            // Of such an entry the crate skips 8 bytes, so in a file with offsets of 64 bits it would take
            // the rest of it for the next.
            if is_big && !matches!(kind, 1..=13 | 16..=18) {
                let found = format!("an entry of the type {kind}: allowed are 1 to 13 and 16 to 18");
                return Err(DecodeError::Damaged { format: FORMAT, offset: at, found });
            }
            let bytes = values.saturating_mul(bytes_of(kind));
            // The crate makes room for as many values as an entry claims.
            if bytes > offset_len {
                let end = numbers.number(place, offset_len)?.saturating_add(bytes);
                if end > file.len() && READ_TAGS.contains(&tag) {
                    return Err(numbers.truncated());
                }
            }
            // The last of one tag counts.
            if tag == PHOTOMETRIC {
                let is_one = kind == SHORT && values == 1;
                found = if is_one { Some((place, numbers.short(place)?)) } else { None };
            }
            at = at.saturating_add(entry_len);
        }
        let Some((label_at, space)) = found else {
            let found = "a directory that does not say the colour space".to_owned();
            return Err(DecodeError::Damaged { format: FORMAT, offset: start, found });
        };
        let label = if numbers.is_little { BLACK_IS_ZERO.to_le_bytes() } else { BLACK_IS_ZERO.to_be_bytes() };
        let (parts, end) = (Vec::new().into_iter(), file.len());
        Ok((Self { file, at: 0, label_at, label, directory: start, parts, end }, space))
    }

    /// From now on, each jump leads to the next of these parts, and nothing is read beyond its end: the crate
    /// unpacks some from wherever they start to wherever their codes end.
    fn limit_to(&mut self, parts: Vec<usize>) {
        self.parts = parts.into_iter();
    }
}

/// The tag of the colour space, the type of its value, and the value that means grey.
const PHOTOMETRIC: u16 = 262;
const SHORT: u16 = 3;
const BLACK_IS_ZERO: u16 = 1;

/// The tags whose values are read, here or by the crate.
const READ_TAGS: [u16; 22] = [
    256, 257, 258, 259, 262, 266, 273, 274, 277, 278, 279, 284, 317, 320, 322, 323, 324, 325, 338, 339, 347,
    530,
];

/// The length of a value of this type: for an unknown one, the most that any has.
fn bytes_of(kind: u16) -> usize {
    match kind {
        1 | 2 | 6 | 7 => 1,
        3 | 8 => 2,
        4 | 9 | 11 | 13 => 4,
        _ => 8,
    }
}

/// The numbers of a file, in its order of bytes.
#[derive(Clone, Copy)]
struct Stored<'a> {
    file: &'a [u8],
    is_little: bool,
}

impl Stored<'_> {
    fn number(&self, at: usize, len: usize) -> Result<usize, DecodeError> {
        let bytes = at.checked_add(len).and_then(|end| self.file.get(at..end));
        let bytes = bytes.ok_or_else(|| self.truncated())?;
        let add = |sum: u64, &byte: &u8| sum << 8 | u64::from(byte);
        let number = if self.is_little { bytes.iter().rev().fold(0, add) } else { bytes.iter().fold(0, add) };
        Ok(usize::try_from(number).unwrap_or(usize::MAX))
    }

    fn short(&self, at: usize) -> Result<u16, DecodeError> {
        Ok(u16::try_from(self.number(at, 2)?).unwrap_or(u16::MAX))
    }

    #[cold]
    fn truncated(&self) -> DecodeError {
        DecodeError::Truncated { format: FORMAT, offset: self.file.len(), inside: "its directory" }
    }
}

impl Read for Relabelled<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.file.get(self.at..self.end).unwrap_or_default();
        let len = rest.len().min(buffer.len());
        let read = buffer.get_mut(..len).zip(rest.get(..len));
        read.into_iter().for_each(|(to, from)| to.copy_from_slice(from));
        for (place, byte) in (self.label_at..).zip(self.label) {
            let place = place.checked_sub(self.at).filter(|&place| place < len);
            place.and_then(|place| buffer.get_mut(place)).into_iter().for_each(|place| *place = byte);
        }
        self.at = self.at.saturating_add(len);
        Ok(len)
    }
}

impl Seek for Relabelled<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = |from: usize, by: i64| (from as u64).checked_add_signed(by);
        let to = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::Current(by) => at(self.at, by),
            SeekFrom::End(by) => at(self.file.len(), by),
        };
        let to = to.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        self.at = usize::try_from(to).unwrap_or(usize::MAX);
        if let Some(len) = self.parts.next() {
            self.end = self.at.saturating_add(len).min(self.file.len());
        }
        Ok(to)
    }
}

/// The error of what the crate does not read, in plain words.
fn unsupported(found: &TiffUnsupportedError) -> DecodeError {
    let found = match found {
        TiffUnsupportedError::HorizontalPredictor(_) => "differences of samples of less than 8 bits",
        TiffUnsupportedError::FloatingPointPredictor(_) => "differences of floats",
        TiffUnsupportedError::MisalignedTileBoundaries => "tiles whose rows are not of whole bytes",
        TiffUnsupportedError::InconsistentBitsPerSample(_) => "samples of different lengths",
        TiffUnsupportedError::UnsupportedSampleFormat(_) => "samples of different kinds",
        _ => "a feature that is not read",
    };
    let allowed = "samples that are all alike, differences of numbers of 8 or 16 bits, and tiles whose rows \
                   are of whole bytes";
    DecodeError::Unsupported { format: FORMAT, found: found.to_owned(), allowed }
}

/// The error in plain words: the crate's name its own types.
fn of_library(error: TiffError) -> DecodeError {
    let message = match error {
        TiffError::FormatError(_) => "its directory makes no sense",
        TiffError::UnsupportedError(found) => return unsupported(&found),
        TiffError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => "it ends early",
        TiffError::IoError(_) => "its packed samples make no sense",
        TiffError::LimitsExceeded | TiffError::IntSizeError => "it claims more than it can hold",
        _ => "its samples cannot be read",
    };
    DecodeError::Library { format: FORMAT, message: message.to_owned() }
}
