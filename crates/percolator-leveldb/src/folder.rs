//! The files of a LevelDB, located by name.

use std::fs::{File, Metadata};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use percolator_files::what::{Kind, instead_of};

use crate::error::LevelDbError;

const CURRENT: &str = "CURRENT";
const MANIFEST: &str = "MANIFEST-";
/// More bytes than a CURRENT that names a MANIFEST can have.
const CURRENT_BYTES_MAX: u64 = 64;

/// A folder that contains a CURRENT.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(crate) fn find(path: &Path) -> Result<Self, LevelDbError> {
        let not_one = |hint| LevelDbError::NotADatabase { path: path.to_owned(), hint };
        // A RocksDB has a CURRENT, too, and an IDENTITY.
        if matches!(path.join(CURRENT).try_exists(), Ok(true)) && !path.join("IDENTITY").exists() {
            return Ok(Folder { path: path.to_owned() });
        }
        if let Some(thing) = instead_of(&[Kind::LevelDb], path) {
            return Err(LevelDbError::Instead { path: path.to_owned(), thing: thing.to_string() });
        }
        let io = |action| move |error: io::Error| LevelDbError::io(path, action, &error);
        if !std::fs::metadata(path).map_err(io("open the database"))?.is_dir() {
            return Err(not_one("; it is not a folder: a LevelDB is the folder that contains CURRENT"));
        }
        if path.join(CURRENT).try_exists().map_err(io("look for CURRENT"))? {
            return Ok(Folder { path: path.to_owned() });
        }
        Err(not_one("; give the folder that convert_imageset -backend=leveldb or a similar tool wrote"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The MANIFEST that CURRENT names.
    pub(crate) fn manifest(&self) -> Result<PathBuf, LevelDbError> {
        let current = self.path.join(CURRENT);
        let io = |action| move |error: io::Error| (action, error);
        let read = || {
            let mut found = Vec::new();
            let file = File::open(&current).map_err(io("open the file"))?;
            file.take(CURRENT_BYTES_MAX).read_to_end(&mut found).map_err(io("read the file"))?;
            Ok(found)
        };
        let failed = |(action, error): (&'static str, io::Error)| LevelDbError::io(&current, action, &error);
        if !std::fs::metadata(&current).map_err(io("look at the file")).map_err(failed)?.is_file() {
            return Err(LevelDbError::NoFile { file: current });
        }
        let found = read().map_err(failed)?;
        let text = String::from_utf8_lossy(&found);
        let name = text.strip_suffix('\n').filter(|name| {
            let digits = name.strip_prefix(MANIFEST).unwrap_or_default();
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        });
        let Some(name) = name else {
            return Err(LevelDbError::Current { found: format!("{text:?}"), file: current });
        };
        let manifest = self.path.join(name);
        match manifest.try_exists() {
            Ok(true) => Ok(manifest),
            Ok(false) => {
                let what = "the list of the database's files";
                Err(LevelDbError::Missing { file: manifest, what, named_by: current })
            }
            Err(error) => Err(LevelDbError::io(&manifest, "look for the MANIFEST", &error)),
        }
    }

    /// Returns what changes when a writer is at work: the MANIFEST's path and length.
    pub(crate) fn stamp(&self) -> Result<(PathBuf, u64), LevelDbError> {
        let manifest = self.manifest()?;
        let metadata = std::fs::metadata(&manifest);
        let bytes = metadata.map_err(|error| LevelDbError::io(&manifest, "look at the file", &error))?.len();
        Ok((manifest, bytes))
    }

    /// Returns the numbers of the logs, in the order they were written.
    pub(crate) fn logs(&self) -> Result<Vec<u64>, LevelDbError> {
        let io = |error: io::Error| LevelDbError::io(&self.path, "list the files", &error);
        let mut logs = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".log")?.parse().ok());
            // LevelDB writes numbers in this spelling only.
            logs.extend(number.filter(|&number| self.log(number).file_name() == Some(&name)));
        }
        logs.sort_unstable();
        Ok(logs)
    }

    /// Returns the path of a log.
    pub(crate) fn log(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:06}.log"))
    }

    /// Returns the path of a table; its extension depends on the LevelDB that wrote it.
    pub(crate) fn table(&self, number: u64, name: TableName) -> PathBuf {
        let extension = match name {
            TableName::Ldb => "ldb",
            TableName::Sst => "sst",
        };
        self.path.join(format!("{number:06}.{extension}"))
    }

    /// Returns a table's extension and metadata; `None` if there is no such table.
    pub(crate) fn find_table(&self, number: u64) -> Result<Option<(TableName, Metadata)>, LevelDbError> {
        for name in [TableName::Ldb, TableName::Sst] {
            let path = self.table(number, name);
            match std::fs::metadata(&path) {
                Ok(metadata) => return Ok(Some((name, metadata))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(LevelDbError::io(&path, "look at the file", &error)),
            }
        }
        Ok(None)
    }
}

/// The extension of a table's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableName {
    Ldb,
    /// Written by LevelDB before 1.14 (2013).
    Sst,
}
