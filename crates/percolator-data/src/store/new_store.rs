//! A store that is either whole or absent.

use std::path::Path;

use super::leveldb::LevelDbWriter;
use super::place::{Earlier, Output, Place, followed};
use super::{Backend, Existing, StoreError, StoreWriter};

/// Writes a store that gets its name once it is whole. Dropping it before that removes what was written; what
/// a killed process left is removed by the next one. What a [conversion](crate::convert) left, which can go
/// on with it, is refused.
///
/// ```
/// use percolator::source::{Lmdb, Source as _};
/// use percolator_data::store::{Backend, Existing, NewStore};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("numbers_lmdb");
/// let mut store = NewStore::create(&path, Backend::Lmdb, Existing::Refuse)?;
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
    /// [`StoreError::Exists`] or [`StoreError::NotAStore`] if something is there that is not to be replaced.
    /// [`StoreError`] if no store can be written there.
    pub fn create(path: &Path, backend: Backend, existing: Existing) -> Result<Self, StoreError> {
        Self::start(path, existing, |store| backend.create(store))
    }

    /// Starts a LevelDB that will have this path, and whose blocks end with so many bytes, in place of
    /// Caffe's 64 KiB.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn leveldb_with_blocks(
        path: &Path,
        block_bytes: u32,
        existing: Existing,
    ) -> Result<Self, StoreError> {
        let create = |store: &Path| -> Result<Box<dyn StoreWriter>, StoreError> {
            Ok(Box::new(LevelDbWriter::create(store)?.with_blocks(block_bytes)))
        };
        Self::start(path, existing, create)
    }

    fn start(
        path: &Path,
        existing: Existing,
        create: impl FnOnce(&Path) -> Result<Box<dyn StoreWriter>, StoreError>,
    ) -> Result<Self, StoreError> {
        let path = followed(path);
        let earlier = match existing {
            Existing::Refuse => Earlier::Refuse,
            Existing::Replace => Earlier::Remove,
        };
        let place = Place::take(&path, vec![Output::store(0, path.clone())], existing, earlier)?;
        let writer = create(&place.store(0));
        let mut store = NewStore { place: Some(place), writer: None, records: 0 };
        store.writer = Some(writer?);
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
        // If that fails, the place is discarded with this.
        self.place.as_ref().map_or(Ok(()), Place::finish)?;
        self.place = None;
        Ok(())
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
