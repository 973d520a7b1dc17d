//! Lets one process at a time name files of a folder that belong together.
//!
//! No system renames several files at once. Two processes that name the files of one checkpoint at the same
//! time would leave some of one and some of the other. So the process that has the folder's lock (`flock`)
//! names all of its files.
//!
//! A turn keeps files from mixing, and nothing else depends on it. So work goes on without a turn if the
//! folder may not be read, if its file system, such as NFS, cannot lock it, if another program keeps it
//! locked (`flock DIR COMMAND` does so as long as the command runs), or if it cannot be opened this time.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use crate::{file_lock, shown};

/// Longer than it takes to name files.
const PATIENCE: Duration = Duration::from_secs(60);

/// A turn, which ends when this is dropped.
#[derive(Debug)]
#[must_use = "the turn ends when this is dropped"]
pub struct FolderTurn(
    /// The folder, locked; `None` if there are no turns.
    Option<File>,
);

impl FolderTurn {
    /// Waits until no other process has a turn at this folder, or for a minute. A thread that has one must
    /// not take another.
    pub fn take(folder: &Path) -> Self {
        Self::take_within(folder, PATIENCE)
    }

    fn take_within(folder: &Path, patience: Duration) -> Self {
        let opened = match File::open(folder) {
            Ok(opened) => opened,
            Err(error) => {
                let (folder, what) = (shown::path(folder), "the folder cannot be opened");
                match has_no_turns(&error) {
                    true => tracing::debug!(%folder, %error, "{what}: files are named without a turn"),
                    false => tracing::warn!(%folder, %error, "{what}: files are named without a turn"),
                }
                return FolderTurn(None);
            }
        };
        let locked = file_lock::lock(&opened, patience, || ());
        let folder = shown::path(folder);
        match &locked {
            Ok(true) => {}
            Ok(false) => tracing::warn!(
                %folder,
                "another process has kept the folder locked for {patience:?}: files are named without a turn"
            ),
            Err(error) => {
                tracing::debug!(%folder, %error, "a folder cannot be locked: files are named without a turn");
            }
        }
        FolderTurn(locked.is_ok_and(|is_locked| is_locked).then_some(opened))
    }
}

/// Whether a folder that cannot be opened never has turns. Any other error, such as one of too few file
/// handles, may pass, and two writers may then mix their files where they otherwise would not.
fn has_no_turns(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::PermissionDenied)
}

impl Drop for FolderTurn {
    fn drop(&mut self) {
        // A child that was forked meanwhile has the file open, too.
        if let Some(folder) = &self.0 {
            let _ = folder.unlock();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "needs the system's locks")]
    fn one_has_a_turn_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let turn = FolderTurn::take(folder.path());
                        assert!(turn.0.is_some());
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(most.into_inner(), 1);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the system's locks")]
    fn a_turn_that_does_not_end_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let turn = FolderTurn::take(folder.path());
        assert!(FolderTurn::take_within(folder.path(), Duration::ZERO).0.is_none());
        drop(turn);
        assert!(FolderTurn::take_within(folder.path(), Duration::ZERO).0.is_some());
        assert!(FolderTurn::take(&folder.path().join("none")).0.is_none());
    }

    #[test]
    fn what_may_pass_is_said_aloud() {
        let error = std::io::Error::from_raw_os_error;
        for code in [libc::ENOENT, libc::ENOTDIR, libc::EACCES, libc::EPERM] {
            assert!(has_no_turns(&error(code)), "{code}");
        }
        for code in [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::EIO, libc::ESTALE] {
            assert!(!has_no_turns(&error(code)), "{code}");
        }
    }
}
