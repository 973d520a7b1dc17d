//! Which files a pattern names.
//!
//! The rules are `fnmatch`'s, name by name: `*`, `?`, `[...]` with ranges, negation and classes, and `\`
//! before a character that stands for itself. No element matches a slash. Parts of a name that are not UTF-8
//! are matched byte by byte.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use crate::shown;
use crate::whole_file::folder_of;

/// What a caller decides about the names that match.
#[derive(Debug)]
pub struct Rules {
    /// Whether `*`, `?` and `[...]` match a dot at the start of a name, as in TensorFlow. A shell needs the
    /// dot in the pattern.
    pub hidden: bool,
    /// Whether the last name must be a file's.
    pub files: bool,
    /// Says which last names never match.
    pub is_left_out: fn(&OsStr) -> bool,
}

/// Whether a path has a character that makes it a pattern.
#[must_use]
pub fn is_pattern(text: &OsStr) -> bool {
    text.as_bytes().iter().any(|byte| b"*?[\\".contains(byte))
}

/// The paths that match, in the order of their bytes, as a shell sorts them in the C locale. Links are
/// followed.
///
/// # Errors
///
/// [`io::Error`], which names the path, if a folder that must be searched cannot be listed, or a name that
/// matches cannot be examined, for example because it is a broken link: it is unknown what is there, and
/// leaving it out could leave records out. Something that does not exist has no matches.
pub fn expand(root: &Path, pattern: &Path, rules: &Rules) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![root.to_owned()];
    let mut components = pattern.components().peekable();
    while let Some(component) = components.next() {
        let is_last = components.peek().is_none();
        match component {
            Component::Normal(name) if is_pattern(name) => found = in_folders(found, name, is_last, rules)?,
            other => {
                found.iter_mut().for_each(|path| path.push(other));
                found = wanted(found, is_last, rules)?;
            }
        }
    }
    found.sort_unstable_by(|one, other| one.as_os_str().as_bytes().cmp(other.as_os_str().as_bytes()));
    Ok(found)
}

/// Whether a file would match if it existed, in a folder that exists.
///
/// # Errors
///
/// [`io::Error`] as of [`expand`], or if the file's folder cannot be found.
pub fn would_match(root: &Path, pattern: &Path, rules: &Rules, file: &Path) -> io::Result<bool> {
    let (Some(last), Some(name)) = (pattern.file_name(), file.file_name()) else { return Ok(false) };
    if (rules.is_left_out)(name) || !Names::new(last, rules).have(name) {
        return Ok(false);
    }
    let folder = fs::canonicalize(folder_of(file))?;
    let folders = Rules { files: false, is_left_out: |_| false, ..*rules };
    let found = expand(root, pattern.parent().unwrap_or(Path::new("")), &folders)?;
    Ok(found.iter().any(|found| fs::canonicalize(or_current(found)).is_ok_and(|found| found == folder)))
}

/// Whether a name is one that the last part of a pattern means.
pub fn is_name(last: &OsStr, rules: &Rules, name: &OsStr) -> bool {
    !(rules.is_left_out)(name) && Names::new(last, rules).have(name)
}

/// The names that one part of a pattern means.
struct Names {
    elements: Vec<u32>,
    shows_hidden: bool,
}

impl Names {
    fn new(pattern: &OsStr, rules: &Rules) -> Self {
        let pattern = pattern.as_bytes();
        Names { elements: characters(pattern), shows_hidden: rules.hidden || pattern.starts_with(b".") }
    }

    fn have(&self, name: &OsStr) -> bool {
        let name = name.as_bytes();
        (self.shows_hidden || !name.starts_with(b".")) && is_match(&self.elements, &characters(name))
    }
}

