//! What was seen last: rates are of a moment, and the figures are sums.

use std::collections::VecDeque;
use std::time::Duration;

use percolator::Stats;

use crate::Numbers;

/// The time over which a rate is taken.
const WINDOW: Duration = Duration::from_secs(1);
/// How many rates are kept to be drawn.
const RATES_MAX: usize = 512;

/// A feed's numbers over the last moments.
#[derive(Debug, Default)]
pub struct History {
    /// The oldest is the last that is older than the window, if there is one.
    seen: VecDeque<Numbers>,
    /// Records a second, the oldest first.
    rates: VecDeque<u64>,
}

impl History {
    /// Returns an empty history.
    #[must_use]
    pub fn new() -> Self {
        History::default()
    }

    /// Adds the present numbers. If they are of another feed, which has run for less time, the history starts
    /// again.
    pub fn push(&mut self, numbers: Numbers) {
        let elapsed = numbers.stats.elapsed;
        if self.last().is_some_and(|last| last.stats.elapsed > elapsed) {
            *self = History::new();
        }
        self.seen.push_back(numbers);
        while self.seen.get(1).is_some_and(|next| elapsed - next.stats.elapsed >= WINDOW) {
            self.seen.pop_front();
        }
        if self.seen.len() > 1 {
            if self.rates.len() == RATES_MAX {
                self.rates.pop_front();
            }
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a bar's height")]
            let rate = self.recent().records_per_second() as u64;
            self.rates.push_back(rate);
        }
    }

    /// Returns the newest numbers.
    #[must_use]
    pub fn last(&self) -> Option<&Numbers> {
        self.seen.back()
    }

    /// Returns what was done in the last second, or since there are numbers.
    #[must_use]
    pub fn recent(&self) -> Stats {
        match (self.seen.front(), self.seen.back()) {
            (Some(first), Some(last)) if self.seen.len() > 1 => last.stats.since(&first.stats),
            (_, Some(only)) => only.stats.clone(),
            _ => Stats::default(),
        }
    }

    /// Returns the records a second at the last moments, the oldest first.
    pub fn rates(&self) -> impl DoubleEndedIterator<Item = u64> {
        self.rates.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use percolator::feed::LaneStats;

    use super::*;

    fn at(millis: u64, records: u64) -> Numbers {
        let mut numbers = Numbers::default();
        numbers.stats.elapsed = Duration::from_millis(millis);
        let mut lane = LaneStats::default();
        lane.records = records;
        numbers.stats.lanes.push(lane);
        numbers
    }

    #[test]
    fn a_rate_is_that_of_the_last_second() {
        let mut history = History::new();
        assert_eq!(history.recent(), Stats::default());
        for (millis, records) in [(0, 0), (500, 50), (1000, 100), (1500, 600), (2000, 1100)] {
            history.push(at(millis, records));
        }
        assert_eq!(history.recent().records(), 1000);
        assert_eq!(history.rates().collect::<Vec<_>>(), [100, 100, 550, 1000]);
        history.push(at(100, 7));
        assert_eq!((history.recent().records(), history.rates().count()), (7, 0), "another feed");
    }
}
