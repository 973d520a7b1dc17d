//! A checkpoint as one of the formats that are read.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{ConvertError, ModelTensor};
use crate::checkpoint::PREVIOUS;
use crate::paths::{SHARDS_MAX, data_path, folder_of, index_path};
use crate::{Checkpoint, SavedModel};

/// Returns what a checkpoint's tensors are, in the order of their bytes.
pub(super) fn tensors(checkpoint: &Checkpoint) -> Vec<ModelTensor> {
    let mut tensors: Vec<_> = checkpoint.tensors().collect();
    // A tensor without elements starts where the next one does, and comes before it.
    tensors.sort_by_key(|tensor| {
        let first = tensor.place.or_else(|| tensor.slices.first().map(|slice| slice.place));
        first.map(|place| (place.shard, place.offset, place.bytes))
    });
    let info = |tensor: crate::checkpoint::TensorInfo<'_>| ModelTensor {
        name: tensor.name.to_owned(),
        data_type: tensor.data_type,
        shape: tensor.shape.to_owned(),
    };
    tensors.into_iter().map(info).collect()
}

/// Returns whether a SavedModel has variables, which would have this prefix. A model that has some and lacks
/// their files has variables.
pub(super) fn has_variables(folder: &Path, prefix: &Path) -> Result<bool, ConvertError> {
    // As TensorFlow's loader, which restores none if there is no folder with an index.
    if index_path(prefix).exists() || prefix.parent().is_some_and(has_entries) {
        return Ok(true);
    }
    let model = SavedModel::open(folder)?;
    for graph in model.meta_graphs() {
        if !graph.variables()?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether something is in a folder, or it cannot be told.
fn has_entries(folder: &Path) -> bool {
    match fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_some(),
        Err(error) => error.kind() != ErrorKind::NotFound,
    }
}

/// Returns the files of a checkpoint that are there.
pub(super) fn paths(checkpoint: &Checkpoint) -> Vec<PathBuf> {
    let data = checkpoint.used_shards().into_iter().map(|shard| checkpoint.shard_path(shard));
    data.chain([index_path(checkpoint.prefix())]).filter(|path| path.exists()).collect()
}

/// Returns whether a checkpoint that is written with this prefix, in so many data files, would replace or
/// remove one of these files, also through links: those of the earlier one with this prefix are the writer's.
pub(super) fn replaces(prefix: &Path, shards: usize, files: &[PathBuf]) -> Result<bool, ConvertError> {
    let Some(name) = prefix.file_name() else { return Ok(false) };
    let folder = folder_of(prefix);
    let canonical = |path: &Path| path.canonicalize().map_err(ConvertError::read(path));
    if !folder.exists() {
        return Ok(false);
    }
    let front = canonical(folder)?.join(name);
    let front = front.as_os_str().as_encoded_bytes();
    let files: HashSet<PathBuf> = files.iter().map(|file| canonical(file)).collect::<Result<_, _>>()?;
    // The writer refuses more data files.
    let shards = shards.min(SHARDS_MAX);
    let data = (0..shards).map(|shard| data_path(prefix, shard, shards));
    for path in data.chain([index_path(prefix)]) {
        // What is not there is none of the files, which are.
        if path.canonicalize().is_ok_and(|place| files.contains(&place)) {
            return Ok(true);
        }
    }
    for file in &files {
        let rest = file.as_os_str().as_encoded_bytes().strip_prefix(front);
        let rest = rest.map(|rest| rest.strip_prefix(PREVIOUS.as_bytes()).unwrap_or(rest));
        if rest.is_some_and(|rest| rest == b".index" || rest.starts_with(b".data-")) {
            return Ok(true);
        }
    }
    Ok(false)
}
