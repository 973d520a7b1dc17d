//! The inner loops over the pixels.
//!
//! The slow version, with which the property tests compare this module, is
//!
//! ```text
//! for (c, y, x) in the output:
//!     from = (c, top + y, left + x)
//!     to   = (c, y, if mirrored { width - 1 - x } else { x })
//!     output[to] = (pixels[from] - mean[from]) * scale
//! ```
//!
//! Here the work goes row by row, and along a row [`LANES`] pixels at a time, in plain array arithmetic that
//! the compiler turns into vector instructions. The output is always written in ascending order, and a
//! mirrored row is read in descending order, because writes are the slower part. Subtraction and
//! multiplication round separately, as in Caffe: a fused operation would change the last bit.
//!
//! A record is one [`RecordJob`], which is compiled once per instruction set; one is picked at run time, once
//! per record (`percolator_image::simd`). Everything below it is `inline(always)`, and there are no closures.

use std::array;

use bytemuck::Pod;
use half::{bf16, f16};

use super::narrow::Float;
use super::sink::{Direct, Sink, Stage, Streamed};
use crate::base::cache_lines;
use crate::base::shape::ImageShape;
use percolator_image::simd::Kernel;
use percolator_messages::Strided;

/// The number of pixels computed at a time: the floats in the widest register, or in a few narrower ones.
///
/// The steps are written out over arrays of this length. If the compiler had to find them in a loop over the
/// row, it would unroll that loop to many times this length, and process a narrow row one pixel at a time.
const LANES: usize = 16;

/// How many pixels ahead of their use large records are prefetched. The hardware prefetcher follows the rows
/// by itself, but not across the end of a page.
const AHEAD: usize = 2048;

/// The part of an image that is transformed, in pixels, and whether it is mirrored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CropWindow {
    pub(super) top: usize,
    pub(super) left: usize,
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) mirrored: bool,
}

/// What is subtracted from every pixel.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mean<'a> {
    /// One value for all channels, or one for each.
    Values(&'a [f32]),
    /// A value for every pixel of the uncropped, unmirrored image.
    Image(&'a [f32]),
    /// Means and standard deviations of levels from 0 to 1: one for all channels, or one for each.
    Normalized(&'a [f32], &'a [f32]),
}

/// The work on one record.
pub(super) struct RecordJob<'a, R, E> {
    pub(super) source: Source<'a, R>,
    /// The stage for an output that is written past the caches; `None` for ordinary writes.
    pub(super) stage: Option<&'a mut Stage>,
    /// Room for one row of every channel, if the output's order is row, column, channel; `None` if it is
    /// channel, row, column.
    pub(super) planes: Option<&'a mut [E]>,
    /// The output: exactly the elements of the source's window, in every channel.
    pub(super) out: &'a mut [E],
}

impl<R: Rows, E: Element<R::Pixel>> Kernel for RecordJob<'_, R, E> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { source, stage, planes, out } = self;
        match (planes, stage) {
            (None, None) => fill_planar(source, Direct(out)),
            (None, Some(stage)) => fill_planar(source, Streamed::new(stage, out)),
            (Some(planes), None) => fill_interleaved(source, planes, Direct(out)),
            (Some(planes), Some(stage)) => fill_interleaved(source, planes, Streamed::new(stage, out)),
        }
    }
}

/// Fills the output in the order channel, row, column.
#[inline(always)]
fn fill_planar<R: Rows, E: Element<R::Pixel>, S: Sink<E>>(mut source: Source<'_, R>, mut out: S) {
    let CropWindow { height, width, mirrored, .. } = source.window;
    // Whole rows that are not mirrored are contiguous in both the image and the output, so they are one long
    // row. Large outputs are excluded, because prefetching goes row by row.
    let merge = R::CONTIGUOUS && width == source.input.width && !mirrored && !S::IS_LARGE;
    let (rows, row_width) = if merge { (1, height * width) } else { (height, width) };
    for c in 0..source.input.channels {
        for y in 0..rows {
            source.fill(c, y, row_width, &mut out);
        }
    }
}

