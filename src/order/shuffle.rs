//! The order of an epoch.

use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;

use super::Permutation;
use super::file_order::FileOrder;
use crate::base::splitmix;

/// How the records of an epoch are shuffled. Every epoch has its own order, which depends only on the seed,
/// the epoch and the number of records, and, if each worker has its own stream, on the worker.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum Shuffle {
    /// Not shuffled: in key order.
    #[default]
    No,
    /// Any record may come at any time.
    Global,
    /// The order of the files (of a joined source: its sources) is shuffled, and the records of each file
    /// stay in order. For data in which each record continues the one before. One file is not shuffled.
    Files,
    /// For disks that are fastest at sequential reads. The records are divided into windows of this many; the
    /// last may be shorter. The windows come in a shuffled order, and each window's records in their own
    /// shuffled order.
    ///
    /// Unlike a shuffle buffer (TensorFlow's, DALI's `initial_fill`), this takes no memory and no time to
    /// fill, and a record may come anywhere in the epoch.
    Window {
        /// The number of records in a window.
        records: NonZeroU64,
    },
}

/// The order of one epoch's records: each number of `0..len` once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EpochOrder {
    len: u64,
    by: By,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and the record path allocates nothing"
)]
enum By {
    Number,
    Permutation(Permutation),
    Windows(Windows),
    Files(Arc<FileOrder>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Windows {
    /// The number of records in each window but the last.
    records: u64,
    /// The number of records in the last window, by number.
    last_records: u64,
    /// The order of the windows.
    outer: Permutation,
    /// The place of the last window among the windows.
    last_place: u64,
    /// The orders in a full window and in the last one.
    inner: [Permutation; 2],
    /// The window of the last place looked up, because the next place is usually in it too.
    here: Option<ShuffleWindow>,
}

/// One of the windows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ShuffleWindow {
    /// The places of its records.
    places: Range<u64>,
    /// Its first record.
    first: u64,
    is_last: bool,
    /// Separates its order from those of the other windows.
    tweak: u64,
}

impl Shuffle {
    /// The order of pass `epoch` over one file of `len` records. `stream` separates several data sets.
    pub(crate) fn order(self, len: u64, seed: u64, epoch: u64, stream: u64) -> EpochOrder {
        let key = key_of(seed, epoch, stream);
        let by = match self {
            Shuffle::No | Shuffle::Files => By::Number,
            Shuffle::Global => By::Permutation(Permutation::new(len, key)),
            Shuffle::Window { records } if records.get() >= len => {
                By::Permutation(Permutation::new(len, key))
            }
            Shuffle::Window { records } => By::Windows(Windows::new(len, records.get(), key)),
        };
        EpochOrder { len, by }
    }
}

/// The key of the order of a pass. `stream` separates several data sets.
pub(super) fn key_of(seed: u64, epoch: u64, stream: u64) -> u64 {
    /// Separates these keys from those of the records' own random numbers, which are folded from two words.
    const SHUFFLE: u64 = u64::from_be_bytes(*b"shuffle\0");

    splitmix::fold(seed, &[SHUFFLE, epoch, stream])
}

impl EpochOrder {
    /// The order in which files follow one another.
    pub(super) fn of_files(len: u64, files: Arc<FileOrder>) -> Self {
        EpochOrder { len, by: By::Files(files) }
    }

    /// The number of places from this one on whose numbers follow one another; `None` if they do not.
    pub(super) fn neighbours(&self, place: u64) -> Option<u64> {
        match &self.by {
            By::Number => Some(u64::MAX),
            By::Files(files) => Some(files.neighbours(place).unwrap_or(u64::MAX)),
            By::Permutation(_) | By::Windows(_) => None,
        }
    }

    /// The number at a place.
    ///
    /// # Panics
    ///
    /// If the epoch has no such place.
    pub(crate) fn number_at(&mut self, place: u64) -> u64 {
        assert!(place < self.len, "an epoch of {} records has no place {place}", self.len);
        match &mut self.by {
            By::Number => place,
            By::Permutation(permutation) => permutation.number_at(place),
            By::Windows(windows) => windows.number_at(place),
            By::Files(files) => files.number_at(place),
        }
    }
}

impl Windows {
    fn new(len: u64, records: u64, key: u64) -> Self {
        let windows = len.div_ceil(records);
        let last_records = len - (windows - 1) * records;
        let outer = Permutation::new(windows, key);
        let last_place = outer.place_of(windows - 1);
        let inner_key = splitmix::mix(key);
        let inner = [records, last_records].map(|records| Permutation::new(records, inner_key));
        Windows { records, last_records, outer, last_place, inner, here: None }
    }

