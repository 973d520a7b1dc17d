//! What tensors are named in another file.

mod line;
mod unused;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use regex_lite::Regex;

use self::line::Line;
pub use self::unused::UnusedRule;
use super::ConvertError;
use super::file::InputFile;

/// The longest file of rules that is read.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// New names for tensors: by a file of rules, or by one regular expression.
///
/// A file has a rule a line. The first rule that matches a name decides; the others are ignored.
///
/// ```text
/// # A comment. A tensor's whole name, and its new one:
/// layer1/W -> embeddings.weight
/// # A regular expression; each match of it is replaced:
/// regex ^layer(\d+)/W$ -> layers.$1.w
/// # A tensor that is left out, and the tensors of which a part matches:
/// drop global_step
/// drop regex /Adam(_\d+)?$
/// # What becomes of names that no rule matches: keep (the default), drop or error.
/// unmatched error
/// ```
///
/// White space around names does not count. A name that has any at its ends, that contains ` -> `, or that
/// starts with `"`, `#`, `drop ` or `regex `, is written as a JSON text (`"drop out/W" -> dropout.W`). In the
/// text that replaces a match, `$1` or `${1}` is the first group, `${name}` a named one, and `$$` a dollar
/// sign. The regular expressions are those of the crate `regex-lite`: a name is matched in time linear in its
/// length.
///
/// [`unused`](Self::unused) finds the rules that decide the name of no tensor, such as one with a misspelt
/// name.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    path: Option<PathBuf>,
    rules: Vec<Rule>,
    unmatched: Unmatched,
}

/// What becomes of the names that no rule matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unmatched {
    /// They stay as they are.
    #[default]
    Keep,
    /// Their tensors are left out.
    Drop,
    /// They are an error.
    Error,
}

#[derive(Clone, Debug)]
struct Rule {
    pattern: Pattern,
    /// `None` if the tensors are left out.
    to: Option<String>,
    line: usize,
}

#[derive(Clone, Debug)]
enum Pattern {
    Name(String),
    Regex(Regex),
}

impl Rule {
    fn matches(&self, name: &str) -> bool {
        match &self.pattern {
            Pattern::Name(whole) => whole == name,
            Pattern::Regex(regex) => regex.is_match(name),
        }
    }

    fn renamed(&self, name: &str) -> Option<String> {
        let to = self.to.as_ref()?;
        Some(match &self.pattern {
            Pattern::Name(_) => to.clone(),
            Pattern::Regex(regex) => regex.replace_all(name, to.as_str()).into_owned(),
        })
    }
}

/// Finds the first rule that matches a name.
struct First<'r> {
    rules: &'r [Rule],
    /// The first rule of each whole name. Files with a rule a name have thousands of them, so the first one
    /// is found without trying each.
    whole: HashMap<&'r str, usize>,
    /// The rules with a regular expression, in their order.
    regexes: Vec<usize>,
}

impl<'r> First<'r> {
    fn new(rules: &'r [Rule]) -> Self {
        let (mut whole, mut regexes) = (HashMap::new(), Vec::new());
        for (place, rule) in rules.iter().enumerate() {
            match &rule.pattern {
                Pattern::Name(name) => {
                    whole.entry(&**name).or_insert(place);
                }
                Pattern::Regex(_) => regexes.push(place),
            }
        }
        First { rules, whole, regexes }
    }

    /// Returns the place of the rule.
    fn of(&self, name: &str) -> Option<usize> {
        let by_name = self.whole.get(name).copied();
        let earlier = self.regexes.iter().take_while(|place| by_name.is_none_or(|first| **place < first));
        let by_regex = earlier.copied().find(|&place| self.rules[place].matches(name));
        by_regex.or(by_name)
    }
}

