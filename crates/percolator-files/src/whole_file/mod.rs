//! Files that are either complete or absent.
//!
//! A file is written under a temporary name beside its final path, synced, and then renamed. Symbolic links
//! are followed: their target is replaced, and they stay. Anything but a regular file is never replaced. The
//! next writers into the same folder remove the temporary files of writers that were killed. A folder can be
//! filled under such a name as well.

mod temporary;

use std::ffi::OsStr;
use std::fs::{self, File, FileType, Metadata};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

pub use self::temporary::{TemporaryFolder, temporary_of};
use crate::input_file;

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

    /// With `Refuse`, checks that nothing is at the path, not even a link that leads nowhere. This is a check
    /// before the work: when the output gets its name, something may have appeared there.
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
/// disk, and an earlier file stays until then. Several threads or processes may write it at once; the last
/// one's file stays.
///
/// # Errors
///
/// [`io::Error`] if it cannot be written, or if something other than a regular file is there.
pub fn write(path: &Path, pieces: &[&[u8]]) -> io::Result<()> {
    write_over(path, pieces, Existing::Replace)
}

/// The same, if an existing file may be replaced.
///
/// # Errors
///
/// As [`write()`], and [`io::ErrorKind::AlreadyExists`] if a file is there that is to stay.
pub fn write_over(path: &Path, pieces: &[&[u8]], existing: Existing) -> io::Result<()> {
    let mut file = WholeFile::create(path)?;
    pieces.iter().try_for_each(|piece| file.write_all(piece))?;
    file.finish_over(existing)
}

/// The same as [`write()`] without waiting for the disk, for a file that is verified whenever it is read, and
/// that can be recreated: if the machine loses power, the file may be truncated or empty.
///
/// # Errors
///
/// As [`write()`].
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

/// Whether two paths lead to the same place. No file need exist there.
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

/// Removes what killed processes left in a folder: temporary files and folders. What cannot be removed stays.
pub fn sweep(folder: &Path) {
    temporary::sweep(folder);
}

/// Renames something to a path at which nothing exists. If the system or the file system cannot do so
/// atomically, the path is checked first: a file that appears at that moment is replaced.
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
        temporary::sweep_in_turn(folder_of(&place));
        let (temporary, file) = temporary::create(folder_of(&place), name)?;
        Ok(WholeFile { file, temporary: Some(temporary), place })
    }

    /// The file that is being written.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file another final path, in the folder in which it was begun.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create).
    pub fn at(mut self, path: &Path) -> io::Result<Self> {
        self.place = place_of(path)?;
        Ok(self)
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

    /// The new file keeps the old one's permissions. A file system without permissions refuses, which does no
    /// harm.
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

impl Seek for WholeFile {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
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
pub fn folder_of(path: &Path) -> &Path {
    // The parent of a bare name is the empty path, which cannot be opened.
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Where a file with this path is, or would be, once all symbolic links are followed.
///
/// # Errors
///
/// [`io::Error`] if something else is there, or the path cannot be followed.
pub fn place_of(path: &Path) -> io::Result<PathBuf> {
    /// The most that Linux follows.
    const LINKS_MAX: usize = 40;

    let refused = |message: String| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    let other = |found: &Metadata| {
        let kind = kind_of(found.file_type());
        refused(format!("{kind} is there, and only a regular file is replaced: give another path"))
    };
    // The kernel also follows links whose target has no path: /dev/stdout may be a pipe, or a deleted file.
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
            // Another process may have removed it meanwhile.
            Err(_) if is_there && place != path && fs::metadata(path).is_ok() => break,
            Err(_) if !ends_in_name(&place) => {
                let message = "it ends as only a folder's path does: end it with the file's name";
                return refused(message.to_owned());
            }
            Err(_) => return Ok(place),
        }
    }
    refused("its symbolic links do not lead to a path in a folder: give another path".to_owned())
}

/// Whether a path ends with the name of a file: `file/` and `file/.` cannot be a file's.
fn ends_in_name(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    path.as_os_str().as_bytes().ends_with(name.as_bytes())
}

/// The kind of a file that is not regular, with its article.
pub fn kind_of(kind: FileType) -> &'static str {
    match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () if kind.is_char_device() => "a character device",
        () if kind.is_block_device() => "a block device",
        () => "something other than a file",
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicBool, Ordering};

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

    /// As when several writers give one file its name at once.
    #[test]
    fn a_file_that_comes_and_goes_has_its_place_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    fs::write(&path, "").unwrap();
                    fs::remove_file(&path).unwrap();
                }
            });
            let wrong = (0..5000).map(|_| place_of(&path)).find(|found| found.as_ref().ok() != Some(&path));
            is_over.store(true, Ordering::Relaxed);
            assert!(wrong.is_none(), "{wrong:?}");
        });
    }

    #[test]
    fn a_path_that_only_a_folder_can_have_is_refused_before_the_work() {
        let folder = tempfile::tempdir().unwrap();
        symlink("new/", folder.path().join("link")).unwrap();
        for name in ["file/", "file/.", "link"] {
            let error = check(&folder.path().join(name)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
            assert!(error.to_string().contains("as only a folder's path does"), "{error}");
        }
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