/// A folder's path, where the empty one is the current folder.
fn or_current(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

/// The paths in these folders whose names match.
fn in_folders(
    folders: Vec<PathBuf>,
    pattern: &OsStr,
    is_last: bool,
    rules: &Rules,
) -> io::Result<Vec<PathBuf>> {
    let names = Names::new(pattern, rules);
    let mut found = Vec::new();
    for folder in folders {
        let place = or_current(&folder);
        let entries = match fs::read_dir(place) {
            Err(error) if is_missing(&error) => continue,
            entries => entries.map_err(|error| named(place, &error))?,
        };
        for entry in entries {
            let name = entry.map_err(|error| named(place, &error))?.file_name();
            let is_left_out = is_last && (rules.is_left_out)(&name);
            if !is_left_out && names.have(&name) {
                found.push(folder.join(&name));
            }
        }
    }
    wanted(found, is_last, rules)
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Those of the paths at which something exists that can be the next part of a path.
fn wanted(paths: Vec<PathBuf>, is_last: bool, rules: &Rules) -> io::Result<Vec<PathBuf>> {
    let mut wanted = Vec::with_capacity(paths.len());
    for path in paths {
        let is_wanted = match fs::metadata(&path) {
            Ok(found) if is_last => !rules.files || found.is_file(),
            Ok(found) => found.is_dir(),
            Err(error)
                if is_missing(&error) && fs::symlink_metadata(&path).is_err_and(|at| is_missing(&at)) =>
            {
                false
            }
            Err(error) => return Err(named(&path, &error)),
        };
        wanted.extend(is_wanted.then_some(path));
    }
    Ok(wanted)
}

/// An error with the path that it is about.
fn named(path: &Path, error: &io::Error) -> io::Error {
    let is_link = fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink());
    let shown = shown::path(path);
    let said = match is_link && is_missing(error) {
        true => format!("{shown} is a link that leads nowhere: remove it, or mount what it leads to"),
        false => format!("{shown}: {error}"),
    };
    io::Error::new(error.kind(), said)
}

/// A text's characters. Bytes that are not UTF-8 come after all characters.
fn characters(text: &[u8]) -> Vec<u32> {
    let mut characters = Vec::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        characters.extend(chunk.valid().chars().map(u32::from));
        characters.extend(chunk.invalid().iter().map(|byte| char::MAX as u32 + 1 + u32::from(*byte)));
    }
    characters
}

const STAR: u32 = '*' as u32;
const ANY: u32 = '?' as u32;
const OPEN: u32 = '[' as u32;
const CLOSE: u32 = ']' as u32;
const COLON: u32 = ':' as u32;
const DASH: u32 = '-' as u32;
const NOT: u32 = '!' as u32;
const CARET: u32 = '^' as u32;
const ESCAPE: u32 = '\\' as u32;

/// Whether a name matches a pattern. Backtracks only to the last `*`, so the time is at most the product of
/// both lengths.
fn is_match(pattern: &[u32], name: &[u32]) -> bool {
    let (mut rest, mut left) = (pattern, name);
    let mut star: Option<(&[u32], &[u32])> = None;
    loop {
        if let Some((&STAR, behind)) = rest.split_first() {
            rest = behind;
            star = Some((behind, left));
            continue;
        }
        if let Some((character, others)) = left.split_first() {
            if let Some(behind) = behind_one(rest, *character) {
                (rest, left) = (behind, others);
                continue;
            }
        } else if rest.is_empty() {
            return true;
        }
        // The last `*` takes one character more.
        let Some((behind, taken_to)) = star else { return false };
        let Some((_, others)) = taken_to.split_first() else { return false };
        (rest, left) = (behind, others);
        star = Some((behind, others));
    }
}

/// The rest of the pattern if its first element matches this character; otherwise `None`.
fn behind_one(pattern: &[u32], character: u32) -> Option<&[u32]> {
    match pattern {
        [ANY, behind @ ..] => Some(behind),
        [ESCAPE, escaped, behind @ ..] => (*escaped == character).then_some(behind),
        [OPEN, set @ ..] => match behind_set(set, character) {
            Some((is_in, behind)) => is_in.then_some(behind),
            // A bracket that is not closed stands for itself.
            None => (character == OPEN).then_some(set),
        },
        [literal, behind @ ..] => (*literal == character && *literal != ESCAPE).then_some(behind),
        [] => None,
    }
}

