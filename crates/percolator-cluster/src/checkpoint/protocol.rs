//! The steps that make a file the checkpoint that counts, and those before it leave. docs/design.md says why
//! they are in this order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use tracing::{info, warn};
use uuid::Uuid;

use super::entry::{Entry, Writer};
use super::error::CheckpointError;
use super::hold::{Hold, Keys, Taken, holder, read_exactly};
use super::record::{Record, RecordError, SPARED_MAX};
use crate::metadata::{LeaseId, Metadata, MetadataError, Outcome, Records, Revision, Transaction};
use crate::store::{Id, Store};

/// So many files may wait for an answer that says whether their record was put. No more are written then.
const UNRESOLVED_MAX: usize = 4;

/// One process's way through the protocol.
///
/// # Invariants
///
/// 1. A record is put only under a hold, and names a file that was begun under that hold. So nobody else can
///    have listed the file as one to be removed.
/// 2. A file is removed only if the record did not name it at a moment at which it was there and the id was
///    held; or if it is this process's own, and no put of it was ever sent.
/// 3. `seen` is the revision of the record that this process put or read last, unless a put in `unresolved`
///    has happened since.
#[derive(Debug)]
pub(super) struct Protocol {
    pub(super) store: Arc<dyn Store>,
    metadata: Arc<dyn Metadata>,
    pub(super) id: Id,
    keys: Keys,
    ttl: Duration,
    /// How many checkpoints are kept.
    keep: usize,
    hold: Hold,
    /// The lease of a try to take the id again that nobody has answered: the id may be held under it.
    tried: Option<LeaseId>,
    seen: Option<Revision>,
    /// The checkpoints that count, the newest first.
    good: Vec<Entry>,
    spared: Vec<Entry>,
    /// The files that the record at `seen` names: also those of checkpoints that could not be restored.
    named: BTreeSet<Uuid>,
    /// Checkpoints whose record was put, as far as this process knows, or was not.
    unresolved: Vec<Entry>,
    /// What is to be kept elsewhere when the record is replaced: the bytes of one that is not understood, or
    /// that does not go with the store.
    set_aside: Option<Vec<u8>>,
    /// A record that is not known, or not understood, may name any file: only those of `dropped` are removed.
    spares_unknown: bool,
    dropped: BTreeSet<Uuid>,
}

/// What became of a put.
pub(super) enum Put {
    Done,
    /// The lease had ended. The file may not be used any more.
    HoldLost,
}

/// What a record's place says.
pub(super) enum Found {
    Nothing,
    /// No record, although there are so many files.
    NoRecord(usize),
    Record(Record),
    Unreadable(RecordError),
}

impl Protocol {
    /// Takes the id, waiting for whoever has it, and reads its record.
    pub(super) fn begin(
        store: Arc<dyn Store>,
        metadata: Arc<dyn Metadata>,
        id: Id,
        keep: usize,
        ttl: Duration,
        wait: Duration,
    ) -> Result<(Self, Found), CheckpointError> {
        let keys = Keys::new(&id);
        let hold = Hold::wait(&metadata, &id, &keys, ttl, wait)?;
        let records = read_exactly(&*metadata, &[&keys.record])?;
        let spares_unknown = !metadata.read(&keys.unreadable)?.records.is_empty();
        let mut protocol = Protocol {
            store,
            metadata,
            id,
            keys,
            ttl,
            keep,
            hold,
            tried: None,
            seen: None,
            good: Vec::new(),
            spared: Vec::new(),
            named: BTreeSet::new(),
            unresolved: Vec::new(),
            set_aside: None,
            spares_unknown,
            dropped: BTreeSet::new(),
        };
        let Some(record) = records.get(&protocol.keys.record) else {
            let found = protocol.begin_without_record()?;
            return Ok((protocol, found));
        };
        protocol.seen = Some(record.modified);
        match Record::parse(&record.value) {
            Ok(record) => {
                protocol.good = std::iter::once(&record.newest).chain(&record.kept).cloned().collect();
                protocol.spared.clone_from(&record.spared);
                protocol.named = record.entries().map(|entry| entry.uuid).collect();
                Ok((protocol, Found::Record(record)))
            }
            Err(error) => {
                protocol.set_aside = Some(record.value.clone());
                protocol.spares_unknown = true;
                Ok((protocol, Found::Unreadable(error)))
            }
        }
    }

