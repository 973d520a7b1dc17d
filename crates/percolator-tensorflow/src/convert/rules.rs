//! What tensors are named in another file.

use std::collections::HashMap;
use std::fmt;

use regex_lite::Regex;

use super::ConvertError;

/// New names for tensors, by regular expressions.
///
/// A tensor is left out if a part of its name matches an expression of [`drop`](Self::drop). Of
/// [`rename`](Self::rename), the first rule that matches a part of a name decides: each match is replaced.
/// Other names stay.
///
/// In the text that replaces a match, `$1` or `${1}` is the first group, `${name}` a named one, and `$$` a
/// dollar sign. The regular expressions are those of the crate `regex-lite`: a name is matched in time linear
/// in its length.
#[derive(Clone, Debug, Default)]
pub struct NameRules {
    drops: Vec<Regex>,
    renames: Vec<(Regex, String)>,
}

impl NameRules {
    /// Returns no rules: all names stay.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds an expression: tensors of whose names a part matches it are left out.
    ///
    /// # Errors
    ///
    /// [`ConvertError::Names`] if it is no regular expression.
    pub fn drop(mut self, regex: &str) -> Result<Self, ConvertError> {
        self.drops.push(compiled(regex)?);
        Ok(self)
    }

    /// Adds the rule that replaces each match of a regular expression: `REGEX=TO`. The first `=` ends the
    /// expression, in which `\x3d` is an equals sign.
    ///
    /// # Errors
    ///
    /// [`ConvertError::Names`] if it is no such rule.
    pub fn rename(mut self, rule: &str) -> Result<Self, ConvertError> {
        let (regex, to) = rule
            .split_once('=')
            .ok_or_else(|| wrong(rule, "it has no \"=\"", "a rule is REGEX=TO, such as '/=.'"))?;
        let regex = compiled(regex)?;
        if let Some(group) = unknown_group(&regex, to) {
            let allowed = "write ${1}x for the first group and an x, and $$ for a dollar sign";
            return Err(wrong(rule, format!("the expression has no group {group:?}"), allowed));
        }
        self.renames.push((regex, to.to_owned()));
        Ok(self)
    }

    /// Returns the new name of each of these names, in their order, or `None` of those to be left out.
    ///
    /// # Errors
    ///
    /// [`ConvertError`] if two names would become one, or if a name would become empty.
    pub fn apply<'n>(
        &self,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Result<Vec<Option<String>>, ConvertError> {
        let mut renamed = Vec::new();
        let mut taken: HashMap<String, &str> = HashMap::new();
        for name in names {
            if self.drops.iter().any(|regex| regex.is_match(name)) {
                renamed.push(None);
                continue;
            }
            let rule = self.renames.iter().find(|(regex, _)| regex.is_match(name));
            let to = match rule {
                Some((regex, to)) => regex.replace_all(name, to).into_owned(),
                None => name.to_owned(),
            };
            if let (Some((regex, _)), "") = (rule, &*to) {
                let found = format!("the tensor {name:?} would have an empty name");
                return Err(wrong(regex.as_str(), found, "drop it, or name it"));
            }
            if let Some(other) = taken.insert(to.clone(), name) {
                let both = format!("the tensors {other:?} and {name:?} would both be named {to:?}");
                return Err(ConvertError::Names(format!("{both}: change the rules")));
            }
            renamed.push(Some(to));
        }
        Ok(renamed)
    }

    /// Checks that each rule that gives names matches one of these. An expression that drops tensors may find
    /// none.
    pub(super) fn check_effect<'n>(
        &self,
        names: impl Iterator<Item = &'n str> + Clone,
    ) -> Result<(), ConvertError> {
        match self.renames.iter().find(|(regex, _)| !names.clone().any(|name| regex.is_match(name))) {
            Some((regex, _)) => {
                Err(wrong(regex.as_str(), "it matches no tensor", "correct the rule, or remove it"))
            }
            None => Ok(()),
        }
    }
}

fn wrong(rule: &str, found: impl fmt::Display, allowed: &str) -> ConvertError {
    ConvertError::Names(format!("the rule {rule:?}: {found}; {allowed}"))
}

