//! Files that are either complete or absent. Shared with the command; not part of the interface.
//!
//! A file is written under a temporary name beside its final path, synced, and then renamed. Symbolic links
//! are followed: their target is replaced, and they stay. Anything but a regular file is never replaced.
//!
//! A temporary file is locked (`flock`) while it is being written, and its name says which boot of which
//! machine made it. The next writers into the same folder remove those that nobody has locked: their writers
//! were killed. Finding them takes a look at each entry of the folder, so a process looks before its first
//! file there, and then once for many files. A lock is reliably visible only within one running kernel, so
//! files made under another kernel are left alone for a day.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, FileType, Metadata, TryLockError};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::base::input_file;

/// What happens to a file that is already at an output's path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and finding it is an error, even if it appears while the output is written.
    #[default]
    Refuse,
    /// It is replaced once the output is whole, if it is of the same kind. Anything else is refused: a
    /// mistyped path must not cost a folder.
    Replace,
}

impl Existing {
    /// What a command does whose user has given `--force`, or has not.
    #[must_use]
    pub fn replaced_if(is_forced: bool) -> Self {
        if is_forced { Existing::Replace } else { Existing::Refuse }
    }

    /// Checks that nothing is at a path that is to stay, be it a link that leads nowhere. For a look before
    /// the work: when the output gets its name, something may have come to the path.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] if something is there; [`io::Error`] if that cannot be told.
    pub fn check(self, path: &Path) -> io::Result<()> {
        match self {
            Existing::Refuse if input_file::is_there(path)? => Err(io::ErrorKind::AlreadyExists.into()),
            _ => Ok(()),
        }
    }
}

/// Writes a file that consists of these pieces. The file gets its name only once it is complete and on the
/// disk, and what was there before stays until then. Several threads or processes may write it at once; the
/// last one's file stays.
///
/// # Errors
///
/// [`io::Error`] if it cannot be written, or if something other than a regular file is there.
pub fn write(path: &Path, pieces: &[&[u8]]) -> io::Result<()> {
    write_over(path, pieces, Existing::Replace)
}

/// The same, if what is there may be replaced.
///
/// # Errors
///
/// As [`write`], and [`io::ErrorKind::AlreadyExists`] if a file is there that is to stay.
pub fn write_over(path: &Path, pieces: &[&[u8]], existing: Existing) -> io::Result<()> {
    let mut file = WholeFile::create(path)?;
    pieces.iter().try_for_each(|piece| file.write_all(piece))?;
    file.finish_over(existing)
}

/// The same as [`write`] without waiting for the disk, for a file that is verified whenever it is read, and
/// that can be made again: if the machine loses its power, the file may be cut or empty.
///
/// # Errors
///
/// As [`write`].
pub fn write_unsynced(path: &Path, pieces: &[&[u8]]) -> io::Result<()> {
    let mut file = WholeFile::create(path)?;
    pieces.iter().try_for_each(|piece| file.write_all(piece))?;
    file.keep_permissions();
    file.rename()
}

/// Checks that a file can be written to this path, before there is anything to write.
///
/// # Errors
///
/// [`io::Error`] if it cannot.
pub fn check(path: &Path) -> io::Result<()> {
    WholeFile::create(path).map(drop)
}

/// Whether two paths lead to one place. No file need exist there.
///
/// # Errors
///
/// [`io::Error`] if a file could not be written to one of them.
pub fn is_same_place(one: &Path, other: &Path) -> io::Result<bool> {
    let [one, other] = [one, other].map(|path| {
        let place = place_of(path)?;
        Ok::<_, io::Error>((fs::canonicalize(folder_of(&place))?, place.file_name().map(OsStr::to_owned)))
    });
    Ok(one? == other?)
}

/// Removes the file at a path, or the target of a symbolic link there. A missing file is not an error.
///
/// # Errors
///
/// [`io::Error`] if it cannot be removed, or is not a regular file.
pub fn remove(path: &Path) -> io::Result<()> {
    match place_of(path).and_then(fs::remove_file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Renames something to a path where nothing is. Where the system or the file system cannot do so at once, it
/// is looked at first: what comes to the path at that moment is replaced.
///
/// # Errors
///
/// [`io::ErrorKind::AlreadyExists`] if something is there; [`io::Error`] if it cannot be renamed.
pub fn rename_to_free(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {
            Existing::Refuse.check(to)?;
            fs::rename(from, to)
        }
        renamed => Ok(renamed?),
    }
}

/// A file that is being written under a temporary name. Dropping it before it is [finished](Self::finish)
/// removes it.
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    /// `None` once it has its final name.
    temporary: Option<PathBuf>,
    /// Its final path.
    place: PathBuf,
}

