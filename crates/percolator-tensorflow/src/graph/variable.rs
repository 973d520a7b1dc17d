//! Variables, whose values are in a checkpoint.

use std::collections::{BTreeMap, HashMap, HashSet};

use prost::Message as _;

use super::error::GraphError;
use super::meta_graph::MetaGraph;
use super::node::{Attr, Input, Node};
use super::objects::ObjectTree;
use super::shape::Shape;
use crate::DataType;
use crate::proto::{SavedVariable, VariableDef, collection_def, saved_object};

/// A variable of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// Its name: of its node, or of its object if it has no node.
    pub name: String,
    /// What it is in the graph.
    pub kind: VariableKind,
    /// The type of its elements, if the graph says it.
    pub data_type: Option<DataType>,
    /// Its shape.
    pub shape: Shape,
    /// Whether it is trained, if the graph says it.
    pub is_trainable: Option<bool>,
    /// The key of its value in the checkpoint that comes with the graph: by what restores it, or by the path
    /// of its object. `None` if nothing restores it, or it is not sure which object it is.
    pub checkpoint_key: Option<String>,
    /// Which part of a larger variable it is, if it is one.
    pub slice: Option<VariableSlice>,
    /// The names that lead to its object, if it has one.
    pub object_path: Option<Vec<String>>,
    /// The collections that it is in, in the order of their names.
    pub collections: Vec<String>,
}

/// What a variable is in the graph.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableKind {
    /// A node that is the variable: `VariableV2`, `Variable`.
    Reference,
    /// A node that gives a handle to it: `VarHandleOp`.
    Resource,
    /// An object of a model of TensorFlow 2, without a node.
    Object,
}

/// Which part of a larger variable a variable is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableSlice {
    /// The name of the whole, which is its key in a checkpoint.
    pub full_name: String,
    /// The shape of the whole.
    pub full_shape: Vec<i64>,
    /// Where the part starts on each axis.
    pub offset: Vec<i64>,
    /// The shape of the part.
    pub shape: Vec<i64>,
}

/// The operations of variables, and what they are.
const OPS: [(&str, VariableKind); 4] = [
    ("VariableV2", VariableKind::Reference),
    ("Variable", VariableKind::Reference),
    ("AutoReloadVariable", VariableKind::Reference),
    ("VarHandleOp", VariableKind::Resource),
];

/// The most bytes that the paths of all variables take: in a damaged file, their number is quadratic in its
/// size.
const PATH_BYTES_MAX: usize = 1 << 28;
/// The same of their keys: each variable has its own, and one name in a file may be the key of all.
const KEY_BYTES_MAX: usize = 1 << 28;

pub(super) fn variables(graph: &MetaGraph) -> Result<Vec<Variable>, GraphError> {
    let mut variables = Vec::new();
    // By the name of the node, and by the name that handles of one variable share.
    let (mut by_node, mut by_rated_name) = (BTreeMap::new(), HashMap::new());
    for node in graph.nodes() {
        let Some(&(_, kind)) = OPS.iter().find(|(op, _)| *op == node.op()) else { continue };
        by_node.entry(node.name()).or_insert(variables.len());
        let shared = node.attr("shared_name").and_then(|name| name.text()).filter(|name| !name.is_empty());
        by_rated_name.entry(shared.unwrap_or(node.name())).or_insert_with(Vec::new).push(variables.len());
        variables.push(Variable {
            name: node.name().to_owned(),
            kind,
            data_type: node.attr("dtype").and_then(|dtype| dtype.data_type()),
            shape: graph.shape_attr(node)?,
            is_trainable: None,
            checkpoint_key: None,
            slice: None,
            object_path: None,
            collections: Vec::new(),
        });
    }
    add_keys(graph, &by_node, &mut variables)?;
    for (collection, entry) in definitions(graph)? {
        let name = Input::parse(&entry.variable_name).node();
        let Some(&number) = by_node.get(name) else { continue };
        let found = &mut variables[number];
        if found.collections.last().map(String::as_str) != Some(collection) {
            found.collections.push(collection.to_owned());
        }
        found.is_trainable = Some(entry.trainable || collection == "trainable_variables");
        found.slice = entry.save_slice_info_def.map(|slice| VariableSlice {
            full_name: slice.full_name,
            full_shape: slice.full_shape,
            offset: slice.var_offset,
            shape: slice.var_shape,
        });
    }
    add_objects(graph, &by_rated_name, &mut variables)?;
    Ok(variables)
}

