//! How a process joins a group.
//!
//! The group's record says who is in which generation. It is under the lease of the process that made it, and
//! each process that joins changes it by a transaction, so no two have one rank. When all are in it, they
//! meet in the first round of the generation. If that fails because one of them was left over from before,
//! all live ones give up the generation and join a new one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use percolator_distribute::CollectiveError;
use tracing::debug;

use super::error::GroupError;
use super::generation::Generation;
use super::keys::GroupKeys;
use super::records::{GroupRecord, VERSION, WhoRecord, read, write};
use crate::metadata::{Lease, LeaseId, Metadata, MetadataError, Outcome, Record, Revision, Transaction};
use crate::patience::Deadline;

/// A process that joins a group.
#[derive(Debug)]
pub(super) struct Joining {
    pub(super) metadata: Arc<dyn Metadata>,
    pub(super) keys: GroupKeys,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) ttl: Duration,
    pub(super) timeout: Duration,
}

/// What becomes of an attempt to be in the group.
enum Enlisted {
    /// The process is a member of this generation.
    In(String),
    /// It cannot be, as long as this is so.
    Not(GroupError, Revision),
}

impl Joining {
    pub(super) fn join(&self) -> Result<Generation, GroupError> {
        let deadline = Deadline::after(self.timeout);
        // A predecessor that died has gone by then.
        let patience = || Deadline::after(self.ttl.saturating_mul(2).min(self.timeout));
        let mut refused = patience();
        loop {
            let lease = deadline.patiently(|| Lease::keep(self.metadata.clone(), self.ttl))?;
            let generation = match self.enlist(&lease, deadline)? {
                Enlisted::In(generation) => generation,
                Enlisted::Not(reason, revision) => {
                    let left = refused.left();
                    if left.is_zero() {
                        return Err(reason);
                    }
                    self.wait(revision, left, deadline)?;
                    continue;
                }
            };
            let (metadata, keys) = (self.metadata.clone(), self.keys.generation(&generation));
            let place = Generation { metadata, keys, rank: self.rank, size: self.size, lease };
            match self.meet(&place, &generation, deadline)? {
                true => return Ok(place),
                false => debug!(self.rank, generation, "the group's generation is given up before it began"),
            }
            refused = patience();
        }
    }

