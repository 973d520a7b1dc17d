//! Which files a path means: the file itself, all files of a folder, or those that match a pattern.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use percolator_files::glob::{self, Rules};
use percolator_files::input_file;
use percolator_files::what::{self, Kind};
use percolator_files::whole_file::{self, kind_of};

use crate::error::TfRecordError;

/// The endings of files that are kept beside records: those that Percolator keeps there, or once kept, files
/// that are being written and their locks, outputs of runs that found another file at their paths; the lists
/// that a conversion writes, TensorFlow Datasets' descriptions, indexes of other readers, checksums, and
/// pages.
const OTHER_ENDINGS: [&[u8]; 16] = [
    b".percolator-index",
    b".percolator-unpacked",
    b".percolator-partial",
    b".percolator-lock",
    b".percolator-kept",
    b".labels.txt",
    b".skipped.txt",
    b".json",
    b".idx",
    b".index",
    b".md",
    b".md5",
    b".sha256",
    b".pbtxt",
    b".html",
    b"README.txt",
];

/// Whole names of files that are kept beside records.
const OTHER_NAMES: [&[u8]; 4] = [b"README", b"LICENSE", b"LICENSE.txt", b"_SUCCESS"];

/// The ending of a file while a conversion puts another one in its place.
const REPLACED: &str = ".percolator-replaced";

/// Returns the files that a path means, in the order of their names' bytes, as a shell sorts them in the C
/// locale.
///
/// If something exists at the path, the path means that: the file, or the files in the folder. Otherwise it
/// is a pattern, in which `*`, `?` and `[...]` match within a name, as in a shell. Hidden files are left out,
/// unless a pattern's name begins with a dot. So are folders, and files that are kept beside records: a
/// README, checksums, indexes, lists.
///
/// # Errors
///
/// [`TfRecordError`] if there are none, if one of those that the others' names count is missing
/// (`train-00001-of-00003`), or if one is being replaced.
pub fn files(path: impl AsRef<Path>) -> Result<Vec<PathBuf>, TfRecordError> {
    files_in("", path)
}

