//! Files that are never there by half.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Writes a file of these pieces. It has its name only once it is whole and on the disk, so several may write it at once, and
/// the last one's stays; what was there before stays until then.
pub(crate) fn write(path: &Path, pieces: &[&[u8]]) -> io::Result<()> {
    let Some(name) = path.file_name() else { return Err(io::ErrorKind::InvalidInput.into()) };
    // The parent of a bare name is the empty path, which cannot be opened.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let (temporary, file) = create_temporary(folder, name)?;
    let named = write_all(file, pieces).and_then(|()| fs::rename(&temporary, path));
    named.inspect_err(|_| drop(fs::remove_file(&temporary)))?;
    // That the name, too, is on the disk is not worth an error: at the worst the file is the one that was there before.
    drop(File::open(folder).and_then(|folder| folder.sync_all()));
    Ok(())
}

/// A file that is nobody else's. Other threads write theirs, and so may processes on other machines, or in other
/// containers, with this one's number; or one that had this number died at it.
fn create_temporary(folder: &Path, name: &OsStr) -> io::Result<(PathBuf, File)> {
    const TRIES: usize = 100;
    // What processes with the same number left behind, when they were killed at it, is out of the way.
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let mut tried = 0..TRIES;
    loop {
        let mut temporary = name.to_owned();
        temporary.push(format!(".{}-{now:x}-{}", std::process::id(), tried.next().unwrap_or(TRIES)));
        let path = folder.join(temporary);
        match File::options().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !tried.is_empty() => {}
            opened => return opened.map(|file| (path, file)),
        }
    }
}

fn write_all(mut file: File, pieces: &[&[u8]]) -> io::Result<()> {
    pieces.iter().try_for_each(|piece| file.write_all(piece))?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write(&path, &[b"one", b"two"]).unwrap();
        write(&path, &[b"three"]).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"three");
        let taken = folder.path().join("folder");
        fs::create_dir(&taken).unwrap();
        assert!(write(&taken, &[b"four"]).is_err());
        assert!(write(&folder.path().join("none/file"), &[b"four"]).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left over");
    }
}
