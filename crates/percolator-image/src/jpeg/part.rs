//! Which samples of a component a part of the image is made of.

use super::frame::{Component, Frame};
use crate::Window;

/// How a component is upsampled to the image's pixels, along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    /// The number of pixels per sample.
    pub(super) step: usize,
    /// The number of the component's samples that belong to the image.
    pub(super) samples: usize,
    /// The first needed sample, and the one after the last: those under the pixels and, if neighbours
    /// contribute, one more on either side.
    pub(super) start: usize,
    pub(super) end: usize,
    /// Whether there are two pixels per sample, to which the sample's neighbours contribute.
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

    /// The blocks that contain the samples, `side` samples in each.
    fn blocks(self, side: usize) -> std::ops::Range<usize> {
        self.start / side..self.end.div_ceil(side)
    }
}

/// A part of a component, in samples and in blocks. It is empty if the component is not needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) rows: std::ops::Range<usize>,
    pub(super) columns: std::ops::Range<usize>,
    /// The number of samples on a side of a block.
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

    /// The distance in bytes between rows of its samples.
    #[inline(always)]
    pub(super) fn stride(&self) -> usize {
        self.side * self.columns.len()
    }

    /// The number of its samples.
    pub(super) fn samples(&self) -> usize {
        self.side * self.rows.len() * self.stride()
    }

    /// The offset of a block that it contains.
    #[inline(always)]
    pub(super) fn start_of(&self, row: usize, column: usize) -> usize {
        self.side * ((row - self.rows.start) * self.stride() + column - self.columns.start)
    }
}

/// The rows and the columns of a component's samples that a window of the decoded image is made of.
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
