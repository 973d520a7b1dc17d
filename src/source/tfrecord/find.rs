//! Which files a path means: the file itself, all files of a folder, or those that match a pattern.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use super::error::TfRecordError;
use crate::base::whole_file::kind_of;
use crate::source::SourceError;

/// The endings of the files that this crate keeps beside records, of files that are being written, and of
/// their locks.
const OWN_ENDINGS: [&[u8]; 4] =
    [b".percolator-index", b".percolator-unpacked", b".percolator-partial", b".percolator-lock"];

/// The files that a path means, in the order of their names' bytes, as a shell sorts them in the C locale.
///
/// If something exists at the path, the path means that: the file, or the files in the folder. Otherwise it
/// is a pattern, in which `*`, `?` and `[...]` match within a name, as in a shell. Hidden files are left out,
/// unless a pattern's name begins with a dot. So are folders, and the files that this crate keeps beside
/// records.
pub(super) fn files(root: &Path, path: &Path) -> Result<Vec<PathBuf>, SourceError> {
    let whole = root.join(path);
    let none = |message| Err(TfRecordError::NoFiles { path: path.to_owned(), message }.into());
    match fs::metadata(&whole) {
        Ok(found) if found.is_file() => Ok(vec![whole]),
        Ok(found) if found.is_dir() => {
            let files = matches(vec![whole], OsStr::new("*"), true).map_err(|error| list(path, &error))?;
            if files.is_empty() { none("there is no file in this folder") } else { Ok(files) }
        }
        Ok(found) => {
            Err(TfRecordError::NoFile { file: path.to_owned(), found: kind_of(found.file_type()) }.into())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_pattern(path.as_os_str()) => {
            let files = expand(root, path).map_err(|error| list(path, &error))?;
            if files.is_empty() { none("no file matches this pattern") } else { Ok(files) }
        }
        Err(error) => Err(SourceError::io(path, "open the file", &error)),
    }
}

fn list(path: &Path, error: &io::Error) -> SourceError {
    SourceError::io(path, "list the files", error)
}

fn is_pattern(text: &OsStr) -> bool {
    text.as_bytes().iter().any(|byte| b"*?[".contains(byte))
}

fn expand(root: &Path, pattern: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![root.to_owned()];
    let mut components = pattern.components().peekable();
    while let Some(component) = components.next() {
        let is_last = components.peek().is_none();
        match component {
            Component::Normal(name) if is_pattern(name) => found = matches(found, name, is_last)?,
            other => {
                found.iter_mut().for_each(|path| path.push(other));
                found.retain(|path| fs::metadata(path).is_ok_and(|found| !is_last || found.is_file()));
            }
        }
    }
    Ok(found)
}

/// The files or folders in these folders whose names match. A folder that cannot be listed has no matches; if
/// it exists and is the only one, that is an error.
fn matches(folders: Vec<PathBuf>, pattern: &OsStr, are_files: bool) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let is_only = folders.len() == 1;
    for folder in folders {
        let place = if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
        let entries = match fs::read_dir(place) {
            Err(error) if is_only && error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) => continue,
            Ok(entries) => entries,
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let bytes = name.as_bytes();
            let is_own = are_files && OWN_ENDINGS.iter().any(|ending| bytes.ends_with(ending));
            let is_hidden = bytes.starts_with(b".") && !pattern.as_bytes().starts_with(b".");
            if is_own || is_hidden || !is_match(pattern.as_bytes(), bytes) {
                continue;
            }
            // Links are followed.
            let is_wanted = fs::metadata(place.join(&name))
                .is_ok_and(|found| if are_files { found.is_file() } else { found.is_dir() });
            if is_wanted {
                names.push(name);
            }
        }
        names.sort_unstable_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
        found.extend(names.iter().map(|name| folder.join(name)));
    }
    Ok(found)
}

/// Whether a name matches a pattern. Backtracks only to the last `*`, so the time is at most the product of
/// both lengths.
fn is_match(pattern: &[u8], name: &[u8]) -> bool {
    let (mut rest, mut left) = (pattern, name);
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        if let Some((b'*', behind)) = rest.split_first() {
            rest = behind;
            star = Some((behind, left));
            continue;
        }
        if let Some((byte, others)) = left.split_first() {
            if let Some(behind) = behind_one(rest, *byte) {
                (rest, left) = (behind, others);
                continue;
            }
        } else if rest.is_empty() {
            return true;
        }
        // The last `*` takes one byte more.
        let Some((behind, taken_to)) = star else { return false };
        let Some((_, others)) = taken_to.split_first() else { return false };
        (rest, left) = (behind, others);
        star = Some((behind, others));
    }
}