/// Returns the [files] that a path means. A relative path begins at `root`, which is not part of a pattern.
///
/// # Errors
///
/// As [`files`].
pub fn files_in(root: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<Vec<PathBuf>, TfRecordError> {
    let (root, path) = (root.as_ref(), path.as_ref());
    let whole = root.join(path);
    let none = |message| Err(TfRecordError::NoFiles { path: path.to_owned(), message });
    let instead = |wanted| {
        let thing = what::instead_of(&[Kind::TfRecord], &whole)?.to_string();
        Some(TfRecordError::Instead { path: whole.clone(), wanted, thing })
    };
    match fs::metadata(&whole) {
        Ok(found) if found.is_file() => Ok(vec![whole]),
        Ok(found) if found.is_dir() => {
            let files = matching(&whole, Path::new("*"), path)?;
            if files.is_empty() {
                let instead = instead("a folder of TFRecord files");
                return instead.map_or_else(|| none("there is no file in this folder"), Err);
            }
            all_there(path, Path::new("*"), &files)?;
            Ok(files)
        }
        Ok(found) => Err(TfRecordError::NoFile { file: path.to_owned(), found: kind_of(found.file_type()) }),
        Err(error) if error.kind() == io::ErrorKind::NotFound && glob::is_pattern(path.as_os_str()) => {
            let files = matching(root, path, path)?;
            if files.is_empty() {
                return none("no file matches this pattern");
            }
            all_there(path, path, &files)?;
            Ok(files)
        }
        Err(error) => {
            let known = (error.kind() == io::ErrorKind::NotFound).then(|| instead("a TFRecord file"));
            Err(known.flatten().unwrap_or_else(|| TfRecordError::io(path, "open the file", &error)))
        }
    }
}

/// For files that say how many they are (`train-00001-of-00003`), checks that none that the pattern covers is
/// missing.
fn all_there(path: &Path, pattern: &Path, files: &[PathBuf]) -> Result<(), TfRecordError> {
    let mut families: BTreeMap<Family<'_>, BTreeSet<u32>> = BTreeMap::new();
    for (family, number) in files.iter().filter_map(|file| Family::of(file)) {
        families.entry(family).or_default().insert(number);
    }
    for (family, found) in families {
        // Some count from 1.
        let numbers = match found.contains(&0) || !found.contains(&family.files) {
            true => 0..=family.files - 1,
            false => 1..=family.files,
        };
        let missing = numbers.filter(|number| !found.contains(number)).map(|number| family.name(number));
        let is_meant = |name: &OsString| {
            let last = pattern.file_name().unwrap_or(OsStr::new("*"));
            glob::is_name(last, &RULES, name) && !family.folder.join(name).exists()
        };
        let mut missing = missing.filter(is_meant);
        if let Some(first) = missing.next() {
            let (path, files) = (path.to_owned(), family.files);
            return Err(TfRecordError::Missing { path, first, missing: 1 + missing.count(), files });
        }
    }
    Ok(())
}

/// Files that say how many they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Family<'a> {
    folder: &'a Path,
    /// The names' parts before the number, between both numbers, and after the number of files.
    parts: [&'a [u8]; 3],
    /// The digits of a number.
    digits: usize,
    files: u32,
    files_digits: usize,
}

impl<'a> Family<'a> {
    /// More files than any data set has.
    const FILES_MAX: u32 = 1_000_000;

    /// The family of a file, and its number in it.
    fn of(file: &'a Path) -> Option<(Self, u32)> {
        let name = file.file_name()?.as_bytes();
        let at = name.windows(4).rposition(|part| {
            part.get(1..3) == Some(b"of") && part.iter().step_by(3).all(|sign| b"-_.".contains(sign))
        })?;
        let (before, rest) = name.split_at(at);
        let (between, rest) = rest.split_at(4);
        let digits = before.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let files_digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (stem, number) = before.split_at(before.len() - digits);
        let (files, ending) = rest.split_at(files_digits);
        let whole = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u32>().ok();
        let (number, files) = (whole(number)?, whole(files)?);
        let parts = [stem, between, ending];
        let folder = file.parent().unwrap_or(Path::new(""));
        let is_family = (1..=Self::FILES_MAX).contains(&files) && number <= files;
        is_family.then_some((Family { folder, parts, digits, files, files_digits }, number))
    }

    /// The name of the file of this number.
    fn name(&self, number: u32) -> OsString {
        let Family { parts: [stem, between, ending], digits, files, files_digits, .. } = *self;
        let numbers = [format!("{number:0digits$}"), format!("{files:0files_digits$}")];
        let [number, files] = numbers.each_ref().map(|number| number.as_bytes());
        OsString::from_vec([stem, number, between, files, ending].concat())
    }
}

/// Returns whether a file would be one of those that a path [means](files_in) if it existed: its contents
/// would be taken for records. If that cannot be determined, the answer is no: writing the file or opening
/// the path will show it.
#[must_use]
pub fn is_among(file: impl AsRef<Path>, root: impl AsRef<Path>, path: impl AsRef<Path>) -> bool {
    let (file, root, path) = (file.as_ref(), root.as_ref(), path.as_ref());
    let whole = root.join(path);
    let found = |file: &Path| match fs::metadata(&whole) {
        Ok(found) if found.is_dir() => glob::would_match(&whole, Path::new("*"), &RULES, file),
        Ok(_) => whole_file::is_same_place(file, &whole),
        Err(_) => glob::would_match(root, path, &RULES, file),
    };
    // Either may be a link: writing to a link writes to its target.
    let place = whole_file::place_of(file);
    [Some(file), place.as_deref().ok()].into_iter().flatten().any(|file| found(file).unwrap_or(false))
}

/// The files that match, except those that are being replaced, because their records would come twice. But if
/// such a file has no successor yet, its records would be missing.
fn matching(root: &Path, pattern: &Path, path: &Path) -> Result<Vec<PathBuf>, TfRecordError> {
    let expand = |pattern: &Path| {
        let found = glob::expand(root, pattern, &RULES);
        found.map_err(|error| TfRecordError::io(path, "list the files", &error))
    };
    let (mut replaced, files): (Vec<_>, Vec<_>) =
        expand(pattern)?.into_iter().partition(|file| successor(file).is_some());
    // A pattern need not match the longer name.
    let mut longer = pattern.as_os_str().to_owned();
    longer.push(REPLACED);
    replaced.extend(expand(Path::new(&longer))?);
    for file in replaced.iter().filter_map(|file| successor(file)) {
        if files.contains(&file) || file.file_name().is_some_and(is_beside) {
            continue;
        }
        // It may exist but not match, or be a folder by now.
        let is_there = input_file::is_there(&file);
        if !is_there.map_err(|error| TfRecordError::io(path, "look for a file", &error))? {
            return Err(TfRecordError::BeingReplaced { file });
        }
    }
    Ok(files)
}

/// The former path of a file that is being replaced.
fn successor(file: &Path) -> Option<PathBuf> {
    let name = file.as_os_str().as_bytes().strip_suffix(REPLACED.as_bytes())?;
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

/// A shell's rules.
const RULES: Rules = Rules { hidden: false, files: true, is_left_out: is_beside };

fn is_beside(name: &OsStr) -> bool {
    let name = name.as_bytes();
    OTHER_NAMES.contains(&name) || OTHER_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    fn names(files: &[PathBuf]) -> Vec<String> {
        files.iter().map(|file| file.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_path_means_a_file_a_folder_or_a_pattern() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let kept = ["a2.percolator-index", "a1.x.percolator-partial", "a2.percolator-replaced"];
        let beside = ["a.labels.txt", "dataset_info.json"];
        for name in ["b", "a10", "a2", "Z", ".hidden", "a[1]"].into_iter().chain(kept).chain(beside) {
            fs::write(root.join(name), "").unwrap();
        }
        fs::create_dir_all(root.join("a-folder/deep")).unwrap();
        fs::write(root.join("a-folder/deep/c"), "").unwrap();
        let odd = std::ffi::OsString::from_vec(vec![b'a', 0xff]);
        fs::write(root.join(&odd), "").unwrap();
        let find = |path: &str| files_in(root, path);
        assert_eq!(names(&find("b").unwrap()), ["b"]);
        assert_eq!(names(&find("a[1]").unwrap()), ["a[1]"], "what is there is no pattern");
        assert_eq!(names(&find("a*").unwrap()), ["a10", "a2", "a[1]", "a\u{fffd}"]);
        assert_eq!(names(&find("").unwrap()), ["Z", "a10", "a2", "a[1]", "a\u{fffd}", "b"]);
        assert_eq!(names(&find(".h*").unwrap()), [".hidden"]);
        assert_eq!(names(&find("a.labels.txt").unwrap()), ["a.labels.txt"], "what is named is meant");
        assert_eq!(find("a-*/*/c").unwrap(), [root.join("a-folder/deep/c")]);
        assert_eq!(find("*/deep/*").unwrap(), [root.join("a-folder/deep/c")]);
        let nothing = find("x*").unwrap_err().to_string();
        assert!(nothing.contains("x*: no file matches this pattern"), "{nothing}");
        assert!(find("a-folder").unwrap_err().to_string().contains("no file in this folder"));
        assert!(matches!(find("x").unwrap_err(), TfRecordError::Io { action: "open the file", .. }));
        // A list that is being replaced is no file of records. A file that is, is missing.
        fs::write(root.join("a4.labels.txt.percolator-replaced"), "").unwrap();
        assert_eq!(names(&find("a2*").unwrap()), ["a2"]);
        fs::write(root.join("a3-of-4.percolator-replaced"), "").unwrap();
        for pattern in ["", "a*", "*-of-4", "a?-of-*"] {
            let missing = TfRecordError::BeingReplaced { file: root.join("a3-of-4") };
            assert_eq!(find(pattern), Err(missing), "{pattern}");
        }
        fs::create_dir(root.join("a3-of-4")).unwrap();
        let has_none = |pattern| {
            let error = find(pattern).unwrap_err();
            matches!(error, TfRecordError::NoFiles { .. })
        };
        assert!(has_none("a3*"), "a folder has the name");
        fs::remove_dir(root.join("a3-of-4")).unwrap();
        fs::write(root.join("a3-of-4"), "").unwrap();
        assert!(has_none("a3*.*"), "it is there and does not match");
        assert_eq!(names(&find("a3-of-*").unwrap()), ["a3-of-4"]);
        let absolute = root.join("a?");
        assert_eq!(names(&files_in("elsewhere", &absolute).unwrap()), ["a2", "a\u{fffd}"]);
    }

    #[test]
    fn a_missing_file_of_a_family_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let find = |pattern: &str| files_in(root, pattern).map(|files| names(&files));
        let missing = |pattern: &str| match find(pattern) {
            Err(TfRecordError::Missing { first, missing, files, .. }) => {
                (first.into_string().unwrap(), missing, files)
            }
            other => panic!("{pattern}: {other:?}"),
        };
        let due = |first: &str, missing: usize, files: u32| (first.to_owned(), missing, files);
        for name in ["train-00000-of-00003", "train-00002-of-00003", "test-00000-of-00001"] {
            fs::write(root.join(name), "").unwrap();
        }
        for pattern in ["", "*", "train-*", "train-?????-of-00003", "t*[0-9]"] {
            assert_eq!(missing(pattern), due("train-00001-of-00003", 1, 3), "{pattern}");
        }
        // What a pattern leaves out is not meant.
        assert_eq!(find("test-*").unwrap().len(), 1);
        assert_eq!(find("train-0000[02]-of-*").unwrap().len(), 2);
        assert_eq!(find("train-00000*").unwrap().len(), 1);
        fs::write(root.join("train-00001-of-00003"), "").unwrap();
        assert_eq!(find("").unwrap().len(), 4);
        // Other families of names: with endings, counted from 1, of any width, with other signs.
        for (present, first, gone) in [
            (
                &["a-0000-of-0003.tfrecord.gz", "a-0001-of-0003.tfrecord.gz"][..],
                "a-0002-of-0003.tfrecord.gz",
                1,
            ),
            (&["b_1_of_4", "b_4_of_4"], "b_2_of_4", 2),
            (&["c.tfrecord-00002-of-00004"], "c.tfrecord-00000-of-00004", 3),
            (&["x-1-of-2-00001-of-00002"], "x-1-of-2-00000-of-00002", 1),
        ] {
            let folder = tempfile::tempdir().unwrap();
            present.iter().for_each(|name| fs::write(folder.path().join(name), "").unwrap());
            match files(folder.path()) {
                Err(TfRecordError::Missing { first: found, missing, .. }) => {
                    assert_eq!((&*found.to_string_lossy(), missing), (first, gone));
                }
                other => panic!("{first}: {other:?}"),
            }
        }
        for present in [&["b-1-of-2", "b-2-of-2"][..], &["d-7-of-3"], &["part-of-it", "1-of-", "-of-0"]] {
            let folder = tempfile::tempdir().unwrap();
            present.iter().for_each(|name| fs::write(folder.path().join(name), "").unwrap());
            assert_eq!(files(folder.path()).unwrap().len(), present.len());
        }
    }

    #[test]
    fn what_lies_beside_records_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a.tfrecord", "a.tfrecord.idx", "README.md", "README", "LICENSE", "_SUCCESS", "a.md5"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(names(&files(folder.path()).unwrap()), ["a.tfrecord"]);
    }

    #[test]
    fn a_file_is_among_those_of_a_path_if_they_are_found_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("data/deep")).unwrap();
        std::os::unix::fs::symlink("data", at("link")).unwrap();
        fs::write(at("data/one"), "").unwrap();
        let paths =
            ["data", "data/", "data/*", "link/*n*", "*/x-?", "d*/deep/[!x]*", "data/one", "data/.*", "none"];
        for name in
            ["one", "x-1", "x-12", "y-n", ".hidden", "a.json", "deep/x-1", "deep/y", "a.percolator-kept"]
        {
            let file = at("data").join(name);
            let was_there = file.exists();
            for path in paths.map(at) {
                let is_told = is_among(&file, "", &path);
                fs::write(&file, "").unwrap();
                let found = files(&path).unwrap_or_default();
                let is_found = found
                    .iter()
                    .any(|found| fs::canonicalize(found).unwrap() == fs::canonicalize(&file).unwrap());
                assert_eq!(is_told, is_found, "{name} {}", path.display());
                if !was_there {
                    fs::remove_file(&file).unwrap();
                }
            }
        }
        assert!(!is_among(at("missing/one"), "", at("missing/*")), "no folder is there");
        // A link to a new file there, and a root that would be a pattern.
        std::os::unix::fs::symlink("data/new", at("out")).unwrap();
        assert!(is_among(at("out"), folder.path(), "data"));
        fs::create_dir(at("r[1]")).unwrap();
        assert!(is_among(at("r[1]/x-2"), at("r[1]"), "x-*"));
    }
}