/// Whether a character is in the set that begins here, and what follows the set; `None` if the set has no
/// end.
fn behind_set(set: &[u32], character: u32) -> Option<(bool, &[u32])> {
    let (is_negated, mut rest) = match set {
        [NOT | CARET, rest @ ..] => (true, rest),
        _ => (false, set),
    };
    let (mut is_in, mut is_first) = (false, true);
    loop {
        match rest {
            [CLOSE, behind @ ..] if !is_first => return Some((is_in != is_negated, behind)),
            [OPEN, COLON, class @ ..] if class.windows(2).any(|end| end == [COLON, CLOSE]) => {
                let end = class.windows(2).position(|end| end == [COLON, CLOSE])?;
                is_in |= is_in_class(&class[..end], character);
                rest = &class[end + 2..];
            }
            _ => {
                let (low, behind) = character_of_set(rest)?;
                let (high, behind) = match behind {
                    [DASH, end @ ..] if end.first().is_some_and(|end| *end != CLOSE) => {
                        character_of_set(end)?
                    }
                    _ => (low, behind),
                };
                is_in |= (low..=high).contains(&character);
                rest = behind;
            }
        }
        is_first = false;
    }
}

/// One character of a set, and what follows.
fn character_of_set(set: &[u32]) -> Option<(u32, &[u32])> {
    match set {
        [ESCAPE, escaped, behind @ ..] => Some((*escaped, behind)),
        [character, behind @ ..] => Some((*character, behind)),
        [] => None,
    }
}

