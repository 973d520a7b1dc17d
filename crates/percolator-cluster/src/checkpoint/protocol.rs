//! The steps that make a file the checkpoint that counts, and remove those before it. DESIGN.md says why
//! they are in this order.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use percolator_files::shown;
use tracing::{info, warn};
use uuid::Uuid;

use super::announced::Announced;
use super::entry::{Entry, Writer};
use super::error::{CheckpointError, Fault};
use super::hold::{Keys, Taken, holder, read_exactly, take_id, wait_for_id};
use super::record::{CheckpointRecord, SPARED_MAX};
use crate::metadata::{
    Lease, LeaseId, Metadata, MetadataError, Outcome, Record, Records, Revision, Transaction,
};
use crate::store::{Id, Store, StoreError};

/// So many files may wait for an answer that says whether their record was put. No more are written then.
const UNRESOLVED_MAX: usize = 4;

/// One process's way through the protocol.
///
/// # Invariants
///
/// 1. A record is put only under a hold, and names a file that was begun under that hold. So no other process
///    can have listed the file as one to be removed.
/// 2. A file is removed only if its name was announced, or the record has named it; and if the record did not
///    name it at a moment at which it was there and the id was held, or it is this process's own, and no put
///    of it was ever sent. If the caller has requested it, names do not matter (`removes_unknown`).
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
    /// The lease under which the id is held.
    hold: Lease,
    /// The leases of unanswered tries to take the id again: the id may be held under one.
    tried: Vec<LeaseId>,
    seen: Option<Revision>,
    announced: Announced,
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
    /// The record may not be the newest one, or is not understood, or one before it was so: only files of
    /// `dropped` are removed.
    spares_announced: bool,
    /// It was unknown which files there were when this process began: the same.
    is_unlisted: bool,
    /// The caller has said that unknown files may be removed.
    removes_unknown: bool,
    /// The files that were needed, and are not any more.
    dropped: BTreeSet<Uuid>,
}

/// What became of a put, of a record or of names.
pub(super) enum Put {
    Done,
    /// The lease had ended. The file may not be used any more.
    HoldLost,
}

/// The record, if there is one; or why none can be used.
pub(super) type Found = Result<Option<CheckpointRecord>, Fault>;

impl Protocol {
    /// Takes the id, waits for its holder if there is one, and reads its record.
    pub(super) fn begin(
        store: Arc<dyn Store>,
        metadata: Arc<dyn Metadata>,
        id: Id,
        keep: usize,
        ttl: Duration,
        wait: Duration,
    ) -> Result<(Self, Found), CheckpointError> {
        let keys = Keys::new(&id);
        let hold = wait_for_id(&metadata, &id, &keys, ttl, wait)?;
        let records = read_exactly(&*metadata, &[&keys.record, &keys.begun])?;
        let spares_announced = !metadata.read(&keys.unreadable)?.records.is_empty();
        let mut protocol = Protocol {
            store,
            metadata,
            id,
            hold,
            ttl,
            keep,
            tried: Vec::new(),
            seen: None,
            announced: Announced::parse(records.get(&keys.begun)),
            keys,
            good: Vec::new(),
            spared: Vec::new(),
            named: BTreeSet::new(),
            unresolved: Vec::new(),
            set_aside: None,
            spares_announced,
            is_unlisted: false,
            removes_unknown: false,
            dropped: BTreeSet::new(),
        };
        let files = protocol.store.list(&protocol.id);
        let found = match records.get(&protocol.keys.record) {
            Some(record) => protocol.begin_with(record, files),
            None => protocol.begin_without_record(&files?),
        };
        Ok((protocol, found))
    }

    fn begin_with(&mut self, record: &Record, files: Result<Vec<Uuid>, StoreError>) -> Found {
        self.seen = Some(record.modified);
        let parsed = match CheckpointRecord::parse(&record.value) {
            Ok(parsed) => parsed,
            Err(error) => {
                (self.set_aside, self.spares_announced) = (Some(record.value.clone()), true);
                return Err(error.into());
            }
        };
        self.good = std::iter::once(&parsed.newest).chain(&parsed.kept).cloned().collect();
        self.spared.clone_from(&parsed.spared);
        self.named = parsed.entries().map(|entry| entry.uuid).collect();
        match files {
            Ok(files) if self.good.iter().all(|entry| files.contains(&entry.uuid)) => {}
            // An older record than was put last, as from a copy of the metadata: then the store has files
            // that it does not know.
            Ok(_) => self.spare_announced(record.value.clone()),
            Err(error) => {
                let error = shown::with_sources(&error);
                warn!(id = %self.id, %error, "its files cannot be listed: those that earlier processes left \
                       stay for now");
                self.is_unlisted = true;
            }
        }
        Ok(Some(parsed))
    }