/// Fills the output in the order row, column, channel.
#[inline(always)]
fn fill_interleaved<R: Rows, E: Element<R::Pixel>>(
    mut source: Source<'_, R>,
    planes: &mut [E],
    mut out: impl Sink<E>,
) {
    let width = source.window.width;
    for y in 0..source.window.height {
        let mut rows = Direct(&mut *planes);
        for c in 0..source.input.channels {
            source.fill(c, y, width, &mut rows);
        }
        interleave(planes, width, out.room(planes.len()));
    }
}

/// What a record's output is computed from.
///
/// Invariants, which the caller upholds: `window` is within `input` and not empty; `rows` and a mean image
/// hold the elements of `input`; there is one mean value, or one for each channel.
pub(super) struct Source<'a, R> {
    pub(super) rows: R,
    pub(super) input: ImageShape,
    pub(super) window: CropWindow,
    pub(super) mean: Mean<'a>,
    pub(super) scale: f32,
}

impl<R: Rows> Source<'_, R> {
    /// Fills the next `width` elements from row `y` of the window, in channel `c`.
    #[inline(always)]
    fn fill<E: Element<R::Pixel>, S: Sink<E>>(&mut self, c: usize, y: usize, width: usize, out: &mut S) {
        let Self { input, window, scale, .. } = *self;
        let start = (c * input.height + window.top + y) * input.width + window.left;
        let mean = match self.mean {
            Mean::Values(&[value]) => RowMean::Constant(value),
            Mean::Values(values) => RowMean::Constant(values[c]),
            Mean::Image(pixels) => RowMean::Pixels(&pixels[start..start + width]),
            Mean::Normalized(&[mean], &[std]) => RowMean::Normalized(Normal { mean, std }),
            Mean::Normalized(mean, std) => RowMean::Normalized(Normal { mean: mean[c], std: std[c] }),
        };
        if S::IS_LARGE {
            self.rows.prefetch(start + AHEAD, width);
        }
        let pixels = self.rows.row(start, width);
        let row = RowJob { mean, scale, mirrored: window.mirrored };
        let mut done = 0;
        while done < width {
            let out = out.room(width - done);
            let from = if row.mirrored { width - done - out.len() } else { done };
            done += out.len();
            let (pixels, row) = (&pixels[from..from + out.len()], row.part(from, out.len()));
            E::fill(out, pixels, row);
        }
    }
}

/// Where rows of pixels come from.
pub(super) trait Rows {
    /// The pixel type of a row.
    type Pixel: Pixel;

    /// Whether rows may be of any length, up to the rest of the image.
    const CONTIGUOUS: bool;

    /// Returns the `width` pixels from element `start` of the image.
    fn row(&mut self, start: usize, width: usize) -> &[Self::Pixel];

    /// Prefetches these pixels. Pixels beyond the image are ignored.
    fn prefetch(&self, start: usize, width: usize);
}

/// Pixels that are contiguous.
pub(super) struct Contiguous<'a, P>(pub(super) &'a [P]);

impl<P: Pixel> Rows for Contiguous<'_, P> {
    type Pixel = P;

    const CONTIGUOUS: bool = true;

    #[inline(always)]
    fn row(&mut self, start: usize, width: usize) -> &[P] {
        &self.0[start..start + width]
    }

    #[inline(always)]
    fn prefetch(&self, start: usize, width: usize) {
        let from = start.min(self.0.len());
        cache_lines::ask_for_once(bytemuck::cast_slice(&self.0[from..(from + width).min(self.0.len())]));
    }
}

/// Floats with gaps between them, which are gathered into a buffer of one row of the window.
pub(super) struct Spaced<'a> {
    pub(super) floats: Strided<'a>,
    pub(super) row: &'a mut [f32],
}

impl Rows for Spaced<'_> {
    type Pixel = f32;

    const CONTIGUOUS: bool = false;

    #[inline(always)]
    fn row(&mut self, start: usize, width: usize) -> &[f32] {
        let row = &mut self.row[..width];
        self.floats.copy_to(start, row);
        row
    }

    #[inline(always)]
    fn prefetch(&self, _: usize, _: usize) {}
}

