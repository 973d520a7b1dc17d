//! The objects of a TF 2 program whose variables a checkpoint has: which holds which, under what name.
//!
//! A tensor's key is the path of the attributes that lead to its object from the root, `/.ATTRIBUTES/` and
//! the name of the tensor in the object. A slot variable, which an optimizer keeps for a variable, has the
//! key of that variable's path, `/.OPTIMIZER_SLOT/`, the optimizer's path and the slot's name. In a name, `.`
//! is written `..`, and `/` is written `.S`.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::VecDeque;

use prost::Message as _;

use super::Checkpoint;
use super::error::{CheckpointError, quoted};
use super::near::near;
use crate::proto::TrackableObjectGraph;
use crate::proto::trackable_object_graph::TrackableObject;
use crate::{Elements, Tensor};

/// The tensor that has the graph.
const GRAPH: &str = "_CHECKPOINTABLE_OBJECT_GRAPH";
/// The part of a key between the path of an object and the name of its tensor.
const ATTRIBUTES: &str = "/.ATTRIBUTES/";
/// The part of a key between the path of a variable and the path of an optimizer.
const SLOT: &str = "/.OPTIMIZER_SLOT/";

/// The graph of a checkpoint's objects. Object 0 is the root. Objects may hold one another in a circle.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectGraph {
    objects: Vec<Object>,
    /// For each object, the object and the name by which it is first reached from the root.
    reached_by: Vec<Option<(usize, usize)>>,
}

/// An object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// The objects that it holds.
    pub children: Vec<Child>,
    /// The tensors that it has in the checkpoint.
    pub tensors: Vec<ObjectTensor>,
    /// The slot variables that it keeps as an optimizer.
    pub slots: Vec<SlotVariable>,
    /// The name that its class is registered by for saving, if it is.
    pub saver: Option<String>,
}

/// An object that another holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Child {
    /// The name of the attribute, or the number of the item of a list.
    pub name: String,
    /// The number of the object.
    pub object: usize,
}

/// A tensor of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectTensor {
    /// What it is in the object: `VARIABLE_VALUE` is a variable's value.
    pub name: String,
    /// The name that the variable had in its program, if it had one.
    pub full_name: String,
    /// The name of the tensor in the checkpoint. A table has several tensors, whose names begin with this.
    pub key: String,
}

/// A variable that an optimizer keeps for another variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotVariable {
    /// The number of the variable's object.
    pub variable: usize,
    /// The name of the slot: `m`, `v`, `momentum`.
    pub name: String,
    /// The number of the slot variable's object.
    pub object: usize,
}

/// A line of the tree of objects, in which an object's children come once, where it is first reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeLine<'a> {
    /// How many objects are above it.
    pub depth: usize,
    /// The name that it has in the object above it; none for the root.
    pub name: Option<&'a str>,
    /// The number of the object.
    pub object: usize,
    /// Whether the object's children are not below this line, but where it comes first.
    pub is_repeated: bool,
}

impl Checkpoint {
    /// Returns the graph of the objects that were saved. It is read once.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Index`] if the checkpoint was not made of objects, or its graph is malformed;
    /// [`CheckpointError`] as from [`tensor`](Self::tensor).
    pub fn objects(&self) -> Result<&ObjectGraph, CheckpointError> {
        match self.objects.get() {
            Some(objects) => Ok(objects),
            // Another thread may have been faster; then its graph is kept.
            None => self.read_objects().map(|read| self.objects.get_or_init(|| read)),
        }
    }

    fn read_objects(&self) -> Result<ObjectGraph, CheckpointError> {
        if !self.contains(GRAPH) {
            return Err(self.objects_error(format!(
                "it was not made of objects (tf.train.Checkpoint): there is no tensor {GRAPH}"
            )));
        }
        let graph = self.tensor(GRAPH)?;
        let Some(bytes) = only_string(&graph) else {
            return Err(self.objects_error(format!(
                "the tensor {GRAPH} is {} of shape {:?}, and a graph of objects is one string",
                graph.data_type(),
                graph.shape()
            )));
        };
        ObjectGraph::read(bytes)
            .map_err(|message| self.objects_error(format!("its graph of objects: {message}")))
    }

