//! A data set: the shards that paths mean, in their order.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator_files::glob::{self, Rules};
use percolator_files::{input_file, shown};

use crate::{FormatError, Grammar, Options, Shard, kinds};

/// The bytes of a file by which its format is told.
pub(crate) const HEAD_BYTES: u64 = 512;

/// Shards whose records follow one another, in the order of the paths that they were opened by.
#[derive(Clone, Debug)]
pub struct DataSet {
    shards: Vec<Arc<dyn Shard>>,
    format: &'static str,
    /// The settings that it was opened with, which decide what its records are.
    settings: Vec<(String, String)>,
}

impl DataSet {
    /// Opens paths: files, folders that one index describes, folders of files, and patterns with `*`, `?`,
    /// `[...]`, and ranges in braces, such as `train-{000000..000099}.tar`. The files of a folder or a
    /// pattern come in the order of their names' bytes, as a shell sorts them in the C locale.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if nothing is at a path, if it has no format that is read, if the shards do not fit
    /// together, or if one cannot be opened.
    pub fn open(paths: &[impl AsRef<Path>], options: &Options) -> Result<Self, FormatError> {
        Self::open_below(Path::new(""), paths, options)
    }

    /// As [`open`](Self::open). Relative paths begin at `root`, which is not part of a pattern.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_below(
        root: &Path,
        paths: &[impl AsRef<Path>],
        options: &Options,
    ) -> Result<Self, FormatError> {
        let (mut shards, mut format): (Vec<Arc<dyn Shard>>, _) = (Vec::new(), None);
        for path in paths {
            for place in places(root, path.as_ref())? {
                let kind = kinds::of(&place, options)?;
                let first = *format.get_or_insert(kind.name());
                if first != kind.name() {
                    let what = format!(
                        "it is {}, and what comes before it is {first}: open them apart",
                        kind.name()
                    );
                    return Err(FormatError::refused(&place, what));
                }
                shards.extend(kind.open(&place, options)?);
            }
        }
        let Some(format) = format else {
            return Err(FormatError::refused(Path::new(""), "no path was given"));
        };
        check_alike(&shards)?;
        Ok(DataSet { shards, format, settings: options.settings.clone() })
    }

    /// The shards, in order.
    #[must_use]
    pub fn shards(&self) -> &[Arc<dyn Shard>] {
        &self.shards
    }

    /// The name of the format: `"tar"`, `"parquet"`.
    #[must_use]
    pub fn format(&self) -> &'static str {
        self.format
    }

    /// The settings of the format that it was opened with.
    #[must_use]
    pub fn settings(&self) -> &[(String, String)] {
        &self.settings
    }

    /// What finds the parts in the records of all shards; `None` if there is no shard.
    #[must_use]
    pub fn grammar(&self) -> Option<Arc<dyn Grammar>> {
        self.shards.first().map(|shard| shard.grammar())
    }
}

/// Checks that one grammar reads the records of all shards.
fn check_alike(shards: &[Arc<dyn Shard>]) -> Result<(), FormatError> {
    let Some((first, others)) = shards.split_first() else { return Ok(()) };
    let wanted = first.grammar().description();
    others.iter().try_for_each(|other| {
        let found = other.grammar().description();
        if found == wanted {
            return Ok(());
        }
        let what = format!(
            "its records have {found}, and those of {} have {wanted}: open them apart",
            shown::path(first.path())
        );
        Err(FormatError::refused(other.path(), what))
    })
}

/// The files, or the folders that one index describes, that a path means.
pub(crate) fn places(root: &Path, path: &Path) -> Result<Vec<PathBuf>, FormatError> {
    let whole = root.join(path);
    if fs::symlink_metadata(&whole).is_ok() {
        return places_at(&whole);
    }
    let mut found = Vec::new();
    for pattern in braces(path)? {
        let whole = root.join(&pattern);
        if fs::symlink_metadata(&whole).is_ok() {
            found.extend(places_at(&whole)?);
        } else if glob::is_pattern(pattern.as_os_str()) {
            let rules = Rules { hidden: false, files: false, is_left_out };
            let matches = glob::expand(root, &pattern, &rules);
            let matches = matches.map_err(|error| FormatError::io(&whole, "search the pattern", error))?;
            for place in matches {
                found.extend(places_at(&place)?);
            }
        } else if kinds::is_virtual(&whole) {
            found.push(whole);
        } else {
            return Err(FormatError::io(&whole, "find it", io::ErrorKind::NotFound.into()));
        }
    }
    if found.is_empty() {
        return Err(FormatError::refused(
            path,
            "no file has a name like this: quote the pattern, check the folder",
        ));
    }
    Ok(found)
}