    /// Files that were announced are what a process left that was killed before its first record. Of others
    /// there is a record in other metadata, or one that was lost: then all stay.
    fn begin_without_record(&mut self, files: &[Uuid]) -> Found {
        if files.iter().all(|file| self.announced.names().contains(file)) {
            return Ok(None);
        }
        let (metadata, store) = (self.metadata.place(), self.store.place());
        let (files, writer) = (files.len(), Writer::this());
        let why = format!("no record was found of {files} files in {store}, by {writer}");
        self.spare_announced(why.into());
        Err(Fault::NoRecord { files, metadata, store })
    }

    /// Announces names for the files to come, so that they can be written while there is no answer.
    pub(super) fn announce(&mut self) -> Result<Put, CheckpointError> {
        loop {
            let next = self.announced.clone().topped_up();
            let announce = self.announced.when_unchanged(self.when_seen(self.when_held()), &self.keys.begun);
            match self.metadata.transact(&announce.put(&self.keys.begun, next.text()))? {
                Outcome::Committed(revision) => {
                    self.announced = next.put_at(revision);
                    return Ok(Put::Done);
                }
                Outcome::Refused(found) if self.resolve(&found) => {}
                Outcome::Refused(found) => {
                    if let Some(put) = self.adopt_announced(&found)? {
                        return Ok(put);
                    }
                }
            }
        }
    }

    /// A transaction was refused, and an unanswered put is not the reason: then the hold was lost, or an
    /// announcement of names was unanswered. After that it may be tried again.
    fn adopt_announced(&mut self, found: &Records) -> Result<Option<Put>, CheckpointError> {
        match found.get(&self.keys.held) {
            _ if !self.is_unchanged(found) => Err(self.refused(found)),
            None => Ok(Some(Put::HoldLost)),
            Some(held) if held.lease == Some(self.hold.id()) => {
                self.announced.adopt(found.get(&self.keys.begun));
                Ok(None)
            }
            Some(_) => Err(self.refused(found)),
        }
    }

    /// Returns the name of the next file: should this process be killed, the next one knows the file for the
    /// id's own. Returns nothing if the hold was lost.
    pub(super) fn next_name(&mut self) -> Result<Option<Uuid>, CheckpointError> {
        loop {
            if let Some(name) = self.announced.take() {
                return Ok(Some(name));
            }
            if let Put::HoldLost = self.announce()? {
                return Ok(None);
            }
        }
    }

    /// Files stay that no record names, from now on and for later processes. What is set aside says why, if
    /// nothing does yet.
    pub(super) fn spare_announced(&mut self, set_aside: Vec<u8>) {
        if !std::mem::replace(&mut self.spares_announced, true) {
            self.set_aside = Some(set_aside);
        }
    }

