//! Writes an LMDB.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lmdb::{Database, DatabaseFlags, Environment, EnvironmentFlags, Transaction as _, WriteFlags};
use serde::{Deserialize, Serialize};

use super::batch::Batch;
use super::{Backend, Mark, StoreError, StoreWriter};

/// The first size of the map. It is doubled whenever the records fill it.
const MAP_BYTES: usize = 16 << 20;

/// When a transaction is due: after as many records as Caffe commits together, or this many bytes. Larger
/// ones have left the processor's caches before LMDB copies them to the file: 2 GB in transactions of 64 MiB
/// took twice as long.
const RECORDS_MAX: usize = 1000;
const BYTES_MAX: usize = 4 << 20;

/// What an LMDB had at a commit. None of it becomes less, whatever is written after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LmdbMark {
    /// The number of records.
    records: u64,
    /// The number of the last transaction.
    transaction: u64,
    /// The bytes of its file.
    bytes: u64,
}

/// The bytes of a database's file.
fn data_bytes(folder: &Path) -> Result<u64, StoreError> {
    let data = folder.join("data.mdb");
    Ok(fs::metadata(&data).map_err(StoreError::io(&data, "look at the file"))?.len())
}

/// Writes records to the unnamed database of an environment, as Caffe does.
///
/// The map is grown as needed: if it is full, the transaction is aborted, the map doubled, and the batch
/// written again.
#[derive(Debug)]
pub(super) struct LmdbWriter {
    folder: PathBuf,
    environment: Environment,
    database: Database,
    map_bytes: usize,
    batch: Batch,
}

impl LmdbWriter {
    pub(super) fn create(folder: &Path) -> Result<Self, StoreError> {
        fs::create_dir(folder).map_err(StoreError::io(folder, "create the folder"))?;
        Self::open(folder)
    }

    /// Records after the mark may be there. They are written again, with the same keys.
    pub(super) fn reopen(folder: &Path, mark: LmdbMark) -> Result<Self, StoreError> {
        let changed = |found| Err(StoreError::Changed { path: folder.to_owned(), found });
        // liblmdb maps a file that was cut, and makes an empty one a database.
        match data_bytes(folder) {
            Ok(found) if found >= mark.bytes => {}
            Ok(found) => {
                return changed(format!("its data.mdb has {found} bytes, and had {} before", mark.bytes));
            }
            Err(StoreError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                return changed("its data.mdb is gone".to_owned());
            }
            Err(error) => return Err(error),
        }
        let writer = Self::open(folder)?;
        let LmdbMark { records, transaction, .. } = writer.mark()?;
        if records < mark.records || transaction < mark.transaction {
            return changed(format!(
                "it has {records} records and {transaction} transactions, and had {} and {} before",
                mark.records, mark.transaction
            ));
        }
        Ok(writer)
    }

    /// What the database has now.
    fn mark(&self) -> Result<LmdbMark, StoreError> {
        let found = self.environment.stat().and_then(|stat| Ok((stat, self.environment.info()?)));
        let (stat, info) = found.map_err(StoreError::lmdb(&self.folder, "looking at the database"))?;
        Ok(LmdbMark {
            records: stat.entries() as u64,
            transaction: info.last_txnid() as u64,
            bytes: data_bytes(&self.folder)?,
        })
    }

    fn open(folder: &Path) -> Result<Self, StoreError> {
        let failed = |call| StoreError::lmdb(folder, call);
        let written = fs::metadata(folder.join("data.mdb")).map_or(0, |found| found.len());
        let map_bytes = usize::try_from(written).unwrap_or(usize::MAX).max(MAP_BYTES).next_multiple_of(4096);
        // No other process uses the folder before it has its name.
        let environment = Environment::new()
            .set_flags(EnvironmentFlags::NO_LOCK)
            .set_map_size(map_bytes)
            .open(folder)
            .map_err(failed("opening the database"))?;
        let database =
            environment.create_db(None, DatabaseFlags::empty()).map_err(failed("opening the database"))?;
        Ok(LmdbWriter {
            folder: folder.to_owned(),
            environment,
            database,
            map_bytes,
            batch: Batch::default(),
        })
    }

    /// Writes the batch, and grows the map until it has room for it.
    fn write(&mut self) -> Result<(), StoreError> {
        while !self.batch.is_empty() {
            match self.write_in_one_transaction() {
                Ok(()) => self.batch.clear(),
                Err(lmdb::Error::MapFull) => {
                    let room = self.map_bytes.saturating_mul(2);
                    self.environment
                        .set_map_size(room)
                        .map_err(StoreError::lmdb(&self.folder, "growing the map"))?;
                    self.map_bytes = room;
                }
                Err(error) => {
                    self.batch.clear();
                    return Err(StoreError::lmdb(&self.folder, "writing records")(error));
                }
            }
        }
        Ok(())
    }

    fn write_in_one_transaction(&self) -> lmdb::Result<()> {
        let mut transaction = self.environment.begin_rw_txn()?;
        for (key, value) in self.batch.records() {
            transaction.put(self.database, &key, &value, WriteFlags::empty())?;
        }
        transaction.commit()
    }
}

impl StoreWriter for LmdbWriter {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        Backend::Lmdb.check_key(key).map_err(|cause| StoreError::Key { path: self.folder.clone(), cause })?;
        self.batch.push(key, value);
        Ok(())
    }

    fn is_due(&self) -> bool {
        self.batch.len() >= RECORDS_MAX || self.batch.bytes() >= BYTES_MAX
    }

    fn commit(&mut self) -> Result<Mark, StoreError> {
        self.write()?;
        Ok(Mark::Lmdb(self.mark()?))
    }

    fn finish(mut self: Box<Self>) -> Result<(), StoreError> {
        self.commit()?;
        self.environment.sync(true).map_err(StoreError::lmdb(&self.folder, "syncing the database"))
    }
}
