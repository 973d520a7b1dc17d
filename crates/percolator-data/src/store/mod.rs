//! Where records are written: an LMDB, a LevelDB or a TFRecord file.
//!
//! ```text
//! place     where an output will be, and the folder beside it in which it is being written (partial)
//!   v
//! writer    records in, in batches: lmdb, leveldb (its manifest), tfrecord
//!   v
//! replace   how it gets its name when another has it
//! ```
//!
//! - An output gets its name once it is whole. Until then it is in a folder of that name with
//!   `.percolator-converting` appended (`place`).
//! - A writer puts a batch on the disk at each [`commit`](StoreWriter::commit), and says how far it is (a
//!   [`Mark`]). After the process was killed at any moment, a writer that is [reopened](Backend::reopen) with
//!   a mark goes on from there: what was written after it is written again, or dropped.
//! - A writer that failed is dropped; the last mark stays valid, even if the disk is full.

mod batch;
mod error;
mod leveldb;
mod lmdb;
mod manifest;
mod new_store;
mod partial;
mod place;
mod replace;
mod tfrecord;

use std::fmt;
use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::path::Path;

use serde::{Deserialize, Serialize};

pub use self::error::StoreError;
pub use self::lmdb::LmdbMark;
pub use self::new_store::NewStore;
pub(crate) use self::partial::{LABELS, SKIPPED, STATE};
pub(crate) use self::place::{Earlier, Output, Place, followed, with_ending};
#[doc(inline)]
pub use percolator_files::whole_file::Existing;

/// The longest key that an LMDB has, in bytes.
pub const LMDB_KEY_BYTES_MAX: usize = 511;

/// The longest key that this library reads from a LevelDB, in bytes.
pub const LEVELDB_KEY_BYTES_MAX: usize = 8 << 10;

/// The kind of a store.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// A folder with an LMDB.
    #[default]
    Lmdb,
    /// A folder with a LevelDB.
    LevelDb,
    /// A TFRecord file, not compressed. It keeps no keys.
    TfRecord,
}

impl Backend {
    /// Its name, in one word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Backend::Lmdb => "lmdb",
            Backend::LevelDb => "leveldb",
            Backend::TfRecord => "tfrecord",
        }
    }

    /// Starts a store at a path where nothing is.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if it cannot be created.
    pub fn create(self, path: &Path) -> Result<Box<dyn StoreWriter>, StoreError> {
        Ok(match self {
            Backend::Lmdb => Box::new(lmdb::LmdbWriter::create(path)?),
            Backend::LevelDb => Box::new(leveldb::LevelDbWriter::create(path)?),
            Backend::TfRecord => Box::new(tfrecord::TfRecordStore::create(path)?),
        })
    }

    /// Goes on with a store whose writer did not finish, from a mark that it gave.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if it cannot be opened, or is not as it was at the mark.
    pub fn reopen(self, path: &Path, mark: &Mark) -> Result<Box<dyn StoreWriter>, StoreError> {
        Ok(match (self, mark) {
            (Backend::Lmdb, Mark::Lmdb(mark)) => Box::new(lmdb::LmdbWriter::reopen(path, *mark)?),
            (Backend::LevelDb, Mark::LevelDb { bytes }) => {
                Box::new(leveldb::LevelDbWriter::reopen(path, *bytes)?)
            }
            (Backend::TfRecord, Mark::TfRecord { bytes }) => {
                Box::new(tfrecord::TfRecordStore::reopen(path, *bytes)?)
            }
            _ => {
                let found = format!("the mark is not one of a {self}");
                return Err(StoreError::Changed { path: path.to_owned(), found });
            }
        })
    }

    /// Checks that a store can have a record with this key.
    ///
    /// # Errors
    ///
    /// What is wrong with the key.
    pub fn check_key(self, key: &[u8]) -> Result<(), String> {
        let allowed = match self {
            Backend::Lmdb => 1..=LMDB_KEY_BYTES_MAX,
            Backend::LevelDb => 0..=LEVELDB_KEY_BYTES_MAX,
            Backend::TfRecord => return Ok(()),
        };
        match allowed.contains(&key.len()) {
            true => Ok(()),
            false => Err(format!(
                "its key has {} bytes, and a key of {} {self} has {} to {}: use other names, or another kind \
                 of store",
                key.len(),
                if self == Backend::Lmdb { "an" } else { "a" },
                allowed.start(),
                allowed.end()
            )),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Lmdb => "LMDB",
            Backend::LevelDb => "LevelDB",
            Backend::TfRecord => "TFRecord file",
        })
    }
}

/// Cuts a file to the length that it had before, and goes to its end: what was written later is dropped.
pub(crate) fn shortened(mut file: File, path: &Path, bytes: u64) -> Result<File, StoreError> {
    let failed = |action| StoreError::io(path, action);
    let found = file.metadata().map_err(failed("open the file"))?.len();
    if found < bytes {
        let found = format!("it has {found} bytes, and had {bytes} before");
        return Err(StoreError::Changed { path: path.to_owned(), found });
    }
    file.set_len(bytes).map_err(failed("shorten the file"))?;
    file.seek(SeekFrom::End(0)).map_err(failed("open the file"))?;
    Ok(file)
}

/// How far a store is written, for [`Backend::reopen`].
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Mark {
    /// What an LMDB had. It may have more, which is written again.
    Lmdb(LmdbMark),
    /// The length of a LevelDB's list of tables, its MANIFEST.
    #[serde(rename_all = "lowercase")]
    LevelDb {
        /// The bytes of the tables so far, with what the list starts with.
        bytes: u64,
    },
    /// The length of a TFRecord file.
    #[serde(rename_all = "lowercase")]
    TfRecord {
        /// The bytes of the records so far.
        bytes: u64,
    },
}

/// Writes records to a store.
///
/// The store is whole once it is [finished](Self::finish), and can then be opened as a
/// [source](percolator::source). What is dropped before that is not.
pub trait StoreWriter: Send + fmt::Debug {
    /// Adds a record. An LMDB and a LevelDB keep the last record of each key; a TFRecord file keeps all
    /// records, without their keys.
    ///
    /// The record is written by the next [`commit`](Self::commit).
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if the store cannot have the key; the store is as before. [`StoreError`] if the
    /// record cannot be written.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError>;

    /// Whether so much is waiting that it should be committed: 64 MiB, or of an LMDB 4 MiB or
    /// 1000 records.
    fn is_due(&self) -> bool;

    /// Puts all records so far on the disk.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if that fails. The records since the last commit are then lost.
    fn commit(&mut self) -> Result<Mark, StoreError>;

    /// Commits, and completes the store.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    fn finish(self: Box<Self>) -> Result<(), StoreError>;
}

#[cfg(test)]
mod tests;
