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
}
