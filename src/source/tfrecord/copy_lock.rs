//! The lock of an unpacked copy: of the processes that need a copy at the same time, one makes it.
//!
//! The lock (`flock`) is on a file of its own beside the copy, `X.percolator-unpacked.percolator-lock`, which
//! its holder removes. The kernel releases the lock of a process that is killed. Its file stays then; it is
//! empty, and the next holder removes it. Whoever waits for a holder whose copy no longer grows gives up
//! after half an hour.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use percolator_files::file_id::FileId;
use percolator_files::shown;
use percolator_files::{file_lock, whole_file};

const ENDING: &str = ".percolator-lock";

/// How long a holder is waited for while its copy does not grow: longer than it takes to sync a large one.
const PATIENCE: Duration = Duration::from_secs(30 * 60);

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
        match Self::wait(&path, copy, PATIENCE) {
            Ok(file) => Some(CopyLock { path, _file: file }),
            Err(error) => {
                tracing::info!(lock = %shown::path(&path), %error, "an unpacked copy is made without a lock");
                None
            }
        }
    }

    fn wait(path: &Path, copy: &Path, patience: Duration) -> io::Result<File> {
        loop {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(false);
            let file = options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path)?;
            if let Err(TryLockError::WouldBlock) = file.try_lock() {
                let lock = shown::path(path);
                tracing::info!(%lock, "another process unpacks this file: waiting for it");
            }
            if !file_lock::lock(&file, patience, || whole_file::unfinished_bytes(copy))? {
                let message = format!("its holder has made no progress for {patience:?}");
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            // The last holder removed the file, and perhaps another process has made it again since.
            let ours = FileId::of(&file.metadata()?);
            if fs::symlink_metadata(path).is_ok_and(|found| FileId::of(&found) == ours) {
                return Ok(file);
            }
        }
    }
}

impl Drop for CopyLock {
    fn drop(&mut self) {
        // Before the lock is released, so that nobody else has the file by then.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;
    use percolator_files::whole_file::WholeFile;

    #[test]
    #[cfg_attr(miri, ignore = "locks files")]
    fn a_holder_that_does_not_go_on_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("file.percolator-unpacked");
        let held = CopyLock::take(&copy).unwrap();
        let mut unfinished = WholeFile::create(&copy).unwrap();
        unfinished.write_all(b"some").unwrap();
        assert_eq!(whole_file::unfinished_bytes(&copy), 4);
        let error = CopyLock::wait(&held.path, &copy, Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let path = held.path.clone();
        drop(held);
        CopyLock::wait(&path, &copy, Duration::ZERO).unwrap();
    }
}
