//! The lines of a file of rules.

use std::path::Path;

use regex_lite::Regex;

use super::{Pattern, Rule, Rules, Unmatched};
use crate::convert::ConvertError;

const GRAMMAR: &str = "a line is \"NAME -> NAME\", \"regex PATTERN -> NAME\", \"drop NAME\", \
                       \"drop regex PATTERN\", \
                       \"unmatched keep\" (or drop, or error), or a comment (# ...)";

/// A line that is read, for messages.
#[derive(Clone, Copy)]
pub(super) struct Line<'a> {
    pub(super) path: Option<&'a Path>,
    /// Counted from 1.
    pub(super) number: usize,
}

/// Reads rules, a rule a line.
pub(super) fn read(text: &str, path: Option<&Path>) -> Result<Rules, ConvertError> {
    let mut rules = Rules { path: path.map(Path::to_owned), ..Rules::none() };
    // Editors of some systems put a byte order mark first.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (number, text) in (1..).zip(text.lines()) {
        let line = Line { path, number };
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        match (text.split_once(" -> "), text.split_once(char::is_whitespace)) {
            _ if text.starts_with('"') => rules.rules.push(line.quoted(text)?),
            // Before the arrow is looked for: a tensor that is left out may have one in its name.
            (_, Some(("drop", pattern))) if !pattern.trim_start().starts_with("->") => {
                rules.rules.push(match pattern.trim().strip_prefix("regex ") {
                    Some(regex) => line.regex(regex.trim(), None)?,
                    None => line.plain(pattern, None)?,
                });
            }
            (Some((from, to)), _) => {
                let to = line.name(to)?;
                rules.rules.push(match from.trim().strip_prefix("regex ") {
                    Some(regex) => line.regex(regex.trim(), Some(&to))?,
                    None => line.plain(from, Some(to))?,
                });
            }
            (None, Some(("unmatched", what))) => rules.unmatched = line.unmatched(what.trim())?,
            _ => return Err(line.wrong(format!("found {text:?}"), GRAMMAR)),
        }
    }
    Ok(rules)
}

impl Line<'_> {
    pub(super) fn wrong(&self, found: String, allowed: &'static str) -> ConvertError {
        ConvertError::Rule { path: self.path.map(Path::to_owned), line: self.number, found, allowed }
    }

    /// A name, quoted or not.
    fn name(&self, text: &str) -> Result<String, ConvertError> {
        let text = text.trim();
        match text.starts_with('"') {
            true => serde_json::from_str(text)
                .map_err(|_| self.wrong(format!("found {text}"), "a quoted name is a JSON text: \"a -> b\"")),
            false if text.is_empty() => Err(self.wrong("found no name".to_owned(), GRAMMAR)),
            false => Ok(text.to_owned()),
        }
    }

    fn plain(&self, from: &str, to: Option<String>) -> Result<Rule, ConvertError> {
        Ok(Rule { pattern: Pattern::Name(self.name(from)?), to, line: self.number })
    }

    /// A rule whose name is quoted, and may contain an arrow.
    fn quoted(&self, text: &str) -> Result<Rule, ConvertError> {
        let mut names = serde_json::Deserializer::from_str(text).into_iter::<String>();
        let from = names.next().and_then(Result::ok);
        let rest = text.get(names.byte_offset()..).unwrap_or_default().trim_start();
        match (from, rest.strip_prefix("->")) {
            (Some(from), Some(to)) => {
                Ok(Rule { pattern: Pattern::Name(from), to: Some(self.name(to)?), line: self.number })
            }
            _ => Err(self.wrong(format!("found {text}"), "a quoted name is a JSON text: \"a -> b\" -> c")),
        }
    }

    pub(super) fn regex(&self, pattern: &str, to: Option<&str>) -> Result<Rule, ConvertError> {
        let regex = Regex::new(pattern).map_err(|error| {
            let found = format!("the regular expression {pattern:?}: {error}");
            self.wrong(found, "see https://docs.rs/regex-lite for what is allowed")
        })?;
        if let Some(wrong) = to.and_then(|to| unknown_group(&regex, to)) {
            let found = format!("there is no group {wrong:?} in {pattern:?}");
            return Err(
                self.wrong(found, "write ${1}x for the first group and an x, and $$ for a dollar sign")
            );
        }
        Ok(Rule { pattern: Pattern::Regex(regex), to: to.map(str::to_owned), line: self.number })
    }

    fn unmatched(&self, what: &str) -> Result<Unmatched, ConvertError> {
        match what {
            "keep" => Ok(Unmatched::Keep),
            "drop" => Ok(Unmatched::Drop),
            "error" => Ok(Unmatched::Error),
            _ => Err(self.wrong(format!("found \"unmatched {what}\""), "it is keep, drop or error")),
        }
    }
}

/// Returns a group that a replacement names and the expression does not have. Such a group would be empty
/// without a word: of `$1_x`, the name is `1_x`.
fn unknown_group(regex: &Regex, to: &str) -> Option<String> {
    let mut rest = to;
    while let Some((_, after)) = rest.split_once('$') {
        if let Some(after) = after.strip_prefix('$') {
            rest = after;
            continue;
        }
        let (group, after) = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((group, after)) => (group, after),
            None => {
                let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                let end = after.find(|letter| !is_name(letter)).unwrap_or(after.len());
                after.split_at(end)
            }
        };
        rest = after;
        let is_known = match group.parse::<usize>() {
            Ok(number) => number < regex.captures_len(),
            Err(_) => regex.capture_names().flatten().any(|name| name == group),
        };
        if !is_known {
            return Some(group.to_owned());
        }
    }
    None
}