impl WholeFile {
    /// Starts a file that will have this path, and removes temporary files left behind by killed processes.
    ///
    /// # Errors
    ///
    /// [`io::Error`] if no file can be there, or if something other than a regular file is there.
    pub fn create(path: &Path) -> io::Result<Self> {
        let place = place_of(path)?;
        let Some(name) = place.file_name() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"));
        };
        sweep_in_turn(folder_of(&place));
        let (temporary, file) = create_temporary(folder_of(&place), name)?;
        Ok(WholeFile { file, temporary: Some(temporary), place })
    }

    /// The file that is being written.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Syncs the file to the disk and gives it its final name.
    ///
    /// # Errors
    ///
    /// [`io::Error`] if it cannot be synced, or renamed.
    pub fn finish(mut self) -> io::Result<()> {
        self.keep_permissions();
        self.file.sync_all()?;
        self.rename()?;
        self.sync_name();
        Ok(())
    }

    /// The new file keeps the old one's permissions. A file system without permissions refuses, which is
    /// fine.
    fn keep_permissions(&self) {
        if let Ok(before) = fs::metadata(&self.place) {
            let _ = self.file.set_permissions(before.permissions());
        }
    }

    fn rename(&mut self) -> io::Result<()> {
        if let Some(temporary) = &self.temporary {
            fs::rename(temporary, &self.place)?;
        }
        self.temporary = None;
        Ok(())
    }

    /// Syncs the file to the disk and gives it its final name, unless a file has that name already.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AlreadyExists`] if there is one, which stays. [`io::Error`] if the file cannot be
    /// synced, or named.
    pub fn finish_new(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        let Some(temporary) = &self.temporary else { return Ok(()) };
        match fs::hard_link(temporary, &self.place) {
            // The temporary name is removed with `self`.
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
            // The file system has no hard links.
            Err(_) => {
                rename_to_free(temporary, &self.place)?;
                self.temporary = None;
            }
        }
        self.sync_name();
        Ok(())
    }

    /// [Finishes](Self::finish) the file, or [does so](Self::finish_new) unless another has its name.
    ///
    /// # Errors
    ///
    /// As these two.
    pub fn finish_over(self, existing: Existing) -> io::Result<()> {
        match existing {
            Existing::Refuse => self.finish_new(),
            Existing::Replace => self.finish(),
        }
    }

    /// Syncs the folder. A failure is not worth an error: at worst the previous file is still there.
    fn sync_name(&self) {
        drop(File::open(folder_of(&self.place)).and_then(|folder| folder.sync_all()));
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _ = fs::remove_file(temporary);
        }
    }
}

/// The folder that contains a path.
pub(crate) fn folder_of(path: &Path) -> &Path {
    // The parent of a bare name is the empty path, which cannot be opened.
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Where a file with this path is, or would be, once all symbolic links are followed. Fails if something
/// other than a regular file is there.
pub(crate) fn place_of(path: &Path) -> io::Result<PathBuf> {
    /// The most that Linux follows.
    const LINKS_MAX: usize = 40;

    let refused = |message: String| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    let other = |found: &Metadata| {
        let kind = kind_of(found.file_type());
        refused(format!("{kind} is there, and only a regular file is replaced: give another path"))
    };
    // The kernel also follows links whose target has no path: /dev/stdout may be a pipe.
    let is_there = match fs::metadata(path) {
        Ok(found) if found.is_file() => true,
        Ok(found) => return other(&found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(error),
    };
    let mut place = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::symlink_metadata(&place) {
            Ok(found) if found.is_symlink() => place = folder_of(&place).join(fs::read_link(&place)?),
            Ok(found) if found.is_file() => return Ok(place),
            Ok(found) => return other(&found),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) if is_there => break,
            Err(_) => return Ok(place),
        }
    }
    refused("its symbolic links do not lead to a path in a folder: give another path".to_owned())
}

