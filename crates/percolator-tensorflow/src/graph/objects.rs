//! What a program of TensorFlow 2 saved: objects that hold one another by name.

use std::collections::{HashMap, VecDeque};
use std::path::Path;

use super::error::GraphError;
use crate::checkpoint::escape;
use crate::proto::trackable_object_graph::trackable_object::SlotVariableReference as SlotVariable;
use crate::proto::{self, saved_object};

/// The objects of a model. The first is the model itself.
#[derive(Clone, Debug)]
pub struct ObjectTree<'a> {
    objects: &'a [proto::SavedObject],
    /// For each object, how it is reached first: by whom, and under which name. `None` if it is not.
    reached: Vec<Option<(usize, &'a str)>>,
    /// The objects that are reached, those near the first object first.
    order: Vec<usize>,
    /// For each object, about how many bytes of memory its path takes.
    path_bytes: Vec<usize>,
    /// The variables that optimizers keep beside others, by the number of the variable, with the optimizer.
    slots: HashMap<usize, (usize, &'a SlotVariable)>,
}

/// One of the objects.
#[derive(Clone, Copy, Debug)]
pub struct SavedObject<'a> {
    number: usize,
    proto: &'a proto::SavedObject,
}

impl<'a> SavedObject<'a> {
    /// Returns its number among the model's objects.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns what it is; `None` if the model does not say. An asset has its number among the graph's
    /// [assets](super::MetaGraph::assets), and a function of Python the names of the graph's functions that
    /// it became.
    #[must_use]
    pub fn kind(&self) -> Option<&'a saved_object::Kind> {
        self.proto.kind.as_ref()
    }

    /// Returns the name that the program registered its class under; empty if under none.
    #[must_use]
    pub fn registered_name(&self) -> &'a str {
        &self.proto.registered_name
    }

    /// Returns the objects that it holds: their names, and their numbers.
    pub fn children(&self) -> impl ExactSizeIterator<Item = (&'a str, usize)> + use<'a> {
        // The numbers were checked when the tree was made.
        self.proto.children.iter().map(|child| (&*child.local_name, index(child.node_id)))
    }

    /// Returns the message, with the fields that [`proto`] has.
    #[must_use]
    pub fn proto(&self) -> &'a proto::SavedObject {
        self.proto
    }
}

/// The memory that a name of a path takes besides its bytes: its place, and what an allocator adds.
const NAME_BYTES: usize = size_of::<String>() + 32;

/// A number that is not one is that of no object.
fn index(number: i32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl<'a> ObjectTree<'a> {
    pub(super) fn of(path: &Path, graph: &'a proto::SavedObjectGraph) -> Result<Self, GraphError> {
        let objects = &*graph.nodes;
        for (number, object) in objects.iter().enumerate() {
            let children = object.children.iter().map(|child| child.node_id);
            let slots = object.slot_variables.iter();
            let slots = slots.flat_map(|slot| [slot.original_variable_node_id, slot.slot_variable_node_id]);
            if let Some(missing) = children.chain(slots).find(|id| index(*id) >= objects.len()) {
                let fault = format!("holds object {missing}, which is not there");
                return Err(GraphError::object(path, number, objects.len(), &fault));
            }
        }
        let mut tree = ObjectTree {
            objects,
            reached: vec![None; objects.len()],
            order: Vec::new(),
            path_bytes: vec![0; objects.len()],
            slots: HashMap::new(),
        };
        tree.reach();
        Ok(tree)
    }

    /// Finds the shortest path to each object, as TensorFlow names them.
    fn reach(&mut self) {
        let mut is_seen = vec![false; self.objects.len()];
        let mut next = VecDeque::new();
        if let Some(first) = is_seen.first_mut() {
            *first = true;
            next.push_back(0);
        }
        while let Some(number) = next.pop_front() {
            self.order.push(number);
            let object = SavedObject { number, proto: &self.objects[number] };
            for slot in &object.proto.slot_variables {
                self.slots.entry(index(slot.slot_variable_node_id)).or_insert((number, slot));
            }
            for (name, child) in object.children() {
                if !std::mem::replace(&mut is_seen[child], true) {
                    self.reached[child] = Some((number, name));
                    self.path_bytes[child] = self.path_bytes[number].saturating_add(name.len() + NAME_BYTES);
                    next.push_back(child);
                }
            }
        }
    }

    /// Returns the number of objects.
    #[must_use]
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns an object by its number.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<SavedObject<'a>> {
        self.objects.get(number).map(|proto| SavedObject { number, proto })
    }

    /// Returns the model's own object.
    #[must_use]
    pub fn root(&self) -> Option<SavedObject<'a>> {
        self.get(0)
    }

    /// Returns the objects that can be reached from the first, those near it first, each once.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = SavedObject<'a>> + '_ {
        self.order.iter().map(|&number| SavedObject { number, proto: &self.objects[number] })
    }

    /// Returns the names that lead to an object by the shortest way, the first of several; `None` if none do.
    #[must_use]
    pub fn path(&self, number: usize) -> Option<Vec<&'a str>> {
        let mut names = Vec::new();
        let mut at = number;
        while at != 0 {
            let (holder, name) = (*self.reached.get(at)?)?;
            names.push(name);
            at = holder;
        }
        names.reverse();
        (number < self.objects.len()).then_some(names)
    }

    /// Returns an object by the names that lead to it, `["net", "w"]`, by whichever way.
    #[must_use]
    pub fn find(&self, path: &[&str]) -> Option<SavedObject<'a>> {
        path.iter().try_fold(self.root()?, |object, name| {
            let (_, child) = object.children().find(|(child, _)| child == name)?;
            self.get(child)
        })
    }

    /// The key of a variable's value in the model's checkpoint.
    pub(super) fn checkpoint_key(&self, number: usize) -> Option<String> {
        const VALUE: &str = ".ATTRIBUTES/VARIABLE_VALUE";
        if let Some(prefix) = self.key(number) {
            return Some(format!("{prefix}{VALUE}"));
        }
        // What an optimizer keeps beside a variable is named by both.
        let (optimizer, slot) = self.slots.get(&number)?;
        let variable = self.key(index(slot.original_variable_node_id))?;
        let (optimizer, name) = (self.key(*optimizer)?, escape(&slot.slot_name));
        Some(format!("{variable}.OPTIMIZER_SLOT/{optimizer}{name}/{VALUE}"))
    }

    /// About how many bytes of memory the path of an object takes.
    pub(super) fn path_bytes(&self, number: usize) -> usize {
        let own = |number: usize| self.path_bytes.get(number).copied().unwrap_or_default();
        match self.slots.get(&number) {
            Some((optimizer, slot)) => {
                let variable = own(index(slot.original_variable_node_id));
                own(number).saturating_add(own(*optimizer)).saturating_add(variable)
            }
            None => own(number),
        }
    }

    /// The path of an object as checkpoints write it, with `/` after each name.
    fn key(&self, number: usize) -> Option<String> {
        Some(self.path(number)?.into_iter().map(|name| escape(name) + "/").collect())
    }
}
