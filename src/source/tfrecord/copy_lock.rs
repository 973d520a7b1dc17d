//! The lock of an unpacked copy: of the processes that need a copy at the same time, one makes it.
//!
//! The lock (`flock`) is on a file of its own beside the copy, `X.percolator-unpacked.percolator-lock`, which
//! its holder removes. The kernel releases the lock of a process that is killed. Its file stays then; it is
//! empty, and the next holder removes it.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::source::file_id::FileId;

const ENDING: &str = ".percolator-lock";

/// Held while a copy is made.
#[derive(Debug)]
pub(super) struct CopyLock {
    path: PathBuf,
    /// Locked as long as it is open.
    _file: File,
}

impl CopyLock {
    /// Takes the lock, after waiting for the process that has it. Returns `None` if no file can be locked
    /// there: it only saves work, and whoever makes a copy does not rely on it.
    pub(super) fn take(copy: &Path) -> Option<Self> {
        let mut path = OsString::from(copy);
        path.push(ENDING);
        let path = PathBuf::from(path);
        match Self::wait(&path) {
            Ok(file) => Some(CopyLock { path, _file: file }),
            Err(error) => {
                tracing::debug!(lock = %path.display(), %error, "an unpacked copy is made without a lock");
                None
            }
        }
    }

    fn wait(path: &Path) -> io::Result<File> {
        loop {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => {
                    let lock = path.display();
                    tracing::info!(%lock, "another process unpacks this file: waiting for it");
                    wait_for(&file)?;
                }
            }
            // The last holder removed the file, and perhaps another process has made it again since.
            let ours = FileId::of(&file.metadata()?);
            if fs::symlink_metadata(path).is_ok_and(|found| FileId::of(&found) == ours) {
                return Ok(file);
            }
        }
    }
}

/// Waits until a file is unlocked, and locks it.
fn wait_for(file: &File) -> io::Result<()> {
    loop {
        match file.lock() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            locked => return locked,
        }
    }
}

impl Drop for CopyLock {
    fn drop(&mut self) {
        // Before the lock is released, so that nobody else has the file by then.
        let _ = fs::remove_file(&self.path);
    }
}
