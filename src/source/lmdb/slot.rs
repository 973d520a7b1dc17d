//! A reader's slot in LMDB's lock file: what keeps a writer from the pages that a walk sees.
//!
//! This is all that liblmdb is used for. It maps the data file, and reads no more of it than the two meta
//! pages, which we have judged before it sees the file.

#![expect(
    unsafe_code,
    reason = "LMDB ties a read transaction to a borrow, and tells the file by its descriptor"
)]

use std::fmt;
use std::fs::{File, Metadata};
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use lmdb::{Environment, EnvironmentFlags, RoTransaction, Transaction as _};

use super::files::Files;
use super::lock_file::{LockFile, Turn};
use crate::source::SourceError;
use crate::source::file_id::FileId;

/// Read transactions that may be open at once over all processes. LMDB's own default is 126; a server
/// that makes a reader a connection needs more. It counts only for whoever creates the lock file.
const READERS_MAX: u32 = 1022;

/// Why a database is read without a lock.
#[derive(Debug)]
pub(super) enum NoLock {
    /// The caller wants none.
    NotWanted,
    /// The lock file cannot be made or locked.
    System(lmdb::Error),
    /// The file system is read-only, and liblmdb works without a lock there.
    ReadOnly,
    /// This process has the lock file open already.
    OpenHere(PathBuf),
}

impl NoLock {
    /// Warns whoever wanted a lock.
    pub(super) fn warn(&self, path: &Path) {
        if !matches!(self, NoLock::NotWanted) {
            let path = path.display();
            tracing::warn!(%path, "{self}: reading it without a lock; nobody may write to it meanwhile");
        }
    }
}

impl fmt::Display for NoLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoLock::NotWanted => f.write_str("nobody wants a lock"),
            NoLock::System(error) => write!(f, "cannot lock the database ({error})"),
            NoLock::ReadOnly => {
                f.write_str("the database lies on a read-only file system, where it cannot be locked")
            }
            NoLock::OpenHere(lock) => write!(
                f,
                "this process has the database's lock file open already ({}), and LMDB cannot open it twice",
                lock.display()
            ),
        }
    }
}

/// The lock file of a database.
pub(super) struct Slots {
    /// Dropped within a turn, for liblmdb unmaps the lock file before it closes it.
    env: ManuallyDrop<Environment>,
    lock: LockFile,
}

impl Drop for Slots {
    fn drop(&mut self) {
        let mut turn = Turn::take();
        // SAFETY: nothing else drops it, and nothing uses it afterwards.
        unsafe { ManuallyDrop::drop(&mut self.env) };
        turn.forget(&self.lock);
    }
}

impl Slots {
    /// Opens the lock file, or says why the database must be read without it.
    ///
    /// `file` is the data file, whose meta pages were judged.
    pub(super) fn open(
        files: &Files,
        file: FileId,
        file_bytes: u64,
    ) -> Result<Result<Self, NoLock>, SourceError> {
        let mut turn = Turn::take();
        if turn.is_open_here(&files.lock) {
            return Ok(Err(NoLock::OpenHere(files.lock.clone())));
        }
        let (env, lock) = match turn.opening(&files.lock, || open(files, file_bytes)) {
            Err(lmdb::Error::Other(code)) if is_locking_trouble(code) => {
                return Ok(Err(NoLock::System(lmdb::Error::Other(code))));
            }
            opened => opened.map_err(|error| library_error(&files.given, "mdb_env_open", error))?,
        };
        drop(turn);
        let slots = Slots { env: ManuallyDrop::new(env), lock };
        // liblmdb has opened the file by its path once more.
        if slots.metadata().as_ref().map(FileId::of) != Some(file) {
            return Err(SourceError::Replaced { path: files.given.clone() });
        }
        Ok(if slots.has_table(&files.given)? { Ok(slots) } else { Err(NoLock::ReadOnly) })
    }

    /// Whether there is a table of readers. On a read-only file system liblmdb does without, and does not say
    /// so.
    fn has_table(&self, path: &Path) -> Result<bool, SourceError> {
        let _transaction = self.begin(path)?;
        let info = self.env.info().map_err(|error| library_error(path, "mdb_env_info", error))?;
        Ok(info.num_readers() > 0)
    }

