//! The folder in which outputs are being written, and who owns it.

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use percolator_files::whole_file;
use rustix::fs::OFlags;

use super::StoreError;

/// The file that is locked by the process that writes.
pub(super) const LOCK: &str = "lock";

/// The file that says how far the outputs are.
pub(crate) const STATE: &str = "state.json";

/// The file that says that all outputs are whole.
pub(super) const WHOLE: &str = "whole";

/// The files beside the stores.
pub(crate) const SKIPPED: &str = "skipped.txt";
pub(crate) const LABELS: &str = "labels.txt";

/// The name of a store.
pub(super) fn store_name(number: usize) -> String {
    format!("store-{number:05}")
}

pub(super) fn is_store(name: &str) -> bool {
    let number = name.strip_prefix("store-").unwrap_or_default();
    number.len() >= 5 && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether a run may have made a file or a folder of this name.
fn is_runs(name: &OsStr) -> bool {
    let text = name.to_string_lossy();
    [LOCK, STATE, WHOLE, SKIPPED, LABELS].contains(&&*text)
        || is_store(&text)
        || whole_file::temporary_of(name).is_some()
        // What NFS makes of a file that is removed while it is open.
        || text.starts_with(".nfs")
}

/// Checks that runs have made what is in a folder: it is written to, and removed.
fn check(partial: &Path) -> Result<(), StoreError> {
    let unread = |error| StoreError::io(partial, "look for what an earlier run left")(error);
    let refused = |found| Err(StoreError::NotPartial { path: partial.to_owned(), found });
    let entries = match fs::symlink_metadata(partial) {
        Ok(found) if !found.is_dir() => return refused("it is no folder".to_owned()),
        found => found.and_then(|_| fs::read_dir(partial)),
    };
    let entries = match entries {
        // Its process has just removed it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(unread)?,
    };
    for entry in entries {
        let entry = entry.map_err(unread)?;
        let name = entry.file_name();
        if !is_runs(&name) {
            return refused(format!("it is a folder with {name:?}, which no run makes"));
        }
        match entry.file_type() {
            Ok(kind) if kind.is_file() || kind.is_dir() => {}
            Ok(_) => return refused(format!("its {name:?} is neither a regular file nor a folder")),
            // Its process has just given it another name.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(unread(error)),
        }
    }
    Ok(())
}

/// Locks a folder, which is created if it is not there; and whether it was there.
pub(super) fn lock(partial: &Path) -> Result<(File, bool), StoreError> {
    let path = partial.join(LOCK);
    // What takes its place meanwhile is neither followed nor waited for.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = File::options();
    options.create(true).truncate(false).write(true).custom_flags(flags);
    loop {
        let was_there = match fs::create_dir(partial) {
            Ok(()) => false,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => true,
            Err(error) => return Err(StoreError::io(partial, "create the folder for the output")(error)),
        };
        if was_there {
            check(partial)?;
        }
        let file = match options.open(&path) {
            Ok(file) => file,
            // Its process has just removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !partial.exists() => continue,
            Err(error) => {
                if !was_there {
                    let _ = fs::remove_dir(partial);
                }
                return Err(StoreError::io(&path, "create the file")(error));
            }
        };
        match file.try_lock() {
            // The file system may have no locks.
            Ok(()) | Err(TryLockError::Error(_)) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::InUse { path: partial.to_owned() }),
        }
        // The file's process may have removed it between the opening and the lock.
        let number = |found: fs::Metadata| (found.dev(), found.ino());
        if let (Ok(locked), Ok(there)) = (file.metadata(), fs::symlink_metadata(&path))
            && number(locked) == number(there)
        {
            return Ok((file, was_there));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::super::place::{Earlier, Output, Place};
    use super::super::{Existing, StoreError};
    use super::*;

    const RUNS: [(Existing, Earlier); 3] = [
        (Existing::Refuse, Earlier::Refuse),
        (Existing::Replace, Earlier::Remove),
        (Existing::Replace, Earlier::Resume),
    ];

    /// Whether each run refuses the partial folder of the output `name` in a folder.
    fn is_refused(folder: &Path) -> bool {
        let name = folder.join("name");
        RUNS.into_iter().all(|(existing, earlier)| {
            let taken = Place::take(&name, vec![Output::store(0, name.clone())], existing, earlier);
            matches!(taken, Err(StoreError::NotPartial { .. }))
        })
    }

    /// A folder, and the path of the partial folder of its output `name`.
    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let partial = folder.path().join("name.percolator-converting");
        (folder, partial)
    }

    #[test]
    fn what_is_no_folder_of_a_run_is_left_as_it_is() {
        let (folder, partial) = folder();
        let theirs = folder.path().join("thesis");
        let nested = theirs.join("store-00000");
        fs::create_dir_all(&nested).unwrap();
        fs::write(nested.join("text"), "a text that took years to write").unwrap();
        symlink(&theirs, &partial).unwrap();
        assert!(is_refused(folder.path()), "a link to a folder of the same names");
        assert_eq!(fs::read_dir(&theirs).unwrap().count(), 1);
        assert!(nested.join("text").exists());
        fs::remove_file(&partial).unwrap();
        symlink(folder.path().join("nowhere"), &partial).unwrap();
        assert!(is_refused(folder.path()), "a link to nowhere");
        fs::remove_file(&partial).unwrap();
        fs::write(&partial, "a file").unwrap();
        assert!(is_refused(folder.path()), "a file");
        fs::remove_file(&partial).unwrap();
        fs::rename(&theirs, &partial).unwrap();
        for name in ["text", "store-", "store-0000", "store-0000x", "Lock", "state.json~"] {
            fs::write(partial.join(name), "theirs").unwrap();
            assert!(is_refused(folder.path()), "{name}");
            assert!(!partial.join("lock").exists() && partial.join("store-00000/text").exists());
            fs::remove_file(partial.join(name)).unwrap();
        }
    }

    #[test]
    fn what_a_run_leaves_is_its_own() {
        for (existing, earlier) in RUNS {
            let (folder, partial) = folder();
            let name = folder.path().join("name");
            fs::create_dir_all(partial.join("store-00000")).unwrap();
            for name in [
                "lock",
                "whole",
                "store-123456",
                "skipped.txt",
                "labels.txt",
                "state.json.0-7f-1a2b-0.percolator-partial",
                ".nfs000000000000001",
            ] {
                fs::write(partial.join(name), "[]").unwrap();
            }
            let outputs = vec![Output::store(0, name.clone())];
            let place = Place::take(&name, outputs, existing, earlier).unwrap();
            let left = fs::read_dir(place.folder()).unwrap().count();
            assert_eq!(left, if earlier == Earlier::Resume { 8 } else { 1 });
        }
    }

    #[test]
    fn a_link_or_a_fifo_in_the_place_of_a_runs_file_is_neither_followed_nor_waited_for() {
        let (folder, partial) = folder();
        fs::create_dir(&partial).unwrap();
        for name in ["lock", "state.json", "store-00000", "skipped.txt"] {
            symlink(folder.path().join("made"), partial.join(name)).unwrap();
            assert!(is_refused(folder.path()), "{name}");
            assert!(!folder.path().join("made").exists(), "{name}");
            fs::remove_file(partial.join(name)).unwrap();
        }
        let fifo = partial.join("lock");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        assert!(is_refused(folder.path()));
    }
}
