//! GIF files: their first frame, on the screen that they are drawn on.
//!
//! | | Native, Color, Gray, as OpenCV | Rgb, Upright, as Pillow |
//! |---|---|---|
//! | transparent pixels | the background, by the screen's palette | the colour that their place has |
//! | around the frame | the same, or black without such a palette | the same, or the first colour |
//!
//! Native is 4 if any frame of the file has transparent pixels, and otherwise 3.
//!
//! All blocks are walked to the trailer, as OpenCV does, so a file that is cut in a later frame is an error.
//! The frame itself is unpacked by the crate `gif`, which is shown nothing else.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io::Read as _;
use std::num::NonZeroU64;

use ::gif::{DecodeOptions, DecodingError, MemoryLimit};

use super::exif::Orientation;
use super::luma::Luma;
use super::still::{Bytes, Outline, Pixels, Still, guarded, least_of_blank};
use super::{ColorMode, DecodeError, room};

const FORMAT: &str = "GIF";

/// The trailer, which ends a file.
const TRAILER: u8 = b';';

/// A file's blocks.
#[derive(Debug)]
pub(super) struct Gif<'a> {
    /// The signature, the screen and its palette.
    start: &'a [u8],
    /// The palette of the screen.
    palette: Option<&'a [[u8; 3]]>,
    background: u8,
    height: usize,
    width: usize,
    frame: FirstFrame<'a>,
    /// Whether any frame has transparent pixels.
    is_transparent: bool,
    bytes: usize,
}

/// The first frame.
#[derive(Clone, Copy, Debug)]
struct FirstFrame<'a> {
    /// Where it starts in the file.
    at: usize,
    top: usize,
    left: usize,
    height: usize,
    width: usize,
    palette: Option<&'a [[u8; 3]]>,
    /// The place in the palette that is transparent.
    transparent: Option<u8>,
    /// Its block, to the end of its data.
    block: &'a [u8],
}

/// The blocks of a file, one after another.
struct Blocks<'a>(Bytes<'a>);

impl<'a> Blocks<'a> {
    /// A palette, if these flags say that there is one.
    fn palette(&mut self, flags: u8) -> Result<Option<&'a [[u8; 3]]>, DecodeError> {
        if flags & 0x80 == 0 {
            return Ok(None);
        }
        let bytes = self.0.take(6 << (flags & 7), "a palette")?;
        Ok(Some(bytes.as_chunks().0))
    }

    /// Skips blocks of data to the empty one that ends them. Returns the first.
    fn data(&mut self, inside: &'static str) -> Result<&'a [u8], DecodeError> {
        let mut first = None;
        loop {
            let [len] = self.0.array(inside)?;
            let block = self.0.take(len.into(), inside)?;
            let first = *first.get_or_insert(block);
            if len == 0 {
                return Ok(first);
            }
        }
    }

    /// A frame; its first byte has been read.
    fn frame(&mut self, transparent: Option<u8>) -> Result<FirstFrame<'a>, DecodeError> {
        const INSIDE: &str = "a frame";
        let start = self.0.at.saturating_sub(1);
        let mut side = || self.0.u16(INSIDE).map(usize::from);
        let [left, top, width, height] = [side()?, side()?, side()?, side()?];
        let [flags] = self.0.array(INSIDE)?;
        let palette = self.palette(flags)?;
        // The length of the first codes.
        self.0.array::<1>(INSIDE)?;
        self.data(INSIDE)?;
        let block = self.0.file.get(start..self.0.at).unwrap_or_default();
        Ok(FirstFrame { at: start, top, left, height, width, palette, transparent, block })
    }
}

