//! Files that no record names are removed, by the holder of the id.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use uuid::Uuid;

use super::{Archive, ArchiveError, Kept};
use crate::checkpoint::entry::{Entry, Writer};
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::protocol::Protocol;
use crate::checkpoint::record::{CheckpointRecord, KEPT_MAX, RecordError};
use crate::checkpoint::restore::verify;
use crate::store::Id;

/// How long the id is held after this process was last heard of.
const TTL: Duration = Duration::from_secs(10);

/// What is removed, apart from files that an id's record does not name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanOptions {
    /// So many whole checkpoints are kept, the newest first, and what is damaged between them; if it is not
    /// given, all that the record names. Their files are read for that.
    pub keep: Option<usize>,
    /// Checkpoints are removed that a restore could not read, although nothing shows that they are damaged.
    pub spared: bool,
    /// Also removes files that the metadata do not know, all files of an id without a record, and those that
    /// the record does not name although a file that it names is missing. With the wrong metadata, or with an
    /// old copy of them, these may be checkpoints.
    pub without_record: bool,
    /// Nothing is removed: what would be is returned.
    pub dry_run: bool,
}

/// What was removed, or would be.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Cleaned {
    /// The id.
    pub id: Id,
    /// Checkpoints that were taken out of the record. Their files are among those that were removed.
    pub taken_out: Vec<Entry>,
    /// The files.
    pub removed: Vec<Uuid>,
    /// How many files were begun but not finished, and were no longer being written.
    pub unfinished: usize,
    /// Why other files stay that no record names.
    pub left: Option<Left>,
}

/// Why files stay that no record names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Left {
    /// A process has the id. It removes them itself.
    Held(Writer),
    /// The id has no record, and it was not said that its files are to go all the same.
    NoRecord {
        /// How many files it has.
        files: usize,
    },
    /// The file of this checkpoint is missing: the record may be older than they are, and it was not said
    /// that they are to go all the same.
    Missing(Uuid),
    /// Nothing in the metadata says whose they are, and it was not said that they are to go all the same.
    Unknown {
        /// How many files these are.
        files: usize,
    },
    /// The record is not understood: it may name any of them.
    NotUnderstood(RecordError),
    /// What is kept under these keys says why: records that were not understood, or that do not go with the
    /// files.
    Unreadable(Vec<String>),
}

impl Cleaned {
    /// Nothing was removed, or would be.
    fn nothing(kept: &Kept, left: Option<Left>) -> Self {
        Cleaned { id: kept.id.clone(), taken_out: Vec::new(), removed: Vec::new(), unfinished: 0, left }
    }
}

/// What is to go, of what there is.
fn plan(
    kept: &Kept,
    options: &CleanOptions,
    is_whole: &mut dyn FnMut(&Entry) -> Result<bool, CheckpointError>,
) -> Result<Cleaned, CheckpointError> {
    let cleaned = |left| Cleaned { unfinished: kept.unfinished, ..Cleaned::nothing(kept, left) };
    let record = match &kept.record {
        Some(Ok(record)) => record,
        Some(Err(error)) => return Ok(cleaned(Some(Left::NotUnderstood(error.clone())))),
        None if !options.without_record && !kept.is_empty() => {
            return Ok(Cleaned::nothing(kept, Some(Left::NoRecord { files: kept.files.len() })));
        }
        None if kept.unreadable.is_empty() => {
            let removed = kept.files.iter().map(|file| file.uuid).collect();
            return Ok(Cleaned { removed, ..cleaned(None) });
        }
        None => return Ok(cleaned(Some(Left::Unreadable(kept.unreadable.clone())))),
    };
    let taken_out = taken_out(record, options, is_whole)?;
    let is_out = |uuid| taken_out.iter().any(|entry| entry.uuid == uuid);
    let is_missing = |entry: &&Entry| kept.file(entry.uuid).is_none();
    let missing = std::iter::once(&record.newest).chain(&record.kept).find(is_missing);
    let unknown = kept.unnamed().filter(|file| !kept.announced.contains(&file.uuid)).count();
    let left = if kept.unnamed().next().is_none() {
        None
    } else if !kept.unreadable.is_empty() {
        Some(Left::Unreadable(kept.unreadable.clone()))
    } else if options.without_record {
        None
    } else if let Some(missing) = missing {
        Some(Left::Missing(missing.uuid))
    } else if unknown > 0 {
        Some(Left::Unknown { files: unknown })
    } else {
        None
    };
    let may_go_unnamed = |uuid| match left {
        None => true,
        Some(Left::Unknown { .. }) => kept.announced.contains(&uuid),
        Some(_) => false,
    };
    let may_go = |uuid| is_out(uuid) || (!record.names(uuid) && may_go_unnamed(uuid));
    let removed = kept.files.iter().map(|file| file.uuid).filter(|&uuid| may_go(uuid)).collect();
    Ok(Cleaned { taken_out, removed, ..cleaned(left) })
}