    /// The caller has said that files may be removed although nothing shows whose they are.
    pub(super) fn give_up_unknown(&mut self) {
        (self.spares_announced, self.set_aside) = (false, None);
        self.removes_unknown = true;
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

    /// The record that makes `newest` count.
    fn record(&self, newest: &Entry) -> CheckpointRecord {
        let kept = self.good.iter().take(self.keep - 1).cloned().collect();
        CheckpointRecord { newest: newest.clone(), kept, spared: self.spared.clone() }
    }

    /// Puts a record, what is announced from then on, and what is set aside.
    fn put_of(&self, record: &CheckpointRecord, announced: &Announced) -> Transaction {
        let put = self.announced.when_unchanged(self.when_seen(self.when_held()), &self.keys.begun);
        let put = put.put(&self.keys.record, record.to_json()).put(&self.keys.begun, announced.text());
        match &self.set_aside {
            Some(bytes) => put.put(format!("{}{}", self.keys.unreadable, record.newest.uuid), bytes.clone()),
            None => put,
        }
    }

    /// What is announced once this record is put.
    fn announced_after(&self, record: &CheckpointRecord) -> Announced {
        let mut announced = self.announced.clone();
        announced.follow(&self.named, &record.entries().map(|entry| entry.uuid).collect());
        announced
    }

    fn when_seen(&self, transaction: Transaction) -> Transaction {
        transaction.when_seen(&self.keys.record, self.seen)
    }

    /// The first condition of everything that changes something.
    fn when_held(&self) -> Transaction {
        Transaction::new().when_held_by(&self.keys.held, self.hold.id())
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
        self.announced.follow(&before, &self.named);
        if self.set_aside.take().is_some() {
            warn!(id = %self.id, key = self.keys.unreadable, "files stay that no record names: what is kept \
                   under this key says why");
        }
    }

    /// Looks whether the record is one of those whose put was not answered.
    fn resolve(&mut self, found: &Records) -> bool {
        let Some(record) = found.get(&self.keys.record) else { return false };
        let Ok(parsed) = CheckpointRecord::parse(&record.value) else { return false };
        let found = self.unresolved.iter().find(|entry| entry.uuid == parsed.newest.uuid).cloned();
        // If `gc` has taken checkpoints out of it since, it is another process's.
        let Some(entry) = found.filter(|entry| self.record(entry).to_json() == record.value) else {
            return false;
        };
        self.count(entry, record.modified);
        true
    }

    /// Whether the record is the one that this process saw last.
    fn is_unchanged(&self, found: &Records) -> bool {
        found.get(&self.keys.record).map(|record| record.modified) == self.seen
    }

    /// Another process has the id, or has written; or the record is not what this process saw, although no
    /// newer one was put.
    fn superseded(&self, found: &Records) -> CheckpointError {
        let id = self.id.clone();
        let held = found.get(&self.keys.held).filter(|held| held.lease != Some(self.hold.id()));
        let by = match (held, found.get(&self.keys.record)) {
            (Some(held), _) => Some(holder(&held.value).0),
            // Revisions only grow.
            (None, record) if record.map(|record| record.modified) < self.seen => {
                return CheckpointError::RecordLost { id, metadata: self.metadata.place() };
            }
            (None, record) => record
                .and_then(|record| CheckpointRecord::parse(&record.value).ok())
                .and_then(|record| record.newest.writer),
        };
        CheckpointError::Superseded { id, by: by.map(Box::new) }
    }

    /// Another process has the id, or has written; or this process has it, by an unanswered try to take it
    /// again, whose lease ends by itself.
    fn refused(&self, found: &Records) -> CheckpointError {
        let lease = found.get(&self.keys.held).and_then(|held| held.lease);
        if !lease.is_some_and(|lease| self.tried.contains(&lease)) || !self.is_unchanged(found) {
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

    /// How many files wait for an answer.
    pub(super) fn in_doubt(&self) -> usize {
        self.unresolved.len()
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
            // If the answer to a put is lost, its file must stay: so first check whether there are answers at
            // all.
            let found = read_exactly(&*self.metadata, &[&self.keys.record, &self.keys.held])?;
            self.resolve(&found);
        }
        // Each round but the last resolves a put, or learns which names are announced.
        loop {
            if self.good.first().is_some_and(|newest| newest.uuid == entry.uuid) {
                return Ok(Put::Done);
            }
            let record = self.record(entry);
            let announced = self.announced_after(&record).topped_up();
            let put = self.put_of(&record, &announced);
            let was_sent = self.is_unresolved(entry.uuid);
            if !was_sent {
                self.unresolved.push(entry.clone());
            }
            match self.metadata.transact(&put)? {
                Outcome::Committed(revision) => {
                    self.count(entry.clone(), revision);
                    self.announced = announced.put_at(revision);
                    return Ok(Put::Done);
                }
                Outcome::Refused(found) => {
                    if self.resolve(&found) {
                        continue;
                    }
                    if !was_sent {
                        self.unresolved.retain(|other| other.uuid != entry.uuid);
                    }
                    if let Some(put) = self.adopt_announced(&found)? {
                        return Ok(put);
                    }
                }
            }
        }
    }

    /// Takes the id again after its lease has ended, if no other process has taken it or has written. Files
    /// that were begun before cannot be put any more.
    pub(super) fn retake(&mut self) -> Result<(), CheckpointError> {
        loop {
            // Another process may have listed files of the names that were free, and be about to remove them.
            let announced = self.announced.clone().renewed();
            let also = self.announced.when_unchanged(self.when_seen(Transaction::new()), &self.keys.begun);
            let also = also.put(&self.keys.begun, announced.text());
            match take_id(&self.metadata, &self.keys, self.ttl, also)? {
                Taken::Unanswered(lease, error) => {
                    self.tried.push(lease);
                    return Err(error.into());
                }
                Taken::Ours(hold, revision) => {
                    info!(id = %self.id, "the lease of the id had ended, and it was taken again");
                    self.hold = hold;
                    self.announced = announced.put_at(revision);
                    // Their puts ask for the old hold.
                    self.dropped.extend(self.unresolved.drain(..).map(|entry| entry.uuid));
                    return Ok(());
                }
                Taken::Refused(found) if self.resolve(&found) => {}
                Taken::Refused(found)
                    if self.is_unchanged(&found) && found.get(&self.keys.held).is_none() =>
                {
                    self.announced.adopt(found.get(&self.keys.begun));
                }
                Taken::Refused(found) => return Err(self.refused(&found)),
            }
        }
    }

    /// Checks that no other process has taken this process's place since it read the record. A process that
    /// pauses for longer than its lease may find that the files which that record named have gone.
    pub(super) fn confirm(&self) -> Result<(), CheckpointError> {
        let found = read_exactly(&*self.metadata, &[&self.keys.record, &self.keys.held])?;
        let held = found.get(&self.keys.held);
        let is_ours = held.is_none_or(|held| held.lease == Some(self.hold.id()));
        if is_ours && self.is_unchanged(&found) { Ok(()) } else { Err(self.superseded(&found)) }
    }

    /// Removes the files of the id that the record does not name. Returns how many.
    pub(super) fn clean(&mut self) -> Result<u64, CheckpointError> {
        let names = self.store.list(&self.id)?;
        match self.remove(names) {
            Ok(removed) => Ok(removed.len() as u64),
            // The present holder of the id removes them.
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
        // Until this moment no other process had the id, so none of these files will be named by another
        // process's record; and a later holder makes new ones. What follows may come late.
        self.confirm_hold()?;
        for &name in &names {
            self.store.remove(&self.id, name)?;
            if self.dropped.remove(&name) {
                self.announced.forget(name);
            }
        }
        Ok(names)
    }

    /// Makes sure that no other process has had the id until now.
    pub(super) fn confirm_hold(&self) -> Result<(), CheckpointError> {
        let is_ours = self.when_seen(self.when_held());
        match self.metadata.transact(&is_ours)? {
            Outcome::Committed(_) => Ok(()),
            Outcome::Refused(found) if self.is_unchanged(&found) && found.get(&self.keys.held).is_none() => {
                Err(MetadataError::LeaseExpired { lease: self.hold.id() }.into())
            }
            Outcome::Refused(found) => Err(self.superseded(&found)),
        }
    }

    /// Puts the record without some of its older checkpoints, whose files are not needed from then on. If one
    /// of them showed that the record may be an old one, what is set aside says so instead. If there is no
    /// answer, it may have happened; no file is gone.
    pub(super) fn take_out(&mut self, taken: &BTreeSet<Uuid>) -> Result<(), CheckpointError> {
        let is_left = |entry: &Entry| !taken.contains(&entry.uuid);
        let Some((newest, kept)) = self.good.split_first() else { return Ok(()) };
        let kept = kept.iter().filter(|&entry| is_left(entry)).cloned().collect();
        let spared = self.spared.iter().filter(|&entry| is_left(entry)).cloned().collect();
        let record = CheckpointRecord { newest: newest.clone(), kept, spared };
        let announced = self.announced_after(&record);
        match self.metadata.transact(&self.put_of(&record, &announced))? {
            Outcome::Committed(revision) => {
                self.set_aside = None;
                self.seen = Some(revision);
                self.announced = announced.put_at(revision);
            }
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
            && (self.removes_unknown
                || self.dropped.contains(&name)
                || (!self.spares_announced && !self.is_unlisted && self.announced.names().contains(&name)))
    }

    /// Removes what a process that was killed left: unfinished files, and finished ones that no record names.
    pub(super) fn clean_up_after_others(&mut self) -> Result<u64, CheckpointError> {
        // If another process has the id by now, unfinished files are its own.
        self.confirm_hold()?;
        let abandoned = self.store.remove_abandoned(&self.id)? as u64;
        Ok(abandoned + self.clean()?)
    }

    /// Removes a file of this process, unless it was put, or may be yet.
    pub(super) fn discard(&mut self, uuid: Uuid) {
        if self.remove_own(uuid) {
            self.announced.forget(uuid);
        }
    }

    /// The same for a file that was begun under this hold: another one may have its name.
    pub(super) fn discard_for_another(&mut self, uuid: Uuid) {
        if self.remove_own(uuid) {
            self.announced.give_back(uuid);
        }
    }

    /// A file could not be written. If it was to appear, it may yet: then its name stays announced, and no
    /// other file has it.
    pub(super) fn give_up(&mut self, uuid: Uuid, may_appear: bool) {
        match may_appear {
            true => _ = self.remove_own(uuid),
            false => self.announced.give_back(uuid),
        }
    }

    fn remove_own(&mut self, uuid: Uuid) -> bool {
        if self.is_unresolved(uuid) || self.named.contains(&uuid) {
            return false;
        }
        let removed = self.store.remove(&self.id, uuid);
        if let Err(error) = &removed {
            self.dropped.insert(uuid);
            warn!(
                id = %self.id, %uuid, error = %shown::with_sources(error),
                "a file that is not needed could not be removed"
            );
        }
        removed.is_ok()
    }
}
