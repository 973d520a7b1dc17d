//! Writes checkpoints, byte for byte as TensorFlow does.
//!
//! The tensors' bytes go to a data file in the order in which they are added, one after the other without
//! padding. The index, a sorted table, is written at the end: its header is under the empty key, and each
//! tensor has an entry under its name. A tensor in slices has an entry that lists them, and each slice has
//! its own, under a key in ordered code. Several data files are what TensorFlow writes if several devices
//! save a checkpoint at once and it is then merged.

mod data_file;
mod error;
mod plan;
mod replace;
mod slices;
mod stream;
mod strings;
mod tensor_writer;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use percolator_files::whole_file::{Existing, WholeFile};
use percolator_leveldb::table::{BuildError, TableBuilder, TableOptions};
use prost::Message as _;

use self::data_file::DataFile;
pub use self::error::WriteError;
use self::error::quoted;
use self::plan::{Planned, Sliced, check_tensor, entry_of, signed};
pub(crate) use self::replace::{PREVIOUS, new_prefix};
use self::replace::{Replacement, check_free, check_prefix, keep_permissions};
pub(super) use self::replace::{ends_in_name, previous_prefix, remove, remove_unfinished};
use self::slices::Region;
pub use self::stream::{data_file_bytes, write_data_file};
use self::strings::{put_strings, put_variants};
pub use self::tensor_writer::TensorWriter;
use crate::checkpoint::slices::{Extent, name_of_key};
use crate::paths::{SHARDS_MAX, data_path, index_path};
use crate::proto::{BundleEntryProto, BundleHeaderProto, VersionDef};
use crate::tensor::elements;
use crate::{DataType, Elements, Tensor, TensorError};

/// The version that TensorFlow's own writer states.
const VERSION: i32 = 1;
/// What is wrong with a second tensor of one name.
const TAKEN: &str = "it is there already: give each tensor its own name";

/// Writes a checkpoint: an index and one data file, or several.
///
/// The files are byte for byte those of TensorFlow's own writer, if it is given the same tensors in the same
/// order. Memory: a few hundred bytes a tensor, and a buffer of 1 MiB a data file.
///
/// The files get their names when the checkpoint is [finished](Self::finish); a writer that is dropped before
/// that leaves none. One whose process is killed leaves temporary files that end in `.percolator-partial`;
/// the next writer into that folder removes them.
///
/// # A checkpoint that is there already
///
/// No system renames several files at once. So [`finish`](Self::finish) keeps the earlier checkpoint of the
/// same prefix under the prefix with `.percolator-previous` behind it (links, no copies, where the file
/// system has them), removes its index, names the new files, the index last, and then removes the earlier
/// one. Whenever the process is killed, one of both checkpoints is whole, and the prefix is that of a whole
/// checkpoint or of none. [`latest_checkpoint`](crate::latest_checkpoint) finds the earlier one while the new
/// one is not there yet. The ending is reserved: no checkpoint can be written under such a name.
///
/// # Several writers
///
/// Writers in one folder take turns at naming their files. Of two that finish one prefix at once, the later
/// one's checkpoint stays. They take no turns where a file system cannot lock a folder, such as NFS, and when
/// one has been stopped for a minute in its turn, or copies the earlier checkpoint for longer than that where
/// there are no links: then the index of one may be left with the data files of the other.
///
/// ```
/// use percolator_tensorflow::{CheckpointWriter, DataType, Tensor};
///
/// # let folder = tempfile::tempdir()?;
/// let mut writer = CheckpointWriter::create(folder.path().join("model"))?;
/// writer.add("layer1/W", &Tensor::from_values([2], &[1.0_f32, 2.0])?)?;
/// writer.add("vocabulary", &Tensor::strings([2], [&b"to"[..], b"be"])?)?;
/// // A tensor that is not in memory as a whole.
/// let mut tensor = writer.begin("embedding", DataType::Float32, &[1000, 16])?;
/// for row in 0..1000_u16 {
///     tensor.add(bytemuck::cast_slice(&[f32::from(row); 16]))?;
/// }
/// tensor.finish()?;
/// writer.finish()?;
/// # Ok::<(), anyhow::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the checkpoint is there once it is finished"]
pub struct CheckpointWriter {
    prefix: PathBuf,
    files: Vec<DataFile>,
    /// The data file that the next tensor goes to.
    shard: usize,
    /// By key, in the order of the index.
    entries: BTreeMap<Vec<u8>, BundleEntryProto>,
    /// The tensors in slices, by name.
    sliced: BTreeMap<String, Sliced>,
    /// The tensor that was not written whole.
    failed: Option<String>,
    /// What becomes of a checkpoint with this prefix.
    existing: Existing,
}

