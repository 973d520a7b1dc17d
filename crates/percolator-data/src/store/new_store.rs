//! A store that is either whole or absent.

use std::fs;
use std::path::Path;

use super::{Backend, Place, StoreError, StoreWriter, Taken};

/// Writes a store that gets its name once it is whole. Dropping it before that removes what was written; what
/// a killed process left is removed by the next one.
///
/// ```
/// use percolator::source::{Lmdb, Source as _};
/// use percolator_data::store::{Backend, NewStore};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("numbers_lmdb");
/// let mut store = NewStore::create(&path, Backend::Lmdb, false)?;
/// for number in 0..10 {
///     store.put(format!("{number:08}").as_bytes(), b"value")?;
/// }
/// store.finish()?;
/// assert_eq!(Lmdb::open(&path)?.records(), Some(10));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the store is there once it is finished"]
pub struct NewStore {
    /// `None` once it is finished.
    place: Option<Place>,
    writer: Option<Box<dyn StoreWriter>>,
    records: u64,
}

impl NewStore {
    /// Starts a store that will have this path.
    ///
    /// # Errors
    ///
    /// [`StoreError::Exists`] if something is there, unless it `is_forced` and a store of the kind: that is
    /// then replaced at the end. [`StoreError`] if no store can be written there.
    pub fn create(path: &Path, backend: Backend, is_forced: bool) -> Result<Self, StoreError> {
        if !is_forced && fs::symlink_metadata(path).is_ok() {
            return Err(StoreError::Exists { path: path.to_owned() });
        }
        let outputs = vec![path.to_owned()];
        let Taken { place, .. } = Place::take(path, outputs, backend, is_forced, true)?;
        place.clear()?;
        let mut store = NewStore { place: Some(place), writer: None, records: 0 };
        store.writer = match &store.place {
            Some(place) => Some(backend.create(&place.store(0))?),
            None => None,
        };
        Ok(store)
    }

    /// Adds a record, and writes a batch if one is full.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the store cannot have the key, or the records cannot be written.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let Some(writer) = &mut self.writer else { return Ok(()) };
        writer.put(key, value)?;
        self.records += 1;
        if writer.is_due() {
            writer.commit()?;
        }
        Ok(())
    }

    /// The number of records added.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Completes the store and gives it its name.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if that fails. The store is then removed.
    pub fn finish(mut self) -> Result<(), StoreError> {
        if let Some(writer) = self.writer.take() {
            writer.finish()?;
        }
        self.place.take().map_or(Ok(()), |place| place.finish(&[]))
    }
}

impl Drop for NewStore {
    fn drop(&mut self) {
        // It is closed before its files are removed.
        self.writer = None;
        if let Some(place) = self.place.take() {
            let _ = place.discard();
        }
    }
}
