//! What a transaction reads and changes: the tables, and what they hold.

use std::collections::BTreeMap;
use std::time::Duration;

use percolator_files::checksum::crc32c;
use rusqlite::{Connection, OptionalExtension as _, Params, Row};

use super::fault::Fault;
use crate::metadata::{Change, LeaseId, MetadataError, Outcome, Record, Records, Revision, Transaction};

/// The tables, as SQLite keeps their text. Each number is in an index, too, which is compared with its table
/// when a folder is opened; a record has a checksum. Removals are numbered in their order, without gaps.
pub(super) const TABLES: &str = "\
CREATE TABLE state (boot TEXT NOT NULL, revision INTEGER NOT NULL, last_lease INTEGER NOT NULL) STRICT;\
CREATE INDEX state_again ON state (boot, revision, last_lease);\
CREATE TABLE leases (lease INTEGER PRIMARY KEY, ends INTEGER NOT NULL, lasts INTEGER NOT NULL) STRICT;\
CREATE INDEX leases_by_end ON leases (ends, lasts);\
CREATE TABLE records (key BLOB PRIMARY KEY, created INTEGER NOT NULL, modified INTEGER NOT NULL, \
lease INTEGER, sum INTEGER NOT NULL, value BLOB NOT NULL) STRICT, WITHOUT ROWID;\
CREATE INDEX records_by_lease ON records (lease) WHERE lease IS NOT NULL;\
CREATE TABLE removals (number INTEGER PRIMARY KEY, revision INTEGER NOT NULL, key BLOB NOT NULL) STRICT;\
CREATE INDEX removals_by_revision ON removals (revision, key)";

/// How many removals are remembered; a caller that waits for an earlier one is told that there was one.
const REMOVALS_MAX: u32 = 4096;

/// Puts what a database without records has.
pub(super) fn begin(rows: &Connection, boot: &str) -> Result<(), Fault> {
    rows.execute("INSERT INTO state VALUES (?1, 1, 0)", [boot])?;
    Ok(())
}

/// The records in a transaction.
///
/// # Invariants
///
/// 1. The revision is not lower than that of any record, and grows with what changes one.
/// 2. A lease that a record names is there.
#[derive(Debug)]
pub(super) struct Book<'t> {
    rows: &'t Connection,
    /// The boot of the machine in which the leases were granted.
    pub(super) boot: String,
    /// When records were last changed.
    pub(super) revision: Revision,
    now: i64,
    /// Whether leases are over.
    pub(super) is_due: bool,
}

impl<'t> Book<'t> {
    pub(super) fn open(rows: &'t Connection, now: Duration) -> Result<Self, Fault> {
        const SELECT: &str =
            "SELECT boot, revision, EXISTS (SELECT 1 FROM leases WHERE ends <= ?1) FROM state";
        let now = nanoseconds(now);
        Ok(rows.query_row(SELECT, [now], |row| {
            Ok(Book { rows, boot: row.get(0)?, revision: Revision(row.get(1)?), now, is_due: row.get(2)? })
        })?)
    }

    /// The records of a prefix.
    pub(super) fn read(&self, prefix: &str) -> Result<Records, Fault> {
        let records = self.records("key >= ?1 AND key < ?2 ORDER BY key", bounds(prefix))?;
        Ok(Records { revision: self.revision, records })
    }

    /// Whether a record of this prefix was put or removed after this revision, as far as it is remembered.
    pub(super) fn has_changed(&self, prefix: &str, after: Revision) -> Result<bool, Fault> {
        // The oldest removal that has a row is taken for forgotten: it may not be the only one of its
        // revision.
        const SELECT: &str = "SELECT \
            EXISTS (SELECT 1 FROM records WHERE key >= ?1 AND key < ?2 AND modified > ?3) \
            OR EXISTS (SELECT 1 FROM removals WHERE revision > ?3 AND key >= ?1 AND key < ?2) \
            OR EXISTS (SELECT 1 FROM removals WHERE revision > ?3 \
                AND number <= (SELECT max(number) FROM removals) - ?4)";
        if self.revision <= after {
            return Ok(false);
        }
        let [from, to] = bounds(prefix);
        Ok(self.rows.query_row(SELECT, (from, to, after.0, REMOVALS_MAX), |row| row.get(0))?)
    }