    /// There is no record. Files that are there are what a process left that was killed before its first
    /// record, if the id was begun with these metadata. If it was not, another record names them, in other
    /// metadata, or one that was lost: they stay.
    fn begin_without_record(&mut self) -> Result<Found, CheckpointError> {
        if !read_exactly(&*self.metadata, &[&self.keys.begun])?.records.is_empty() {
            return Ok(Found::Nothing);
        }
        let files = self.store.list(&self.id)?.len();
        if files > 0 {
            let (store, writer) = (self.store.place(), Writer::this());
            self.spare_unknown(
                format!("no record was found of {files} files in {store}, by {writer}").into(),
            );
            return Ok(Found::NoRecord(files));
        }
        let begin = self.when_seen(self.when_held()).put(&self.keys.begun, Writer::this().to_string());
        match self.metadata.transact(&begin)? {
            Outcome::Committed(_) => Ok(Found::Nothing),
            Outcome::Refused(found) => Err(self.superseded(&found)),
        }
    }

    /// Files stay that no record names, from now on and for later processes. What is set aside says why.
    pub(super) fn spare_unknown(&mut self, set_aside: Vec<u8>) {
        self.spares_unknown = true;
        self.set_aside.get_or_insert(set_aside);
    }

    /// Somebody has said that files may go although no record was found that names them.
    pub(super) fn give_up_unknown(&mut self) {
        (self.spares_unknown, self.set_aside) = (false, None);
    }

    /// Takes a checkpoint that cannot be restored out of those that the next record will name, unless nothing
    /// shows that it is damaged: then it is spared.
    pub(super) fn reject(&mut self, uuid: Uuid, is_damaged: bool) {
        if let Some(place) = self.good.iter().position(|entry| entry.uuid == uuid) {
            let entry = self.good.remove(place);
            if !is_damaged {
                self.spared.insert(0, entry);
            }
        }
        for entry in self.spared.drain(self.spared.len().min(SPARED_MAX)..) {
            warn!(id = %self.id, uuid = %entry.uuid, "a checkpoint that could not be read is given up: \
                   there are too many of them");
        }
    }

    /// What messages call the metadata and the store.
    pub(super) fn places(&self) -> (String, String) {
        (self.metadata.place(), self.store.place())
    }

    /// The record that makes `newest` count.
    fn record(&self, newest: &Entry) -> Record {
        let kept = self.good.iter().take(self.keep - 1).cloned().collect();
        Record { newest: newest.clone(), kept, spared: self.spared.clone() }
    }

    fn when_seen(&self, transaction: Transaction) -> Transaction {
        match self.seen {
            Some(revision) => transaction.when_modified(&self.keys.record, revision),
            None => transaction.when_missing(&self.keys.record),
        }
    }

    /// The first condition of everything that changes something.
    fn when_held(&self) -> Transaction {
        Transaction::new().when_held_by(&self.keys.held, self.hold.lease())
    }

    /// The record names this checkpoint. Other puts whose answer is not known asked for the record before it:
    /// they have not happened, and never will.
    fn count(&mut self, entry: Entry, revision: Revision) {
        self.seen = Some(revision);
        let others = self.unresolved.drain(..).map(|other| other.uuid);
        self.dropped.extend(others.filter(|&other| other != entry.uuid));
        self.good.insert(0, entry);
        let kept = self.good.len().min(self.keep);
        self.good.truncate(kept);
        let named = self.good.iter().chain(&self.spared).map(|entry| entry.uuid).collect();
        let before = std::mem::replace(&mut self.named, named);
        self.dropped.extend(before.difference(&self.named));
        if self.set_aside.take().is_some() {
            warn!(id = %self.id, key = self.keys.unreadable, "files stay that no record names: what is kept \
                   under this key says why");
        }
    }

    /// Looks whether the record is one of those whose put was not answered.
    fn resolve(&mut self, found: &Records) -> bool {
        let Some(record) = found.get(&self.keys.record) else { return false };
        let Ok(parsed) = Record::parse(&record.value) else { return false };
        let found = self.unresolved.iter().find(|entry| entry.uuid == parsed.newest.uuid).cloned();
        let Some(entry) = found else { return false };
        self.count(entry, record.modified);
        true
    }

