//! The chromaticities of a PNG's cHRM chunk, and which of them libpng rejects.
//!
//! ```text
//! scale of red, green and blue   such that their sum is white of luminance 1, by Cramer's rule
//! possible                       if all scales are positive, and the chromaticities recomputed from the
//!                                colours agree to 5 of 100000
//! ```
//!
//! All numbers are in units of 1/100000, and are rounded where libpng rounds them.

/// One, as a signed number.
const UNIT: i64 = super::ONE as i64;
/// Products of two differences are divided by this, so that they fit 31 bits.
const PRODUCT_SHRINK: i64 = 7;
/// The largest allowed error of recomputed chromaticities.
const SLIP: i64 = 5;
/// The minimum luminance of white.
const WHITE_MIN: i64 = 5;

type Point = [i64; 2];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chromaticities {
    white: Point,
    /// Of red, green and blue.
    colors: [Point; 3],
}

impl Chromaticities {
    pub(super) const SRGB: Self =
        Self { white: [31_270, 32_900], colors: [[64_000, 33_000], [30_000, 60_000], [15_000, 6_000]] };

    /// Returns `None` if a number has its sign bit set: such a chunk is ignored.
    pub(super) fn parse(chunk: &[u8; 32]) -> Option<Self> {
        let number = |at: usize| {
            let number = u32::from_be_bytes([chunk[at], chunk[at + 1], chunk[at + 2], chunk[at + 3]]);
            i32::try_from(number).ok().map(i64::from)
        };
        let point = |at: usize| Some([number(at)?, number(at + 4)?]);
        Some(Self { white: point(0)?, colors: [point(8)?, point(16)?, point(24)?] })
    }

    pub(super) fn is_near(&self, other: &Self, distance: i64) -> bool {
        let points = self.colors.iter().chain([&self.white]).flatten();
        let others = other.colors.iter().chain([&other.white]).flatten();
        points.zip(others).all(|(a, b)| (a - b).abs() <= distance)
    }

    /// Whether such chromaticities are possible.
    pub(super) fn are_possible(&self) -> bool {
        let in_triangle = |&[x, y]: &Point| x <= UNIT && y <= UNIT - x;
        self.colors.iter().chain([&self.white]).all(in_triangle)
            && self.white[1] >= WHITE_MIN
            && self.round_trip().is_some_and(|back| self.is_near(&back, SLIP))
    }

    /// The chromaticities that are recomputed from the colours computed from these.
    fn round_trip(&self) -> Option<Self> {
        let Self { white, colors: [red, green, blue] } = *self;
        let from_blue = |[x, y]: Point| [x - blue[0], y - blue[1]];
        let cross = |a: Point, b: Point| {
            let ([ax, ay], [bx, by]) = (from_blue(a), from_blue(b));
            Some(scaled(ax, by, PRODUCT_SHRINK)? - scaled(ay, bx, PRODUCT_SHRINK)?)
        };
        let denominator = cross(green, red)?;
        // The reciprocals of the scales.
        let [red_inverse, green_inverse] = [cross(green, white)?, cross(white, red)?]
            .map(|numerator| scaled(white[1], denominator, numerator).filter(|&inverse| inverse > white[1]));
        let (red_inverse, green_inverse) = (red_inverse?, green_inverse?);
        let reciprocal = |number| scaled(UNIT, UNIT, number).unwrap_or(0);
        let blue_scale = reciprocal(white[1]) - reciprocal(red_inverse) - reciprocal(green_inverse);
        if blue_scale <= 0 {
            return None;
        }
        let parts = [(red, UNIT, red_inverse), (green, UNIT, green_inverse), (blue, blue_scale, UNIT)];
        let mut back = Self { white: [0; 2], colors: [[0; 2]; 3] };
        let mut sums = [0; 3];
        for (([x, y], times, over), back) in parts.into_iter().zip(&mut back.colors) {
            let color =
                [scaled(x, times, over)?, scaled(y, times, over)?, scaled(UNIT - x - y, times, over)?];
            *back = project(color)?;
            sums.iter_mut().zip(color).for_each(|(sum, part)| *sum += part);
        }
        back.white = project(sums)?;
        Some(back)
    }
}

/// The chromaticity of a colour.
fn project(color: [i64; 3]) -> Option<Point> {
    let sum = color.iter().sum();
    Some([scaled(color[0], UNIT, sum)?, scaled(color[1], UNIT, sum)?])
}

/// `a * b / c`, rounded. `None` if that is undefined or exceeds 32 bits.
fn scaled(a: i64, b: i64, c: i64) -> Option<i64> {
    if c == 0 {
        return None;
    }
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "numbers of 32 bits")]
    let scaled = (a as f64 * b as f64 / c as f64 + 0.5).floor() as i64;
    i32::try_from(scaled).ok().map(i64::from)
}
