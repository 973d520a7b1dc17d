//! Turns, shears, shifts and tilts images as Pillow does, bit for bit: what torchvision's `affine`, `rotate`
//! and `perspective`, and the policies that are made of them, do to a PIL image.
//!
//! ```text
//! place   = M (column + 0.5, row + 0.5)    in the image, whose pixels have their centres at 0.5, 1.5, ...
//! outside = the fill: a whole pixel, never blended
//! nearest   the pixel that holds the place
//! others    between the 4 or 16 pixels around place - 0.5; the edge is repeated; truncated to a byte
//! ```
//!
//! All of that is in f64, with the operations of Pillow in their order. Only the nearest pixel of an affine
//! transform is found otherwise: in 16.16 fixed point if there is a rotation or a shear and the corners are
//! within 32768 pixels, else by places that are added up in f64, pixel by pixel.
//!
//! ```
//! use percolator_image::warp::{Rotation, Warp, WarpFilter};
//! use percolator_image::{ImageShape, Planes};
//!
//! let shape = ImageShape { channels: 1, height: 2, width: 3 };
//! let image = Planes { shape, bytes: &[1, 2, 3, 4, 5, 6] };
//! let warp = Warp::rotation(Rotation { angle: 90.0, expand: true, ..Rotation::default() }, [2, 3]);
//! let mut out = [0; 6];
//! warp.apply(image, WarpFilter::Nearest, &[0], &mut out);
//! assert_eq!((warp.size(), out), ([3, 2], [3, 6, 2, 5, 1, 4]));
//! ```

mod draw;
mod matrix;
mod walk;

pub use matrix::{Affine, Rotation};

use crate::exif::Orientation;
use crate::simd::InstructionSet;
use crate::{ImageShape, Planes, elements, turn};
use draw::{Around, Draw, Nearest};
use walk::{Fixed, Projected, Summed, Walk};

/// How a pixel is found at a place of an image.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum WarpFilter {
    /// The pixel that holds the place.
    #[default]
    Nearest,
    /// Linear between the 4 pixels around it.
    Bilinear,
    /// A cubic with a = -1 through the 16 pixels around it; a [resize](crate::resample) has a = -0.5.
    Bicubic,
}

/// Where the pixels of an output come from. It is made for one size of images.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warp {
    /// The rows and columns of the output.
    size: [usize; 2],
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// Whole quarters.
    Turn(Orientation),
    /// Of the output's pixel (x, y): (m0 x + m1 y + m2, m3 x + m4 y + m5).
    Matrix([f64; 6]),
    /// The same over (c6 x + c7 y + 1).
    Perspective([f64; 8]),
}

/// The longest side, with which sums of a place and a few pixels still fit 32 bits.
const SIDE_MAX: usize = 1 << 30;

/// Each is made for images of `size`, which are rows and columns.
impl Warp {
    /// An affine transform by its matrix, row by row, from the output to the image: that of Pillow's
    /// `transform`. The output has this size, whatever that of the image is.
    #[must_use]
    pub fn matrix(matrix: [f64; 6], size: [usize; 2]) -> Self {
        Warp { size, how: How::Matrix(matrix) }
    }

    /// A perspective transform by its coefficients, from the output to the image: those of Pillow's
    /// `transform`. The output has this size, whatever that of the image is.
    #[must_use]
    pub fn perspective(coefficients: [f64; 8], size: [usize; 2]) -> Self {
        Warp { size, how: How::Perspective(coefficients) }
    }

    /// torchvision's `perspective`: it takes four points of the image, `from`, to the output's `to`. Points
    /// are x, y.
    #[must_use]
    pub fn tilt(from: [[f64; 2]; 4], to: [[f64; 2]; 4], size: [usize; 2]) -> Self {
        Self::perspective(matrix::tilt(from, to), size)
    }

    /// torchvision's `affine`.
    #[must_use]
    pub fn affine(affine: Affine, size: [usize; 2]) -> Self {
        Self::matrix(affine.matrix(size), size)
    }

    /// torchvision's and Pillow's `rotate`. The output may be larger than the image: [`size`](Self::size).
    #[must_use]
    pub fn rotation(rotation: Rotation, size: [usize; 2]) -> Self {
        match rotation.quarters(size) {
            Some(turn) => {
                let ImageShape { height, width, .. } =
                    turn.apply(ImageShape { channels: 1, height: size[0], width: size[1] });
                Warp { size: [height, width], how: How::Turn(turn) }
            }
            None => {
                let (matrix, size) = rotation.matrix(size);
                Self::matrix(matrix, size)
            }
        }
    }

