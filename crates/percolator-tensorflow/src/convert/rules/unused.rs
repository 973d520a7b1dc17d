//! Rules that decide the name of no tensor.

use std::collections::HashSet;
use std::fmt;
use std::path::PathBuf;

use super::{First, Pattern, Rule, Rules};
use crate::convert::ConvertError;
use crate::convert::error::at_rule;

/// A rule that decides the name of no tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusedRule {
    /// The file of rules, or `None` if the rule was given by itself.
    pub path: Option<PathBuf>,
    /// The line of the file, from 1.
    pub line: usize,
    /// The tensor's whole name, or the regular expression.
    pub pattern: String,
    /// Whether the pattern is a regular expression.
    pub is_regex: bool,
    /// Whether it leaves tensors out.
    pub drops: bool,
    /// Whether it matches tensors, and earlier rules decide the names of all of them.
    pub is_preceded: bool,
}

impl UnusedRule {
    /// Returns what is wrong with the rule.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match (self.is_preceded, self.is_regex) {
            (true, _) => "earlier rules decide the names of all tensors that it matches",
            (false, true) => "it matches no tensor",
            (false, false) => "there is no tensor of this name",
        }
    }
}

impl fmt::Display for UnusedRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_regex { "regex " } else { "" };
        let at = at_rule(self.path.as_deref(), self.line);
        write!(f, "{at}{kind}{:?} is not used: {}", self.pattern, self.reason())
    }
}

impl Rules {
    /// Returns the rules that decide none of these names, in their order.
    pub fn unused<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Vec<UnusedRule> {
        let names: Vec<&str> = names.into_iter().collect();
        let first = First::new(&self.rules);
        let mut is_used = vec![false; self.rules.len()];
        for place in names.iter().filter_map(|name| first.of(name)) {
            is_used[place] = true;
        }
        let known: HashSet<&str> = names.iter().copied().collect();
        let unused = self.rules.iter().zip(is_used).filter(|(_, is_used)| !is_used);
        unused.map(|(rule, _)| self.as_unused(rule, &names, &known)).collect()
    }

    fn as_unused(&self, rule: &Rule, names: &[&str], known: &HashSet<&str>) -> UnusedRule {
        let (pattern, is_regex, is_preceded) = match &rule.pattern {
            Pattern::Name(name) => (name.clone(), false, known.contains(&**name)),
            Pattern::Regex(regex) => {
                (regex.as_str().to_owned(), true, names.iter().any(|name| regex.is_match(name)))
            }
        };
        let (path, line, drops) = (self.path.clone(), rule.line, rule.to.is_none());
        UnusedRule { path, line, pattern, is_regex, drops, is_preceded }
    }

    /// Returns an error if rules give names, and none of them matches a tensor. Rules that drop tensors are
    /// content if there is nothing to drop.
    pub(in crate::convert) fn check_effect(&self, unused: &[UnusedRule]) -> Result<(), ConvertError> {
        let naming = self.rules.iter().filter(|rule| rule.to.is_some()).count();
        let mut without = unused.iter().filter(|rule| !rule.drops && !rule.is_preceded);
        let count = without.clone().count();
        match without.next() {
            Some(rule) if count == naming => {
                Err(ConvertError::NoNewName { rule: Box::new(rule.clone()), more: count.saturating_sub(1) })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn unused(rules: &str, names: &[&str]) -> Vec<String> {
        let rules = Rules::parse(rules).unwrap();
        rules.unused(names.iter().copied()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_rule_is_unused_if_it_matches_nothing_or_comes_too_late() {
        let rules = "a -> x\nregex ^b -> y\ndrop c\nregex b -> z\na -> w\ndrop regex q$";
        assert_eq!(
            unused(rules, &["a", "b"]),
            [
                "the rule: \"c\" is not used: there is no tensor of this name",
                "the rule: regex \"b\" is not used: earlier rules decide the names of all tensors that it \
                 matches",
                "the rule: \"a\" is not used: earlier rules decide the names of all tensors that it matches",
                "the rule: regex \"q$\" is not used: it matches no tensor",
            ]
        );
        assert!(unused(rules, &["a", "b", "c", "qb", "q"]).len() == 1);
        assert!(unused("# none\nunmatched keep", &["a"]).is_empty());
    }

    #[test]
    fn rules_that_name_no_tensor_are_without_effect() {
        let check = |rules: &str| {
            let rules = Rules::parse(rules).unwrap();
            rules.check_effect(&rules.unused(["a", "b"])).map_err(|error| error.to_string())
        };
        for fine in ["", "drop c", "a -> x\nc -> y", "drop a\na -> x"] {
            assert_eq!(check(fine), Ok(()), "{fine}");
        }
        let error = check("drop a\nc -> x\nregex d -> y").unwrap_err();
        assert!(error.starts_with("the rule: \"c\" is not used: there is no tensor"), "{error}");
        assert!(error.contains("nor does 1 other"), "{error}");
    }

    proptest! {
        #[test]
        fn those_that_are_never_the_first_are_unused(
            rules in prop::collection::vec("(drop )?(regex )?[abc]{1,2}", 0..8),
            names in prop::collection::btree_set("[abc]{1,2}", 0..5),
        ) {
            let line = |rule: &String| match rule.starts_with("drop") {
                true => format!("{rule}\n"),
                false => format!("{rule} -> x\n"),
            };
            let text: String = rules.iter().map(line).collect();
            let rules = Rules::parse(&text).unwrap();
            let unused = rules.unused(names.iter().map(String::as_str));
            let first = |name: &String| rules.rules.iter().position(|rule| rule.matches(name));
            let firsts: Vec<usize> = names.iter().filter_map(first).collect();
            let expected: Vec<(usize, bool)> = (0..rules.rules.len())
                .filter(|place| !firsts.contains(place))
                .map(|place| (place + 1, names.iter().any(|name| rules.rules[place].matches(name))))
                .collect();
            let found: Vec<_> = unused.iter().map(|rule| (rule.line, rule.is_preceded)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
