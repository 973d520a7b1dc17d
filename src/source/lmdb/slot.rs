//! A reader's slot in LMDB's lock file: what keeps a writer from the pages that a walk sees.
//!
//! This is all that liblmdb is used for. It maps the data file, and reads no more of it than the two meta pages, which were
//! judged before it comes to see the file.
//!
//! Two environments on one lock file must not be open in a process: file locks do not keep a process from itself, so the
//! second would take the reader table for abandoned, and begin it anew. Whoever has it already, we in another environment or
//! another part of the program, keeps its lock, and we read without one.

#![expect(
    unsafe_code,
    reason = "LMDB ties a read transaction to a borrow, and tells the file by its descriptor"
)]

use std::fs::{self, File};
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use lmdb::{Environment, EnvironmentFlags, RoTransaction, Transaction as _};
use once_cell::sync::Lazy;
use parking_lot::Mutex;

use super::files::Files;
use crate::source::SourceError;
use crate::source::file_id::FileId;

/// Read transactions that may be open at once over all processes. LMDB's own default is 126; a server
/// that makes a reader a connection needs more. It counts only for whoever creates the lock file.
const READERS_MAX: u32 = 1022;

/// Whoever looks whether a lock file is open here opens it before the next one looks.
static OPENING: Lazy<Mutex<()>> = Lazy::new(Mutex::default);

/// Why a database is read without a lock.
#[derive(Debug)]
enum NoLock {
    /// The lock file cannot be made or locked.
    System(lmdb::Error),
    /// This process has it open already.
    OpenHere,
}

/// The lock file of a database.
pub(super) struct Slots {
    /// Dropped under `OPENING`: liblmdb unmaps the lock file before it closes it, and closing ends all locks that the process has
    /// on it, those of an environment that was opened in between, too.
    env: ManuallyDrop<Environment>,
}

impl Drop for Slots {
    fn drop(&mut self) {
        let _closing = OPENING.lock();
        // SAFETY: it is dropped here alone, and not used afterwards.
        unsafe { ManuallyDrop::drop(&mut self.env) };
    }
}

impl Slots {
    /// Opens it; `None` where that cannot be, which an event says.
    ///
    /// `file` is the data file, whose first pages were found to be right.
    pub(super) fn open(files: &Files, file: FileId, file_bytes: u64) -> Result<Option<Self>, SourceError> {
        let opening = OPENING.lock();
        let opened = match is_open_here(&files.lock) {
            true => Err(NoLock::OpenHere),
            false => match open(files, file_bytes) {
                Err(lmdb::Error::Other(code)) if is_locking_trouble(code) => {
                    Err(NoLock::System(lmdb::Error::Other(code)))
                }
                opened => Ok(opened.map_err(|error| library_error(&files.given, "mdb_env_open", error))?),
            },
        };
        drop(opening);
        let path = files.given.display();
        match opened {
            Ok(env) => {
                let slots = Slots { env: ManuallyDrop::new(env) };
                // The library opens the file by its path once more.
                if slots.file() != Some(file) {
                    return Err(SourceError::Replaced { path: files.given.clone() });
                }
                if slots.has_table(&files.given)? {
                    return Ok(Some(slots));
                }
                tracing::warn!(
                    %path,
                    "the database lies on a read-only file system, where it cannot be locked: reading it without a lock; \
                     nobody may write to it meanwhile"
                );
                Ok(None)
            }
            Err(NoLock::System(error)) => {
                tracing::warn!(
                    %path, %error,
                    "cannot lock the database: reading it without a lock; nobody may write to it meanwhile"
                );
                Ok(None)
            }
            Err(NoLock::OpenHere) => {
                tracing::warn!(
                    %path, lock = %files.lock.display(),
                    "this process has the database's lock file open already, and LMDB cannot open it twice: reading \
                     without a lock; nobody may write to it meanwhile"
                );
                Ok(None)
            }
        }
    }

    /// Whether there is a table of readers. On a read-only file system the library does without, and says nothing of it.
    fn has_table(&self, path: &Path) -> Result<bool, SourceError> {
        let _transaction = self.begin(path)?;
        let info = self.env.info().map_err(|error| library_error(path, "mdb_env_info", error))?;
        Ok(info.num_readers() > 0)
    }

    /// Which file the library has open.
    fn file(&self) -> Option<FileId> {
        let mut descriptor = -1;
        // SAFETY: the environment is open, and the number is written to.
        let code = unsafe { lmdb_sys::mdb_env_get_fd(self.env.env(), &raw mut descriptor) };
        if code != 0 || descriptor < 0 {
            return None;
        }
        // SAFETY: the descriptor is the environment's, which keeps it open for as long as `self`, and so for this call.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let file = File::from(descriptor.try_clone_to_owned().ok()?);
        Some(FileId::of(&file.metadata().ok()?))
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

/// Whether this process has a lock file mapped: every environment that is open with a lock has.
#[cfg(target_os = "linux")]
fn is_open_here(lock: &Path) -> bool {
    // Not opened to be looked at: closing it would end the locks that this process has on it.
    let Ok(metadata) = fs::metadata(lock) else { return false };
    let Ok(lock) = lock.canonicalize() else { return false };
    let Ok(maps) = fs::read("/proc/self/maps") else { return false };
    has_mapped(&String::from_utf8_lossy(&maps), &lock, metadata.dev(), metadata.ino())
}

#[cfg(not(target_os = "linux"))]
fn is_open_here(_lock: &Path) -> bool {
    false
}

/// Whether a file is among the maps of a process, by its device and inode, or by its path: some file systems (overlayfs, Btrfs)
/// show other numbers there than to `stat`.
#[cfg(target_os = "linux")]
fn has_mapped(maps: &str, path: &Path, device: u64, inode: u64) -> bool {
    let device = format!("{:02x}:{:02x}", libc::major(device), libc::minor(device));
    let inode = inode.to_string();
    maps.lines().any(|line| {
        let mut words = line.splitn(6, ' ').skip(3);
        let is_the_file = words.next() == Some(&device) && words.next() == Some(&inode);
        is_the_file || line.splitn(6, ' ').nth(5).is_some_and(|mapped| Path::new(mapped.trim_start()) == path)
    })
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_lock_file_is_found_among_the_maps() {
        let maps = "7f1200000000-7f1240000000 r--s 00000000 fd:00 131 /data/train/data.mdb\n\
                    7f1300000000-7f1300001000 rw-s 00000000 08:11 131 /data/train/lock.mdb\n";
        let device = libc::makedev(0x08, 0x11);
        let elsewhere = Path::new("/data/test/lock.mdb");
        assert!(has_mapped(maps, elsewhere, device, 131));
        assert!(!has_mapped(maps, elsewhere, device, 13));
        assert!(!has_mapped(maps, elsewhere, libc::makedev(8, 1), 131));
        assert!(has_mapped(maps, Path::new("/data/train/lock.mdb"), libc::makedev(8, 1), 7));
    }

    #[test]
    fn whatever_keeps_a_lock_file_from_being_locked_is_no_reason_not_to_read() {
        for code in [libc::EACCES, libc::EROFS, libc::ENOSYS, libc::EAGAIN, libc::ENOLCK] {
            assert!(is_locking_trouble(code), "{code}");
        }
        assert!(!is_locking_trouble(libc::ENOMEM));
    }
}