/// Which checkpoints a record is to lose: those that come after as many whole ones as are to be kept, so that
/// a damaged one takes no place of a whole one.
fn taken_out(
    record: &CheckpointRecord,
    options: &CleanOptions,
    is_whole: &mut dyn FnMut(&Entry) -> Result<bool, CheckpointError>,
) -> Result<Vec<Entry>, CheckpointError> {
    let mut taken: Vec<Entry> = record.spared.iter().filter(|_| options.spared).cloned().collect();
    let Some(keep) = options.keep else { return Ok(taken) };
    let mut whole = usize::from(is_whole(&record.newest)?);
    for entry in &record.kept {
        if whole >= keep {
            taken.push(entry.clone());
        } else if is_whole(entry)? {
            whole += 1;
        }
    }
    Ok(taken)
}

impl Archive {
    /// Removes the files of an id that its record does not name, and those of checkpoints that are more than
    /// are to be kept. Files of other ids are not touched, nor those that are being written: during that
    /// time, this process holds the id, which no other process may have.
    ///
    /// A process that was cut off for longer than its lease goes on afterwards, unless its record was
    /// changed: then it gets [`CheckpointError::Superseded`].
    ///
    /// # Errors
    ///
    /// [`ArchiveError::Keep`] if none, or more than [`KEPT_MAX`], are to be kept;
    /// [`ArchiveError::Checkpoint`] if records or files cannot be used. A process that has the id is no
    /// error, but [`Left::Held`].
    pub fn clean(&self, id: &Id, options: &CleanOptions) -> Result<Cleaned, ArchiveError> {
        if let Some(found) = options.keep.filter(|&keep| keep == 0 || keep > KEPT_MAX) {
            return Err(ArchiveError::Keep { found });
        }
        let kept = self.look(id)?;
        // Each file is read once, although it is planned twice.
        let mut known = BTreeMap::new();
        let mut is_whole = |entry: &Entry| match known.get(&entry.uuid) {
            Some(&is_whole) => Ok(is_whole),
            None => {
                let is_whole = verify(&*self.store, id, entry)?.is_ok();
                known.insert(entry.uuid, is_whole);
                Ok::<bool, CheckpointError>(is_whole)
            }
        };
        let planned = plan(&kept, options, &mut is_whole)?;
        let held = |by: &Writer| Cleaned::nothing(&kept, Some(Left::Held(by.clone())));
        if let Some((by, _)) = &kept.held {
            return Ok(held(by));
        }
        let is_nothing =
            planned.taken_out.is_empty() && planned.removed.is_empty() && planned.unfinished == 0;
        if options.dry_run || is_nothing {
            return Ok(planned);
        }
        let (store, metadata) = (self.store.clone(), self.metadata.clone());
        let begun = Protocol::begin(store, metadata, id.clone(), KEPT_MAX, TTL, Duration::ZERO);
        let mut protocol = match begun {
            Ok((protocol, _)) => protocol,
            Err(CheckpointError::Held { by, .. }) => return Ok(held(&by)),
            Err(error) => return Err(error.into()),
        };
        if options.without_record {
            protocol.give_up_unknown();
        }
        // What was seen before the id was taken may have changed.
        let planned = plan(&self.look(id)?, options, &mut is_whole)?;
        if !planned.taken_out.is_empty() {
            let taken: BTreeSet<_> = planned.taken_out.iter().map(|entry| entry.uuid).collect();
            protocol.take_out(&taken)?;
        }
        let removed = protocol.remove(planned.removed)?;
        let unfinished = match planned.left {
            Some(Left::NoRecord { .. }) => 0,
            _ => {
                protocol.confirm_hold()?;
                self.store.remove_abandoned(id).map_err(CheckpointError::from)?
            }
        };
        Ok(Cleaned { removed, unfinished, ..planned })
    }
}
