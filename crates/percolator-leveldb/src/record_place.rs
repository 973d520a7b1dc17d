//! Where a record is, in two numbers.

use crate::table::EntryPlace;

/// Where a record is stored, as long as the database is not written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordPlace {
    /// In the logs: its position in the memtable.
    Memory(usize),
    /// In a table, given by its number in the store.
    Table {
        /// That number.
        table: usize,
        /// The place in the table.
        place: EntryPlace,
    },
}

const OFFSET_BITS: u32 = 44;
const HALF_BITS: u32 = 32;
/// Used instead of a table number; no database has this many tables.
const MEMORY: u64 = u64::MAX >> OFFSET_BITS;

impl RecordPlace {
    /// Encodes the place as two numbers: table and offset, length and entry. `None` if they do not fit; those
    /// of a real database do.
    #[must_use]
    pub fn to_numbers(self) -> Option<[u64; 2]> {
        let (table, EntryPlace { offset, bytes, entry }) = match self {
            RecordPlace::Memory(position) => return Some([MEMORY << OFFSET_BITS, position as u64]),
            RecordPlace::Table { table, place } => (table as u64, place),
        };
        let fits = table < MEMORY
            && offset >> OFFSET_BITS == 0
            && bytes >> HALF_BITS == 0
            && (entry as u64) >> HALF_BITS == 0;
        fits.then_some([table << OFFSET_BITS | offset, bytes << HALF_BITS | entry as u64])
    }

    /// Returns the place that was encoded.
    #[must_use]
    pub fn of_numbers([first, second]: [u64; 2]) -> Self {
        let index = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        match first >> OFFSET_BITS {
            MEMORY => RecordPlace::Memory(index(second)),
            table => {
                let offset = first & ((1 << OFFSET_BITS) - 1);
                let (bytes, entry) = (second >> HALF_BITS, index(second & ((1 << HALF_BITS) - 1)));
                RecordPlace::Table { table: index(table), place: EntryPlace { offset, bytes, entry } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_two_numbers_and_back() {
        let table = |table, offset, bytes, entry| RecordPlace::Table {
            table,
            place: EntryPlace { offset, bytes, entry },
        };
        let largest = (1 << HALF_BITS) - 1;
        for place in [
            RecordPlace::Memory(0),
            RecordPlace::Memory(123_456),
            table(0, 0, 0, 0),
            table(7, 4096, 1234, 56),
            table((1 << 20) - 2, (1 << OFFSET_BITS) - 1, largest as u64, largest),
        ] {
            assert_eq!(RecordPlace::of_numbers(place.to_numbers().unwrap()), place);
        }
        for place in [
            table((1 << 20) - 1, 0, 0, 0),
            table(0, 1 << OFFSET_BITS, 0, 0),
            table(0, 0, 1 << HALF_BITS, 0),
            table(0, 0, 0, 1 << HALF_BITS),
        ] {
            assert_eq!(place.to_numbers(), None);
        }
    }
}