    /// What becomes of a transaction if it changes nothing: whether its conditions hold.
    pub(super) fn compare(&self, transaction: &Transaction) -> Result<Outcome, Fault> {
        let (mut found, mut holds) = (BTreeMap::new(), true);
        for condition in transaction.conditions() {
            let record = self.record(condition.key())?;
            holds &= condition.holds(record.as_ref());
            found.extend(record.map(|record| (condition.key(), record)));
        }
        let (revision, records) = (self.revision, found.into_values().collect());
        Ok(if holds { Outcome::Committed(revision) } else { Outcome::Refused(Records { revision, records }) })
    }

    fn record(&self, key: &str) -> Result<Option<Record>, Fault> {
        Ok(self.records("key = ?1", [key.as_bytes()])?.pop())
    }

    fn records(&self, which: &str, params: impl Params) -> Result<Vec<Record>, Fault> {
        let select = format!("SELECT key, created, modified, lease, sum, value FROM records WHERE {which}");
        let mut statement = self.rows.prepare(&select)?;
        let records = statement.query_and_then(params, record)?;
        records.collect()
    }

    /// Ends the leases whose rows are `which`, in their order.
    pub(super) fn end_leases(&mut self, which: &str) -> Result<(), Fault> {
        let mut statement =
            self.rows.prepare(&format!("SELECT lease FROM leases WHERE {which} ORDER BY lease"))?;
        let leases =
            statement.query_map([], |row| row.get(0).map(LeaseId))?.collect::<Result<Vec<_>, _>>()?;
        leases.into_iter().try_for_each(|lease| self.end(lease))
    }

    /// Ends the leases that are over.
    pub(super) fn end_due(&mut self, boot: &str) -> Result<(), Fault> {
        if self.boot != boot {
            return Err(Fault::Damaged(format!(
                "another machine uses the folder as well: metadata.sqlite names the boot {}, and this is \
                 {boot}; use a folder on a disk of this machine, or etcd",
                self.boot
            )));
        }
        if self.is_due { self.end_leases(&format!("ends <= {}", self.now)) } else { Ok(()) }
    }

    /// Ends all leases if they were granted in another boot, whose time is over.
    pub(super) fn adopt(&mut self, boot: &str) -> Result<(), Fault> {
        if self.boot != boot {
            self.end_leases("true")?;
            self.rows.execute("UPDATE state SET boot = ?1", [boot])?;
        }
        Ok(())
    }

    /// Ends a lease, and removes its records. Ending one that has ended does nothing.
    pub(super) fn end(&mut self, lease: LeaseId) -> Result<(), Fault> {
        self.rows.execute("DELETE FROM leases WHERE lease = ?1", [lease.0])?;
        if self.remove("lease = ?1", [lease.0], self.next())? { self.set_revision() } else { Ok(()) }
    }

    /// Grants a lease that lasts so long.
    pub(super) fn grant(&self, ttl: Duration) -> Result<LeaseId, Fault> {
        const NEXT: &str = "UPDATE state SET last_lease = last_lease + 1 RETURNING last_lease";
        let lease = LeaseId(self.rows.query_row(NEXT, [], |row| row.get(0))?);
        self.put_lease(lease, nanoseconds(ttl))?;
        Ok(lease)
    }

    /// Lets a lease last for its whole time again, which is returned.
    pub(super) fn keep_alive(&self, lease: LeaseId) -> Result<Duration, Fault> {
        let lasts = self.lease(lease)?;
        self.put_lease(lease, lasts)?;
        Ok(Duration::from_nanos(lasts.unsigned_abs()))
    }

    /// How long a lease lasts, which must be there.
    fn lease(&self, lease: LeaseId) -> Result<i64, Fault> {
        let select = "SELECT lasts FROM leases WHERE lease = ?1";
        let found = self.rows.query_row(select, [lease.0], |row| row.get(0)).optional()?;
        Ok(found.ok_or(MetadataError::LeaseExpired { lease })?)
    }

