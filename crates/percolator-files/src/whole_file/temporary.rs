//! Temporary files and folders: their names, their locks, and what killed writers leave.
//!
//! A temporary file is locked (`flock`) while it is being written, and its name says which boot of which
//! machine made it. So is a folder while it is being filled. The next writers into the same folder remove
//! those that are not locked: their writers were killed. Finding them reads each entry of the folder, so a
//! process searches before its first file there, and then once for many files. A lock is reliably visible
//! only within one running kernel, so files made under another kernel are left alone for a day, and folders
//! for ever: the time of a folder says nothing about the files in it.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

/// The end of a temporary file's name: `NAME.BOOT-PROCESS-NANOSECONDS-TRY.percolator-partial`. The ending is
/// reserved: a leftover file or folder with such a name is removed, with everything in it.
const ENDING: &str = ".percolator-partial";

/// Creates a locked file that no other writer has.
pub(super) fn create(folder: &Path, name: &OsStr) -> io::Result<(PathBuf, File)> {
    create_with(folder, name, |path| File::options().read(true).write(true).create_new(true).open(path))
}

/// A folder that is filled under a temporary name, beside its final path or in the folder at that path.
/// Dropping it removes it, unless it was renamed.
#[derive(Debug)]
pub struct TemporaryFolder {
    path: PathBuf,
    /// Locked as long as the folder is being filled.
    _lock: File,
}

impl TemporaryFolder {
    /// Makes one in a folder, named after its final name, and removes what killed processes left there. The
    /// name may be empty.
    ///
    /// # Errors
    ///
    /// [`io::Error`] if it cannot be made.
    pub fn create(folder: &Path, name: &OsStr) -> io::Result<Self> {
        sweep_in_turn(folder);
        let made = create_with(folder, name, |path| {
            fs::create_dir(path)?;
            File::open(path).map_err(|error| match error.kind() {
                // A sweep was faster.
                io::ErrorKind::NotFound => io::ErrorKind::AlreadyExists.into(),
                _ => error,
            })
        });
        made.map(|(path, lock)| TemporaryFolder { path, _lock: lock })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // After it is renamed, there is nothing to remove.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Makes a file or a folder that no other writer has, and locks it. Other threads create theirs at the same
/// time. So may processes on other machines or in other containers with the same process number, and one that
/// had this number may have been killed while it wrote.
fn create_with(
    folder: &Path,
    name: &OsStr,
    make: impl Fn(&Path) -> io::Result<File>,
) -> io::Result<(PathBuf, File)> {
    const TRIES: usize = 100;
    // Keeps clear of files left by killed processes with the same number.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let mut tried = 0..TRIES;
    loop {
        let mut temporary = stem(name);
        let number = tried.next().unwrap_or(TRIES);
        temporary.push(format!(".{}-{:x}-{now:x}-{number:x}{ENDING}", boot(), std::process::id()));
        let path = folder.join(temporary);
        match make(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !tried.is_empty() => {}
            Err(error) => return Err(error),
            // A sweep may have seen it before it was locked, and removed it. A folder is for the sweep to
            // remove.
            Ok(file) if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) => {
                let _ = fs::remove_file(&path);
            }
            Ok(_) if !path.try_exists()? => {}
            Ok(file) => return Ok((path, file)),
        }
    }
}

/// As much of a file's name as leaves room for the rest of a temporary name.
fn stem(name: &OsStr) -> OsString {
    const STEM_BYTES_MAX: usize = 150;

    OsStr::from_bytes(&name.as_bytes()[..name.len().min(STEM_BYTES_MAX)]).to_owned()
}

/// Identifies this boot of this machine: eight hexadecimal digits, or `0` if that is not known.
fn boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        id.get(..8).map_or_else(|| "0".to_owned(), str::to_owned)
    })
}

