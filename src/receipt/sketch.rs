//! Names the records by which two multisets of records of one epoch differ, without keeping either: an
//! invertible Bloom lookup table (Goodrich and Mitzenmacher 2011).
//!
//! A record goes to one cell of each of three parts. A cell adds up the number of records, their indexes and
//! their marks (`digest.rs`). Sketches subtract cell by cell, and what both have cancels out. If few records
//! are left, some cell has only one of them, `n` times: its sum of indexes is then `n` times an index, and
//! its sum of marks is `n` times that record's mark, which cannot be a coincidence. That record is taken out
//! of all its cells. This leaves other records alone in theirs, and so on until all cells are empty. If too
//! many records are left, some cells stay, and none of the names is trusted.

use std::array;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use super::digest::{EpochKey, Mark};

/// Each record is in one cell of each part.
const PARTS: usize = 3;
/// The number of cells in a part: a power of two.
const PART_CELLS: usize = 64;
const CELLS: usize = PARTS * PART_CELLS;

/// Wrapping sums: what is added and subtracted cancels out, whatever came between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    count: u64,
    indexes: u64,
    marks: u64,
}

impl Cell {
    #[inline]
    fn add(&mut self, index: u64, mark: Mark, times: u64) {
        self.count = self.count.wrapping_add(times);
        self.indexes = self.indexes.wrapping_add(index.wrapping_mul(times));
        self.marks = self.marks.wrapping_add(mark.low.wrapping_mul(times));
    }

    fn with(self, other: Self, combine: impl Fn(u64, u64) -> u64) -> Self {
        Cell {
            count: combine(self.count, other.count),
            indexes: combine(self.indexes, other.indexes),
            marks: combine(self.marks, other.marks),
        }
    }

    /// The only record in the cell, and how often it was added; negative if it was taken out.
    fn only(self, key: EpochKey) -> Option<(u64, i64)> {
        let times = self.count.cast_signed();
        let indexes = self.indexes.cast_signed();
        if times == 0 || indexes.checked_rem(times)? != 0 {
            return None;
        }
        let index = u64::try_from(indexes.checked_div(times)?).ok()?;
        (key.mark(index).low.wrapping_mul(self.count) == self.marks).then_some((index, times))
    }
}

/// Records of one epoch, any number of them, in 4.5 KiB.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Sketch {
    cells: Box<[Cell; CELLS]>,
}

impl Default for Sketch {
    fn default() -> Self {
        Sketch { cells: Box::new([Cell::default(); CELLS]) }
    }
}

/// The cells are not readable, so they are only counted.
impl fmt::Debug for Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.cells.iter().filter(|cell| **cell != Cell::default()).count();
        write!(f, "Sketch({used} of {CELLS} cells in use)")
    }
}

/// The numbers of a record's cells.
#[inline]
fn places(mark: Mark) -> [usize; PARTS] {
    array::from_fn(|part| {
        let bits = mark.high >> (part * PART_CELLS.ilog2() as usize) & (PART_CELLS as u64 - 1);
        part * PART_CELLS + usize::from(u8::try_from(bits).expect("a part has 64 cells"))
    })
}

impl Sketch {
    /// Adds a record `times` times; if negative, takes it out.
    #[inline]
    pub(super) fn add(&mut self, index: u64, mark: Mark, times: i64) {
        // Wrapping sums have no sign.
        let times = times.cast_unsigned();
        for place in places(mark) {
            self.cells[place].add(index, mark, times);
        }
    }

    /// Adds all records of another sketch of the same epoch.
    pub(super) fn merge(&mut self, other: &Self) {
        for (cell, other) in self.cells.iter_mut().zip(&*other.cells) {
            *cell = cell.with(*other, u64::wrapping_add);
        }
    }

    /// What this sketch has beyond another of the same epoch, by record; negative for what it lacks. `None`
    /// if these records are too many to be named: up to some tens can be named always or nearly always.
    pub(super) fn beyond(&self, other: &Self, key: EpochKey) -> Option<BTreeMap<u64, i64>> {
        let mut left = self.clone();
        for (cell, other) in left.cells.iter_mut().zip(&*other.cells) {
            *cell = cell.with(*other, u64::wrapping_sub);
        }
        let mut named = BTreeMap::new();
        let mut waiting: Vec<usize> = (0..CELLS).collect();
        while let Some(place) = waiting.pop() {
            let Some((index, times)) = left.cells[place].only(key) else { continue };
            // If a record comes out twice, or there are more records than cells, the sums only look like
            // records.
            if named.insert(index, times).is_some() || named.len() > CELLS {
                return None;
            }
            let mark = key.mark(index);
            left.add(index, mark, times.wrapping_neg());
            waiting.extend(places(mark));
        }
        let is_empty = left.cells.iter().all(|cell| *cell == Cell::default());
        is_empty.then_some(named)
    }
}

