//! How the leaves of an item make its parts: PyTorch's tree of containers, as the index has it.

use serde_json::Value as Json;

use crate::fields::has_twice;

/// How deep containers may stand in each other.
const DEPTH_MAX: usize = 32;

/// The name of an item that is one leaf.
const WHOLE: &str = "record";

/// A leaf, or a container of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// Its number among the leaves.
    Leaf(usize),
    List(Vec<Tree>),
    Struct(Vec<(String, Tree)>),
}

impl Tree {
    /// The parts of an item: the members of a dictionary, or what a list has by its numbers. Without a
    /// description, each leaf is a part.
    pub(super) fn parts_of(spec: Option<&str>, leaves: usize) -> Result<Vec<(String, Tree)>, String> {
        let mut next = 0;
        let whole = match spec {
            None => Tree::List((0..leaves).map(Tree::Leaf).collect()),
            Some(spec) => {
                let json: Json =
                    serde_json::from_str(spec).map_err(|error| format!("is no JSON: {error}"))?;
                let [version, spec] = json.as_array().map(Vec::as_slice).unwrap_or_default() else {
                    return Err("has no version and tree".to_owned());
                };
                if *version != 1 {
                    return Err(format!("is of version {version}, and version 1 is read"));
                }
                let tree = Tree::of(spec, &mut next, DEPTH_MAX)?;
                if next != leaves {
                    return Err(format!("has {next} leaves, and data_format has {leaves}"));
                }
                tree
            }
        };
        Ok(match whole {
            Tree::Leaf(leaf) => vec![(WHOLE.to_owned(), Tree::Leaf(leaf))],
            Tree::Struct(members) => members,
            Tree::List(values) => {
                values.into_iter().enumerate().map(|(number, value)| (number.to_string(), value)).collect()
            }
        })
    }

    /// Reads a node, the number of whose first leaf is `next`.
    fn of(spec: &Json, next: &mut usize, depth: usize) -> Result<Self, String> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(format!("has containers more than {DEPTH_MAX} deep in each other"));
        };
        let children =
            spec.get("children_spec").and_then(Json::as_array).map(Vec::as_slice).unwrap_or_default();
        let Some(dtype) = spec.get("type").and_then(Json::as_str) else {
            let leaf = Tree::Leaf(*next);
            *next = next.saturating_add(1);
            return Ok(leaf);
        };
        let mut values = Vec::with_capacity(children.len());
        for child in children {
            values.push(Tree::of(child, next, depth)?);
        }
        match dtype {
            "builtins.list" | "builtins.tuple" => Ok(Tree::List(values)),
            "builtins.dict" | "collections.OrderedDict" => {
                let keys = keys(spec).filter(|keys| keys.len() == values.len());
                let keys = keys.ok_or_else(|| {
                    format!("has no keys, or one twice, of a {dtype} of {} values", values.len())
                })?;
                Ok(Tree::Struct(keys.into_iter().zip(values).collect()))
            }
            other => Err(format!("has a {other}; dictionaries, lists and tuples are read")),
        }
    }
}

/// The keys of a dictionary, which are JSON in a text. Those that are numbers are named by their digits.
fn keys(spec: &Json) -> Option<Vec<String>> {
    let context: Json = serde_json::from_str(spec.get("context")?.as_str()?).ok()?;
    let keys = context.as_array()?.iter().map(|key| match key {
        Json::String(key) => Some(key.clone()),
        Json::Number(key) => Some(key.to_string()),
        _ => None,
    });
    let keys: Option<Vec<String>> = keys.collect();
    keys.filter(|keys| !has_twice(keys.iter().map(|key| &**key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_are_numbered_in_order() {
        let leaf = r#"{"type": null, "context": null, "children_spec": []}"#;
        let list =
            format!(r#"{{"type": "builtins.list", "context": "null", "children_spec": [{leaf}, {leaf}]}}"#);
        let spec = format!(
            r#"[1, {{"type": "builtins.dict", "context": "[\"a\", 7]", "children_spec": [{list}, {leaf}]}}]"#
        );
        let list = Tree::List(vec![Tree::Leaf(0), Tree::Leaf(1)]);
        let due = vec![("a".to_owned(), list), ("7".to_owned(), Tree::Leaf(2))];
        assert_eq!(Tree::parts_of(Some(&spec), 3), Ok(due));
        assert!(Tree::parts_of(Some(&spec), 2).unwrap_err().contains("3 leaves"));
        assert_eq!(
            Tree::parts_of(Some(&format!("[1, {leaf}]")), 1),
            Ok(vec![("record".to_owned(), Tree::Leaf(0))])
        );
        assert_eq!(Tree::parts_of(None, 1), Ok(vec![("0".to_owned(), Tree::Leaf(0))]));
    }

    #[test]
    fn what_is_not_read_is_named() {
        let of = |spec: &str| Tree::parts_of(Some(spec), 0).unwrap_err();
        assert!(of("[2, {}]").contains("version 2"));
        assert!(of("{").contains("no JSON"));
        assert!(of(r#"[1, {"type": "builtins.set", "children_spec": []}]"#).contains("builtins.set"));
        assert!(
            of(r#"[1, {"type": "builtins.dict", "context": "[1]", "children_spec": []}]"#)
                .contains("no keys")
        );
        let deep = (0..33).fold(r#"{"type": null}"#.to_owned(), |inner, _| {
            format!(r#"{{"type": "builtins.list", "children_spec": [{inner}]}}"#)
        });
        assert!(of(&format!("[1, {deep}]")).contains("32 deep"));
    }
}
