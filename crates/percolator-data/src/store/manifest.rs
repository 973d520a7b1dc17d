//! The list of a LevelDB's tables: its MANIFEST, and the file CURRENT, which names it. The list grows with
//! the database, and a run that goes on with it reads it.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use percolator_files::{input_file, whole_file};
use percolator_leveldb::TableFile;
use percolator_leveldb::manifest::{NAME, added, begun, read};

use super::StoreError;

/// A list of tables that is being written.
#[derive(Debug)]
pub(super) struct Manifest {
    path: PathBuf,
    file: File,
    /// The length of the list.
    pub(super) bytes: u64,
}

impl Manifest {
    /// Starts a list without tables.
    pub(super) fn create(folder: &Path) -> Result<Self, StoreError> {
        let path = folder.join(NAME);
        let file = File::create_new(&path).map_err(StoreError::io(&path, "create the list of tables"))?;
        let mut manifest = Manifest { path, file, bytes: 0 };
        manifest.append(&begun())?;
        Ok(manifest)
    }

    /// Goes on with a list of this length; what was added after that is dropped. Returns its tables, and the
    /// sequence number of the last record.
    pub(super) fn reopen(folder: &Path, bytes: u64) -> Result<(Self, Vec<TableFile>, u64), StoreError> {
        let path = folder.join(NAME);
        let failed = |action| StoreError::io(&path, action);
        let changed = |found: String| StoreError::Changed { path: path.clone(), found };
        let (file, found) = input_file::open(&path).map_err(failed("open the list of tables"))?;
        let log = read_front(file, bytes.min(found)).map_err(failed("read the list of tables"))?;
        if (log.len() as u64) < bytes {
            return Err(changed(format!("it has {} bytes, and had {bytes} before", log.len())));
        }
        let (tables, sequence) =
            read(&log).ok_or_else(|| changed("it is not the list of tables that was written".to_owned()))?;
        let file = File::options().append(true).open(&path).map_err(failed("open the list of tables"))?;
        file.set_len(bytes).map_err(failed("shorten the list of tables"))?;
        Ok((Manifest { path, file, bytes }, tables, sequence))
    }

    /// Adds a table to a level. `sequence` is the number of its last record.
    pub(super) fn add(&mut self, level: u32, table: &TableFile, sequence: u64) -> Result<(), StoreError> {
        self.append(&added(self.bytes, level, table, sequence))
    }

    /// Makes it the list of the database.
    pub(super) fn finish(self) -> Result<(), StoreError> {
        let current = self.path.with_file_name("CURRENT");
        whole_file::write(&current, &[NAME.as_bytes(), b"\n"])
            .map_err(StoreError::io(&current, "name the list of tables"))
    }

    fn append(&mut self, edit: &[u8]) -> Result<(), StoreError> {
        let written = self.file.write_all(edit).and_then(|()| self.file.sync_data());
        written.map_err(StoreError::io(&self.path, "write the list of tables"))?;
        self.bytes += edit.len() as u64;
        Ok(())
    }
}

/// The first bytes of a file, or as many of them as there are.
fn read_front(file: File, bytes: u64) -> io::Result<Vec<u8>> {
    let mut log = Vec::new();
    let room = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
    log.try_reserve_exact(room).map_err(|_| io::ErrorKind::OutOfMemory)?;
    file.take(bytes).read_to_end(&mut log)?;
    Ok(log)
}