    /// Enters the group's record, or makes it.
    fn enlist(&self, lease: &Lease, deadline: Deadline) -> Result<Enlisted, GroupError> {
        let key = self.keys.group();
        loop {
            let found = deadline.patiently(|| self.metadata.read(&key))?;
            let record = found.get(&key);
            let (generation, transaction) = match record {
                None => self.first(lease),
                Some(record) => {
                    let group = group(record)?;
                    if let Some(reason) = self.refusal(&group) {
                        let has_begun = group.members.len() >= group.size;
                        match self.holder(&group.generation, deadline)? {
                            // An answer was lost.
                            Some(holder) if holder == lease.id() => {
                                return Ok(Enlisted::In(group.generation));
                            }
                            // A predecessor died while the others were waited for.
                            None if !has_begun && group.size == self.size => {}
                            _ => return Ok(Enlisted::Not(reason, found.revision)),
                        }
                    }
                    self.further(record, group)?
                }
            };
            let rank = self.keys.generation(&generation).rank(self.rank);
            let transaction = transaction.when_missing(&*rank);
            let transaction = transaction.put_under(lease.id(), rank, write(&WhoRecord::here()));
            match deadline.patiently(|| self.metadata.transact(&transaction)) {
                Ok(Outcome::Committed(_)) => return Ok(Enlisted::In(generation)),
                Ok(Outcome::Refused(_)) => {}
                // The process that made the group's record has gone, and the record with it.
                Err(MetadataError::LeaseExpired { lease: ended }) if ended != lease.id() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A new generation, with this process alone.
    fn first(&self, lease: &Lease) -> (String, Transaction) {
        let generation = uuid::Uuid::new_v4().to_string();
        let members = BTreeMap::from([(self.rank, WhoRecord::here())]);
        let group =
            GroupRecord { version: VERSION, generation: generation.clone(), size: self.size, members };
        let key = self.keys.group();
        (generation, Transaction::new().when_missing(&*key).put_under(lease.id(), key, write(&group)))
    }

    /// A generation that others have begun.
    fn further(&self, record: &Record, mut group: GroupRecord) -> Result<(String, Transaction), GroupError> {
        let Some(lease) = record.lease else {
            let message = "no lease holds it: it is none of this library's".to_owned();
            return Err(GroupError::Record { key: record.key.clone(), message });
        };
        group.members.insert(self.rank, WhoRecord::here());
        let changed = Transaction::new().when_modified(&*record.key, record.modified);
        let changed = changed.put_under(lease, &*record.key, write(&group));
        Ok((group.generation, changed))
    }

    /// Why this process cannot be in a group.
    fn refusal(&self, group: &GroupRecord) -> Option<GroupError> {
        let job = self.keys.job.clone();
        if group.size != self.size {
            let who = group.members.values().next().cloned();
            let WhoRecord { host, pid } = who.unwrap_or_else(WhoRecord::here);
            let (found, stated) = (self.size, group.size);
            return Some(GroupError::OtherSize { job, found, stated, host, pid });
        }
        let WhoRecord { host, pid } = group.members.get(&self.rank).cloned()?;
        Some(GroupError::SameRank { job, rank: self.rank, host, pid })
    }

    /// The lease that holds this rank in a generation.
    fn holder(&self, generation: &str, deadline: Deadline) -> Result<Option<LeaseId>, GroupError> {
        let key = self.keys.generation(generation).rank(self.rank);
        let found = deadline.patiently(|| self.metadata.read(&key))?;
        Ok(found.get(&key).and_then(|record| record.lease))
    }

    /// Waits until all are in the generation, and have met in its first round. Returns false if they never
    /// will be.
    fn meet(&self, place: &Generation, generation: &str, deadline: Deadline) -> Result<bool, GroupError> {
        let key = self.keys.group();
        let late = |missing| {
            let (job, size, waited) = (self.keys.job.clone(), self.size, deadline.patience);
            GroupError::Late { job, missing, size, waited }
        };
        loop {
            let found = deadline.patiently(|| self.metadata.read(&key))?;
            let group = found.get(&key).map(group).transpose()?;
            let Some(group) = group.filter(|group| group.generation == generation) else { return Ok(false) };
            let missing: Vec<_> = (0..self.size).filter(|rank| !group.members.contains_key(rank)).collect();
            if missing.is_empty() {
                break;
            }
            if deadline.left().is_zero() {
                return Err(late(missing));
            }
            self.wait(found.revision, deadline.left(), deadline)?;
        }
        place.enter(0, &[], None, deadline)?;
        match place.gather(0, &[], deadline) {
            Ok(_) => Ok(true),
            Err(CollectiveError::Late { missing, .. }) => Err(late(missing)),
            Err(CollectiveError::Failed(error)) => match error.downcast_ref::<GroupError>() {
                Some(error) => Err(error.clone()),
                None => Err(late(Vec::new())),
            },
            Err(_) => Ok(false),
        }
    }

    fn wait(&self, revision: Revision, at_most: Duration, deadline: Deadline) -> Result<(), GroupError> {
        deadline.patiently(|| self.metadata.wait(&self.keys.group(), revision, at_most))?;
        Ok(())
    }
}

fn group(record: &Record) -> Result<GroupRecord, GroupError> {
    let group: GroupRecord = read(record)?;
    if group.version == VERSION {
        return Ok(group);
    }
    let message = format!("its version is {}, and {VERSION} is known", group.version);
    Err(GroupError::Record { key: record.key.clone(), message })
}
