//! Draws an output from the places of its pixels, as vector code except for the loads.

use std::marker::PhantomData;

use super::walk::{LANES, Places, Walk};
use crate::simd::Kernel;
use crate::{ImageShape, Planes};

/// An output, and what it is drawn from.
pub(super) struct Draw<'a> {
    pub(super) image: Planes<'a>,
    /// The level of each plane outside the image, or one for all.
    pub(super) fill: &'a [u8],
    /// The rows and columns of the output.
    pub(super) to: [usize; 2],
    pub(super) out: &'a mut [u8],
}

impl<'a> Draw<'a> {
    /// This drawing with this walk and these neighbours.
    pub(super) fn by<W: Walk, N: Neighbours>(self, walk: W) -> DrawBy<'a, W, N> {
        DrawBy { draw: self, walk, neighbours: PhantomData }
    }
}

/// The pixels that the pixels of an output come from, the same in each plane.
pub(super) trait Neighbours {
    /// Those of these places. The image has fewer than 2^32 pixels, and sides of at most 2^30.
    fn at(places: &Places, shape: ImageShape) -> Self;

    /// Draws the first of them, as many as there are in `out`.
    fn draw(&self, plane: &[u8], fill: u8, out: &mut [u8]);
}

/// A [`Draw`] by a walk and by neighbours.
pub(super) struct DrawBy<'a, W, N> {
    draw: Draw<'a>,
    walk: W,
    neighbours: PhantomData<N>,
}

impl<W: Walk, N: Neighbours> Kernel for DrawBy<'_, W, N> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { draw: Draw { image, fill, to: [height, width], out }, mut walk, .. } = self;
        let pixels = image.shape.height * image.shape.width;
        for row in 0..height {
            for from in (0..width).step_by(LANES) {
                let neighbours = N::at(&walk.places(), image.shape);
                let len = LANES.min(width - from);
                for channel in 0..image.shape.channels {
                    let plane = &image.bytes[channel * pixels..][..pixels];
                    let fill = if fill.len() == 1 { fill[0] } else { fill[channel] };
                    let at = (channel * height + row) * width + from;
                    neighbours.draw(plane, fill, &mut out[at..][..len]);
                }
            }
            walk.next_row();
        }
    }
}

/// Between 2^52 and 2^53 there are whole numbers only, and their last bits are an integer's.
const WHOLES: f64 = 6_755_399_441_055_744.0;

/// A number between -2^50 and 2^50, rounded down. Vectors of the baseline cannot do it, and casts that
/// saturate do not become vector code at all.
#[inline(always)]
fn floor(number: f64) -> f64 {
    let nearest = number + WHOLES - WHOLES;
    if nearest > number { nearest - 1.0 } else { nearest }
}

/// The last 32 bits of a whole number between -2^50 and 2^50.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "the last bits")]
fn integer(whole: f64) -> i32 {
    (whole + WHOLES).to_bits() as u32 as i32
}

/// Whether a place is in the image. One that is not a number is not.
#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "sides are at most 2^30")]
fn is_in(x: f64, y: f64, shape: ImageShape) -> bool {
    (x >= 0.0) & (x < shape.width as f64) & (y >= 0.0) & (y < shape.height as f64)
}

/// The pixels that hold the places.
pub(super) struct Nearest {
    /// Their offsets in a plane. That of a pixel outside is larger than any.
    offsets: [u32; LANES],
    /// Whether they lie side by side.
    abreast: bool,
}

impl Neighbours for Nearest {
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "offsets are below 2^32, and lanes are few"
    )]
    fn at([xs, ys]: &Places, shape: ImageShape) -> Self {
        let width = shape.width as f64;
        let mut offsets = [0; LANES];
        for ((offset, &x), &y) in offsets.iter_mut().zip(xs).zip(ys) {
            let within = integer(floor(y) * width + floor(x)) as u32;
            *offset = if is_in(x, y, shape) { within } else { u32::MAX };
        }
        let mut abreast = offsets[0] != u32::MAX;
        for (after, &offset) in offsets.iter().enumerate() {
            abreast &= offset == offsets[0].wrapping_add(after as u32);
        }
        Nearest { offsets, abreast }
    }

    #[inline(always)]
    fn draw(&self, plane: &[u8], fill: u8, out: &mut [u8]) {
        if self.abreast {
            out.copy_from_slice(&plane[self.offsets[0] as usize..][..out.len()]);
            return;
        }
        for (out, &offset) in out.iter_mut().zip(&self.offsets) {
            *out = plane.get(offset as usize).copied().unwrap_or(fill);
        }
    }
}

/// The `SIDE` times `SIDE` pixels around the places: 2 for bilinear, 4 for bicubic.
pub(super) struct Around<const SIDE: usize> {
    /// Their columns.
    columns: [[u32; LANES]; SIDE],
    /// Whether the columns of each place lie side by side: no edge is repeated.
    abreast: bool,
    /// The offsets at which their rows begin.
    rows: [[u32; LANES]; SIDE],
    /// How far each place is from the middle left one, and from the middle upper one.
    parts: [[f64; LANES]; 2],
    /// Which places are in the image, and whether any is. The others have neighbours too.
    inside: [bool; LANES],
    any_inside: bool,
}

