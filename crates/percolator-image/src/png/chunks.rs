//! Reads a PNG file chunk by chunk.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fmt;
use std::ops::RangeInclusive;

use super::gamma::Gamma;
use super::profile::Profile;
use super::{FORMAT, Head, Kind, SIGNATURE, crc32};
use crate::DecodeError;
use crate::exif::{self, Orientation};

/// The longest side that libpng reads, in pixels.
const SIDE_MAX: usize = 1_000_000;

/// The lengths in bytes that a palette may have, among multiples of three.
const PALETTE_BYTES: RangeInclusive<usize> = 3..=768;

/// What [`Head::essence`] may have more bytes than the file.
const REST_BYTES: usize = 16;

/// Where among a file's chunks those of its data are. They follow each other; what comes later is not read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Data {
    Due,
    /// The chunk that is written starts its data there.
    Here(usize),
    Over,
}

/// Appends a chunk.
fn put(out: &mut Vec<u8>, kind: [u8; 4], data: &[u8]) {
    let start = start_chunk(out, kind);
    out.extend_from_slice(data);
    end_chunk(out, start);
}

/// Starts a chunk; returns where its data start.
fn start_chunk(out: &mut Vec<u8>, kind: [u8; 4]) -> usize {
    out.extend([0; 4]);
    out.extend(kind);
    out.len()
}

/// Ends the chunk whose data start there. Its checksum is left out, because it is not read.
fn end_chunk(out: &mut Vec<u8>, start: usize) {
    let bytes = u32::try_from(out.len().saturating_sub(start)).unwrap_or(u32::MAX);
    if let Some(length) = start.checked_sub(8).and_then(|at| out.get_mut(at..)?.first_chunk_mut()) {
        *length = bytes.to_be_bytes();
    }
    out.extend([0; 4]);
}

/// A chunk of a file.
struct Chunk<'a> {
    offset: usize,
    kind: [u8; 4],
    data: &'a [u8],
    crc: u32,
}

impl<'a> Chunk<'a> {
    /// The chunk at `offset`.
    fn at(file: &'a [u8], offset: usize) -> Result<Self, DecodeError> {
        let truncated = |inside| DecodeError::Truncated { format: FORMAT, offset: file.len(), inside };
        let rest = file.get(offset..).unwrap_or_default();
        let Some((len, rest)) = rest.split_first_chunk() else {
            return Err(truncated("the chunks before its end chunk"));
        };
        let Some((kind, rest)) = rest.split_first_chunk() else { return Err(truncated("a chunk's name")) };
        let len = u32::from_be_bytes(*len) as usize;
        let (Some(data), Some(crc)) = (rest.get(..len), rest.get(len..).and_then(<[u8]>::first_chunk)) else {
            return Err(truncated("a chunk's data"));
        };
        Ok(Self { offset, kind: *kind, data, crc: u32::from_be_bytes(*crc) })
    }

    /// The offset of the next chunk.
    fn end(&self) -> usize {
        self.offset.saturating_add(12).saturating_add(self.data.len())
    }

    /// Whether the checksum matches. A damaged chunk that matters little is ignored.
    fn is_intact(&self) -> bool {
        crc32([&self.kind, self.data]) == self.crc
    }

    /// Its name, for messages.
    fn name(&self) -> impl fmt::Display {
        self.kind.escape_ascii()
    }

    fn damaged(&self, found: impl Into<String>) -> DecodeError {
        DecodeError::Damaged { format: FORMAT, offset: self.offset, found: found.into() }
    }
}

impl Head {
    /// Reads all chunks, to the last. Inflates a profile only if the gamma is wanted.
    pub(super) fn parse(file: &[u8], wants_gamma: bool) -> Result<Self, DecodeError> {
        let header = Chunk::at(file, SIGNATURE.len())?;
        let mut head = Self::parse_header(&header)?;
        let (mut exif, mut palette, mut gamma) = (None, None, Gamma::default());
        let mut offset = header.end();
        loop {
            let chunk = Chunk::at(file, offset)?;
            let is_first_data = &chunk.kind == b"IDAT" && head.data_bytes == 0;
            if is_first_data && head.kind == Kind::Palette && palette.is_none() {
                return Err(chunk.damaged("image data, before the palette that it needs"));
            }
            let early = palette.is_none() && head.data_bytes == 0;
            match (&chunk.kind, chunk.data) {
                (b"IEND", _) => break,
                (b"IDAT", data) => head.data_bytes = head.data_bytes.saturating_add(data.len()),
                (b"PLTE", data) => {
                    if head.kind == Kind::Palette
                        && (!data.len().is_multiple_of(3) || !PALETTE_BYTES.contains(&data.len()))
                    {
                        return Err(chunk.damaged(format!("a palette of {} bytes", data.len())));
                    }
                    palette = palette.or(Some(data.len() / 3));
                }
                (b"tRNS", data) if head.data_bytes == 0 && chunk.is_intact() => {
                    head.transparent |= match head.kind {
                        Kind::Rgb => data.len() == 6,
                        Kind::Palette => (1..=palette.unwrap_or(0)).contains(&data.len()),
                        _ => false,
                    };
                }
                (b"gAMA", &[a, b, c, d]) if early && chunk.is_intact() => {
                    gamma.give(u32::from_be_bytes([a, b, c, d]));
                }
                (b"sRGB", &[intent]) if early && chunk.is_intact() => gamma.give_srgb(intent),
                // libpng uses a profile before it reaches the checksum.
                (b"iCCP", data) if early && wants_gamma && head.kind.has_colors() => {
                    gamma.give_profile(|| Profile::parse(data));
                }
                (b"cHRM", data) if early && chunk.is_intact() => {
                    data.try_into().into_iter().for_each(|data| gamma.give_chromaticities(data));
                }
                // libpng drops a block that does not start with its byte order.
                (b"eXIf", data @ ([b'I', b'I', ..] | [b'M', b'M', ..]))
                    if exif.is_none() && chunk.is_intact() =>
                {
                    exif = Some(data);
                }
                _ => {}
            }
            offset = chunk.end();
        }
        head.gamma = gamma.known();
        head.orientation = exif.map_or_else(Orientation::default, exif::orientation);
        Ok(head)
    }

