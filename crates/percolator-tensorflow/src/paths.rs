//! Paths of a model's files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

pub(crate) use percolator_files::input_file::open as open_regular;
pub(crate) use percolator_files::whole_file::folder_of;

/// Returns a path with a text appended to it. Unlike `set_extension`, it replaces nothing.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut whole = OsString::from(path);
    whole.push(suffix);
    whole.into()
}

/// The most data files that a checkpoint has: their numbers have five digits.
pub(crate) const SHARDS_MAX: usize = 99_999;

/// Returns the path of one of a checkpoint's data files.
pub(crate) fn data_path(prefix: &Path, shard: usize, shards: usize) -> PathBuf {
    with_suffix(prefix, &format!(".data-{shard:05}-of-{shards:05}"))
}

/// Returns the path of a checkpoint's index.
pub(crate) fn index_path(prefix: &Path) -> PathBuf {
    with_suffix(prefix, ".index")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_in_the_working_directory() {
        for (path, folder) in [("a", "."), ("./a", "."), ("a/b", "a"), ("/a", "/"), ("a/", "."), ("", ".")] {
            assert_eq!(folder_of(Path::new(path)), Path::new(folder), "{path}");
        }
        assert_eq!(index_path(Path::new("a/b.c")), Path::new("a/b.c.index"));
    }
}
