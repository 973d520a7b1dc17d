//! WebP files: lossy and lossless, with alpha; the first frame of animations.
//!
//! The chunks of the file are walked here, to its end, and the crate `image-webp` is shown the image alone,
//! which it decodes to the bits of libwebp. Alpha is dropped, not blended, unless it is asked for. The first
//! frame of an animation lies on a canvas that is black, and transparent if the file has alpha. EXIF
//! orientation is applied where the mode says.
//!
//! Native is 4 if the file says that it has alpha: by a flag of its header, or, where there is no such
//! header, by the image's own.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io::Cursor;

use image_webp::{DecodingError, WebPDecoder};

use super::exif::{self, Orientation};
use super::luma::Luma;
use super::still::{Bytes, Outline, Pixels, Still, guarded, least_of_blank};
use super::{ColorMode, DecodeError, room};

const FORMAT: &str = "WebP";

/// The bytes before the first chunk.
const HEADER_BYTES: usize = 12;
/// The name and the length of a chunk.
const CHUNK_BYTES: usize = 8;

/// Flags of the file.
const ANIMATED: u8 = 0x02;
const EXIF: u8 = 0x08;
const ALPHA: u8 = 0x10;

/// The bits that a macroblock of 16x16 pixels takes at the least: those of its modes, of fixed probabilities.
const MACROBLOCK_BITS_MIN: usize = 3;

/// The bytes that lossless data may have: so many, and so many more for each pixel. The crate makes tables of
/// 330 times the data's length if all of it is codes that no pixel uses.
const LOSSLESS_BYTES: usize = 1 << 16;
const LOSSLESS_BYTES_PER_PIXEL: usize = 8;

/// What the crate holds for a pixel, at most.
const CRATES_BYTES_PER_PIXEL: usize = 7;

/// One more than the longest side that the crate reads of lossless data, and the longest that there is.
const LOSSLESS_SIDE: usize = 1 << 14;

/// A file's image: that of its first frame if it is animated.
#[derive(Debug)]
pub(super) struct Webp<'a> {
    /// The canvas; the image itself if the file is not animated.
    height: usize,
    width: usize,
    /// Where on it the image lies.
    top: usize,
    left: usize,
    image: Image<'a>,
    has_alpha: bool,
    /// Its block of EXIF.
    exif: Option<&'a [u8]>,
    bytes: usize,
}

/// One image, and the chunk of its alpha if it has one.
#[derive(Clone, Copy, Debug)]
struct Image<'a> {
    alpha: Option<&'a [u8]>,
    data: &'a [u8],
    is_lossless: bool,
    height: usize,
    width: usize,
}

/// A chunk of a file.
struct RiffChunk<'a> {
    at: usize,
    name: [u8; 4],
    data: &'a [u8],
}

/// The chunks of a file or of a frame, one after another.
struct Chunks<'a>(Bytes<'a>);

