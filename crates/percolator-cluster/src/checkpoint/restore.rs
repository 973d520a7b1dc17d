//! Restores a state from the checkpoint that counts, from an older one, or from the beginning.

use std::fmt;
use std::io::{self, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};

use percolator_files::shown;
use tracing::{info, warn};

use super::Checkpoint;
use super::entry::Entry;
use super::error::{CheckpointError, Fault};
use super::hash::{Summing, Sums};
use super::protocol::{Found, Protocol};
use super::record::CheckpointRecord;
use crate::store::{Id, Store, StoreError};

/// Where a state comes from.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The checkpoint that counts.
    Newest(Entry),
    /// One before it, because the newer ones could not be read.
    Older(Entry),
    /// The function that was given: there is no checkpoint, or none that could be read.
    Initial,
}

/// What could not be restored.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// The checkpoint; none if it is the record itself.
    pub entry: Option<Entry>,
    /// Why.
    pub fault: Fault,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.entry {
            Some(entry) => write!(f, "checkpoint {}: {}", entry.uuid, shown::with_sources(&self.fault)),
            None => write!(f, "{}", shown::with_sources(&self.fault)),
        }
    }
}

/// Where a state comes from, and why not from a newer checkpoint.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Restored {
    /// Where it comes from.
    pub origin: Origin,
    /// What was tried before, in this order.
    pub rejected: Vec<Rejected>,
}

impl Restored {
    /// The checkpoint that it comes from, if it comes from one.
    #[must_use]
    pub fn entry(&self) -> Option<&Entry> {
        match &self.origin {
            Origin::Newest(entry) | Origin::Older(entry) => Some(entry),
            Origin::Initial => None,
        }
    }
}

impl fmt::Display for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Newest(entry) => write!(f, "restored from the newest checkpoint, {}", entry.uuid)?,
            Origin::Older(entry) => write!(f, "restored from an older checkpoint, {}", entry.uuid)?,
            Origin::Initial if self.rejected.is_empty() => write!(f, "begun: there is no checkpoint")?,
            Origin::Initial => write!(f, "begun: no checkpoint could be restored")?,
        }
        self.rejected.iter().try_for_each(|rejected| write!(f, "; {rejected}"))
    }
}

/// Compares a file that was read to its end with what the record says. Returns its bytes.
fn compare(sums: Sums, entry: &Entry) -> Result<u64, Fault> {
    if let Some(recorded) = entry.bytes.filter(|&recorded| recorded != sums.bytes) {
        return Err(Fault::Length { found: sums.bytes, recorded });
    }
    for (algorithm, found, recorded) in
        [("MD5", sums.md5, Some(&entry.md5)), ("SHA-256", sums.sha256, entry.sha256.as_ref())]
    {
        if let Some(recorded) = recorded.filter(|recorded| **recorded != found) {
            return Err(Fault::Sum { algorithm, found, recorded: recorded.clone() });
        }
    }
    Ok(sums.bytes)
}

/// Reads a file to its end, and compares it with what the record says. Returns its bytes.
pub(super) fn verify(
    store: &dyn Store,
    id: &Id,
    entry: &Entry,
) -> Result<Result<u64, Fault>, CheckpointError> {
    take(store, id, entry, |from| Ok(io::copy(from, &mut io::sink())))
}

/// A file that is summed as it is read.
struct Taken<'a> {
    file: Box<dyn Read + Send + 'a>,
    summing: Summing,
    /// The store failed, and not the state.
    failed: Option<io::Error>,
}

impl Read for Taken<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(bytes).inspect_err(|error| {
            if error.kind() != io::ErrorKind::Interrupted {
                self.failed = Some(io::Error::new(error.kind(), error.to_string()));
            }
        })?;
        self.summing.update(bytes.get(..read).unwrap_or_default());
        Ok(read)
    }
}

