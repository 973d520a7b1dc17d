//! A graph, and what is known about it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use prost::bytes::Bytes;

use super::asset::{self, Asset};
use super::constant::{Constant, ConstantError};
use super::error::GraphError;
use super::file::{self, Read};
use super::library::GraphFunction;
use super::node::{Attr, Node};
use super::objects::ObjectTree;
use super::shape::Shape;
use super::signature::Signature;
use super::variable::{self, Variable};
use crate::DataType;
use crate::proto::{self, collection_def};
use crate::text;

/// A graph with what is known of it: one of a [`SavedModel`](super::SavedModel), the file `.meta` of a Saver,
/// or a graph alone.
///
/// ```no_run
/// use percolator_tensorflow::MetaGraph;
///
/// let graph = MetaGraph::open("model.meta")?;
/// for placeholder in graph.placeholders()? {
///     println!("{} {:?} {}", placeholder.name, placeholder.data_type, placeholder.shape);
/// }
/// # Ok::<(), percolator_tensorflow::GraphError>(())
/// ```
#[derive(Clone, Debug)]
pub struct MetaGraph {
    path: PathBuf,
    /// The folder of the model that it is part of.
    model: Option<PathBuf>,
    proto: Arc<proto::MetaGraphDef>,
    /// The bytes of the message: of a `GraphDef` if the graph is alone. They have the fields that the schema
    /// does not. They are a part of the model's, if it is part of one.
    bytes: Bytes,
    is_alone: bool,
    /// The numbers of the nodes, in the order of their names.
    by_name: Arc<[usize]>,
}

/// A node that stands for a value that a caller gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Placeholder<'a> {
    /// The node's name.
    pub name: &'a str,
    /// The type of its elements, if it is one of TensorFlow 2.21's.
    pub data_type: Option<DataType>,
    /// Its shape.
    pub shape: Shape,
}

