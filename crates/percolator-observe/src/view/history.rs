//! The last numbers: rates are of a moment, but the figures are sums.

use std::collections::VecDeque;
use std::time::Duration;

use percolator::Stats;

use crate::Numbers;

/// The time over which a rate is taken.
const WINDOW: Duration = Duration::from_secs(1);
/// How many rates are kept to be drawn.
const RATES_MAX: usize = 512;
/// The highest rate that is drawn. Numbers from other programs may have any size, and drawing bars multiplies
/// them.
const RATE_MAX: f64 = 1e15;

/// A feed's numbers over the last moments.
#[derive(Debug, Default)]
pub struct History {
    /// The oldest is the last that is older than the window, if there is one.
    seen: VecDeque<Numbers>,
    /// Whether the newest numbers could not be read.
    is_stale: bool,
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
    /// again. If no time has passed, because the feed has ended or these numbers were seen before, they
    /// replace the last ones.
    pub fn push(&mut self, numbers: Numbers) {
        let elapsed = numbers.stats.elapsed;
        self.is_stale = false;
        match self.seen.back_mut() {
            Some(last) if last.stats.elapsed == elapsed => {
                *last = numbers;
                return;
            }
            Some(last) if last.stats.elapsed > elapsed => *self = History::new(),
            _ => {}
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
            let rate = self.recent().records_per_second().min(RATE_MAX) as u64;
            self.rates.push_back(rate);
        }
    }

    /// Notes that the present numbers cannot be read.
    pub fn miss(&mut self) {
        self.is_stale = true;
    }

    /// Whether the newest numbers are not the present ones.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Returns the newest numbers.
    #[must_use]
    pub fn last(&self) -> Option<&Numbers> {
        self.seen.back()
    }

    /// Returns what was done in the last second, or since there are numbers; of a feed that has ended, what
    /// it did from its start to its end.
    #[must_use]
    pub fn recent(&self) -> Stats {
        match (self.seen.front(), self.seen.back()) {
            (_, Some(last)) if last.has_ended => last.stats.clone(),
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

    #[test]
    fn a_feed_that_has_ended_is_looked_at_for_ever_in_the_same_memory() {
        let mut history = History::new();
        for millis in (0..3000).step_by(100) {
            history.push(at(millis, millis));
        }
        let (seen, rates) = (history.seen.len(), history.rates.len());
        let mut last = at(2950, 3000);
        last.has_ended = true;
        for _ in 0..1000 {
            history.push(last.clone());
        }
        assert!(history.seen.len() <= seen + 1 && history.rates.len() <= rates + 1);
        assert_eq!(history.recent(), last.stats, "the whole run");
    }

    #[test]
    fn numbers_that_are_missed_make_the_last_ones_stale() {
        let mut history = History::new();
        history.push(at(10, 1));
        history.miss();
        assert!(history.is_stale());
        history.push(at(10, 1));
        assert!(!history.is_stale());
        history.push(at(u64::from(u32::MAX), u64::MAX));
        assert_eq!(history.rates().count(), 1);
    }
}
