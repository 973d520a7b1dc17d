//! Folders that `save_to_disk` of Hugging Face's `datasets` writes: Arrow streams, and JSON that names them.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde_json::Value as Json;

use crate::arrow_ipc::open_one;
use crate::known_settings::KnownSettings;
use crate::{DataFile, FormatError, Options, Shard};

/// Names the files of a data set, in order.
const STATE: &str = "state.json";

/// Names the splits of several data sets, a folder each.
const SPLITS: &str = "dataset_dict.json";

/// Whether it is such a folder, or the JSON in it.
#[must_use]
pub fn is(path: &Path, _head: &[u8]) -> bool {
    path.file_name() == Some(OsStr::new(SPLITS)) || {
        let folder = folder_of(path);
        folder.join(SPLITS).is_file()
            || (folder.join(STATE).is_file()
                && (path.is_dir() || path.file_name() == Some(OsStr::new(STATE))))
    }
}

/// Opens a folder's files in the order in which its `state.json` names them. A folder of splits is opened
/// split by split, in the order of its `dataset_dict.json`, or one alone with the setting `split`.
///
/// # Errors
///
/// [`FormatError`] if the JSON cannot be parsed, names a file that is not there or not in the folder, or if a
/// file cannot be opened.
pub fn open(path: &Path, options: &Options) -> Result<Vec<Arc<dyn Shard>>, FormatError> {
    let settings = KnownSettings::of(path, "hugging-face", options, &["split"])?;
    let folder = folder_of(path);
    let split = settings.get("split");
    let splits = folder.join(SPLITS);
    let mut shards = Vec::new();
    if splits.is_file() {
        for name in names_of_splits(&splits, split)? {
            open_split(&folder.join(name), options, &mut shards)?;
        }
        return Ok(shards);
    }
    let state = open_split(&folder, options, &mut shards)?;
    match (split, state.get("_split").and_then(Json::as_str)) {
        (Some(split), found) if found != Some(split) => {
            let what =
                format!("the split {split:?} is wanted, and this is {:?}", found.unwrap_or("without name"));
            Err(FormatError::refused(&folder.join(STATE), what))
        }
        _ => Ok(shards),
    }
}

fn folder_of(path: &Path) -> PathBuf {
    let index = path.file_name().is_some_and(|name| name == STATE || name == SPLITS);
    match path.parent() {
        Some(folder) if index && !path.is_dir() => folder.to_owned(),
        _ => path.to_owned(),
    }
}

fn names_of_splits(file: &Path, wanted: Option<&str>) -> Result<Vec<PathBuf>, FormatError> {
    let json = json_of(file)?;
    let listed: Option<Vec<&str>> = json
        .get("splits")
        .and_then(Json::as_array)
        .and_then(|splits| splits.iter().map(Json::as_str).collect());
    let listed =
        listed.ok_or_else(|| FormatError::damaged(file, "it has no list of splits by their names"))?;
    if let Some(missing) = wanted.filter(|wanted| !listed.contains(wanted)) {
        let what = format!("there is no split {missing:?}; the splits are {}", listed.join(", "));
        return Err(FormatError::refused(file, what));
    }
    let wanted = listed.into_iter().filter(|name| wanted.is_none_or(|wanted| wanted == *name));
    wanted.map(|name| inside(file, name)).collect()
}

/// Opens the files of one folder; returns what its `state.json` says.
fn open_split(
    folder: &Path,
    options: &Options,
    shards: &mut Vec<Arc<dyn Shard>>,
) -> Result<Json, FormatError> {
    let file = folder.join(STATE);
    let state = json_of(&file)?;
    if state.get("_indices_data_files").is_some_and(|files| files.as_array().is_none_or(|f| !f.is_empty()))
        && state.get("_indices_data_files") != Some(&Json::Null)
    {
        let what = "it selects and orders rows by files of indices, which are not read: save it again with \
                    `flatten_indices().save_to_disk(...)`";
        return Err(FormatError::refused(&file, what));
    }
    let files = state.get("_data_files").and_then(Json::as_array);
    let files = files.ok_or_else(|| FormatError::damaged(&file, "it has no list _data_files"))?;
    let mut options = options.clone();
    options.settings.clear();
    for listed in files {
        let name = listed.get("filename").and_then(Json::as_str);
        let name =
            name.ok_or_else(|| FormatError::damaged(&file, "an entry of _data_files has no filename"))?;
        let data = folder.join(inside(&file, name)?);
        if !data.exists() {
            let what = format!("it lists {name:?}, which is not there: copy the folder again");
            return Err(FormatError::damaged(&file, what));
        }
        shards.push(open_one(&data, &options)?);
    }
    Ok(state)
}

/// A name as a path that stays in its folder.
fn inside(file: &Path, name: &str) -> Result<PathBuf, FormatError> {
    let path = Path::new(name);
    let normal = path.components().all(|component| matches!(component, Component::Normal(_)));
    match normal && !name.is_empty() {
        true => Ok(path.to_owned()),
        false => {
            Err(FormatError::damaged(file, format!("it names {name:?}, which is outside of the folder")))
        }
    }
}

fn json_of(file: &Path) -> Result<Json, FormatError> {
    let data = DataFile::open(file, percolator_files::Access::Read)?;
    let mut bytes = Vec::new();
    let text = data.read(0..data.bytes(), &mut bytes)?;
    serde_json::from_slice(text)
        .map_err(|error| FormatError::damaged(file, format!("it is no JSON: {error}")))
}