    /// Rewrites the file with only what its pixels are made of: the header, the palette, what is transparent
    /// and the data, whose checksums are verified. Other chunks, which may be damaged, out of order or frames
    /// of an animation, do not matter, as in libpng.
    pub(super) fn essence(&self, file: &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
        out.clear();
        out.try_reserve(file.len().saturating_add(REST_BYTES))
            .map_err(|_| DecodeError::Memory { bytes: file.len() })?;
        out.extend_from_slice(SIGNATURE);
        let (mut offset, mut data) = (SIGNATURE.len(), Data::Due);
        let (mut has_palette, mut has_transparency) = (false, false);
        loop {
            let chunk = Chunk::at(file, offset)?;
            let is_critical = chunk.kind.first().is_some_and(u8::is_ascii_uppercase);
            if is_critical && !chunk.is_intact() {
                return Err(chunk.damaged(format!("a chunk {}, whose checksum is wrong", chunk.name())));
            }
            if let Data::Here(start) = data
                && &chunk.kind != b"IDAT"
            {
                // The checksum of the pixels is the last of the data. If it is cut off, these bytes replace
                // it, and are wrong; after a whole one, they are not read.
                out.extend([0xff; 4]);
                end_chunk(out, start);
                data = Data::Over;
            }
            match &chunk.kind {
                b"IEND" => break,
                b"IHDR" if offset == SIGNATURE.len() => put(out, chunk.kind, chunk.data),
                b"IDAT" if data != Data::Over => {
                    // All in one chunk: the library verifies no checksum that is in another one.
                    if data == Data::Due {
                        data = Data::Here(start_chunk(out, chunk.kind));
                    }
                    out.extend_from_slice(chunk.data);
                }
                b"IDAT" => {}
                b"PLTE" if self.kind != Kind::Palette || data != Data::Due => {}
                b"PLTE" if has_palette => return Err(chunk.damaged("a second palette: one is allowed")),
                b"PLTE" => {
                    put(out, chunk.kind, chunk.data);
                    has_palette = true;
                }
                b"tRNS" if self.transparent && !has_transparency && chunk.is_intact() => {
                    put(out, chunk.kind, chunk.data);
                    has_transparency = true;
                }
                _ if is_critical => {
                    return Err(chunk.damaged(format!("a chunk {}, which PNG does not have", chunk.name())));
                }
                _ => {}
            }
            offset = chunk.end();
        }
        put(out, *b"IEND", &[]);
        Ok(())
    }

    fn parse_header(chunk: &Chunk<'_>) -> Result<Self, DecodeError> {
        let (b"IHDR", Some((sizes, [bits, kind, methods @ ..]))) =
            (&chunk.kind, chunk.data.split_first_chunk::<8>())
        else {
            return Err(chunk.damaged("no header"));
        };
        let &[0, 0, 0 | 1] = methods else {
            let found =
                format!("a header with the methods {methods:?}, of which PNG has [0, 0, 0] and [0, 0, 1]");
            return Err(chunk.damaged(found));
        };
        let kind = match (*kind, *bits) {
            (0, 1 | 2 | 4 | 8 | 16) => Kind::Grey,
            (2, 8 | 16) => Kind::Rgb,
            (3, 1 | 2 | 4 | 8) => Kind::Palette,
            (4, 8 | 16) => Kind::GreyAlpha,
            (6, 8 | 16) => Kind::Rgba,
            _ => {
                return Err(chunk
                    .damaged(format!("a colour type of {kind} with {bits} bits, which PNG does not have")));
            }
        };
        let [w3, w2, w1, w0, h3, h2, h1, h0] = *sizes;
        let [height, width] =
            [[h3, h2, h1, h0], [w3, w2, w1, w0]].map(|side| u32::from_be_bytes(side) as usize);
        if ![height, width].iter().all(|side| (1..=SIDE_MAX).contains(side)) {
            return Err(DecodeError::Unsupported {
                format: FORMAT,
                found: format!("sides of {height} and {width}"),
                allowed: "sides of 1 to 1000000",
            });
        }
        let (gamma, orientation) = (None, Orientation::default());
        Ok(Self { height, width, bits: *bits, kind, transparent: false, gamma, orientation, data_bytes: 0 })
    }
}
