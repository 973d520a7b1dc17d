//! The data files of a checkpoint: mapped, read, or in memory.
//!
//! A mapped file costs no copy, but cannot report an error: if it is truncated while it is mapped, or the
//! disk fails, the kernel ends the process with SIGBUS. A file that is read reports every failure, and costs
//! a copy.

#![expect(unsafe_code, reason = "the files are mapped")]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use memmap2::{Mmap, MmapOptions};
use percolator_files::{Access, Reading};

use super::error::CheckpointError;
use super::index::Place;
use super::zeroed::zeroed;
use crate::paths::{data_path, open_regular};

/// The data files, each opened when it is first used.
#[derive(Debug)]
pub(super) struct DataFiles {
    prefix: PathBuf,
    shards: u32,
    access: Access,
    /// Those that tensors are in.
    files: BTreeMap<u32, OnceLock<DataFile>>,
}

/// One of them, open.
#[derive(Debug)]
pub(super) struct DataFile {
    pub(super) path: PathBuf,
    /// Its length when it was opened.
    bytes: u64,
    from: Bytes,
}

/// Where bytes come from.
#[derive(Debug)]
enum Bytes {
    /// The file; `None` if it is not mapped, but read.
    File(File, Option<Mmap>),
    Memory(Vec<u8>),
}

impl DataFiles {
    pub(super) fn new(
        prefix: &Path,
        shards: u32,
        used: impl IntoIterator<Item = u32>,
        access: Access,
    ) -> Self {
        let files = used.into_iter().map(|shard| (shard, OnceLock::new())).collect();
        DataFiles { prefix: prefix.to_owned(), shards, access, files }
    }

    /// Data files that are in memory: all of them.
    pub(super) fn in_memory(prefix: &Path, data: Vec<Vec<u8>>) -> Self {
        let shards = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let mut files = DataFiles::new(prefix, shards, [], Access::Read);
        for (shard, bytes) in (0..shards).zip(data) {
            let (path, length) = (files.path(shard), bytes.len() as u64);
            let file = DataFile { path, bytes: length, from: Bytes::Memory(bytes) };
            files.files.insert(shard, OnceLock::from(file));
        }
        files
    }

    pub(super) fn path(&self, shard: u32) -> PathBuf {
        data_path(&self.prefix, shard as usize, self.shards as usize)
    }

    /// Returns a data file, and the range of a place in it, which it has. `tensor` is for messages.
    pub(super) fn at(&self, place: Place, tensor: &str) -> Result<(&DataFile, Range<u64>), CheckpointError> {
        let Place { shard, offset, bytes, .. } = place;
        let file = self.open(shard, tensor)?;
        match offset.checked_add(bytes) {
            Some(end) if end <= file.bytes => Ok((file, offset..end)),
            _ => {
                let (path, tensor, found) = (file.path.clone(), tensor.to_owned(), file.bytes);
                Err(CheckpointError::Cut { file: path, tensor, offset, bytes, found })
            }
        }
    }

    fn open(&self, shard: u32, tensor: &str) -> Result<&DataFile, CheckpointError> {
        let missing = |path: PathBuf| CheckpointError::MissingShard {
            file: path,
            tensor: tensor.to_owned(),
            shards: self.shards,
        };
        let Some(cell) = self.files.get(&shard) else { return Err(missing(self.path(shard))) };
        if let Some(file) = cell.get() {
            return Ok(file);
        }
        let path = self.path(shard);
        let opened = DataFile::open(&path, self.access).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => missing(path.clone()),
            _ => CheckpointError::io(&path, "open the data file", &error),
        })?;
        // Another thread may have been faster; then its file is used.
        Ok(cell.get_or_init(|| opened))
    }
}

impl DataFile {
    fn open(path: &Path, access: Access) -> io::Result<Self> {
        let (file, bytes) = open_regular(path)?;
        let map = if access.of(&file) == Reading::Mapped && bytes > 0 { map(&file, bytes)? } else { None };
        Ok(DataFile { path: path.to_owned(), bytes, from: Bytes::File(file, map) })
    }

    /// Its length when it was opened.
    pub(super) fn length(&self) -> u64 {
        self.bytes
    }

    /// Whether bytes are lent: if the file is mapped, or is memory.
    pub(super) fn is_mapped(&self) -> bool {
        matches!(self.from, Bytes::File(_, Some(_)) | Bytes::Memory(_))
    }

    /// Returns bytes of the file: lent if it is mapped, read if not.
    pub(super) fn bytes(&self, range: Range<u64>) -> Result<Cow<'_, [u8]>, CheckpointError> {
        match &self.from {
            Bytes::File(_, Some(map)) => Ok(Cow::Borrowed(within(map, range))),
            Bytes::Memory(memory) => Ok(Cow::Borrowed(within(memory, range))),
            Bytes::File(_, None) => {
                let mut bytes = zeroed(range.end.saturating_sub(range.start))
                    .map_err(|error| CheckpointError::io(&self.path, "read the data file", &error))?;
                self.copy(range.start, &mut bytes)?;
                Ok(Cow::Owned(bytes))
            }
        }
    }

    /// Copies bytes of the file into memory.
    pub(super) fn copy(&self, offset: u64, into: &mut [u8]) -> Result<(), CheckpointError> {
        let error = |error: io::Error| CheckpointError::io(&self.path, "read the data file", &error);
        match &self.from {
            Bytes::File(file, _) => file.read_exact_at(into, offset).map_err(error),
            Bytes::Memory(memory) => {
                let end = offset.saturating_add(into.len() as u64);
                let mut found = within(memory, offset..end);
                found.read_exact(into).map_err(error)
            }
        }
    }
}

/// Maps a file, or returns `None` if the process has no room for another map.
fn map(file: &File, bytes: u64) -> io::Result<Option<Mmap>> {
    let length = usize::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
    // SAFETY: the map gives out shared references alone. That no other program writes to the file or cuts it
    // is the assumption under which a file is mapped (`Access::Mapped`, docs/design.md).
    match unsafe { MmapOptions::new().len(length).map(file) } {
        Ok(map) => Ok(Some(map)),
        Err(error) if error.kind() == io::ErrorKind::OutOfMemory => Ok(None),
        Err(error) => Err(error),
    }
}

fn within(bytes: &[u8], range: Range<u64>) -> &[u8] {
    let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
    bytes.get(index(range.start)..index(range.end)).unwrap_or_default()
}