impl<'a> Still<'a> for Gif<'a> {
    const NAME: &'static str = FORMAT;

    fn parse(file: &'a [u8]) -> Result<Self, DecodeError> {
        const INSIDE: &str = "its screen";
        const BLOCKS: &str = "the blocks before its trailer";
        let mut blocks = Blocks(Bytes { file, at: 6, format: FORMAT });
        let [width, height] = [blocks.0.u16(INSIDE)?.into(), blocks.0.u16(INSIDE)?.into()];
        let [flags, background, _] = blocks.0.array(INSIDE)?;
        let palette = blocks.palette(flags)?;
        let start = file.get(..blocks.0.at).unwrap_or_default();
        let (mut frame, mut transparent, mut is_transparent) = (None, None, false);
        loop {
            let at = blocks.0.at;
            match blocks.0.array(BLOCKS)? {
                [b'!'] => {
                    let [label] = blocks.0.array(BLOCKS)?;
                    let data = blocks.data(BLOCKS)?;
                    if let (0xf9, &[flags, _, _, place, ..]) = (label, data) {
                        transparent = (flags & 1 != 0).then_some(place);
                        is_transparent |= transparent.is_some();
                    }
                }
                [b','] => {
                    let found = blocks.frame(transparent.take())?;
                    frame.get_or_insert(found);
                }
                [TRAILER] => break,
                [byte] => return Err(blocks.0.damaged(at, format!("a block of the kind {byte:#04x}"))),
            }
        }
        let Some(frame) = frame else {
            return Err(blocks.0.damaged(blocks.0.at.saturating_sub(1), "the trailer, before any frame"));
        };
        let FirstFrame { at, top, left, height: rows, width: columns, .. } = frame;
        if rows == 0
            || columns == 0
            || top.saturating_add(rows) > height
            || left.saturating_add(columns) > width
        {
            let found =
                format!("a frame of {rows}x{columns} at {top}, {left} of a screen of {height}x{width}");
            return Err(blocks.0.damaged(at, found));
        }
        Ok(Self { start, palette, background, height, width, frame, is_transparent, bytes: file.len() })
    }

    fn head(&self, _: ColorMode) -> Result<Outline, DecodeError> {
        let (height, width, turn) = (self.height, self.width, Orientation::default());
        let native = if self.is_transparent { 4 } else { 3 };
        Ok(Outline { height, width, native, turn, least: least_of_blank(height, width), bytes: self.bytes })
    }

    fn pixels(self, color: ColorMode, out: &mut Vec<u8>) -> Result<Pixels, DecodeError> {
        let FirstFrame { top, left, height, width, transparent, .. } = self.frame;
        let samples = if self.is_transparent && color == ColorMode::Native { 4 } else { 3 };
        let all = self.height.saturating_mul(self.width).saturating_mul(samples);
        let len = height.saturating_mul(width);
        let (colours, places) = room(out, all.saturating_add(len))?.split_at_mut(all);
        guarded(FORMAT, || self.unpack(places))?;
        let palette = self.frame.palette.or(self.palette).unwrap_or_default();
        let colour = |place: u8| palette.get(usize::from(place)).copied();
        let around = if color.is_rgb() {
            colour(transparent.unwrap_or(0)).unwrap_or_default()
        } else {
            let of_screen = self.palette.and_then(|palette| palette.get(usize::from(self.background)));
            of_screen.copied().unwrap_or_default()
        };
        // A pixel's colour, and its alpha.
        let full = |place: u8| {
            if Some(place) == transparent && !color.is_rgb() {
                return Ok((around, 0));
            }
            let found = colour(place).ok_or_else(|| DecodeError::Damaged {
                format: FORMAT,
                offset: self.frame.at,
                found: format!("a frame with a pixel of the colour {place}, which its palette does not have"),
            })?;
            Ok((found, u8::MAX))
        };
        let put = |pixel: &mut [u8], ([red, green, blue], alpha): ([u8; 3], u8)| {
            for (sample, level) in pixel.iter_mut().zip([red, green, blue, alpha]) {
                *sample = level;
            }
        };
        if len < self.height.saturating_mul(self.width) {
            colours.chunks_exact_mut(samples).for_each(|pixel| put(pixel, (around, 0)));
        }
        let rows = colours.chunks_exact_mut(self.width.saturating_mul(samples)).skip(top);
        for (row, places) in rows.zip(places.chunks_exact(width)) {
            let pixels = row.chunks_exact_mut(samples).skip(left);
            for (pixel, &place) in pixels.zip(places) {
                put(pixel, full(place)?);
            }
        }
        Ok(Pixels { start: 0, samples, luma: Luma::CvtColor })
    }
}

impl Gif<'_> {
    /// Unpacks the frame's places in its palette.
    fn unpack(&self, places: &mut [u8]) -> Result<(), DecodeError> {
        let mut options = DecodeOptions::new();
        let most = NonZeroU64::new(places.len() as u64).unwrap_or(NonZeroU64::MIN);
        options.set_memory_limit(MemoryLimit::Bytes(most));
        let shown = self.start.chain(self.frame.block).chain(&[TRAILER][..]);
        let mut decoder = options.read_info(shown).map_err(of_library)?;
        decoder.next_frame_info().map_err(of_library)?;
        decoder.read_into_buffer(places).map_err(of_library)
    }
}

/// The error in plain words.
#[expect(clippy::needless_pass_by_value, reason = "it is an error that is turned into another")]
fn of_library(error: DecodingError) -> DecodeError {
    const WORDS: [(&str, &str); 3] = [
        ("no color table", "it has no palette"),
        ("truncated", "it has too little data for its pixels"),
        ("unexpected", "it has too little data for its pixels"),
    ];
    let message = error.to_string();
    let words = WORDS.iter().find(|(part, _)| message.contains(part));
    let message = words.map_or("its compressed data cannot be unpacked", |&(_, words)| words).to_owned();
    DecodeError::Library { format: FORMAT, message }
}