impl<const SIDE: usize> Neighbours for Around<SIDE> {
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "sides are at most 2^30, and neighbours are few"
    )]
    fn at([xs, ys]: &Places, shape: ImageShape) -> Self {
        let (mut inside, mut any_inside) = ([false; LANES], false);
        let (mut xs, mut ys) = (*xs, *ys);
        let middle = (shape.width as f64 * 0.5, shape.height as f64 * 0.5);
        for ((inside, x), y) in inside.iter_mut().zip(&mut xs).zip(&mut ys) {
            *inside = is_in(*x, *y, shape);
            any_inside |= *inside;
            (*x, *y) = if *inside { (*x, *y) } else { middle };
        }
        let (columns, across) = along::<SIDE>(&xs, shape.width, 1);
        let (rows, down) = along::<SIDE>(&ys, shape.height, shape.width);
        let mut abreast = true;
        for (after, others) in columns.iter().enumerate() {
            for (first, other) in columns[0].iter().zip(others) {
                abreast &= *other == first + after as u32;
            }
        }
        Around { columns, abreast, rows, parts: [across, down], inside, any_inside }
    }

    #[inline(always)]
    fn draw(&self, plane: &[u8], fill: u8, out: &mut [u8]) {
        if !self.any_inside {
            out.fill(fill);
            return;
        }
        let [across, down] = &self.parts;
        let mut lines = [[0.0; LANES]; SIDE];
        for (line, rows) in lines.iter_mut().zip(&self.rows) {
            *line = mixed(&unpacked::<SIDE>(&self.row(plane, rows)), across);
        }
        let levels = bytes(&mixed(&lines, down));
        let mut drawn = [0; LANES];
        for ((drawn, &level), &inside) in drawn.iter_mut().zip(&levels).zip(&self.inside) {
            *drawn = if inside { level } else { fill };
        }
        out.copy_from_slice(&drawn[..out.len()]);
    }
}

impl<const SIDE: usize> Around<SIDE> {
    /// The levels of a row of neighbours, a byte each, the first one lowest.
    #[inline(always)]
    fn row(&self, plane: &[u8], rows: &[u32; LANES]) -> [u32; LANES] {
        let mut packed = [0; LANES];
        if self.abreast {
            for ((packed, row), first) in packed.iter_mut().zip(rows).zip(&self.columns[0]) {
                let mut levels = [0; 4];
                levels[..SIDE].copy_from_slice(&plane[(row + first) as usize..][..SIDE]);
                *packed = u32::from_le_bytes(levels);
            }
            return packed;
        }
        for (after, columns) in self.columns.iter().enumerate() {
            for ((packed, row), column) in packed.iter_mut().zip(rows).zip(columns) {
                *packed |= u32::from(plane[(row + column) as usize]) << (8 * after);
            }
        }
        packed
    }
}

/// The neighbours of places in one direction, times `step`; and how far the places are from the middle one
/// before them. The edge is repeated.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "places are in the image, whose sides are at most 2^30, and its pixels fewer than 2^32"
)]
fn along<const SIDE: usize>(
    places: &[f64; LANES],
    side: usize,
    step: usize,
) -> ([[u32; LANES]; SIDE], [f64; LANES]) {
    let (last, step) = (side as i32 - 1, step as u32);
    let (mut firsts, mut parts) = ([0; LANES], [0.0; LANES]);
    for ((first, part), place) in firsts.iter_mut().zip(&mut parts).zip(places) {
        let place = place - 0.5;
        let near = floor(place);
        *part = place - near;
        *first = integer(near) - (SIDE as i32 / 2 - 1);
    }
    let mut neighbours = [[0; LANES]; SIDE];
    for (after, neighbours) in neighbours.iter_mut().enumerate() {
        for (neighbour, first) in neighbours.iter_mut().zip(&firsts) {
            *neighbour = (first + after as i32).clamp(0, last) as u32 * step;
        }
    }
    (neighbours, parts)
}

/// The levels of each neighbour.
#[inline(always)]
#[expect(clippy::cast_possible_wrap, reason = "they are bytes")]
fn unpacked<const SIDE: usize>(packed: &[u32; LANES]) -> [[f64; LANES]; SIDE] {
    let mut unpacked = [[0.0; LANES]; SIDE];
    for (after, levels) in unpacked.iter_mut().enumerate() {
        for (level, packed) in levels.iter_mut().zip(packed) {
            *level = f64::from((packed >> (8 * after) & 255) as i32);
        }
    }
    unpacked
}

/// The levels between these: linear between 2, cubic through 4.
#[inline(always)]
fn mixed<const SIDE: usize>(levels: &[[f64; LANES]; SIDE], parts: &[f64; LANES]) -> [f64; LANES] {
    let mut mixed = [0.0; LANES];
    for (lane, (mixed, part)) in mixed.iter_mut().zip(parts).enumerate() {
        *mixed = match &levels[..] {
            [a, b] => a[lane] + (b[lane] - a[lane]) * part,
            [a, b, c, d] => {
                let [a, b, c, d] = [a[lane], b[lane], c[lane], d[lane]];
                let (slope, third) = (-a + c, -a + b - c + d);
                b + part * (slope + part * ((2.0 * (a - b) + c - d) + part * third))
            }
            _ => unreachable!("2 or 4"),
        };
    }
    mixed
}

/// Truncated to bytes.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "levels are clamped to bytes")]
fn bytes(levels: &[f64; LANES]) -> [u8; LANES] {
    let mut bytes = [0; LANES];
    for (byte, &level) in bytes.iter_mut().zip(levels) {
        *byte = integer(floor(level.clamp(0.0, 255.0))) as u8;
    }
    bytes
}