impl CheckpointWriter {
    /// Starts a checkpoint with one data file, in a folder that is made if it is not there. `prefix` is its
    /// path without `.index`.
    ///
    /// # Errors
    ///
    /// [`WriteError`] if no file can be written there; [`WriteError::Refused`] for a prefix that has no name,
    /// or whose name ends in `.index` or `.percolator-previous`.
    pub fn create(prefix: impl AsRef<Path>) -> Result<Self, WriteError> {
        Self::create_sharded(prefix, 1)
    }

    /// Starts a checkpoint with this many data files; tensors go to the first until
    /// [another one is set](Self::set_shard). Every data file is open until the checkpoint is finished: the
    /// system's limit for a process (`ulimit -n`, often 1024) must be greater than their number.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), and [`WriteError::Refused`] for none or more than 99,999.
    pub fn create_sharded(prefix: impl AsRef<Path>, shards: usize) -> Result<Self, WriteError> {
        let prefix = prefix.as_ref().to_owned();
        Self::check(&prefix, shards, Existing::Replace)?;
        if let Some(folder) = prefix.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).map_err(WriteError::io(folder, "make the folder"))?;
        }
        let mut files = Vec::with_capacity(shards);
        for shard in 0..shards {
            let path = data_path(&prefix, shard, shards);
            let file = DataFile::create(path.clone());
            files.push(file.map_err(WriteError::io(&path, "create the file"))?);
        }
        let (entries, sliced) = (BTreeMap::new(), BTreeMap::new());
        let existing = Existing::Replace;
        Ok(CheckpointWriter { prefix, files, shard: 0, entries, sliced, failed: None, existing })
    }

    /// Sets what happens to files of a checkpoint that have this prefix already when this one is finished. By
    /// default they are [replaced](Existing::Replace). With [`Existing::Refuse`], [`finish`](Self::finish)
    /// returns [`WriteError::Exists`].
    pub fn existing(self, existing: Existing) -> Self {
        CheckpointWriter { existing, ..self }
    }

    /// Checks that a checkpoint can have this prefix and so many data files, before anything is written.
    pub(crate) fn check(prefix: &Path, shards: usize, existing: Existing) -> Result<(), WriteError> {
        check_prefix(prefix)?;
        if !(1..=SHARDS_MAX).contains(&shards) {
            let message = format!("{shards} is no number of data files: 1 to {SHARDS_MAX} are allowed");
            return Err(WriteError::refused(prefix, message));
        }
        check_free(prefix, existing)
    }

    /// Sets the data file that the next tensors go to, counted from 0.
    ///
    /// # Errors
    ///
    /// [`WriteError::Refused`] if there is no such one.
    pub fn set_shard(&mut self, shard: usize) -> Result<(), WriteError> {
        if shard >= self.files.len() {
            let files = self.files.len();
            let message = format!("{shard} is no number of a data file: there are {files}, counted from 0");
            return Err(WriteError::refused(&self.prefix, message));
        }
        self.shard = shard;
        Ok(())
    }

    /// The path without `.index`.
    #[must_use]
    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Adds a tensor.
    ///
    /// # Errors
    ///
    /// [`WriteError`] if the name is empty or taken, no checkpoint can hold the type, or the file cannot be
    /// written.
    pub fn add(&mut self, name: impl AsRef<[u8]>, tensor: &Tensor<'_>) -> Result<(), WriteError> {
        let planned = self.plan(name.as_ref(), tensor.data_type(), tensor.shape())?;
        self.write(planned, tensor)
    }

    /// Adds a slice of a tensor: `shape` is the whole tensor's, and `region` has an [`Extent`] for each of
    /// its axes. A slice that is the whole tensor is added as [`add`](Self::add) does.
    ///
    /// The slice is compared with each one of its tensor that was added before. That takes no time for
    /// thousands of slices a tensor, and minutes for 100,000.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add); [`WriteError::Tensor`] if the region is not in the tensor, overlaps another
    /// one, or has another shape than the slice.
    pub fn add_slice(
        &mut self,
        name: impl AsRef<[u8]>,
        shape: &[usize],
        region: &[Extent],
        slice: &Tensor<'_>,
    ) -> Result<(), WriteError> {
        let planned = self.plan_slice(name.as_ref(), slice.data_type(), shape, region)?;
        if planned.shape != slice.shape() {
            let (found, allowed) = (slice.shape(), &planned.shape);
            let reason = format!("the slice has the shape {found:?}, and its region has {allowed:?}");
            return Err(self.refused(&planned.name, reason));
        }
        self.write(planned, slice)
    }

    /// Adds a tensor of strings, or of serialized variants (`VariantTensorDataProto`), that need not be in
    /// memory at once. They are gone through several times, and must be the same each time.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add); [`WriteError::Tensor`] if they are not as many as the shape says.
    pub fn add_strings<S: AsRef<[u8]>>(
        &mut self,
        name: impl AsRef<[u8]>,
        data_type: DataType,
        shape: &[usize],
        strings: impl IntoIterator<Item = S, IntoIter: Clone>,
    ) -> Result<(), WriteError> {
        let planned = self.plan(name.as_ref(), data_type, shape)?;
        self.write_strings(planned, strings.into_iter())
    }

    /// Begins a tensor whose bytes follow in pieces.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add); [`WriteError::Tensor`] for strings.
    pub fn begin(
        &mut self,
        name: impl AsRef<[u8]>,
        data_type: DataType,
        shape: &[usize],
    ) -> Result<TensorWriter<'_>, WriteError> {
        let planned = self.plan(name.as_ref(), data_type, shape)?;
        self.begin_planned(planned)
    }

    /// Begins a slice whose bytes follow in pieces: `shape` is the whole tensor's.
    ///
    /// # Errors
    ///
    /// As [`add_slice`](Self::add_slice); [`WriteError::Tensor`] for strings.
    pub fn begin_slice(
        &mut self,
        name: impl AsRef<[u8]>,
        data_type: DataType,
        shape: &[usize],
        region: &[Extent],
    ) -> Result<TensorWriter<'_>, WriteError> {
        let planned = self.plan_slice(name.as_ref(), data_type, shape, region)?;
        self.begin_planned(planned)
    }

    fn begin_planned(&mut self, planned: Planned) -> Result<TensorWriter<'_>, WriteError> {
        if planned.data_type.size().is_none() {
            return Err(self.other_way(&planned, "add_strings or add"));
        }
        Ok(TensorWriter::new(self, planned))
    }

    /// Writes the index and gives all files their names; they are on the disk then. Returns the prefix.
    ///
    /// # Errors
    ///
    /// [`WriteError`] if a file cannot be written, a tensor was not written whole, or its slices do not cover
    /// it; [`WriteError::Exists`] if the prefix has a checkpoint that is [to stay](Self::existing). The
    /// earlier checkpoint of this prefix stays then, at the latest under the prefix with
    /// `.percolator-previous` behind it.
    pub fn finish(self) -> Result<PathBuf, WriteError> {
        self.finish_with(|_| Ok(()), || Ok(()))
    }
}

