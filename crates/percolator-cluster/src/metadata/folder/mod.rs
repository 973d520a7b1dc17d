//! Records in a folder of one machine.
//!
//! ```text
//! mod          the interface: each call is one turn, and one transaction
//!   v
//! shared       what all who have the folder open in this process share; a turn from start to end
//!   v
//! files        which folders are refused; the data file, whole or absent
//! turn         one writes, or many read, and nobody waits for ever
//! environment  LMDB on the data file, verified when it is opened; how long its map is
//!   v
//! book         what a transaction reads and changes
//! entries      what is stored: keys, values, checksums, the format's version
//! boot         which boot of which machine this is; fault: what goes wrong in any of these
//! ```

mod book;
mod boot;
mod entries;
mod environment;
mod fault;
mod files;
mod shared;
mod turn;

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use self::book::{View, Writer};
use self::boot::BootId;
use self::environment::{FIRST_BYTES, Reserve};
use self::fault::Fault;
use self::shared::{Caller, Handle};
use self::turn::Deadline;
use super::{Change, LeaseId, Metadata, MetadataError, Outcome, Records, Revision, Transaction};
use crate::clock::{Clock, MachineClock};

/// How long a call waits for its turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many bytes the data file may have: as many as etcd's has by default.
const BYTES_MAX: u64 = 2 << 30;

/// All lengths of the file are multiples of this, and so of every length of a page.
const STEP_BYTES: u64 = 64 << 10;

/// How often somebody who waits for a change looks for one.
const LOOK: Duration = Duration::from_millis(15);

/// Records in a folder, which the processes of one machine share. Clones, and others that open the folder,
/// have the same records.
///
/// They are in one file, `metadata.mdb`, an LMDB. What was committed is on the disk, and stays whatever
/// happens to the processes: one that is killed leaves nothing to be repaired, and what it had not committed
/// never happened. One that is stopped within a change (SIGSTOP, a debugger, a disk that hangs) delays the
/// others, who wait for as long as [`FolderOptions::patience`] says.
///
/// Leases count the time since the machine was started. When it is started anew, they have all ended.
///
/// # What is trusted
///
/// That the folder is on a disk of this machine, since LMDB needs memory that all processes share: NFS, SMB,
/// FUSE and their like are refused. That only this type writes to the file while it is open: whoever cuts a
/// file that is mapped ends the process that reads it (SIGBUS). A file that was damaged before is an error:
/// when it is opened, all pages of the records are verified, and what an entry holds has a checksum. LMDB's
/// own list of free pages is not verified. Damage to it, or to pages after the file was opened, can end the
/// process at the next change.
///
/// A process that forks after it opened a folder must open it again in the child; a handle that it inherited
/// refuses every call. Processes may be in different time namespaces: what theirs adds to the machine's clock
/// is taken off. That and which boot this is are in `/proc`: without it, the folder cannot be opened.
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
    handle: Handle,
    place: Arc<str>,
    boot: BootId,
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
pub struct FolderOptions {
    patience: Duration,
    bytes_max: u64,
    clock: Option<Arc<dyn Clock>>,
    boot: Option<BootId>,
}

impl FolderOptions {
    /// Sets how long a call waits for another process that changes records (default: 10 s).
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Sets to how many bytes the file of records may grow (default: 2 GiB; 2 MiB at the least). 1 MiB of it
    /// is kept for leases and removals, so that a full file can be emptied.
    #[must_use]
    pub fn bytes_max(mut self, bytes_max: u64) -> Self {
        self.bytes_max = bytes_max.max(FIRST_BYTES) / STEP_BYTES * STEP_BYTES;
        self
    }

