//! Which files a pattern names, by the rules of TensorFlow's `gfile.Glob`: those of `fnmatch`, folder by
//! folder. Unlike in a shell, `*` also matches names that start with a dot.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::PrepareError;

/// All matching paths, in the order of their bytes.
pub(super) fn expand(pattern: &str) -> Result<Vec<PathBuf>, PrepareError> {
    let (mut found, relative) = match pattern.strip_prefix('/') {
        Some(rest) => (vec!["/".to_owned()], rest),
        None => (vec![String::new()], pattern),
    };
    let parts: Vec<_> = relative.split('/').filter(|part| !part.is_empty()).collect();
    for part in &parts {
        let mut matching = Vec::new();
        for folder in &found {
            if part.contains(['*', '?', '[', '\\']) {
                let names = names_in(folder)?;
                let names = names.iter().filter(|name| matches(part, name));
                matching.extend(names.map(|name| join(folder, name)));
            } else {
                let path = join(folder, part);
                matching.extend(fs::metadata(&path).is_ok().then_some(path));
            }
        }
        found = matching;
    }
    if parts.is_empty() || found.is_empty() {
        return Err(PrepareError::NoFiles { pattern: pattern.to_owned() });
    }
    found.sort_unstable();
    Ok(found.into_iter().map(PathBuf::from).collect())
}

fn join(folder: &str, name: &str) -> String {
    let slash = if folder.is_empty() || folder.ends_with('/') { "" } else { "/" };
    format!("{folder}{slash}{name}")
}

/// The names in a folder; none if it is not a folder, or does not exist.
fn names_in(folder: &str) -> Result<Vec<String>, PrepareError> {
    let path = if folder.is_empty() { "." } else { folder };
    let unreadable = |source| PrepareError::Read { path: path.to_owned(), source };
    let entries = match fs::read_dir(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries.map_err(unreadable)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        // A name that is not UTF-8 cannot be written in a pattern.
        names.extend(entry.map_err(unreadable)?.file_name().into_string());
    }
    Ok(names)
}

/// Whether a name matches a pattern: `*`, `?`, `[...]`, and `\` before a character that stands for itself.
fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut letter) = (0, 0);
    // The pattern after the last star, and the letter up to which that star has matched so far.
    let mut star = None;
    loop {
        if pattern.get(at) == Some(&'*') {
            at += 1;
            star = Some((at, letter));
            continue;
        }
        if letter == name.len() && at == pattern.len() {
            return true;
        }
        match name.get(letter).and_then(|letter| match_one(&pattern[at..], *letter)) {
            Some(used) => {
                at += used;
                letter += 1;
            }
            // The last star takes one letter more.
            None => match &mut star {
                Some((after, upto)) if *upto < name.len() => {
                    *upto += 1;
                    (at, letter) = (*after, *upto);
                }
                _ => return false,
            },
        }
    }
}

/// How much of the pattern matches this letter.
fn match_one(pattern: &[char], letter: char) -> Option<usize> {
    match pattern {
        ['?', ..] => Some(1),
        ['\\', escaped, ..] => (*escaped == letter).then_some(2),
        ['[', rest @ ..] => match match_set(rest, letter) {
            Some((is_in, used)) => is_in.then_some(used + 1),
            // A bracket that is not closed stands for itself.
            None => (letter == '[').then_some(1),
        },
        [other, ..] => (*other == letter).then_some(1),
        [] => None,
    }
}