/// The common part of all ways of adding a tensor.
impl CheckpointWriter {
    /// Checks what can be checked before the first byte.
    fn plan(&self, name: &[u8], data_type: DataType, shape: &[usize]) -> Result<Planned, WriteError> {
        let text = self.check_name(name)?;
        let bytes = check_tensor(data_type, shape).map_err(|reason| self.refused(text, reason))?;
        if self.entries.contains_key(name) || self.sliced.contains_key(text) {
            return Err(self.refused(text, TAKEN));
        }
        let (name, shape) = (text.to_owned(), shape.to_vec());
        Ok(Planned { name, data_type, shape, bytes, slice: None })
    }

    fn plan_slice(
        &self,
        name: &[u8],
        data_type: DataType,
        shape: &[usize],
        region: &[Extent],
    ) -> Result<Planned, WriteError> {
        let text = self.check_name(name)?;
        let refused = |reason: String| self.refused(text, reason);
        check_tensor(data_type, shape).map_err(refused)?;
        let Some(region) = Region::new(region, shape).map_err(refused)? else {
            return self.plan(name, data_type, shape);
        };
        if self.entries.contains_key(name) {
            return Err(self.refused(text, TAKEN));
        }
        if let Some(sliced) = self.sliced.get(text) {
            sliced.check(data_type, shape, &region).map_err(refused)?;
        }
        if self.entries.contains_key(&region.key(text)) {
            return Err(self.refused(text, format!("its region {} is there already", region.spelled())));
        }
        let slice_shape = region.shape();
        let bytes = check_tensor(data_type, &slice_shape).map_err(refused)?;
        let slice = Some((shape.to_vec(), region));
        Ok(Planned { name: text.to_owned(), data_type, shape: slice_shape, bytes, slice })
    }

