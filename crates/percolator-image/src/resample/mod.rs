//! Resizes as Pillow does, or as PyTorch resizes tensors, bit for bit.
//!
//! ```text
//! scale   = n / out                                   stretch = max(scale, 1), without antialiasing 1
//! centre  = (i + 0.5) * scale                         support = the filter's * stretch
//! taps    = trunc(centre - support + 0.5) .. trunc(centre + support + 0.5), within 0..n
//! weight  = filter((j - centre + 0.5) / stretch), divided by the sum of all        in f64
//!         , then round(weight * 2^bits)                                            to an integer
//! out     = clamp((2^(bits - 1) + sum of weight * pixel) >> bits)                  to a byte
//! ```
//!
//! There are two passes, along rows and down columns, with bytes between them. A pass that leaves its side as
//! it is does not happen. Pillow has 22 bits; PyTorch has as many as leave its largest weight in an `i16`.
//!
//! A pass combines neighbours in one direction, so it is vector code across the other direction. Down columns
//! that is as pixels lie. Along rows, 32 rows at a time are transposed first.

mod nearest;
mod passes;
mod taps;

pub use taps::Filter;

use crate::simd::InstructionSet;
use crate::{DecodeError, ImageShape, Planes, Window, elements, room};
use passes::{AlongRows, DownColumns};
use taps::Taps;

/// Whose resize it is. They differ by a few levels of some pixels.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum ResizeLaw {
    /// Pillow's, up to release 12.3: rows first.
    #[default]
    Pillow,
    /// That of Pillow 13.0, which goes down the columns first if the height shrinks by more than twice what
    /// the width does.
    Pillow13,
    /// PyTorch's of tensors of bytes, on a processor with AVX2.
    Torch,
}

/// How an image is resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct Resampling {
    /// The filter.
    pub filter: Filter,
    /// Whether the filter widens where the image shrinks, so that each pixel counts. Pillow always does; a
    /// nearest pixel never is.
    pub antialias: bool,
    /// Whose resize it is.
    pub law: ResizeLaw,
}

/// Bilinear, antialiased, as Pillow does it: what torchvision does to a PIL image.
impl Default for Resampling {
    fn default() -> Self {
        Resampling { filter: Filter::Bilinear, antialias: true, law: ResizeLaw::Pillow }
    }
}

impl Resampling {
    /// What is impossible about it, if anything is.
    #[must_use]
    pub fn impossible(&self) -> Option<&'static str> {
        use Filter::{Bicubic, Bilinear, Nearest, NearestExact};
        match (self.law, self.filter, self.antialias) {
            (_, Nearest | NearestExact, _) => None,
            (ResizeLaw::Torch, Bilinear | Bicubic, false) => None,
            (ResizeLaw::Torch, _, false) => {
                Some("without antialiasing there are nearest, bilinear and bicubic")
            }
            (_, _, false) => Some("Pillow always antialiases: resize without it by PyTorch's law"),
            (ResizeLaw::Torch, Filter::Box | Filter::Hamming, true) => {
                Some("PyTorch has neither box nor hamming: resize with them by Pillow's law")
            }
            _ => None,
        }
    }

    /// Whether the columns come before the rows.
    fn columns_first(&self, from: Window, [height, width]: [usize; 2]) -> bool {
        let lost = |before: usize, after: usize| before as i64 - after as i64;
        self.law == ResizeLaw::Pillow13
            && height < from.height
            && lost(from.height, height) > 2 * lost(from.width, width)
    }
}

/// The most sides whose taps are kept: those of both passes, for images of two sizes that take turns.
const KEPT: usize = 4;

/// Resizes image after image, and keeps its buffers and the taps of the latest sides.
#[derive(Debug, Default)]
pub struct Resampler {
    /// The latest last.
    taps: Vec<Taps>,
    /// What the first pass made.
    between: Vec<u8>,
    /// 32 rows, transposed, and what a pass makes of them.
    columns: [Vec<[u8; passes::ROWS]>; 2],
    /// The pixel of each row and of each column that is nearest.
    nearest: [Vec<usize>; 2],
}

