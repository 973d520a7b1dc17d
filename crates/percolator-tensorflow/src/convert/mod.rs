//! Tensors between formats: TensorFlow's checkpoints, safetensors, and NumPy's `.npy` and `.npz`.
//!
//! A [`Model`] is any of them, read one tensor at a time. A [`Conversion`] writes its tensors as another one,
//! under other names if there are [`NameRules`]. Types are kept: a type that the other format does not have
//! is an error, or the tensor is left out, if that is allowed, and named.
//!
//! ```no_run
//! use percolator_tensorflow::convert::{Conversion, Format, Model, Options, Progress, NameRules};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let model = Model::open("train/model-1000")?;
//! let options = Options { rules: NameRules::none().rename("/=.")?, ..Options::default() };
//! let conversion = Conversion::plan(&model, "model.safetensors", Format::Safetensors, &options)?;
//! for tensor in conversion.tensors() {
//!     println!("{} -> {}", tensor.from, tensor.to);
//! }
//! conversion.run(&Progress::new())?;
//! # Ok(())
//! # }
//! ```

mod checkpoint;
mod conversion;
mod copy;
mod error;
mod file;
mod folder;
mod format;
mod new_folder;
mod npy;
mod npz;
mod rules;
mod safetensors;

use std::path::{Path, PathBuf};

use self::checkpoint::CheckpointFiles;
pub use self::conversion::{Conversion, LeftOut, Options, Renamed, Summary};
pub use self::copy::{CopyOptions, copy_checkpoint};
pub use self::error::ConvertError;
use self::folder::NpyFolder;
use self::format::Found;
pub use self::format::{Format, UnknownFormat};
pub use self::npy::npy_header;
use self::npz::NpzFile;
pub use self::rules::NameRules;
pub use self::safetensors::Metadata;
use self::safetensors::SafetensorsFile;
use crate::tensor::elements;
use crate::{Checkpoint, DataType, Tensor};
pub use percolator_files::Progress;
#[doc(inline)]
pub use percolator_files::whole_file::Existing;

/// What a tensor is, without its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelTensor {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub data_type: DataType,
    /// Its extents, the outermost first; none for a scalar.
    pub shape: Vec<usize>,
}

impl ModelTensor {
    /// Returns the bytes of its elements; `None` of strings, and of more than memory holds.
    #[must_use]
    pub fn bytes(&self) -> Option<usize> {
        elements(&self.shape)?.checked_mul(self.data_type.size()?)
    }
}

/// The tensors of a checkpoint or of other files, open for reading by any number of threads.
#[derive(Debug)]
pub struct Model {
    tensors: Vec<ModelTensor>,
    store: Store,
}

#[derive(Debug)]
enum Store {
    Checkpoint(Box<CheckpointFiles>),
    Safetensors(SafetensorsFile),
    Npz(NpzFile),
    Npy(NpyFolder),
    NpyFolder(NpyFolder),
    /// A SavedModel without variables: the prefix that they would have.
    NoVariables(PathBuf),
}