impl MetaGraph {
    /// Opens a file with a meta graph or a graph, in protobuf's binary form or in text; the content decides
    /// which.
    ///
    /// # Errors
    ///
    /// [`GraphError`] if the file cannot be read, is damaged, or holds something else.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, GraphError> {
        let path = path.as_ref();
        let bytes = file::read(path)?;
        match file::as_text(&bytes) {
            Some(text) => match Self::of_text(path, text) {
                // A short message in binary form may happen to have the bytes of a text.
                Err(error) => Self::of_bytes(path, bytes).map_err(|_| error),
                graph => graph,
            },
            None => Self::of_bytes(path, bytes),
        }
    }

    fn of_text(path: &Path, text: &str) -> Result<Self, GraphError> {
        match text::first_name(text) {
            "node" | "library" | "versions" | "version" | "debug_info" => {
                Ok(Self::alone(path, file::parse(path, "GraphDef", text)?))
            }
            "saved_model_schema_version" | "meta_graphs" => {
                let fault = "holds a SavedModel, not a MetaGraphDef or GraphDef: open its folder as a \
                             SavedModel";
                Err(GraphError::no_model(path, fault))
            }
            _ => Ok(Self::whole(path, None, file::parse(path, "MetaGraphDef", text)?)),
        }
    }

    fn of_bytes(path: &Path, bytes: Bytes) -> Result<Self, GraphError> {
        let meta = file::decode::<proto::MetaGraphDef>(path, "MetaGraphDef", bytes.clone());
        if meta.as_ref().is_ok_and(|meta| has_graph(&meta.message)) {
            return meta.map(|meta| Self::whole(path, None, meta));
        }
        // Bytes may be either message; choose the one with plausible nodes.
        match file::decode::<proto::GraphDef>(path, "GraphDef", bytes) {
            Ok(graph) if is_graph(&graph.message) => Ok(Self::alone(path, graph)),
            _ => meta.map(|meta| Self::whole(path, None, meta)),
        }
    }

    fn alone(path: &Path, graph: Read<proto::GraphDef>) -> Self {
        let message = proto::MetaGraphDef { graph_def: Some(graph.message), ..Default::default() };
        let whole = Self::whole(path, None, Read { bytes: graph.bytes, message });
        MetaGraph { is_alone: true, ..whole }
    }

    /// A whole meta graph; `model` is the folder of the model that it is part of.
    pub(super) fn whole(path: &Path, model: Option<PathBuf>, read: Read<proto::MetaGraphDef>) -> Self {
        let nodes = read.message.graph_def.as_ref().map_or(&[][..], |graph| &graph.node);
        let mut by_name: Vec<usize> = (0..nodes.len()).collect();
        by_name.sort_by(|one, other| nodes[*one].name.cmp(&nodes[*other].name));
        MetaGraph {
            path: path.to_owned(),
            model,
            proto: Arc::new(read.message),
            bytes: read.bytes,
            is_alone: false,
            by_name: by_name.into(),
        }
    }

    /// Returns the path of its file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the message, with the fields that [`proto`] has.
    #[must_use]
    pub fn proto(&self) -> &proto::MetaGraphDef {
        &self.proto
    }

    /// Returns the message in protobuf's binary form, with all that the file has, known or not: of a
    /// `MetaGraphDef`, or of a `GraphDef` if the file holds no more.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.to_vec()
    }

    /// Returns the same in text, which protobuf reads. Fields that are not known are left out, because they
    /// cannot be read from text.
    ///
    /// # Errors
    ///
    /// [`GraphError::Binary`] if a part is damaged that is only printed (what says where nodes come from, for
    /// one): such parts are not read when the file is opened.
    pub fn to_text(&self) -> Result<String, GraphError> {
        file::print(&self.path, if self.is_alone { "GraphDef" } else { "MetaGraphDef" }, &self.bytes)
    }

    /// Whether the file holds a graph without what is known of it.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.is_alone
    }

    fn info(&self) -> Option<&proto::meta_graph_def::MetaInfoDef> {
        self.proto.meta_info_def.as_ref()
    }

    /// Returns its tags, `serve` for one, in the order of the file.
    #[must_use]
    pub fn tags(&self) -> &[String] {
        self.info().map_or(&[], |info| &info.tags)
    }

    /// Returns the version of TensorFlow that wrote it, if it says so.
    #[must_use]
    pub fn tensorflow_version(&self) -> Option<&str> {
        self.info().map(|info| &*info.tensorflow_version).filter(|version| !version.is_empty())
    }

    /// Returns the commit of TensorFlow that wrote it, if it says so.
    #[must_use]
    pub fn tensorflow_git_version(&self) -> Option<&str> {
        self.info().map(|info| &*info.tensorflow_git_version).filter(|version| !version.is_empty())
    }

    /// Returns the versions of the graph's format that understand it, if it says so.
    #[must_use]
    pub fn versions(&self) -> Option<&proto::VersionDef> {
        self.graph().and_then(|graph| graph.versions.as_ref())
    }

    /// Returns the names of the nodes that save and restore, if it has such.
    #[must_use]
    pub fn saver(&self) -> Option<&proto::SaverDef> {
        self.proto.saver_def.as_ref()
    }

    /// Returns its collections, in the order of their names.
    pub fn collections(&self) -> impl Iterator<Item = (&str, &collection_def::Kind)> {
        let collections = self.proto.collection_def.iter();
        collections.filter_map(|(name, collection)| Some((&**name, collection.kind.as_ref()?)))
    }

    pub(super) fn graph(&self) -> Option<&proto::GraphDef> {
        self.proto.graph_def.as_ref()
    }

    pub(super) fn node_protos(&self) -> &[proto::NodeDef] {
        self.graph().map_or(&[], |graph| &graph.node)
    }

    /// Returns its nodes, in the order of the file.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = Node<'_>> {
        self.node_protos().iter().map(|proto| Node { proto })
    }

    /// Returns a node by its name, in O(log n). Of several with one name, which is a
    /// [fault](Self::faults), it is the first.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<Node<'_>> {
        self.node_number(name).and_then(|number| self.node_protos().get(number)).map(|proto| Node { proto })
    }

    /// The number of a node.
    pub(super) fn node_number(&self, name: &str) -> Option<usize> {
        let nodes = self.node_protos();
        let at = self.by_name.partition_point(|number| *nodes[*number].name < *name);
        self.by_name.get(at).copied().filter(|number| nodes[*number].name == name)
    }

    /// The numbers of the nodes, in the order of their names, and of the file among those of one name.
    pub(super) fn numbers_by_name(&self) -> &[usize] {
        &self.by_name
    }

    /// Returns the functions of its library, in the order of the file.
    pub fn functions(&self) -> impl ExactSizeIterator<Item = GraphFunction<'_>> {
        let library = self.graph().and_then(|graph| graph.library.as_ref());
        library.map_or(&[][..], |library| &library.function).iter().map(|proto| GraphFunction { proto })
    }

    /// Returns a function of its library by its name.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<GraphFunction<'_>> {
        self.functions().find(|function| function.name() == name)
    }

    /// Returns its signatures, in the order of their names. Those whose names begin with `__saved_model` are
    /// TensorFlow's own.
    ///
    /// # Errors
    ///
    /// [`GraphError::Damaged`] if a shape has a negative extent other than -1.
    pub fn signatures(&self) -> Result<Vec<Signature<'_>>, GraphError> {
        let signatures = self.proto.signature_def.iter();
        signatures.map(|(name, proto)| Signature::of(self, name, proto)).collect()
    }

    /// Returns a signature by its name.
    ///
    /// # Errors
    ///
    /// [`GraphError::NoSignature`] if there is none, with the names of those that there are;
    /// [`GraphError::Damaged`] if a shape of it has a negative extent other than -1.
    pub fn signature(&self, name: &str) -> Result<Signature<'_>, GraphError> {
        match self.proto.signature_def.get_key_value(name) {
            Some((name, proto)) => Signature::of(self, name, proto),
            None => Err(GraphError::NoSignature {
                path: self.path.clone(),
                name: name.to_owned(),
                there: self.proto.signature_def.keys().cloned().collect(),
            }),
        }
    }

    /// Returns the nodes that stand for values that a caller gives, in the order of the file. (A
    /// `PlaceholderWithDefault` has a value, and is not among them.)
    ///
    /// # Errors
    ///
    /// [`GraphError::Damaged`] if a shape has a negative extent other than -1.
    pub fn placeholders(&self) -> Result<Vec<Placeholder<'_>>, GraphError> {
        let placeholders = self.nodes().filter(|node| matches!(node.op(), "Placeholder" | "PlaceholderV2"));
        placeholders
            .map(|node| {
                let data_type = node.attr("dtype").and_then(|dtype| dtype.data_type());
                Ok(Placeholder { name: node.name(), data_type, shape: self.shape_attr(node)? })
            })
            .collect()
    }

    /// The shape in a node's attribute `shape`; an unknown one if it has none.
    pub(super) fn shape_attr(&self, node: Node<'_>) -> Result<Shape, GraphError> {
        match node.attr("shape") {
            Some(Attr::Shape(shape)) => self.shape(node.name(), shape),
            _ => Ok(Shape::Unknown),
        }
    }

    pub(super) fn shape(&self, whose: &str, shape: &proto::TensorShapeProto) -> Result<Shape, GraphError> {
        Shape::of(shape).map_err(|fault| {
            let whose = percolator_files::shown::message(whose);
            GraphError::damaged(&self.path, format!("the shape of {whose} {fault}"))
        })
    }

    /// Returns the constants: the names of the nodes, and the values, which are read when they are asked for.
    pub fn constants(&self) -> impl Iterator<Item = (&str, Constant<'_>)> {
        let constants = self.nodes().filter(|node| node.op() == "Const");
        constants.filter_map(|node| match node.attr("value")? {
            Attr::Tensor(constant) => Some((node.name(), constant)),
            _ => None,
        })
    }

    /// Returns the value of a constant by the node's name.
    ///
    /// # Errors
    ///
    /// [`GraphError`] if there is no such node, or its value is damaged or too large.
    pub fn constant(&self, name: &str) -> Result<crate::Tensor<'_>, GraphError> {
        let Some(node) = self.node(name) else {
            return Err(GraphError::NoNode {
                path: self.path.clone(),
                name: name.to_owned(),
                input_of: None,
            });
        };
        let value = match node.attr("value") {
            Some(Attr::Tensor(constant)) => constant.value(),
            _ => {
                let fault = format!("a node of operation {:?} has no value in the graph", node.op());
                Err(ConstantError::NoValue(fault))
            }
        };
        value.map_err(|error| {
            let (path, node) = (self.path.clone(), name.to_owned());
            GraphError::Constant { path, node, error }
        })
    }

    /// Returns its variables: those of the graph in the order of the file, then those that only its
    /// [objects](Self::objects) have.
    ///
    /// # Errors
    ///
    /// [`GraphError`] if a shape, an entry of a collection, or an object is damaged.
    pub fn variables(&self) -> Result<Vec<Variable>, GraphError> {
        variable::variables(self)
    }

    /// Returns the objects of a program of TensorFlow 2, if it was saved by one.
    ///
    /// # Errors
    ///
    /// [`GraphError::Damaged`] if an object names one that is not there.
    pub fn objects(&self) -> Result<Option<ObjectTree<'_>>, GraphError> {
        self.proto.object_graph_def.as_ref().map(|objects| ObjectTree::of(&self.path, objects)).transpose()
    }

    /// Returns its assets: files that come with the model, whose paths are given to tensors.
    ///
    /// # Errors
    ///
    /// [`GraphError::Damaged`] if an entry of the old collection of assets is damaged.
    pub fn assets(&self) -> Result<Vec<Asset<'_>>, GraphError> {
        asset::assets(self)
    }

    /// The bytes of the message.
    #[cfg(test)]
    pub(super) fn stored(&self) -> &[u8] {
        &self.bytes
    }

    /// The folder of the model that it is part of.
    pub(super) fn model(&self) -> Option<&Path> {
        self.model.as_deref()
    }
}

/// Whether a meta graph has a graph with nodes.
fn has_graph(meta: &proto::MetaGraphDef) -> bool {
    meta.graph_def.as_ref().is_some_and(is_graph)
}

/// Whether the nodes are such as TensorFlow writes.
fn is_graph(graph: &proto::GraphDef) -> bool {
    let is_op = |op: &str| {
        let is_part =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'>' | b'.' | b'-' | b'/');
        !op.is_empty() && op.bytes().all(is_part)
    };
    !graph.node.is_empty() && graph.node.iter().all(|node| !node.name.is_empty() && is_op(&node.op))
}
