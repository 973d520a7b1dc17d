//! How often each record of an epoch was delivered: one counter per position.

use bytemuck::allocation::try_zeroed_vec;

use crate::verdict::Positions;

/// A counter for each record of the data set.
#[derive(Clone, Debug)]
pub(crate) struct Counts(Vec<u32>);

impl Counts {
    /// `None` if there is no memory for so many.
    pub(crate) fn of(records: usize) -> Option<Self> {
        // `vec!` would end the process. Counters that are never used stay untouched, and take no memory.
        try_zeroed_vec(records).ok().map(Counts)
    }

    /// Counts a record `times` times; if negative, takes them back. Ignores a record that the data set does
    /// not have.
    pub(crate) fn add(&mut self, index: u64, times: i64) {
        if let Some(count) = usize::try_from(index).ok().and_then(|index| self.0.get_mut(index)) {
            let sum = i64::from(*count).saturating_add(times);
            *count = u32::try_from(sum.max(0)).unwrap_or(u32::MAX);
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().map(|&count| u64::from(count)).sum()
    }

    /// The records that came more often than `due`.
    pub(crate) fn doubled(&self, due: u32) -> Positions {
        self.positions(|_, count| count.saturating_sub(due))
    }

    /// The records that came less often than `due`.
    pub(crate) fn missing(&self, due: u32) -> Positions {
        self.positions(|_, count| due.saturating_sub(count))
    }

    /// Like [`missing`](Self::missing), of these records only.
    pub(crate) fn missing_of(&self, some: &Marks, due: u32) -> Positions {
        self.positions(|index, count| if some.has(index) { due.saturating_sub(count) } else { 0 })
    }

    fn positions(&self, times: impl Fn(u64, u32) -> u32) -> Positions {
        let mut positions = Positions::default();
        for (index, &count) in (0..).zip(&self.0) {
            let times = times(index, count);
            if times > 0 {
                positions.push(index, times.into());
            }
        }
        positions
    }
}

/// Some records of the data set: a bit for each of its records.
#[derive(Clone, Debug)]
pub(crate) struct Marks(Vec<u64>);

impl Marks {
    /// None of so many records; `None` if there is no memory for their bits.
    pub(crate) fn of(records: usize) -> Option<Self> {
        let words = records.div_ceil(WORD_BITS);
        // As for the counters.
        try_zeroed_vec(words).ok().map(Marks)
    }

    /// Marks a record. Ignores one that the data set does not have.
    pub(crate) fn add(&mut self, index: u64) {
        let (word, bit) = place_of(index);
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
    }

    fn has(&self, index: u64) -> bool {
        let (word, bit) = place_of(index);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }
}

const WORD_BITS: usize = 64;

/// The word of a record's bit, and that bit.
fn place_of(index: u64) -> (usize, u64) {
    let word = usize::try_from(index / WORD_BITS as u64).unwrap_or(usize::MAX);
    (word, 1 << (index % WORD_BITS as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri ends where there is no memory")]
    fn counters_for_which_there_is_no_memory_are_refused() {
        assert!(Counts::of(usize::MAX / size_of::<u32>()).is_none());
        assert!(Counts::of(1 << 56).is_none(), "no machine has so much");
        assert!(Marks::of(usize::MAX).is_none());
        assert_eq!(Counts::of(3).map(|counts| counts.total()), Some(0));
    }

    #[test]
    fn what_is_marked_is_what_was_added() {
        let mut marks = Marks::of(130).unwrap();
        let some = [0, 63, 64, 129, u64::MAX];
        some.into_iter().for_each(|index| marks.add(index));
        let marked: Vec<u64> = (0..200).filter(|&index| marks.has(index)).collect();
        assert_eq!(marked, some[..4]);
    }
}
