//! Records that processes share through one file: read, changed and replaced under a lock.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use percolator_cluster::clock::{BootClock, Clock as _};
use percolator_cluster::metadata::{
    Change, Condition, LeaseId, Metadata, MetadataError, Outcome, Record, Records, Revision, Transaction,
};
use serde::{Deserialize, Serialize};

#[derive(Debug)]
pub(crate) struct FileMetadata {
    folder: PathBuf,
}

#[derive(Clone, Default, Serialize, Deserialize)]
struct Row {
    value: Vec<u8>,
    created: i64,
    modified: i64,
    lease: Option<i64>,
}

#[derive(Default, Serialize, Deserialize)]
struct Book {
    revision: i64,
    last_lease: i64,
    rows: BTreeMap<String, Row>,
    /// When each lease ends, and how long it lasts.
    leases: BTreeMap<i64, (Duration, Duration)>,
}

impl Book {
    fn end(&mut self, lease: i64) {
        if self.leases.remove(&lease).is_some() {
            self.revision += 1;
            self.rows.retain(|_, row| row.lease != Some(lease));
        }
    }

    fn record(&self, key: &str) -> Option<Record> {
        let row = self.rows.get(key)?;
        let (created, modified) = (Revision(row.created), Revision(row.modified));
        let (value, lease) = (row.value.clone(), row.lease.map(LeaseId));
        Some(Record { key: key.to_owned(), value, created, modified, lease })
    }

    fn holds(&self, condition: &Condition) -> bool {
        let found = self.record(condition.key());
        match condition {
            Condition::Missing(_) => found.is_none(),
            Condition::Modified(_, revision) => found.is_some_and(|record| record.modified == *revision),
            Condition::HeldBy(_, lease) => found.is_some_and(|record| record.lease == Some(*lease)),
        }
    }
}

impl FileMetadata {
    pub(crate) fn open(folder: &Path) -> Self {
        FileMetadata { folder: folder.to_owned() }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Book, Duration) -> T) -> T {
        let lock = File::create(self.folder.join("lock")).unwrap();
        lock.lock().unwrap();
        let path = self.folder.join("records");
        let mut book: Book = match fs::read(&path) {
            Ok(text) => serde_json::from_slice(&text).unwrap(),
            Err(_) => Book::default(),
        };
        let now = BootClock.now();
        let over: Vec<_> =
            book.leases.iter().filter(|(_, (end, _))| *end <= now).map(|(lease, _)| *lease).collect();
        over.into_iter().for_each(|lease| book.end(lease));
        let result = work(&mut book, now);
        // Whoever is killed here has changed all of it, or nothing.
        let new = self.folder.join("records.new");
        fs::write(&new, serde_json::to_vec(&book).unwrap()).unwrap();
        fs::rename(new, path).unwrap();
        result
    }
}

impl Metadata for FileMetadata {
    fn read(&self, prefix: &str) -> Result<Records, MetadataError> {
        Ok(self.with(|book, _| {
            let keys = book.rows.keys().filter(|key| key.starts_with(prefix));
            let records = keys.filter_map(|key| book.record(key)).collect();
            Records { revision: Revision(book.revision), records }
        }))
    }

    fn transact(&self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
        transaction.check()?;
        self.with(|book, _| {
            if !transaction.conditions().iter().all(|condition| book.holds(condition)) {
                let mut keys: Vec<_> = transaction.conditions().iter().map(Condition::key).collect();
                keys.sort_unstable();
                keys.dedup();
                let records = keys.into_iter().filter_map(|key| book.record(key)).collect();
                return Ok(Outcome::Refused(Records { revision: Revision(book.revision), records }));
            }
            for change in transaction.changes() {
                if let Change::Put { lease: Some(lease), .. } = change
                    && !book.leases.contains_key(&lease.0)
                {
                    return Err(MetadataError::LeaseExpired { lease: *lease });
                }
            }
            book.revision += i64::from(!transaction.changes().is_empty());
            for change in transaction.changes() {
                match change {
                    Change::Put { key, value, lease } => {
                        let modified = book.revision;
                        let created = book.rows.get(key).map_or(modified, |row| row.created);
                        let (value, lease) = (value.clone(), lease.map(|lease| lease.0));
                        book.rows.insert(key.clone(), Row { value, created, modified, lease });
                    }
                    Change::Remove { key } => _ = book.rows.remove(key),
                }
            }
            Ok(Outcome::Committed(Revision(book.revision)))
        })
    }

    fn grant(&self, ttl: Duration) -> Result<LeaseId, MetadataError> {
        Ok(self.with(|book, now| {
            book.last_lease += 1;
            book.leases.insert(book.last_lease, (now + ttl, ttl));
            LeaseId(book.last_lease)
        }))
    }

    fn keep_alive(&self, lease: LeaseId) -> Result<Duration, MetadataError> {
        self.with(|book, now| {
            let (end, ttl) = book.leases.get_mut(&lease.0).ok_or(MetadataError::LeaseExpired { lease })?;
            *end = now + *ttl;
            Ok(*ttl)
        })
    }

    fn revoke(&self, lease: LeaseId) -> Result<(), MetadataError> {
        self.with(|book, _| book.end(lease.0));
        Ok(())
    }

    fn wait(&self, prefix: &str, revision: Revision, at_most: Duration) -> Result<bool, MetadataError> {
        const LOOK: Duration = Duration::from_millis(2);
        let start = Instant::now();
        let _ = prefix;
        loop {
            if self.with(|book, _| book.revision > revision.0) {
                return Ok(true);
            }
            if start.elapsed() >= at_most {
                return Ok(false);
            }
            thread::sleep(LOOK);
        }
    }

    fn place(&self) -> String {
        self.folder.display().to_string()
    }
}
