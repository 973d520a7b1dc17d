//! LMDBs with other people's records.

use std::path::Path;

use percolator::source::{Lmdb, SourceError};

use crate::FormatError;

/// The LMDB at a path, if one is there that can be opened. What is wrong with it is said by whoever opens it.
pub(super) fn lmdb_of(path: &Path) -> Option<Lmdb> {
    let is_named = path.extension().is_some_and(|ending| ending == "mdb" || ending == "lmdb");
    let is_lmdb = path.join("data.mdb").is_file() || path.is_file() && is_named;
    if is_lmdb { Lmdb::open(path).ok() } else { None }
}

/// The error of an LMDB, in this package's terms.
pub(super) fn format_error(path: &Path, error: &SourceError) -> FormatError {
    let said = percolator_files::shown::with_sources(error);
    let name = format!("{}: ", percolator_files::shown::path(path));
    FormatError::damaged(path, said.strip_prefix(&*name).unwrap_or(&said))
}