/// Adds the keys by which nodes restore variables.
fn add_keys(
    graph: &MetaGraph,
    by_node: &BTreeMap<&str, usize>,
    variables: &mut [Variable],
) -> Result<(), GraphError> {
    let mut key_bytes = 0_usize;
    for (name, key) in restored(graph) {
        let variable = by_node.get(name).and_then(|&number| variables.get_mut(number));
        let Some(variable) = variable.filter(|variable| variable.checkpoint_key.is_none()) else { continue };
        key_bytes = key_bytes.saturating_add(key.len());
        if key_bytes > KEY_BYTES_MAX {
            let fault = format!(
                "the keys of variables have more than {KEY_BYTES_MAX} bytes in all, which no program writes: \
                 the file is damaged, or not to be trusted"
            );
            return Err(GraphError::damaged(graph.path(), fault));
        }
        variable.checkpoint_key = Some(key.to_owned());
    }
    Ok(())
}

/// Adds what the objects of a model of TensorFlow 2 say.
fn add_objects(
    graph: &MetaGraph,
    by_rated_name: &HashMap<&str, Vec<usize>>,
    variables: &mut Vec<Variable>,
) -> Result<(), GraphError> {
    let Some(objects) = graph.objects()? else { return Ok(()) };
    check_path_bytes(graph, &objects)?;
    let (mut by_key, mut names) = (HashMap::new(), HashMap::<_, usize>::new());
    for (number, variable) in variables.iter().enumerate() {
        if let Some(key) = &variable.checkpoint_key {
            by_key.entry(key.clone()).or_insert(number);
        }
    }
    // The nodes that one key restores are those of one variable.
    let mut others = Vec::new();
    for (object, proto) in variable_objects(&objects) {
        *names.entry(&*proto.name).or_default() += 1;
        let checkpoint_key = objects.checkpoint_key(object);
        let known = checkpoint_key.as_ref().and_then(|key| by_key.remove(key));
        match known.and_then(|number| variables.get_mut(number)) {
            Some(known) => {
                known.object_path = path(&objects, object);
                known.is_trainable = Some(proto.trainable);
            }
            None => others.push((object, proto, checkpoint_key)),
        }
    }
    for (object, proto, checkpoint_key) in others {
        let (data_type, path) = (DataType::from_proto(proto.dtype), path(&objects, object));
        let shape = match &proto.shape {
            Some(shape) => graph.shape(&proto.name, shape)?,
            None => Shape::Unknown,
        };
        // Variables of TensorFlow 2 may share a name, and their nodes then have others: a name says which one
        // is meant only if nothing else has it.
        let known = match by_rated_name.get(&*proto.name).map(Vec::as_slice) {
            Some(&[number]) if names.get(&*proto.name) == Some(&1) => variables.get_mut(number),
            _ => None,
        };
        let is_it = |known: &&mut Variable| {
            known.object_path.is_none() && known.data_type == data_type && known.shape == shape
        };
        match known.filter(is_it) {
            Some(known) => {
                known.object_path = path;
                known.is_trainable = Some(proto.trainable);
                known.checkpoint_key = known.checkpoint_key.take().or(checkpoint_key);
            }
            None => variables.push(Variable {
                name: proto.name.clone(),
                kind: VariableKind::Object,
                data_type,
                shape,
                is_trainable: Some(proto.trainable),
                checkpoint_key,
                slice: None,
                object_path: path,
                collections: Vec::new(),
            }),
        }
    }
    Ok(())
}

fn path(objects: &ObjectTree<'_>, object: usize) -> Option<Vec<String>> {
    objects.path(object).map(|path| path.into_iter().map(str::to_owned).collect())
}

/// The objects that are variables, with their numbers.
fn variable_objects<'a>(objects: &ObjectTree<'a>) -> impl Iterator<Item = (usize, &'a SavedVariable)> {
    let all = (0..objects.len()).filter_map(|number| objects.get(number));
    all.filter_map(|object| match object.kind()? {
        saved_object::Kind::Variable(proto) => Some((object.number(), proto)),
        _ => None,
    })
}