impl Model {
    /// Opens what a path leads to: a checkpoint (its prefix, one of its files, a folder with a file
    /// `checkpoint`, a SavedModel), a `.safetensors`, `.npz` or `.npy` file, or a folder of `.npy` files.
    /// Reads what the tensors are, and none of their elements.
    ///
    /// # Errors
    ///
    /// [`ConvertError`] if there is none of these, or if it is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ConvertError> {
        let Found { format, path, saved_model } = format::find(path.as_ref())?;
        match saved_model {
            Some(folder) if !checkpoint::has_variables(&folder, &path)? => {
                Ok(Model { tensors: Vec::new(), store: Store::NoVariables(path) })
            }
            _ => Self::open_as(path, format),
        }
    }

    /// Opens a file of this format, whatever its name is: for a checkpoint, its prefix.
    ///
    /// # Errors
    ///
    /// [`ConvertError`] if it is damaged, or is of another format.
    pub fn open_as(path: impl AsRef<Path>, format: Format) -> Result<Self, ConvertError> {
        let path = path.as_ref();
        let (store, tensors) = match format {
            Format::Safetensors => {
                let (file, tensors) = SafetensorsFile::open(path)?;
                (Store::Safetensors(file), tensors)
            }
            Format::Npz => {
                let (file, tensors) = NpzFile::open(path)?;
                (Store::Npz(file), tensors)
            }
            Format::Npy => {
                let (file, tensors) = NpyFolder::open_file(path)?;
                (Store::Npy(file), tensors)
            }
            Format::NpyFolder => {
                let (folder, tensors) = NpyFolder::open(path)?;
                (Store::NpyFolder(folder), tensors)
            }
            Format::Checkpoint => {
                let (file, tensors) = CheckpointFiles::open(path)?;
                (Store::Checkpoint(Box::new(file)), tensors)
            }
        };
        Ok(Model { tensors, store })
    }

    /// Returns the format.
    #[must_use]
    pub fn format(&self) -> Format {
        match &self.store {
            Store::Checkpoint(_) | Store::NoVariables(_) => Format::Checkpoint,
            Store::Safetensors(_) => Format::Safetensors,
            Store::Npz(_) => Format::Npz,
            Store::Npy(_) => Format::Npy,
            Store::NpyFolder(_) => Format::NpyFolder,
        }
    }

    /// Returns the file or folder, or a checkpoint's prefix.
    #[must_use]
    pub fn path(&self) -> &Path {
        match &self.store {
            Store::Checkpoint(files) => files.checkpoint().prefix(),
            Store::NoVariables(prefix) => prefix,
            Store::Safetensors(file) => file.path(),
            Store::Npz(file) => file.path(),
            Store::Npy(folder) | Store::NpyFolder(folder) => folder.path(),
        }
    }

    /// Returns what the tensors are, in the order in which the files hold them.
    #[must_use]
    pub fn tensors(&self) -> &[ModelTensor] {
        &self.tensors
    }

    /// Reads the tensor at this place of [`tensors`](Self::tensors), and verifies its checksum if the format
    /// has any (checkpoints and `.npz`).
    ///
    /// # Errors
    ///
    /// [`ConvertError`] if it cannot be read, or is damaged.
    ///
    /// # Panics
    ///
    /// If there is no such place.
    pub fn read(&self, place: usize) -> Result<Tensor<'_>, ConvertError> {
        let info = &self.tensors[place];
        match &self.store {
            Store::Checkpoint(files) => files.read(info),
            Store::NoVariables(_) => unreachable!("a model without tensors has no place of one"),
            Store::Safetensors(file) => file.read(place, info),
            Store::Npz(file) => file.read(place, info),
            Store::Npy(folder) | Store::NpyFolder(folder) => folder.read(place, info),
        }
    }

    /// Returns the texts that a `.safetensors` file has about itself; none of other formats.
    #[must_use]
    pub fn metadata(&self) -> Metadata {
        match &self.store {
            Store::Safetensors(file) => file.metadata().clone(),
            _ => Metadata::new(),
        }
    }

    /// Returns the checkpoint, if there is one: a SavedModel without variables is an empty model of the
    /// format [`Format::Checkpoint`] that has none.
    #[must_use]
    pub fn checkpoint(&self) -> Option<&Checkpoint> {
        match &self.store {
            Store::Checkpoint(files) => Some(files.checkpoint()),
            _ => None,
        }
    }

    /// Returns all files that are read.
    fn files(&self) -> Vec<PathBuf> {
        match &self.store {
            Store::Checkpoint(files) => checkpoint::paths(files.checkpoint()),
            Store::Safetensors(_) | Store::Npz(_) => vec![self.path().to_owned()],
            Store::NoVariables(_) => Vec::new(),
            Store::Npy(folder) | Store::NpyFolder(folder) => folder.files().map(Path::to_owned).collect(),
        }
    }
}
