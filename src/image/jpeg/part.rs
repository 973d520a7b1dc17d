//! Which samples of a component a part of the image is made of.

use super::frame::{Component, Frame};
use crate::image::Window;

/// How a component's samples become as many as the image has pixels, along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    /// Pixels to a sample.
    pub(super) step: usize,
    /// Samples of the component that have to do with the image.
    pub(super) samples: usize,
    /// The first sample that is needed, and the one behind the last: of those that the pixels lie in, and where
    /// neighbours have a part in them, of one more at either side.
    pub(super) start: usize,
    pub(super) end: usize,
    /// Whether there are two pixels to a sample, and the neighbours of the sample have a part in them.
    pub(super) interpolates: bool,
}

impl Axis {
    fn new(step: usize, samples: usize, from: usize, len: usize, interpolates: bool) -> Self {
        let interpolates = interpolates && step == 2;
        let beside = usize::from(interpolates);
        let start = (from / step).saturating_sub(beside);
        let end = ((from + len).div_ceil(step) + beside).min(samples);
        Self { step, samples, start, end, interpolates }
    }

    /// The blocks in which the samples lie, `side` of them in each.
    fn blocks(self, side: usize) -> std::ops::Range<usize> {
        self.start / side..self.end.div_ceil(side)
    }
}

/// A part of a component, in samples and in blocks. It is empty where the component is not needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) rows: std::ops::Range<usize>,
    pub(super) columns: std::ops::Range<usize>,
    /// Samples on a side of a block.
    pub(super) side: usize,
}

impl Part {
    pub(super) fn new([down, across]: [Axis; 2], side: usize) -> Self {
        Self { rows: down.blocks(side), columns: across.blocks(side), side }
    }

    #[inline(always)]
    pub(super) fn contains(&self, row: usize, column: usize) -> bool {
        self.rows.contains(&row) && self.columns.contains(&column)
    }

    /// Bytes from a row of its samples to the next.
    #[inline(always)]
    pub(super) fn stride(&self) -> usize {
        self.side * self.columns.len()
    }

    /// How many samples it has.
    pub(super) fn samples(&self) -> usize {
        self.side * self.rows.len() * self.stride()
    }

    /// Where a block starts that it contains.
    #[inline(always)]
    pub(super) fn start_of(&self, row: usize, column: usize) -> usize {
        self.side * ((row - self.rows.start) * self.stride() + column - self.columns.start)
    }
}

/// The rows and the columns of a component's samples that a window of the image, as it is decoded, is made of.
pub(super) fn axes(frame: &Frame, component: &Component, window: Window) -> [Axis; 2] {
    let ([rows, columns], [down, across]) = (frame.samples(component), frame.steps(component));
    let interpolates = frame.interpolates();
    [
        Axis::new(down, rows, window.top, window.height, interpolates),
        Axis::new(across, columns, window.left, window.width, interpolates),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_part_holds_every_sample_that_a_pixel_is_made_of(
            pixels in 1..200usize,
            step in 1..5usize,
            from in 0..200usize,
            len in 1..200usize,
            side in prop::sample::select(vec![8, 4, 2, 1usize]),
            interpolates in any::<bool>(),
        ) {
            let from = from % pixels;
            let len = 1 + len % (pixels - from);
            let samples = pixels.div_ceil(step);
            let axis = Axis::new(step, samples, from, len, interpolates);
            prop_assert!(axis.end <= samples);
            let part = Part::new([axis, axis], side);
            for pixel in from..from + len {
                let own = pixel / step;
                let beside = if step == 2 && interpolates { 1 } else { 0 };
                for sample in own.saturating_sub(beside)..=(own + beside).min(samples - 1) {
                    prop_assert!((axis.start..axis.end).contains(&sample));
                    prop_assert!(part.contains(sample / side, sample / side));
                }
            }
            prop_assert!(part.rows.end <= samples.div_ceil(side));
        }
    }

    #[test]
    fn an_empty_part_contains_nothing() {
        let part = Part::default();
        assert!(!part.contains(0, 0));
        assert_eq!((part.samples(), part.stride()), (0, 0));
    }
}
