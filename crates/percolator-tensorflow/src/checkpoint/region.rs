//! Regions of tensors: which elements of one are next to one another in two of them.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;

/// Elements that are next to one another both in a region that is read and in one that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// The first of them, counted in the region that is read.
    pub(super) from: usize,
    /// The first of them, counted in the region that is written.
    pub(super) to: usize,
    pub(super) elements: usize,
}

/// The runs of the elements that two regions of a tensor share, in row-major order.
#[derive(Debug)]
pub(super) struct Runs {
    next: Option<Run>,
    /// The axes around a run, the innermost first.
    outer: Vec<Outer>,
}

impl Runs {
    /// The regions have as many axes as one another, and no more elements than memory holds.
    pub(super) fn new(from: &[Range<usize>], to: &[Range<usize>]) -> Self {
        let mut axes: Vec<_> = from.iter().zip(to).map(|(from, to)| Axis::new(from, to)).collect();
        if axes.iter().any(|axis| axis.shared == 0) {
            return Runs { next: None, outer: Vec::new() };
        }
        let mut run = Run { from: 0, to: 0, elements: 1 };
        // The elements that one step on the axis passes.
        let (mut from_stride, mut to_stride) = (1, 1);
        let mut outer = Vec::new();
        // Inner axes that both regions take whole are one with the axis around them.
        let mut is_run = true;
        while let Some(Axis { from_size, to_size, from, to, shared }) = axes.pop() {
            run.from = at(run.from, from, from_stride);
            run.to = at(run.to, to, to_stride);
            if is_run {
                run.elements = run.elements.saturating_mul(shared);
            } else if shared > 1 {
                outer.push(Outer { steps: 0, shared, from_stride, to_stride });
            }
            is_run &= shared == from_size && shared == to_size;
            from_stride = from_size.saturating_mul(from_stride);
            to_stride = to_size.saturating_mul(to_stride);
        }
        Runs { next: Some(run), outer }
    }
}

impl Iterator for Runs {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let run = self.next?;
        let mut next = run;
        self.next = self.outer.iter_mut().any(|axis| axis.step(&mut next)).then_some(next);
        Some(run)
    }
}

fn at(start: usize, steps: usize, stride: usize) -> usize {
    start.saturating_add(steps.saturating_mul(stride))
}

struct Axis {
    /// The extents of the two regions.
    from_size: usize,
    to_size: usize,
    /// Where in each the shared part starts.
    from: usize,
    to: usize,
    /// How long it is.
    shared: usize,
}

impl Axis {
    fn new(from: &Range<usize>, to: &Range<usize>) -> Self {
        let start = from.start.max(to.start);
        Axis {
            from_size: from.len(),
            to_size: to.len(),
            from: start.saturating_sub(from.start),
            to: start.saturating_sub(to.start),
            shared: from.end.min(to.end).saturating_sub(start),
        }
    }
}

#[derive(Debug)]
struct Outer {
    /// How many of its `shared` places are passed.
    steps: usize,
    shared: usize,
    from_stride: usize,
    to_stride: usize,
}

impl Outer {
    /// Moves a run one step along this axis; at the axis's end moves it back, and returns `false`.
    fn step(&mut self, run: &mut Run) -> bool {
        let next = self.steps.saturating_add(1);
        if next < self.shared {
            self.steps = next;
            run.from = run.from.saturating_add(self.from_stride);
            run.to = run.to.saturating_add(self.to_stride);
            return true;
        }
        run.from = run.from.saturating_sub(self.steps.saturating_mul(self.from_stride));
        run.to = run.to.saturating_sub(self.steps.saturating_mul(self.to_stride));
        self.steps = 0;
        false
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The elements that two regions share, with their numbers in both, one by one.
    fn naive(from: &[Range<usize>], to: &[Range<usize>]) -> Vec<(usize, usize)> {
        let number = |region: &[Range<usize>], at: &[usize]| {
            let axes = region.iter().zip(at);
            axes.fold(0, |number, (range, at)| number * range.len() + at - range.start)
        };
        let mut found = Vec::new();
        let mut at: Vec<_> = from.iter().map(|range| range.start).collect();
        if from.iter().any(Range::is_empty) {
            return found;
        }
        loop {
            if to.iter().zip(&at).all(|(range, at)| range.contains(at)) {
                found.push((number(from, &at), number(to, &at)));
            }
            let Some(axis) = (0..at.len()).rev().find(|&axis| at[axis] + 1 < from[axis].end) else {
                return found;
            };
            at[axis] += 1;
            (axis + 1..at.len()).for_each(|inner| at[inner] = from[inner].start);
        }
    }

    fn regions() -> impl Strategy<Value = Vec<[Range<usize>; 2]>> {
        let range = prop_oneof![
            Just(0..4_usize),
            (0..4_usize, 0..4_usize).prop_map(|(one, other)| { one.min(other)..one.max(other) })
        ];
        prop::collection::vec([range.clone(), range], 0..4)
    }

    #[test]
    fn what_both_take_whole_is_one_run() {
        let runs = |from: &[Range<usize>], to: &[Range<usize>]| Runs::new(from, to).collect::<Vec<_>>();
        let (from, to) = ([2..4, 0..5, 0..6], [0..9, 0..5, 0..6]);
        assert_eq!(runs(&from, &to), [Run { from: 0, to: 60, elements: 60 }]);
        assert_eq!(runs(&[], &[]), [Run { from: 0, to: 0, elements: 1 }]);
        assert_eq!(runs(&[0..3, 2..4], &[0..3, 0..6]).len(), 3);
        assert_eq!(runs(&[0..3, 2..2], &[0..3, 0..6]), []);
    }

    proptest! {
        #[test]
        fn runs_are_what_is_shared_one_by_one(regions in regions()) {
            let [from, to] = [0, 1].map(|which| {
                regions.iter().map(|ranges| ranges[which].clone()).collect::<Vec<_>>()
            });
            let elements = |run: Run| (0..run.elements).map(move |at| (run.from + at, run.to + at));
            let found: Vec<_> = Runs::new(&from, &to).flat_map(elements).collect();
            prop_assert_eq!(found, naive(&from, &to));
        }
    }
}