    fn objects_error(&self, message: String) -> CheckpointError {
        CheckpointError::Index { index: self.index_path.clone(), message }
    }

    /// Returns the name of the tensor that a text means: the name of a tensor itself, or the path of an
    /// object (`net/w`) that has one.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Unknown`] if there is neither; [`CheckpointError::Index`] if the object has no
    /// tensor, or several.
    pub fn key(&self, name_or_path: &str) -> Result<&str, CheckpointError> {
        if self.contains(name_or_path) || !self.contains(GRAPH) {
            return self.info(name_or_path).map(|tensor| tensor.name);
        }
        let key = self.objects()?.key_of(name_or_path).map_err(|error| match error {
            // No tensor has this name, which was looked for first: the error has names that are like it.
            PathError::Unknown { .. } => self.unknown(name_or_path),
            PathError::Tensors { .. } => self.objects_error(error.to_string()),
        })?;
        self.info(key).map(|tensor| tensor.name)
    }
}

fn only_string<'t>(tensor: &'t Tensor<'_>) -> Option<&'t [u8]> {
    match tensor.elements() {
        Elements::Strings(strings) if strings.len() == 1 => strings.first().map(|only| &**only),
        _ => None,
    }
}

/// Why a path leads to no tensor.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// No object is there.
    #[error("{}", unknown(path, *known, near))]
    Unknown {
        /// The path.
        path: String,
        /// How many bytes at its front lead to an object.
        known: usize,
        /// Names like the next one that this object has.
        near: Vec<String>,
    },
    /// The object has no tensor, or several.
    #[error("the object {} has {}", quoted(path), several(names))]
    Tensors {
        /// The path.
        path: String,
        /// The names of its tensors.
        names: Vec<String>,
    },
}

fn unknown(path: &str, known: usize, near: &[String]) -> String {
    let at = match path.get(..known) {
        Some(front) if known > 0 => format!("the object {}", quoted(front)),
        _ => "the root".to_owned(),
    };
    let near: Vec<_> = near.iter().map(|name| quoted(name)).collect();
    let like = if near.is_empty() { String::new() } else { format!("; it has {}", near.join(", ")) };
    format!("there is no object {}: {at} does not hold the next{like}", quoted(path))
}

fn several(names: &[String]) -> String {
    if names.is_empty() {
        return "no tensor of its own".to_owned();
    }
    let names: Vec<_> = names.iter().map(|name| quoted(name)).collect();
    format!("several tensors: end the path with {ATTRIBUTES} and one of {}", names.join(", "))
}

impl ObjectGraph {
    /// Reads a serialized graph; the error says what is wrong with it.
    fn read(bytes: &[u8]) -> Result<Self, String> {
        let graph =
            TrackableObjectGraph::decode(bytes).map_err(|error| format!("it is malformed: {error}"))?;
        let count = graph.nodes.len();
        if count == 0 {
            return Err("it has no object, not even the root".to_owned());
        }
        let objects: Result<Vec<_>, _> =
            graph.nodes.into_iter().enumerate().map(|(number, node)| object(number, node, count)).collect();
        let objects = objects?;
        let reached_by = first_reached(&objects);
        Ok(ObjectGraph { objects, reached_by })
    }

    /// Returns the objects; the first is the root.
    #[must_use]
    pub fn objects(&self) -> &[Object] {
        &self.objects
    }

    fn object(&self, number: usize) -> &Object {
        const NONE: &Object = &Object { children: vec![], tensors: vec![], slots: vec![], saver: None };
        self.objects.get(number).unwrap_or(NONE)
    }

