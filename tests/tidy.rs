//! The text of the project itself: one line width, one convention for modules, one meaning for the name of a
//! type, no word that the glossary of docs/design.md has replaced.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

use std::collections::BTreeMap;
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
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie in the repository")
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

/// The sources of all packages, without their tests: each file's path and text.
fn sources() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for path in files(&["rs"]) {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        let is_source =
            name.starts_with("src/") || name.contains("/src/") && !name.contains("percolator-fuzz");
        if is_source && !name.ends_with("tests.rs") && !name.contains("/tests/") {
            let text = fs::read_to_string(&path).unwrap();
            let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
            found.push((name, text[..end].to_owned()));
        }
    }
    assert!(found.len() > 300, "{}", found.len());
    found
}

/// What a package can name with `pub` or `pub(crate)` means one thing in it. What is generated has the names
/// of its schema.
#[test]
fn no_package_has_two_types_of_one_name() {
    /// A convention, and the two builds of what checks a model.
    const TWICE: [&str; 2] = ["Sealed", "Touches"];
    let mut places: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    for (name, text) in sources().into_iter().filter(|(name, _)| !name.contains("/src/proto/")) {
        let (package, _) = name.split_once("src/").unwrap();
        for line in text.lines().map(str::trim_start) {
            let Some(item) = line.strip_prefix("pub ").or_else(|| line.strip_prefix("pub(crate) ")) else {
                continue;
            };
            let Some((kind, rest)) = item.split_once(' ') else { continue };
            let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
            let named = &rest[..end.unwrap_or(rest.len())];
            if !matches!(kind, "struct" | "enum" | "trait" | "type" | "union") || TWICE.contains(&named) {
                continue;
            }
            places.entry((package.to_owned(), named.to_owned())).or_default().push(name.clone());
        }
    }
    assert!(places.len() > 500, "{}", places.len());
    places.retain(|_, names| names.len() > 1);
    assert!(places.is_empty(), "{places:#?}");
}

/// A path may move the cursor of a terminal: `percolator_files::shown` escapes it.
#[test]
fn no_path_is_shown_as_it_is() {
    /// What a snapshot or a receipt calls its source, which is data.
    const NAMES: [&str; 2] = ["src/snapshot/text.rs", "src/source/files.rs"];
    let mut wrong = Vec::new();
    for (name, text) in sources().into_iter().filter(|(name, _)| !NAMES.contains(&&**name)) {
        for (number, line) in text.lines().enumerate() {
            if line.contains(".display()") && !line.trim_start().starts_with("//") {
                wrong.push(format!("{name}:{}: {line}", number + 1));
            }
        }
    }
    assert!(wrong.is_empty(), "use shown::path:\n{}", wrong.join("\n"));
}

/// Whoever prints an error prints its causes behind it, and each is said once.
#[test]
fn no_error_says_what_its_source_says() {
    let (mut wrong, mut looked_at) = (Vec::new(), 0);
    for (name, text) in sources() {
        for (at, _) in text.match_indices("#[error(") {
            let Some(end) = text[at..].find(")]\n") else { continue };
            let (said, rest) = (&text[at..at + end], &text[at + end + 3..]);
            let mut item = rest.lines().skip_while(|line| {
                let line = line.trim_start();
                line.starts_with("#[") || line.starts_with("//")
            });
            let first = item.next().unwrap_or_default();
            let mut fields = vec![first];
            if first.ends_with('{') {
                fields.extend(item.take_while(|line| !line.trim_start().starts_with('}')));
            }
            let mut is_marked = false;
            for field in fields {
                is_marked |= field.contains("#[source]") || field.contains("#[from]");
                let Some((front, _)) = field.split_once([':', ']']) else { continue };
                let named = front.trim().trim_start_matches("pub ");
                let is_tuple = is_marked && field.contains('(');
                let word = if is_tuple { "0" } else { named };
                let is_field = is_tuple
                    || !named.is_empty() && named.chars().all(|one| one.is_alphanumeric() || one == '_');
                if !is_field || !(is_marked || named == "source") {
                    continue;
                }
                looked_at += 1;
                let places =
                    ["{@}", "{@:", "(@)", "(*@)", "(.@)", "(&@)"].map(|place| place.replace('@', word));
                if places.iter().any(|place| said.contains(place)) {
                    wrong.push(format!("{name}: {word} is said and is the source: {said}"));
                }
                is_marked = false;
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(looked_at > 60, "{looked_at}");
}

#[test]
fn a_module_with_files_of_its_own_is_a_folder_with_mod_rs() {
    let both: Vec<_> = files(&["rs"])
        .into_iter()
        .filter(|path| path.starts_with(root().join("src")) && path.with_extension("").is_dir())
        .collect();
    assert!(both.is_empty(), "{both:?}");
}
