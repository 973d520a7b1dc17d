//! Which files a path means: the file itself, all files of a folder, or those that match a pattern.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::error::TfRecordError;
use crate::base::glob::{self, Rules};
use crate::base::input_file;
use crate::base::whole_file::{self, kind_of};
use crate::source::SourceError;

/// The endings of files that lie beside records: what this crate keeps there, files that are being written
/// and their locks, outputs of runs that found another file at their paths; the lists that a conversion
/// writes, and what TensorFlow Datasets says of a data set.
const OTHER_ENDINGS: [&[u8]; 8] = [
    b".percolator-index",
    b".percolator-unpacked",
    b".percolator-partial",
    b".percolator-lock",
    b".percolator-kept",
    b".labels.txt",
    b".skipped.txt",
    b".json",
];

/// The ending of a file while a conversion puts another one in its place.
const REPLACED: &str = ".percolator-replaced";

/// The files that a path means, in the order of their names' bytes, as a shell sorts them in the C locale.
///
/// If something exists at the path, the path means that: the file, or the files in the folder. Otherwise it
/// is a pattern, in which `*`, `?` and `[...]` match within a name, as in a shell. Hidden files are left out,
/// unless a pattern's name begins with a dot. So are folders, and [files beside records](OTHER_ENDINGS).
pub(super) fn files(root: &Path, path: &Path) -> Result<Vec<PathBuf>, SourceError> {
    let whole = root.join(path);
    let none = |message| Err(TfRecordError::NoFiles { path: path.to_owned(), message }.into());
    match fs::metadata(&whole) {
        Ok(found) if found.is_file() => Ok(vec![whole]),
        Ok(found) if found.is_dir() => {
            let files = matching(&whole, Path::new("*"), path)?;
            if files.is_empty() { none("there is no file in this folder") } else { Ok(files) }
        }
        Ok(found) => {
            Err(TfRecordError::NoFile { file: path.to_owned(), found: kind_of(found.file_type()) }.into())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound && glob::is_pattern(path.as_os_str()) => {
            let files = matching(root, path, path)?;
            if files.is_empty() { none("no file matches this pattern") } else { Ok(files) }
        }
        Err(error) => Err(SourceError::io(path, "open the file", &error)),
    }
}

/// Whether a file would be one of those that a path means if it were there. Where that cannot be told, it is
/// not: whoever writes the file or opens the path finds out.
pub(super) fn is_among(file: &Path, root: &Path, path: &Path) -> bool {
    let whole = root.join(path);
    let found = |file: &Path| match fs::metadata(&whole) {
        Ok(found) if found.is_dir() => glob::would_match(&whole, Path::new("*"), &RULES, file),
        Ok(_) => whole_file::is_same_place(file, &whole),
        Err(_) => glob::would_match(root, path, &RULES, file),
    };
    // Either may be a link: what is written to one goes to where it leads.
    let place = whole_file::place_of(file);
    [Some(file), place.as_deref().ok()].into_iter().flatten().any(|file| found(file).unwrap_or(false))
}

/// The files that match. Those that are being replaced are none of them, for their records would come twice;
/// but if such a file has no successor yet, its records would be missing.
fn matching(root: &Path, pattern: &Path, path: &Path) -> Result<Vec<PathBuf>, SourceError> {
    let expand = |pattern: &Path| {
        let found = glob::expand(root, pattern, &RULES);
        found.map_err(|error| SourceError::io(path, "list the files", &error))
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
        // It may be there and not match, or be a folder by now.
        let is_there = input_file::is_there(&file);
        if !is_there.map_err(|error| SourceError::io(path, "look for a file", &error))? {
            return Err(TfRecordError::BeingReplaced { file }.into());
        }
    }
    Ok(files)
}

/// The path that a file had which is being replaced.
fn successor(file: &Path) -> Option<PathBuf> {
    let name = file.as_os_str().as_bytes().strip_suffix(REPLACED.as_bytes())?;
    Some(PathBuf::from(OsStr::from_bytes(name)))
}

/// A shell's rules.
const RULES: Rules = Rules { hidden: false, files: true, is_left_out: is_beside };

fn is_beside(name: &OsStr) -> bool {
    OTHER_ENDINGS.iter().any(|ending| name.as_bytes().ends_with(ending))
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
        let find = |path: &str| files(root, Path::new(path));
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
        assert!(matches!(find("x").unwrap_err(), SourceError::Io { action: "open the file", .. }));
        // A list that is being replaced is no file of records. A file that is, is missing.
        fs::write(root.join("a4.labels.txt.percolator-replaced"), "").unwrap();
        assert_eq!(names(&find("a2*").unwrap()), ["a2"]);
        fs::write(root.join("a3-of-4.percolator-replaced"), "").unwrap();
        for pattern in ["", "a*", "*-of-4", "a?-of-*"] {
            let error = find(pattern).unwrap_err();
            let SourceError::TfRecord(error) = &error else { panic!("{error}") };
            let missing = TfRecordError::BeingReplaced { file: root.join("a3-of-4") };
            assert_eq!(*error, missing, "{pattern}");
        }
        fs::create_dir(root.join("a3-of-4")).unwrap();
        let has_none = |pattern| {
            let error = find(pattern).unwrap_err();
            matches!(error, SourceError::TfRecord(TfRecordError::NoFiles { .. }))
        };
        assert!(has_none("a3*"), "a folder has the name");
        fs::remove_dir(root.join("a3-of-4")).unwrap();
        fs::write(root.join("a3-of-4"), "").unwrap();
        assert!(has_none("a3*.*"), "it is there and does not match");
        assert_eq!(names(&find("*-of-4").unwrap()), ["a3-of-4"]);
        let absolute = root.join("a?");
        assert_eq!(names(&files(Path::new("elsewhere"), &absolute).unwrap()), ["a2", "a\u{fffd}"]);
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
                let is_told = is_among(&file, Path::new(""), &path);
                fs::write(&file, "").unwrap();
                let found = files(Path::new(""), &path).unwrap_or_default();
                let is_found = found
                    .iter()
                    .any(|found| fs::canonicalize(found).unwrap() == fs::canonicalize(&file).unwrap());
                assert_eq!(is_told, is_found, "{name} {}", path.display());
                if !was_there {
                    fs::remove_file(&file).unwrap();
                }
            }
        }
        assert!(!is_among(&at("missing/one"), Path::new(""), &at("missing/*")), "no folder is there");
        // A link to a new file there, and a root that would be a pattern.
        std::os::unix::fs::symlink("data/new", at("out")).unwrap();
        assert!(is_among(&at("out"), folder.path(), Path::new("data")));
        fs::create_dir(at("r[1]")).unwrap();
        assert!(is_among(&at("r[1]/x-2"), &at("r[1]"), Path::new("x-*")));
    }
}