    /// The metadata of the data file that liblmdb has open.
    fn metadata(&self) -> Option<Metadata> {
        let mut descriptor = -1;
        // SAFETY: the environment is open, and the number is written to.
        let code = unsafe { lmdb_sys::mdb_env_get_fd(self.env.env(), &raw mut descriptor) };
        if code != 0 || descriptor < 0 {
            return None;
        }
        // SAFETY: the descriptor is the environment's, which keeps it open for as long as `self`, and so for this call.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        File::from(descriptor.try_clone_to_owned().ok()?).metadata().ok()
    }

    /// Takes a slot. The value must be dropped before the slots are: see [`Slot::of`].
    fn begin(&self, path: &Path) -> Result<RoTransaction<'_>, SourceError> {
        self.env.begin_ro_txn().map_err(|error| library_error(path, "mdb_txn_begin", error))
    }
}

/// A read transaction: while it lives, no writer uses the pages anew that it sees.
pub(super) struct Slot {
    _transaction: RoTransaction<'static>,
    /// The number of the commit that it sees.
    pub(super) transaction: u64,
}

// SAFETY: `MDB_NOTLS` unties a read transaction from the thread that began it: it may be used and ended on any thread, by
// one at a time. After `of` it is only dropped, by whoever held it last.
unsafe impl Send for Slot {}
// SAFETY: as above; shared references do nothing with it.
unsafe impl Sync for Slot {}

impl Slot {
    /// Takes a slot.
    ///
    /// # Safety
    ///
    /// The result is dropped before `slots`.
    pub(super) unsafe fn of(slots: &Slots, path: &Path) -> Result<Self, SourceError> {
        let transaction = slots.begin(path)?;
        // SAFETY: the transaction is alive, and of this thread alone; its number is only read.
        let id = unsafe { lmdb_sys::mdb_txn_id(transaction.txn()) } as u64;
        // SAFETY: only the lifetime changes, and the caller sees to it that the environment is there for longer.
        let transaction =
            unsafe { std::mem::transmute::<RoTransaction<'_>, RoTransaction<'static>>(transaction) };
        Ok(Slot { _transaction: transaction, transaction: id })
    }
}

fn open(files: &Files, file_bytes: u64) -> lmdb::Result<Environment> {
    let mut flags = EnvironmentFlags::READ_ONLY | EnvironmentFlags::NO_TLS;
    flags.set(EnvironmentFlags::NO_SUB_DIR, files.open_is_file);
    let mut builder = Environment::new();
    builder.set_flags(flags).set_max_readers(READERS_MAX);
    // As long as the file: files from Caffe before 2016 ask for 1 TB of address space.
    if let Ok(length) = usize::try_from(file_bytes) {
        builder.set_map_size(length);
    }
    builder.open(&files.open)
}

/// What read-only media and network file systems answer to making, or locking, a lock file.
fn is_locking_trouble(code: i32) -> bool {
    matches!(
        code,
        libc::EACCES
            | libc::EPERM
            | libc::EROFS
            | libc::ENOSYS
            | libc::EAGAIN
            | libc::ENOLCK
            | libc::EOPNOTSUPP
    )
}

fn library_error(path: &Path, call: &'static str, error: lmdb::Error) -> SourceError {
    let hint = match error {
        lmdb::Error::ReadersFull => "; too many readers at once: share one, or open without the lock",
        lmdb::Error::MapResized => {
            "; another process let the database grow: drop all that reads it, and open it again"
        }
        // The data file was judged before: it is the lock file that the library speaks of.
        lmdb::Error::VersionMismatch | lmdb::Error::Invalid => {
            "; another program has its lock file open in the format of another LMDB: end that, or open without the lock"
        }
        _ => "",
    };
    SourceError::Library { path: PathBuf::from(path), call, message: error.to_string(), hint }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_keeps_a_lock_file_from_being_locked_is_no_reason_not_to_read() {
        for code in [libc::EACCES, libc::EROFS, libc::ENOSYS, libc::EAGAIN, libc::ENOLCK] {
            assert!(is_locking_trouble(code), "{code}");
        }
        assert!(!is_locking_trouble(libc::ENOMEM));
    }
}
