//! Which samples of a component a part of the image is made of.

use super::frame::{Component, Frame};
use super::idct::SIDE;
use crate::decode::Window;

/// How a component's samples become as many as the image has pixels, along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    /// Pixels to a sample.
    pub(super) step: usize,
    /// Samples of the component that have to do with the image.
    pub(super) samples: usize,
    /// The first sample that is needed, and the one behind the last: of those that the pixels lie in, and where
    /// there are two pixels to a sample, whose neighbours have a part in them, of one more at either side.
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Axis {
    fn new(step: usize, samples: usize, from: usize, len: usize) -> Self {
        let beside = usize::from(step == 2);
        let start = (from / step).saturating_sub(beside);
        let end = ((from + len).div_ceil(step) + beside).min(samples);
        Self { step, samples, start, end }
    }

    /// The blocks in which the samples lie.
    fn blocks(self) -> std::ops::Range<usize> {
        self.start / SIDE..self.end.div_ceil(SIDE)
    }
}

/// A part of a component, in samples and in blocks. It is empty where the component is not needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) rows: std::ops::Range<usize>,
    pub(super) columns: std::ops::Range<usize>,
}

impl Part {
    pub(super) fn new([down, across]: [Axis; 2]) -> Self {
        Self { rows: down.blocks(), columns: across.blocks() }
    }

    #[inline(always)]
    pub(super) fn contains(&self, row: usize, column: usize) -> bool {
        self.rows.contains(&row) && self.columns.contains(&column)
    }

    /// Bytes from a row of its samples to the next.
    #[inline(always)]
    pub(super) fn stride(&self) -> usize {
        SIDE * self.columns.len()
    }

    /// How many samples it has.
    pub(super) fn samples(&self) -> usize {
        SIDE * self.rows.len() * self.stride()
    }

    /// Where a block starts that it contains.
    #[inline(always)]
    pub(super) fn start_of(&self, row: usize, column: usize) -> usize {
        SIDE * ((row - self.rows.start) * self.stride() + column - self.columns.start)
    }
}

/// The rows and the columns of a component's samples that the window is made of.
pub(super) fn axes(frame: &Frame, component: &Component, window: Window) -> [Axis; 2] {
    let [rows, columns] = frame.samples(component);
    [
        Axis::new(frame.down / component.down, rows, window.top, window.height),
        Axis::new(frame.across / component.across, columns, window.left, window.width),
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
        ) {
            let from = from % pixels;
            let len = 1 + len % (pixels - from);
            let samples = pixels.div_ceil(step);
            let axis = Axis::new(step, samples, from, len);
            prop_assert!(axis.end <= samples);
            let part = Part::new([axis, axis]);
            for pixel in from..from + len {
                let own = pixel / step;
                let beside = if step == 2 { 1 } else { 0 };
                for sample in own.saturating_sub(beside)..=(own + beside).min(samples - 1) {
                    prop_assert!((axis.start..axis.end).contains(&sample));
                    prop_assert!(part.contains(sample / SIDE, sample / SIDE));
                }
            }
            prop_assert!(part.rows.end <= samples.div_ceil(SIDE));
        }
    }

    #[test]
    fn an_empty_part_contains_nothing() {
        let part = Part::default();
        assert!(!part.contains(0, 0));
        assert_eq!((part.samples(), part.stride()), (0, 0));
    }
}