fn compiled(regex: &str) -> Result<Regex, ConvertError> {
    Regex::new(regex)
        .map_err(|error| wrong(regex, error, "see https://docs.rs/regex-lite for what is allowed"))
}

/// Returns a group that a replacement names and the expression does not have. Such a group would be empty
/// without a word: of `$1_x`, the name is `1_x`.
fn unknown_group(regex: &Regex, to: &str) -> Option<String> {
    let groups = Regex::new(r"\$(?:\$|\{([^}]*)\}|(\w*))").expect("it is an expression");
    groups.captures_iter(to).find_map(|found| {
        let group = found.get(1).or(found.get(2))?.as_str();
        let is_known = match group.parse::<usize>() {
            Ok(number) => number < regex.captures_len(),
            Err(_) => regex.capture_names().flatten().any(|name| name == group),
        };
        (!is_known).then(|| group.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(drops: &[&str], renames: &[&str]) -> Result<NameRules, ConvertError> {
        let rules = drops.iter().try_fold(NameRules::none(), |rules, regex| rules.drop(regex))?;
        renames.iter().try_fold(rules, |rules, rule| rules.rename(rule))
    }

    fn applied(drops: &[&str], renames: &[&str], names: &[&str]) -> Vec<String> {
        let renamed = rules(drops, renames).unwrap().apply(names.iter().copied()).unwrap();
        renamed.into_iter().map(|name| name.unwrap_or_else(|| "-".to_owned())).collect()
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let drops = [r"/Adam(_\d+)?$", "^global_step$"];
        let renames = [r"^layer1/W$=embeddings.weight", r"^layer(\d+)/(?<what>\w)$=l.$1.${what}", "W=never"];
        let names = ["layer1/W", "layer2/W", "global_step", "w/Adam_1", "w/Adams", "x"];
        let expected = ["embeddings.weight", "l.2.W", "-", "-", "w/Adams", "x"];
        assert_eq!(applied(&drops, &renames, &names), expected);
    }

    #[test]
    fn each_match_is_replaced() {
        assert_eq!(applied(&[], &["/=."], &["a/b/c", "d"]), ["a.b.c", "d"]);
        let renames = [r"/\.ATTRIBUTES/VARIABLE_VALUE$="];
        assert_eq!(applied(&[], &renames, &["net/w/.ATTRIBUTES/VARIABLE_VALUE"]), ["net/w"]);
        assert_eq!(applied(&["c"], &[r"(.)\x3d=$$${1}_"], &["a=b", "c"]), ["$a_b", "-"]);
    }

    #[test]
    fn a_collision_names_both() {
        let error = rules(&[], &["\\d="]).unwrap().apply(["a1", "b", "a2"]).unwrap_err().to_string();
        assert!(error.contains("\"a1\" and \"a2\" would both be named \"a\""), "{error}");
        let error = rules(&[], &["a=b"]).unwrap().apply(["b", "a"]).unwrap_err().to_string();
        assert!(error.contains("\"b\" and \"a\" would both be named \"b\""), "{error}");
    }

    #[test]
    fn what_is_no_rule_is_an_error() {
        for (rule, found) in [
            ("a", "REGEX=TO"),
            ("(=a", "regex-lite"),
            ("(a)=$1_x", "no group \"1_x\""),
            ("(a)=$2", "no group \"2\""),
            ("(a)=${b}", "no group \"b\""),
            ("(a)=$", "no group \"\""),
        ] {
            let error = rules(&[], &[rule]).unwrap_err().to_string();
            assert!(error.starts_with("the rule ") && error.contains(found), "{rule}: {error}");
        }
        let error = rules(&["("], &[]).unwrap_err().to_string();
        assert!(error.starts_with("the rule \"(\": "), "{error}");
        let error = rules(&[], &["a="]).unwrap().apply(["a"]).unwrap_err().to_string();
        assert!(error.contains("empty name"), "{error}");
        let rules = rules(&["d"], &["a=x", "c=y"]).unwrap();
        assert!(rules.check_effect(["a", "c"].into_iter()).is_ok());
        let error = rules.check_effect(["a"].into_iter()).unwrap_err().to_string();
        assert_eq!(error, "the rule \"c\": it matches no tensor; correct the rule, or remove it");
    }
}
