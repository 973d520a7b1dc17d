//! Turns an image upright.

use super::exif::Orientation;
use crate::ImageShape;

/// The side in pixels of the square that is transposed at a time: its rows and columns stay in the
/// first-level cache.
const TILE: usize = 32;

/// Turns the planes of an image of `shape`. `out` has the same number of elements.
pub(super) fn turn(how: Orientation, planes: &[u8], shape: ImageShape, out: &mut [u8]) {
    let pixels = shape.height * shape.width;
    for (plane, out) in planes.chunks_exact(pixels).zip(out.chunks_exact_mut(pixels)) {
        let width = how.apply(shape).width;
        if how.transposed {
            transpose(plane, shape.height, shape.width, out);
        } else {
            out.copy_from_slice(plane);
        }
        // Both flips together reverse the plane.
        match (how.mirrored, how.upside_down) {
            (true, true) => out.reverse(),
            (true, false) => out.chunks_exact_mut(width).for_each(<[u8]>::reverse),
            (false, true) => flip(out, width),
            (false, false) => {}
        }
    }
}

fn transpose(plane: &[u8], height: usize, width: usize, out: &mut [u8]) {
    for top in (0..height).step_by(TILE) {
        for left in (0..width).step_by(TILE) {
            for x in left..width.min(left + TILE) {
                for y in top..height.min(top + TILE) {
                    out[x * height + y] = plane[y * width + x];
                }
            }
        }
    }
}

/// Swaps the first row with the last, the second with the second to last, and so on.
fn flip(plane: &mut [u8], width: usize) {
    let mut rows = plane.chunks_exact_mut(width);
    while let (Some(upper), Some(lower)) = (rows.next(), rows.next_back()) {
        upper.swap_with_slice(lower);
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation, reason = "a test of small numbers")]
mod tests {
    use super::*;

    /// Where the EXIF standard stores the pixel (y, x) of the upright image.
    fn stored_at(number: u16, y: usize, x: usize, height: usize, width: usize) -> (usize, usize) {
        match number {
            1 => (y, x),
            2 => (y, width - 1 - x),
            3 => (height - 1 - y, width - 1 - x),
            4 => (height - 1 - y, x),
            5 => (x, y),
            6 => (width - 1 - x, y),
            7 => (width - 1 - x, height - 1 - y),
            8 => (x, height - 1 - y),
            _ => unreachable!(),
        }
    }

    #[test]
    fn every_orientation_comes_out_upright() {
        for (height, width) in [(1, 1), (1, 5), (4, 1), (3, 7), (40, 33), (33, 65)] {
            for number in 1..=8 {
                let upright = ImageShape { channels: 2, height, width };
                let how = Orientation::from_exif(number);
                let stored = how.apply(upright);
                let value = |c: usize, y: usize, x: usize| (c * 101 + y * 17 + x * 3) as u8;
                let mut planes = vec![0; 2 * height * width];
                let mut wanted = planes.clone();
                for (c, y, x) in
                    (0..2).flat_map(|c| (0..height).flat_map(move |y| (0..width).map(move |x| (c, y, x))))
                {
                    let (row, column) = stored_at(number, y, x, height, width);
                    planes[(c * stored.height + row) * stored.width + column] = value(c, y, x);
                    wanted[(c * height + y) * width + x] = value(c, y, x);
                }
                let mut out = vec![0; planes.len()];
                turn(how, &planes, stored, &mut out);
                assert_eq!(out, wanted, "orientation {number} of {upright}");
            }
        }
    }
}