    /// Returns the number of the object at a path from the root: names of attributes with `/` between them. A
    /// name that has a `/` or a `.` is written as in a key, and may be written as it is if it has only a `.`.
    /// The empty path is the root's. A slot variable is found by the front of its key.
    ///
    /// # Errors
    ///
    /// [`PathError::Unknown`] if there is no such object.
    pub fn by_path(&self, path: &str) -> Result<usize, PathError> {
        let Some((variable, slot)) = path.split_once(SLOT) else { return self.walk(path, 0, path) };
        let variable_object = self.walk(variable, 0, path)?;
        let start = path.len().saturating_sub(slot.len());
        let (optimizer, slot) = slot.rsplit_once('/').unwrap_or(("", slot));
        let optimizer_object = self.walk(optimizer, start, path)?;
        let mut slots = self.object(optimizer_object).slots.clone();
        slots.retain(|slot| slot.variable == variable_object);
        named(&slots, slot, |slot| &slot.name).map(|slot| slot.object).ok_or_else(|| {
            let near = slots.iter().map(|slot| slot.name.clone()).collect();
            PathError::Unknown { path: path.to_owned(), known: variable.len(), near }
        })
    }

    /// Walks along the names of `part`, which starts at `start` in `path`.
    fn walk(&self, part: &str, start: usize, path: &str) -> Result<usize, PathError> {
        let mut object = 0;
        let mut at = start;
        for name in part.split('/').filter(|_| !part.is_empty()) {
            let children = &self.object(object).children;
            let Some(child) = named(children, name, |child| &child.name) else {
                let mut near = near(name, children.iter().map(|child| &child.name[..]));
                if near.is_empty() {
                    /// The most names that a message has.
                    const NAMES_MAX: usize = 5;
                    near = children.iter().take(NAMES_MAX).map(|child| child.name.clone()).collect();
                }
                return Err(PathError::Unknown { path: path.to_owned(), known: at.saturating_sub(1), near });
            };
            object = child.object;
            at = at.saturating_add(name.len()).saturating_add(1);
        }
        Ok(object)
    }

    /// Returns the key of the tensor at a path: of an object that has one tensor (`net/w`), or of one of its
    /// tensors (`net/table/.ATTRIBUTES/table-keys`).
    ///
    /// # Errors
    ///
    /// [`PathError`] if there is no such object, or it has no tensor, or several.
    pub fn key_of(&self, path: &str) -> Result<&str, PathError> {
        let (front, name) = match path.split_once(ATTRIBUTES) {
            Some((front, name)) => (front, Some(name)),
            // An object's own path is empty if it is the root.
            None => (path, None),
        };
        let tensors = &self.object(self.by_path(front)?).tensors;
        let found = match name {
            Some(name) => named(tensors, name, |tensor| &tensor.name)
                .or_else(|| tensors.iter().find(|tensor| tensor.key == path)),
            None => tensors.first().filter(|_| tensors.len() == 1),
        };
        found.map(|tensor| &tensor.key[..]).ok_or_else(|| PathError::Tensors {
            path: front.to_owned(),
            names: tensors.iter().map(|tensor| tensor.name.clone()).collect(),
        })
    }

    /// Returns the shortest path to an object, escaped as in keys, or `None` if no attributes lead to it, as
    /// with slot variables.
    #[must_use]
    pub fn path(&self, object: usize) -> Option<String> {
        let mut names = Vec::new();
        let mut at = object;
        while at != 0 {
            let (holder, child) = (*self.reached_by.get(at)?)?;
            names.push(escape(&self.object(holder).children.get(child)?.name));
            at = holder;
        }
        names.reverse();
        (object < self.objects.len()).then(|| names.join("/"))
    }

    /// Returns the tree of objects, as attributes lead to them from the root. An object's children come where
    /// the shortest path leads to it, and only there: so the tree ends, and has a line for each attribute.
    pub fn tree(&self) -> impl Iterator<Item = TreeLine<'_>> {
        let mut open = vec![TreeLine { depth: 0, name: None, object: 0, is_repeated: false }];
        std::iter::from_fn(move || {
            let line = open.pop()?;
            if !line.is_repeated {
                let children = self.object(line.object).children.iter().enumerate().rev();
                open.extend(children.map(|(number, Child { name, object })| {
                    let is_first = self.reached_by.get(*object) == Some(&Some((line.object, number)));
                    let depth = line.depth.saturating_add(1);
                    TreeLine { depth, name: Some(name), object: *object, is_repeated: !is_first }
                }));
            }
            Some(line)
        })
    }
}

