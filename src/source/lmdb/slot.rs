//! A reader's slot in LMDB's lock file, which keeps a writer from reusing the pages that a cursor sees.
//!
//! liblmdb is used for nothing else. It maps the data file, and reads only its two meta pages, which we
//! validate first.

#![expect(
    unsafe_code,
    reason = "LMDB ties a read transaction to a borrow, and tells the file by its descriptor"
)]

use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lmdb::{Environment, EnvironmentFlags, RoTransaction, Transaction as _};
use parking_lot::Mutex;

use super::files::Files;
use super::lock_file::{LockFile, LockFileTurn};
use super::room::Room;
use crate::source::{LmdbError, SourceError};
use percolator_files::caller::words;
use percolator_files::file_id::FileId;
use percolator_files::shown;

/// The most read transactions that may be open at once, over all processes. LMDB's own default is 126; a
/// server that makes one reader for each connection needs more. Only the process that creates the lock file
/// sets it.
const READERS_MAX: u32 = 1022;

/// The bytes of a lock file for as many: a cache line for each, and two for its head.
const LOCK_BYTES: u64 = (READERS_MAX as u64 + 2) * 64;

/// The call that may leave an environment without a map.
const SET_MAPSIZE: &str = "mdb_env_set_mapsize";

/// Why a database is read without a lock.
#[derive(Debug)]
pub(super) enum NoLock {
    /// The caller wants none.
    NotWanted,
    /// The operating system does not allow the lock file to be created or locked.
    System(lmdb::Error),
    /// The file system is read-only, and liblmdb works without a lock there.
    ReadOnly,
    /// This process has the lock file open already.
    OpenHere(PathBuf),
    /// It is unknown whether it has.
    Unknown(PathBuf, io::Error),
    /// It is a symbolic link, or not a file. The author of the database may have put it there, and liblmdb
    /// would write its table over the link's target.
    Link(PathBuf),
}

impl NoLock {
    /// Logs a warning, if a lock was wanted.
    pub(super) fn warn(&self, path: &Path) {
        if !matches!(self, NoLock::NotWanted) {
            let path = shown::path(path);
            tracing::warn!(%path, "{self}: reading it without a lock; nobody may write to it meanwhile");
        }
    }
}

impl fmt::Display for NoLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoLock::NotWanted => f.write_str("no lock is wanted"),
            NoLock::System(error) => write!(f, "cannot lock the database ({error})"),
            NoLock::ReadOnly => {
                f.write_str("the database is on a read-only file system, where it cannot be locked")
            }
            NoLock::OpenHere(lock) => write!(
                f,
                "this process already has the database's lock file open ({}), and LMDB cannot open it twice",
                shown::path(lock)
            ),
            NoLock::Unknown(lock, error) => write!(
                f,
                "cannot tell whether this process already has the database's lock file open ({}: {error}), \
                 and LMDB cannot open it twice",
                shown::path(lock)
            ),
            NoLock::Link(lock) => {
                write!(f, "the database's lock file ({}) is no file, or a link to one", shown::path(lock))
            }
        }
    }
}

/// The lock file of a database.
pub(super) struct Slots {
    /// Dropped within a turn, because liblmdb unmaps the lock file before it closes it.
    env: ManuallyDrop<Environment>,
    lock: LockFile,
    /// Locked whenever liblmdb uses its map of the data file.
    live: Arc<Mutex<Live>>,
    /// The room of that map, hence dropped after the environment.
    room: Room,
}

/// The read transactions of an environment.
#[derive(Debug, Default)]
struct Live {
    count: usize,
    /// Why liblmdb has lost its map of the data file. No transaction can begin from then on.
    lost: Option<lmdb::Error>,
}

impl Drop for Slots {
    fn drop(&mut self) {
        let mut turn = LockFileTurn::take();
        // SAFETY: nothing else drops it, and nothing uses it afterwards.
        unsafe { ManuallyDrop::drop(&mut self.env) };
        turn.forget(&self.lock);
    }
}

impl Slots {
    /// Opens the lock file, or returns why the database must be read without it.
    ///
    /// `file` identifies the data file, whose meta pages have been validated.
    pub(super) fn open(
        files: &Files,
        file: FileId,
        file_bytes: u64,
    ) -> Result<Result<Self, NoLock>, SourceError> {
        let mut turn = LockFileTurn::take();
        match turn.is_open_here(&files.lock) {
            Ok(false) => {}
            Ok(true) => return Ok(Err(NoLock::OpenHere(files.lock.clone()))),
            Err(error) => return Ok(Err(NoLock::Unknown(files.lock.clone(), error))),
        }
        if files.lock.symlink_metadata().is_ok_and(|found| !found.is_file()) {
            return Ok(Err(NoLock::Link(files.lock.clone())));
        }
        if let Err(code) = turn.reserve(&files.lock, LOCK_BYTES) {
            return Ok(Err(NoLock::System(lmdb::Error::Other(code))));
        }
        let ((env, room), lock) = match turn.opening(&files.lock, || open(files, file_bytes)) {
            Err(lmdb::Error::Other(code)) if is_locking_trouble(code) => {
                return Ok(Err(NoLock::System(lmdb::Error::Other(code))));
            }
            opened => opened.map_err(|error| library_error(&files.given, "mdb_env_open", error))?,
        };
        drop(turn);
        let slots = Slots { env: ManuallyDrop::new(env), lock, live: Arc::default(), room };
        // liblmdb has opened the file by its path a second time.
        if slots.metadata().as_ref().map(FileId::of) != Some(file) {
            return Err(SourceError::Lmdb(LmdbError::Replaced { path: files.given.clone() }));
        }
        Ok(if slots.has_table(&files.given)? { Ok(slots) } else { Err(NoLock::ReadOnly) })
    }