/// Sweeps a folder before this process's first file there, and after as many files as a sixteenth of the
/// folder's entries: so thousands of files take thousands of reads of an entry, not millions.
pub(super) fn sweep_in_turn(folder: &Path) {
    /// How many more files can begin in a folder before it is swept again.
    static LEFT: LazyLock<Mutex<HashMap<PathBuf, usize>>> = LazyLock::new(Mutex::default);
    const ENTRIES_EACH: usize = 16;
    /// A process that writes into more folders forgets them all at times.
    const FOLDERS_MAX: usize = 1024;

    if let Some(left @ 1..) = LEFT.lock().get_mut(folder) {
        *left -= 1;
        return;
    }
    let entries = sweep(folder);
    let mut left = LEFT.lock();
    if left.len() >= FOLDERS_MAX {
        left.clear();
    }
    left.insert(folder.to_owned(), entries / ENTRIES_EACH);
}

/// Removes what killed processes left in a folder, whatever they wrote. What cannot be removed stays. Returns
/// the number of the folder's entries.
pub(super) fn sweep(folder: &Path) -> usize {
    /// A larger folder is not scanned to its end.
    const ENTRIES_MAX: usize = 1 << 16;

    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let mut found = 0;
    for entry in entries.take(ENTRIES_MAX).flatten() {
        found += 1;
        let is_of_this_boot = match maker_of(&entry.file_name()) {
            None => continue,
            Some(maker) => maker == boot() && maker != "0",
        };
        // It stays locked until it is gone: a writer that has only just created it, and finds it locked,
        // makes another.
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if let Some(_locked) = folder_left_behind(&path, is_of_this_boot) {
                let _ = fs::remove_dir_all(&path);
            }
        } else if let Some(_locked) = left_behind(&path, is_of_this_boot) {
            let _ = fs::remove_file(&path);
        }
    }
    found
}

/// The name that a temporary file or folder is to have, if the name is one's: the beginning of a long one.
#[must_use]
pub fn temporary_of(name: &OsStr) -> Option<&OsStr> {
    parts_of(name).map(|(stem, _)| stem)
}

/// The boot that made a temporary file, if the name is a temporary file's.
fn maker_of(name: &OsStr) -> Option<&str> {
    parts_of(name).map(|(_, boot)| boot)
}

/// What a temporary file's name begins with, and the boot that made the file.
fn parts_of(name: &OsStr) -> Option<(&OsStr, &str)> {
    let rest = name.as_bytes().strip_suffix(ENDING.as_bytes())?;
    let dot = rest.iter().rposition(|&byte| byte == b'.')?;
    let fields: Vec<&str> = std::str::from_utf8(rest.get(dot + 1..)?).ok()?.split('-').collect();
    let is_hexadecimal =
        |field: &&str| !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_boot = |field: &str| field == "0" || field.len() == 8;
    let is_ours = fields.len() == 4 && fields.iter().all(is_hexadecimal) && is_boot(fields[0]);
    is_ours.then(|| (OsStr::from_bytes(&rest[..dot]), fields[0]))
}

/// Opens a temporary file that is no longer being written, locked if possible.
fn left_behind(path: &Path, is_of_this_boot: bool) -> Option<File> {
    /// Longer than any writer pauses.
    const OLD: Duration = Duration::from_secs(24 * 60 * 60);

    // A FIFO of that name does not block, and a link is not followed.
    let flags = libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let file = File::options().read(true).write(true).custom_flags(flags).open(path).ok()?;
    let metadata = file.metadata().ok().filter(Metadata::is_file)?;
    let age = metadata.modified().ok().and_then(|modified| modified.elapsed().ok()).unwrap_or_default();
    let is_left = match file.try_lock() {
        Ok(()) => is_of_this_boot || age > OLD,
        Err(TryLockError::WouldBlock) => false,
        // If the file system has no locks, its writer could not lock the file either.
        Err(TryLockError::Error(_)) => age > OLD,
    };
    is_left.then_some(file)
}

