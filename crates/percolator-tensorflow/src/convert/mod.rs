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
    format: Format,
    path: PathBuf,
    tensors: Vec<ModelTensor>,
    store: Store,
}

#[derive(Debug)]
enum Store {
    Checkpoint(Box<Checkpoint>),
    Safetensors(SafetensorsFile),
    Npz(NpzFile),
    /// One array, or a folder of them.
    Npy(NpyFolder),
    /// A SavedModel without variables.
    NoVariables,
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
                Ok(Model { format, path, tensors: Vec::new(), store: Store::NoVariables })
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
        let mut path = path.as_ref().to_owned();
        let (store, tensors) = match format {
            Format::Safetensors => {
                let (file, tensors) = SafetensorsFile::open(&path)?;
                (Store::Safetensors(file), tensors)
            }
            Format::Npz => {
                let (file, tensors) = NpzFile::open(&path)?;
                (Store::Npz(file), tensors)
            }
            Format::Npy | Format::NpyFolder => {
                let open = if format == Format::Npy { NpyFolder::open_file } else { NpyFolder::open };
                let (arrays, tensors) = open(&path)?;
                (Store::Npy(arrays), tensors)
            }
            Format::Checkpoint => {
                let checkpoint = Checkpoint::open(&path)?;
                path = checkpoint.prefix().to_owned();
                let tensors = checkpoint::tensors(&checkpoint);
                (Store::Checkpoint(Box::new(checkpoint)), tensors)
            }
        };
        Ok(Model { format, path, tensors, store })
    }

    /// Returns the format.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// Returns the file or folder, or a checkpoint's prefix.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
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
            Store::Checkpoint(checkpoint) => Ok(checkpoint.tensor(&info.name)?),
            Store::NoVariables => unreachable!("a model without tensors has no place of one"),
            Store::Safetensors(file) => file.read(place, info),
            Store::Npz(file) => file.read(place, info),
            Store::Npy(arrays) => arrays.read(place, info),
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
            Store::Checkpoint(checkpoint) => Some(checkpoint),
            _ => None,
        }
    }

    /// Returns all files that are read.
    fn files(&self) -> Vec<PathBuf> {
        match &self.store {
            Store::Checkpoint(checkpoint) => checkpoint::paths(checkpoint),
            Store::Safetensors(_) | Store::Npz(_) => vec![self.path.clone()],
            Store::NoVariables => Vec::new(),
            Store::Npy(arrays) => arrays.files().map(Path::to_owned).collect(),
        }
    }
}
