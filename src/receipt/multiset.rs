//! Numbers, and how often each occurs: the steps that were given, the records that were bad.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// A multiset of numbers, such as steps or positions. Consecutive numbers take as much memory as one.
///
/// Its text ([`Display`](fmt::Display)) is `0..469 470..472*2`: 470 and 471 occur twice.
// The changes of its counts: +1 where a range begins, -1 where it ends. So equal multisets compare equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Multiset(BTreeMap<u64, i64>);

impl Multiset {
    /// Adds consecutive numbers `times` times.
    pub fn add(&mut self, numbers: Range<u64>, times: u32) {
        if !numbers.is_empty() {
            // Adding numbers one by one removes one entry and adds one: the map does not grow.
            self.change(numbers.start, times.into());
            self.change(numbers.end, -i64::from(times));
        }
    }

    fn change(&mut self, at: u64, by: i64) {
        let change = self.0.entry(at).or_default();
        *change += by;
        if *change == 0 {
            self.0.remove(&at);
        }
    }

    /// Adds all of another multiset.
    pub fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(&at, &by)| self.change(at, by));
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges of numbers that occur equally often, and how often: at least once.
    pub fn ranges(&self) -> impl Iterator<Item = (Range<u64>, u64)> {
        let mut times = 0;
        let ends = self.0.keys().skip(1);
        let ranges = self.0.iter().zip(ends).map(move |((&start, by), &end)| {
            times += by;
            (start..end, u64::try_from(times).unwrap_or(0))
        });
        ranges.filter(|(_, times)| *times > 0)
    }

    /// The first number, and the one after the last; equal if there are none.
    #[must_use]
    pub fn bounds(&self) -> Range<u64> {
        let bound = |entry: Option<(&u64, &i64)>| entry.map_or(0, |(&step, _)| step);
        bound(self.0.first_key_value())..bound(self.0.last_key_value())
    }

    /// Reads its text; `None` for any other.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut numbers = Multiset::default();
        for range in text.split(' ') {
            let (range, times) = range.split_once('*').unwrap_or((range, "1"));
            let (start, end) = range.split_once("..")?;
            let (start, end, times) = (start.parse().ok()?, end.parse().ok()?, times.parse::<u32>().ok()?);
            if start >= end || times == 0 {
                return None;
            }
            numbers.add(start..end, times);
        }
        Some(numbers)
    }
}

impl fmt::Display for Multiset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (Range { start, end }, times)) in self.ranges().enumerate() {
            let separator = if number == 0 { "" } else { " " };
            write!(f, "{separator}{start}..{end}")?;
            if times > 1 {
                write!(f, "*{times}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The naive twin: one count per step.
    fn counts(given: &[(u64, u64, u32)]) -> Vec<u64> {
        let count = |step| {
            given
                .iter()
                .filter(|(start, len, _)| (*start..start + len).contains(&step))
                .map(|given| u64::from(given.2))
                .sum()
        };
        (0..60).map(count).collect()
    }

    proptest! {
        #[test]
        fn counts_are_those_of_a_list(
            given in prop::collection::vec((0_u64..40, 0_u64..20, 1_u32..4), 0..8),
        ) {
            let (mut steps, mut merged) = (Multiset::default(), Multiset::default());
            for &(start, len, times) in &given {
                steps.add(start..start + len, times);
                let mut one = Multiset::default();
                one.add(start..start + len, times);
                merged.merge(&one);
            }
            prop_assert_eq!(&merged, &steps);
            let counts = counts(&given);
            let range_of = |step: u64| steps.ranges().find(|(range, _)| range.contains(&step));
            let count = |step| range_of(step).map_or(0, |(_, times)| times);
            prop_assert_eq!((0..60).map(count).collect::<Vec<_>>(), counts.clone());
            let end = counts.iter().rposition(|&times| times > 0).map_or(0, |last| last as u64 + 1);
            prop_assert_eq!(steps.bounds().end, end);
            if end > 0 {
                prop_assert_eq!(Multiset::read(&steps.to_string()), Some(steps));
            }
        }
    }

    #[test]
    fn steps_one_by_one_are_one_range() {
        let mut steps = Multiset::default();
        for step in 3..1000 {
            steps.add(step..step + 1, 1);
        }
        assert_eq!(steps.to_string(), "3..1000");
        steps.add(7..9, 1);
        assert_eq!(steps.to_string(), "3..7 7..9*2 9..1000");
    }

    #[test]
    fn what_are_no_steps_is_refused() {
        for text in ["", "1", "1..1", "2..1", "1..2*0", "1..2*", "1..x", "1..2  3..4", "-1..2"] {
            assert_eq!(Multiset::read(text), None, "{text}");
        }
    }
}
