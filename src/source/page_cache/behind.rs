//! Tracks which parts of a file a cursor has left behind and nobody uses any more.
//!
//! A file is divided into parts. The parts that the cursor is in form a visit. When the cursor moves on, the
//! visit is left and remembers how many runs had begun by then: no later run has records of it. Once all
//! those runs are used, the parts are free, except those where the cursor is, or was, again: a later visit
//! frees them.

use std::collections::VecDeque;
use std::ops::Range;

use crate::source::Dealt;

/// One of a cursor's two tracks: keys may be stored apart from values, and the pages of both must stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::source) enum Way {
    Values,
    Keys,
}

/// A cursor's track through the parts of a file, or of several files.
///
/// # Invariants
///
/// 1. `last[part]` is the number of the last visit to the part that was left; 0 if there is none.
/// 2. `left` has the visits that were left and are not freed yet, in the order of their numbers, and so of
///    their runs.
/// 3. Every record of an unused run is in parts of `here`, or of a visit of `left`.
#[derive(Debug)]
pub(in crate::source) struct Trail {
    last: Vec<u64>,
    left: VecDeque<Visit>,
    /// Where the cursor is, on each track.
    here: [Range<usize>; 2],
    /// How many visits were left.
    visits: u64,
    /// How many runs have begun.
    begun: u64,
}

#[derive(Debug)]
struct Visit {
    parts: Range<usize>,
    number: u64,
    /// How many runs had begun when it was left.
    runs: u64,
}

impl Trail {
    pub(in crate::source) fn new(parts: usize) -> Self {
        Trail { last: vec![0; parts], left: VecDeque::new(), here: [0..0, 0..0], visits: 0, begun: 0 }
    }

    /// The cursor has reached a key or a value that is in these parts.
    #[inline]
    pub(in crate::source) fn came_to(&mut self, way: Way, parts: Range<usize>) {
        let here = &self.here[way as usize];
        if parts.start < here.start || parts.end > here.end {
            self.enter(way, parts);
        }
    }

    fn enter(&mut self, way: Way, parts: Range<usize>) {
        let parts = parts.start.min(self.last.len())..parts.end.min(self.last.len());
        let left = std::mem::replace(&mut self.here[way as usize], parts);
        if !left.is_empty() {
            self.visits += 1;
            self.last[left.clone()].fill(self.visits);
            self.left.push_back(Visit { parts: left, number: self.visits, runs: self.begun });
        }
    }

    /// The cursor has moved elsewhere: it is in none of the parts.
    pub(in crate::source) fn leave(&mut self) {
        for way in [Way::Values, Way::Keys] {
            self.enter(way, 0..0);
        }
    }

    /// Frees the parts that are no longer used, given the progress of the runs, as contiguous ranges.
    pub(in crate::source) fn dealt(&mut self, dealt: Dealt, mut free: impl FnMut(Range<usize>)) {
        self.begun = dealt.begun;
        let Trail { last, left, here, .. } = self;
        while left.front().is_some_and(|visit| visit.runs <= dealt.used) {
            let Some(Visit { mut parts, number, .. }) = left.pop_front() else { return };
            let is_free = |part: usize| last[part] == number && !here.iter().any(|here| here.contains(&part));
            while let Some(start) = parts.find(|&part| is_free(part)) {
                let end = parts.find(|&part| !is_free(part)).unwrap_or(parts.end);
                free(start..end);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The parts that a trail frees for this progress of the runs.
    fn freed(trail: &mut Trail, begun: u64, used: u64) -> Vec<usize> {
        let mut all = Vec::new();
        trail.dealt(Dealt { begun, used }, |parts| all.extend(parts));
        all
    }

    #[test]
    fn a_part_is_free_once_it_was_left_and_its_runs_are_used() {
        let mut trail = Trail::new(4);
        trail.came_to(Way::Values, 0..1);
        assert!(freed(&mut trail, 1, 1).is_empty(), "the cursor is in it");
        trail.came_to(Way::Values, 0..2);
        assert!(freed(&mut trail, 2, 0).is_empty(), "its run is in use");
        assert!(freed(&mut trail, 2, 1).is_empty(), "the cursor is in it again");
        trail.came_to(Way::Values, 2..3);
        assert!(freed(&mut trail, 3, 1).is_empty(), "the second run, which is in both, is in use");
        assert_eq!(freed(&mut trail, 3, 2), [0, 1]);
        assert!(freed(&mut trail, 3, 3).is_empty(), "nothing is free twice");
    }

    #[test]
    fn steps_back_keep_a_part() {
        let mut trail = Trail::new(4);
        for (run, part) in [0, 1, 0, 1, 2].into_iter().enumerate() {
            trail.came_to(Way::Values, part..part + 1);
            assert!(freed(&mut trail, run as u64 + 1, 0).is_empty());
        }
        assert_eq!(freed(&mut trail, 5, 1), [0_usize; 0], "the cursor has been in part 0 again");
        assert_eq!(freed(&mut trail, 5, 3), [0]);
        assert_eq!(freed(&mut trail, 5, 4), [1]);
    }

    #[test]
    fn a_cursor_that_left_keeps_only_the_parts_of_its_runs() {
        let mut trail = Trail::new(4);
        trail.came_to(Way::Keys, 3..4);
        trail.came_to(Way::Values, 0..2);
        assert!(freed(&mut trail, 1, 0).is_empty());
        trail.leave();
        assert!(freed(&mut trail, 2, 0).is_empty(), "its run is in use");
        assert_eq!(freed(&mut trail, 2, 1), [0, 1, 3]);
        trail.leave();
        assert!(freed(&mut trail, 3, 3).is_empty(), "nothing is free twice");
    }

    #[test]
    fn a_second_pass_frees_again() {
        let mut trail = Trail::new(10);
        let mut count = 0;
        for run in 0..30 {
            let part = run % 10;
            trail.came_to(Way::Values, part..part + 1);
            trail.dealt(Dealt { begun: run as u64 + 1, used: run as u64 }, |parts| count += parts.len());
        }
        assert_eq!(count, 29, "all but where the cursor is");
        assert!(trail.left.is_empty());
    }

    proptest! {
        #[test]
        fn no_part_in_use_is_freed_and_all_are_freed_in_the_end(
            steps in prop::collection::vec((0_usize..20, 1_usize..4, 0_usize..24, 0_usize..5), 1..200),
        ) {
            let mut trail = Trail::new(24);
            // The parts of each run that has begun. Each step begins one, and then uses some of the oldest.
            let mut runs: Vec<Range<usize>> = Vec::new();
            let mut used = 0;
            let mut cached = [false; 24];
            for (part, parts, key, uses) in steps {
                trail.came_to(Way::Keys, key..key + 1);
                trail.came_to(Way::Values, part..part + parts);
                cached[part..part + parts].fill(true);
                cached[key] = true;
                runs.push(part..part + parts);
                used = (used + uses).min(runs.len());
                for freed in freed(&mut trail, runs.len() as u64, used as u64) {
                    prop_assert!(freed != key, "the cursor is on {}", freed);
                    let in_use = runs[used..].iter().any(|run| run.contains(&freed));
                    prop_assert!(!in_use, "part {} is in use", freed);
                    prop_assert!(cached[freed], "part {} is freed twice", freed);
                    cached[freed] = false;
                }
            }
            for freed in freed(&mut trail, runs.len() as u64, runs.len() as u64) {
                cached[freed] = false;
            }
            trail.here.iter().for_each(|here| cached[here.clone()].fill(false));
            prop_assert_eq!(cached, [false; 24]);
        }
    }
}