impl Resampler {
    /// Resizes a window of some planes to this many rows and columns of `out`. Pixels outside the window do
    /// not count.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Memory`] if there is no memory for what the first pass makes.
    ///
    /// # Panics
    ///
    /// If the window is not within the planes, `out` has another size, a side is zero, or `how` is
    /// [impossible](Resampling::impossible).
    pub fn resize(
        &mut self,
        image: Planes<'_>,
        window: Window,
        how: Resampling,
        to: [usize; 2],
        out: &mut [u8],
    ) -> Result<(), DecodeError> {
        assert!(how.impossible().is_none(), "an impossible resize");
        let ImageShape { channels, height, width } = image.shape;
        assert_eq!(out.len(), channels * to[0] * to[1], "the output has the size that is asked for");
        let whole = Window { top: 0, left: 0, height, width };
        let is_within = |from: usize, len: usize, side: usize| from + len <= side && len > 0;
        assert!(
            is_within(window.top, window.height, height) && is_within(window.left, window.width, width),
            "a window of the image"
        );
        if matches!(how.filter, Filter::Nearest | Filter::NearestExact) {
            nearest::resize(image, window, how, to, &mut self.nearest, out);
            return Ok(());
        }
        let [rows_change, columns_change] = [to[0] != window.height, to[1] != window.width];
        match (columns_change, rows_change) {
            (false, false) => copy(image, window, out),
            (true, false) => self.along_rows(image, window, how, to[1], out),
            (false, true) => self.down_columns(image, window, how, to[0], out),
            (true, true) => {
                let columns_first = how.columns_first(window, to);
                let [height, width] =
                    if columns_first { [to[0], window.width] } else { [window.height, to[1]] };
                let shape = ImageShape { channels, height, width };
                let mut between = std::mem::take(&mut self.between);
                let made = room(&mut between, elements(shape))?;
                let whole = Window { height, width, ..whole };
                if columns_first {
                    self.down_columns(image, window, how, to[0], made);
                    self.along_rows(Planes { shape, bytes: made }, whole, how, to[1], out);
                } else {
                    self.along_rows(image, window, how, to[1], made);
                    self.down_columns(Planes { shape, bytes: made }, whole, how, to[0], out);
                }
                self.between = between;
            }
        }
        Ok(())
    }

    /// The most bytes that it keeps to resize images of some rows and columns, or parts of them, to others,
    /// beside what the first pass makes of them.
    #[must_use]
    pub fn held_bytes(from: [usize; 2], to: [usize; 2]) -> usize {
        let taps = [0, 1].map(|axis| Taps::bytes_max(from[axis], to[axis]));
        let columns = from[1].saturating_add(to[1]).saturating_mul(passes::ROWS);
        taps[0].max(taps[1]).saturating_mul(KEPT).saturating_add(columns)
    }

    fn along_rows(&mut self, image: Planes<'_>, window: Window, how: Resampling, to: usize, out: &mut [u8]) {
        let taps = self.taken(how, window.width, to);
        let [columns, made] = &mut self.columns;
        columns.resize(window.width.max(columns.len()), [0; passes::ROWS]);
        made.resize(to.max(made.len()), [0; passes::ROWS]);
        for (plane, out) in planes_of(image).zip(out.chunks_exact_mut(window.height * to)) {
            let (stride, columns, made) = (image.shape.width, &mut columns[..window.width], &mut made[..to]);
            InstructionSet::widest().run(AlongRows {
                plane,
                stride,
                window,
                taps: &taps,
                columns,
                made,
                out,
            });
        }
        self.taps.push(taps);
    }

    fn down_columns(
        &mut self,
        image: Planes<'_>,
        window: Window,
        how: Resampling,
        to: usize,
        out: &mut [u8],
    ) {
        let taps = self.taken(how, window.height, to);
        for (plane, out) in planes_of(image).zip(out.chunks_exact_mut(to * window.width)) {
            let stride = image.shape.width;
            InstructionSet::widest().run(DownColumns { plane, stride, window, taps: &taps, out });
        }
        self.taps.push(taps);
    }

    /// The taps for a side, which the caller puts back.
    fn taken(&mut self, how: Resampling, from: usize, to: usize) -> Taps {
        match self.taps.iter().position(|taps| taps.are_for(how, from, to)) {
            Some(at) => self.taps.remove(at),
            None => {
                // The oldest one's memory is used again.
                let old = if self.taps.len() < KEPT { Taps::default() } else { self.taps.remove(0) };
                old.refilled(how, from, to)
            }
        }
    }
}

/// The planes of an image.
fn planes_of(image: Planes<'_>) -> std::slice::ChunksExact<'_, u8> {
    image.bytes.chunks_exact(image.shape.height * image.shape.width)
}

fn copy(image: Planes<'_>, window: Window, out: &mut [u8]) {
    let outs = out.chunks_exact_mut(window.height * window.width);
    for (plane, out) in planes_of(image).zip(outs) {
        let rows = plane.chunks_exact(image.shape.width).skip(window.top);
        for (row, out) in rows.zip(out.chunks_exact_mut(window.width)) {
            out.copy_from_slice(&row[window.left..][..window.width]);
        }
    }
}
