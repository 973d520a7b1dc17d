//! Changes colours as Pillow does, bit for bit, and so as torchvision changes those of PIL images.
//!
//! ```text
//! blend(a, b, f)  = trunc(a + f * (b - a)), clamped to a byte                                   in f32
//! grey            = (19595 R + 38470 G + 7471 B + 32768) >> 16
//! brightness      = blend(0, x, f)                     contrast  = blend(mean of grey, x, f)
//! saturation      = blend(grey, x, f)                  sharpness = blend(smooth, x, f)
//! hue             : to HSV of bytes, H + trunc(255 f), and back                                 hue.rs
//! smooth          : 3 x 3 pixels, the middle one with weight 5                                  sharpen.rs
//! posterize .. equalize: a new level for each level                                             levels.rs
//! gaussian_blur   : torchvision's, which even for PIL images is that of tensors                 blur.rs
//! pillow_blur     : Pillow's own, of boxes                                                      boxes.rs
//! ```
//!
//! The images are those of [`ColorMode::Rgb`](crate::ColorMode::Rgb), or grey. All work is in place; that
//! which combines neighbours takes a [`Scratch`].

mod blend;
mod blur;
mod boxes;
mod hue;
mod levels;
mod sharpen;

use crate::{ImageShape, Planes};

/// How many neighbouring pixels a kernel computes at a time.
const LANES: usize = 32;

/// An image whose colours change: three planes, red first, or one of grey.
#[derive(Debug, PartialEq, Eq)]
pub struct Picture<'a> {
    shape: ImageShape,
    bytes: &'a mut [u8],
}

impl<'a> Picture<'a> {
    /// An image of these planes.
    ///
    /// # Panics
    ///
    /// If there are neither 1 nor 3 channels, a side is zero, or there are more or fewer bytes than the shape
    /// has elements.
    #[must_use]
    pub fn new(shape: ImageShape, bytes: &'a mut [u8]) -> Self {
        assert!(matches!(shape.channels, 1 | 3), "red, green and blue, or grey");
        assert!(shape.height > 0 && shape.width > 0, "an image with pixels");
        assert_eq!(shape.checked_elements(), Some(bytes.len()), "the bytes of the shape");
        Self { shape, bytes }
    }

    /// Channels, rows and columns.
    #[must_use]
    pub fn shape(&self) -> ImageShape {
        self.shape
    }

    /// The planes as they are now.
    #[must_use]
    pub fn planes(&self) -> Planes<'_> {
        Planes { shape: self.shape, bytes: self.bytes }
    }

    fn pixels(&self) -> usize {
        self.shape.height * self.shape.width
    }

    fn planes_mut(&mut self) -> std::slice::ChunksExactMut<'_, u8> {
        let pixels = self.pixels();
        self.bytes.chunks_exact_mut(pixels)
    }

    /// Red, green and blue, unless the image is grey.
    fn colours(&mut self) -> Option<[&mut [u8]; 3]> {
        let mut planes = self.planes_mut();
        Some([planes.next()?, planes.next()?, planes.next()?])
    }
}

/// The memory of operations that combine neighbours, for image after image.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Copies of a plane, with borders.
    planes: Vec<u8>,
    /// A row in progress.
    row: Vec<f32>,
    /// The sums of boxes.
    sums: Vec<u32>,
    /// The weights of a blur, along rows and down columns.
    weights: [Vec<f32>; 2],
}

impl Scratch {
    /// The most bytes that [`sharpness`](Picture::sharpness) keeps for images of so many rows and columns,
    /// and [`gaussian_blur`](Picture::gaussian_blur) by a kernel of so many.
    #[must_use]
    pub fn held_bytes(size: [usize; 2], kernel: usize) -> usize {
        // Borders of half a kernel on either side, and rows in whole vectors.
        let [rows, columns] = size.map(|side| side.saturating_add(kernel).saturating_add(2 * LANES));
        let of_rows = (2 * size_of::<f32>()).saturating_mul(columns.saturating_add(kernel));
        rows.saturating_mul(columns).saturating_add(of_rows)
    }

    /// The most bytes that [`pillow_blur`](Picture::pillow_blur) keeps for images of so many rows and columns
    /// and radii up to this.
    #[must_use]
    pub fn held_by_boxes(size: [usize; 2], radius: f64) -> usize {
        boxes::held_bytes(size, radius)
    }
}

/// Number `at` of PyTorch's `linspace`: its second half is counted from the end. Of one number, that is the
/// first.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "there are far fewer than 2^24")]
pub fn linspace(start: f32, end: f32, len: usize, at: usize) -> f32 {
    if len < 2 {
        return start;
    }
    let step = (end - start) / (len - 1) as f32;
    if at < len / 2 { step.mul_add(at as f32, start) } else { (-step).mul_add((len - 1 - at) as f32, end) }
}

/// The pixels from here on that are computed together.
#[inline(always)]
fn lanes<T>(values: &[T], from: usize) -> &[T; LANES] {
    values[from..].first_chunk().expect("there are that many")
}

/// Writes levels to a row, as far as it goes.
#[inline(always)]
fn put(levels: &[u8; LANES], row: &mut [u8], from: usize) {
    let rest = &mut row[from..];
    match rest.first_chunk_mut::<LANES>() {
        Some(all) => *all = *levels,
        None => rest.copy_from_slice(&levels[..rest.len()]),
    }
}

/// A level without its fraction, clamped to a byte.
#[inline(always)]
fn truncated(level: f32) -> u8 {
    // A conversion with `as` is not vector code. Of this sum, whole numbers are the lowest bits.
    const WHOLE: f32 = (1 << 23) as f32;
    let level = level.clamp(0.0, 255.0);
    let rounded = level + WHOLE;
    let [byte, ..] = (rounded.to_bits() - u32::from(rounded - WHOLE > level)).to_le_bytes();
    byte
}

/// A level on the way from `plain` (a factor of 0) to `level` (a factor of 1), or beyond.
#[inline(always)]
fn blended(plain: f32, level: f32, factor: f32) -> u8 {
    truncated(plain + factor * (level - plain))
}

/// A factor as Pillow takes it.
fn single(factor: f64) -> f32 {
    #[expect(clippy::cast_possible_truncation, reason = "rounded, as Pillow rounds it")]
    let factor = factor as f32;
    factor
}

#[cfg(test)]
mod tests;