fn places_at(path: &Path) -> Result<Vec<PathBuf>, FormatError> {
    if !path.is_dir() || kinds::is_folder_of_one(path) {
        return Ok(vec![path.to_owned()]);
    }
    let listed = |error| FormatError::io(path, "list the folder", error);
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(listed)? {
        let entry = entry.map_err(listed)?;
        if entry.file_name().as_bytes().starts_with(b".") || is_left_out(&entry.file_name()) {
            continue;
        }
        // A link that leads nowhere is an error: its records would be missing.
        let found = fs::metadata(entry.path());
        if found.map_err(|error| FormatError::io(&entry.path(), "find it", error))?.is_file() {
            files.push(entry.path());
        }
    }
    files.sort_unstable_by(|one, other| one.as_os_str().as_bytes().cmp(other.as_os_str().as_bytes()));
    if files.is_empty() {
        return Err(FormatError::refused(path, "a folder without files of records"));
    }
    Ok(files)
}

/// Whether a file is kept beside records: an index, a description, a checksum.
fn is_left_out(name: &OsStr) -> bool {
    const ENDINGS: [&[u8]; 10] = [
        b".percolator-index",
        b".percolator-partial",
        b".percolator-lock",
        b".json",
        b".idx",
        b".md",
        b".md5",
        b".sha256",
        b".lst",
        b"_SUCCESS",
    ];
    ENDINGS.iter().any(|ending| name.as_bytes().ends_with(ending))
}

/// The names that ranges in braces stand for: `{08..11}` counts with as many digits as its beginning has.
fn braces(path: &Path) -> Result<Vec<PathBuf>, FormatError> {
    /// More shards than any data set has.
    const NAMES_MAX: u64 = 1_000_000;
    const RANGES_MAX: usize = 8;
    const DIGITS_MAX: usize = 20;

    let Some(text) = path.to_str() else { return Ok(vec![path.to_owned()]) };
    let Some((before, rest)) = text.split_once('{') else { return Ok(vec![path.to_owned()]) };
    let Some((range, after)) = rest.split_once('}') else { return Ok(vec![path.to_owned()]) };
    if text.matches('{').count() > RANGES_MAX {
        return Err(FormatError::refused(path, format!("it has more than {RANGES_MAX} ranges in braces")));
    }
    let names: Vec<String> = match range.split_once("..") {
        None => range.split(',').map(str::to_owned).collect(),
        Some((start, end)) => {
            let wrong =
                || FormatError::refused(path, format!("{{{range}}} is no range such as {{000000..000099}}"));
            let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
            let (first, last) = (number(start)?, number(end)?);
            if last < first || last - first >= NAMES_MAX || start.len() > DIGITS_MAX {
                return Err(wrong());
            }
            let digits = if start.starts_with('0') { start.len() } else { 0 };
            (first..=last).map(|number| format!("{number:0digits$}")).collect()
        }
    };
    let mut found = Vec::new();
    for name in names {
        found.extend(braces(Path::new(&format!("{before}{name}{after}")))?);
        if found.len() as u64 > NAMES_MAX {
            let what = format!("its ranges stand for more than {NAMES_MAX} names");
            return Err(FormatError::refused(path, what));
        }
    }
    Ok(found)
}

/// The first bytes of a file; empty for a folder.
pub(crate) fn head_of(path: &Path) -> Result<Vec<u8>, FormatError> {
    let mut head = Vec::new();
    if path.is_dir() {
        return Ok(head);
    }
    let read = input_file::open(path).and_then(|(file, _)| file.take(HEAD_BYTES).read_to_end(&mut head));
    read.map_err(|error| FormatError::io(path, "read the file", error))?;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_in_braces_is_all_of_its_numbers() {
        let names = |path: &str| -> Vec<String> {
            braces(Path::new(path)).unwrap().iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(names("a-{08..11}.tar"), ["a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar"]);
        assert_eq!(names("{8..9}/{a,b}"), ["8/a", "8/b", "9/a", "9/b"]);
        assert_eq!(names("plain"), ["plain"]);
        assert_eq!(names("open{"), ["open{"]);
        let zeros = format!("{{{}..1}}", "0".repeat(70_000));
        let product = "{0..999999}".repeat(2);
        for wrong in ["{9..8}", "{a..b}", "{0..9999999999}", &zeros, &product, &"{a,b}".repeat(40)] {
            assert!(braces(Path::new(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_link_that_leads_nowhere_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.jsonl"), []).unwrap();
        std::os::unix::fs::symlink("gone", folder.path().join("b.jsonl")).unwrap();
        let error = places_at(folder.path()).unwrap_err().to_string();
        assert!(error.contains("b.jsonl"), "{error}");
        std::os::unix::fs::symlink("gone", folder.path().join(".c.jsonl")).unwrap();
        fs::remove_file(folder.path().join("b.jsonl")).unwrap();
        assert_eq!(places_at(folder.path()).unwrap(), [folder.path().join("a.jsonl")]);
    }
}