/// Converts a node of the graph, whose numbers must be those of nodes.
fn object(number: usize, node: TrackableObject, count: usize) -> Result<Object, String> {
    let checked = |found: i32, what: &str| {
        usize::try_from(found).ok().filter(|&object| object < count).ok_or_else(|| {
            format!("object {number} names object {found} as {what}, and there are {count}, from 0 on")
        })
    };
    let children = node.children.into_iter().map(|child| {
        let object = checked(child.node_id, "a child")?;
        Ok(Child { name: child.local_name, object })
    });
    let tensors = node.attributes.into_iter().map(|tensor| ObjectTensor {
        name: tensor.name,
        full_name: tensor.full_name,
        key: tensor.checkpoint_key,
    });
    let slots = node.slot_variables.into_iter().map(|slot| {
        let variable = checked(slot.original_variable_node_id, "a variable of an optimizer")?;
        let object = checked(slot.slot_variable_node_id, "a slot variable")?;
        Ok(SlotVariable { variable, name: slot.slot_name, object })
    });
    Ok(Object {
        children: children.collect::<Result<_, String>>()?,
        tensors: tensors.collect(),
        slots: slots.collect::<Result<_, String>>()?,
        saver: node.registered_saver.map(|saver| saver.name),
    })
}

/// Returns for each object by which attribute of which object it is reached first, level by level.
fn first_reached(objects: &[Object]) -> Vec<Option<(usize, usize)>> {
    let mut reached_by = vec![None; objects.len()];
    let mut waiting = VecDeque::from([0]);
    while let Some(holder) = waiting.pop_front() {
        let children = objects.get(holder).map(|object| &object.children[..]).unwrap_or_default();
        for (number, child) in children.iter().enumerate() {
            if let Some(reached @ None) = reached_by.get_mut(child.object)
                && child.object != 0
            {
                *reached = Some((holder, number));
                waiting.push_back(child.object);
            }
        }
    }
    reached_by
}

/// Finds what has a name, given as it is in keys, or else as it is.
fn named<'a, T>(items: &'a [T], part: &str, name: impl Fn(&T) -> &str) -> Option<&'a T> {
    let escaped = items.iter().find(|item| escape(name(item)) == part);
    escaped.or_else(|| items.iter().find(|item| name(item) == part))
}

