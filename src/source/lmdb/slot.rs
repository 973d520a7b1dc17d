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
use std::sync::Arc;

use lmdb::{Environment, EnvironmentFlags, RoTransaction, Transaction as _};
use parking_lot::Mutex;

use super::files::Files;
use super::lock_file::{LockFile, Turn};
use super::room::Room;
use crate::source::SourceError;
use crate::source::file_id::FileId;

/// Read transactions that may be open at once over all processes. LMDB's own default is 126; a server
/// that makes a reader a connection needs more. It counts only for whoever creates the lock file.
const READERS_MAX: u32 = 1022;

/// The call that may leave an environment without a map.
const SET_MAPSIZE: &str = "mdb_env_set_mapsize";

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
    /// Locked whenever liblmdb uses its map of the data file.
    live: Arc<Mutex<Live>>,
    /// Of that map, hence dropped after the environment.
    room: Room,
}

/// The read transactions of an environment.
#[derive(Debug, Default)]
struct Live {
    count: usize,
    /// Why liblmdb has lost its map of the data file. No transaction can begin any more.
    lost: Option<lmdb::Error>,
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
        let ((env, room), lock) = match turn.opening(&files.lock, || open(files, file_bytes)) {
            Err(lmdb::Error::Other(code)) if is_locking_trouble(code) => {
                return Ok(Err(NoLock::System(lmdb::Error::Other(code))));
            }
            opened => opened.map_err(|error| library_error(&files.given, "mdb_env_open", error))?,
        };
        drop(turn);
        let slots = Slots { env: ManuallyDrop::new(env), lock, live: Arc::default(), room };
        // liblmdb has opened the file by its path once more.
        if slots.metadata().as_ref().map(FileId::of) != Some(file) {
            return Err(SourceError::Replaced { path: files.given.clone() });
        }
        Ok(if slots.has_table(&files.given)? { Ok(slots) } else { Err(NoLock::ReadOnly) })
    }

    /// Whether there is a table of readers. On a read-only file system liblmdb does without, and does not say
    /// so.
    fn has_table(&self, path: &Path) -> Result<bool, SourceError> {
        let _begun = self.begin(path)?;
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
    fn begin(&self, path: &Path) -> Result<Begun<'_>, SourceError> {
        let mut live = self.live.lock();
        let begun = match self.try_begin(&live, path)? {
            Err(lmdb::Error::MapResized) if live.count == 0 => {
                self.map_anew(&mut live);
                self.try_begin(&live, path)?
            }
            Err(lmdb::Error::ReadersFull) => {
                self.clear_dead_readers();
                self.try_begin(&live, path)?
            }
            begun => begun,
        };
        let transaction = begun.map_err(|error| library_error(path, "mdb_txn_begin", error))?;
        live.count += 1;
        Ok(Begun { transaction, _counted: Counted(self.live.clone()) })
    }

    fn try_begin(&self, live: &Live, path: &Path) -> Result<lmdb::Result<RoTransaction<'_>>, SourceError> {
        match live.lost {
            // liblmdb would read the meta pages where its map was.
            Some(error) => Err(library_error(path, SET_MAPSIZE, error)),
            None => Ok(self.env.begin_ro_txn()),
        }
    }

    /// Makes liblmdb map the file as it is now. This is allowed: no transaction is live, and none begins
    /// while the caller holds the lock of `live`.
    fn map_anew(&self, live: &mut Live) {
        let file_bytes = self.metadata().map_or(0, |metadata| metadata.len());
        // liblmdb takes a longer map if the last commit needs it. If the call fails, liblmdb has no map left.
        live.lost = self.env.set_map_size(self.room.map_bytes(file_bytes)).err();
        tracing::debug!(file_bytes, lost = ?live.lost, "LMDB's map was made anew for a file that grew");
    }

    /// Clears the slots of processes that were killed.
    fn clear_dead_readers(&self) {
        let mut dead = 0;
        // SAFETY: the environment is open, and the call writes a number to `dead`. It may be made at any
        // time.
        let code = unsafe { lmdb_sys::mdb_reader_check(self.env.env(), &raw mut dead) };
        tracing::debug!(code, dead, "all slots were taken: cleared those of processes that have ended");
    }
}

/// A read transaction that is counted as live.
struct Begun<'env> {
    /// Declared, hence ended, before the count goes down.
    transaction: RoTransaction<'env>,
    _counted: Counted,
}

struct Counted(Arc<Mutex<Live>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.lock().count -= 1;
    }
}

/// A read transaction: while it lives, no writer uses the pages anew that it sees.
pub(super) struct Slot {
    _begun: Begun<'static>,
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
        let begun = slots.begin(path)?;
        // SAFETY: the transaction is alive, and of this thread alone; its number is only read.
        let id = unsafe { lmdb_sys::mdb_txn_id(begun.transaction.txn()) } as u64;
        // SAFETY: only the lifetime changes, and the caller sees to it that the environment is there for longer.
        let begun = unsafe { std::mem::transmute::<Begun<'_>, Begun<'static>>(begun) };
        Ok(Slot { _begun: begun, transaction: id })
    }
}

/// Opens the environment with room for its map to grow, or without.
fn open(files: &Files, file_bytes: u64) -> lmdb::Result<(Environment, Room)> {
    let room = Room::take();
    match open_with(files, room.map_bytes(file_bytes)) {
        // Some machines have fewer addresses than the room needs.
        Err(lmdb::Error::Other(libc::ENOMEM | libc::EINVAL | libc::EOVERFLOW)) if !room.is_none() => {
            let room = Room::none();
            Ok((open_with(files, room.map_bytes(file_bytes))?, room))
        }
        opened => Ok((opened?, room)),
    }
}

fn open_with(files: &Files, map_bytes: usize) -> lmdb::Result<Environment> {
    let mut flags = EnvironmentFlags::READ_ONLY | EnvironmentFlags::NO_TLS;
    flags.set(EnvironmentFlags::NO_SUB_DIR, files.open_is_file);
    let mut builder = Environment::new();
    // The size that the file says is ignored: Caffe wrote 1 TB until 2016, which need not fit.
    builder.set_flags(flags).set_max_readers(READERS_MAX).set_map_size(map_bytes);
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
        _ if call == SET_MAPSIZE => {
            "; the database has grown beyond the address space: lift the limit (ulimit -v), and open it again"
        }
        lmdb::Error::ReadersFull => "; too many readers at once: share one, or open without the lock",
        lmdb::Error::MapResized => {
            "; another process let the database grow, and the address space has no room for a longer map while walks \
             are open: end the walks that are open, or lift the limit (ulimit -v)"
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
