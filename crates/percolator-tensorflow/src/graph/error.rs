//! What can be wrong with a model's graph, or with a question about it.

use std::io;
use std::path::{Path, PathBuf};

use percolator_files::shown;

use super::constant::ConstantError;

/// Why a model cannot be read, or does not have what was asked for.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// A file cannot be read, or is larger than a message can be.
    #[error("{}: cannot be read", shown::path(.path))]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// No model that can be read is there: none at all, one in chunks, an empty file, or another message.
    #[error("{}: {fault}", shown::path(.path))]
    NoModel {
        /// The file or folder.
        path: PathBuf,
        /// What is there, and what to do.
        fault: String,
    },
    /// Bytes are not the message that should be there.
    #[error("{}: not a {message}, or damaged: {fault}", shown::path(.path))]
    Binary {
        /// The file.
        path: PathBuf,
        /// The message that should be there.
        message: &'static str,
        /// The fields that lead to the fault, from the inside, and what is wrong.
        fault: String,
    },
    /// Text is not the message that should be there.
    #[error("{}:{line}:{column}: not a {message} in text: {fault}", shown::path(.path))]
    Text {
        /// The file.
        path: PathBuf,
        /// The message that should be there.
        message: &'static str,
        /// Lines count from 1.
        line: usize,
        /// Characters of the line count from 1.
        column: usize,
        /// What is wrong.
        fault: String,
    },
    /// No meta graph has exactly these tags.
    #[error(
        "{}: no meta graph with the tags {}: there {} ({})",
        shown::path(.path), set(.wanted), are(.there.len()), sets(.there)
    )]
    Tags {
        /// The file.
        path: PathBuf,
        /// The tags that were asked for.
        wanted: Vec<String>,
        /// The tags of each meta graph.
        there: Vec<Vec<String>>,
    },
    /// There is no signature of this name.
    #[error(
        "{}: no signature {:?}: there {} ({})",
        shown::path(.path), front(.name), are(.there.len()), list(.there)
    )]
    NoSignature {
        /// The file.
        path: PathBuf,
        /// The name that was asked for.
        name: String,
        /// The names of the signatures that there are.
        there: Vec<String>,
    },
    /// There is no node of this name.
    #[error("{}: no node {:?} in the graph{}", shown::path(.path), front(.name), asked_by(.input_of))]
    NoNode {
        /// The file.
        path: PathBuf,
        /// The name of the node.
        name: String,
        /// The node that has it as an input, if one has.
        input_of: Option<String>,
    },
    /// Two nodes have one name, so that it is not known which one an input means.
    #[error("{}: two nodes are named {:?}", shown::path(.path), front(.name))]
    DuplicateNode {
        /// The file.
        path: PathBuf,
        /// Their name.
        name: String,
    },
    /// Nodes need one another, other than by a loop's NextIteration: they have no order.
    #[error("{}: nodes that need one another have no order: {}", shown::path(.path), list(.nodes))]
    Cycle {
        /// The file.
        path: PathBuf,
        /// Some of the nodes, in the order in which each needs the next.
        nodes: Vec<String>,
    },
    /// A constant has no value.
    #[error("{}: node {:?}: {error}", shown::path(.path), front(.node))]
    Constant {
        /// The file.
        path: PathBuf,
        /// The node's name.
        node: String,
        /// What is wrong with its value: the message says it.
        error: ConstantError,
    },
    /// An asset is not where it should be.
    #[error(
        "{}: the asset {:?} is not there: open the folder of the SavedModel, with its folder `assets`",
        shown::path(.path), front(.asset)
    )]
    NoAsset {
        /// The path where it should be, or the graph's file if that is not part of a SavedModel.
        path: PathBuf,
        /// Its name in the model.
        asset: String,
    },
    /// An asset's name leads out of the folder of assets.
    #[error(
        "{}: the asset {:?} is not in the folder of assets: it is not opened",
        shown::path(.path), front(.asset)
    )]
    AssetOutside {
        /// The model's file.
        path: PathBuf,
        /// Its name in the model.
        asset: String,
    },
    /// A part of the model contradicts itself, the format, or what a model can be: a shape, an entry of a
    /// collection, the keys of variables, or the objects.
    #[error("{}: {fault}", shown::path(.path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which part it is, what was found, and what is allowed.
        fault: String,
    },
}

impl GraphError {
    pub(super) fn no_model(path: &Path, fault: &str) -> Self {
        GraphError::NoModel { path: path.to_owned(), fault: fault.to_owned() }
    }

    pub(super) fn damaged(path: &Path, fault: String) -> Self {
        GraphError::Damaged { path: path.to_owned(), fault }
    }

    /// Of an entry of a collection, which is not what its collection holds.
    pub(super) fn entry(path: &Path, collection: &str, entry: usize, fault: &prost::DecodeError) -> Self {
        let collection = front(collection);
        Self::damaged(path, format!("entry {entry} of the collection {collection:?}: {fault}"))
    }

    /// Of one of a model's objects.
    pub(super) fn object(path: &Path, object: usize, objects: usize, fault: &str) -> Self {
        Self::damaged(path, format!("object {object} of the model's {objects} objects: {fault}"))
    }
}

fn front(name: &str) -> String {
    shown::message(name).to_string()
}

fn asked_by(node: &Option<String>) -> String {
    node.as_ref().map_or_else(String::new, |node| format!(", which {:?} has as an input", front(node)))
}

/// The most names that a message lists.
const LISTED_MAX: usize = 20;

/// Lists names.
pub(super) fn list(names: &[String]) -> String {
    let mut listed: Vec<String> = names.iter().take(LISTED_MAX).map(|name| front(name)).collect();
    if names.len() > LISTED_MAX {
        listed.push(format!("and {} more", names.len() - LISTED_MAX));
    }
    if listed.is_empty() { "none".to_owned() } else { listed.join(", ") }
}

fn set(tags: &[String]) -> String {
    format!("{{{}}}", tags.iter().map(|tag| front(tag)).collect::<Vec<_>>().join(", "))
}

fn sets(there: &[Vec<String>]) -> String {
    list(&there.iter().map(|tags| set(tags)).collect::<Vec<_>>())
}

fn are(count: usize) -> String {
    if count == 1 { "is 1".to_owned() } else { format!("are {count}") }
}
