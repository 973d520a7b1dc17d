//! A model's tensors as a checkpoint of TensorFlow: its files in an archive (tar).
//!
//! ```text
//! model.data-00000-of-00001   the tensors' bytes, in the order of their names
//! model.index                 the index, which has their types, shapes, places and checksums
//! ```
//!
//! The index comes last, because it has the checksums, so the tensors are processed once. Unpacked by
//! `tar xf`, the two files are a checkpoint that TensorFlow opens.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::collections::BTreeMap;
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use percolator_files::shown;
use percolator_tensorflow::checkpoint::{WriteError, data_file_bytes, write_data_file};
use percolator_tensorflow::{Checkpoint as Files, CheckpointError as FilesError, CheckpointWriter, Tensor};
use tar::{Archive, Header};

use super::{Checkpoint, invalid};

/// The names of the files begin with this.
const NAME: &str = "model";
/// A tar archive consists of blocks of so many bytes, and ends with two of zeros.
const BLOCK_BYTES: usize = 512;

/// A model's tensors by their names, of all types that TensorFlow has, strings among them.
///
/// If there are none, reading takes everything that the file has. If there are some, those of the file must
/// have the same names, types and shapes. Reading holds the file's tensors in memory a second time for a
/// moment.
///
/// ```
/// use percolator_cluster::checkpoint::{Bundle, Checkpoint as _};
/// use percolator_tensorflow::Tensor;
///
/// # let folder = tempfile::tempdir()?;
/// let mut model = Bundle::new();
/// model.insert("layer1/W", Tensor::from_values([2], &[0.5_f32, 0.25])?);
/// model.insert("vocabulary", Tensor::strings([2], [&b"to"[..], b"be"])?);
/// let mut file = Vec::new();
/// model.write(&mut file)?;
///
/// let mut restored = Bundle::new();
/// restored.read(&mut &file[..])?;
/// assert_eq!(restored, model);
/// restored.save(folder.path().join("model"))?; // for TensorFlow: model.index, model.data-00000-of-00001
/// assert_eq!(Bundle::open(folder.path().join("model"))?, model);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bundle {
    tensors: BTreeMap<String, Tensor<'static>>,
}

impl Bundle {
    /// Returns no tensors.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a checkpoint that TensorFlow wrote, all of it. `prefix` is its path without `.index`. Variables
    /// in slices are put together, and are whole from then on.
    ///
    /// # Errors
    ///
    /// [`CheckpointError`](FilesError) of `percolator-tensorflow` if there is none, or it is damaged.
    pub fn open(prefix: impl AsRef<Path>) -> Result<Self, FilesError> {
        Self::of(&Files::open(prefix)?)
    }

    fn of(files: &Files) -> Result<Self, FilesError> {
        let names = files.tensors().map(|tensor| tensor.name.to_owned());
        Ok(Bundle { tensors: names.zip(files.load_all(0)?).collect() })
    }

    /// Writes a checkpoint that TensorFlow reads, and returns its prefix.
    ///
    /// # Errors
    ///
    /// [`WriteError`] if a file cannot be written, or no tensor can have one of the names.
    pub fn save(&self, prefix: impl AsRef<Path>) -> Result<PathBuf, WriteError> {
        let mut writer = CheckpointWriter::create(prefix)?;
        self.tensors.iter().try_for_each(|(name, tensor)| writer.add(name, tensor))?;
        writer.finish()
    }

    /// Adds a tensor, and replaces the one that has this name. It gets elements of its own.
    pub fn insert(&mut self, name: impl Into<String>, tensor: Tensor<'_>) {
        self.tensors.insert(name.into(), tensor.into_owned());
    }

    /// Returns a tensor.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tensor<'static>> {
        self.tensors.get(name)
    }

    /// Returns a tensor to be changed.
    #[must_use]
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Tensor<'static>> {
        self.tensors.get_mut(name)
    }

    /// Returns the tensors and their names, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor<'static>)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }

    /// Compares names, types and shapes with those of a file.
    fn check(&self, found: &Bundle) -> io::Result<()> {
        if let Some(name) = self.tensors.keys().find(|name| !found.tensors.contains_key(*name)) {
            return Err(invalid(format!("the tensor {name:?} is missing")));
        }
        for (name, tensor) in &found.tensors {
            let Some(known) = self.tensors.get(name) else {
                return Err(invalid(format!("the tensor {name:?} is not known")));
            };
            let kind = |tensor: &Tensor<'_>| (tensor.data_type(), tensor.shape().to_vec());
            let (allowed, found) = (kind(known), kind(tensor));
            if allowed != found {
                return Err(invalid(format!(
                    "the tensor {name:?} has type {} and shape {:?}, and must have {} and {:?}",
                    found.0, found.1, allowed.0, allowed.1
                )));
            }
        }
        Ok(())
    }
}

