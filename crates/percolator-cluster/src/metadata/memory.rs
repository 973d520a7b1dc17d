//! Records in the memory of one process: for its threads, for tests, and as the model with which the other
//! implementations are compared.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::Metadata;
use super::error::MetadataError;
use super::records::{LeaseId, Record, Records, Revision};
use super::transaction::{Change, Condition, Outcome, Transaction};
use crate::clock::{BootClock, Clock};

/// Records that the threads of a process share. Clones are the same records.
///
/// ```
/// use percolator_cluster::metadata::{MemoryMetadata, Metadata, Outcome, Transaction};
///
/// let records = MemoryMetadata::new();
/// let first = Transaction::new().when_missing("leader").put("leader", "me");
/// assert!(matches!(records.transact(&first)?, Outcome::Committed(_)));
/// let Outcome::Refused(found) = records.transact(&first)? else { panic!("there can be one") };
/// assert_eq!(found.get("leader").unwrap().value, b"me");
/// # Ok::<(), percolator_cluster::metadata::MetadataError>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemoryMetadata {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Arc<dyn Clock>,
    book: Mutex<Book>,
    /// Signalled when a record has changed.
    changed: Condvar,
}

/// # Invariants
///
/// 1. `revision` is not lower than that of any record, and grows with each transaction that changes one.
/// 2. The lease of a record is in `leases`.
#[derive(Debug, Default)]
struct Book {
    revision: Revision,
    records: BTreeMap<String, Record>,
    /// When each lease ends, and how long it lasts.
    leases: BTreeMap<LeaseId, (Duration, Duration)>,
    last_lease: i64,
    /// The keys that were removed last, and when.
    removed: BTreeSet<(Revision, String)>,
    /// Removals as old as this are not remembered, so waits for changes since an earlier one end at once.
    forgotten: Revision,
}

/// How many removals are remembered.
const REMOVALS_MAX: usize = 4096;

impl Default for MemoryMetadata {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryMetadata {
    /// Returns no records.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(BootClock)
    }

    /// Returns no records, whose leases end by this clock.
    pub fn with_clock(clock: impl Clock + 'static) -> Self {
        let book = Book { revision: Revision(1), forgotten: Revision(i64::MIN), ..Book::default() };
        let (book, changed) = (Mutex::new(book), Condvar::new());
        MemoryMetadata { shared: Arc::new(Shared { clock: Arc::new(clock), book, changed }) }
    }

    /// Does something with the records, once the leases that are over have ended.
    fn with<T>(&self, work: impl FnOnce(&mut Book, Duration) -> T) -> T {
        let now = self.shared.clock.now();
        let mut book = self.shared.book.lock();
        let before = book.revision;
        book.end_leases(now);
        let result = work(&mut book, now);
        if book.revision != before {
            self.shared.changed.notify_all();
        }
        result
    }
}

impl Book {
    fn end_leases(&mut self, now: Duration) {
        let over: Vec<_> =
            self.leases.iter().filter(|(_, (end, _))| *end <= now).map(|(&lease, _)| lease).collect();
        over.into_iter().for_each(|lease| self.end(lease));
    }

    fn end(&mut self, lease: LeaseId) {
        if self.leases.remove(&lease).is_none() {
            return;
        }
        let next = Revision(self.revision.0 + 1);
        let held = self.records.values().filter(|record| record.lease == Some(lease));
        for key in held.map(|record| record.key.clone()).collect::<Vec<_>>() {
            self.records.remove(&key);
            self.remember_removal(next, key);
            self.revision = next;
        }
    }

    fn transact(&mut self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
        let holds = |condition: &Condition| condition.holds(self.records.get(condition.key()));
        if !transaction.conditions().iter().all(holds) {
            let keys = transaction.conditions().iter().map(Condition::key);
            let found: BTreeMap<_, _> =
                keys.filter_map(|key| self.records.get(key)).map(|found| (&found.key, found)).collect();
            let records = found.into_values().cloned().collect();
            return Ok(Outcome::Refused(Records { revision: self.revision, records }));
        }
        for change in transaction.changes() {
            if let Change::Put { lease: Some(lease), .. } = change
                && !self.leases.contains_key(lease)
            {
                return Err(MetadataError::LeaseExpired { lease: *lease });
            }
        }
        let next = Revision(self.revision.0 + 1);
        for change in transaction.changes() {
            match change {
                Change::Put { key, value, lease } => {
                    let created = self.records.get(key).map_or(next, |record| record.created);
                    let (key, value, lease) = (key.clone(), value.clone(), *lease);
                    let record = Record { key: key.clone(), value, created, modified: next, lease };
                    self.records.insert(key, record);
                    self.revision = next;
                }
                Change::Remove { key } => {
                    if self.records.remove(key).is_some() {
                        self.remember_removal(next, key.clone());
                        self.revision = next;
                    }
                }
            }
        }
        Ok(Outcome::Committed(self.revision))
    }

    fn remember_removal(&mut self, revision: Revision, key: String) {
        self.removed.insert((revision, key));
        if self.removed.len() > REMOVALS_MAX
            && let Some((oldest, _)) = self.removed.pop_first()
        {
            self.forgotten = oldest;
        }
    }

    fn has_changed(&self, prefix: &str, after: Revision) -> bool {
        let put = self.records.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
        let mut removed = self.removed.range((Revision(after.0.saturating_add(1)), String::new())..);
        after < self.forgotten
            || put.map(|(_, record)| record.modified).any(|revision| revision > after)
            || removed.any(|(_, key)| key.starts_with(prefix))
    }
}

impl Metadata for MemoryMetadata {
    fn read(&self, prefix: &str) -> Result<Records, MetadataError> {
        Ok(self.with(|book, _| {
            let from = book.records.range(prefix.to_owned()..);
            let records =
                from.take_while(|(key, _)| key.starts_with(prefix)).map(|(_, record)| record.clone());
            Records { revision: book.revision, records: records.collect() }
        }))
    }

    fn transact(&self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
        transaction.check()?;
        self.with(|book, _| book.transact(transaction))
    }

    fn grant(&self, ttl: Duration) -> Result<LeaseId, MetadataError> {
        Ok(self.with(|book, now| {
            book.last_lease += 1;
            let lease = LeaseId(book.last_lease);
            book.leases.insert(lease, (now.saturating_add(ttl), ttl));
            lease
        }))
    }

    fn keep_alive(&self, lease: LeaseId) -> Result<Duration, MetadataError> {
        self.with(|book, now| {
            let (end, ttl) = book.leases.get_mut(&lease).ok_or(MetadataError::LeaseExpired { lease })?;
            *end = now.saturating_add(*ttl);
            Ok(*ttl)
        })
    }

    fn revoke(&self, lease: LeaseId) -> Result<(), MetadataError> {
        self.with(|book, _| book.end(lease));
        Ok(())
    }

    fn wait(&self, prefix: &str, revision: Revision, at_most: Duration) -> Result<bool, MetadataError> {
        /// A lease may end while no record is changed.
        const LOOK: Duration = Duration::from_millis(20);
        let start = Instant::now();
        loop {
            if self.with(|book, _| book.has_changed(prefix, revision)) {
                return Ok(true);
            }
            let left = at_most.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            let mut book = self.shared.book.lock();
            if !book.has_changed(prefix, revision) {
                self.shared.changed.wait_for(&mut book, left.min(LOOK));
            }
        }
    }

    fn place(&self) -> String {
        "the memory of this process".to_owned()
    }
}
