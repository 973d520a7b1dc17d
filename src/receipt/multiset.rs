//! Numbers, and how often each occurs: the steps that were given, the records that were bad.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// A multiset of numbers, kept as the changes of its counts: +1 where a range begins, -1 where it ends. So
/// consecutive numbers take two entries, however many they are, and equal multisets compare equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Multiset(BTreeMap<u64, i64>);

impl Multiset {
    /// Adds consecutive numbers `times` times.
    pub(super) fn add(&mut self, steps: Range<u64>, times: i64) {
        if !steps.is_empty() {
            // Adding numbers one by one removes one entry and adds one: the map does not grow.
            self.change(steps.start, times);
            self.change(steps.end, -times);
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
    pub(super) fn merge(&mut self, other: &Self) {
        other.0.iter().for_each(|(&at, &by)| self.change(at, by));
    }

    /// Whether it is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The ranges of numbers that occur equally often, and how often: at least once.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (Range<u64>, u64)> {
        let mut times = 0;
        let ends = self.0.keys().skip(1);
        let ranges = self.0.iter().zip(ends).map(move |((&start, by), &end)| {
            times += by;
            (start..end, u64::try_from(times).unwrap_or(0))
        });
        ranges.filter(|(_, times)| *times > 0)
    }

    /// The numbers that occur more than once.
    pub(super) fn doubled(&self) -> impl Iterator<Item = Range<u64>> {
        self.ranges().filter(|(_, times)| *times > 1).map(|(steps, _)| steps)
    }

    /// The numbers of a range that do not occur.
    pub(super) fn missing(&self, of: Range<u64>) -> Vec<Range<u64>> {
        let mut missing = Vec::new();
        let mut at = of.start;
        for (given, _) in self.ranges() {
            missing.push(at..given.start.min(of.end));
            at = at.max(given.end);
        }
        missing.push(at..of.end);
        missing.retain(|steps| !steps.is_empty());
        missing
    }

    /// The first number, and the one after the last; equal if there are none.
    pub(super) fn bounds(&self) -> Range<u64> {
        let bound = |entry: Option<(&u64, &i64)>| entry.map_or(0, |(&step, _)| step);
        bound(self.0.first_key_value())..bound(self.0.last_key_value())
    }

    /// Which of these ranges, each after the previous one, have a number that occurs.
    pub(super) fn having_any_of<'a>(&self, ranges: impl Iterator<Item = &'a Range<u64>>) -> Vec<usize> {
        let mut own = self.ranges().map(|(own, _)| own).peekable();
        let has_any = |steps: &Range<u64>| {
            while own.next_if(|own| own.end <= steps.start).is_some() {}
            own.peek().is_some_and(|own| own.start < steps.end)
        };
        let which = ranges.map(has_any).enumerate();
        which.filter(|(_, has_any)| *has_any).map(|(number, _)| number).collect()
    }
}

/// `0..469 470..472*2`: 470 and 471 occur twice.
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

/// The text is not a multiset. The error needs no details: its caller has the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoMultiset;

impl FromStr for Multiset {
    type Err = NoMultiset;

    fn from_str(text: &str) -> Result<Self, NoMultiset> {
        let mut steps = Multiset::default();
        for given in text.split(' ') {
            let (given, times) = given.split_once('*').unwrap_or((given, "1"));
            let (start, end) = given.split_once("..").ok_or(NoMultiset)?;
            let (Ok(start), Ok(end), Ok(times)) = (start.parse(), end.parse(), times.parse::<u32>()) else {
                return Err(NoMultiset);
            };
            if start >= end || times == 0 {
                return Err(NoMultiset);
            }
            steps.add(start..end, times.into());
        }
        Ok(steps)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The naive twin: one count per step.
    fn counts(given: &[(u64, u64, i64)]) -> Vec<i64> {
        let count = |step| {
            given
                .iter()
                .filter(|(start, len, _)| (*start..start + len).contains(&step))
                .map(|given| given.2)
                .sum()
        };
        (0..60).map(count).collect()
    }

    proptest! {
        #[test]
        fn counts_are_those_of_a_list(
            given in prop::collection::vec((0_u64..40, 0_u64..20, 1_i64..4), 0..8),
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
            let count = |step| range_of(step).map_or(0, |(_, times)| times.cast_signed());
            prop_assert_eq!((0..60).map(count).collect::<Vec<_>>(), counts.clone());
            let missing = |of: Range<u64>| -> Vec<u64> { steps.missing(of).into_iter().flatten().collect() };
            let due: Vec<u64> = (5..50).filter(|&step| counts[usize::try_from(step).unwrap()] == 0).collect();
            prop_assert_eq!(missing(5..50), due);
            let end = counts.iter().rposition(|&times| times > 0).map_or(0, |last| last as u64 + 1);
            prop_assert_eq!(steps.bounds().end, end);
            let ranges: Vec<_> = (0..12).map(|number| number * 5..number * 5 + 3).collect();
            let occurs = |range: &Range<u64>| range.clone().any(|step| count(step) > 0);
            let due: Vec<usize> = (0..12).filter(|&number| occurs(&ranges[number])).collect();
            prop_assert_eq!(steps.having_any_of(ranges.iter()), due);
            if end > 0 {
                prop_assert_eq!(steps.to_string().parse(), Ok(steps));
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
            assert_eq!(text.parse::<Multiset>(), Err(NoMultiset), "{text}");
        }
    }
}
