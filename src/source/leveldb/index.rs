//! The index of a LevelDB's records: for each record the block and the entry where a merged walk finds it, or
//! its position in the memtable if it is in the logs only.

use std::sync::Arc;

use percolator_files::shown;
use percolator_leveldb::MergeCursor;

use super::{BY_THE_USER, LevelDb};
use crate::source::index::{Damage, IndexPlace, Kind, RecordIndex, Subject};
use crate::source::{Identity, Source as _, SourceError};

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
        let facts = self.database().facts();
        let identity = facts.fold(Identity::new(), |identity, (name, fact)| identity.with(name, fact));
        run(&Subject { kind: Kind::LevelDb, database: (&*database).into(), identity, place })
    }

    fn make_index(&self, subject: &Subject<'_>) -> Result<RecordIndex, SourceError> {
        let mut walk: MergeCursor = MergeCursor::new(self.database(), &[], None, BY_THE_USER, || None);
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