/// Lets a reader have a file, and compares what it has read, and the rest, with what the record says: so the
/// file is read once. What was made of one that is not whole is discarded, and why it could not be made is
/// asked of a whole one alone.
fn take<T, E: From<CheckpointError>>(
    store: &dyn Store,
    id: &Id,
    entry: &Entry,
    read: impl FnOnce(&mut dyn Read) -> Result<io::Result<T>, E>,
) -> Result<Result<T, Fault>, E> {
    const READ_BYTES: usize = 1 << 20;

    let file = match store.open(id, entry.uuid) {
        Ok(file) => file,
        Err(error) => return Ok(Err(error.into())),
    };
    let summing = Summing::start().map_err(CheckpointError::thread)?;
    let mut taken = Taken { file, summing, failed: None };
    // Small reads of a state do not each ask the store.
    let mut buffered = io::BufReader::with_capacity(READ_BYTES, &mut taken);
    let done = read(&mut buffered);
    let unused = buffered.buffer().len() as u64;
    let taken_bytes = taken.summing.bytes - unused;
    if taken.failed.is_none() {
        let mut rest = io::BufReader::with_capacity(READ_BYTES, &mut taken);
        // If it fails, `failed` says so.
        let _ = io::copy(&mut rest, &mut io::sink());
    }
    if let Some(error) = taken.failed {
        return Ok(Err(StoreError::new("read a checkpoint from", &store.place(), error).into()));
    }
    let bytes = match compare(taken.summing.finish(), entry) {
        Ok(bytes) => bytes,
        Err(fault) => return Ok(Err(fault)),
    };
    Ok(match done? {
        Ok(_) if taken_bytes != bytes => Err(Fault::Rest { taken: taken_bytes, bytes }),
        Ok(state) => Ok(state),
        Err(error) => Err(Fault::State { source: error.into() }),
    })
}

/// Finds the first checkpoint of a record that is whole, and that `read` takes. Each one is verified while
/// `read` sees it, and counts only if it is whole. What cannot be restored is added to `rejected`. An outer
/// error of `read` ends the search, if the file is whole.
pub(super) fn first_whole<T, E: From<CheckpointError>>(
    store: &dyn Store,
    id: &Id,
    record: Option<&CheckpointRecord>,
    rejected: &mut Vec<Rejected>,
    mut read: impl FnMut(&mut dyn Read) -> Result<io::Result<T>, E>,
) -> Result<Option<(T, Origin)>, E> {
    for entry in record.into_iter().flat_map(CheckpointRecord::entries) {
        match take(store, id, entry, &mut read)? {
            Ok(state) => {
                let origin = match rejected.is_empty() {
                    true => Origin::Newest(entry.clone()),
                    false => Origin::Older(entry.clone()),
                };
                return Ok(Some((state, origin)));
            }
            Err(fault) => rejected.push(Rejected { entry: Some(entry.clone()), fault }),
        }
    }
    Ok(None)
}

/// Makes the state that the record leads to. Each checkpoint is taken by a state that `initial` has just
/// made, which is discarded if the file turns out not to be whole.
pub(super) fn restore<S: Checkpoint>(
    protocol: &mut Protocol,
    found: Found,
    initial: &mut dyn FnMut() -> S,
) -> Result<(S, Restored), CheckpointError> {
    let mut rejected = Vec::new();
    let record = found.unwrap_or_else(|fault| {
        rejected.push(Rejected { entry: None, fault });
        None
    });
    let read = |from: &mut dyn Read| {
        let mut state = initial();
        // What a damaged file states may make it panic, and an older one is looked for all the same.
        let read = catch_unwind(AssertUnwindSafe(|| state.read(from))).unwrap_or_else(|panic| {
            Err(io::Error::other(format!("the state panicked: {}", shown::panic_message(&*panic))))
        });
        Ok::<_, CheckpointError>(read.map(|()| state))
    };
    let found = first_whole(&*protocol.store, &protocol.id, record.as_ref(), &mut rejected, read)?;
    let is_missing = |rejected: &Rejected| matches!(rejected.fault, Fault::Store(StoreError::Missing { .. }));
    if let Some(record) = record.as_ref().filter(|_| rejected.iter().any(is_missing)) {
        // Even if it was among those that are listed.
        protocol.spare_announced(record.to_json());
    }
    for Rejected { entry, fault } in &rejected {
        if let Some(entry) = entry {
            protocol.reject(entry.uuid, fault.is_damage());
        }
    }
    let (state, origin) = found.unwrap_or_else(|| (initial(), Origin::Initial));
    let restored = Restored { origin, rejected };
    match restored.rejected.is_empty() {
        true => info!(id = %protocol.id, "{restored}"),
        false => warn!(id = %protocol.id, "{restored}"),
    }
    Ok((state, restored))
}
