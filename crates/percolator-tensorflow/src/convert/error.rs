//! What ends a conversion.

use std::io;
use std::path::{Path, PathBuf};

use percolator_files::Progress;
use percolator_files::shown;

use super::Format;
use crate::checkpoint::{StateError, WriteError};
use crate::{CheckpointError, DataType, GraphError, TensorError};

/// Why a model's tensors cannot be read, renamed or written.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// A file or a folder cannot be read or written.
    #[error("{}: cannot {action} it", shown::path(path))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What could not be done: "read", "write".
        action: &'static str,
        /// Why.
        source: io::Error,
    },
    /// Nothing tells what a path is.
    #[error(
        "{}: {found}; tensors are read from a TensorFlow checkpoint (its prefix, or its .index), a \
         .safetensors, .npz or .npy file, or a folder of .npy files",
        shown::path(path)
    )]
    NoFormat {
        /// The path.
        path: PathBuf,
        /// What is there.
        found: String,
    },
    /// A file is not what its format says, or has been cut or changed.
    #[error("{}{}: byte {offset}: {found}; {allowed}", shown::path(path), of_tensor(tensor.as_deref()))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The tensor, if the damage is that of one.
        tensor: Option<String>,
        /// Where in the file.
        offset: u64,
        /// What is there.
        found: String,
        /// What may be there, or what to do.
        allowed: String,
    },
    /// A file's type of elements is not one of TensorFlow's.
    #[error("{}{}: its elements are {found}; {remedy}", shown::path(path), of_tensor(tensor.as_deref()))]
    ForeignType {
        /// The file.
        path: PathBuf,
        /// The tensor, if the file has several.
        tensor: Option<String>,
        /// The type, as the file names it.
        found: String,
        /// What to do.
        remedy: String,
    },
    /// The format that is to be written has no such type.
    #[error("tensor {tensor:?}: {format} has no type {data_type}: {remedy}")]
    NoSuchType {
        /// The tensor.
        tensor: String,
        /// Its type.
        data_type: DataType,
        /// The format.
        format: Format,
        /// What to do.
        remedy: &'static str,
    },
    /// The format that is to be written cannot hold this tensor.
    #[error("tensor {tensor:?} cannot be written as {format}: {found}; {remedy}")]
    Unfit {
        /// The tensor.
        tensor: String,
        /// The format.
        format: Format,
        /// What does not fit.
        found: String,
        /// What to do.
        remedy: String,
    },
    /// Two tensors would have one name, or a rule for names is not one, or cannot be applied: what was found,
    /// and what to do.
    #[error("{0}")]
    Names(String),
    /// A conversion would write over what it reads.
    #[error("{}: it would be written over while it is read: give another path", shown::path(path))]
    SamePlace {
        /// The path that is to be written.
        path: PathBuf,
    },
    /// A file is there that is to stay, or a checkpoint.
    #[error("{}: it already exists; give another path, or let it be replaced", shown::path(path))]
    Exists {
        /// The file; of a checkpoint, its prefix.
        path: PathBuf,
    },
    /// A folder that is to be written has entries.
    #[error("{}: the folder is not empty: give another path, or remove it first", shown::path(path))]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// A conversion has not ended that fills a folder.
    #[error(
        "{}: a conversion still works in this folder, or was killed: wait for it, or remove the folder",
        shown::path(path)
    )]
    Unfinished {
        /// Where the conversion works.
        path: PathBuf,
    },
    /// What is to be written cannot be at a path: no folder can be made there, or a file there would hold a
    /// single tensor, and there are none or several.
    #[error("{}: {fault}", shown::path(path))]
    NoTarget {
        /// The path.
        path: PathBuf,
        /// What is wrong, and what to do.
        fault: String,
    },
    /// Elements do not fit the type and shape beside them.
    #[error("{}: tensor {tensor:?}", shown::path(path))]
    Tensor {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Why.
        source: TensorError,
    },
    /// A checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The file `checkpoint` of a folder cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// The graph of a SavedModel, whose variables are looked for, cannot be read.
    #[error(transparent)]
    Graph(Box<GraphError>),
    /// A checkpoint cannot be written.
    #[error(transparent)]
    Write(WriteError),
    /// [`Progress::stop`](percolator_files::Progress::stop) was called.
    #[error("stopped; nothing was written under its final name")]
    Stopped,
}

impl From<GraphError> for ConvertError {
    fn from(error: GraphError) -> Self {
        ConvertError::Graph(Box::new(error))
    }
}

impl From<WriteError> for ConvertError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Exists { prefix } => ConvertError::Exists { path: prefix },
            error => ConvertError::Write(error),
        }
    }
}

impl ConvertError {
    /// Returns an error if the work was asked to end.
    ///
    /// # Errors
    ///
    /// [`ConvertError::Stopped`] then.
    pub fn check(progress: &Progress) -> Result<(), Self> {
        if progress.is_stopped() { Err(ConvertError::Stopped) } else { Ok(()) }
    }

    /// Of a file or folder that cannot be read.
    pub(super) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| ConvertError::Io { path, action: "read", source }
    }

    /// Of a file or folder that cannot be written.
    pub(super) fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| ConvertError::Io { path, action: "write", source }
    }

    /// Of a file that cannot get its name, as when another has it that is to stay.
    pub(super) fn name(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        |source| match source.kind() {
            io::ErrorKind::AlreadyExists => ConvertError::Exists { path },
            _ => ConvertError::Io { path, action: "write", source },
        }
    }
}

fn of_tensor(tensor: Option<&str>) -> String {
    tensor.map_or_else(String::new, |name| format!(", tensor {name:?}"))
}