/// Opens a temporary folder that is no longer being filled, locked.
fn folder_left_behind(path: &Path, is_of_this_boot: bool) -> Option<File> {
    let flags = libc::O_NOFOLLOW | libc::O_DIRECTORY;
    let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
    (is_of_this_boot && file.try_lock().is_ok()).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::super::{WholeFile, check, write, write_unsynced};
    use super::*;

    /// A file that was begun and is not locked: its writer was killed.
    fn left(folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, "half").unwrap();
        path
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the system's files")]
    fn what_killed_writers_left_is_swept_and_what_others_write_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let path = folder.join("file");
        let living = WholeFile::create(&path).unwrap();
        let dead = ["file", "another file"]
            .map(|name| left(folder, &format!("{name}.{}-7f-1a2b-0.percolator-partial", boot())));
        let others = [
            // From another machine, or from this one before it was restarted.
            "file.ffffffff-7f-1a2b-0.percolator-partial".to_owned(),
            // Not names of ours.
            "backup.2026-11-22-01.percolator-partial".to_owned(),
            "file.percolator-partial".to_owned(),
            format!("file.{}-7f-1a2b.percolator-partial", boot()),
            format!("file.{}-7f-1a2b-0.percolator-partial.gz", boot()),
            format!("{}-7f-1a2b-0.percolator-partial", boot()),
        ]
        .map(|name| left(folder, &name));
        write(&path, &[b"whole"]).unwrap();
        assert!(!dead.iter().any(|dead| dead.exists()));
        assert!(others.iter().all(|other| other.exists()));
        assert!(living.temporary.as_ref().is_some_and(|living| living.exists()));
        // Files that another machine has not touched for long were left behind.
        let day_before_yesterday = SystemTime::now() - Duration::from_secs(48 * 60 * 60);
        File::open(&others[0]).unwrap().set_modified(day_before_yesterday).unwrap();
        File::open(&others[1]).unwrap().set_modified(day_before_yesterday).unwrap();
        living.finish().unwrap();
        check(&path).unwrap();
        assert!(!others[0].exists() && others[1..].iter().all(|other| other.exists()));
        assert_eq!(fs::read(&path).unwrap(), b"", "the last one that is finished stays");
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the system's files")]
    fn folders_of_killed_processes_are_swept_and_those_that_others_fill_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let fill = |path: &Path| {
            fs::create_dir_all(path.join("deep")).unwrap();
            fs::write(path.join("deep/file"), "half").unwrap();
        };
        let living = TemporaryFolder::create(folder, OsStr::new("arrays")).unwrap();
        let named = |name: &str, boot: &str| {
            let path = folder.join(format!("{name}.{boot}-7f-1a2b-0.percolator-partial"));
            assert_eq!(temporary_of(path.file_name().unwrap()), Some(OsStr::new(name)));
            fill(&path);
            path
        };
        let dead = [named("arrays", boot()), named("", boot())];
        let other = named("arrays", "ffffffff");
        fill(living.path());
        sweep(folder);
        assert_eq!(dead.each_ref().map(|dead| dead.exists()), [false, false]);
        assert!(living.path().join("deep/file").exists() && other.exists());
        assert_eq!(temporary_of(living.path().file_name().unwrap()), Some(OsStr::new("arrays")));
        assert_eq!(temporary_of(OsStr::new("arrays.percolator-partial")), None);
        // One that has got its name stays, and any other is removed.
        let done = folder.join("done");
        fs::rename(living.path(), &done).unwrap();
        drop(living);
        drop(TemporaryFolder::create(folder, OsStr::new("")).unwrap());
        assert!(done.join("deep/file").exists());
        assert_eq!(fs::read_dir(folder).unwrap().count(), 2);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the system's files")]
    fn a_large_folder_is_swept_once_for_many_files() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        (0..320).for_each(|number| fs::write(folder.join(number.to_string()), "").unwrap());
        let dead = || left(folder, &format!("file.{}-7f-1a2b-0.percolator-partial", boot()));
        let path = folder.join("file");
        let first = dead();
        write_unsynced(&path, &[b"first"]).unwrap();
        assert!(!first.exists());
        let next = dead();
        for number in 0..20 {
            write(&path, &[b"next"]).unwrap();
            assert!(next.exists(), "{number}: the folder was swept for the first file");
        }
        write(&path, &[b"last"]).unwrap();
        assert!(!next.exists());
        assert_eq!(fs::read(&path).unwrap(), b"last");
    }
}
