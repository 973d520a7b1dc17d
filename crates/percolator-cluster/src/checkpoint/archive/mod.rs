//! The checkpoints of all ids, for their maintenance: listed, verified, extracted, cleaned up.
//!
//! Nothing here waits for training, or disturbs it. Commands that only read do not take the id: if the record
//! changes meanwhile, they read again. Commands that remove files take the id, as a writer does, and leave it
//! alone if another process has it.

mod clean;
mod error;
mod extract;
mod look;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::SystemTime;

use uuid::Uuid;

pub use self::clean::{CleanOptions, Cleaned, Left};
pub use self::error::ArchiveError;
pub use self::extract::Extracted;
use super::entry::{Entry, Writer};
use super::error::Fault;
use super::record::{CheckpointRecord, RecordError};
use crate::metadata::Metadata;
use crate::store::{Id, Store};

/// Checkpoints in a store, and their records.
///
/// ```
/// use std::sync::Arc;
///
/// use percolator_cluster::Checkpointer;
/// use percolator_cluster::checkpoint::{Archive, Existing};
/// use percolator_cluster::metadata::MemoryMetadata;
/// use percolator_cluster::store::{FolderStore, Id};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// let store = Arc::new(FolderStore::open(folder.path())?);
/// let metadata = Arc::new(MemoryMetadata::new());
/// Checkpointer::new(store.clone(), metadata.clone(), "shard-0")?.restore(|| vec![7_u8; 4])?.save_now()?;
///
/// let archive = Archive::new(store, metadata);
/// for id in archive.ids()?.ids {
///     assert!(archive.verify(&id)?.is_whole());
/// }
/// let target = folder.path().join("state");
/// archive.extract(&Id::new("shard-0")?, None, &target, Existing::Refuse)?;
/// assert_eq!(std::fs::read(&target)?, [7; 4]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Archive {
    store: Arc<dyn Store>,
    metadata: Arc<dyn Metadata>,
}

/// The ids that there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ids {
    /// Those that have a record, files, or both.
    pub ids: BTreeSet<Id>,
    /// Keys among those of records that are not an id's.
    pub other_keys: Vec<String>,
}

/// What there is under an id.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Kept {
    /// The id.
    pub id: Id,
    /// Its record, if there is one.
    pub record: Option<Result<CheckpointRecord, RecordError>>,
    /// Who has the id, and since when, by the holder's clock.
    pub held: Option<(Writer, SystemTime)>,
    /// The finished files, with their bytes.
    pub files: Vec<KeptFile>,
    /// The files that processes of the id have begun, or may begin, and that the record does not name.
    pub announced: BTreeSet<Uuid>,
    /// How many files were begun that are no longer being written.
    pub unfinished: usize,
    /// The keys of records that were not understood and replaced: they may name any file.
    pub unreadable: Vec<String>,
}

/// A finished file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptFile {
    /// Its name.
    pub uuid: Uuid,
    /// How many bytes it has.
    pub bytes: u64,
}

impl Kept {
    /// Returns the record, if it is understood.
    #[must_use]
    pub fn understood(&self) -> Option<&CheckpointRecord> {
        self.record.as_ref()?.as_ref().ok()
    }

    /// Returns a file, if it is there.
    #[must_use]
    pub fn file(&self, uuid: Uuid) -> Option<&KeptFile> {
        self.files.iter().find(|file| file.uuid == uuid)
    }

    /// Returns the files that the record does not name.
    pub fn unnamed(&self) -> impl Iterator<Item = &KeptFile> {
        let is_named = |uuid| self.understood().is_some_and(|record| record.names(uuid));
        self.files.iter().filter(move |file| !is_named(file.uuid))
    }

    /// Returns whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.record.is_none() && self.files.is_empty() && self.unfinished == 0 && self.unreadable.is_empty()
    }
}

/// What was verified under an id.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Verified {
    /// What there is.
    pub kept: Kept,
    /// Each checkpoint that the record names, with its bytes, or with what is wrong.
    pub checked: Vec<(Entry, Result<u64, Fault>)>,
}

impl Verified {
    /// Returns whether every checkpoint is what was written, and the record is understood.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        !matches!(self.kept.record, Some(Err(_))) && self.checked.iter().all(|(_, found)| found.is_ok())
    }
}

impl Archive {
    /// Looks after what is in a store and in metadata. They are those of the training's
    /// [`Checkpointer`](super::Checkpointer)s.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, metadata: Arc<dyn Metadata>) -> Self {
        Archive { store, metadata }
    }
}