    /// torchvision's `ShearX`: the image's column is the output's plus `factor` times its row.
    #[must_use]
    pub fn shear_x(factor: f64, size: [usize; 2]) -> Self {
        Self::shear([factor.atan().to_degrees(), 0.0], size)
    }

    /// torchvision's `ShearY`: the image's row is the output's plus `factor` times its column.
    #[must_use]
    pub fn shear_y(factor: f64, size: [usize; 2]) -> Self {
        Self::shear([0.0, factor.atan().to_degrees()], size)
    }

    fn shear(shear: [f64; 2], size: [usize; 2]) -> Self {
        Self::affine(Affine { shear, center: Some([0.0; 2]), ..Affine::default() }, size)
    }

    /// torchvision's `TranslateX`: to the right by whole pixels, to which `pixels` is truncated.
    #[must_use]
    pub fn translate_x(pixels: f64, size: [usize; 2]) -> Self {
        Self::affine(Affine { translate: [pixels.trunc(), 0.0], ..Affine::default() }, size)
    }

    /// torchvision's `TranslateY`: down by whole pixels, to which `pixels` is truncated.
    #[must_use]
    pub fn translate_y(pixels: f64, size: [usize; 2]) -> Self {
        Self::affine(Affine { translate: [0.0, pixels.trunc()], ..Affine::default() }, size)
    }

    /// The rows and columns of the output.
    #[must_use]
    pub fn size(&self) -> [usize; 2] {
        self.size
    }

    /// Fills the output, plane by plane. `fill` is what lies outside the image: one level for all planes, or
    /// one for each.
    ///
    /// A number that is not finite is outside.
    ///
    /// # Panics
    ///
    /// If the output has not as many planes of this [`size`](Self::size) as the image has planes, `fill` has
    /// neither one level nor as many as planes, a side is zero or above 2^30, a plane has 2^32 pixels or
    /// more, or a turn by whole quarters was made for another size.
    pub fn apply(&self, image: Planes<'_>, filter: WarpFilter, fill: &[u8], out: &mut [u8]) {
        let ImageShape { channels, height, width } = image.shape;
        let to = self.size;
        for [height, width] in [[height, width], to] {
            let is_side = |side: usize| (1..=SIDE_MAX).contains(&side);
            assert!(is_side(height) && is_side(width), "sides are neither zero nor huge");
            assert!((height as u64 * width as u64) < u64::from(u32::MAX), "a plane's pixels fit 32 bits");
        }
        let made = ImageShape { channels, height: to[0], width: to[1] };
        assert_eq!(image.bytes.len(), elements(image.shape), "the image has the bytes of its shape");
        assert_eq!(out.len(), elements(made), "the output has the size that is asked for");
        assert!(fill.len() == 1 || fill.len() == channels, "one level for all planes, or one for each");
        let draw = Draw { image, fill, to, out };
        match self.how {
            How::Turn(how) => {
                assert_eq!(how.apply(image.shape), made, "a turn of an image of this size");
                turn::turn(how, image.bytes, image.shape, draw.out);
            }
            How::Matrix(matrix) if filter == WarpFilter::Nearest => match Fixed::new(matrix, to) {
                Some(fixed) => nearest(fixed, draw),
                None => nearest(Summed::new(matrix, to), draw),
            },
            How::Matrix(matrix) => between(Projected::of_matrix(matrix), filter, draw),
            How::Perspective(coefficients) => {
                let walk = Projected::new(coefficients);
                match filter {
                    WarpFilter::Nearest => nearest(walk, draw),
                    WarpFilter::Bilinear | WarpFilter::Bicubic => between(walk, filter, draw),
                }
            }
        }
    }
}

fn nearest(walk: impl Walk, draw: Draw<'_>) {
    InstructionSet::widest().run(draw.by::<_, Nearest>(walk));
}

fn between(walk: impl Walk, filter: WarpFilter, draw: Draw<'_>) {
    let set = InstructionSet::widest();
    match filter {
        WarpFilter::Bicubic => set.run(draw.by::<_, Around<4>>(walk)),
        _ => set.run(draw.by::<_, Around<2>>(walk)),
    }
}
