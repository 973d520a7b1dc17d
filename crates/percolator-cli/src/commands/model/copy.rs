//! `percolator model copy`: a checkpoint's tensors, written anew.

use std::ffi::OsStr;
use std::io::Write as _;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::bail;
use clap::Args;
use percolator_files::folder_turn::FolderTurn;
use percolator_files::shown::{self, count};
use percolator_tensorflow::checkpoint::StateFile;
use percolator_tensorflow::convert::{CopyOptions, Existing, Format, Model, copy_checkpoint};
use serde_json::json;

use super::{How, check_prefix, stdout, with_force};

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
    /// Replace a checkpoint that is there.
    #[arg(short, long)]
    force: bool,
}

impl Copy {
    pub(super) fn run(&self, how: How) -> anyhow::Result<()> {
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
        let existing = Existing::replaced_if(self.force);
        let options = CopyOptions { shards: self.shards.map(NonZeroUsize::get), existing };
        let summary = how.watched(|progress| {
            copy_checkpoint(checkpoint, &prefix, &options, progress).map_err(with_force)
        })?;
        if is_folder {
            name_as_latest(&self.to, &prefix)?;
        }
        let (tensors, bytes) = (summary.tensors, summary.bytes);
        if how.json {
            let prefix = prefix.to_string_lossy();
            let done = json!({ "prefix": prefix, "tensors": tensors, "bytes": bytes });
            return stdout().json("percolator.model.copy/1", &done);
        }
        let mut out = stdout();
        let meta = if summary.has_graph { ", and the .meta file" } else { "" };
        let tensors = count(tensors, "tensor");
        writeln!(out, "{}: {tensors}, {bytes} bytes{meta}", shown::path(&prefix))?;
        out.finish()
    }
}

/// Writes the folder's file `checkpoint`, as a saver does. The checkpoints that it named before stay in its
/// list.
fn name_as_latest(folder: &Path, prefix: &Path) -> anyhow::Result<()> {
    let name = prefix.file_name().unwrap_or_default().to_string_lossy().into_owned();
    // Another copy into the folder must not be dropped from the list.
    let _turn = FolderTurn::take(folder);
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