impl<'a> Chunks<'a> {
    /// The next chunk; none at the end.
    fn next(&mut self) -> Result<Option<RiffChunk<'a>>, DecodeError> {
        const INSIDE: &str = "a chunk";
        let at = self.0.at;
        if at >= self.0.file.len() {
            return Ok(None);
        }
        let name = self.0.array(INSIDE)?;
        let len = self.0.u32(INSIDE)? as usize;
        let data = self.0.take(len, INSIDE)?;
        // Chunks start at even offsets.
        self.0.at = self.0.at.saturating_add(len % 2);
        Ok(Some(RiffChunk { at, name, data }))
    }

    /// The image among these chunks: the first, and its alpha before it.
    fn image(&mut self) -> Result<Image<'a>, DecodeError> {
        let mut alpha = None;
        while let Some(chunk) = self.next()? {
            let RiffChunk { at, name, data } = chunk;
            match &name {
                b"ALPH" => alpha = alpha.or(Some(chunk)),
                b"VP8 " | b"VP8L" => return self.image_of(at, &name == b"VP8L", alpha, data),
                _ => {}
            }
        }
        Err(self.0.damaged(self.0.file.len(), "the end, before any image"))
    }

    /// The image that this chunk holds.
    fn image_of(
        &self,
        at: usize,
        is_lossless: bool,
        alpha: Option<RiffChunk<'a>>,
        data: &'a [u8],
    ) -> Result<Image<'a>, DecodeError> {
        let start = at.saturating_add(CHUNK_BYTES);
        let (height, width, alpha) = match *data {
            [0x2f, a, b, c, d, ..] if is_lossless => {
                let bits = u32::from_le_bytes([a, b, c, d]) as usize;
                ((bits >> 14 & 0x3fff).saturating_add(1), (bits & 0x3fff).saturating_add(1), None)
            }
            [tag, _, _, 0x9d, 0x01, 0x2a, a, b, c, d, ..] if !is_lossless && tag & 1 == 0 => {
                let side = |low, high| usize::from(u16::from_le_bytes([low, high]) & 0x3fff);
                (side(c, d), side(a, b), alpha)
            }
            _ => return Err(self.0.damaged(start, "no header of an image")),
        };
        if is_lossless && height.max(width) == LOSSLESS_SIDE {
            let found = format!("lossless data of {height}x{width} pixels");
            let allowed = "lossless sides up to 16,383";
            return Err(DecodeError::Unsupported { format: FORMAT, found, allowed });
        }
        let pixels = height.saturating_mul(width);
        let most = pixels.saturating_mul(LOSSLESS_BYTES_PER_PIXEL).saturating_add(LOSSLESS_BYTES);
        let lossless = is_lossless.then_some((start, data));
        let alphas = alpha.as_ref().map(|chunk| (chunk.at.saturating_add(CHUNK_BYTES), chunk.data));
        for (offset, data) in lossless.into_iter().chain(alphas) {
            if data.len() > most {
                let len = data.len();
                let found = format!(
                    "lossless data of {len} bytes for {height}x{width} pixels: allowed are 64 KiB and \
                     {LOSSLESS_BYTES_PER_PIXEL} bytes a pixel"
                );
                return Err(self.0.damaged(offset, found));
            }
        }
        Ok(Image { alpha: alpha.map(|chunk| chunk.data), data, is_lossless, height, width })
    }
}

impl<'a> Still<'a> for Webp<'a> {
    const NAME: &'static str = FORMAT;

    fn parse(file: &'a [u8]) -> Result<Self, DecodeError> {
        let mut bytes = Bytes { file, at: 4, format: FORMAT };
        let len = (bytes.u32("its header")? as usize).saturating_add(CHUNK_BYTES);
        // What the header does not count is no part of the file.
        let Some(file) = file.get(..len) else {
            return Err(DecodeError::Truncated { format: FORMAT, offset: file.len(), inside: "its chunks" });
        };
        let mut chunks = Chunks(Bytes { file, at: HEADER_BYTES, format: FORMAT });
        let first = chunks.next()?;
        if let Some(RiffChunk { at, name, data }) = &first
            && name == b"VP8X"
        {
            return Self::extended(*at, data, chunks);
        }
        chunks.0.at = HEADER_BYTES;
        let image = chunks.image()?;
        let Image { height, width, .. } = image;
        let has_alpha = image.has_alpha();
        Ok(Self { height, width, top: 0, left: 0, image, has_alpha, exif: None, bytes: len })
    }

    fn head(&self, color: ColorMode) -> Result<Outline, DecodeError> {
        let (height, width) = (self.height, self.width);
        let native = if self.has_alpha { 4 } else { 3 };
        let least = if self.image.is_lossless || self.image.height < height || self.image.width < width {
            least_of_blank(height, width)
        } else {
            let macroblocks = height.div_ceil(16).saturating_mul(width.div_ceil(16));
            macroblocks.saturating_mul(MACROBLOCK_BITS_MIN) / 8
        };
        let turn = self.exif.map_or_else(Orientation::default, |block| {
            // Some writers begin the block as in a JPEG. Pillow reads it nevertheless.
            let pillows = block.strip_prefix(b"Exif\0\0").unwrap_or(block);
            exif::orientation(if color.is_rgb() { pillows } else { block })
        });
        Ok(Outline { height, width, native, turn: color.turn(turn), least, bytes: self.bytes })
    }

    fn pixels(self, _: ColorMode, out: &mut Vec<u8>) -> Result<Pixels, DecodeError> {
        let Image { height, width, .. } = self.image;
        let samples = self.image.samples();
        let len = height.saturating_mul(width).saturating_mul(samples);
        let count = self.height.saturating_mul(self.width);
        let is_whole = height == self.height && width == self.width;
        if is_whole && (samples == 4 || !self.has_alpha) {
            guarded(FORMAT, || self.image.decode(room(out, len)?))?;
            return Ok(Pixels { start: 0, samples, luma: Luma::CvtColor });
        }
        // The canvas, and then the image.
        let canvas = count.saturating_mul(4);
        let (canvas, image) = room(out, canvas.saturating_add(len))?.split_at_mut(canvas);
        guarded(FORMAT, || self.image.decode(image))?;
        canvas.fill(0);
        let rows = canvas.chunks_exact_mut(self.width.saturating_mul(4)).skip(self.top);
        for (row, pixels) in rows.zip(image.chunks_exact(width.saturating_mul(samples))) {
            let places = row.as_chunks_mut::<4>().0.iter_mut().skip(self.left);
            for (place, pixel) in places.zip(pixels.chunks_exact(samples)) {
                if let &[red, green, blue, ref alpha @ ..] = pixel {
                    *place = [red, green, blue, alpha.first().copied().unwrap_or(u8::MAX)];
                }
            }
        }
        Ok(Pixels { start: 0, samples: 4, luma: Luma::CvtColor })
    }
}