/// A pixel as a record stores it.
pub(super) trait Pixel: Pod {
    /// The value that Caffe computes with.
    fn value(self) -> f32;
}

impl Pixel for u8 {
    #[inline(always)]
    fn value(self) -> f32 {
        f32::from(self)
    }
}

impl Pixel for f32 {
    #[inline(always)]
    fn value(self) -> f32 {
        self
    }
}

/// What is done to a row.
#[derive(Clone, Copy)]
pub(super) struct RowJob<'a> {
    mean: RowMean<'a>,
    scale: f32,
    mirrored: bool,
}

/// What is subtracted from a row, or done to it instead.
#[derive(Clone, Copy)]
enum RowMean<'a> {
    Constant(f32),
    Pixels(&'a [f32]),
    Normalized(Normal),
}

impl<'a> RowJob<'a> {
    /// The same job for the `width` pixels from `start`.
    #[inline(always)]
    fn part(self, start: usize, width: usize) -> RowJob<'a> {
        let mean = match self.mean {
            RowMean::Constant(value) => RowMean::Constant(value),
            RowMean::Pixels(pixels) => RowMean::Pixels(&pixels[start..start + width]),
            RowMean::Normalized(normal) => RowMean::Normalized(normal),
        };
        RowJob { mean, ..self }
    }
}

/// An element of a batch that can be made from pixels of type `P`.
pub(super) trait Element<P>: Pod {
    /// Fills a row of the output from as many pixels.
    fn fill(out: &mut [Self], pixels: &[P], row: RowJob<'_>);
}

/// Bytes stay as they are: a transform to u8 has neither mean nor scale.
impl Element<u8> for u8 {
    #[inline(always)]
    fn fill(out: &mut [u8], pixels: &[u8], row: RowJob<'_>) {
        out.copy_from_slice(pixels);
        if row.mirrored {
            out.reverse();
        }
    }
}

impl<P: Pixel> Element<P> for f32 {
    #[inline(always)]
    fn fill(out: &mut [f32], pixels: &[P], row: RowJob<'_>) {
        fill_floats(out, pixels, row);
    }
}

/// Rounded from the f32 result.
impl<P: Pixel> Element<P> for f16 {
    #[inline(always)]
    fn fill(out: &mut [f16], pixels: &[P], row: RowJob<'_>) {
        fill_floats(out, pixels, row);
    }
}

/// Rounded from the f32 result.
impl<P: Pixel> Element<P> for bf16 {
    #[inline(always)]
    fn fill(out: &mut [bf16], pixels: &[P], row: RowJob<'_>) {
        fill_floats(out, pixels, row);
    }
}

/// Fills a row of floats.
#[inline(always)]
fn fill_floats<P: Pixel, F: Float>(out: &mut [F], pixels: &[P], row: RowJob<'_>) {
    match row.mean {
        RowMean::Constant(mean) => fill_lanes(out, pixels, Scaled { mean, scale: row.scale }, row.mirrored),
        RowMean::Pixels(mean) => fill_lanes(out, pixels, Scaled { mean, scale: row.scale }, row.mirrored),
        RowMean::Normalized(normal) => fill_lanes(out, pixels, normal, row.mirrored),
    }
}

/// As [`fill_floats`], [`LANES`] pixels at a time.
#[inline(always)]
fn fill_lanes<P: Pixel, L: Law, F: Float>(out: &mut [F], pixels: &[P], law: L, mirrored: bool) {
    let Some(last) = out.len().checked_sub(LANES) else {
        return fill_short(out, pixels, law, mirrored);
    };
    let mut to = 0;
    loop {
        let from = if mirrored { last - to } else { to };
        let pixels = lanes(pixels, from);
        let mut values = law.lanes(from, array::from_fn(|i| pixels[i].value()));
        if mirrored {
            values.reverse();
        }
        out[to..to + LANES].copy_from_slice(&F::round_all(values));
        if to == last {
            return;
        }
        // The last step ends at the end of the row and repeats some pixels of the previous step. That is
        // cheaper than a loop over the remainder, which is most of a narrow row.
        to = (to + LANES).min(last);
    }
}

/// Fills a row of fewer than [`LANES`] pixels.
#[inline(always)]
fn fill_short<P: Pixel, L: Law, F: Float>(out: &mut [F], pixels: &[P], law: L, mirrored: bool) {
    for (x, pixel) in pixels.iter().enumerate() {
        let to = if mirrored { out.len() - 1 - x } else { x };
        out[to] = F::round(law.one(x, pixel.value()));
    }
}

/// What is done to the pixels of a row.
trait Law: Copy {
    /// What becomes of the pixel in column `x`.
    fn one(self, x: usize, pixel: f32) -> f32;