impl Rules {
    /// Returns no rules: all names stay.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Reads a file of rules.
    ///
    /// # Errors
    ///
    /// [`ConvertError`] if the file cannot be read, or a line is no rule.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, ConvertError> {
        let path = path.as_ref();
        let file = InputFile::open(path)?;
        if file.length() > FILE_BYTES_MAX {
            let found = format!("it has {} bytes", file.length());
            return Err(file.part(None, 0).damaged(0, found, format!("rules have at most {FILE_BYTES_MAX}")));
        }
        let text = String::from_utf8(file.read(None, 0..file.length())?).map_err(|error| {
            let at = error.utf8_error().valid_up_to() as u64;
            file.part(None, at).damaged(0, "found a byte that is not UTF-8", "rules are UTF-8")
        })?;
        line::read(&text, Some(path))
    }

    /// Reads rules from a text.
    ///
    /// # Errors
    ///
    /// [`ConvertError::Rule`] if a line is no rule.
    pub fn parse(text: &str) -> Result<Self, ConvertError> {
        line::read(text, None)
    }

    /// Returns the rule that replaces each match of a regular expression: `REGEX=TO`. The first `=` ends the
    /// expression, in which `\x3d` is an equals sign. Other names stay.
    ///
    /// # Errors
    ///
    /// [`ConvertError::Rule`] if it is no such rule.
    pub fn rename(rule: &str) -> Result<Self, ConvertError> {
        let line = Line { path: None, number: 1 };
        let (regex, to) = rule.split_once('=').ok_or_else(|| {
            line.wrong(format!("found no \"=\" in {rule:?}"), "a rule is REGEX=TO, such as '/=.'")
        })?;
        Ok(Rules { rules: vec![line.regex(regex, Some(to))?], ..Rules::none() })
    }

    /// Sets what becomes of the names that no rule matches.
    #[must_use]
    pub fn unmatched(mut self, unmatched: Unmatched) -> Self {
        self.unmatched = unmatched;
        self
    }

    /// Returns the new name of each of these names, in their order, or `None` of those to be left out.
    ///
    /// # Errors
    ///
    /// [`ConvertError`] if two names would become one, if a name would become empty, or if a name matches no
    /// rule and must.
    pub fn apply<'n>(
        &self,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Result<Vec<Option<String>>, ConvertError> {
        let first = First::new(&self.rules);
        let mut renamed = Vec::new();
        let mut taken: HashMap<String, &str> = HashMap::new();
        let mut unmatched = Vec::new();
        for name in names {
            let to = match (first.of(name).map(|place| &self.rules[place]), self.unmatched) {
                (Some(rule), _) => {
                    let to = rule.renamed(name);
                    if to.as_deref() == Some("") {
                        let line = Line { path: self.path.as_deref(), number: rule.line };
                        let found = format!("the tensor {name:?} would have an empty name");
                        return Err(line.wrong(found, "drop it by a rule, or name it"));
                    }
                    to
                }
                (None, Unmatched::Keep) => Some(name.to_owned()),
                (None, Unmatched::Drop) => None,
                (None, Unmatched::Error) => {
                    unmatched.push(name);
                    None
                }
            };
            if let Some(to) = &to
                && let Some(other) = taken.insert(to.clone(), name)
            {
                let (first, second, name) = (other.to_owned(), name.to_owned(), to.clone());
                let remedy = "change the rules";
                return Err(ConvertError::Collision { first, second, name, remedy });
            }
            renamed.push(to);
        }
        match unmatched.first() {
            None => Ok(renamed),
            Some(&name) => Err(ConvertError::Unmatched {
                name: name.to_owned(),
                more: unmatched.len().saturating_sub(1),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(rules: &Rules, names: &[&str]) -> Vec<String> {
        let renamed = rules.apply(names.iter().copied()).unwrap();
        renamed.into_iter().map(|name| name.unwrap_or_else(|| "-".to_owned())).collect()
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules = "# a comment\n\n layer1/W ->  embeddings.weight \n\
                     regex ^layer(\\d+)/(?<what>\\w)$ -> l.$1.${what}\n\
                     drop global_step\ndrop regex /Adam(_\\d+)?$\n\"a -> b\" -> \" c\"\nlayer2/W -> never\n\
                     x -> \"y -> z\"";
        let rules = Rules::parse(rules).unwrap();
        let names = ["layer1/W", "layer2/W", "global_step", "w/Adam_1", "w/Adams", "a -> b", "x"];
        let expected = ["embeddings.weight", "l.2.W", "-", "-", "w/Adams", " c", "y -> z"];
        assert_eq!(applied(&rules, &names), expected);
    }

    #[test]
    fn a_byte_order_mark_and_carriage_returns_are_not_of_names() {
        let rules = Rules::parse("\u{feff}a -> x\r\nb -> y\r\n").unwrap();
        assert_eq!(applied(&rules, &["a", "b"]), ["x", "y"]);
    }

    #[test]
    fn what_is_dropped_may_have_an_arrow() {
        let rules = "drop a -> b\ndrop regex ^x -> \\d$\ndrop -> c\n\"drop d\" -> e";
        let names = ["a -> b", "x -> 1", "drop", "drop d", "drop a", "a"];
        let rules = Rules::parse(rules).unwrap();
        assert_eq!(applied(&rules, &names), ["-", "-", "c", "e", "drop a", "a"]);
        let rules = Rules::parse("\"regex a\" -> b\n\"#c\" -> d\ndrop \"regex e\"\ndrop drop f").unwrap();
        assert_eq!(applied(&rules, &["regex a", "#c", "regex e", "drop f"]), ["b", "d", "-", "-"]);
    }

    #[test]
    fn the_guides_rules_are_rules() {
        let guide = include_str!("../../../../../docs/guide/command-line.md");
        let rules = guide.split("```text\n").find(|text| text.starts_with("# A comment.")).unwrap();
        let rules = Rules::parse(rules.split("```").next().unwrap()).unwrap();
        let names = ["layer1/W", "layer23/W", "global_step", "w/Adam_1"];
        assert_eq!(applied(&rules, &names), ["embeddings.weight", "layers.23.w", "-", "-"]);
        assert!(rules.apply(["other"]).is_err());
    }

    #[test]
    fn names_are_found_as_by_trying_each_rule() {
        let text = "b -> first\nregex a -> X\na -> second\nregex b -> Y\nb -> third\nba -> fourth";
        let rules = Rules::parse(text).unwrap();
        for name in ["a", "b", "ba", "ab", "c", "bb", ""] {
            let naive = rules.rules.iter().find(|rule| rule.matches(name));
            let naive = naive.map_or(Some(name.to_owned()), |rule| rule.renamed(name));
            assert_eq!(rules.apply([name]).unwrap(), [naive], "{name}");
        }
    }

    #[test]
    fn each_match_is_replaced() {
        let rules = Rules::rename("/=.").unwrap();
        assert_eq!(applied(&rules, &["a/b/c", "d"]), ["a.b.c", "d"]);
        let rules = Rules::rename(r"/\.ATTRIBUTES/VARIABLE_VALUE$=").unwrap();
        assert_eq!(applied(&rules, &["net/w/.ATTRIBUTES/VARIABLE_VALUE"]), ["net/w"]);
        let rules = Rules::rename(r"(.)\x3d=$$${1}_").unwrap().unmatched(Unmatched::Drop);
        assert_eq!(applied(&rules, &["a=b", "c"]), ["$a_b", "-"]);
    }

    #[test]
    fn unmatched_names_are_kept_dropped_or_an_error() {
        let with = |what: &str| Rules::parse(&format!("a -> b\nunmatched {what}")).unwrap();
        assert_eq!(applied(&with("keep"), &["a", "c"]), ["b", "c"]);
        assert_eq!(applied(&with("drop"), &["a", "c"]), ["b", "-"]);
        let error = with("error").apply(["a", "c", "d"]).unwrap_err().to_string();
        assert!(error.starts_with("no rule matches the tensor \"c\", nor 1 other(s): "), "{error}");
    }

    #[test]
    fn a_collision_names_both() {
        let error = Rules::rename("\\d=").unwrap().apply(["a1", "b", "a2"]).unwrap_err().to_string();
        assert!(error.contains("\"a1\" and \"a2\" would both be named \"a\""), "{error}");
        let error = Rules::parse("a -> b").unwrap().apply(["b", "a"]).unwrap_err().to_string();
        assert!(error.contains("\"b\" and \"a\" would both be named \"b\""), "{error}");
    }

    #[test]
    fn what_is_no_rule_is_an_error() {
        for (line, found) in [
            ("layer1/W", "a line is"),
            ("a ->", "a line is"),
            ("-> a", "a line is"),
            ("rename a b", "a line is"),
            ("unmatched skip", "keep, drop or error"),
            ("regex ( -> a", "regular expression"),
            ("regex (a) -> $1_x", "no group \"1_x\""),
            ("regex (a) -> $2", "no group \"2\""),
            ("regex (a) -> $", "no group \"\""),
            ("\"a -> b", "JSON"),
            ("\"a\" b", "JSON"),
            ("a -> \"b\" c", "JSON"),
        ] {
            let error = Rules::parse(&format!("# one\n{line}")).unwrap_err().to_string();
            assert!(error.contains(found), "{line}: {error}");
        }
        let error = Rules::rename("a").unwrap_err().to_string();
        assert!(error.contains("REGEX=TO"), "{error}");
        let error = Rules::rename("a=").unwrap().apply(["a"]).unwrap_err().to_string();
        assert!(error.contains("empty name"), "{error}");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules");
        std::fs::write(&path, "a -> b\nc").unwrap();
        let error = Rules::from_file(&path).unwrap_err().to_string();
        assert!(error.contains("rules, line 2: found \"c\""), "{error}");
    }
}
