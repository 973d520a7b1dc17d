//! The index of a LevelDB's records: for each record the block and the entry where a merged walk finds it, or
//! its position in the memtable if it is in the logs only.

use std::sync::Arc;

use percolator_table::EntryPlace;

use super::LevelDb;
use super::merge::MergeCursor;
use crate::source::index::{Damage, IndexPlace, Kind, RecordIndex, Subject};
use crate::source::{Source as _, SourceError};
use percolator_files::shown;

/// Where a record is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordPlace {
    /// In the logs: its position in the memtable.
    Memory(usize),
    /// In a table, given by its number in the store.
    Table { table: usize, place: EntryPlace },
}

const OFFSET_BITS: u32 = 44;
const HALF_BITS: u32 = 32;
/// Stands in place of a table number; no database has this many tables.
const MEMORY: u64 = u64::MAX >> OFFSET_BITS;

impl RecordPlace {
    /// Encodes the place as two numbers: table and offset, length and entry. `None` if they do not fit; those
    /// of a real database do.
    pub(super) fn to_numbers(self) -> Option<[u64; 2]> {
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

    pub(super) fn of_numbers([first, second]: [u64; 2]) -> Self {
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

/// An index, and the place it was requested for.
#[derive(Clone, Debug)]
pub(super) struct Indexed {
    place: IndexPlace,
    pub(super) index: Arc<RecordIndex>,
}

impl LevelDb {
    pub(super) fn make_seekable(&self, place: &IndexPlace) -> Result<(), SourceError> {
        if self.indexed.lock().as_ref().is_some_and(|indexed| indexed.place == *place) {
            return Ok(());
        }
        let index = self.with_subject(place, |subject| match RecordIndex::find(subject) {
            Some(index) => Ok(index),
            None => self.make_index(subject),
        })?;
        *self.indexed.lock() = Some(Indexed { place: place.clone(), index: Arc::new(index) });
        Ok(())
    }

    /// Rebuilds an index that is found damaged.
    #[cold]
    pub(super) fn mend(&self, damage: &Damage) -> Result<Arc<RecordIndex>, SourceError> {
        let path = shown::path(&self.path);
        tracing::warn!(%path, %damage, "the record index cannot be used: rebuilding it");
        let place = self.indexed.lock().as_ref().map_or(IndexPlace::Memory, |indexed| indexed.place.clone());
        let index = Arc::new(self.with_subject(&place, |subject| self.make_index(subject))?);
        *self.indexed.lock() = Some(Indexed { place, index: index.clone() });
        Ok(index)
    }

    fn with_subject<T>(
        &self,
        place: &IndexPlace,
        run: impl FnOnce(&Subject<'_>) -> Result<T, SourceError>,
    ) -> Result<T, SourceError> {
        // If the path cannot be resolved, a sidecar cannot be kept either, or is named after the path as
        // given.
        let database = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        let identity = self.database.identity();
        run(&Subject { kind: Kind::LevelDb, database: (&*database).into(), identity, place })
    }

    fn make_index(&self, subject: &Subject<'_>) -> Result<RecordIndex, SourceError> {
        let mut walk = MergeCursor::deferring(&self.database, None);
        let mut places = Vec::new();
        while let Some(place) = walk.next_place()? {
            let numbers = place.to_numbers().ok_or_else(|| SourceError::NoPositions {
                path: self.path().to_owned(),
                found: format!("one of them is at {place:?}, which is past the limits of an index"),
                hint: "write it to tables of less than 16 TiB",
            })?;
            places.extend(numbers);
        }
        places.shrink_to_fit();
        Ok(RecordIndex::keep(subject, places))
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
