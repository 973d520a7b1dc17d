//! Which pixels of a side count for each of another side, and how much.

use std::f64::consts::PI;
use std::ops::Range;

use super::{Resampling, ResizeLaw};

/// The filter of a resize.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Filter {
    /// One pixel, which one depends on the law: PyTorch's `nearest` looks at the upper left corner of a
    /// pixel, Pillow's at its centre.
    Nearest,
    /// One pixel, that at the centre.
    NearestExact,
    /// The mean of the pixels that are covered.
    Box,
    /// A triangle.
    #[default]
    Bilinear,
    /// A raised cosine, as sharp as bicubic and as local as bilinear.
    Hamming,
    /// A cubic with a = -0.5; by PyTorch's law without antialiasing, a = -0.75.
    Bicubic,
    /// A sinc, windowed by another one, of three lobes.
    Lanczos,
}

impl Filter {
    /// How far it reaches.
    fn support(self) -> f64 {
        match self {
            Filter::Nearest | Filter::NearestExact | Filter::Box => 0.5,
            Filter::Bilinear | Filter::Hamming => 1.0,
            Filter::Bicubic => 2.0,
            Filter::Lanczos => 3.0,
        }
    }

    /// Its value. The operations are those of Pillow, in their order.
    fn at(self, x: f64) -> f64 {
        match self {
            Filter::Nearest | Filter::NearestExact | Filter::Box => f64::from(x > -0.5 && x <= 0.5),
            Filter::Bilinear => (1.0 - x.abs()).max(0.0),
            Filter::Hamming => {
                let x = x.abs();
                let (most, wave) = (f64::from(0.54_f32), f64::from(0.46_f32));
                if x < 1.0 { sinc(x) * (most + wave * (x * PI).cos()) } else { 0.0 }
            }
            Filter::Bicubic => cubic(x, -0.5),
            Filter::Lanczos => {
                if (-3.0..3.0).contains(&x) {
                    sinc(x) * sinc(x / 3.0)
                } else {
                    0.0
                }
            }
        }
    }
}

fn sinc(x: f64) -> f64 {
    let x = x * PI;
    if x == 0.0 { 1.0 } else { x.sin() / x }
}

fn cubic(x: f64, a: f64) -> f64 {
    let x = x.abs();
    if x < 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * a
    } else {
        0.0
    }
}

/// The bits of Pillow's weights: a sum of 8 bits times these, with room for a sign and for what lobes add.
const PILLOW_BITS: u32 = 22;

/// For each pixel of a side, its neighbours in another side and their weights.
#[derive(Debug, Default)]
pub(super) struct Taps {
    how: Resampling,
    from: usize,
    to: usize,
    /// The fractional bits of the weights.
    pub(super) bits: u32,
    /// For each pixel: its first neighbour, and where its weights are.
    places: Vec<(usize, Range<usize>)>,
    weights: Vec<i32>,
    /// The weights before they are rounded.
    exact: Vec<f64>,
}

impl Taps {
    /// The most bytes that they take, by the widest filter.
    pub(super) fn bytes_max(from: usize, to: usize) -> usize {
        let weight = size_of::<i32>() + size_of::<f64>();
        // Six for each pixel of the larger side, and up to two more where the taps are rounded outwards.
        let weights = from.max(to).saturating_mul(6).saturating_add(to.saturating_mul(2));
        let places = to.saturating_mul(size_of::<(usize, Range<usize>)>());
        // A vector that grows has up to twice what it holds.
        weights.saturating_mul(weight).saturating_add(places).saturating_mul(2)
    }

    /// Whether they are for this.
    pub(super) fn are_for(&self, how: Resampling, from: usize, to: usize) -> bool {
        (self.how, self.from, self.to) == (how, from, to)
    }

