//! Which files a pattern names, as TensorFlow's `gfile.Glob` finds them: unlike in a shell, `*` also matches
//! names that start with a dot.

use std::path::{Path, PathBuf};

use percolator_files::glob::{self, Rules};
use percolator_files::shown;

use super::PrepareError;

const RULES: Rules = Rules { hidden: true, files: false, is_left_out: |_| false };

/// All matching paths, in the order of their bytes.
pub(super) fn expand(pattern: &Path) -> Result<Vec<PathBuf>, PrepareError> {
    let shown = || shown::path(pattern).to_string();
    let unreadable = |source| PrepareError::Read { path: shown(), source };
    let found = match pattern.as_os_str().is_empty() {
        true => Vec::new(),
        false => glob::expand(Path::new(""), pattern, &RULES).map_err(unreadable)?,
    };
    if found.is_empty() {
        return Err(PrepareError::Refused(format!("no file matches the input {}", shown())));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn hidden_files_match_and_a_pattern_without_files_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["b.txt", ".a.txt", "c.md"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        let expanded = |pattern: &str| expand(&folder.path().join(pattern));
        assert_eq!(expanded("*.txt").unwrap(), [".a.txt", "b.txt"].map(|name| folder.path().join(name)));
        assert!(matches!(expand(Path::new("")), Err(PrepareError::Refused(_))));
        assert!(matches!(expanded("d*"), Err(PrepareError::Refused(_))));
    }
}
