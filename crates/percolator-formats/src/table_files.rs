//! What the readers of tables have in common: a map as shared bytes, a library's panics, folders of files.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::{DataFile, FileMap, FormatError};

struct MapOwner(Arc<FileMap>);

impl AsRef<[u8]> for MapOwner {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

/// A file's map as bytes that keep it; `None` if the file is not mapped.
pub(crate) fn mapped(file: &DataFile) -> Option<Bytes> {
    file.map().map(|map| Bytes::from_owner(MapOwner(Arc::clone(map))))
}

/// Does what a library does, and makes its panic an error: its input is a file, and files are damaged.
pub(crate) fn caught<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without words");
        Err(format!("the decoder gave up: {text}"))
    })
}

/// The file, or the files of a folder that have one of these extensions, by their names.
pub(crate) fn files_of(path: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>, FormatError> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let failed = |error| FormatError::io(path, "list the folder", error);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        // As all readers of such folders do: a name that begins so is not data (`_SUCCESS`, `.part.crc`).
        let hidden = file.file_name().is_some_and(|name| {
            name.as_encoded_bytes().starts_with(b".") || name.as_encoded_bytes().starts_with(b"_")
        });
        if hidden {
            continue;
        }
        if file.is_dir() {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let what = format!(
                "it has the folder {name:?}, and folders in folders are not read (their names may stand for \
                 columns); name the folder whose files are to be read"
            );
            return Err(FormatError::refused(path, what));
        }
        if has_extension(&file, extensions) {
            files.push(file);
        }
    }
    if files.is_empty() {
        let what = format!("there is no file that ends in .{}", extensions.join(" or ."));
        return Err(FormatError::refused(path, what));
    }
    files.sort();
    Ok(files)
}

/// Whether a name ends so, in any case.
pub(crate) fn has_extension(path: &Path, extensions: &[&str]) -> bool {
    path.extension().is_some_and(|found| extensions.iter().any(|known| found.eq_ignore_ascii_case(known)))
}
