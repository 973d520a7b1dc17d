//! Where the files of a database are.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use super::meta::{self, Foreign};
use crate::source::{LmdbError, SourceError};
use percolator_files::file_id::FileId;
use percolator_files::input_file::open_without_waiting;
use percolator_files::what::Kind;

/// The name of the data file in a database's folder.
const DATA: &str = "data.mdb";

/// The files of a database.
#[derive(Debug)]
pub(super) struct Files {
    /// The path that the user gave.
    pub(super) given: PathBuf,
    /// The data file, canonical.
    pub(super) data: PathBuf,
    /// The lock file, which need not exist.
    pub(super) lock: PathBuf,
    /// The path for `mdb_env_open`, and whether that is the data file itself.
    pub(super) open: PathBuf,
    pub(super) open_is_file: bool,
}

/// The data file, open.
#[derive(Debug)]
pub(super) struct DataFile {
    pub(super) file: File,
    pub(super) id: FileId,
    pub(super) bytes: u64,
}

impl Files {
    pub(super) fn find(given: &Path) -> Result<Self, SourceError> {
        let io = |action| move |error| SourceError::io(given, action, &error);
        let not_there = |error: std::io::Error| {
            let known = (error.kind() == std::io::ErrorKind::NotFound).then(|| instead(given, given));
            known.flatten().unwrap_or_else(|| io("open the database")(error))
        };
        let is_folder = std::fs::metadata(given).map_err(not_there)?.is_dir();
        let path = if is_folder { given.join(DATA) } else { given.to_owned() };
        if is_folder && !path.try_exists().map_err(io("look for data.mdb"))? {
            return Err(instead(given, given).unwrap_or_else(|| missing_data(given)));
        }
        let data = path.canonicalize().map_err(io("resolve the path"))?;
        let given = given.to_owned();
        // A writer that is given the folder locks `lock.mdb` in it, even if `data.mdb` is a link that leads
        // elsewhere. A path to `data.mdb` must lead to the writer's lock file as well, so it opens the
        // folder, too.
        let folder = [&path, &data].into_iter().find_map(|path| folder_of(path));
        if let Some(folder) = folder {
            let open =
                folder.canonicalize().map_err(|error| SourceError::io(&given, "resolve the path", &error))?;
            let lock = open.join("lock.mdb");
            return Ok(Files { given, data, lock, open, open_is_file: false });
        }
        let mut lock = data.clone().into_os_string();
        lock.push("-lock");
        Ok(Files { given, lock: lock.into(), open: data.clone(), data, open_is_file: true })
    }

    /// Opens the data file. If it is not an LMDB, the error says what it is, before LMDB makes a lock file
    /// beside it.
    pub(super) fn open(&self) -> Result<DataFile, SourceError> {
        let io = |action| move |error| SourceError::io(&self.given, action, &error);
        let not_lmdb = |found| {
            let known = instead(&self.given, &self.data);
            known.unwrap_or_else(|| SourceError::Lmdb(LmdbError::NotLmdb { path: self.given.clone(), found }))
        };
        let mut file = open_without_waiting(&self.data).map_err(io("open the data file"))?;
        let metadata = file.metadata().map_err(io("look at the data file"))?;
        if !metadata.is_file() {
            return Err(not_lmdb("something that is not a regular file".to_owned()));
        }
        let bytes = metadata.len();
        let mut head = [0; meta::HEAD_BYTES];
        if bytes < head.len() as u64 {
            return Err(not_lmdb(format!("{bytes} bytes")));
        }
        file.read_exact(&mut head).map_err(io("read the data file"))?;
        meta::check_head(&head, bytes).map_err(|foreign| match foreign {
            Foreign::Other(found) => not_lmdb(found),
            Foreign::Cut { page_bytes } => SourceError::Lmdb(LmdbError::Truncated {
                path: self.given.clone(),
                found_bytes: bytes,
                needed_bytes: 2 * page_bytes,
                last_page: 1,
                page_bytes,
            }),
        })?;
        Ok(DataFile { file, id: FileId::of(&metadata), bytes })
    }
}

/// The folder of a data file, if the file is named like a folder's data file.
fn folder_of(data: &Path) -> Option<&Path> {
    let folder = data.parent().filter(|_| data.file_name().is_some_and(|name| name == DATA))?;
    Some(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
}

/// What the file, or the folder, at `at` is instead, if that is known.
fn instead(given: &Path, at: &Path) -> Option<SourceError> {
    SourceError::instead(at, "an LMDB", &[Kind::Lmdb]).map(|error| match error {
        SourceError::Instead { wanted, thing, .. } => {
            SourceError::Instead { path: given.to_owned(), wanted, thing }
        }
        other => other,
    })
}

fn missing_data(folder: &Path) -> SourceError {
    let hint = "; give the folder that convert_imageset or a similar tool wrote";
    SourceError::NotADatabase { path: folder.to_owned(), kind: "an LMDB database", missing: "data.mdb", hint }
}
