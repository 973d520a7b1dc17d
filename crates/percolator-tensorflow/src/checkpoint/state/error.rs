//! What can go wrong with a folder of checkpoints.

use std::io;
use std::path::{Path, PathBuf};

use percolator_files::shown;

use crate::checkpoint::WriteError;

/// Why the checkpoints of a folder cannot be found, or kept.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The system refuses.
    #[error("{}: cannot {action}", shown::path(path))]
    Io {
        /// The file.
        path: PathBuf,
        /// What was attempted.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not the text of a `CheckpointState`.
    #[error(
        "{}, line {line}: {message}; mend the line, or remove the file and name a checkpoint by its prefix",
        shown::path(path)
    )]
    Text {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// The file names no latest checkpoint.
    #[error(
        "{}: it has no model_checkpoint_path: add the line `model_checkpoint_path: \"PREFIX\"`, or remove \
         the file",
        shown::path(path)
    )]
    NoPath {
        /// The file.
        path: PathBuf,
    },
    /// The latest checkpoint is not there.
    #[error(
        "{}: the latest checkpoint it names is not there: there is no file {}.index; {}",
        shown::path(path),
        shown::path(prefix),
        remedy(others)
    )]
    Missing {
        /// The file that names it.
        path: PathBuf,
        /// The checkpoint's prefix.
        prefix: PathBuf,
        /// Those it names that are there, the oldest first.
        others: Vec<PathBuf>,
    },
    /// A path cannot be stored: text is UTF-8.
    #[error(
        "{}: a checkpoint's path must be UTF-8 to be listed: rename it or its folder, or list relative paths \
         (`relative_paths`)",
        shown::path(prefix)
    )]
    NotUtf8 {
        /// The checkpoint's prefix.
        prefix: PathBuf,
    },
    /// A checkpoint's file would have the path of the file that lists the checkpoints.
    #[error("{}: the list of checkpoints has this path: give the checkpoint another name", shown::path(path))]
    Conflict {
        /// The path.
        path: PathBuf,
    },
    /// An option has a value that is not allowed.
    #[error("{option} is {found}: {allowed}")]
    Option {
        /// Its name.
        option: &'static str,
        /// Its value.
        found: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// The checkpoint cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl StateError {
    pub(in crate::checkpoint) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| StateError::Io { path, action, source }
    }
}

fn remedy(others: &[PathBuf]) -> String {
    match others.last() {
        Some(other) => {
            format!("name another by its prefix, such as {}, or copy the file back", shown::path(other))
        }
        None => "copy the checkpoint's files back, or name another by its prefix".to_owned(),
    }
}
