//! A JPEG's samples, component by component, and the image's planes made from them.

use super::Colors;
use super::frame::{COMPONENTS_MAX, Frame};
use super::idct::{self, SIDE};
use super::inks;
use super::part::{Axis, Part, axes};
use super::quantize::Block;
use super::reduced;
use super::scan::COEFFICIENTS;
use super::upsample::{Row, Samples};
use super::ycc;
use crate::ImageShape;
use crate::simd::Kernel;
use crate::{DecodeError, Window, room};

/// The needed samples of one component.
#[derive(Debug)]
pub(super) struct Plane {
    pub(super) samples: Vec<u8>,
    pub(super) part: Part,
    /// The quantization steps.
    pub(super) steps: Block,
    /// The axes of rows and of columns.
    axes: [Axis; 2],
}

impl Plane {
    /// Transforms a block, whose samples start at `start`. `coded` is greater than the index of every nonzero
    /// coefficient.
    #[inline(always)]
    pub(super) fn transform(&mut self, block: &Block, coded: usize, start: usize) {
        let (out, stride) = (&mut self.samples[start..], self.part.stride());
        match self.part.side {
            SIDE => idct::inverse(block, &self.steps, coded, out, stride),
            side => reduced::inverse(side, block, &self.steps, coded, out, stride),
        }
    }
}

impl Default for Plane {
    fn default() -> Self {
        let none = Axis { step: 1, samples: 0, start: 0, end: 0, interpolates: false };
        Self { samples: Vec::new(), part: Part::default(), steps: [0; COEFFICIENTS], axes: [none; 2] }
    }
}

/// The samples of an image. Keeps its buffers.
#[derive(Debug, Default)]
pub(super) struct Planes(pub(super) [Plane; COMPONENTS_MAX]);

impl Planes {
    /// Makes room for what a window of the image needs, from the first `needed` components.
    pub(super) fn start(&mut self, frame: &Frame, window: Window, needed: usize) -> Result<(), DecodeError> {
        for plane in &mut self.0 {
            plane.part = Part::default();
        }
        for (plane, component) in self.0.iter_mut().zip(frame.components()).take(needed) {
            plane.axes = axes(frame, component, window);
            plane.part = Part::new(plane.axes, component.side);
            room(&mut plane.samples, plane.part.samples())?;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|plane| plane.samples.capacity()).sum()
    }
}

/// How the planes of an image are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mixing {
    /// All planes are the first component.
    Grey,
    /// B, G, R from Y, Cb, Cr.
    Ycc,
    /// B, G, R from R, G, B.
    Rgb,
    /// Grey from R, G, B.
    GreyOfRgb,
    /// B, G, R, or grey, from C, M, Y, K, which are stored inverted.
    Cmyk,
    /// The same from Y, Cb, Cr, K: the first three are those of R, G, B, each the inverse of a stored ink.
    Ycck,
}

impl Mixing {
    pub(super) fn new(components: usize, colors: Colors, channels: usize) -> Self {
        match (components, colors, channels) {
            (4, Colors::Rgb, _) => Mixing::Cmyk,
            (4, Colors::Ycc, _) => Mixing::Ycck,
            (1, ..) | (_, Colors::Ycc, 1) => Mixing::Grey,
            (_, Colors::Ycc, _) => Mixing::Ycc,
            (_, Colors::Rgb, 1) => Mixing::GreyOfRgb,
            (_, Colors::Rgb, _) => Mixing::Rgb,
        }
    }

    /// The number of components that are needed.
    pub(super) fn components(self) -> usize {
        match self {
            Mixing::Grey => 1,
            Mixing::Ycc | Mixing::Rgb | Mixing::GreyOfRgb => 3,
            Mixing::Cmyk | Mixing::Ycck => 4,
        }
    }
}

/// Rows of pixels of the components. The buffers are kept.
#[derive(Debug, Default)]
pub(super) struct Rows([Row; COMPONENTS_MAX]);

/// Writes a window of an image to its planes, and nothing outside it.
pub(super) struct Write<'a> {
    pub(super) planes: &'a Planes,
    pub(super) rows: &'a mut Rows,
    pub(super) mixing: Mixing,
    /// Whether the planes are R, G, B, and inks are mixed as Pillow does it.
    pub(super) is_rgb: bool,
    pub(super) shape: ImageShape,
    pub(super) window: Window,
    pub(super) out: &'a mut [u8],
}

impl Kernel for Write<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { planes, rows, mixing, is_rgb, shape, window, out } = self;
        let samples = |at: usize| {
            let Plane { samples, part, axes: [down, across], .. } = &planes.0[at];
            Samples { samples, part, down: *down, across: *across }
        };
        let samples = [samples(0), samples(1), samples(2), samples(3)];
        let Rows([row0, row1, row2, row3]) = rows;
        let pixels = shape.height * shape.width;
        let (out0, rest) = out.split_at_mut(pixels);
        let (out1, out2) = rest.split_at_mut(if shape.channels == 3 { pixels } else { 0 });
        let Window { left, width, .. } = window;
        for y in window.top..window.top + window.height {
            let place = y * shape.width + left..y * shape.width + left + width;
            let first = samples[0].pixels(y, left, width, row0);
            let grey = &mut out0[place.clone()];
            if mixing == Mixing::Grey {
                grey.copy_from_slice(first);
                if shape.channels == 3 {
                    out1[place.clone()].copy_from_slice(first);
                    out2[place].copy_from_slice(first);
                }
                continue;
            }
            let components =
                [first, samples[1].pixels(y, left, width, row1), samples[2].pixels(y, left, width, row2)];
            if mixing == Mixing::GreyOfRgb {
                ycc::to_grey(components, grey);
                continue;
            }
            if matches!(mixing, Mixing::Cmyk | Mixing::Ycck) {
                let black = samples[3].pixels(y, left, width, row3);
                let is_ycc = mixing == Mixing::Ycck;
                if shape.channels == 1 {
                    inks::to_grey(components, black, is_ycc, grey);
                    continue;
                }
                let mut bgr = [grey, &mut out1[place.clone()], &mut out2[place]];
                if is_rgb {
                    bgr.reverse();
                }
                inks::to_bgr(components, black, is_ycc, is_rgb, bgr);
                continue;
            }
            let mut bgr = [grey, &mut out1[place.clone()], &mut out2[place]];
            if is_rgb {
                bgr.reverse();
            }
            if mixing == Mixing::Ycc {
                ycc::to_bgr(components, bgr);
            } else {
                for (row, component) in bgr.into_iter().zip(components.into_iter().rev()) {
                    row.copy_from_slice(component);
                }
            }
        }
    }
}