    fn put_lease(&self, lease: LeaseId, lasts: i64) -> Result<(), Fault> {
        let row = [lease.0, self.now.saturating_add(lasts), lasts];
        self.rows.execute("REPLACE INTO leases VALUES (?1, ?2, ?3)", row)?;
        Ok(())
    }

    /// Makes the changes of a transaction, and returns at which revision.
    pub(super) fn make(&mut self, changes: &[Change]) -> Result<Revision, Fault> {
        for change in changes {
            if let Change::Put { lease: Some(lease), .. } = change {
                self.lease(*lease)?;
            }
        }
        let (next, mut has_changed) = (self.next(), false);
        for change in changes {
            has_changed |= match change {
                Change::Put { key, value, lease } => {
                    let created = self.record(key)?.map_or(next, |found| found.created);
                    let sum = sum(key, [created, next], *lease, value);
                    let row = (key.as_bytes(), created.0, next.0, lease.map(|lease| lease.0), sum, value);
                    self.rows.execute("REPLACE INTO records VALUES (?1, ?2, ?3, ?4, ?5, ?6)", row)? > 0
                }
                Change::Remove { key } => self.remove("key = ?1", [key.as_bytes()], next)?,
            };
        }
        if has_changed {
            self.set_revision()?;
        }
        Ok(self.revision)
    }

    /// Removes the records whose rows are `which`, and returns whether there are any. The oldest removals
    /// are forgotten if there are too many. One more stays, to say when those were.
    fn remove(&self, which: &str, params: impl Params + Clone, revision: Revision) -> Result<bool, Fault> {
        const FORGET: &str = "DELETE FROM removals WHERE number < (SELECT max(number) FROM removals) - ?1";
        let remember =
            format!("INSERT INTO removals (revision, key) SELECT {revision}, key FROM records WHERE {which}");
        let has_changed = self.rows.execute(&remember, params.clone())? > 0;
        if has_changed {
            self.rows.execute(&format!("DELETE FROM records WHERE {which}"), params)?;
            self.rows.execute(FORGET, [REMOVALS_MAX])?;
        }
        Ok(has_changed)
    }

    fn next(&self) -> Revision {
        Revision(self.revision.0 + 1)
    }

    /// Records were changed.
    fn set_revision(&mut self) -> Result<(), Fault> {
        self.revision = self.next();
        self.rows.execute("UPDATE state SET revision = ?1", [self.revision.0])?;
        Ok(())
    }
}

/// The first key of a prefix, and the bound after its last: no byte of UTF-8 is as high.
fn bounds(prefix: &str) -> [Vec<u8>; 2] {
    [prefix.as_bytes().to_vec(), [prefix.as_bytes(), &[0xff]].concat()]
}

fn record(row: &Row<'_>) -> Result<Record, Fault> {
    // A key that is no text does not have the checksum either.
    let key = String::from_utf8_lossy(&row.get::<_, Vec<u8>>(0)?).into_owned();
    let [created, modified] = [Revision(row.get(1)?), Revision(row.get(2)?)];
    let (lease, value) = (row.get::<_, Option<i64>>(3)?.map(LeaseId), row.get::<_, Vec<u8>>(5)?);
    if sum(&key, [created, modified], lease, &value) != row.get::<_, u32>(4)? {
        return Err(Fault::Damaged(format!(
            "metadata.sqlite is damaged: the record {key:?} does not have its checksum; use another folder"
        )));
    }
    Ok(Record { key, value, created, modified, lease })
}

/// The checksum of a record.
fn sum(key: &str, revisions: [Revision; 2], lease: Option<LeaseId>, value: &[u8]) -> u32 {
    let mut all = key.as_bytes().to_vec();
    let [created, modified] = revisions;
    for number in [created.0, modified.0, lease.map_or(0, |lease| lease.0), crc32c(value).into()] {
        all.extend_from_slice(&number.to_le_bytes());
    }
    crc32c(&all)
}

/// Time as rows have it. What is longer than 292 years is cut to that.
fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