fn is_in_class(class: &[u32], character: u32) -> bool {
    let Some(character) = char::from_u32(character) else { return false };
    let class: Option<String> = class.iter().map(|letter| char::from_u32(*letter)).collect();
    match class.as_deref() {
        Some("alnum") => character.is_alphanumeric(),
        Some("alpha") => character.is_alphabetic(),
        Some("blank") => character == ' ' || character == '\t',
        Some("cntrl") => character.is_control(),
        Some("digit") => character.is_ascii_digit(),
        Some("graph") => !character.is_control() && !character.is_whitespace(),
        Some("lower") => character.is_lowercase(),
        Some("print") => !character.is_control(),
        Some("punct") => character.is_ascii_punctuation(),
        Some("space") => character.is_whitespace(),
        Some("upper") => character.is_uppercase(),
        Some("xdigit") => character.is_ascii_hexdigit(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The naive twin: tries every length for every `*`.
    fn naive(pattern: &[u32], name: &[u32]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((&STAR, rest)) => (0..=name.len()).any(|taken| naive(rest, &name[taken..])),
            Some(_) => name
                .split_first()
                .is_some_and(|(one, left)| behind_one(pattern, *one).is_some_and(|rest| naive(rest, left))),
        }
    }

    proptest! {
        #[test]
        fn a_match_is_what_the_twin_finds(pattern in "[ab*?\\[\\]!:\\\\-]{0,10}", name in "[ab\\[-]{0,10}") {
            let (pattern, name) = (characters(pattern.as_bytes()), characters(name.as_bytes()));
            prop_assert_eq!(is_match(&pattern, &name), naive(&pattern, &name));
        }
    }

    #[test]
    fn names_match_as_by_fnmatch() {
        let all = |pattern: &str, names: &[&[u8]]| {
            names.iter().all(|name| is_match(&characters(pattern.as_bytes()), &characters(name)))
        };
        let none = |pattern: &str, names: &[&[u8]]| {
            !names.iter().any(|name| is_match(&characters(pattern.as_bytes()), &characters(name)))
        };
        assert!(all("train-*-of-00010", &[b"train-00000-of-00010", b"train--of-00010"]));
        assert!(all("[a-cx]?", &[b"a1", b"b2", b"c3", b"x4"]) && none("[a-cx]?", &[b"d1", b"a"]));
        assert!(all("[!a]", &[b"b", b"]"]) && none("[!a]", &[b"a"]) && all("[]a]", &[b"]", b"a"]));
        assert!(
            all("[!]]", &[b"a"]) && all("[^a]", &[b"b"]) && all("[a-]", &[b"-"]) && none("[z-a]", &[b"m"])
        );
        assert!(all("a\\*", &[b"a*"]) && none("a\\*", &[b"ab"]) && all("[a\\]]", &[b"]"]));
        assert!(all("a[b", &[b"a[b"]) && all("[", &[b"["]), "a bracket without an end");
        assert!(
            none("", &[b"a"]) && all("***", &[b"", b"a"]) && all("*a*", &[b"bab"]) && none("*a", &[b"ab"])
        );
        assert!(all("a*b*c", &[b"aXbYbZc"]) && none("a*b", &[b"acbd"]) && none("a\\", &[b"b", b"a"]));
        assert!(all("[[:digit:]]*", &[b"7a"]) && none("[[:alpha:]]", &[b"7", b":", b"["]));
        assert!(all("?", &["é".as_bytes(), b"\xff"]) && none("?", &[b"", b"ab", b"\xff\xff"]));
        assert!(all("[à-ü]*", &["é".as_bytes()]) && all("a*", &[b"a\xff"]));
    }

    const SHELL: Rules = Rules { hidden: false, files: true, is_left_out: |_| false };

    #[test]
    fn paths_are_expanded_name_by_name_and_sorted_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["a/x", "a/y", "a-b/x", "b/x", "a/.z", "a/x.md", ".c/x"] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let found = |pattern: &str, rules: &Rules| -> Vec<String> {
            let found = expand(root, Path::new(pattern), rules).unwrap();
            found.iter().map(|path| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned()).collect()
        };
        // A dash is less than a slash.
        assert_eq!(found("*/x", &SHELL), ["a-b/x", "a/x", "b/x"]);
        assert_eq!(found("a*/*", &SHELL), ["a-b/x", "a/x", "a/x.md", "a/y"]);
        assert_eq!(found("a/.*", &SHELL), ["a/.z"]);
        assert_eq!(found("*", &SHELL), [""; 0], "there are only folders");
        assert_eq!(found("b/x", &SHELL), ["b/x"]);
        assert_eq!(found("b/x/*", &SHELL), [""; 0]);
        assert_eq!(found("missing/*", &SHELL), [""; 0]);
        let all = Rules { hidden: true, files: false, is_left_out: |name| name == "x" };
        assert_eq!(found("a/*", &all), ["a/.z", "a/x.md", "a/y"]);
        assert_eq!(found("*", &all), [".c", "a", "a-b", "b"]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes links")]
    fn what_cannot_be_looked_at_is_an_error_and_not_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["a/x-0", "b/x-0"] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink("nowhere", root.join("a/x-1")).unwrap();
        std::os::unix::fs::symlink("nowhere", root.join("c")).unwrap();
        let found = |pattern: &str| {
            let found = expand(root, Path::new(pattern), &SHELL).map_err(|error| error.to_string());
            found.map(|paths| paths.len())
        };
        assert_eq!(found("b/x-*"), Ok(1));
        assert_eq!(found("a/x-0"), Ok(1));
        assert_eq!(found("[ab]/x-0"), Ok(2));
        for pattern in ["a/x-*", "?/x-0", "c/x-*", "a/x-1"] {
            let error = found(pattern).unwrap_err();
            assert!(error.contains("is a link that leads nowhere"), "{pattern}: {error}");
        }
        // A loop of links.
        fs::remove_file(root.join("c")).unwrap();
        std::os::unix::fs::symlink("d", root.join("d")).unwrap();
        let error = found("?/x-0").unwrap_err();
        assert!(error.contains("/d: "), "{error}");
    }
}
