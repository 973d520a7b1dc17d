//! Checkpoints: what TensorFlow saves of variables. Each is an index (`model.index`) and one or more data
//! files (`model.data-00000-of-00001`).

mod data;
mod error;
mod find;
mod header;
mod index;
mod load;
mod manager;
mod near;
mod objects;
mod ordered_code;
mod read;
mod region;
mod slices;
mod state;
mod strings;
mod writer;
mod zeroed;

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use percolator_files::Access;
use percolator_files::what::{self, Kind};

pub use self::error::CheckpointError;
pub use self::index::{Place, Slice, TensorInfo};
pub use self::load::Verification;
pub use self::manager::{CheckpointManager, ManagerOptions, ManagerRules, NotRemoved, Saved};
pub(crate) use self::objects::escape;
pub use self::objects::{Child, Object, ObjectGraph, ObjectTensor, PathError, SlotVariable, TreeLine};
pub use self::slices::Extent;
pub use self::state::{StateError, StateFile, all_checkpoints, latest_checkpoint};
pub use self::writer::{CheckpointWriter, TensorWriter, WriteError, data_file_bytes, write_data_file};
pub(crate) use self::writer::{PREVIOUS, new_prefix};
#[doc(inline)]
pub use percolator_files::whole_file::Existing;

use self::data::DataFiles;
use self::index::Index;
use crate::Tensor;

/// A checkpoint: tensors by name.
///
/// [`open`](Self::open) reads the index. A data file is opened when a tensor of it is first wanted, and a
/// tensor's checksum is verified when the tensor is first read. Threads may share a checkpoint.
///
/// Data files are mapped, and tensors lend their bytes, unless the files are on a network file system
/// ([`Access::Auto`]). If another program cuts a mapped file, the kernel ends the process with SIGBUS. If
/// another program writes to it in place, as `rsync --inplace` does, the bytes of lent tensors change after
/// they were verified. Neither happens with [`Access::Read`]: a cut file is an error, and bytes that were
/// read stay. If the prefix is replaced by another checkpoint after `open`, tensors of data files that were
/// not open yet fail with a wrong checksum, or as cut.
///
/// A variable whose slices are not all there, as in the part of a checkpoint that one of several machines
/// saved, is listed, and only reading it is an error. An entry of a type that is not known makes `open` fail.
///
/// ```no_run
/// use percolator_tensorflow::Checkpoint;
///
/// let checkpoint = Checkpoint::open("model/ckpt-7")?; // the index is model/ckpt-7.index
/// for tensor in checkpoint.tensors() {
///     println!("{} {} {:?}", tensor.name, tensor.data_type, tensor.shape);
/// }
/// let weights = checkpoint.tensor("layer1/W")?;
/// let values = weights.values::<f32>()?; // row by row
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Checkpoint {
    prefix: PathBuf,
    index_path: PathBuf,
    index: Index,
    data: DataFiles,
    /// Which pieces were verified: the entries, then the slices.
    verified: Vec<AtomicBool>,
    /// The graph of objects, once it was requested.
    objects: OnceLock<ObjectGraph>,
}

impl Checkpoint {
    /// Opens the checkpoint of this prefix: `dir/model`, if its index is `dir/model.index`. The index's own
    /// path is taken too.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] if there is no such checkpoint, its index is damaged, or it is of another format.
    pub fn open(prefix: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        Self::open_with(prefix, Access::Auto)
    }