/// The cells: each as its three sums, or as a dash if they are 0.
impl fmt::Display for Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, cell) in self.cells.iter().enumerate() {
            let separator = if number == 0 { "" } else { " " };
            match *cell {
                Cell { count: 0, indexes: 0, marks: 0 } => write!(f, "{separator}-")?,
                Cell { count, indexes, marks } => write!(f, "{separator}{count:x}.{indexes:x}.{marks:x}")?,
            }
        }
        Ok(())
    }
}

/// The text is not a sketch. The error needs no details: its caller has the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoSketch;

impl FromStr for Sketch {
    type Err = NoSketch;

    fn from_str(text: &str) -> Result<Self, NoSketch> {
        let number = |text: &str| u64::from_str_radix(text, 16).map_err(|_| NoSketch);
        let mut sketch = Sketch::default();
        let mut cells = text.split(' ');
        for cell in &mut *sketch.cells {
            let text = cells.next().ok_or(NoSketch)?;
            if text != "-" {
                let mut sums = text.splitn(3, '.').map(number);
                let mut next = || sums.next().ok_or(NoSketch)?;
                *cell = Cell { count: next()?, indexes: next()?, marks: next()? };
            }
        }
        cells.next().map_or(Ok(sketch), |_| Err(NoSketch))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::base::splitmix::SplitMix;

    /// The naive twin: every record and how often it came.
    type Counts = BTreeMap<u64, i64>;

    fn sketch(key: EpochKey, counts: &Counts) -> Sketch {
        let mut sketch = Sketch::default();
        for (&index, &times) in counts {
            sketch.add(index, key.mark(index), times);
        }
        sketch
    }

    fn beyond(counts: &Counts, other: &Counts) -> Counts {
        let mut beyond = counts.clone();
        for (&index, &times) in other {
            *beyond.entry(index).or_default() -= times;
        }
        beyond.retain(|_, times| *times != 0);
        beyond
    }

    fn few() -> impl Strategy<Value = Counts> {
        prop::collection::btree_map(0_u64..1 << 43, 1_i64..1000, 0..12)
    }

    proptest! {
        #[test]
        fn what_is_named_is_the_difference(
            epoch: u64, both in prop::collection::btree_map(0_u64..1 << 43, 1_i64..4, 0..300),
            more in few(), less in few(),
        ) {
            let key = EpochKey::of(epoch);
            let with = |some: &Counts| {
                let mut counts = both.clone();
                some.iter().for_each(|(&index, times)| *counts.entry(index).or_default() += times);
                counts
            };
            let (one, other) = (with(&more), with(&less));
            let named = sketch(key, &one).beyond(&sketch(key, &other), key);
            // Two records with all three cells in common cannot be separated. This is rare, and then nothing
            // is named.
            if let Some(named) = named {
                prop_assert_eq!(named, beyond(&one, &other));
            }
        }

        #[test]
        fn merging_is_adding_up(epoch: u64, one in few(), other in few()) {
            let key = EpochKey::of(epoch);
            let mut merged = sketch(key, &one);
            merged.merge(&sketch(key, &other));
            let mut both = one.clone();
            other.iter().for_each(|(&index, times)| *both.entry(index).or_default() += times);
            prop_assert_eq!(&merged, &sketch(key, &both));
            prop_assert_eq!(merged.to_string().parse(), Ok(merged));
        }
    }

    /// How many of 1,000 differences of this many records are named.
    fn named_of_1000(records: u64) -> usize {
        let named = |round: u64| {
            let key = EpochKey::of(round);
            let mut random = SplitMix(round);
            let one: Counts = (0..records).map(|_| (random.next() >> 21, 1)).collect();
            let named = sketch(key, &one).beyond(&Sketch::default(), key);
            named.inspect(|named| assert_eq!(*named, one)).is_some()
        };
        (0..1000).filter(|&round| named(round)).count()
    }

    #[test]
    #[cfg_attr(miri, ignore = "it makes thousands of sketches")]
    fn dozens_are_named_and_hundreds_are_not() {
        assert!((0..=3).all(|records| named_of_1000(records) == 1000));
        assert!(named_of_1000(12) >= 995);
        assert!(named_of_1000(48) >= 980);
        assert_eq!(named_of_1000(300), 0);
    }

    #[test]
    fn what_is_no_sketch_is_refused() {
        let text = Sketch::default().to_string();
        assert_eq!(text.parse(), Ok(Sketch::default()));
        for text in ["", "- -", &text[2..], &format!("{text} -"), &text.replacen('-', "1.2", 1), "x.1.1"] {
            assert_eq!(text.parse::<Sketch>(), Err(NoSketch), "{text}");
        }
    }
}
