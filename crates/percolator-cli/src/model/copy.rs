//! `percolator model copy`: a checkpoint's tensors, written anew.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use clap::Args;
use percolator::{shown, whole_file};
use percolator_tensorflow::checkpoint::StateFile;
use percolator_tensorflow::convert::{Format, Model, copy_checkpoint};
use serde_json::json;

use super::work::{Ended, watched};
use super::{How, check_prefix, stdout};

#[derive(Debug, Args)]
pub(super) struct Copy {
    /// The checkpoint: its prefix, one of its files, a folder with a file "checkpoint" (the latest is
    /// copied), or a SavedModel (its variables are copied).
    #[arg(value_name = "FROM")]
    from: PathBuf,
    /// The prefix to write, or a folder: one that exists, or a path that ends with a slash.
    #[arg(value_name = "TO")]
    to: PathBuf,
    /// Write this many data files [default: as many as FROM has].
    #[arg(long, value_name = "N")]
    shards: Option<NonZeroUsize>,
}

impl Copy {
    pub(super) fn run(&self, how: How) -> anyhow::Result<ExitCode> {
        let model = Model::open(&self.from)?;
        let Some(checkpoint) = model.checkpoint() else {
            if model.format() == Format::Checkpoint {
                bail!(
                    "{}: the SavedModel has no variables: there is nothing to copy",
                    shown::path(&self.from)
                );
            }
            bail!(
                "{}: only checkpoints are copied, and this is {}: use percolator model convert",
                shown::path(&self.from),
                model.format()
            );
        };
        let is_folder = self.to.is_dir() || self.to.as_os_str().as_encoded_bytes().ends_with(b"/");
        let prefix = match (is_folder, checkpoint.prefix().file_name()) {
            (true, Some(name)) => self.to.join(own_name(name)),
            _ => self.to.clone(),
        };
        if is_folder {
            // What cannot be listed is found before the copy, not after it.
            StateFile::of(&self.to).read()?;
            if prefix.file_name().is_some_and(|name| name.to_str().is_none()) {
                bail!(
                    "{}: the list of a folder has names in UTF-8: give the copy another name",
                    shown::path(&prefix)
                );
            }
        } else {
            check_prefix(&prefix)?;
        }
        let graph = Graph::open(checkpoint.prefix())?;
        let shards = self.shards.map(NonZeroUsize::get);
        let copied =
            watched(how.quiet, |progress| Ok(copy_checkpoint(checkpoint, &prefix, shards, progress)?))?;
        let summary = match copied {
            Ended::Done(summary) => summary,
            Ended::Stopped(code) => return Ok(code),
        };
        let has_graph = graph.is_some();
        copy_graph(graph, &prefix)?;
        if is_folder {
            name_as_latest(&self.to, &prefix)?;
        }
        let mut out = stdout();
        let (tensors, bytes) = (summary.tensors, summary.bytes);
        if how.json {
            let prefix = prefix.to_string_lossy();
            writeln!(out, "{:#}", json!({ "prefix": prefix, "tensors": tensors, "bytes": bytes }))?;
        } else {
            let meta = if has_graph { ", and the .meta file" } else { "" };
            writeln!(out, "{}: {tensors} tensors, {bytes} bytes{meta}", shown::path(&prefix))?;
        }
        out.finish()?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The graph that a saver of TensorFlow 1 writes beside a checkpoint, open for reading.
struct Graph {
    path: PathBuf,
    file: File,
}

impl Graph {
    /// Opens the graph of a checkpoint, if it has one.
    fn open(prefix: &Path) -> anyhow::Result<Option<Self>> {
        let path = meta_path(prefix);
        if !path.is_file() {
            return Ok(None);
        }
        let file = File::open(&path).with_context(|| format!("cannot read {}", shown::path(&path)))?;
        Ok(Some(Graph { path, file }))
    }
}

fn meta_path(prefix: &Path) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(".meta");
    path.into()
}

/// Writes a graph beside a checkpoint that was written.
fn copy_graph(graph: Option<Graph>, prefix: &Path) -> anyhow::Result<()> {
    let to = meta_path(prefix);
    let Some(Graph { path, mut file }) = graph else {
        // A graph that is there belongs to the checkpoint that was just replaced. If it is a link, others may
        // have what it leads to.
        return match fs::remove_file(&to) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.with_context(|| format!("cannot remove {}", shown::path(&to))),
        };
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).with_context(|| format!("cannot read {}", shown::path(&path)))?;
    whole_file::write(&to, &[&bytes]).with_context(|| format!("cannot write {}", shown::path(&to)))
}

/// Writes the folder's file `checkpoint`, as a saver does. The checkpoints that it named before stay in its
/// list.
fn name_as_latest(folder: &Path, prefix: &Path) -> anyhow::Result<()> {
    let name = prefix.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let file = StateFile::of(folder);
    let mut state = file.read()?.unwrap_or_default();
    let mut all: Vec<String> =
        state.all_model_checkpoint_paths.iter().map(|path| relative(folder, path)).collect();
    let times = &mut state.all_model_checkpoint_timestamps;
    // Savers may write no times; if there are any, there is one for each path.
    let has_times = !times.is_empty() && times.len() == all.len();
    while let Some(place) = all.iter().position(|other| is_same(folder, other, prefix)) {
        all.remove(place);
        if has_times {
            times.remove(place);
        }
    }
    all.push(name.clone());
    if has_times {
        times.push(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
    }
    state.model_checkpoint_path = name;
    state.all_model_checkpoint_paths = all;
    Ok(file.write(&state)?)
}

/// The name that a checkpoint had before its writer put it aside, to replace it, and was killed.
fn own_name(name: &OsStr) -> &OsStr {
    let kept = name.to_str().and_then(|name| name.strip_suffix(".percolator-previous"));
    kept.map_or(name, OsStr::new)
}

/// Whether a path of a folder's list is this prefix, however it is spelled.
fn is_same(folder: &Path, listed: &str, prefix: &Path) -> bool {
    let listed = folder.join(listed);
    let place = |path: &Path| path.parent().and_then(|parent| parent.canonicalize().ok());
    listed.file_name() == prefix.file_name() && place(&listed) == place(prefix)
}

/// Reading a state puts the folder before its relative paths.
fn relative(folder: &Path, path: &str) -> String {
    let inside = Path::new(path).strip_prefix(folder).ok().and_then(Path::to_str);
    inside.unwrap_or(path).to_owned()
}
