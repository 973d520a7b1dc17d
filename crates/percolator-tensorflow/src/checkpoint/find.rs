//! The files of a checkpoint, found by their prefix.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use percolator_files::{input_file, shown};

use super::error::CheckpointError;
use crate::paths::{folder_of, index_path, open_regular};

const INDEX: &str = ".index";

/// Returns the prefix of a checkpoint and the path of its index, given one of them.
pub(super) fn paths(given: &Path) -> (PathBuf, PathBuf) {
    let bytes = given.as_os_str().as_bytes();
    match bytes.strip_suffix(INDEX.as_bytes()) {
        Some(prefix) if !prefix.is_empty() && !prefix.ends_with(b"/") => {
            (PathBuf::from(OsStr::from_bytes(prefix)), given.to_owned())
        }
        _ => (given.to_owned(), index_path(given)),
    }
}

/// Reads the index whole.
pub(super) fn read_index(prefix: &Path, index: &Path) -> Result<Vec<u8>, CheckpointError> {
    input_file::read(index, u64::MAX).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => why_missing(prefix, index),
        _ => CheckpointError::io(index, "read the index", &error),
    })
}

fn why_missing(prefix: &Path, index: &Path) -> CheckpointError {
    if let Some(index) = first_format(prefix) {
        let message = "this is a checkpoint of TensorFlow's first format (V1), which has no index; restore \
                       it in TensorFlow and save it with \
                       tf.compat.v1.train.Saver(write_version=SaverDef.V2)";
        return CheckpointError::Index { index, message: message.to_owned() };
    }
    CheckpointError::Missing { index: index.to_owned(), remedy: remedy(prefix) }
}

/// Returns the file of a checkpoint of TensorFlow's first format, if one has this name. It is a sorted table
/// itself: one file (`model.ckpt`), or several (`model.ckpt-?????-of-?????`).
fn first_format(prefix: &Path) -> Option<PathBuf> {
    if is_table(prefix) {
        return Some(prefix.to_owned());
    }
    let is_part = |path: &PathBuf| {
        let [name, front] = [path, prefix].map(|path| path.file_name().unwrap_or_default().as_bytes());
        let rest = name.strip_prefix(front);
        rest.is_some_and(|rest| rest.starts_with(b"-") && rest.windows(4).any(|part| part == b"-of-"))
    };
    in_folder(folder_of(prefix)).into_iter().filter(is_part).min().filter(|path| is_table(path))
}

/// Returns whether a file ends as a sorted table does.
fn is_table(path: &Path) -> bool {
    const MAGIC: [u8; 8] = 0xdb47_7524_8b80_fb57_u64.to_le_bytes();
    let Ok((file, bytes)) = open_regular(path) else { return false };
    let mut end = [0; MAGIC.len()];
    let Some(offset) = bytes.checked_sub(MAGIC.len() as u64) else { return false };
    file.read_exact_at(&mut end, offset).is_ok() && end == MAGIC
}

/// Returns what to do about an index that is missing.
fn remedy(prefix: &Path) -> String {
    /// The most prefixes that a message shows.
    const PREFIXES_MAX: usize = 5;

    let name = prefix.as_os_str().as_bytes();
    let end = name.windows(6).rposition(|part| part == b".data-").or_else(|| {
        let meta = name.strip_suffix(b".meta");
        meta.map(<[u8]>::len)
    });
    if let Some(prefix) = end.and_then(|end| name.get(..end)).filter(|prefix| !prefix.is_empty()) {
        let prefix = Path::new(OsStr::from_bytes(prefix));
        return format!("give what the names of its files begin with: {}", shown::path(prefix));
    }
    let folder = if prefix.is_dir() { prefix } else { folder_of(prefix) };
    let mut prefixes: Vec<_> = in_folder(folder)
        .iter()
        .filter_map(|path| path.as_os_str().as_bytes().strip_suffix(INDEX.as_bytes()))
        .map(|prefix| shown::path(Path::new(OsStr::from_bytes(prefix))).to_string())
        .collect();
    prefixes.sort_unstable();
    if prefixes.is_empty() {
        return format!("there is no other checkpoint in the folder {}", shown::path(folder));
    }
    let more = if prefixes.len() > PREFIXES_MAX { ", and others" } else { "" };
    prefixes.truncate(PREFIXES_MAX);
    format!("the folder has {}{more}", prefixes.join(", "))
}

/// Returns the paths in a folder, or none if it cannot be read.
fn in_folder(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| if folder == Path::new(".") { entry.file_name().into() } else { entry.path() })
        .collect()
}
