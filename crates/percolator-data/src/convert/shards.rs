//! The outputs, written one after the other: each has a range of the items.

use std::fs;
use std::path::Path;

use super::ConvertError;
use crate::store::{Backend, Mark, Place, StoreError, StoreWriter};

/// The output that is being written.
#[derive(Debug)]
pub(super) struct Shards {
    backend: Backend,
    /// The number of outputs.
    count: u32,
    /// The number of items; not needed if there is one output.
    items: u64,
    /// The number of the output that is being written.
    pub(super) shard: u32,
    writer: Box<dyn StoreWriter>,
}

impl Shards {
    /// Starts the first output, or goes on with one.
    pub(super) fn start(
        backend: Backend,
        (count, items): (u32, u64),
        place: &Place,
        (shard, mark): (u32, Option<&Mark>),
    ) -> Result<Self, StoreError> {
        let path = place.store(shard as usize);
        let writer = match mark {
            Some(mark) => backend.reopen(&path, mark)?,
            None => create(backend, &path)?,
        };
        Ok(Shards { backend, count, items, shard, writer })
    }

    /// Turns to the output that an item belongs to, and completes those before it.
    pub(super) fn turn_to(&mut self, item: u64, place: &Place) -> Result<(), StoreError> {
        while self.shard + 1 < self.count && item >= self.start_of(self.shard + 1) {
            let next = create(self.backend, &place.store(self.shard as usize + 1))?;
            std::mem::replace(&mut self.writer, next).finish()?;
            self.shard += 1;
        }
        Ok(())
    }

    /// The first item of an output.
    fn start_of(&self, shard: u32) -> u64 {
        let start = u128::from(self.items) * u128::from(shard) / u128::from(self.count);
        u64::try_from(start).expect("it is no more than the number of items")
    }

    pub(super) fn writer(&mut self) -> &mut dyn StoreWriter {
        &mut *self.writer
    }

    /// Completes the last output, and those after it, which have no items.
    pub(super) fn finish(mut self, place: &Place) -> Result<(), ConvertError> {
        self.turn_to(self.items, place)?;
        Ok(self.writer.finish()?)
    }
}

/// Starts a store. A run that was interrupted after its last commit may have started it before.
fn create(backend: Backend, path: &Path) -> Result<Box<dyn StoreWriter>, StoreError> {
    let failed = |action| StoreError::io(path, action);
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path).map_err(failed("remove the folder"))?,
        Ok(_) => fs::remove_file(path).map_err(failed("remove the file"))?,
        Err(_) => {}
    }
    backend.create(path)
}
