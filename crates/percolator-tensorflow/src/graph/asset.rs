//! Files that come with a model.

use std::path::{Component, Path, PathBuf};

use prost::Message as _;

use super::error::GraphError;
use super::meta_graph::MetaGraph;
use crate::proto::{self, collection_def::Kind, tensor_info};

/// The collection in which old models list their assets.
const COLLECTION: &str = "saved_model_assets";

/// A file of a model's folder `assets`, and the tensor that is given its path.
#[derive(Clone, Debug, PartialEq)]
pub struct Asset<'a> {
    graph: &'a Path,
    folder: Option<PathBuf>,
    filename: String,
    tensor: String,
}

impl Asset<'_> {
    /// Returns its name in the folder.
    #[must_use]
    pub fn filename(&self) -> &str {
        &self.filename
    }

    /// Returns the name of the tensor that is given its path, `asset_path_initializer:0` for one.
    #[must_use]
    pub fn tensor(&self) -> &str {
        &self.tensor
    }

    /// Returns its path.
    ///
    /// # Errors
    ///
    /// [`GraphError::NoAsset`] if no file is there, or the graph is not part of a SavedModel;
    /// [`GraphError::AssetOutside`] if the name leads out of the folder.
    pub fn path(&self) -> Result<PathBuf, GraphError> {
        let asset = self.filename.clone();
        let is_inside = Path::new(&asset).components().all(|part| matches!(part, Component::Normal(_)));
        if !is_inside || asset.is_empty() {
            return Err(GraphError::AssetOutside { path: self.graph.to_owned(), asset });
        }
        let Some(folder) = &self.folder else {
            return Err(GraphError::NoAsset { path: self.graph.to_owned(), asset });
        };
        let path = folder.join("assets").join(&asset);
        if path.is_file() { Ok(path) } else { Err(GraphError::NoAsset { path, asset }) }
    }
}

/// The assets of a graph.
pub(super) fn assets(graph: &MetaGraph) -> Result<Vec<Asset<'_>>, GraphError> {
    let asset = |proto: &proto::AssetFileDef| {
        let tensor = match proto.tensor_info.as_ref().and_then(|info| info.encoding.as_ref()) {
            Some(tensor_info::Encoding::Name(name)) => name.clone(),
            _ => String::new(),
        };
        let (folder, filename) = (graph.model().map(Path::to_owned), proto.filename.clone());
        Asset { graph: graph.path(), folder, filename, tensor }
    };
    let assets = &graph.proto().asset_file_def;
    if !assets.is_empty() {
        return Ok(assets.iter().map(asset).collect());
    }
    let Some((_, Kind::AnyList(entries))) = graph.collections().find(|(name, _)| *name == COLLECTION) else {
        return Ok(Vec::new());
    };
    let decoded = entries.value.iter().enumerate().map(|(entry, any)| {
        let decoded = proto::AssetFileDef::decode(&*any.value)
            .map_err(|fault| GraphError::entry(graph.path(), COLLECTION, entry, &fault))?;
        Ok(asset(&decoded))
    });
    decoded.collect()
}
