//! The records and leases inside one LMDB transaction: what is read, and what is changed.

use std::collections::BTreeMap;
use std::time::Duration;

use lmdb::{Cursor as _, Database, RoCursor, RoTransaction, RwTransaction, Transaction as _, WriteFlags};

use super::boot::BootId;
use super::entries::{
    Header, Kind, LeaseEntry, RecordEntry, check_mark, lease_part, mark, parts, revision_part,
};
use super::fault::Fault;
use crate::metadata::{
    Change, Condition, LeaseId, MetadataError, Outcome, Record, Records, Revision, Transaction,
};

/// How many removals are remembered. Whoever waits for changes since one before them is told that there was
/// one.
pub(super) const REMOVALS_MAX: u64 = 4096;

/// A transaction that is read.
#[derive(Clone, Copy, Debug)]
enum Pages<'t> {
    Read(&'t RoTransaction<'t>),
    Write(&'t RwTransaction<'t>),
}

impl<'t> Pages<'t> {
    fn get(self, database: Database, key: &[u8]) -> lmdb::Result<&'t [u8]> {
        match self {
            Pages::Read(transaction) => transaction.get(database, &key),
            Pages::Write(transaction) => transaction.get(database, &key),
        }
    }

    fn cursor(self, database: Database) -> lmdb::Result<RoCursor<'t>> {
        match self {
            Pages::Read(transaction) => transaction.open_ro_cursor(database),
            Pages::Write(transaction) => transaction.open_ro_cursor(database),
        }
    }
}

/// What a transaction sees.
#[derive(Clone, Debug)]
pub(super) struct View<'t> {
    pages: Pages<'t>,
    database: Database,
    header: Header,
}

impl<'t> View<'t> {
    pub(super) fn reading(transaction: &'t RoTransaction<'t>, database: Database) -> Result<Self, Fault> {
        View::of(Pages::Read(transaction), database)
    }

    fn of(pages: Pages<'t>, database: Database) -> Result<Self, Fault> {
        let header = Header::decoded(found(pages.get(database, &Kind::Header.key(&[])))?)?;
        Ok(View { pages, database, header })
    }

    /// Whether a change is due before anything is read: leases may be over, or were granted in another boot.
    pub(super) fn is_due(&self, boot: BootId, now: Duration) -> bool {
        self.header.boot != boot || self.header.next_end <= nanoseconds(now)
    }

    pub(super) fn revision(&self) -> Revision {
        Revision(self.header.revision)
    }

    /// The records of a prefix.
    pub(super) fn read(&self, prefix: &str) -> Result<Records, Fault> {
        let mut records = Vec::new();
        let start = Kind::Record.key(&[prefix.as_bytes()]);
        self.each(&start, &start, |key, value| {
            records.push(RecordEntry::decoded(key, value)?.with_key(key)?);
            Ok(true)
        })?;
        Ok(Records { revision: self.revision(), records })
    }

    /// Whether a record of this prefix was put or removed after this revision, as far as it is remembered.
    pub(super) fn has_changed(&self, prefix: &str, after: Revision) -> Result<bool, Fault> {
        let header = &self.header;
        if header.revision <= after.0 {
            return Ok(false);
        }
        let mut has_changed = after.0 < header.forgotten;
        if !has_changed {
            let start = Kind::Removed.key(&[&revision_part(after.0.saturating_add(1))]);
            self.each(&start, &Kind::Removed.key(&[]), |key, value| {
                check_mark(key, value)?;
                has_changed = parts(key)?.1.starts_with(prefix);
                Ok(!has_changed)
            })?;
        }
        if !has_changed {
            let start = Kind::Record.key(&[prefix.as_bytes()]);
            self.each(&start, &start, |key, value| {
                has_changed = RecordEntry::decoded(key, value)?.modified > after.0;
                Ok(!has_changed)
            })?;
        }
        Ok(has_changed)
    }

    /// What becomes of a transaction if it changes nothing: whether its conditions hold.
    pub(super) fn compare(&self, transaction: &Transaction) -> Result<Outcome, Fault> {
        let mut found: BTreeMap<&str, Record> = BTreeMap::new();
        let mut holds = true;
        for condition in transaction.conditions() {
            let record = self.record(condition.key())?;
            holds &= is_so(condition, record.as_ref());
            if let Some(record) = record {
                found.insert(condition.key(), record);
            }
        }
        let (revision, records) = (self.revision(), found.into_values().collect());
        Ok(if holds { Outcome::Committed(revision) } else { Outcome::Refused(Records { revision, records }) })
    }

    fn record(&self, key: &str) -> Result<Option<Record>, Fault> {
        let key = Kind::Record.key(&[key.as_bytes()]);
        let Some(value) = self.get(&key)? else { return Ok(None) };
        RecordEntry::decoded(&key, value)?.with_key(&key).map(Some)
    }

