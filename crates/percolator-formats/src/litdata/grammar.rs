//! Finds the parts of an item.

use std::borrow::Cow;
use std::path::Path;

use super::leaf::Leaf;
use super::tree::Tree;
use crate::{Fault, FormatError, Grammar, Options, Part, Value};

/// Finds the parts of an item in its leaves.
#[derive(Debug)]
pub(super) struct LitGrammar {
    leaves: Vec<Leaf>,
    /// Those that are wanted, in the order of their first leaves.
    parts: Vec<(String, Tree)>,
}

/// Gives the bytes of a leaf.
type Leaves<'f, 'a> = &'f dyn Fn(usize) -> Result<&'a [u8], Fault>;

impl LitGrammar {
    pub(super) fn new(
        index: &Path,
        leaves: &[Leaf],
        parts: &[(String, Tree)],
        options: &Options,
    ) -> Result<Self, FormatError> {
        let wanted: Vec<_> = parts.iter().filter(|(name, _)| options.wants(name)).cloned().collect();
        for (name, tree) in &wanted {
            if has_pickle(tree, leaves) {
                let what = format!(
                    "the part {name:?} is a pickle, which runs code when it is read: name the other parts \
                     that are to be read"
                );
                return Err(FormatError::refused(index, what));
            }
        }
        Ok(LitGrammar { leaves: leaves.to_vec(), parts: wanted })
    }

    /// The bytes of each leaf, in order: their sizes stand before them.
    fn each<'a>(&self, item: &'a [u8]) -> Result<Vec<&'a [u8]>, Fault> {
        let head = self.leaves.len().saturating_mul(size_of::<u32>());
        let (sizes, mut rest) = item.split_at_checked(head).ok_or_else(|| {
            Fault::new(format!("the item has {} bytes, and its leaves' sizes take {head}", item.len()))
        })?;
        let mut leaves = Vec::with_capacity(self.leaves.len());
        for (number, size) in sizes.as_chunks::<4>().0.iter().enumerate() {
            let size = u32::from_le_bytes(*size);
            let split = rest.split_at_checked(usize::try_from(size).unwrap_or(usize::MAX));
            let (leaf, after) = split.ok_or_else(|| {
                let left = rest.len();
                Fault::new(format!("leaf {number} has {size} bytes, and {left} are left of the item"))
            })?;
            leaves.push(leaf);
            rest = after;
        }
        if !rest.is_empty() {
            return Err(Fault::new(format!("{} bytes follow the item's leaves", rest.len())));
        }
        Ok(leaves)
    }

    /// The bytes of one leaf.
    fn leaf<'a>(&self, item: &'a [u8], number: usize) -> Result<&'a [u8], Fault> {
        let head = self.leaves.len().saturating_mul(size_of::<u32>());
        let sizes = item.get(..head).unwrap_or_default().as_chunks::<4>().0;
        let size = |size: &[u8; 4]| usize::try_from(u32::from_le_bytes(*size)).unwrap_or(usize::MAX);
        let before = sizes.iter().take(number).map(size).fold(head, usize::saturating_add);
        let bytes = sizes.get(number).map_or(0, size);
        item.get(before..before.saturating_add(bytes)).filter(|_| number < sizes.len()).ok_or_else(|| {
            Fault::new(format!(
                "leaf {number} has {bytes} bytes from byte {before} on, and the item has {}",
                item.len()
            ))
        })
    }

    fn value<'a>(&'a self, tree: &'a Tree, leaf: Leaves<'_, 'a>) -> Result<Value<'a>, Fault> {
        match tree {
            Tree::Leaf(number) => match self.leaves.get(*number) {
                Some(encoding) => encoding.value(leaf(*number)?),
                None => Ok(Value::Null),
            },
            Tree::List(values) => {
                let values = values.iter().map(|value| self.value(value, leaf));
                Ok(Value::List(values.collect::<Result<_, _>>()?))
            }
            Tree::Struct(members) => {
                let members = members
                    .iter()
                    .map(|(name, value)| Ok((Cow::Borrowed(name.as_str()), self.value(value, leaf)?)));
                Ok(Value::Struct(members.collect::<Result<_, Fault>>()?))
            }
        }
    }

    fn part_of<'a>(&'a self, name: &str, tree: &'a Tree, leaf: Leaves<'_, 'a>) -> Result<Value<'a>, Fault> {
        self.value(tree, leaf).map_err(|fault| Fault::new(format!("the part {name:?}: {fault}")))
    }

    fn described(&self, tree: &Tree) -> String {
        match tree {
            Tree::Leaf(number) => self.leaves.get(*number).map(|leaf| leaf.described()).unwrap_or_default(),
            Tree::List(values) => {
                let values: Vec<_> = values.iter().map(|value| self.described(value)).collect();
                format!("[{}]", values.join(", "))
            }
            Tree::Struct(members) => {
                let members =
                    members.iter().map(|(name, value)| format!("{name}: {}", self.described(value)));
                format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

fn has_pickle(tree: &Tree, leaves: &[Leaf]) -> bool {
    match tree {
        Tree::Leaf(number) => leaves.get(*number) == Some(&Leaf::Pickle),
        Tree::List(values) => values.iter().any(|value| has_pickle(value, leaves)),
        Tree::Struct(members) => members.iter().any(|(_, value)| has_pickle(value, leaves)),
    }
}

impl Grammar for LitGrammar {
    fn description(&self) -> String {
        let parts = self.parts.iter().map(|(name, tree)| format!("{name}: {}", self.described(tree)));
        parts.collect::<Vec<_>>().join(", ")
    }

    fn names(&self) -> Option<Vec<String>> {
        Some(self.parts.iter().map(|(name, _)| name.clone()).collect())
    }

    fn parts<'a>(&'a self, item: &'a [u8]) -> Result<Vec<Part<'a>>, Fault> {
        let leaves = self.each(item)?;
        let leaf = |number: usize| Ok(leaves.get(number).copied().unwrap_or_default());
        let parts = self
            .parts
            .iter()
            .map(|(name, tree)| Ok((Cow::Borrowed(name.as_str()), self.part_of(name, tree, &leaf)?)));
        parts.collect()
    }

    fn part<'a>(&'a self, item: &'a [u8], name: &str) -> Result<Option<Value<'a>>, Fault> {
        let Some((_, tree)) = self.parts.iter().find(|(part, _)| part == name) else { return Ok(None) };
        self.part_of(name, tree, &|number| self.leaf(item, number)).map(Some)
    }
}