/// The head of a file in the archive.
fn head(name: &str, bytes: u64) -> io::Result<Header> {
    let mut header = Header::new_ustar();
    header.set_path(name)?;
    header.set_size(bytes);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_cksum();
    Ok(header)
}

/// Fills a file's last block with zeros.
fn pad(to: &mut dyn Write, bytes: u64) -> io::Result<()> {
    let end = bytes.checked_next_multiple_of(BLOCK_BYTES as u64).unwrap_or(bytes);
    io::copy(&mut io::repeat(0).take(end.saturating_sub(bytes)), to).map(drop)
}

/// The number of a data file whose name says how many there are.
fn shard_of(name: &str) -> Option<(usize, usize)> {
    let numbers = name.strip_prefix(NAME)?.strip_prefix(".data-")?;
    let (shard, shards) = numbers.split_once("-of-")?;
    // TensorFlow's own files have numbers of five digits.
    let number = |digits: &str| match digits.len() == 5 && digits.bytes().all(|digit| digit.is_ascii_digit())
    {
        true => digits.parse::<usize>().ok(),
        false => None,
    };
    let (shard, shards) = (number(shard)?, number(shards)?);
    (shard < shards).then_some((shard, shards))
}

/// The files of an archive.
#[derive(Default)]
struct Unpacked {
    index: Option<Vec<u8>>,
    data: BTreeMap<usize, Vec<u8>>,
    shards: Option<usize>,
}

impl Unpacked {
    fn read(from: &mut dyn Read) -> io::Result<Self> {
        let mut unpacked = Unpacked::default();
        let mut archive = Archive::new(from);
        for entry in archive.entries()? {
            let mut entry = entry?;
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let stated = entry.size();
            if !entry.header().entry_type().is_file() {
                return Err(invalid(format!("{name:?} in the archive is no file")));
            }
            // Stated sizes are not trusted: memory grows with the data that are there.
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            if bytes.len() as u64 != stated {
                let found = bytes.len();
                return Err(invalid(format!("the archive ends within {name:?}: {found} of {stated} bytes")));
            }
            unpacked.add(&name, bytes)?;
        }
        // Writers add blocks of zeros as they like.
        let mut rest = BufReader::new(archive.into_inner()).bytes();
        match rest.find(|byte| !matches!(byte, Ok(0))) {
            None => Ok(unpacked),
            Some(Err(error)) => Err(error),
            Some(Ok(_)) => Err(invalid("the archive has bytes after its end")),
        }
    }

    fn add(&mut self, name: &str, bytes: Vec<u8>) -> io::Result<()> {
        let is_twice = match shard_of(name) {
            Some((shard, shards)) => {
                if self.shards.is_some_and(|others| others != shards) {
                    return Err(invalid(format!(
                        "{name:?} is one of {shards} data files, and others are not"
                    )));
                }
                self.shards = Some(shards);
                self.data.insert(shard, bytes).is_some()
            }
            None if name.strip_prefix(NAME) == Some(".index") => self.index.replace(bytes).is_some(),
            None => {
                return Err(invalid(format!("{name:?} in the archive is no file of a checkpoint {NAME:?}")));
            }
        };
        if is_twice { Err(invalid(format!("{name:?} is in the archive twice"))) } else { Ok(()) }
    }

    fn into_bundle(self) -> io::Result<Bundle> {
        let Some(index) = self.index else {
            return Err(invalid(format!("the archive has no {NAME}.index")));
        };
        let (stated, found) = (self.shards.unwrap_or(0), self.data.len());
        if stated != found {
            return Err(invalid(format!("the archive has {found} of {stated} data files")));
        }
        let damaged = |error: FilesError| invalid(shown::with_sources(&error));
        let files = Files::from_memory(NAME, &index, self.data.into_values().collect()).map_err(damaged)?;
        Bundle::of(&files).map_err(damaged)
    }
}

impl Checkpoint for Bundle {
    fn write(&self, to: &mut dyn Write) -> io::Result<()> {
        let bytes = data_file_bytes(self.tensors.values());
        to.write_all(head(&format!("{NAME}.data-00000-of-00001"), bytes)?.as_bytes())?;
        let index = write_data_file(to, self.iter())?;
        pad(to, bytes)?;
        to.write_all(head(&format!("{NAME}.index"), index.len() as u64)?.as_bytes())?;
        to.write_all(&index)?;
        pad(to, index.len() as u64)?;
        to.write_all(&[0; BLOCK_BYTES])?;
        to.write_all(&[0; BLOCK_BYTES])
    }

    fn read(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let found = Unpacked::read(from)?.into_bundle()?;
        if !self.tensors.is_empty() {
            self.check(&found)?;
        }
        *self = found;
        Ok(())
    }
}
