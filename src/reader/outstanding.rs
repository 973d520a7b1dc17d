//! The runs that a reader has begun, and the oldest one that is not used yet.

use std::collections::VecDeque;

use crate::source::Dealt;

/// Runs are numbered as they begin, across all consumers.
///
/// # Invariants
///
/// 1. All runs before number `used` are used; run `used` itself is in use, or has not begun.
/// 2. `runs[i]` is run number `used + i`: its consumer, or `None` if it is used. The first one is not `None`.
#[derive(Debug)]
pub(super) struct Outstanding {
    used: u64,
    runs: VecDeque<Option<usize>>,
}

impl Outstanding {
    /// For this many circulating runs. There is room for twice as many: while the oldest run is awaited, the
    /// others may circulate again.
    pub(super) fn of(runs: usize) -> Self {
        Outstanding { used: 0, runs: VecDeque::with_capacity(2 * runs) }
    }

    /// Begins a run for a consumer and returns its number.
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

    /// A consumer has left: its outstanding runs never come back.
    pub(super) fn consumer_left(&mut self, consumer: usize) {
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

    /// The progress of the runs.
    pub(super) fn dealt(&self) -> Dealt {
        Dealt { begun: self.used + self.runs.len() as u64, used: self.used }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_used_up_to_the_oldest_in_use() {
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
    fn a_consumer_that_left_blocks_nobody() {
        let mut outstanding = Outstanding::of(6);
        for run in 0..6 {
            outstanding.begin(run % 2);
        }
        outstanding.consumer_left(0);
        assert_eq!(outstanding.dealt(), Dealt { begun: 6, used: 1 }, "the other's first is in use");
        outstanding.end(1);
        outstanding.end(2);
        assert_eq!(outstanding.dealt(), Dealt { begun: 6, used: 3 });
    }
}
