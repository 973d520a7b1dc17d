//! How inputs are recognised when a conversion is resumed.

use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// What distinguishes a file from others, and from itself after a change: its path, length, and the time of
/// its last change. Two data sets often have files of the same names and lengths.
pub(super) fn of_file(path: &Path) -> io::Result<String> {
    let found = path.metadata()?;
    let changed = found.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(format!("{:?} of {} bytes, changed at {}", path.canonicalize()?, found.len(), changed.as_nanos()))
}
