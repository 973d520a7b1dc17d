//! The text of the project itself: one line width, one convention for modules, and no word that the glossary
//! of docs/design.md has replaced.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::fs;
use std::path::{Path, PathBuf};

/// The most characters of a line, in code, comments and Markdown.
const WIDTH: usize = 110;

/// Words that once named parts of the design. The glossary has the words that replaced them.
const RETIRED: [&str; 11] = [
    "errand",
    "errands",
    "latch",
    "latches",
    "itinerary",
    "passage",
    "passages",
    "berth",
    "berths",
    "crew",
    "way_home",
];

/// Texts with these words are formats: snapshots and what processes compare keep them.
const FORMATS: [&str; 1] = ["\"itinerary\""];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files of this kind that are written by hand.
fn files(extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> =
        ["src", "crates", "tests", "benches", "examples", "docs"].map(|folder| root().join(folder)).into();
    found.extend(["README.md", "CHANGELOG.md"].map(|file| root().join(file)));
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.extend((!path.ends_with("tests/data")).then_some(path));
            } else if path.extension().is_some_and(|kind| extensions.iter().any(|known| kind == *known)) {
                found.push(path);
            }
        }
    }
    // It is generated.
    found.retain(|path| !path.ends_with("src/proto/caffe.rs"));
    found
}

/// The lines of these files for which `is_wrong`, with their places.
fn wrong_lines(extensions: &[&str], is_wrong: impl Fn(&str) -> bool) -> Vec<String> {
    let mut wrong = Vec::new();
    for path in files(extensions) {
        let text = fs::read_to_string(&path).unwrap();
        let shown = path.strip_prefix(root()).unwrap().display();
        let lines = text.lines().enumerate().filter(|(_, line)| is_wrong(line));
        wrong.extend(lines.map(|(number, line)| format!("{shown}:{}: {line}", number + 1)));
    }
    wrong
}

#[test]
fn no_line_is_too_long() {
    // A table's row and an address cannot be wrapped.
    let may_be_long = |line: &str| line.trim_start().starts_with('|') || line.contains("http");
    let wrong = wrong_lines(&["rs", "md"], |line| line.chars().count() > WIDTH && !may_be_long(line));
    assert!(wrong.is_empty(), "lines of more than {WIDTH} characters:\n{}", wrong.join("\n"));
}

#[test]
fn no_retired_word_comes_back() {
    let is_retired = |word: &str| RETIRED.contains(&&*word.to_lowercase());
    let is_wrong = |line: &str| {
        let is_format = FORMATS.iter().any(|format| line.contains(format));
        !is_format && line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(is_retired)
    };
    let mut wrong = wrong_lines(&["rs", "md"], is_wrong);
    wrong.retain(|line| !line.starts_with("tests/tidy.rs") && !line.starts_with("CHANGELOG.md"));
    assert!(wrong.is_empty(), "see the glossary in docs/design.md:\n{}", wrong.join("\n"));
}

#[test]
fn a_module_with_files_of_its_own_is_a_folder_with_mod_rs() {
    let both: Vec<_> = files(&["rs"])
        .into_iter()
        .filter(|path| path.starts_with(root().join("src")) && path.with_extension("").is_dir())
        .collect();
    assert!(both.is_empty(), "{both:?}");
}