/// Whether a letter is in a set, and how long the text of the set is. `None` if it has no end.
fn match_set(set: &[char], letter: char) -> Option<(bool, usize)> {
    let is_negated = matches!(set, ['!' | '^', ..]);
    let mut at = usize::from(is_negated);
    let first = at;
    let mut is_in = false;
    loop {
        match set.get(at..)? {
            [] => return None,
            [']', ..] if at > first => return Some((is_in != is_negated, at + 1)),
            ['[', ':', rest @ ..] if rest.windows(2).any(|end| end == [':', ']']) => {
                let bytes = rest.windows(2).position(|end| end == [':', ']'])?;
                let class: String = rest[..bytes].iter().collect();
                is_in |= is_in_class(&class, letter);
                at += bytes + 4;
            }
            rest => {
                let (low, used) = set_letter(rest)?;
                at += used;
                let (high, used) = match set.get(at..)? {
                    ['-', end, ..] if *end != ']' => {
                        set_letter(&set[at + 1..]).map(|(high, used)| (high, used + 1))?
                    }
                    _ => (low, 0),
                };
                at += used;
                is_in |= (low..=high).contains(&letter);
            }
        }
    }
}

/// One letter of a set, and how long its text is.
fn set_letter(set: &[char]) -> Option<(char, usize)> {
    match set {
        ['\\', escaped, ..] => Some((*escaped, 2)),
        [letter, ..] => Some((*letter, 1)),
        [] => None,
    }
}

fn is_in_class(class: &str, letter: char) -> bool {
    match class {
        "alnum" => letter.is_alphanumeric(),
        "alpha" => letter.is_alphabetic(),
        "blank" => letter == ' ' || letter == '\t',
        "cntrl" => letter.is_control(),
        "digit" => letter.is_ascii_digit(),
        "graph" => !letter.is_control() && !letter.is_whitespace(),
        "lower" => letter.is_lowercase(),
        "print" => !letter.is_control(),
        "punct" => letter.is_ascii_punctuation(),
        "space" => letter.is_whitespace(),
        "upper" => letter.is_uppercase(),
        "xdigit" => letter.is_ascii_hexdigit(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_by_fnmatch() {
        let yes = [
            ("*", ".hidden"),
            ("*.txt", "a.txt"),
            ("*.txt", ".txt"),
            ("a*b*c", "aXbYbZc"),
            ("?", "é"),
            ("[a-c]x", "bx"),
            ("[!a-c]x", "dx"),
            ("[^a]", "b"),
            ("[]]", "]"),
            ("[!]]", "a"),
            ("\\*", "*"),
            ("[[:digit:]]*", "7a"),
            ("[a\\]]", "]"),
            ("[", "["),
            ("a[", "a["),
            ("**", "ab"),
            ("[a-]", "-"),
            ("", ""),
            ("*a*", "bab"),
        ];
        let no = [
            ("*.txt", "a.txt2"),
            ("a*b", "acbd"),
            ("?", ""),
            ("?", "ab"),
            ("[a-c]", "d"),
            ("[!a-c]", "a"),
            ("\\*", "a"),
            ("[[:alpha:]]", "7"),
            ("", "a"),
            ("*a", "ab"),
            ("[z-a]", "m"),
            ("a\\", "b"),
        ];
        for (pattern, name) in yes {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in no {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn folders_are_expanded_one_by_one() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_str().unwrap();
        for name in ["a1/x.txt", "a1/y.txt", "a2/x.txt", "b/x.txt", "a1/.z.txt", "a1/n.md"] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let expanded = |pattern: &str| -> Vec<String> {
            let found = expand(&format!("{root}/{pattern}")).unwrap_or_default();
            found.iter().map(|path| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned()).collect()
        };
        assert_eq!(expanded("a*/*.txt"), ["a1/.z.txt", "a1/x.txt", "a1/y.txt", "a2/x.txt"]);
        assert_eq!(expanded("*/x.txt"), ["a1/x.txt", "a2/x.txt", "b/x.txt"]);
        assert_eq!(expanded("b/x.txt"), ["b/x.txt"]);
        assert_eq!(expanded("b/x.txt/*"), [""; 0]);
        assert_eq!(expanded("missing/*"), [""; 0]);
        assert!(matches!(expand(""), Err(PrepareError::NoFiles { .. })));
        assert!(matches!(expand(&format!("{root}/c*")), Err(PrepareError::NoFiles { .. })));
    }
}
