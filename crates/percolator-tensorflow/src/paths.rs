//! Paths of a model's files, and files that can be read by position.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// Returns a path with a text behind it. Unlike `set_extension`, it replaces nothing.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut whole = OsString::from(path);
    whole.push(suffix);
    whole.into()
}

/// Returns the folder that a path is in. The parent of a bare name is the empty path, which cannot be opened.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Opens a regular file, and returns its length.
pub(crate) fn open_regular(path: &Path) -> io::Result<(File, u64)> {
    // Checked before it is opened: opening a FIFO waits for a writer, and a device may have no end.
    if !fs::metadata(path)?.is_file() {
        let message = "it is not a regular file, and no other is read: copy it to one first";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    Ok((file, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_in_the_working_directory() {
        for (path, folder) in [("a", "."), ("./a", "."), ("a/b", "a"), ("/a", "/"), ("a/", "."), ("", ".")] {
            assert_eq!(folder_of(Path::new(path)), Path::new(folder), "{path}");
        }
        assert_eq!(with_suffix(Path::new("a/b.c"), ".index"), Path::new("a/b.c.index"));
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "abc").unwrap();
        assert_eq!(open_regular(&path).unwrap().1, 3);
        for other in [folder.path(), Path::new("/dev/zero")] {
            assert_eq!(open_regular(other).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
