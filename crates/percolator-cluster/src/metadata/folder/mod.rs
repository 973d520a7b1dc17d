//! Records in a folder of one machine.
//!
//! ```text
//! mod          the interface: each call is one transaction
//!   v
//! database     the file of SQLite and its log: made, checked, opened; locks, and room
//!   v
//! book         the tables, and what a transaction reads and changes in them
//! file_system  which file systems are refused
//! fault        what goes wrong in any of these
//! ```

mod book;
mod database;
mod fault;
mod file_system;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use percolator_files::shown;
use rusqlite::Connection;

use self::book::Book;
use self::database::{Database, RESERVE_BYTES};
use self::fault::Fault;
use super::{Change, LeaseId, Metadata, MetadataError, Outcome, Records, Revision, Transaction};
use crate::clock::{Clock, MachineClock};
use crate::patience::Deadline;

/// How long a call waits for others.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many bytes the file may have: as many as etcd's has by default.
const BYTES_MAX: u64 = 2 << 30;

/// How often a caller that waits for a change checks for one.
const LOOK: Duration = Duration::from_millis(15);

/// Records in a folder, which the processes of one machine share. Clones, and others that open the folder,
/// have the same records.
///
/// They are in a database of SQLite, `metadata.sqlite`, with its log (`-wal`) and an index of that (`-shm`)
/// beside it while a process has the folder open. What was committed is on the disk, and stays whatever
/// happens to the processes: one that is killed leaves nothing to be repaired, and what it had not committed
/// never happened. One that is stopped within a change (SIGSTOP, a debugger, a disk that hangs) delays the
/// changes of others, who wait for as long as [`FolderOptions::patience`] says; other handles read meanwhile,
/// and the clones of one handle take turns. One that is stopped while it reads delays changes, too, once it
/// keeps the log from restarting.
///
/// Leases count the time since the machine was started. When it is restarted, they have all ended.
///
/// # What is trusted
///
/// That the folder is on a disk of this machine, since the log's index is memory that all processes share:
/// NFS, SMB, FUSE and their like are refused. No other program may write to the files while they are open:
/// truncating the index ends the process that reads it (SIGBUS). That nothing else in this process opens
/// them, be it with another copy of SQLite: closing a file ends the locks that its process has of it. A file
/// that was damaged before is an error: when it is opened, SQLite checks all its pages, and each record has a
/// checksum.
///
/// A process that forks after it opened a folder must start the child as a program (exec), which opens it
/// again: in a child that was only forked, every call is refused. Processes may be in different time
/// namespaces: what theirs adds to the machine's clock is taken off. That and which boot this is are in
/// `/proc`: without it, the folder cannot be opened.
///
/// ```
/// use percolator_cluster::metadata::{FolderMetadata, Metadata, Outcome, Transaction};
/// # let folder = tempfile::tempdir()?;
/// # let folder = folder.path().join("job");
///
/// let records = FolderMetadata::open(&folder)?;
/// let first = Transaction::new().when_missing("leader").put("leader", "me");
/// assert!(matches!(records.transact(&first)?, Outcome::Committed(_)));
/// drop(records);
/// assert_eq!(FolderMetadata::open(&folder)?.read("")?.get("leader").unwrap().value, b"me");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FolderMetadata {
    database: Arc<Database>,
    place: Arc<str>,
    /// Which boot of which machine this is.
    boot: Arc<str>,
    clock: Arc<dyn Clock>,
    options: FolderOptions,
}

/// How a folder is opened.
///
/// ```no_run
/// use std::time::Duration;
/// use percolator_cluster::metadata::FolderMetadata;
///
/// let records = FolderMetadata::options().patience(Duration::from_secs(2)).open("/var/lib/job")?;
/// # Ok::<(), percolator_cluster::metadata::MetadataError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct FolderOptions {
    patience: Duration,
    bytes_max: u64,
    clock: Option<Arc<dyn Clock>>,
    boot: Option<Arc<str>>,
}

impl FolderOptions {
    /// Sets how long a call waits for another process that changes records (default: 10 s).
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets to how many bytes the file of records may grow (default: 2 GiB; 2 MiB at the least). 1 MiB of it
    /// is kept for leases and removals, so that a full file can be emptied. The log beside it has some MiB.
    pub fn bytes_max(mut self, bytes_max: u64) -> Self {
        self.bytes_max = bytes_max.max(2 * RESERVE_BYTES);
        self
    }

    /// Sets the clock by which leases end (default: the time since the machine was started). All who use the
    /// folder must have the same one: another one is for tests.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Sets what stands for the boot of this machine, for tests.
    #[doc(hidden)]
    pub fn boot(mut self, boot: u128) -> Self {
        self.boot = Some(boot.to_string().into());
        self
    }

    /// Opens the records in a folder, which is made if it is missing.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Denied`] if the folder cannot be written to, or is on a file system that several
    /// machines share; [`MetadataError::Damaged`] if its file is damaged, of another version, or of another
    /// program; [`MetadataError::Full`] if the disk is full.
    pub fn open(self, folder: impl AsRef<Path>) -> Result<FolderMetadata, MetadataError> {
        let place = format!("the folder {}", shown::path(folder.as_ref()));
        let (deadline, bytes_max) = (Deadline::after(self.patience), self.bytes_max);
        let opened = self.open_at(folder.as_ref(), &place, deadline);
        opened.map_err(|fault| fault.at(&place, "open the records", deadline.elapsed(), bytes_max))
    }