fn check_path_bytes(graph: &MetaGraph, objects: &ObjectTree<'_>) -> Result<(), GraphError> {
    let mut path_bytes = 0_usize;
    for (object, _) in variable_objects(objects) {
        path_bytes = path_bytes.saturating_add(objects.path_bytes(object));
        if path_bytes > PATH_BYTES_MAX {
            let fault = format!("the paths of variables have more than {PATH_BYTES_MAX} bytes in all");
            return Err(GraphError::object(graph.path(), object, objects.len(), &fault));
        }
    }
    Ok(())
}

/// The entries of collections of variables, with the names of the collections.
fn definitions(graph: &MetaGraph) -> Result<Vec<(&str, VariableDef)>, GraphError> {
    const COLLECTIONS: [&str; 6] = [
        "global_step",
        "global_variables",
        "local_variables",
        "model_variables",
        "trainable_variables",
        "variables",
    ];

    let mut definitions = Vec::new();
    for (name, collection) in graph.collections().filter(|(name, _)| COLLECTIONS.contains(name)) {
        let collection_def::Kind::BytesList(entries) = collection else { continue };
        for (entry, bytes) in entries.value.iter().enumerate() {
            let decoded = VariableDef::decode(&**bytes)
                .map_err(|fault| GraphError::entry(graph.path(), name, entry, &fault))?;
            definitions.push((name, decoded));
        }
    }
    Ok(definitions)
}

/// The variables that a checkpoint's tensors are assigned to: the name of the node, and the key. Nodes of the
/// graph assign them, or in models of TensorFlow 2 a function, which is given the variables as arguments.
fn restored(graph: &MetaGraph) -> Vec<(&str, &str)> {
    let mut restored = assigned(graph.nodes(), |name| graph.node(name));
    let call = graph.saver().and_then(|saver| graph.node(Input::parse(&saver.restore_op_name).node()));
    let Some(call) = call else { return restored };
    let given: Vec<_> = call.inputs().filter(|input| !input.is_control()).map(|input| input.node()).collect();
    // One pass over the library: a damaged node may name any number of functions, and one of them often.
    let mut named: HashSet<_> = call.functions().into_iter().collect();
    for function in graph.functions().filter(|function| named.remove(function.name())) {
        let nodes: HashMap<_, _> = function.nodes().map(|node| (node.name(), node)).collect();
        let arguments = function.arguments().map(|(name, _)| name);
        let given: HashMap<_, _> = arguments.zip(given.iter().copied()).collect();
        let of_function = assigned(function.nodes(), |name| nodes.get(name).copied());
        let named = of_function.into_iter().filter_map(|(name, key)| Some((*given.get(name)?, key)));
        restored.extend(named);
    }
    restored
}

/// The same among these nodes; `node` finds one of them by its name.
fn assigned<'a>(
    nodes: impl Iterator<Item = Node<'a>>,
    node: impl Fn(&str) -> Option<Node<'a>>,
) -> Vec<(&'a str, &'a str)> {
    let mut keys = HashMap::new();
    let assigned = nodes.filter(|node| matches!(node.op(), "Assign" | "AssignVariableOp"));
    let restored = assigned.filter_map(|assign| {
        let (variable, names, number) = restored_by(&node, assign)?;
        let keys = keys.entry(names).or_insert_with(|| match node(names)?.attr("value")? {
            Attr::Tensor(value) => Some(value.stored_strings()),
            _ => None,
        });
        let key: &'a [u8] = keys.as_ref()?.get(number)?;
        Some((variable, std::str::from_utf8(key).ok()?))
    });
    restored.collect()
}

/// The variable that a node assigns to, the node with the names of what is restored, and the number of the
/// one that is assigned.
fn restored_by<'a>(
    node: &impl Fn(&str) -> Option<Node<'a>>,
    assign: Node<'a>,
) -> Option<(&'a str, &'a str, usize)> {
    /// A value passes through a few nodes on its way.
    const STEPS_MAX: usize = 8;

    let mut inputs = assign.inputs();
    let variable = inputs.next()?.node();
    let mut value = inputs.next()?;
    for _ in 0..STEPS_MAX {
        let (name, output) = match value {
            Input::Tensor { node, output } => (node, output),
            Input::Named { node, number, .. } => (node, number),
            Input::Control(_) => return None,
        };
        let node = node(name)?;
        match node.op() {
            "Identity" | "Reshape" => value = node.inputs().next()?,
            "RestoreV2" => return Some((variable, node.inputs().nth(1)?.node(), output)),
            "Restore" | "RestoreSlice" => return Some((variable, node.inputs().nth(1)?.node(), 0)),
            _ => return None,
        }
    }
    None
}
