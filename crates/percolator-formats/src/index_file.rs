//! The file `index.json` that names a data set's shards.

use std::fs;
use std::path::{Component, Path, PathBuf};

use percolator_files::{input_file, shown};
use serde_json::Value as Json;

use crate::FormatError;

const INDEX: &str = "index.json";

/// More than the index of any data set has.
const BYTES_MAX: u64 = 1 << 30;

/// The index of a folder, or the one that a path names.
pub(crate) fn of(path: &Path) -> PathBuf {
    if path.file_name().is_some_and(|name| name == INDEX) { path.to_owned() } else { path.join(INDEX) }
}

/// Whether a path has an index that is told by its text, or by the name of a file beside it.
pub(crate) fn tells(path: &Path, by_text: impl Fn(&[u8]) -> bool, by_name: impl Fn(&str) -> bool) -> bool {
    let index = of(path);
    if !index.is_file() {
        return false;
    }
    let text = input_file::read(&index, BYTES_MAX).unwrap_or_default();
    by_text(&text) || {
        let entries = fs::read_dir(index.parent().unwrap_or(Path::new(""))).into_iter().flatten().flatten();
        entries.into_iter().any(|entry| by_name(&entry.file_name().to_string_lossy()))
    }
}

/// What an index says.
pub(crate) fn json(index: &Path) -> Result<Json, FormatError> {
    let text = input_file::read(index, BYTES_MAX)
        .map_err(|error| FormatError::io(index, "read the index", error))?;
    serde_json::from_slice(&text).map_err(|error| {
        FormatError::damaged(index, format!("it is no JSON: {error}; it may be cut: copy it again"))
    })
}

/// A file that an index names, which must lie below its folder.
pub(crate) fn below(index: &Path, name: &str) -> Result<PathBuf, FormatError> {
    let relative = Path::new(name);
    let is_below = relative.components().all(|part| matches!(part, Component::Normal(_))) && !name.is_empty();
    if !is_below {
        let what = format!("the index names {}, which leaves its folder", shown::path(relative));
        return Err(FormatError::refused(index, what));
    }
    Ok(index.parent().unwrap_or(Path::new("")).join(relative))
}
