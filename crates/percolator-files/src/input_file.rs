//! Files to be read: whether they exist, and small ones as a whole. Only regular files are read, up to a
//! maximum size.
//!
//! A FIFO would block until it is written to, and a device may have no end, so neither is read.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::whole_file::kind_of;

/// Opens a regular file without blocking, and returns it with its length in bytes.
///
/// # Errors
///
/// What the system says, or that the file is not a regular one.
pub fn open(path: &Path) -> io::Result<(File, u64)> {
    let (file, metadata) = open_any(path)?;
    if !metadata.is_file() {
        let found = kind_of(metadata.file_type());
        let advice = if metadata.is_dir() { "" } else { ": copy it to one first" };
        let message = format!("found {found}, but only regular files are read{advice}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok((file, metadata.len()))
}

/// Like [`open`]; `None` for anything that is not a regular file.
///
/// # Errors
///
/// What the system says.
pub fn open_regular(path: &Path) -> io::Result<Option<(File, u64)>> {
    let (file, metadata) = open_any(path)?;
    Ok(metadata.is_file().then_some((file, metadata.len())))
}

fn open_any(path: &Path) -> io::Result<(File, Metadata)> {
    let file = open_without_waiting(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

/// Opens a path that should be a regular file's. If it is a FIFO's, this does not wait for a writer.
///
/// # Errors
///
/// [`io::Error`] if the file cannot be opened.
pub fn open_without_waiting(path: &Path) -> io::Result<File> {
    // Miri does not know the flag.
    let flags = if cfg!(miri) { 0 } else { libc::O_NONBLOCK };
    File::options().read(true).custom_flags(flags).open(path)
}

/// Whether an error says that a file is missing or cannot be read at all, not that reading failed this time,
/// as when the process has no more handles.
#[must_use]
pub fn is_of_file(error: &io::Error) -> bool {
    use io::ErrorKind;

    match error.kind() {
        ErrorKind::NotFound
        | ErrorKind::PermissionDenied
        | ErrorKind::IsADirectory
        | ErrorKind::NotADirectory
        | ErrorKind::InvalidFilename
        | ErrorKind::InvalidInput
        | ErrorKind::InvalidData
        | ErrorKind::FileTooLarge => true,
        // These have no kind: a loop of links; a socket, or a device without a driver; a name that the file
        // system cannot have; a file that is too large for the system's calls.
        _ => matches!(
            error.raw_os_error(),
            Some(
                libc::ELOOP | libc::ENXIO | libc::ENODEV | libc::EOPNOTSUPP | libc::EILSEQ | libc::EOVERFLOW
            )
        ),
    }
}

/// Whether something is at a path, even a link that leads nowhere.
///
/// # Errors
///
/// [`io::Error`] if that cannot be told, as in a folder that may not be searched.
pub fn is_there(path: &Path) -> io::Result<bool> {
    match std::fs::symlink_metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the parts of a file that have data, in order. The others are holes, which take no room: an LMDB
/// may be as long as its map, and be used only at its start. If the file system does not tell, the whole file
/// has.
///
/// This moves the file's cursor.
pub fn data_parts(file: &File, bytes: u64) -> impl Iterator<Item = Range<u64>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (start, end) = part_from(file, at, bytes)?;
        at = end;
        Some(start..end)
    })
}

/// The next part that starts at or after `at`.
#[cfg(any(target_os = "linux", target_os = "macos"))]
fn part_from(file: &File, at: u64, bytes: u64) -> Option<(u64, u64)> {
    use rustix::fs::{SeekFrom, seek};
    use rustix::io::Errno;

    if at >= bytes {
        return None;
    }
    let start = match seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return None,
        Err(_) => at,
    };
    let end = seek(file, SeekFrom::Hole(start)).unwrap_or(bytes);
    Some((start, end.min(bytes))).filter(|(start, end)| start < end)
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn part_from(_file: &File, at: u64, bytes: u64) -> Option<(u64, u64)> {
    (at < bytes).then_some((at, bytes))
}

/// Returns how many bytes of data a regular file has, without its holes.
///
/// # Errors
///
/// What the system says.
pub fn data_bytes(path: &Path) -> io::Result<u64> {
    let metadata = std::fs::metadata(path)?;
    // A file with fewer blocks than its length takes may have holes, or be compressed by the file system.
    if !metadata.is_file() || metadata.blocks().saturating_mul(512) >= metadata.len() {
        return Ok(metadata.len());
    }
    let (file, bytes) = open(path)?;
    Ok(data_parts(&file, bytes).map(|part| part.end.saturating_sub(part.start)).sum())
}

/// Reads a file of at most `bytes_max` bytes.
///
/// # Errors
///
/// As [`open`], and [`io::ErrorKind::FileTooLarge`].
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let (file, length) = open(path)?;
    read_on(file, Vec::new(), length, bytes_max)
}

/// Reads a file if it starts with `beginning`; of any other file, reads only enough for a message.
///
/// # Errors
///
/// As [`read`].
pub fn read_if_begins(path: &Path, beginning: &[u8], bytes_max: u64) -> io::Result<Vec<u8>> {
    /// How much of an unexpected file a message shows.
    const LOOK_BYTES: u64 = 256;

    let (file, length) = open(path)?;
    let mut bytes = Vec::new();
    (&file).take(LOOK_BYTES).read_to_end(&mut bytes)?;
    if !bytes.starts_with(beginning) {
        return Ok(bytes);
    }
    read_on(file, bytes, length, bytes_max)
}

/// Reads the rest of a file whose first bytes are in `bytes`.
fn read_on(file: File, mut bytes: Vec<u8>, length: u64, bytes_max: u64) -> io::Result<Vec<u8>> {
    let too_large = |found: u64| {
        let message = format!("it has at least {found} bytes, but at most {bytes_max} are read");
        io::Error::new(io::ErrorKind::FileTooLarge, message)
    };
    if length > bytes_max {
        return Err(too_large(length));
    }
    let read = bytes.len() as u64;
    // Reserves the length that the file reports, so that reading it moves no bytes.
    let room = usize::try_from(length.saturating_sub(read)).unwrap_or(usize::MAX).saturating_add(1);
    bytes.try_reserve_exact(room).map_err(|_| io::ErrorKind::OutOfMemory)?;
    // One extra byte distinguishes a file that grows from one that just fits.
    file.take(bytes_max.saturating_sub(read).saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(too_large(bytes.len() as u64));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_what_it_may_have() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; 1000]).unwrap();
        assert_eq!(read(&path, 1000).unwrap(), vec![7; 1000]);
        assert_eq!(read_if_begins(&path, &[7, 7], 1000).unwrap(), vec![7; 1000]);
        assert_eq!(read_if_begins(&path, &[8], 10).unwrap(), vec![7; 256], "enough to tell");
        for error in [read(&path, 999), read_if_begins(&path, &[7], 999)].map(Result::unwrap_err) {
            assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
            assert!(error.to_string().contains("at least 1000 bytes, but at most 999"), "{error}");
        }
        // A file that reports length 0, as many of the kernel's do.
        assert!(!read(Path::new("/proc/self/status"), 1 << 20).unwrap().is_empty());
        assert!(read(Path::new("/proc/self/status"), 10).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "seeks for data")]
    fn holes_are_no_data() {
        use std::os::unix::fs::FileExt as _;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sparse");
        std::fs::write(&path, [7; 10_000]).unwrap();
        assert_eq!(data_bytes(&path).unwrap(), 10_000);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.set_len(1 << 36).unwrap();
        file.write_all_at(&[9; 5000], 1 << 35).unwrap();
        let parts: Vec<_> = data_parts(&file, 1 << 36).collect();
        // File systems count in blocks; one without holes has a single part.
        let is_in = |at: u64| parts.iter().any(|part| part.contains(&at));
        assert!([0, 9_999, 1 << 35, (1 << 35) + 4_999].iter().all(|&at| is_in(at)), "{parts:?}");
        let bytes: u64 = parts.iter().map(|part| part.end - part.start).sum();
        assert_eq!(data_bytes(&path).unwrap(), bytes);
        assert!(bytes < 1 << 24 || parts.len() == 1, "{parts:?}");
        file.set_len(0).unwrap();
        assert_eq!((data_bytes(&path).unwrap(), data_parts(&file, 0).count()), (0, 0));
        assert!(data_bytes(&folder.path().join("nothing")).is_err());
    }

    #[test]
    fn what_a_file_is_and_what_the_machine_lacks_are_told_apart() {
        use libc as os;

        for (codes, expected) in [
            (&[os::ENOENT, os::EACCES, os::EPERM, os::EISDIR, os::ENOTDIR, os::ENAMETOOLONG][..], true),
            (&[os::EINVAL, os::EFBIG, os::ELOOP, os::ENXIO, os::ENODEV, os::EOPNOTSUPP], true),
            (&[os::EILSEQ, os::EOVERFLOW], true),
            (&[os::EMFILE, os::ENFILE, os::ENOMEM, os::EIO, os::ESTALE, os::EAGAIN, os::EBUSY], false),
            (&[os::EINTR, os::ENOSYS, os::ETIMEDOUT, os::EHOSTDOWN, os::ENOTCONN, os::EUCLEAN], false),
            (&[os::EBADMSG, os::EDQUOT, os::ENOSPC, os::ENOLCK, os::EBADF], false),
        ] {
            for &code in codes {
                let error = io::Error::from_raw_os_error(code);
                assert_eq!(is_of_file(&error), expected, "{error}, {:?}", error.kind());
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes a FIFO")]
    fn what_is_no_regular_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for (path, found) in [(&*fifo, "a FIFO"), (Path::new("/dev/zero"), "a character device")] {
            let message = read(path, 10).unwrap_err().to_string();
            assert!(message.contains(found), "{message}");
        }
    }
}