/// The rest of the pattern if its first element matches this byte; otherwise `None`.
fn behind_one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    let (first, behind) = pattern.split_first()?;
    match first {
        b'?' => Some(behind),
        b'[' => match behind_set(behind, byte) {
            Some((is_in, behind)) => is_in.then_some(behind),
            // A bracket that is not closed stands for itself.
            None => (byte == b'[').then_some(behind),
        },
        b'\\' => match behind.split_first() {
            Some((escaped, behind)) => (*escaped == byte).then_some(behind),
            None => (byte == b'\\').then_some(behind),
        },
        literal => (*literal == byte).then_some(behind),
    }
}

/// Whether a byte is in the set that begins here, and what follows the set; `None` if the set has no end.
fn behind_set(set: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let (is_negated, mut rest) = match set.split_first() {
        Some((b'!' | b'^', rest)) => (true, rest),
        _ => (false, set),
    };
    let (mut is_in, mut is_first) = (false, true);
    loop {
        let (&low, behind) = rest.split_first()?;
        if low == b']' && !is_first {
            return Some((is_in != is_negated, behind));
        }
        is_first = false;
        rest = behind;
        match behind {
            [b'-', high, behind @ ..] if *high != b']' => {
                is_in |= (low..=*high).contains(&byte);
                rest = behind;
            }
            _ => is_in |= low == byte,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use proptest::prelude::*;

    use super::*;

    /// The naive twin: tries every length for every `*`.
    fn naive(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|taken| naive(rest, &name[taken..])),
            Some(_) => name
                .split_first()
                .is_some_and(|(byte, left)| behind_one(pattern, *byte).is_some_and(|rest| naive(rest, left))),
        }
    }

    proptest! {
        #[test]
        fn a_match_is_what_the_twin_finds(pattern in "[ab*?\\[\\]!-]{0,10}", name in "[ab\\[-]{0,10}") {
            let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
            prop_assert_eq!(is_match(pattern, name), naive(pattern, name));
        }
    }

    #[test]
    fn patterns_are_a_shells() {
        let all = |pattern: &str, names: &[&str]| {
            names.iter().all(|name| is_match(pattern.as_bytes(), name.as_bytes()))
        };
        assert!(all("train-*-of-00010", &["train-00000-of-00010", "train--of-00010"]));
        assert!(all("[a-cx]?", &["a1", "b2", "c3", "x4"]) && !all("[a-cx]?", &["d1"]));
        assert!(all("[!a]", &["b", "]"]) && !all("[!a]", &["a"]) && all("[]a]", &["]", "a"]));
        assert!(all("a\\*", &["a*"]) && !all("a\\*", &["ab"]));
        assert!(all("a[b", &["a[b"]), "a bracket without an end");
        assert!(!all("", &["a"]) && all("***", &["", "a"]));
    }

    fn names(files: &[PathBuf]) -> Vec<String> {
        files.iter().map(|file| file.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_path_means_a_file_a_folder_or_a_pattern() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in
            ["b", "a10", "a2", "Z", ".hidden", "a[1]", "a2.percolator-index", "a1.x.percolator-partial"]
        {
            fs::write(root.join(name), "").unwrap();
        }
        fs::create_dir_all(root.join("a-folder/deep")).unwrap();
        fs::write(root.join("a-folder/deep/c"), "").unwrap();
        let odd = std::ffi::OsString::from_vec(vec![b'a', 0xff]);
        fs::write(root.join(&odd), "").unwrap();
        let find = |path: &str| files(root, Path::new(path));
        assert_eq!(names(&find("b").unwrap()), ["b"]);
        assert_eq!(names(&find("a[1]").unwrap()), ["a[1]"], "what is there is no pattern");
        assert_eq!(names(&find("a*").unwrap()), ["a10", "a2", "a[1]", "a\u{fffd}"]);
        assert_eq!(names(&find("").unwrap()), ["Z", "a10", "a2", "a[1]", "a\u{fffd}", "b"]);
        assert_eq!(names(&find(".h*").unwrap()), [".hidden"]);
        assert_eq!(find("a-*/*/c").unwrap(), [root.join("a-folder/deep/c")]);
        assert_eq!(find("*/deep/*").unwrap(), [root.join("a-folder/deep/c")]);
        let nothing = find("x*").unwrap_err().to_string();
        assert!(nothing.contains("x*: no file matches this pattern"), "{nothing}");
        assert!(find("a-folder").unwrap_err().to_string().contains("no file in this folder"));
        assert!(matches!(find("x").unwrap_err(), SourceError::Io { action: "open the file", .. }));
        let absolute = root.join("a?");
        assert_eq!(names(&files(Path::new("elsewhere"), &absolute).unwrap()), ["a2", "a\u{fffd}"]);
    }
}
