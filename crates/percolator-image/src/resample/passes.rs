//! The two passes of a resize, as vector code.

use super::taps::Taps;
use crate::Window;
use crate::simd::{Kernel, interleaved};

/// How many rows are transposed at a time, and how many columns are summed at a time.
pub(super) const ROWS: usize = 32;

/// No weight is this. A loop that would end at one is not turned into one over many weights at a time, which
/// gathers a pixel for each and takes nearly four times as long for nine weights.
const NONE: i32 = i32::MIN;

/// A tile of the transpose.
const TILE: usize = 16;

/// A pass down the columns of a plane's window.
pub(super) struct DownColumns<'a> {
    pub(super) plane: &'a [u8],
    pub(super) stride: usize,
    pub(super) window: Window,
    pub(super) taps: &'a Taps,
    pub(super) out: &'a mut [u8],
}

impl Kernel for DownColumns<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { plane, stride, window, taps, out } = self;
        let Window { top, left, width, .. } = window;
        for ((first, weights), out) in taps.iter().zip(out.chunks_exact_mut(width)) {
            let start = (top + first) * stride + left;
            let mut at = 0;
            // The last step may begin within the one before it, as long as there is one.
            while at < width {
                let from = if at + ROWS <= width { at } else { width.saturating_sub(ROWS) };
                if width < ROWS {
                    for (column, out) in out.iter_mut().enumerate() {
                        let pixels = plane[start + column..].iter().step_by(stride);
                        *out = one(pixels, weights, taps.bits);
                    }
                    break;
                }
                let mut sums = [1_i32 << (taps.bits - 1); ROWS];
                for (row, &weight) in weights.iter().enumerate() {
                    if weight == NONE {
                        break;
                    }
                    add(&mut sums, lanes(plane, start + row * stride + from), weight);
                }
                out[from..from + ROWS].copy_from_slice(&bytes(&sums, taps.bits));
                at += ROWS;
            }
        }
    }
}

/// One pixel of a window that is narrower than a vector.
#[inline(always)]
fn one<'a>(pixels: impl Iterator<Item = &'a u8>, weights: &[i32], bits: u32) -> u8 {
    let mut sum = 1_i32 << (bits - 1);
    for (&pixel, &weight) in pixels.zip(weights) {
        sum += i32::from(pixel) * weight;
    }
    clamped(sum >> bits)
}

/// A pass along the rows of a plane's window.
pub(super) struct AlongRows<'a> {
    pub(super) plane: &'a [u8],
    pub(super) stride: usize,
    pub(super) window: Window,
    pub(super) taps: &'a Taps,
    /// Room for the columns of [`ROWS`] rows, before and after.
    pub(super) columns: &'a mut [[u8; ROWS]],
    pub(super) made: &'a mut [[u8; ROWS]],
    pub(super) out: &'a mut [u8],
}

impl Kernel for AlongRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { plane, stride, window, taps, columns, made, out } = self;
        let Window { top, left, height, width } = window;
        let to = made.len();
        for row in (0..height).step_by(ROWS) {
            let rows = ROWS.min(height - row);
            to_columns(&plane[(top + row) * stride + left..], stride, rows, width, columns);
            for ((first, weights), made) in taps.iter().zip(made.iter_mut()) {
                let mut sums = [1_i32 << (taps.bits - 1); ROWS];
                for (column, &weight) in columns[first..first + weights.len()].iter().zip(weights) {
                    if weight == NONE {
                        break;
                    }
                    add(&mut sums, column, weight);
                }
                *made = bytes(&sums, taps.bits);
            }
            to_rows(made, &mut out[row * to..(row + rows) * to], to);
        }
    }
}

/// Transposes rows to columns, of which the last elements are unspecified if there are fewer rows.
#[inline(always)]
fn to_columns(plane: &[u8], stride: usize, rows: usize, width: usize, columns: &mut [[u8; ROWS]]) {
    for half in (0..rows).step_by(TILE) {
        let mut starts = [0; TILE];
        for (at, start) in starts.iter_mut().enumerate() {
            // A row that is missing is another one again.
            *start = (half + at).min(rows - 1) * stride;
        }
        let mut from = 0;
        while from + TILE <= width {
            let mut tile = [[0; TILE]; TILE];
            for (row, start) in tile.iter_mut().zip(starts) {
                *row = *lanes(plane, start + from);
            }
            for (column, made) in transposed(tile).iter().zip(&mut columns[from..from + TILE]) {
                made[half..half + TILE].copy_from_slice(column);
            }
            from += TILE;
        }
        for column in from..width {
            for (made, start) in columns[column][half..].iter_mut().zip(starts) {
                *made = plane[start + column];
            }
        }
    }
}

/// Transposes columns back to rows.
#[inline(always)]
fn to_rows(columns: &[[u8; ROWS]], out: &mut [u8], width: usize) {
    let rows = out.len() / width;
    for half in (0..rows).step_by(TILE) {
        let rows = TILE.min(rows - half);
        let mut from = 0;
        while from + TILE <= width {
            let mut tile = [[0; TILE]; TILE];
            for (row, column) in tile.iter_mut().zip(&columns[from..from + TILE]) {
                *row = *lanes(column, half);
            }
            for (at, row) in transposed(tile).iter().enumerate().take(rows) {
                out[(half + at) * width + from..][..TILE].copy_from_slice(row);
            }
            from += TILE;
        }
        for (column, pixels) in columns.iter().enumerate().take(width).skip(from) {
            for at in 0..rows {
                out[(half + at) * width + column] = pixels[half + at];
            }
        }
    }
}

/// Transposes a tile: four times, each pair of rows that are half a tile apart is interleaved.
#[inline(always)]
fn transposed(mut tile: [[u8; TILE]; TILE]) -> [[u8; TILE]; TILE] {
    for _ in 0..4 {
        let mut next = [[0; TILE]; TILE];
        for pair in 0..TILE / 2 {
            let [low, high] = interleaved(tile[pair], tile[pair + TILE / 2]);
            next[2 * pair] = low;
            next[2 * pair + 1] = high;
        }
        tile = next;
    }
    tile
}

#[inline(always)]
fn lanes<const N: usize>(bytes: &[u8], from: usize) -> &[u8; N] {
    bytes[from..].first_chunk().expect("there are that many")
}

#[inline(always)]
fn add(sums: &mut [i32; ROWS], pixels: &[u8; ROWS], weight: i32) {
    for (sum, &pixel) in sums.iter_mut().zip(pixels) {
        *sum += i32::from(pixel) * weight;
    }
}

#[inline(always)]
fn bytes(sums: &[i32; ROWS], bits: u32) -> [u8; ROWS] {
    let mut bytes = [0; ROWS];
    for (byte, &sum) in bytes.iter_mut().zip(sums) {
        *byte = clamped(sum >> bits);
    }
    bytes
}

#[inline(always)]
fn clamped(level: i32) -> u8 {
    level.clamp(0, 255) as u8
}