    /// The place at which the window begins that is at `window_place` among the windows.
    fn begin_of(&self, window_place: u64) -> u64 {
        if window_place <= self.last_place {
            window_place * self.records
        } else {
            (window_place - 1) * self.records + self.last_records
        }
    }

    fn number_at(&mut self, place: u64) -> u64 {
        let here = match self.here.take() {
            Some(here) if here.places.contains(&place) => here,
            _ => self.window_of(place),
        };
        let ShuffleWindow { places, first, is_last, tweak } = self.here.insert(here);
        *first + self.inner[usize::from(*is_last)].number_at_with(place - places.start, *tweak)
    }

    /// The window that a place is in.
    fn window_of(&self, place: u64) -> ShuffleWindow {
        // Assumes that the last window is as long as the others, which makes no difference to the places
        // before it.
        let window_place = match place / self.records {
            before if before < self.last_place => before,
            _ if place < self.begin_of(self.last_place) + self.last_records => self.last_place,
            _ => (place - self.last_records) / self.records + 1,
        };
        let window = self.outer.number_at(window_place);
        let places = self.begin_of(window_place)..self.begin_of(window_place + 1);
        let is_last = window_place == self.last_place;
        ShuffleWindow { places, first: window * self.records, is_last, tweak: splitmix::mix(window) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn window(records: u64) -> Shuffle {
        Shuffle::Window { records: NonZeroU64::new(records).unwrap() }
    }

    fn listed(shuffle: Shuffle, len: u64, seed: u64, epoch: u64) -> Vec<u64> {
        let mut order = shuffle.order(len, seed, epoch, 0);
        (0..len).map(|place| order.number_at(place)).collect()
    }

    proptest! {
        #[test]
        fn every_number_comes_once(len in 0_u64..500, records in 1_u64..600, seed: u64, epoch: u64) {
            for shuffle in [Shuffle::No, Shuffle::Global, window(records)] {
                let mut numbers = listed(shuffle, len, seed, epoch);
                numbers.sort_unstable();
                prop_assert!(numbers.into_iter().eq(0..len));
            }
        }

        /// The naive twin: windows laid end to end.
        #[test]
        fn windows_come_whole(windows in 2_u64..30, records in 2_u64..40, missing in 0_u64..39, seed: u64) {
            let len = windows * records - missing % records;
            let numbers = listed(window(records), len, seed, 3);
            let mut rest = &numbers[..];
            let mut seen = Vec::new();
            while let Some(first) = rest.first() {
                let begin = first / records * records;
                let len = usize::try_from(records.min(len - begin)).unwrap();
                let (this, others) = rest.split_at(len);
                prop_assert!(this.iter().all(|number| number / records == begin / records), "{this:?}");
                (seen, rest) = ([seen, vec![begin / records]].concat(), others);
            }
            prop_assert_eq!(seen.len() as u64, windows);
        }
    }

    #[test]
    fn each_epoch_seed_and_stream_has_an_order_of_its_own() {
        for shuffle in [Shuffle::Global, window(100)] {
            let of = |seed, epoch, stream| {
                let mut order = shuffle.order(1000, seed, epoch, stream);
                (0..1000).map(|place| order.number_at(place)).collect::<Vec<_>>()
            };
            let orders = [of(1, 0, 0), of(1, 1, 0), of(2, 0, 0), of(1, 0, 1)];
            for (number, order) in orders.iter().enumerate() {
                for other in &orders[..number] {
                    let same = order.iter().zip(other).filter(|(a, b)| a == b).count();
                    assert!(same < 20, "{shuffle:?}: {same} of 1000 records come at the same time");
                }
            }
            assert_eq!(orders[0], of(1, 0, 0));
        }
    }

    #[test]
    fn two_windows_are_shuffled_differently() {
        let numbers = listed(window(500), 1000, 7, 0);
        let [first, second] = [&numbers[..500], &numbers[500..]];
        let same = first.iter().zip(second).filter(|(a, b)| *a % 500 == *b % 500).count();
        assert!(same < 20, "{same}");
    }

    #[test]
    fn a_window_of_all_records_is_a_shuffle_of_all() {
        assert_eq!(listed(window(100), 100, 5, 1), listed(Shuffle::Global, 100, 5, 1));
    }
}
