//! Which checkpoints exist, and whether they are whole.

use std::collections::BTreeSet;

use super::{Archive, Ids, Kept, KeptFile, Verified};
use crate::checkpoint::announced::Announced;
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::hold::{Keys, holder, read_exactly};
use crate::checkpoint::record::CheckpointRecord;
use crate::checkpoint::restore::verify;
use crate::metadata::Revision;
use crate::store::{Id, StoreError};

/// How often it is looked again because a record changed. A writer would have to put that many while files
/// are read.
const LOOKS_MAX: usize = 5;

impl Archive {
    /// Returns the ids that have a record or files.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Metadata`] and [`CheckpointError::Store`].
    pub fn ids(&self) -> Result<Ids, CheckpointError> {
        let front = Keys::OF_RECORDS;
        let mut ids = Ids::default();
        for record in self.metadata.read(front)?.records {
            match record.key.strip_prefix(front).map(Id::new) {
                Some(Ok(id)) => _ = ids.ids.insert(id),
                _ => ids.other_keys.push(record.key),
            }
        }
        for id in self.store.ids()? {
            let has_any =
                |id| Ok::<_, StoreError>(!self.store.list(id)?.is_empty() || self.store.abandoned(id)? > 0);
            // What is wrong with a folder is said of its id, and not of all.
            if has_any(&id).unwrap_or(true) {
                ids.ids.insert(id);
            }
        }
        Ok(ids)
    }

    /// Returns what there is under an id.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Metadata`] and [`CheckpointError::Store`].
    pub fn look(&self, id: &Id) -> Result<Kept, CheckpointError> {
        self.look_at(id).map(|(kept, _)| kept)
    }

    /// The same, with the revision of the record.
    pub(super) fn look_at(&self, id: &Id) -> Result<(Kept, Option<Revision>), CheckpointError> {
        let mut looks = 1..=LOOKS_MAX;
        loop {
            looks.next();
            // First the files: those that a record names by then are there, or it has changed.
            let files = self.files(id)?;
            let unfinished = self.store.abandoned(id)?;
            let keys = Keys::new(id);
            let found = read_exactly(&*self.metadata, &[&keys.record, &keys.held, &keys.begun])?;
            let unreadable = self.metadata.read(&keys.unreadable)?;
            let record = found.get(&keys.record);
            let (revision, held) = (record.map(|record| record.modified), found.get(&keys.held));
            let kept = Kept {
                id: id.clone(),
                record: record.map(|record| CheckpointRecord::parse(&record.value)),
                held: held.map(|held| holder(&held.value)),
                files,
                announced: Announced::parse(found.get(&keys.begun)).names().iter().copied().collect(),
                unfinished,
                unreadable: unreadable.records.into_iter().map(|record| record.key).collect(),
            };
            let is_missing =
                |record: &CheckpointRecord| record.entries().any(|entry| kept.file(entry.uuid).is_none());
            // A file that was not there yet, or one that is gone.
            if looks.is_empty() || !kept.understood().is_some_and(is_missing) {
                return Ok((kept, revision));
            }
            if self.revision(id)? == revision && self.files(id)? == kept.files {
                return Ok((kept, revision));
            }
        }
    }

    /// The finished files, in the order of their names. One that goes meanwhile is not among them.
    fn files(&self, id: &Id) -> Result<Vec<KeptFile>, CheckpointError> {
        let mut files = Vec::new();
        for uuid in self.store.list(id)?.into_iter().collect::<BTreeSet<_>>() {
            match self.store.length(id, uuid) {
                Ok(bytes) => files.push(KeptFile { uuid, bytes }),
                Err(StoreError::Missing { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(files)
    }

    /// The revision of the record as it is now.
    pub(super) fn revision(&self, id: &Id) -> Result<Option<Revision>, CheckpointError> {
        let key = Keys::new(id).record;
        let found = read_exactly(&*self.metadata, &[&key])?;
        Ok(found.get(&key).map(|record| record.modified))
    }

    /// Reads every checkpoint that an id's record names, and compares length, MD5 and SHA-256. Files that no
    /// record names have nothing that they could be compared with.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Metadata`] and [`CheckpointError::Store`]; a file that cannot be read is among
    /// [`Verified::checked`].
    pub fn verify(&self, id: &Id) -> Result<Verified, CheckpointError> {
        let mut looks = 1..=LOOKS_MAX;
        loop {
            looks.next();
            let (kept, revision) = self.look_at(id)?;
            let mut checked = Vec::new();
            for entry in kept.understood().into_iter().flat_map(CheckpointRecord::entries) {
                checked.push((entry.clone(), verify(&*self.store, id, entry)?));
            }
            let verified = Verified { kept, checked };
            // A writer that put a newer one removes those that are not needed any more.
            if verified.is_whole() || looks.is_empty() || self.revision(id)? == revision {
                return Ok(verified);
            }
        }
    }
}