    /// Whether the record is the one that this process saw last.
    fn is_unchanged(&self, found: &Records) -> bool {
        found.get(&self.keys.record).map(|record| record.modified) == self.seen
    }

    /// Somebody else has the id, or has written.
    fn superseded(&self, found: &Records) -> CheckpointError {
        let held = found.get(&self.keys.held).filter(|held| held.lease != Some(self.hold.lease()));
        let by = match held {
            Some(held) => Some(holder(&held.value).0),
            None => found
                .get(&self.keys.record)
                .and_then(|record| Record::parse(&record.value).ok())
                .and_then(|record| record.newest.writer),
        };
        CheckpointError::Superseded { id: self.id.clone(), by: by.map(Box::new) }
    }

    /// Somebody else has the id, or has written; or this process has it, by a try to take it again that
    /// nobody has answered, and whose lease ends by itself.
    fn refused(&self, found: &Records) -> CheckpointError {
        let lease = found.get(&self.keys.held).and_then(|held| held.lease);
        if lease.is_none() || lease != self.tried || !self.is_unchanged(found) {
            return self.superseded(found);
        }
        let (place, what) = (self.id.to_string(), "take the id again");
        let message = "an earlier try of this process, whose answer was lost, has taken it for a while";
        let source = Arc::new(std::io::Error::other(message));
        MetadataError::Failed { place, what, source }.into()
    }

    /// Whether one more file may be written: the ones that wait for an answer are bounded.
    pub(super) fn has_room(&self) -> bool {
        self.unresolved.len() < UNRESOLVED_MAX
    }

    /// Whether a put of this file was sent, whose answer is not known: then the file must stay.
    pub(super) fn is_unresolved(&self, uuid: Uuid) -> bool {
        self.unresolved.iter().any(|entry| entry.uuid == uuid)
    }

    /// Puts the record that makes a written file count. It was begun under this hold.
    ///
    /// After an error of the metadata it may be tried again, with this file or with a newer one.
    pub(super) fn put(&mut self, entry: &Entry) -> Result<Put, CheckpointError> {
        if !self.unresolved.is_empty() {
            // A put whose answer is lost makes its file one that must stay: so first, whether anybody
            // answers.
            let found = read_exactly(&*self.metadata, &[&self.keys.record, &self.keys.held])?;
            self.resolve(&found);
        }
        // Each round but the last resolves a put.
        loop {
            if self.good.first().is_some_and(|newest| newest.uuid == entry.uuid) {
                return Ok(Put::Done);
            }
            let record = self.record(entry).to_json();
            let mut put = self.when_seen(self.when_held()).put(&self.keys.record, record);
            if self.seen.is_none() {
                put = put.remove(&self.keys.begun);
            }
            if let Some(bytes) = &self.set_aside {
                put = put.put(format!("{}{}", self.keys.unreadable, entry.uuid), bytes.clone());
            }
            let was_sent = self.is_unresolved(entry.uuid);
            if !was_sent {
                self.unresolved.push(entry.clone());
            }
            match self.metadata.transact(&put)? {
                Outcome::Committed(revision) => {
                    self.count(entry.clone(), revision);
                    return Ok(Put::Done);
                }
                Outcome::Refused(found) => {
                    if self.resolve(&found) {
                        continue;
                    }
                    if !was_sent {
                        self.unresolved.retain(|other| other.uuid != entry.uuid);
                    }
                    let is_held = found.get(&self.keys.held).is_some();
                    if self.is_unchanged(&found) && !is_held {
                        return Ok(Put::HoldLost);
                    }
                    return Err(self.refused(&found));
                }
            }
        }
    }

    /// Takes the id again after its lease has ended, if nobody has taken it, and nobody else has written.
    /// Files that were begun before cannot be put any more.
    pub(super) fn retake(&mut self) -> Result<(), CheckpointError> {
        loop {
            let also = self.when_seen(Transaction::new());
            match Hold::take(&self.metadata, &self.keys, self.ttl, also)? {
                Taken::Unanswered(lease, error) => {
                    self.tried = Some(lease);
                    return Err(error.into());
                }
                Taken::Ours(hold) => {
                    info!(id = %self.id, "the lease of the id had ended, and it was taken again");
                    self.hold = hold;
                    // Their puts ask for the old hold.
                    self.dropped.extend(self.unresolved.drain(..).map(|entry| entry.uuid));
                    return Ok(());
                }
                Taken::Refused(found) => {
                    if !self.resolve(&found) {
                        return Err(self.refused(&found));
                    }
                }
            }
        }
    }