    /// What becomes of those in the [`LANES`] columns from `x`.
    fn lanes(self, x: usize, pixels: [f32; LANES]) -> [f32; LANES];
}

/// Caffe's: a mean is subtracted, and the rest is scaled.
#[derive(Clone, Copy)]
struct Scaled<M> {
    mean: M,
    scale: f32,
}

impl<M: Means> Law for Scaled<M> {
    #[inline(always)]
    fn one(self, x: usize, pixel: f32) -> f32 {
        (pixel - self.mean.value(x)) * self.scale
    }

    #[inline(always)]
    fn lanes(self, x: usize, pixels: [f32; LANES]) -> [f32; LANES] {
        let mean = self.mean.lanes(x);
        array::from_fn(|i| (pixels[i] - mean[i]) * self.scale)
    }
}

/// torchvision's: a level becomes a number from 0 to 1, which is normalized.
#[derive(Clone, Copy)]
struct Normal {
    mean: f32,
    std: f32,
}

impl Law for Normal {
    #[inline(always)]
    fn one(self, _: usize, pixel: f32) -> f32 {
        (pixel * (1.0 / 255.0) - self.mean) / self.std
    }

    #[inline(always)]
    fn lanes(self, x: usize, pixels: [f32; LANES]) -> [f32; LANES] {
        array::from_fn(|i| self.one(x, pixels[i]))
    }
}

/// What is subtracted from the pixels of a row.
trait Means: Copy {
    /// What is subtracted in column `x`.
    fn value(self, x: usize) -> f32;

    /// What is subtracted in the [`LANES`] columns from `x`.
    fn lanes(self, x: usize) -> [f32; LANES];
}

impl Means for f32 {
    #[inline(always)]
    fn value(self, _: usize) -> f32 {
        self
    }

    #[inline(always)]
    fn lanes(self, _: usize) -> [f32; LANES] {
        [self; LANES]
    }
}

impl Means for &[f32] {
    #[inline(always)]
    fn value(self, x: usize) -> f32 {
        self[x]
    }

    #[inline(always)]
    fn lanes(self, x: usize) -> [f32; LANES] {
        lanes(self, x)
    }
}

/// The [`LANES`] elements from `start`.
#[inline(always)]
fn lanes<T: Copy>(row: &[T], start: usize) -> [T; LANES] {
    *row[start..].first_chunk().expect("a row has LANES elements from any start")
}

/// Interleaves a row: reads it channel by channel from `planes`, and writes it pixel by pixel to `out`.
#[inline(always)]
fn interleave<E: Copy>(planes: &[E], width: usize, out: &mut [E]) {
    // With a number of channels known at compile time, the compiler shuffles whole registers.
    match planes.len() / width {
        3 => {
            let (first, rest) = planes.split_at(width);
            let (second, third) = rest.split_at(width);
            let (pixels, _) = out.as_chunks_mut::<3>();
            for (((pixel, &a), &b), &c) in pixels.iter_mut().zip(first).zip(second).zip(third) {
                *pixel = [a, b, c];
            }
        }
        channels => {
            for (c, plane) in planes.chunks_exact(width).enumerate() {
                for (pixel, &value) in out.chunks_exact_mut(channels).zip(plane) {
                    pixel[c] = value;
                }
            }
        }
    }
}