    fn get(&self, key: &[u8]) -> Result<Option<&'t [u8]>, Fault> {
        found(self.pages.get(self.database, key))
    }

    /// Shows the entries from `start` on whose keys begin with `prefix`, for as long as more are wanted.
    fn each(
        &self,
        start: &[u8],
        prefix: &[u8],
        mut look: impl FnMut(&[u8], &[u8]) -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        // It must outlive what iterates with it, which nothing checks.
        let mut cursor = self.pages.cursor(self.database)?;
        for entry in cursor.iter_from(start) {
            let (key, value) = entry?;
            if !key.starts_with(prefix) || !look(key, value)? {
                break;
            }
        }
        Ok(())
    }
}

/// Records that are being changed. What is changed is there once it is committed.
///
/// # Invariants
///
/// 1. The header's revision is not lower than that of any record, and grows with what changes one.
/// 2. A lease that a record names is there, and there is an entry that it holds the record.
/// 3. No lease ends before the header's `next_end`.
/// 4. The header counts the entries of removals. They are all newer than `forgotten`, or as new.
#[derive(Debug)]
pub(super) struct Writer<'e> {
    transaction: RwTransaction<'e>,
    database: Database,
    header: Header,
    /// The header as it is stored.
    stored: Header,
    now: u64,
}

impl<'e> Writer<'e> {
    pub(super) fn begin(
        transaction: RwTransaction<'e>,
        database: Database,
        now: Duration,
    ) -> Result<Self, Fault> {
        let header = View::of(Pages::Write(&transaction), database)?.header;
        let stored = header.clone();
        Ok(Writer { transaction, database, header, stored, now: nanoseconds(now) })
    }

    pub(super) fn commit(mut self) -> Result<(), Fault> {
        if self.header != self.stored {
            let header = self.header.encoded();
            self.put(&Kind::Header.key(&[]), &header)?;
        }
        Ok(self.transaction.commit()?)
    }

