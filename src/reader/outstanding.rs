//! The runs that a reader has begun, and how far back one of them is still out.

use std::collections::VecDeque;

use crate::source::Dealt;

/// Runs are counted as they are begun, whoever they are for.
///
/// # Invariants
///
/// 1. All runs before number `used` are used; number `used` itself is out, or has not been begun.
/// 2. `runs[i]` is run number `used + i`: whose it is, or `None` if it is used. The first is not.
#[derive(Debug)]
pub(super) struct Outstanding {
    used: u64,
    runs: VecDeque<Option<usize>>,
}

impl Outstanding {
    /// Of this many runs that go round. There is room for twice as many: one that is late is waited for, while others
    /// go round again.
    pub(super) fn of(runs: usize) -> Self {
        Outstanding { used: 0, runs: VecDeque::with_capacity(2 * runs) }
    }

    /// Begins a run for a consumer; its number.
    pub(super) fn begin(&mut self, consumer: usize) -> u64 {
        self.runs.push_back(Some(consumer));
        self.used + self.runs.len() as u64 - 1
    }

    /// A run has come back.
    pub(super) fn end(&mut self, number: u64) {
        let position = number.checked_sub(self.used).and_then(|position| usize::try_from(position).ok());
        if let Some(run) = position.and_then(|position| self.runs.get_mut(position)) {
            *run = None;
        }
        self.pass_used();
    }

    /// A consumer has left: of what it has out nothing comes back.
    pub(super) fn see_off(&mut self, consumer: usize) {
        for run in &mut self.runs {
            *run = run.filter(|&of| of != consumer);
        }
        self.pass_used();
    }

    fn pass_used(&mut self) {
        while let Some(None) = self.runs.front() {
            self.runs.pop_front();
            self.used += 1;
        }
    }

    /// How far the runs are.
    pub(super) fn dealt(&self) -> Dealt {
        Dealt { begun: self.used + self.runs.len() as u64, used: self.used }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_used_up_to_the_oldest_that_is_out() {
        let mut outstanding = Outstanding::of(6);
        let numbers: Vec<u64> = (0..5).map(|run| outstanding.begin(run % 2)).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        for (ended, used) in [(1, 0), (3, 0), (0, 2), (0, 2), (4, 2), (2, 5)] {
            outstanding.end(ended);
            assert_eq!(outstanding.dealt(), Dealt { begun: 5, used }, "after {ended}");
        }
        assert_eq!(outstanding.begin(0), 5);
        assert_eq!(outstanding.dealt(), Dealt { begun: 6, used: 5 });
    }

    #[test]
    fn who_has_left_holds_up_nobody() {
        let mut outstanding = Outstanding::of(6);
        for run in 0..6 {
            outstanding.begin(run % 2);
        }
        outstanding.see_off(0);
        assert_eq!(outstanding.dealt(), Dealt { begun: 6, used: 1 }, "the other's first is out");
        outstanding.end(1);
        outstanding.end(2);
        assert_eq!(outstanding.dealt(), Dealt { begun: 6, used: 3 });
    }
}