    /// Returns the name as text, if a tensor can have it.
    fn check_name<'n>(&self, name: &'n [u8]) -> Result<&'n str, WriteError> {
        match &self.failed {
            Some(failed) => Err(self.unfinished(failed)),
            None => check_name(name).map_err(|reason| WriteError::tensor(&self.prefix, name, reason)),
        }
    }

    fn write(&mut self, planned: Planned, tensor: &Tensor<'_>) -> Result<(), WriteError> {
        match tensor.elements() {
            Elements::Bytes(bytes) => {
                let mut writer = TensorWriter::new(self, planned);
                writer.add(bytes)?;
                writer.finish()
            }
            Elements::Strings(strings) => self.write_strings(planned, strings.iter()),
        }
    }

    fn write_strings<S: AsRef<[u8]>>(
        &mut self,
        planned: Planned,
        strings: impl Iterator<Item = S> + Clone,
    ) -> Result<(), WriteError> {
        let Planned { name, data_type, shape, .. } = &planned;
        if data_type.size().is_some() {
            return Err(self.other_way(&planned, "add or begin"));
        }
        let (found, allowed) = (strings.clone().count(), elements(shape).unwrap_or_default());
        if found != allowed {
            let (data_type, shape, unit) = (*data_type, shape.clone(), "strings");
            let reason = TensorError::Length { data_type, shape, unit, found, allowed };
            return Err(self.refused(name, reason.to_string()));
        }
        self.failed = Some(planned.name.clone());
        let file = self.file();
        let offset = file.offset();
        let written = match planned.data_type {
            DataType::Variant => put_variants(file, strings),
            _ => put_strings(file, strings),
        };
        let bytes = file.offset() - offset;
        let checksum = written.map_err(WriteError::io(&file.path.clone(), "write a tensor"))?;
        self.failed = None;
        self.record(planned, bytes, checksum);
        Ok(())
    }

    /// The data file that tensors go to.
    fn file(&mut self) -> &mut DataFile {
        &mut self.files[self.shard]
    }

    /// Enters a tensor whose bytes are the last in its data file.
    fn record(&mut self, planned: Planned, bytes: u64, checksum: u32) {
        let shard = self.shard;
        let mut entry = entry_of(planned.data_type, &planned.shape);
        entry.shard_id = i32::try_from(shard).unwrap_or(i32::MAX);
        entry.offset = signed(self.files[shard].offset() - bytes);
        entry.size = signed(bytes);
        entry.crc32c = checksum;
        let Planned { name, data_type, slice, .. } = planned;
        match slice {
            None => drop(self.entries.insert(name.into_bytes(), entry)),
            Some((shape, region)) => {
                self.entries.insert(region.key(&name), entry);
                let whole = Sliced { data_type, shape, regions: Vec::new() };
                self.sliced.entry(name).or_insert(whole).regions.push((shard, region));
            }
        }
    }

    /// Writes and names all files. `before_naming` is called once the earlier checkpoint, if there is one, is
    /// kept under the prefix that it is given; `after_naming` when the new one is there, and before the
    /// earlier one is removed.
    pub(crate) fn finish_with<E: From<WriteError>>(
        mut self,
        before_naming: impl FnOnce(&Path) -> Result<(), E>,
        after_naming: impl FnOnce() -> Result<(), E>,
    ) -> Result<PathBuf, E> {
        let index = self.write_all()?;
        let replacement = Replacement::begin(&self.prefix, self.files.len(), self.existing)?;
        if let Some(previous) = replacement.previous() {
            before_naming(previous)?;
        }
        replacement.name(self.files, index)?;
        after_naming()?;
        replacement.end();
        Ok(self.prefix)
    }

    /// Writes all files under temporary names, and syncs them; returns the index.
    fn write_all(&mut self) -> Result<WholeFile, WriteError> {
        if let Some(failed) = &self.failed {
            return Err(self.unfinished(failed));
        }
        for (name, sliced) in &self.sliced {
            sliced.check_whole().map_err(|reason| self.refused(name, reason))?;
        }
        for file in &mut self.files {
            file.sync().map_err(WriteError::io(&file.path, "write the file"))?;
        }
        self.write_index()
    }

    /// Writes the index under a temporary name, and syncs it.
    fn write_index(&mut self) -> Result<WholeFile, WriteError> {
        let path = index_path(&self.prefix);
        let shards = i32::try_from(self.files.len()).unwrap_or(i32::MAX);
        for (name, sliced) in std::mem::take(&mut self.sliced) {
            self.entries.insert(name.into_bytes(), sliced.into_entry());
        }
        let file = WholeFile::create(&path).map_err(WriteError::io(&path, "create the file"))?;
        keep_permissions(&self.prefix, file.file());
        let mut builder = TableBuilder::new(file, TableOptions::default());
        let written = builder.add(b"", &header(shards).encode_to_vec()).and_then(|()| {
            self.entries.iter().try_for_each(|(key, entry)| builder.add(key, &entry.encode_to_vec()))
        });
        let synced = written.and_then(|()| builder.finish()).and_then(|mut file| {
            file.flush()?;
            file.file().sync_all()?;
            Ok::<_, BuildError>(file)
        });
        synced.map_err(|source| WriteError::Index { path, source })
    }

    fn refused(&self, name: &str, reason: impl Into<String>) -> WriteError {
        WriteError::tensor(&self.prefix, name.as_bytes(), reason)
    }

    /// The error for a tensor whose elements are not written this way.
    fn other_way(&self, planned: &Planned, way: &str) -> WriteError {
        let found = planned.data_type;
        self.refused(&planned.name, format!("its elements are of type {found}: write it with {way}"))
    }

    fn unfinished(&self, name: &str) -> WriteError {
        WriteError::Failed { prefix: self.prefix.clone(), name: quoted(name.as_bytes()) }
    }
}

/// The index's first value.
fn header(shards: i32) -> BundleHeaderProto {
    let version = VersionDef { producer: VERSION, ..VersionDef::default() };
    BundleHeaderProto { num_shards: shards, version: Some(version), ..Default::default() }
}

/// Returns a name as text, or why no tensor can have it.
fn check_name(name: &[u8]) -> Result<&str, &'static str> {
    if name.is_empty() {
        return Err("the empty key is the index's header: give another name");
    }
    if name_of_key(name).is_some() {
        return Err("such names are the keys of slices: add the slice to its tensor with add_slice");
    }
    str::from_utf8(name)
        .map_err(|_| "it is not UTF-8, and TensorFlow's Python reads no other: give another name")
}