    fn open_at(self, folder: &Path, place: &str, deadline: Deadline) -> Result<FolderMetadata, Fault> {
        /// A number that the kernel draws when it starts: another one after a reboot, and elsewhere.
        const BOOT: &str = "/proc/sys/kernel/random/boot_id";
        let boot = match &self.boot {
            Some(boot) => boot.clone(),
            None => fs::read_to_string(BOOT)?.trim_end().into(),
        };
        let database = Arc::new(Database::open(folder, &boot, deadline)?);
        let clock = match &self.clock {
            Some(clock) => clock.clone(),
            None => Arc::new(MachineClock::read()?),
        };
        let folder = FolderMetadata { database, place: place.into(), boot, clock, options: self };
        // A process opens a folder after the machine was started, and before it does anything else with it.
        if folder.database.read(deadline, |rows| Ok(folder.book(rows)?.boot != *folder.boot))? {
            let adopt = |rows: &Connection| folder.book(rows)?.adopt(&folder.boot);
            folder.database.write(deadline, (folder.options.bytes_max, false), adopt)?;
        }
        Ok(folder)
    }
}

impl FolderMetadata {
    /// Opens the records in a folder, which is made if it is missing.
    ///
    /// # Errors
    ///
    /// As [`FolderOptions::open`].
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, MetadataError> {
        Self::options().open(folder)
    }

    /// Returns options, all at their defaults.
    pub fn options() -> FolderOptions {
        FolderOptions { patience: PATIENCE, bytes_max: BYTES_MAX, clock: None, boot: None }
    }

    fn book<'t>(&self, rows: &'t Connection) -> Result<Book<'t>, Fault> {
        Book::open(rows, self.clock.now())
    }

    /// Looks at the records, once the leases that are over have ended.
    fn look<T>(
        &self,
        what: &'static str,
        patience: Duration,
        look: impl Fn(&Book<'_>) -> Result<T, Fault>,
    ) -> Result<T, MetadataError> {
        let deadline = Deadline::after(patience);
        let found = self.database.read(deadline, |rows| {
            let book = self.book(rows)?;
            if book.is_due || book.boot != *self.boot { Ok(None) } else { look(&book).map(Some) }
        });
        match self.at(found, what, deadline)? {
            Some(found) => Ok(found),
            None => self.at(self.write(deadline, false, |book| look(book)), what, deadline),
        }
    }

    /// Changes records, once the leases that are over have ended.
    fn change<T>(
        &self,
        what: &'static str,
        puts: bool,
        change: impl FnOnce(&mut Book<'_>) -> Result<T, Fault>,
    ) -> Result<T, MetadataError> {
        let deadline = Deadline::after(self.options.patience);
        self.at(self.write(deadline, puts, change), what, deadline)
    }

    fn write<T>(
        &self,
        deadline: Deadline,
        puts: bool,
        change: impl FnOnce(&mut Book<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.database.write(deadline, (self.options.bytes_max, puts), |rows| {
            let mut book = self.book(rows)?;
            book.end_due(&self.boot)?;
            change(&mut book)
        })
    }

    fn at<T>(
        &self,
        found: Result<T, Fault>,
        what: &'static str,
        deadline: Deadline,
    ) -> Result<T, MetadataError> {
        found.map_err(|fault| fault.at(&self.place, what, deadline.elapsed(), self.options.bytes_max))
    }
}

impl Metadata for FolderMetadata {
    fn read(&self, prefix: &str) -> Result<Records, MetadataError> {
        self.look("read records", self.options.patience, |book| book.read(prefix))
    }

    fn transact(&self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
        const WHAT: &str = "change records";
        transaction.check()?;
        let changes = transaction.changes();
        if changes.is_empty() {
            return self.look(WHAT, self.options.patience, |book| book.compare(transaction));
        }
        let puts = changes.iter().any(|change| matches!(change, Change::Put { .. }));
        self.change(WHAT, puts, |book| match book.compare(transaction)? {
            Outcome::Committed(_) => book.make(changes).map(Outcome::Committed),
            refused @ Outcome::Refused(_) => Ok(refused),
        })
    }

    fn grant(&self, ttl: Duration) -> Result<LeaseId, MetadataError> {
        self.change("grant a lease", false, |book| book.grant(ttl))
    }

    fn keep_alive(&self, lease: LeaseId) -> Result<Duration, MetadataError> {
        self.change("keep a lease alive", false, |book| book.keep_alive(lease))
    }

    fn revoke(&self, lease: LeaseId) -> Result<(), MetadataError> {
        self.change("end a lease", false, |book| book.end(lease))
    }

    // A waiting caller checks repeatedly. A notice from the kernel would save little: the end of a lease,
    // which is not announced, must be noticed as well.
    fn wait(&self, prefix: &str, revision: Revision, at_most: Duration) -> Result<bool, MetadataError> {
        let (end, mut patience, mut seen) = (Deadline::after(at_most), self.options.patience, None);
        loop {
            let looked = self.look("wait for a change", patience, |book| {
                let now = book.revision;
                Ok((now, seen != Some(now) && book.has_changed(prefix, revision)?))
            });
            let left = end.left();
            match looked {
                Ok((_, true)) => return Ok(true),
                Ok((now, false)) => seen = Some(now),
                // Only the first look must succeed.
                Err(MetadataError::Unreachable { .. }) if seen.is_some() && left.is_zero() => {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
            if left.is_zero() {
                return Ok(false);
            }
            thread::sleep(left.min(LOOK));
            patience = self.options.patience.min(end.left());
        }
    }

    fn place(&self) -> String {
        self.place.to_string()
    }
}