    /// Checks that nobody has taken this process's place since it read the record. A process that pauses for
    /// longer than its lease may find that the files which that record named have gone.
    pub(super) fn confirm(&self) -> Result<(), CheckpointError> {
        let found = read_exactly(&*self.metadata, &[&self.keys.record, &self.keys.held])?;
        let held = found.get(&self.keys.held);
        let is_ours = held.is_none_or(|held| held.lease == Some(self.hold.lease()));
        if is_ours && self.is_unchanged(&found) { Ok(()) } else { Err(self.superseded(&found)) }
    }

    /// Removes the files of the id that the record does not name. Returns how many.
    pub(super) fn clean(&mut self) -> Result<u64, CheckpointError> {
        let names = self.store.list(&self.id)?;
        match self.remove(names) {
            Ok(removed) => Ok(removed.len() as u64),
            // Whoever has the id now removes them.
            Err(CheckpointError::Superseded { .. }) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Removes files that were listed under this hold, but for those that are needed. Returns which went.
    pub(super) fn remove(&mut self, listed: Vec<Uuid>) -> Result<Vec<Uuid>, CheckpointError> {
        let mut names = listed;
        names.retain(|&name| self.is_needless(name));
        if names.is_empty() {
            return Ok(names);
        }
        // Until this moment nobody else had the id, so none of these files is one that somebody else's record
        // will name; and whoever takes it later makes new ones. What follows may come late.
        self.confirm_hold()?;
        for &name in &names {
            self.store.remove(&self.id, name)?;
            self.dropped.remove(&name);
        }
        Ok(names)
    }

    /// Makes sure that nobody else has had the id until now.
    pub(super) fn confirm_hold(&self) -> Result<(), CheckpointError> {
        let is_ours = self.when_seen(self.when_held());
        match self.metadata.transact(&is_ours)? {
            Outcome::Committed(_) => Ok(()),
            Outcome::Refused(found) => Err(self.superseded(&found)),
        }
    }

    /// Puts the record without some of its older checkpoints, whose files are not needed from then on. If
    /// nobody answers, it may have happened; no file is gone.
    pub(super) fn take_out(&mut self, taken: &BTreeSet<Uuid>) -> Result<(), CheckpointError> {
        let is_left = |entry: &Entry| !taken.contains(&entry.uuid);
        let Some((newest, kept)) = self.good.split_first() else { return Ok(()) };
        let kept = kept.iter().filter(|&entry| is_left(entry)).cloned().collect();
        let spared = self.spared.iter().filter(|&entry| is_left(entry)).cloned().collect();
        let record = Record { newest: newest.clone(), kept, spared };
        let put = self.when_seen(self.when_held()).put(&self.keys.record, record.to_json());
        match self.metadata.transact(&put)? {
            Outcome::Committed(revision) => self.seen = Some(revision),
            Outcome::Refused(found) => return Err(self.superseded(&found)),
        }
        let named: BTreeSet<_> = record.entries().map(|entry| entry.uuid).collect();
        self.dropped.extend(self.named.difference(&named));
        self.named = named;
        self.good.retain(|entry| self.named.contains(&entry.uuid));
        self.spared = record.spared;
        Ok(())
    }

    fn is_needless(&self, name: Uuid) -> bool {
        !self.named.contains(&name)
            && !self.is_unresolved(name)
            && (!self.spares_unknown || self.dropped.contains(&name))
    }

    /// Removes what a process that was killed left: unfinished files, and finished ones that no record names.
    pub(super) fn clean_up_after_others(&mut self) -> Result<u64, CheckpointError> {
        let abandoned = self.store.remove_abandoned(&self.id)? as u64;
        Ok(abandoned + self.clean()?)
    }

    /// Removes a file of this process that is not put, and never will be.
    pub(super) fn discard(&mut self, uuid: Uuid) {
        if self.is_unresolved(uuid) {
            return;
        }
        self.dropped.insert(uuid);
        if let Err(error) = self.store.remove(&self.id, uuid) {
            warn!(id = %self.id, %uuid, %error, "a file that is not needed could not be removed");
        }
    }
}
