//! The matrices of affine transforms and of rotations, with the operations of torchvision and Pillow in their
//! order.

use crate::exif::Orientation;

/// An affine transform as torchvision describes it: sheared, scaled and rotated about a centre, then moved.
/// Pairs are x, y.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct Affine {
    /// Degrees, clockwise.
    pub angle: f64,
    /// Pixels to the right and down.
    pub translate: [f64; 2],
    /// How much larger the picture becomes.
    pub scale: f64,
    /// Degrees, along x and along y.
    pub shear: [f64; 2],
    /// The centre in pixels from the upper left corner; that of the image if there is none.
    pub center: Option<[f64; 2]>,
}

/// It leaves an image as it is.
impl Default for Affine {
    fn default() -> Self {
        Affine { angle: 0.0, translate: [0.0; 2], scale: 1.0, shear: [0.0; 2], center: None }
    }
}

impl Affine {
    /// From the output to an image of this size.
    pub(super) fn matrix(&self, size: [usize; 2]) -> [f64; 6] {
        let rot = self.angle.to_radians();
        let [sx, sy] = self.shear.map(f64::to_radians);
        let [width, height] = sides(size);
        let [cx, cy] = self.center.unwrap_or([width * 0.5, height * 0.5]);
        let [tx, ty] = self.translate;
        let a = (rot - sy).cos() / sy.cos();
        let b = -(rot - sy).cos() * sx.tan() / sy.cos() - rot.sin();
        let c = (rot - sy).sin() / sy.cos();
        let d = -(rot - sy).sin() * sx.tan() / sy.cos() + rot.cos();
        let mut m = [d, -b, 0.0, -c, a, 0.0].map(|element| element / self.scale);
        m[2] += m[0] * (-cx - tx) + m[1] * (-cy - ty);
        m[5] += m[3] * (-cx - tx) + m[4] * (-cy - ty);
        m[2] += cx;
        m[5] += cy;
        m
    }
}

/// The coefficients of the perspective that takes four points to others, solved in f64 and rounded to f32, as
/// torchvision does it. Of points without one, they are numbers of any kind.
pub(super) fn tilt(from: [[f64; 2]; 4], to: [[f64; 2]; 4]) -> [f64; 8] {
    let mut rows = [[0.0; 9]; 8];
    for (pair, ([x, y], [from_x, from_y])) in rows.chunks_exact_mut(2).zip(to.into_iter().zip(from)) {
        pair[0] = [x, y, 1.0, 0.0, 0.0, 0.0, -from_x * x, -from_x * y, from_x];
        pair[1] = [0.0, 0.0, 0.0, x, y, 1.0, -from_y * x, -from_y * y, from_y];
    }
    for column in 0..8 {
        let size = |row: &usize| rows[*row][column].abs();
        let largest = (column..8).max_by(|a, b| size(a).total_cmp(&size(b))).unwrap_or(column);
        rows.swap(column, largest);
        let divisor = rows[column][column];
        let pivot = rows[column].map(|element| element / divisor);
        for row in &mut rows {
            let factor = row[column];
            for (element, of_pivot) in row.iter_mut().zip(pivot) {
                *element -= factor * of_pivot;
            }
        }
        rows[column] = pivot;
    }
    #[expect(clippy::cast_possible_truncation, reason = "rounded, as torchvision rounds it")]
    rows.map(|row| f64::from(row[8] as f32))
}

/// A rotation as Pillow and torchvision describe it.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct Rotation {
    /// Degrees, anticlockwise.
    pub angle: f64,
    /// Whether the output is as large as the rotated image. That takes the centre to be the image's.
    pub expand: bool,
    /// The centre x, y in pixels from the upper left corner; that of the image if there is none.
    pub center: Option<[f64; 2]>,
}

impl Rotation {
    /// The angle from 0 up to 360 degrees.
    fn turned(&self) -> f64 {
        self.angle.rem_euclid(360.0)
    }

    /// The turn by whole quarters, if it is one whose output holds the image exactly.
    pub(super) fn quarters(&self, [height, width]: [usize; 2]) -> Option<Orientation> {
        let angle = self.turned();
        let (transposed, mirrored, upside_down) = match self.center {
            Some(_) => return None,
            None if angle == 0.0 => (false, false, false),
            None if angle == 180.0 => (false, true, true),
            None if !self.expand && height != width => return None,
            None if angle == 90.0 => (true, false, true),
            None if angle == 270.0 => (true, true, false),
            None => return None,
        };
        Some(Orientation { transposed, mirrored, upside_down })
    }

    /// From the output to an image of this size; and the output's rows and columns.
    pub(super) fn matrix(&self, size: [usize; 2]) -> ([f64; 6], [usize; 2]) {
        let angle = -self.turned().to_radians();
        let [cos, sin, minus_sin] = [angle.cos(), angle.sin(), -angle.sin()].map(to_15_places);
        let mut m = [cos, sin, 0.0, minus_sin, cos, 0.0];
        let sides = sides(size);
        let [cx, cy] = self.center.unwrap_or(sides.map(|side| side / 2.0));
        let [x, y] = mapped(&m, -cx, -cy);
        (m[2], m[5]) = (x + cx, y + cy);
        if !self.expand {
            return (m, size);
        }
        let [width, height] = sides;
        let corners =
            [[0.0, 0.0], [width, 0.0], [width, height], [0.0, height]].map(|[x, y]| mapped(&m, x, y));
        // No side of a rotated image is longer. A number that is not finite is 1.
        let longest = width + height + 2.0;
        let [width_then, height_then] = [0, 1].map(|axis| {
            let of_axis = corners.map(|corner| corner[axis]);
            let most = of_axis.into_iter().fold(f64::NEG_INFINITY, f64::max);
            let least = of_axis.into_iter().fold(f64::INFINITY, f64::min);
            (most.ceil() - least.floor()).max(1.0).min(longest)
        });
        [m[2], m[5]] = mapped(&m, -(width_then - width) / 2.0, -(height_then - height) / 2.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and positive")]
        let size = [height_then, width_then].map(|side| side as usize);
        (m, size)
    }
}

fn mapped(m: &[f64; 6], x: f64, y: f64) -> [f64; 2] {
    [m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]]
}

/// Columns and rows, in Pillow's order.
#[expect(clippy::cast_precision_loss, reason = "sides are far below 2^53")]
fn sides([height, width]: [usize; 2]) -> [f64; 2] {
    [width as f64, height as f64]
}

/// Rounds a number of at most 1 to 15 decimal places, as Python does: by its exact value.
fn to_15_places(number: f64) -> f64 {
    const UNIT: f64 = 1e15;
    let units = number * UNIT;
    let lost = number.mul_add(UNIT, -units);
    let mut nearest = units.round_ties_even();
    // Only here does it matter what the product has lost.
    if (units - nearest).abs() == 0.5 && lost != 0.0 {
        nearest = if lost > 0.0 { units.ceil() } else { units.floor() };
    }
    nearest / UNIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_rounded_by_its_exact_decimals() {
        let numbers = (0..if cfg!(miri) { 100 } else { 20_000 }).map(|step| f64::from(step) * 0.0314159);
        for number in numbers.flat_map(|angle| [angle.cos(), angle.sin()]).chain([0.0, 1.0, -1.0, 0.5]) {
            let wanted: f64 = format!("{number:.15}").parse().unwrap();
            assert_eq!(to_15_places(number), wanted, "{number:e}");
        }
        assert!(to_15_places(f64::NAN).is_nan());
    }
}