impl<'a> Webp<'a> {
    /// A file with a header of its own, and chunks beside the image's.
    fn extended(at: usize, header: &[u8], mut chunks: Chunks<'a>) -> Result<Self, DecodeError> {
        let damaged = |found: String| DecodeError::Damaged {
            format: FORMAT,
            offset: at.saturating_add(CHUNK_BYTES),
            found,
        };
        let &[flags, _, _, _, w0, w1, w2, h0, h1, h2, ..] = header else {
            return Err(damaged(format!("a header of {} bytes", header.len())));
        };
        let side = |bytes: [u8; 3]| three_bytes(bytes).saturating_add(1);
        let (height, width) = (side([h0, h1, h2]), side([w0, w1, w2]));
        let is_animated = flags & ANIMATED != 0;
        let start = chunks.0.at;
        let (mut frame, mut exif) = (None, None);
        while let Some(RiffChunk { at, name, data }) = chunks.next()? {
            match &name {
                b"ANMF" if is_animated && frame.is_none() => frame = Some((at, data)),
                b"EXIF" if flags & EXIF != 0 => exif = exif.or(Some(data)),
                _ => {}
            }
        }
        let bytes = chunks.0.file.len();
        chunks.0.at = start;
        let (image, top, left) = match frame {
            Some((at, data)) => frame_of(&chunks, at, data)?,
            None if is_animated => return Err(damaged("an animation without a frame".to_owned())),
            None => (chunks.image()?, 0, 0),
        };
        let is_within =
            top.saturating_add(image.height) <= height && left.saturating_add(image.width) <= width;
        if !is_within || (!is_animated && (image.height < height || image.width < width)) {
            let Image { height: rows, width: columns, .. } = image;
            let found = format!("an image of {rows}x{columns} at {top}, {left} of {height}x{width}");
            return Err(damaged(found));
        }
        let has_alpha = flags & ALPHA != 0;
        Ok(Self { height, width, top, left, image, has_alpha, exif, bytes })
    }
}

/// The image of a frame, and where it lies: its top and its left.
fn frame_of<'a>(
    chunks: &Chunks<'a>,
    at: usize,
    frame: &'a [u8],
) -> Result<(Image<'a>, usize, usize), DecodeError> {
    const FRAME_BYTES: usize = 16;
    let &[x0, x1, x2, y0, y1, y2, w0, w1, w2, h0, h1, h2, _, _, _, _, ..] = frame else {
        return Err(chunks.0.damaged(at, "a frame that is too short for its header"));
    };
    // The frame is read as a part of the file, so that offsets are the file's.
    let end = at.saturating_add(CHUNK_BYTES).saturating_add(frame.len());
    let file = chunks.0.file.get(..end).unwrap_or_default();
    let at_image = at.saturating_add(CHUNK_BYTES).saturating_add(FRAME_BYTES);
    let image = Chunks(Bytes { file, at: at_image, format: FORMAT }).image()?;
    let sides = [[h0, h1, h2], [w0, w1, w2]].map(|side| three_bytes(side).saturating_add(1));
    if [image.height, image.width] != sides {
        let found =
            format!("a frame of {}x{}, and an image of {}x{}", sides[0], sides[1], image.height, image.width);
        return Err(chunks.0.damaged(at, found));
    }
    let [top, left] = [[y0, y1, y2], [x0, x1, x2]].map(|place| three_bytes(place).saturating_mul(2));
    Ok((image, top, left))
}