/// Returns a name as it is in keys.
pub(crate) fn escape(name: &str) -> String {
    name.replace('.', "..").replace('/', ".S")
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::proto::trackable_object_graph::trackable_object::{
        ObjectReference, SerializedTensor, SlotVariableReference,
    };

    /// A graph of these attributes (holder, name, object); each object has a tensor.
    fn graph(count: usize, attributes: &[(usize, &str, i32)]) -> Result<ObjectGraph, String> {
        let mut nodes = vec![TrackableObject::default(); count];
        for &(holder, name, node_id) in attributes {
            nodes[holder].children.push(ObjectReference { node_id, local_name: name.to_owned() });
        }
        for (number, node) in nodes.iter_mut().enumerate() {
            let checkpoint_key = format!("key {number}");
            let name = "VARIABLE_VALUE".to_owned();
            node.attributes = vec![SerializedTensor { name, full_name: String::new(), checkpoint_key }];
        }
        ObjectGraph::read(&TrackableObjectGraph { nodes }.encode_to_vec())
    }

    #[test]
    fn objects_are_found_by_their_paths() {
        let attributes =
            [(0, "net", 1), (1, "w", 2), (1, "a/b.c", 3), (1, "self", 1), (3, "root", 0), (0, "w", 2)];
        let graph = graph(5, &attributes).unwrap();
        let found = |path: &str| graph.key_of(path).map_err(|error| error.to_string());
        assert_eq!(found("net/w"), Ok("key 2"));
        assert_eq!(found("net/self/self/w"), Ok("key 2"));
        assert_eq!(found("net/a.Sb..c"), Ok("key 3"));
        assert_eq!(found("net/a.Sb..c/root"), Ok("key 0"));
        assert_eq!(found(""), Ok("key 0"));
        assert_eq!(found("net/w/.ATTRIBUTES/VARIABLE_VALUE"), Ok("key 2"));
        let error = found("net/q").unwrap_err();
        assert!(error.contains("the object \"net\" does not hold the next; it has \"w\""), "{error}");
        assert!(found("nett").unwrap_err().contains("the root does not hold the next; it has \"net\""));
        assert!(found("net/w/.ATTRIBUTES/x").unwrap_err().contains("one of \"VARIABLE_VALUE\""));
        assert_eq!([0, 1, 2, 3].map(|one| graph.path(one).unwrap()), ["", "net", "w", "net/a.Sb..c"]);
        assert_eq!([graph.path(4), graph.path(5)], [None, None], "nothing leads there");
        let tree: Vec<_> = graph
            .tree()
            .map(|line| (line.depth, line.name.unwrap_or_default(), line.object, line.is_repeated))
            .collect();
        let due = [
            (0, "", 0, false),
            (1, "net", 1, false),
            (2, "w", 2, true),
            (2, "a/b.c", 3, false),
            (3, "root", 0, true),
            (2, "self", 1, true),
            (1, "w", 2, false),
        ];
        assert_eq!(tree, due);
    }

    #[test]
    fn slot_variables_are_found_by_the_front_of_their_keys() {
        let mut nodes = vec![TrackableObject::default(); 4];
        for (name, node_id) in [("w", 1), ("opt", 2)] {
            nodes[0].children.push(ObjectReference { node_id, local_name: name.to_owned() });
        }
        nodes[2].slot_variables.push(SlotVariableReference {
            original_variable_node_id: 1,
            slot_name: "m".to_owned(),
            slot_variable_node_id: 3,
        });
        let graph = ObjectGraph::read(&TrackableObjectGraph { nodes }.encode_to_vec()).unwrap();
        assert_eq!(graph.by_path("w/.OPTIMIZER_SLOT/opt/m"), Ok(3));
        let error = graph.by_path("w/.OPTIMIZER_SLOT/opt/v").unwrap_err().to_string();
        assert!(error.contains("it has \"m\""), "{error}");
        assert!(graph.by_path("w/.OPTIMIZER_SLOT/opz/m").is_err());
    }

    #[test]
    fn numbers_that_no_object_has_are_refused() {
        assert!(graph(0, &[]).unwrap_err().contains("no object"));
        assert!(graph(2, &[(0, "a", 2)]).unwrap_err().contains("names object 2 as a child, and there are 2"));
        assert!(graph(2, &[(0, "a", -1)]).is_err());
        assert!(ObjectGraph::read(&[0xff]).unwrap_err().contains("malformed"));
    }

    proptest! {
        /// Any attributes make a tree that ends, with a line for each attribute that the root leads to, and
        /// the path of each object leads to it.
        #[test]
        fn every_graph_ends(
            attributes in prop::collection::vec((0..6_usize, "[a-c./]{1,2}", 0..6_i32), 0..30),
        ) {
            let attributes: std::collections::BTreeMap<_, _> =
                attributes.iter().map(|(holder, name, object)| ((*holder, &name[..]), *object)).collect();
            let attributes: Vec<_> =
                attributes.into_iter().map(|((holder, name), object)| (holder, name, object)).collect();
            let graph = graph(6, &attributes).unwrap();
            let reached: Vec<_> = (0..6).filter(|&object| graph.path(object).is_some()).collect();
            let held = attributes.iter().filter(|(holder, ..)| reached.contains(holder)).count();
            prop_assert_eq!(graph.tree().count(), held + 1);
            for object in reached {
                prop_assert_eq!(graph.by_path(&graph.path(object).unwrap()), Ok(object));
            }
        }

        #[test]
        fn any_bytes_are_a_graph_or_an_error(bytes: Vec<u8>) {
            if let Ok(graph) = ObjectGraph::read(&bytes) {
                prop_assert!(graph.tree().count() <= bytes.len() + 1);
            }
        }
    }
}