    pub(super) fn view(&self) -> View<'_> {
        let (pages, header) = (Pages::Write(&self.transaction), self.header.clone());
        View { pages, database: self.database, header }
    }

    /// Ends all leases if they were granted in another boot, whose time is over.
    pub(super) fn adopt(&mut self, boot: BootId) -> Result<(), Fault> {
        if self.header.boot != boot {
            self.end_leases(|_| true)?;
            self.header.boot = boot;
        }
        Ok(())
    }

    /// Ends the leases that are over.
    pub(super) fn end_due(&mut self, boot: BootId) -> Result<(), Fault> {
        if self.header.boot != boot {
            let found = self.header.boot;
            return Err(Fault::Damaged(format!(
                "another machine uses the folder as well: metadata.mdb names the boot {found}, and this is \
                 {boot}; use a folder on a disk of this machine, or etcd"
            )));
        }
        let now = self.now;
        if self.header.next_end <= now {
            self.end_leases(|lease| lease.end <= now)?;
        }
        Ok(())
    }

    fn end_leases(&mut self, is_over: impl Fn(&LeaseEntry) -> bool) -> Result<(), Fault> {
        let (mut over, mut next_end) = (Vec::new(), u64::MAX);
        let start = Kind::Lease.key(&[]);
        self.view().each(&start, &start, |key, value| {
            let lease = LeaseEntry::decoded(key, value)?;
            if is_over(&lease) {
                over.push(LeaseId(parts(key)?.0));
            } else {
                next_end = next_end.min(lease.end);
            }
            Ok(true)
        })?;
        over.into_iter().try_for_each(|lease| self.end(lease))?;
        self.header.next_end = next_end;
        Ok(())
    }

    /// Ends a lease, and removes its records. Ending one that has ended does nothing.
    pub(super) fn end(&mut self, lease: LeaseId) -> Result<(), Fault> {
        if !self.remove(&Kind::Lease.key(&[&lease_part(lease)]))? {
            return Ok(());
        }
        let start = Kind::Held.key(&[&lease_part(lease)]);
        let mut held = Vec::new();
        self.view().each(&start, &start, |key, value| {
            check_mark(key, value)?;
            held.push(parts(key)?.1.to_owned());
            Ok(true)
        })?;
        let next = self.next_revision()?;
        for key in held {
            self.remove_record(&key, next)?;
            self.header.revision = next;
        }
        self.forget_removals()
    }

    pub(super) fn grant(&mut self, ttl: Duration) -> Result<LeaseId, Fault> {
        let Some(number) = self.header.last_lease.checked_add(1) else { return Err(worn_out()) };
        self.header.last_lease = number;
        let ttl = nanoseconds(ttl);
        self.put_lease(LeaseId(number), LeaseEntry { end: self.now.saturating_add(ttl), ttl })?;
        Ok(LeaseId(number))
    }

    /// Lets a lease last for its whole time again, which is returned.
    pub(super) fn keep_alive(&mut self, lease: LeaseId) -> Result<Duration, Fault> {
        let Some(LeaseEntry { ttl, .. }) = self.lease(lease)? else {
            return Err(MetadataError::LeaseExpired { lease }.into());
        };
        self.put_lease(lease, LeaseEntry { end: self.now.saturating_add(ttl), ttl })?;
        Ok(Duration::from_nanos(ttl))
    }

    /// Makes the changes of a transaction, and returns at which revision.
    pub(super) fn make(&mut self, changes: &[Change]) -> Result<Revision, Fault> {
        for change in changes {
            if let Change::Put { lease: Some(lease), .. } = change
                && self.lease(*lease)?.is_none()
            {
                return Err(MetadataError::LeaseExpired { lease: *lease }.into());
            }
        }
        let next = self.next_revision()?;
        for change in changes {
            let has_changed = match change {
                Change::Put { key, value, lease } => {
                    self.put_record(key, value, *lease, next)?;
                    true
                }
                Change::Remove { key } => self.remove_record(key, next)?,
            };
            if has_changed {
                self.header.revision = next;
            }
        }
        self.forget_removals()?;
        Ok(Revision(self.header.revision))
    }

    fn put_record(
        &mut self,
        key: &str,
        bytes: &[u8],
        lease: Option<LeaseId>,
        revision: i64,
    ) -> Result<(), Fault> {
        let found = self.view().record(key)?;
        if let Some(holder) = found.as_ref().and_then(|found| found.lease) {
            self.let_go(holder, key)?;
        }
        if let Some(lease) = lease {
            let held = Kind::Held.key(&[&lease_part(lease), key.as_bytes()]);
            self.put(&held, &mark(&held))?;
        }
        let created = found.map_or(revision, |found| found.created.0);
        let key = Kind::Record.key(&[key.as_bytes()]);
        let entry = RecordEntry { created, modified: revision, lease, bytes };
        self.put(&key, &entry.encoded(&key))
    }

    /// Removes a record, and returns whether it was there.
    fn remove_record(&mut self, key: &str, revision: i64) -> Result<bool, Fault> {
        let Some(found) = self.view().record(key)? else { return Ok(false) };
        if let Some(holder) = found.lease {
            self.let_go(holder, key)?;
        }
        self.remove(&Kind::Record.key(&[key.as_bytes()]))?;
        let removed = Kind::Removed.key(&[&revision_part(revision), key.as_bytes()]);
        self.put(&removed, &mark(&removed))?;
        self.header.removals = self.header.removals.saturating_add(1);
        Ok(true)
    }

    /// The lease no longer holds the record.
    fn let_go(&mut self, lease: LeaseId, key: &str) -> Result<(), Fault> {
        if self.remove(&Kind::Held.key(&[&lease_part(lease), key.as_bytes()]))? {
            return Ok(());
        }
        Err(Fault::Damaged(format!(
            "metadata.mdb is damaged: the record {key:?} names the lease {lease}, which does not hold it; \
             use another folder"
        )))
    }

    /// Drops the oldest entries of removals if there are too many.
    fn forget_removals(&mut self) -> Result<(), Fault> {
        let Some(mut too_many) = self.header.removals.checked_sub(REMOVALS_MAX) else { return Ok(()) };
        let mut oldest = Vec::new();
        let start = Kind::Removed.key(&[]);
        self.view().each(&start, &start, |key, _| {
            if too_many > 0 {
                oldest.push(key.to_owned());
                too_many -= 1;
            }
            Ok(too_many > 0)
        })?;
        for key in oldest {
            self.header.forgotten = parts(&key)?.0;
            self.remove(&key)?;
            self.header.removals -= 1;
        }
        Ok(())
    }

    fn lease(&self, lease: LeaseId) -> Result<Option<LeaseEntry>, Fault> {
        let key = Kind::Lease.key(&[&lease_part(lease)]);
        self.view().get(&key)?.map(|value| LeaseEntry::decoded(&key, value)).transpose()
    }

    fn put_lease(&mut self, lease: LeaseId, entry: LeaseEntry) -> Result<(), Fault> {
        let key = Kind::Lease.key(&[&lease_part(lease)]);
        self.put(&key, &entry.encoded(&key))?;
        self.header.next_end = self.header.next_end.min(entry.end);
        Ok(())
    }

    fn next_revision(&self) -> Result<i64, Fault> {
        self.header.revision.checked_add(1).ok_or_else(worn_out)
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Fault> {
        Ok(self.transaction.put(self.database, &key, &value, WriteFlags::empty())?)
    }

    /// Removes an entry, and returns whether it was there.
    fn remove(&mut self, key: &[u8]) -> Result<bool, Fault> {
        Ok(found(self.transaction.del(self.database, &key, None))?.is_some())
    }
}

fn is_so(condition: &Condition, record: Option<&Record>) -> bool {
    match condition {
        Condition::Missing(_) => record.is_none(),
        Condition::Modified(_, revision) => record.is_some_and(|record| record.modified == *revision),
        Condition::HeldBy(_, lease) => record.is_some_and(|record| record.lease == Some(*lease)),
    }
}

/// What is not there is no fault.
fn found<T>(found: lmdb::Result<T>) -> Result<Option<T>, Fault> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(lmdb::Error::NotFound) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Nobody counts that far.
fn worn_out() -> Fault {
    Fault::Damaged("metadata.mdb has no more numbers: use another folder".to_owned())
}

/// Time as entries have it. What is longer than 584 years is cut to that.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
