//! What can go wrong while a checkpoint is written.

use std::io;
use std::path::{Path, PathBuf};

use percolator_files::shown;
use percolator_leveldb::table::BuildError;

use crate::{DataType, TensorError};

/// Why a checkpoint cannot be written. The prefix is the checkpoint's path without `.index`.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The prefix cannot be one of a checkpoint.
    #[error("{} cannot be the prefix of a checkpoint: {message}", shown::path(prefix))]
    Prefix {
        /// The prefix.
        prefix: PathBuf,
        /// What is wrong, and what to do.
        message: &'static str,
    },
    /// A checkpoint cannot have this many data files, or has no such one.
    #[error("checkpoint {}: {found} is no number of {what}: {allowed}", shown::path(prefix))]
    Shards {
        /// The prefix.
        prefix: PathBuf,
        /// What is counted.
        what: &'static str,
        /// The number found.
        found: usize,
        /// What is allowed.
        allowed: String,
    },
    /// There are files of a checkpoint with this prefix, which are to stay.
    #[error(
        "{}: there is a checkpoint, or a part of one; give another prefix, or let it be replaced",
        shown::path(prefix)
    )]
    Exists {
        /// The prefix.
        prefix: PathBuf,
    },
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
    /// The name cannot be one of a tensor.
    #[error("checkpoint {}: no tensor can have the name {name}: {message}", shown::path(prefix))]
    Name {
        /// The prefix.
        prefix: PathBuf,
        /// The name, quoted.
        name: String,
        /// Why not, and what to do.
        message: &'static str,
    },
    /// The name is taken.
    #[error("checkpoint {}: {name} is there already: give each tensor its own name", shown::path(prefix))]
    Duplicate {
        /// The prefix.
        prefix: PathBuf,
        /// The tensor's name, quoted; of a slice with its region.
        name: String,
    },
    /// A checkpoint cannot hold the tensor's type, shape or elements.
    #[error("checkpoint {}, tensor {name}: {reason}", shown::path(prefix))]
    Tensor {
        /// The prefix.
        prefix: PathBuf,
        /// The tensor's name, quoted.
        name: String,
        /// What is wrong.
        reason: Box<TensorReason>,
    },
    /// An earlier tensor was not written whole.
    #[error(
        "checkpoint {}: the tensor {name} was not written whole, so that the checkpoint cannot be: write it \
         anew",
        shown::path(prefix)
    )]
    Failed {
        /// The prefix.
        prefix: PathBuf,
        /// The tensor's name, quoted.
        name: String,
    },
    /// The index cannot be written.
    #[error("{}: the index cannot be written", shown::path(path))]
    Index {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: BuildError,
    },
}

/// What is wrong with a tensor that is to be written.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorReason {
    /// Type, shape and elements do not fit.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A checkpoint cannot hold elements of the type.
    #[error("its elements are of type {0}, which no checkpoint can hold")]
    Type(DataType),
    /// Elements of the type are not written this way.
    #[error("its elements are of type {found}: write it with {remedy}")]
    Way {
        /// The type.
        found: DataType,
        /// The function to use.
        remedy: &'static str,
    },
    /// The shape has more extents than TensorFlow allows.
    #[error("its shape has {found} extents: TensorFlow allows {allowed}")]
    Rank {
        /// How many there are.
        found: usize,
        /// The most that are allowed.
        allowed: usize,
    },
    /// An extent is greater than the format allows.
    #[error("its extent {found} is greater than {}, the greatest that is allowed", i64::MAX)]
    Extent {
        /// The extent.
        found: usize,
    },
    /// The region of a slice is not in the tensor.
    #[error("the region {region} is not one of a tensor of shape {shape:?}: {message}")]
    Region {
        /// The region, as TensorFlow writes it.
        region: String,
        /// The shape of the whole tensor.
        shape: Vec<usize>,
        /// What is wrong.
        message: &'static str,
    },
    /// The slice has another shape than its region.
    #[error("the slice has the shape {found:?}, and its region has {allowed:?}")]
    SliceShape {
        /// The slice's.
        found: Vec<usize>,
        /// The region's.
        allowed: Vec<usize>,
    },
    /// Two slices have elements in common.
    #[error("the region {region} has elements in common with {other}, which was written before")]
    Overlap {
        /// The region, as TensorFlow writes it.
        region: String,
        /// The other one.
        other: String,
    },
    /// The slices are not the whole tensor.
    #[error(
        "its shape {shape:?} has {allowed} elements, and its {slices} slices have {found}: add the slices \
         that are missing, or write what there is as tensors of their own"
    )]
    NotCovered {
        /// The shape of the whole tensor.
        shape: Vec<usize>,
        /// How many slices there are.
        slices: usize,
        /// The elements in them.
        found: usize,
        /// Those of the whole tensor.
        allowed: usize,
    },
    /// A slice is of a tensor of another type or shape than the slices before it.
    #[error("earlier slices are of a tensor of type {data_type} and shape {shape:?}")]
    OtherWhole {
        /// Its type.
        data_type: DataType,
        /// Its shape.
        shape: Vec<usize>,
    },
}

impl WriteError {
    pub(super) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| WriteError::Io { path, action, source }
    }
}

/// A tensor's name for a message, quoted.
pub(super) fn quoted(name: &[u8]) -> String {
    const NAME_MAX: usize = 200;

    match std::str::from_utf8(name) {
        Ok(text) if text.chars().count() <= NAME_MAX => format!("{text:?}"),
        _ => {
            let front = name.get(..NAME_MAX).unwrap_or(name);
            let more = if front.len() < name.len() { "..." } else { "" };
            format!("\"{}\"{more}", front.escape_ascii())
        }
    }
}