    /// Does the same as [`open`](Self::open), with data files mapped or read as `access` says.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_with(prefix: impl AsRef<Path>, access: Access) -> Result<Self, CheckpointError> {
        let (prefix, index_path) = find::paths(prefix.as_ref());
        let read = Index::read(&index_path, &find::read_index(&prefix, &index_path)?);
        let index =
            read.map_err(|error| match what::instead_of(&[Kind::Model, Kind::Damaged], &index_path) {
                Some(thing) => {
                    let message = format!("not a checkpoint's index: it is {thing}");
                    CheckpointError::Index { index: index_path.clone(), message }
                }
                None => error,
            })?;
        let data = DataFiles::new(&prefix, index.header.shards, index.shards(), access);
        Ok(Self::of(prefix, index_path, index, data))
    }

    /// Opens a checkpoint whose files are in memory: its index, and its data files in their order. `name` is
    /// for messages, in the place of a prefix.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and [`CheckpointError::Index`] if it has another number of data files.
    pub fn from_memory(
        name: impl AsRef<Path>,
        index: &[u8],
        data: Vec<Vec<u8>>,
    ) -> Result<Self, CheckpointError> {
        let (prefix, index_path) = find::paths(name.as_ref());
        let index = Index::read(&index_path, index)?;
        let (stated, found) = (index.header.shards, data.len());
        if usize::try_from(stated) != Ok(found) {
            let message = format!("it states {stated} data files, and there are {found}");
            return Err(CheckpointError::Index { index: index_path, message });
        }
        Ok(Self::of(prefix.clone(), index_path, index, DataFiles::in_memory(&prefix, data)))
    }

    fn of(prefix: PathBuf, index_path: PathBuf, index: Index, data: DataFiles) -> Self {
        let pieces = index.len() + index.slices.len();
        let verified = std::iter::repeat_with(AtomicBool::default).take(pieces).collect();
        Checkpoint { prefix, index_path, index, data, verified, objects: OnceLock::new() }
    }

    /// Returns the path of its files without their endings.
    #[must_use]
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Returns how many data files it has.
    #[must_use]
    pub fn shards(&self) -> usize {
        usize::try_from(self.index.header.shards).unwrap_or(usize::MAX)
    }

    /// The data files that tensors are in. A forged header may state any number of others.
    pub(crate) fn used_shards(&self) -> std::collections::BTreeSet<u32> {
        self.index.shards()
    }

    /// Returns the path of a data file, whether or not it is there.
    #[must_use]
    pub fn shard_path(&self, shard: u32) -> PathBuf {
        self.data.path(shard)
    }

    /// Returns whether a big-endian machine wrote it.
    #[must_use]
    pub fn is_big_endian(&self) -> bool {
        self.index.header.is_big_endian
    }

    /// Returns the version of the format that its writer had.
    #[must_use]
    pub fn producer(&self) -> i32 {
        self.index.header.producer
    }

    /// Returns how many tensors it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns whether it has no tensor.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all tensors, in the order of their names. A variable in slices is one.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = TensorInfo<'_>> + DoubleEndedIterator {
        (0..self.len()).map(|number| self.get(number))
    }

    /// Returns the tensor of this number, which there is.
    fn get(&self, number: usize) -> TensorInfo<'_> {
        self.index.get(number).expect("the index has an entry for each number below its length")
    }

    /// Returns what the index says of a tensor, found by binary search.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Unknown`] if there is none of this name. It has names that are like it.
    pub fn info(&self, name: &str) -> Result<TensorInfo<'_>, CheckpointError> {
        self.number(name).map(|number| self.get(number))
    }

    /// Returns whether there is a tensor of this name.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.index.find(name).is_some()
    }

    fn number(&self, name: &str) -> Result<usize, CheckpointError> {
        self.index.find(name).ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> CheckpointError {
        let near = near::near(name, self.tensors().map(|tensor| tensor.name));
        CheckpointError::Unknown { index: self.index_path.clone(), tensor: name.to_owned(), near }
    }

    /// Returns a tensor. Its bytes are lent from the mapped data file. They are copied if the file is not
    /// mapped, if a big-endian machine wrote it, or if the variable was saved in slices; [`Tensor::values`]
    /// copies what is not aligned.
    ///
    /// A checksum is verified when its bytes are first used; of a file that is read, each time.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`] if there is no such tensor, its data file is missing or cut, or it is damaged.
    pub fn tensor(&self, name: &str) -> Result<Tensor<'_>, CheckpointError> {
        let number = self.number(name)?;
        let whole: Vec<_> = self.get(number).shape.iter().map(|&extent| 0..extent).collect();
        self.read(number, &whole)
    }

    /// Returns a region of a tensor: for each axis, which places. Only slices that have a part of it are
    /// read, and verified.
    ///
    /// # Errors
    ///
    /// As [`tensor`](Self::tensor), and [`CheckpointError::Tensor`] if the region is not within the tensor.
    pub fn region(&self, name: &str, region: &[Range<usize>]) -> Result<Tensor<'_>, CheckpointError> {
        let number = self.number(name)?;
        let TensorInfo { shape, .. } = self.get(number);
        let fits =
            |(range, &extent): (&Range<usize>, &usize)| range.start <= range.end && range.end <= extent;
        if region.len() != shape.len() || !region.iter().zip(shape).all(fits) {
            let message = format!(
                "it has the shape {shape:?}: the region {region:?} is not within it; give a range for each \
                 axis"
            );
            return Err(self.tensor_error(name, message));
        }
        self.read(number, region)
    }

    fn is_verified(&self, piece: usize) -> bool {
        // Relaxed: the bytes that were verified are the file's, and no thread writes them.
        self.verified.get(piece).is_some_and(|verified| verified.load(Ordering::Relaxed))
    }

    fn set_verified(&self, piece: usize) {
        if let Some(verified) = self.verified.get(piece) {
            verified.store(true, Ordering::Relaxed);
        }
    }
}
