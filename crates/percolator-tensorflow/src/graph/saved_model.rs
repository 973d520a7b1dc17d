//! The folder of a SavedModel.

use std::path::{Path, PathBuf};

use prost::Message as _;
use prost::bytes::Bytes;

use super::error::GraphError;
use super::file::{self, Read};
use super::meta_graph::MetaGraph;
use crate::paths::folder_of;
use crate::proto;

/// The meta graphs of a model as bytes, which are parts of the model's.
#[derive(Clone, PartialEq, prost::Message)]
struct Parts {
    #[prost(bytes = "bytes", repeated, tag = "2")]
    meta_graphs: Vec<Bytes>,
}

/// A SavedModel: graphs with their signatures, and the folders `variables` and `assets`.
///
/// ```no_run
/// use percolator_tensorflow::SavedModel;
///
/// let model = SavedModel::open("model")?;
/// let graph = model.meta_graph(&["serve"])?;
/// for signature in graph.signatures()? {
///     for input in signature.inputs() {
///         println!("{} takes {input}", signature.name());
///     }
/// }
/// println!("variables are in {}", model.variables_prefix().display());
/// # Ok::<(), percolator_tensorflow::GraphError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SavedModel {
    folder: PathBuf,
    path: PathBuf,
    /// The whole message; those of the meta graphs are parts of them.
    bytes: Bytes,
    schema_version: i64,
    meta_graphs: Vec<MetaGraph>,
}

impl SavedModel {
    /// Opens the model in a folder: `saved_model.pb`, or `saved_model.pbtxt` if there is no other. (The path
    /// of one of these files does as well.) Neither variables nor assets are read.
    ///
    /// # Errors
    ///
    /// [`GraphError`] if there is no model, or it cannot be read, or is damaged.
    pub fn open(folder: impl AsRef<Path>) -> Result<Self, GraphError> {
        let given = folder.as_ref();
        if given.is_file() {
            let is_text = given.extension().is_some_and(|extension| extension == "pbtxt");
            return Self::read(folder_of(given), given.to_owned(), is_text);
        }
        let [chunked, binary, text] =
            ["saved_model.cpb", "saved_model.pb", "saved_model.pbtxt"].map(|name| given.join(name));
        // In TensorFlow's order.
        if chunked.exists() {
            let fault = "models stored in chunks are not supported, and TensorFlow would read this one and \
                         not a saved_model.pb beside it: save the model without \
                         tf.saved_model.SaveOptions(experimental_image_format=True)";
            return Err(GraphError::no_model(&chunked, fault));
        }
        match (binary.exists(), text.exists()) {
            (true, _) => Self::read(given, binary, false),
            (false, true) => Self::read(given, text, true),
            (false, false) => {
                let fault = "neither saved_model.pb nor saved_model.pbtxt is there: give the folder of a \
                             SavedModel";
                Err(GraphError::no_model(given, fault))
            }
        }
    }

    fn read(folder: &Path, path: PathBuf, is_text: bool) -> Result<Self, GraphError> {
        const NAME: &str = "SavedModel";

        let bytes = file::read(&path)?;
        let read: Read<proto::SavedModel> = if is_text {
            file::parse(&path, NAME, file::text_of(&path, NAME, &bytes)?)?
        } else {
            file::decode(&path, NAME, bytes)?
        };
        let Read { bytes, message } = read;
        // They have been read once, without a fault.
        let parts = Parts::decode(bytes.clone()).unwrap_or_default();
        let meta_graphs = parts.meta_graphs.into_iter().zip(message.meta_graphs);
        let meta_graphs = meta_graphs
            .map(|(bytes, message)| {
                let read = Read { bytes, message };
                MetaGraph::whole(&path, Some(folder.to_owned()), read)
            })
            .collect();
        let schema_version = message.saved_model_schema_version;
        Ok(SavedModel { folder: folder.to_owned(), path, bytes, schema_version, meta_graphs })
    }

    /// Returns its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of the file that was read.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the version of the format, 1 until now.
    #[must_use]
    pub fn schema_version(&self) -> i64 {
        self.schema_version
    }

    /// Returns its meta graphs, in the order of the file.
    #[must_use]
    pub fn meta_graphs(&self) -> &[MetaGraph] {
        &self.meta_graphs
    }

    /// Returns the meta graph that has exactly these tags, in any order, as TensorFlow's loader chooses it.
    /// Of several it is the first.
    ///
    /// # Errors
    ///
    /// [`GraphError::Tags`] if there is none, with the tags that there are.
    pub fn meta_graph(&self, tags: &[&str]) -> Result<&MetaGraph, GraphError> {
        let is_it = |graph: &&MetaGraph| {
            let there = graph.tags();
            tags.iter().all(|tag| there.iter().any(|one| one == tag))
                && there.iter().all(|one| tags.contains(&one.as_str()))
        };
        self.meta_graphs.iter().find(is_it).ok_or_else(|| GraphError::Tags {
            path: self.path.clone(),
            wanted: tags.iter().map(|&tag| tag.to_owned()).collect(),
            there: self.meta_graphs.iter().map(|graph| graph.tags().to_vec()).collect(),
        })
    }

    /// Returns the prefix of the checkpoint with the variables: `FOLDER/variables/variables`. A model without
    /// variables has no files there.
    #[must_use]
    pub fn variables_prefix(&self) -> PathBuf {
        self.folder.join("variables").join("variables")
    }

    /// Returns what identifies the model, if it comes with `fingerprint.pb`.
    ///
    /// # Errors
    ///
    /// [`GraphError`] if the file cannot be read, or is damaged.
    pub fn fingerprint(&self) -> Result<Option<proto::FingerprintDef>, GraphError> {
        let path = self.folder.join("fingerprint.pb");
        if !path.exists() {
            return Ok(None);
        }
        let read = file::decode(&path, "FingerprintDef", file::read(&path)?)?;
        Ok(Some(read.message))
    }

    /// Returns the model in protobuf's binary form, with all that the file has, known or not.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.bytes.to_vec()
    }

    /// Returns the same in text: see [`MetaGraph::to_text`].
    ///
    /// # Errors
    ///
    /// As [`MetaGraph::to_text`].
    pub fn to_text(&self) -> Result<String, GraphError> {
        file::print(&self.path, "SavedModel", &self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meta_graphs_are_parts_of_the_same_bytes() {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        for folder in ["module", "article_ref_saved_model_text"] {
            let model = SavedModel::open(data.join(folder)).unwrap();
            let whole = model.bytes.as_ptr_range();
            for graph in model.meta_graphs() {
                let part = graph.stored().as_ptr_range();
                assert!(whole.start < part.start && part.end <= whole.end, "{folder}");
            }
            assert!(!model.meta_graphs().is_empty());
        }
    }
}