    /// Whether there is a table of readers. On a read-only file system, liblmdb works without one, and does
    /// not report it.
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
        // SAFETY: the descriptor is the environment's, which keeps it open for as long as `self`, and so for
        // this call. The file is not dropped, so it does not close it. A clone would need another handle.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
        file.metadata().ok()
    }

    /// Takes a slot. The result must be dropped before the slots are: see [`Slot::of`].
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
            // liblmdb would read the meta pages at the address where its map was.
            Some(error) => Err(library_error(path, SET_MAPSIZE, error)),
            None => Ok(self.env.begin_ro_txn()),
        }
    }

    /// Makes liblmdb map the file as it is now. This is allowed: no transaction is live, and none begins
    /// while the caller holds the lock of `live`.
    fn map_anew(&self, live: &mut Live) {
        let file_bytes = self.metadata().map_or(0, |metadata| metadata.len());
        // liblmdb makes the map longer if the last commit needs it. If the call fails, liblmdb has no map
        // left.
        live.lost = self.env.set_map_size(self.room.map_bytes(file_bytes)).err();
        tracing::debug!(file_bytes, lost = ?live.lost, "liblmdb's map was replaced, because the file grew");
    }

    /// Clears the slots of processes that were killed.
    fn clear_dead_readers(&self) {
        let mut dead = 0;
        // SAFETY: the environment is open, and the call writes a number to `dead`. It may be made at any
        // time.
        let code = unsafe { lmdb_sys::mdb_reader_check(self.env.env(), &raw mut dead) };
        tracing::debug!(code, dead, "all slots were taken: those of ended processes were cleared");
    }
}

/// A read transaction that is counted as live.
struct Begun<'env> {
    /// Declared first, hence ended before the count goes down.
    transaction: RoTransaction<'env>,
    _counted: Counted,
}

struct Counted(Arc<Mutex<Live>>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.lock().count -= 1;
    }
}

/// A read transaction: while it lives, no writer reuses the pages that it sees.
pub(super) struct Slot {
    _begun: Begun<'static>,
    /// The transaction number of the commit that it sees.
    pub(super) transaction: u64,
}

// SAFETY: `MDB_NOTLS` unties a read transaction from the thread that began it: it may be used and ended on
// any thread, by one at a time. After `of` it is only dropped, by its last holder.
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
        // SAFETY: the transaction is alive, and only this thread has it; its number is only read.
        let id = unsafe { lmdb_sys::mdb_txn_id(begun.transaction.txn()) } as u64;
        // SAFETY: only the lifetime changes, and the caller ensures that the environment outlives the result.
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
    // The map size that the file states is ignored: Caffe wrote 1 TB until 2016, which need not fit.
    builder.set_flags(flags).set_max_readers(READERS_MAX).set_map_size(map_bytes);
    builder.open(&files.open)
}

/// The errors that read-only media, network file systems and limits of files return when a lock file is made
/// or locked.
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
            | libc::EFBIG
    )
}

fn library_error(path: &Path, call: &'static str, error: lmdb::Error) -> SourceError {
    let hint = match error {
        _ if call == SET_MAPSIZE => {
            "; the database has grown beyond the address space: lift the limit (ulimit -v), and open it again"
        }
        lmdb::Error::ReadersFull => words(
            "; too many readers at once: share one, or open it without the lock (Lmdb::open_without_lock)",
            "; too many readers at once: end those that are done",
            "; too many readers at once: share one feed, or close those that are done",
        ),
        lmdb::Error::MapResized => {
            "; another process let the database grow, and the address space has no room for a longer map \
             while cursors are open: close the open cursors, or lift the limit (ulimit -v)"
        }
        // The data file was validated before, so the library means the lock file.
        lmdb::Error::VersionMismatch | lmdb::Error::Invalid => {
            "; another program has its lock file open in the format of another LMDB: end that program, \
             or open without the lock"
        }
        _ => "",
    };
    SourceError::Lmdb(LmdbError::Library {
        path: PathBuf::from(path),
        call,
        message: error.to_string(),
        hint,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_file_that_cannot_be_locked_does_not_prevent_reading() {
        for code in [libc::EACCES, libc::EROFS, libc::ENOSYS, libc::EAGAIN, libc::ENOLCK] {
            assert!(is_locking_trouble(code), "{code}");
        }
        assert!(!is_locking_trouble(libc::ENOMEM));
    }
}
