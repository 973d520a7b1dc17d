//! Which lock files this process has open.
//!
//! A process must not open two LMDB environments on one lock file. File locks do not protect a process from
//! itself, so the second environment would take the reader table for abandoned and clear it, under the
//! readers of the first. If this process already has the lock file open, that environment keeps its lock, and
//! we read without one.
//!
//! Our own environments are in a table, keyed by the device and inode of their lock files. The environments
//! of other crates are found among the maps of the process. That needs Linux and `/proc`; without them they
//! are not detected.

use std::fs;
use std::io;
#[cfg(target_os = "linux")]
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use parking_lot::{Mutex, MutexGuard};
#[cfg(target_os = "linux")]
use rustix::{
    fs::{FallocateFlags, fallocate},
    io::Errno,
};

use percolator_files::file_id::FileId;
use percolator_files::input_file::is_of_file;

/// The lock files of our environments.
///
/// The mutex is held from the check whether a file is open until it is open, and while one is closed. Closing
/// a file ends all locks that the process has on it, including those of an environment that was opened in
/// between.
static OPEN: Mutex<Vec<FileId>> = Mutex::new(Vec::new());

/// The right to open or close a lock file. Only one exists at a time.
pub(super) struct LockFileTurn(MutexGuard<'static, Vec<FileId>>);

/// The entry of an open environment in the table.
#[derive(Debug)]
pub(super) struct LockFile(Vec<FileId>);

impl LockFileTurn {
    pub(super) fn take() -> Self {
        LockFileTurn(OPEN.lock())
    }

    /// Whether this process has a lock file open. An error means that it cannot be determined this time; on a
    /// system that never tells, such as one without `/proc`, the answer is no.
    pub(super) fn is_open_here(&self, lock: &Path) -> io::Result<bool> {
        // The file is not opened for this: closing it would end the locks that this process has on it.
        let metadata = match fs::metadata(lock) {
            Err(error) if is_of_file(&error) => return Ok(false),
            metadata => metadata?,
        };
        Ok(self.0.contains(&FileId::of(&metadata)) || is_mapped(lock, &metadata)?)
    }

    /// Takes the space on the disk that a lock file needs, before liblmdb maps it: a write to a map for which
    /// the disk has no room kills the process. A new file gets room for `bytes`, and no length, which is
    /// liblmdb's to choose. This process must not have the file open.
    ///
    /// Fails with the system's code if the disk has no room. Any other failure is left to liblmdb, which
    /// reports it as its error.
    #[cfg(target_os = "linux")]
    pub(super) fn reserve(&self, lock: &Path, bytes: u64) -> Result<(), i32> {
        let no_room = |error: &Errno| matches!(*error, Errno::NOSPC | Errno::DQUOT);
        // The mode is liblmdb's.
        let opened =
            fs::File::options().read(true).write(true).create(true).truncate(false).mode(0o644).open(lock);
        let file = match opened {
            Ok(file) => file,
            Err(error) => {
                let error = Errno::from_io_error(&error).filter(no_room);
                return error.map_or(Ok(()), |error| Err(error.raw_os_error()));
            }
        };
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let take = |bytes| fallocate(&file, FallocateFlags::KEEP_SIZE, 0, bytes);
        match take(bytes.max(length)) {
            // Another program may have made it for fewer readers.
            Err(error) if no_room(&error) && length > 0 => take(length),
            taken => taken,
        }
        .or_else(|error| if no_room(&error) { Err(error.raw_os_error()) } else { Ok(()) })
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn reserve(&self, _lock: &Path, _bytes: u64) -> Result<(), i32> {
        Ok(())
    }

    /// Calls `open`, which opens an environment on this lock file, and adds the file to the table.
    pub(super) fn opening<T, E>(
        &mut self,
        lock: &Path,
        open: impl FnOnce() -> Result<T, E>,
    ) -> Result<(T, LockFile), E> {
        let look = || fs::metadata(lock).ok().map(|metadata| FileId::of(&metadata));
        let before = look();
        let opened = open()?;
        // If the file was replaced meanwhile, `open` may have opened either of the two: both are added.
        let mut files: Vec<FileId> = before.into_iter().chain(look()).collect();
        files.dedup();
        self.0.extend_from_slice(&files);
        Ok((opened, LockFile(files)))
    }

    /// Removes the entry of a closed environment.
    pub(super) fn forget(&mut self, lock: &LockFile) {
        for file in &lock.0 {
            if let Some(at) = self.0.iter().position(|open| open == file) {
                self.0.swap_remove(at);
            }
        }
    }
}

/// Whether this process has a lock file mapped, as every environment with a lock has.
#[cfg(target_os = "linux")]
fn is_mapped(lock: &Path, metadata: &fs::Metadata) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;

    let lock = lock.canonicalize()?;
    match fs::read("/proc/self/maps") {
        Err(error) if is_of_file(&error) => Ok(false),
        maps => Ok(has_mapped(&maps?, &lock, metadata.dev(), metadata.ino())),
    }
}

#[cfg(not(target_os = "linux"))]
fn is_mapped(_lock: &Path, _metadata: &fs::Metadata) -> io::Result<bool> {
    Ok(false)
}

/// Whether a file is among the maps of a process, by its device and inode, or by its path: on some file
/// systems (overlayfs, Btrfs) the numbers there are not those of `stat`.
#[cfg(target_os = "linux")]
fn has_mapped(maps: &[u8], path: &Path, device: u64, inode: u64) -> bool {
    use std::os::unix::ffi::OsStrExt as _;

    let device = format!("{:02x}:{:02x}", libc::major(device), libc::minor(device));
    let inode = inode.to_string();
    // The kernel escapes newlines in this file.
    let path: Vec<u8> = path.as_os_str().as_bytes().iter().fold(Vec::new(), |mut path, &byte| {
        match byte {
            b'\n' => path.extend_from_slice(b"\\012"),
            byte => path.push(byte),
        }
        path
    });
    maps.split(|&byte| byte == b'\n').any(|line| {
        let words: Vec<&[u8]> = line.splitn(6, |&byte| byte == b' ').collect();
        let [_, _, _, on, number, mapped] = words[..] else { return false };
        (on == device.as_bytes() && number == inode.as_bytes()) || mapped.trim_ascii_start() == path
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "makes links")]
    fn our_own_environment_is_seen_until_it_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let [lock, link, other] = ["lock", "link", "other"].map(|name| folder.path().join(name));
        let mut turn = LockFileTurn::take();
        assert!(!turn.is_open_here(&lock).unwrap(), "no such file");
        let made = turn.opening(&lock, || fs::write(&lock, "made by it"));
        let (_, first) = made.unwrap();
        fs::hard_link(&lock, &link).unwrap();
        fs::write(&other, "another").unwrap();
        assert!(turn.is_open_here(&lock).unwrap() && turn.is_open_here(&link).unwrap(), "by any name");
        assert!(!turn.is_open_here(&other).unwrap());
        assert!(turn.opening(&other, || Err::<(), _>("no")).is_err());
        assert!(!turn.is_open_here(&other).unwrap(), "the opening failed");
        // While it is being opened, another file takes its place.
        let replaced = turn.opening(&other, || fs::rename(&lock, &other));
        let (_, second) = replaced.unwrap();
        turn.forget(&second);
        assert!(turn.is_open_here(&link).unwrap(), "the first one is still open");
        turn.forget(&first);
        assert!(!turn.is_open_here(&link).unwrap());
    }

    /// The tests of the command show what this is for, on a disk that is full.
    #[test]
    #[cfg_attr(miri, ignore = "asks the kernel for space")]
    fn space_is_taken_without_a_length() {
        let folder = tempfile::tempdir().unwrap();
        let lock = folder.path().join("lock");
        let turn = LockFileTurn::take();
        turn.reserve(&lock, 65_536).unwrap();
        assert_eq!(fs::read(&lock).unwrap_or_default(), b"", "the length is liblmdb's to choose");
        fs::write(&lock, [7; 100]).unwrap();
        turn.reserve(&lock, 65_536).unwrap();
        assert_eq!(fs::read(&lock).unwrap(), [7; 100]);
        // liblmdb says what is wrong with these.
        for path in [folder.path().to_owned(), folder.path().join("none/lock"), lock.join("lock")] {
            turn.reserve(&path, 65_536).unwrap();
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_lock_file_is_found_among_the_maps() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt as _;

        let maps = b"\
            7f1200000000-7f1240000000 r--s 00000000 fd:00 131 /data/train/data.mdb\n\
            7f1300000000-7f1300001000 rw-s 00000000 08:11 131      /data/train/lock.mdb\n\
            7f1400000000-7f1400001000 rw-s 00000000 08:11 132      /data/no \xff UTF-8\\012/lock.mdb\n";
        let device = libc::makedev(0x08, 0x11);
        let elsewhere = Path::new("/data/test/lock.mdb");
        assert!(has_mapped(maps, elsewhere, device, 131));
        assert!(!has_mapped(maps, elsewhere, device, 13));
        assert!(!has_mapped(maps, elsewhere, libc::makedev(8, 1), 131));
        assert!(has_mapped(maps, Path::new("/data/train/lock.mdb"), libc::makedev(8, 1), 7));
        let odd = Path::new(OsStr::from_bytes(b"/data/no \xff UTF-8\n/lock.mdb"));
        assert!(has_mapped(maps, odd, libc::makedev(8, 1), 7));
    }
}