fn three_bytes([low, middle, high]: [u8; 3]) -> usize {
    u32::from_le_bytes([low, middle, high, 0]) as usize
}

impl Image<'_> {
    fn has_alpha(&self) -> bool {
        if self.is_lossless {
            self.data.get(4).is_some_and(|byte| byte & 0x10 != 0)
        } else {
            self.alpha.is_some()
        }
    }

    /// The samples that the crate decodes a pixel to.
    fn samples(&self) -> usize {
        if self.has_alpha() { 4 } else { 3 }
    }

    /// Decodes the image, as a file that has nothing else.
    fn decode(&self, pixels: &mut [u8]) -> Result<(), DecodeError> {
        let file = self.alone()?;
        // The crate aborts the program if it is refused memory. What it will ask for is free now, at least.
        let bytes = self.height.saturating_mul(self.width).saturating_mul(CRATES_BYTES_PER_PIXEL);
        let mut reserved = Vec::<u8>::new();
        reserved.try_reserve_exact(bytes).map_err(|_| DecodeError::Memory { bytes })?;
        // The compiler may not leave out what is never used.
        drop(std::hint::black_box(reserved));
        let mut decoder = WebPDecoder::new(Cursor::new(&file[..])).map_err(of_library)?;
        decoder.set_memory_limit(file.len());
        decoder.read_image(pixels).map_err(of_library)
    }

    /// A file of this image alone.
    fn alone(&self) -> Result<Vec<u8>, DecodeError> {
        let mut file = Vec::new();
        let data = self.data.len().saturating_add(self.alpha.map_or(0, <[u8]>::len));
        // Four headers, and what makes chunks even.
        let most = data.saturating_add(64);
        file.try_reserve_exact(most).map_err(|_| DecodeError::Memory { bytes: most })?;
        file.extend_from_slice(b"RIFF\0\0\0\0WEBP");
        if let Some(alpha) = self.alpha {
            let [height, width] = [self.height, self.width].map(|side| side.saturating_sub(1).to_le_bytes());
            let header = [ALPHA, 0, 0, 0, width[0], width[1], width[2], height[0], height[1], height[2]];
            put(&mut file, *b"VP8X", &header);
            put(&mut file, *b"ALPH", alpha);
        }
        put(&mut file, if self.is_lossless { *b"VP8L" } else { *b"VP8 " }, self.data);
        let len = u32::try_from(file.len().saturating_sub(CHUNK_BYTES)).unwrap_or(u32::MAX).to_le_bytes();
        file.get_mut(4..8).into_iter().for_each(|place| place.copy_from_slice(&len));
        Ok(file)
    }
}

/// Appends a chunk.
fn put(file: &mut Vec<u8>, name: [u8; 4], data: &[u8]) {
    file.extend(name);
    file.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_le_bytes());
    file.extend_from_slice(data);
    if !data.len().is_multiple_of(2) {
        file.push(0);
    }
}

/// The error in plain words: the crate's name its own types.
#[expect(clippy::needless_pass_by_value, reason = "it is an error that is turned into another")]
fn of_library(error: DecodingError) -> DecodeError {
    let message = match error {
        DecodingError::BitStreamError | DecodingError::IoError(_) => "its data end early, or make no sense",
        DecodingError::HuffmanError | DecodingError::InvalidColorCacheBits(_) => "its codes make no sense",
        DecodingError::UnsupportedFeature(_) => {
            let (found, allowed) = ("a frame that depends on others".to_owned(), "frames of their own");
            return DecodeError::Unsupported { format: FORMAT, found, allowed };
        }
        DecodingError::VersionNumberInvalid(version) => {
            let found = format!("lossless data of version {version}");
            return DecodeError::Unsupported { format: FORMAT, found, allowed: "those of version 0" };
        }
        _ => "its pixels cannot be read",
    };
    DecodeError::Library { format: FORMAT, message: message.to_owned() }
}
