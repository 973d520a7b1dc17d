//! An open file that is not compressed: mapped, or read.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use once_cell::sync::OnceCell;
use percolator_files::file_id::FileState;
use percolator_files::{Reading, shown};

use crate::error::TfRecordError;
use crate::map::FileMap;
use crate::open_files::open_again;

/// An open file that is not compressed. Nothing in it changes.
#[derive(Debug)]
pub struct PlainFile {
    /// As messages name it.
    pub(crate) path: PathBuf,
    /// The state of the whole file.
    pub(crate) state: FileState,
    /// The checksum of its beginning and its end.
    pub(crate) ends: u32,
    /// `None` if the file is read.
    map: Option<Arc<FileMap>>,
    /// Another map, for cursors that seek: advice to the kernel about one does not affect the other.
    map_by_position: OnceCell<Arc<FileMap>>,
}

impl PlainFile {
    pub(crate) fn open(
        path: &Path,
        (file, state): (&File, FileState),
        ends: u32,
        reading: Reading,
    ) -> Result<Self, TfRecordError> {
        let map = match reading {
            Reading::Read => None,
            Reading::Mapped => {
                let map = FileMap::open(file, path, state.bytes)?;
                if map.is_none() {
                    let path = shown::path(path);
                    tracing::debug!(%path, "no more files can be mapped: reading it instead");
                }
                map.map(Arc::new)
            }
        };
        Ok(PlainFile { path: path.to_owned(), state, ends, map, map_by_position: OnceCell::new() })
    }

    /// Returns its path, as the caller gave it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the state in which it was opened.
    #[inline]
    #[must_use]
    pub fn state(&self) -> FileState {
        self.state
    }

    /// Returns the map in which records are read one after the other; `None` if the file is read.
    #[must_use]
    pub fn map(&self) -> Option<&Arc<FileMap>> {
        self.map.as_ref()
    }

    /// Returns the map in which single records are read; `None` if the file is read. A page fault in it reads
    /// no neighbouring pages.
    ///
    /// # Errors
    ///
    /// [`TfRecordError`] if the file cannot be mapped again.
    pub fn map_by_position(&self) -> Result<Option<&Arc<FileMap>>, TfRecordError> {
        let Some(forward) = &self.map else { return Ok(None) };
        let open = || {
            let file = open_again(&self.path, self.state)?;
            let map = FileMap::open(&file, &self.path, self.state.bytes)?;
            let Some(map) = map else { return Ok(forward.clone()) };
            map.expect_seeks();
            Ok(Arc::new(map))
        };
        self.map_by_position.get_or_try_init(open).map(Some)
    }
}
