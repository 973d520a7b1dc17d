//! `percolator model`: TensorFlow's model files, and the files that other programs keep tensors in.

mod convert;
mod copy;
mod diff;
mod latest;
mod list;
mod show;
mod values;
mod verify;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use percolator::Progress;
use percolator_files::shown;
use percolator_tensorflow::convert::ConvertError;

use crate::output;
use crate::terminal::out::{printable, stdout};
use crate::terminal::progress::{megabytes_per_second, watched};

#[derive(Debug, Args)]
pub(super) struct Model {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    how: How,
}

/// How a subcommand reports.
#[derive(Clone, Copy, Debug, Args)]
struct How {
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    /// Print no progress.
    #[arg(short, long, global = true)]
    quiet: bool,
}

impl How {
    /// Does work on tensors beside a progress bar. On SIGINT or SIGTERM, its progress is told to stop.
    fn watched<T: Send>(self, work: impl FnOnce(&Progress) -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
        let message =
            |progress: &Progress, took| format!("{:.1} MB/s", megabytes_per_second(progress.done(), took));
        watched(self.quiet, message, |progress, _| work(progress))
    }
}

#[derive(Debug, Subcommand)]
enum What {
    /// List the tensors: name, type, shape and bytes.
    ///
    /// With --json, "tensors" is an array of {name, dtype, shape, bytes, sha256}, sorted by name. The digest
    /// is that of the elements in row-major order, numbers with their lowest byte first; of strings, that of
    /// all of them joined by zero bytes.
    List(list::List),
    /// Show what a SavedModel, a meta graph or a checkpoint holds, or one tensor's values.
    ///
    /// Of a SavedModel or a .meta file: signatures, placeholders, constants, variables and assets. Of a
    /// checkpoint of TensorFlow 2: the tree of its objects. Of other files: the tensors.
    Show(show::Show),
    /// Verify every checksum, on all processors.
    ///
    /// All that is wrong is named, and the exit code is then 1. A .safetensors or .npy file has no checksums:
    /// of it, headers and lengths are checked.
    Verify(verify::Verify),
    /// Write a checkpoint's tensors anew, as TensorFlow writes them.
    ///
    /// The tensors keep their order, their slices and their data files, so a checkpoint that TensorFlow wrote
    /// is copied byte for byte. If TO is a folder (or ends with a slash), the checkpoint keeps its name
    /// there, and the folder's file "checkpoint" names it as the latest. The .meta file is copied along.
    Copy(copy::Copy),
    /// Convert tensors between checkpoints, .safetensors, .npz, .npy and folders of .npy files.
    ///
    /// Types stay what they are. The ending of TO is its format: .safetensors, .npz, .npy; a slash for a
    /// folder of .npy files; any other is a checkpoint's prefix.
    Convert(convert::Convert),
    /// Compare the tensors of two models: names, types, shapes, values.
    ///
    /// The exit code is 1 if they differ.
    Diff(diff::Diff),
    /// Print the prefix of the latest checkpoint of a folder, as its file "checkpoint" names it.
    ///
    /// The exit code is 1 if there is none.
    Latest(latest::Latest),
}

impl Model {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let how = self.how;
        match self.what {
            What::Verify(verify) => return verify.run(how),
            What::Diff(diff) => return diff.run(how),
            What::Latest(latest) => return latest.run(how),
            What::List(list) => list.run(how),
            What::Show(show) => show.run(how),
            What::Copy(copy) => copy.run(how),
            What::Convert(convert) => convert.run(how),
        }?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Lists the tensors of a model, as `model list` does.
pub(super) fn list(path: &Path, json: bool, quiet: bool) -> anyhow::Result<()> {
    list::List { path: path.to_owned() }.run(How { json, quiet })
}

/// Adds to an error how a file that is there is replaced.
fn with_force(error: ConvertError) -> anyhow::Error {
    match error {
        ConvertError::Exists { path } => output::exists(&path),
        error => error.into(),
    }
}

/// Checks that nothing but a regular file has the name that a checkpoint's files would begin with. A folder
/// of this name would be found in the place of the checkpoint, and nobody means files beside a device.
fn check_prefix(prefix: &Path) -> anyhow::Result<()> {
    let (shown, kind) = (shown::path(prefix), fs::metadata(prefix).map(|found| found.file_type()));
    match kind {
        Ok(kind) if kind.is_dir() => bail!(
            "{shown}: a folder is there: end the path with a slash to write into it, or give a checkpoint's \
             prefix, such as {}",
            shown::path(&prefix.join("model"))
        ),
        Ok(kind) if !kind.is_file() => bail!(
            "{shown}: it is no regular file: a checkpoint is several files whose names begin with its \
             prefix: give another path"
        ),
        _ => Ok(()),
    }
}

/// A shape as `[2, 3]`.
fn shape(shape: &[usize]) -> String {
    format!("{shape:?}")
}