    /// Taps from a side of `from` pixels to one of `to`, in the same memory.
    pub(super) fn refilled(mut self, how: Resampling, from: usize, to: usize) -> Self {
        (self.how, self.from, self.to) = (how, from, to);
        self.places.clear();
        self.exact.clear();
        for index in 0..to {
            let start = self.exact.len();
            let first = if how.antialias { self.antialiased(index) } else { self.plain(index) };
            self.places.push((first, start..self.exact.len()));
        }
        self.bits = match how.law {
            ResizeLaw::Pillow | ResizeLaw::Pillow13 => PILLOW_BITS,
            ResizeLaw::Torch => bits_of_16(&self.exact),
        };
        let one = f64::from(1_u32 << self.bits);
        self.weights.clear();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "weights are truncated, as in Pillow and PyTorch"
        )]
        let rounded = |weight: &f64| (weight * one + if *weight < 0.0 { -0.5 } else { 0.5 }) as i32;
        self.weights.extend(self.exact.iter().map(rounded));
        self
    }

    /// The first neighbour of each pixel, and the weights of it and of those after it.
    #[inline(always)]
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &[i32])> {
        self.places.iter().map(|(first, weights)| (*first, &self.weights[weights.clone()]))
    }

    /// Adds the weights of a pixel's neighbours; returns the first of these.
    #[expect(clippy::cast_precision_loss, reason = "sides are far below 2^53")]
    fn antialiased(&mut self, index: usize) -> usize {
        let filter = self.how.filter;
        let scale = self.from as f64 / self.to as f64;
        let stretch = scale.max(1.0);
        let (support, shrink) = (filter.support() * stretch, 1.0 / stretch);
        let centre = (index as f64 + 0.5) * scale;
        let first = trunc(centre - support + 0.5);
        let end = trunc(centre + support + 0.5).min(self.from);
        let start = self.exact.len();
        let mut sum = 0.0;
        for neighbour in first..end {
            let weight = filter.at((neighbour as f64 - centre + 0.5) * shrink);
            self.exact.push(weight);
            sum += weight;
        }
        if sum != 0.0 {
            self.exact[start..].iter_mut().for_each(|weight| *weight /= sum);
        }
        first
    }

    /// As [`antialiased`](Self::antialiased), but two or four neighbours, however far the image shrinks. The
    /// edge counts for what is beyond it.
    #[expect(clippy::cast_precision_loss, reason = "sides are far below 2^53")]
    fn plain(&mut self, index: usize) -> usize {
        let scale = self.from as f64 / self.to as f64;
        let place = (index as f64 + 0.5) * scale - 0.5;
        let is_cubic = self.how.filter == Filter::Bicubic;
        let place = if is_cubic { place } else { place.max(0.0) };
        let (near, part) = (place.floor(), place - place.floor());
        let cubics = [part + 1.0, part, 1.0 - part, 2.0 - part].map(|away| cubic(away, -0.75));
        let lines = [1.0 - part, part];
        let (first, weights): (f64, &[f64]) = if is_cubic { (near - 1.0, &cubics) } else { (near, &lines) };
        let last = self.from - 1;
        let within = |at: usize| trunc(first + at as f64).min(last);
        let start = self.exact.len();
        for (at, weight) in weights.iter().enumerate() {
            let slot = start + (within(at) - within(0));
            if slot == self.exact.len() {
                self.exact.push(0.0);
            }
            self.exact[slot] += weight;
        }
        within(0)
    }
}

/// As C converts to an integer; 0 for what is negative.
fn trunc(value: f64) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates at 0")]
    let truncated = value as usize;
    truncated
}

/// The most bits with which the largest of these weights is an `i16`.
fn bits_of_16(weights: &[f64]) -> u32 {
    let most = weights.iter().copied().fold(0.0, f64::max);
    let fits = |bits: u32| trunc(0.5 + most * f64::from(1_u32 << bits)) < 1 << 15;
    (0..PILLOW_BITS).find(|bits| !fits(bits + 1)).unwrap_or(PILLOW_BITS)
}