/// The kind of a file that is not regular, with its article.
pub(crate) fn kind_of(kind: FileType) -> &'static str {
    match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () if kind.is_char_device() => "a character device",
        () if kind.is_block_device() => "a block device",
        () => "something other than a file",
    }
}

/// The end of a temporary file's name: `NAME.BOOT-PROCESS-NANOSECONDS-TRY.percolator-partial`. The ending is
/// reserved: a file with such a name that is left behind is removed.
const ENDING: &str = ".percolator-partial";

/// Creates a locked file that nobody else has. Other threads create theirs at the same time. So may processes
/// on other machines or in other containers with the same process number, and one that had this number may
/// have been killed while it wrote.
fn create_temporary(folder: &Path, name: &OsStr) -> io::Result<(PathBuf, File)> {
    const TRIES: usize = 100;
    // Keeps clear of files left by killed processes with the same number.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let mut tried = 0..TRIES;
    loop {
        let mut temporary = stem(name);
        let number = tried.next().unwrap_or(TRIES);
        temporary.push(format!(".{}-{:x}-{now:x}-{number:x}{ENDING}", boot(), std::process::id()));
        let path = folder.join(temporary);
        match File::options().read(true).write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !tried.is_empty() => {}
            Err(error) => return Err(error),
            // A sweep may have seen the file before it was locked, and removed it.
            Ok(file) if matches!(file.try_lock(), Err(TryLockError::WouldBlock)) => {
                let _ = fs::remove_file(&path);
            }
            Ok(file) if file.metadata()?.nlink() == 0 => {}
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
/// folder's entries: so thousands of files take thousands of looks at an entry, and not millions.
fn sweep_in_turn(folder: &Path) {
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

/// Removes what killed processes left in a folder, whatever file they wrote. What cannot be removed stays.
/// Returns the number of the folder's entries.
fn sweep(folder: &Path) -> usize {
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
        if let Some(_locked) = left_behind(&entry.path(), is_of_this_boot) {
            let _ = fs::remove_file(entry.path());
        }
    }
    found
}

/// The bytes of the unfinished files that are to have this path, as far as they can be seen: they grow while
/// somebody writes one.
pub(crate) fn unfinished_bytes(path: &Path) -> u64 {
    let Some(name) = path.file_name() else { return 0 };
    let mut front = stem(name);
    front.push(".");
    let is_its = |name: &OsStr| name.as_bytes().starts_with(front.as_bytes()) && maker_of(name).is_some();
    let entries = fs::read_dir(folder_of(path)).into_iter().flatten().flatten();
    let unfinished = entries.filter(|entry| is_its(&entry.file_name()));
    unfinished.filter_map(|entry| Some(entry.metadata().ok()?.len())).sum()
}

/// The boot that made a temporary file, if the name is a temporary file's.
fn maker_of(name: &OsStr) -> Option<&str> {
    let rest = name.as_bytes().strip_suffix(ENDING.as_bytes())?;
    let dot = rest.iter().rposition(|&byte| byte == b'.')?;
    let fields: Vec<&str> = std::str::from_utf8(rest.get(dot + 1..)?).ok()?.split('-').collect();
    let is_hexadecimal =
        |field: &&str| !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_boot = |field: &str| field == "0" || field.len() == 8;
    (fields.len() == 4 && fields.iter().all(is_hexadecimal) && is_boot(fields[0])).then(|| fields[0])
}

/// Opens a temporary file that nobody writes any more, locked if possible.
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;

    use super::*;

    fn entries(folder: &Path) -> Vec<OsString> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write(&path, &[b"one", b"two"]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        write(&path, &[b"three"]).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"three");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "it stays private");
        let taken = folder.path().join("folder");
        fs::create_dir(&taken).unwrap();
        assert!(write(&taken, &[b"four"]).is_err());
        assert!(write(&folder.path().join("none/file"), &[b"four"]).is_err());
        assert!(check(&folder.path().join("none/file")).is_err());
        check(&path).unwrap();
        drop(WholeFile::create(&path).unwrap());
        assert_eq!(fs::read(&path).unwrap(), b"three", "what is not finished replaces nothing");
        let long = folder.path().join("n".repeat(255));
        write(&long, &[b"five"]).unwrap();
        assert_eq!(entries(folder.path()).len(), 3, "nothing is left over");
    }

    #[test]
    fn links_are_followed_and_stay() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("elsewhere")).unwrap();
        fs::write(at("elsewhere/old"), "old").unwrap();
        symlink("elsewhere/old", at("link")).unwrap();
        symlink(at("link"), at("link to it")).unwrap();
        symlink("elsewhere/new", at("dangling")).unwrap();
        symlink("round", at("round")).unwrap();
        for (link, target) in [("link to it", "elsewhere/old"), ("dangling", "elsewhere/new")] {
            write(&at(link), &[b"written"]).unwrap();
            assert_eq!(fs::read(at(target)).unwrap(), b"written", "{link}");
            assert!(at(link).is_symlink(), "{link}");
            assert!(is_same_place(&at(link), &at(target)).unwrap());
        }
        assert!(write(&at("round"), &[b"written"]).is_err());
        assert!(!is_same_place(&at("link"), &at("dangling")).unwrap());
        remove(&at("link to it")).unwrap();
        remove(&at("link to it")).unwrap();
        assert!(at("link to it").is_symlink() && !at("elsewhere/old").exists());
        assert_eq!(entries(&at("elsewhere")), ["new"]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the system's files")]
    fn what_is_no_regular_file_is_neither_replaced_nor_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let _socket = UnixListener::bind(at("socket")).unwrap();
        let made = std::process::Command::new("mkfifo").arg(at("fifo")).status().unwrap();
        assert!(made.success());
        symlink("/dev/null", at("null")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        let before = entries(folder.path());
        for (name, kind) in [
            ("socket", "a socket"),
            ("fifo", "a FIFO"),
            ("null", "a character device"),
            ("folder", "a folder"),
        ] {
            for done in [write(&at(name), &[b"written"]), check(&at(name)), remove(&at(name))] {
                let message = done.unwrap_err().to_string();
                assert!(message.contains(kind) && message.contains("only a regular file"), "{message}");
            }
        }
        assert_eq!(entries(folder.path()), before);
    }

    #[test]
    #[cfg_attr(miri, ignore = "needs the system's files")]
    fn what_is_to_stay_is_noticed_whatever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("file"), "old").unwrap();
        fs::create_dir(at("folder")).unwrap();
        symlink("nowhere", at("link")).unwrap();
        symlink("round", at("round")).unwrap();
        for name in ["file", "folder", "link", "round"] {
            let kind = |done: io::Result<()>| done.unwrap_err().kind();
            assert_eq!(kind(Existing::Refuse.check(&at(name))), io::ErrorKind::AlreadyExists, "{name}");
            Existing::Replace.check(&at(name)).unwrap();
            fs::write(at("new"), "new").unwrap();
            assert_eq!(kind(rename_to_free(&at("new"), &at(name))), io::ErrorKind::AlreadyExists, "{name}");
            assert_eq!(fs::read(at("new")).unwrap(), b"new", "{name}");
            if name == "file" || name == "link" {
                let end = WholeFile::create(&at(name)).unwrap().finish_new();
                assert_eq!(end.map_err(|error| error.kind()).is_err(), name == "file", "{name}");
            }
        }
        assert_eq!(fs::read(at("file")).unwrap(), b"old");
        Existing::Refuse.check(&at("free")).unwrap();
        rename_to_free(&at("new"), &at("free")).unwrap();
        assert_eq!(fs::read(at("free")).unwrap(), b"new");
        // What cannot be told is not taken for nothing.
        let error = Existing::Refuse.check(&at("round/file")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ELOOP));
    }

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

    #[test]
    #[cfg_attr(miri, ignore = "needs the system's files")]
    fn many_write_one_file_at_once_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::thread::scope(|scope| {
            for byte in b'a'..b'i' {
                let path = &path;
                scope.spawn(move || (0..20).for_each(|_| write(path, &[&[byte; 100]]).unwrap()));
            }
        });
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.len() == 100 && bytes.iter().all(|byte| *byte == bytes[0]));
        assert_eq!(entries(folder.path()), ["file"]);
    }
}