    /// Sets the clock by which leases end (default: the time since the machine was started). All who use the
    /// folder must have the same one: another one is for tests.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Sets what stands for the boot of this machine, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn boot(mut self, boot: u128) -> Self {
        self.boot = Some(BootId(boot));
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
        let folder = folder.as_ref();
        let place = files::place(folder);
        self.open_at(folder, &place).map_err(|fault| fault.at(&place, "open the records"))
    }

    fn open_at(self, folder: &Path, place: &str) -> Result<FolderMetadata, Fault> {
        let boot = match self.boot {
            Some(boot) => boot,
            None => BootId::read()?,
        };
        let handle = Handle::open(folder, boot, Deadline::after(self.patience))?;
        let clock = match &self.clock {
            Some(clock) => clock.clone(),
            None => Arc::new(MachineClock::read()?),
        };
        let folder = FolderMetadata { handle, place: place.into(), boot, clock, options: self };
        let (caller, handle) = (folder.caller(Reserve::Used), &folder.handle);
        // A process opens a folder after the machine was started, and before it does anything else with it.
        if handle.read(&caller, |_| Ok(()))?.is_none() {
            handle.write(&caller, |writer| writer.adopt(boot))?;
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
    #[must_use]
    pub fn options() -> FolderOptions {
        FolderOptions { patience: PATIENCE, bytes_max: BYTES_MAX, clock: None, boot: None }
    }

    fn caller(&self, reserve: Reserve) -> Caller<'_> {
        let FolderOptions { patience, bytes_max, .. } = &self.options;
        let (deadline, bytes_max) = (Deadline::after(*patience), *bytes_max);
        Caller { clock: &*self.clock, boot: self.boot, deadline, bytes_max, reserve }
    }

    /// Looks at the records, once the leases that are over have ended.
    fn look<T>(&self, caller: &Caller<'_>, look: impl Fn(&View<'_>) -> Result<T, Fault>) -> Result<T, Fault> {
        match self.handle.read(caller, &look)? {
            Some(found) => Ok(found),
            None => self.write(caller, |writer| look(&writer.view())),
        }
    }

    /// Changes leases, or removes records.
    fn change<T>(
        &self,
        what: &'static str,
        change: impl FnMut(&mut Writer<'_>) -> Result<T, Fault>,
    ) -> Result<T, MetadataError> {
        self.write(&self.caller(Reserve::Used), change).map_err(|fault| fault.at(&self.place, what))
    }

    fn write<T>(
        &self,
        caller: &Caller<'_>,
        mut change: impl FnMut(&mut Writer<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.handle.write(caller, |writer| {
            writer.end_due(self.boot)?;
            change(writer)
        })
    }
}

impl Metadata for FolderMetadata {
    fn read(&self, prefix: &str) -> Result<Records, MetadataError> {
        let found = self.look(&self.caller(Reserve::Used), |view| view.read(prefix));
        found.map_err(|fault| fault.at(&self.place, "read records"))
    }

    fn transact(&self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
        transaction.check()?;
        let changes = transaction.changes();
        let puts = changes.iter().any(|change| matches!(change, Change::Put { .. }));
        let caller = self.caller(if puts { Reserve::Kept } else { Reserve::Used });
        let outcome = if changes.is_empty() {
            self.look(&caller, |view| view.compare(transaction))
        } else {
            self.write(&caller, |writer| {
                Ok(match writer.view().compare(transaction)? {
                    Outcome::Committed(_) => Outcome::Committed(writer.make(changes)?),
                    refused @ Outcome::Refused(_) => refused,
                })
            })
        };
        outcome.map_err(|fault| fault.at(&self.place, "change records"))
    }

    fn grant(&self, ttl: Duration) -> Result<LeaseId, MetadataError> {
        self.change("grant a lease", |writer| writer.grant(ttl))
    }

    fn keep_alive(&self, lease: LeaseId) -> Result<Duration, MetadataError> {
        self.change("keep a lease alive", |writer| writer.keep_alive(lease))
    }

    fn revoke(&self, lease: LeaseId) -> Result<(), MetadataError> {
        self.change("end a lease", |writer| writer.end(lease))
    }

    // Whoever waits looks again and again. A notice from the kernel would save little: the end of a lease,
    // which nobody makes known, must be seen as well.
    fn wait(&self, prefix: &str, revision: Revision, at_most: Duration) -> Result<bool, MetadataError> {
        let deadline = Deadline::after(at_most);
        let mut caller = self.caller(Reserve::Used);
        let mut seen = None;
        loop {
            let looked = self.look(&caller, |view| {
                let now = view.revision();
                Ok((now, seen != Some(now) && view.has_changed(prefix, revision)?))
            });
            let left = deadline.left();
            match looked {
                Ok((_, true)) => return Ok(true),
                Ok((now, false)) => seen = Some(now),
                // Only the first look must succeed.
                Err(Fault::Occupied(_)) if seen.is_some() && left.is_zero() => return Ok(false),
                Err(fault) => return Err(fault.at(&self.place, "wait for a change")),
            }
            if left.is_zero() {
                return Ok(false);
            }
            thread::sleep(left.min(LOOK));
            caller.deadline = Deadline::after(self.options.patience.min(deadline.left()));
        }
    }

    fn place(&self) -> String {
        self.place.to_string()
    }
}
