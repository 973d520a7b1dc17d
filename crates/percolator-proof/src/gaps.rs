//! What a multiset of steps lacks, and what it has more than once.

use std::ops::Range;

use percolator::receipt::Multiset;

/// The numbers that occur more than once.
pub(crate) fn doubled(numbers: &Multiset) -> impl Iterator<Item = Range<u64>> {
    numbers.ranges().filter(|(_, times)| *times > 1).map(|(range, _)| range)
}

/// The numbers of a range that do not occur.
pub(crate) fn missing(numbers: &Multiset, of: Range<u64>) -> Vec<Range<u64>> {
    let mut missing = Vec::new();
    let mut at = of.start;
    for (given, _) in numbers.ranges() {
        missing.push(at..given.start.min(of.end));
        at = at.max(given.end);
    }
    missing.push(at..of.end);
    missing.retain(|range| !range.is_empty());
    missing
}

/// Which of these ranges, each after the previous one, have a number that occurs.
pub(crate) fn having_any_of<'a>(
    numbers: &Multiset,
    ranges: impl Iterator<Item = &'a Range<u64>>,
) -> Vec<usize> {
    let mut own = numbers.ranges().map(|(own, _)| own).peekable();
    let has_any = |range: &Range<u64>| {
        while own.next_if(|own| own.end <= range.start).is_some() {}
        own.peek().is_some_and(|own| own.start < range.end)
    };
    let which = ranges.map(has_any).enumerate();
    which.filter(|(_, has_any)| *has_any).map(|(number, _)| number).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn gaps_are_those_of_a_list(given in prop::collection::vec((0_u64..40, 0_u64..20, 1_u32..4), 0..8)) {
            let mut numbers = Multiset::default();
            given.iter().for_each(|&(start, len, times)| numbers.add(start..start + len, times));
            let count = |number: u64| -> u32 {
                let having = given.iter().filter(|(start, len, _)| (*start..start + len).contains(&number));
                having.map(|(.., times)| times).sum()
            };
            let found: Vec<u64> = missing(&numbers, 5..50).into_iter().flatten().collect();
            prop_assert_eq!(found, (5..50).filter(|&number| count(number) == 0).collect::<Vec<_>>());
            let found: Vec<u64> = doubled(&numbers).flatten().collect();
            prop_assert_eq!(found, (0..60).filter(|&number| count(number) > 1).collect::<Vec<_>>());
            let ranges: Vec<_> = (0..12).map(|number| number * 5..number * 5 + 3).collect();
            let occurs = |range: &Range<u64>| range.clone().any(|number| count(number) > 0);
            let due: Vec<usize> = (0..12).filter(|&number| occurs(&ranges[number])).collect();
            prop_assert_eq!(having_any_of(&numbers, ranges.iter()), due);
        }
    }
}
