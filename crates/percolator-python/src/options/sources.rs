//! Where records are stored, and how that is read.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use percolator::feed::{FeedSpec, SourceSpec};
use percolator::source::IndexPlace;
use percolator_files::shown;
use pyo3::prelude::*;

use super::Keywords;
use crate::errors;

/// The kinds of sources, by keyword.
const KINDS: [&str; 5] = ["lmdb", "leveldb", "tfrecord", "image_list", "files"];

/// A folder that is put before each name of a list. The library joins the two as they are, as Caffe does;
/// here it is always a folder.
fn folder(path: PathBuf) -> PyResult<String> {
    let mut folder = path.into_os_string().into_string().map_err(|path| {
        errors::value(format!(
            "root_folder={}: it is not UTF-8: rename the folder",
            shown::path(path.as_ref())
        ))
    })?;
    if !folder.is_empty() && !folder.ends_with('/') {
        folder.push('/');
    }
    Ok(folder)
}

pub(super) fn apply(keywords: &mut Keywords<'_>, spec: &mut FeedSpec) -> PyResult<()> {
    let mut kinds: Vec<&'static str> = Vec::new();
    for given in keywords.given() {
        kinds.extend(KINDS.iter().filter(|kind| **kind == given));
    }
    let name: Option<String> = keywords.take("lmdb_name")?;
    let root_folder = keywords.take::<PathBuf>("root_folder")?.map(folder).transpose()?;
    let format: Option<String> = keywords.take("format")?;
    let settings = keywords.take::<HashMap<String, String>>("format_options")?;
    // In the order of their names, so that equal specs are equal texts.
    let settings: Vec<_> = settings.into_iter().flatten().collect::<BTreeMap<_, _>>().into_iter().collect();
    // Several are joined in the order in which they are given.
    let mut sources = Vec::new();
    for kind in kinds {
        for path in keywords.several::<PathBuf>(kind)? {
            sources.push(match kind {
                "lmdb" => SourceSpec::Lmdb { path, name: name.clone() },
                "leveldb" => SourceSpec::leveldb(path),
                "tfrecord" => SourceSpec::tfrecord(path),
                "files" => SourceSpec::Files { path, format: format.clone(), settings: settings.clone() },
                _ => SourceSpec::ImageList {
                    list: path,
                    root_folder: root_folder.clone().unwrap_or_default(),
                    shuffle: false,
                    rand_skip: 0,
                },
            });
        }
    }
    // Those that were not given are known nevertheless.
    for kind in KINDS {
        keywords.object(kind);
    }
    let is_of = |lmdb: bool| {
        sources.iter().any(|source| match source {
            SourceSpec::Lmdb { .. } => lmdb,
            SourceSpec::ImageList { .. } => !lmdb,
            _ => false,
        })
    };
    if name.is_some() && !is_of(true) {
        return Err(errors::config(
            keywords.py(),
            "lmdb_name is set without lmdb: give the path of the LMDB",
        ));
    }
    if root_folder.is_some() && !is_of(false) {
        let message = "root_folder is set without image_list: give the path of the list";
        return Err(errors::config(keywords.py(), message));
    }
    let has_files = sources.iter().any(|source| matches!(source, SourceSpec::Files { .. }));
    if (format.is_some() || !settings.is_empty()) && !has_files {
        let message = "format and format_options are set without files: give the path of the files";
        return Err(errors::config(keywords.py(), message));
    }
    if !sources.is_empty() {
        spec.sources = sources;
    }
    if let Some(root) = keywords.take::<PathBuf>("root")? {
        spec.root = root;
    }
    spec.access = keywords.named("access")?.unwrap_or(spec.access);
    spec.log_gaps = keywords.named("log_gaps")?.unwrap_or(spec.log_gaps);
    // A word, or a folder.
    if let Some(place) = keywords.take::<PathBuf>("index")? {
        spec.index = match place.to_str() {
            Some("beside") => IndexPlace::Beside,
            Some("memory") => IndexPlace::Memory,
            _ => IndexPlace::Folder(place),
        };
    }
    Ok(())
}
