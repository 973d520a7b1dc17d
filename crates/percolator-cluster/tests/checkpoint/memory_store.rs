//! Files in memory: what an object store offers, and no rename.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::sync::Arc;

use parking_lot::Mutex;
use percolator_cluster::store::{Id, NewFile, Store, StoreError};
use uuid::Uuid;

type Files = BTreeMap<(Id, Uuid), Vec<u8>>;

#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryStore {
    pub(crate) files: Arc<Mutex<Files>>,
}

impl MemoryStore {
    pub(crate) fn names(&self, id: &str) -> Vec<Uuid> {
        self.list(&Id::new(id).unwrap()).unwrap()
    }
}

struct MemoryFile<'a> {
    store: &'a MemoryStore,
    key: (Id, Uuid),
    bytes: Vec<u8>,
}

impl Store for MemoryStore {
    fn create<'a>(&'a self, id: &Id, name: Uuid) -> Result<Box<dyn NewFile + 'a>, StoreError> {
        Ok(Box::new(MemoryFile { store: self, key: (id.clone(), name), bytes: Vec::new() }))
    }

    fn open<'a>(&'a self, id: &Id, name: Uuid) -> Result<Box<dyn Read + Send + 'a>, StoreError> {
        match self.files.lock().get(&(id.clone(), name)) {
            Some(bytes) => Ok(Box::new(io::Cursor::new(bytes.clone()))),
            None => Err(StoreError::Missing { path: name.to_string() }),
        }
    }

    fn list(&self, id: &Id) -> Result<Vec<Uuid>, StoreError> {
        Ok(self.files.lock().keys().filter(|(of, _)| of == id).map(|(_, name)| *name).collect())
    }

    fn ids(&self) -> Result<Vec<Id>, StoreError> {
        let ids: BTreeSet<_> = self.files.lock().keys().map(|(id, _)| id.clone()).collect();
        Ok(ids.into_iter().collect())
    }

    fn length(&self, id: &Id, name: Uuid) -> Result<u64, StoreError> {
        let files = self.files.lock();
        let file = files.get(&(id.clone(), name));
        Ok(file.ok_or_else(|| StoreError::Missing { path: name.to_string() })?.len() as u64)
    }

    fn remove(&self, id: &Id, name: Uuid) -> Result<(), StoreError> {
        self.files.lock().remove(&(id.clone(), name));
        Ok(())
    }

    fn remove_abandoned(&self, _: &Id) -> Result<usize, StoreError> {
        Ok(0)
    }

    fn abandoned(&self, _: &Id) -> Result<usize, StoreError> {
        Ok(0)
    }

    fn place(&self) -> String {
        "the memory of this test".to_owned()
    }
}

impl Write for MemoryFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl NewFile for MemoryFile<'_> {
    fn finish(self: Box<Self>) -> Result<(), StoreError> {
        let MemoryFile { store, key, bytes } = *self;
        store.files.lock().insert(key, bytes);
        Ok(())
    }
}
