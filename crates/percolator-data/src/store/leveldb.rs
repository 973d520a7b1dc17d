//! Writes a LevelDB: a table for each batch, and at the end the list of the tables.
//!
//! A database that is written once needs neither a log nor compactions. Batches whose keys do not overlap
//! those of any other table go to the last level, which LevelDB never compacts. Others go to level 0, where
//! the newest table counts; so records may come in any order, though key order makes the better database.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use percolator_leveldb::TableFile;
use percolator_leveldb::manifest::tagged;
use percolator_leveldb::table::{BuildError, Keys, TableBuilder, TableOptions};

use super::batch::Batch;
use super::manifest::Manifest;
use super::{Backend, Mark, StoreError, StoreWriter};

/// A block ends with this many bytes, as in Caffe's databases, unless others are wanted.
const BLOCK_BYTES: u32 = 64 << 10;

/// The memory with which a batch makes a table. Small tables make a slow database.
const TABLE_BYTES: usize = 64 << 20;

/// The number of the first table. Those below are left for the manifest.
const FIRST_TABLE: u64 = 5;

/// The last of LevelDB's levels.
const LAST_LEVEL: u32 = 6;

fn path(folder: &Path, table: &TableFile) -> PathBuf {
    folder.join(format!("{:06}.ldb", table.number))
}

/// Whether a key may lie in both tables.
fn meet(one: &TableFile, other: &TableFile) -> bool {
    one.first_user_key() <= other.last_user_key() && other.first_user_key() <= one.last_user_key()
}

/// Writes records to the tables of a LevelDB.
#[derive(Debug)]
pub(super) struct LevelDbWriter {
    folder: PathBuf,
    manifest: Manifest,
    /// In the order in which they were written.
    tables: Vec<TableFile>,
    /// The largest of all keys so far.
    largest: Vec<u8>,
    /// The sequence number of the last record.
    sequence: u64,
    batch: Batch,
    block_bytes: u32,
}

impl LevelDbWriter {
    pub(super) fn create(folder: &Path) -> Result<Self, StoreError> {
        fs::create_dir(folder).map_err(StoreError::io(folder, "create the folder"))?;
        Ok(Self::of(folder, Manifest::create(folder)?, Vec::new(), 0))
    }

    /// A table that was written after the mark is written again, under its number.
    pub(super) fn reopen(folder: &Path, manifest_bytes: u64) -> Result<Self, StoreError> {
        let (manifest, tables, sequence) = Manifest::reopen(folder, manifest_bytes)?;
        for table in &tables {
            let path = path(folder, table);
            let found = fs::metadata(&path).map_err(StoreError::io(&path, "find the table"))?.len();
            if found != table.bytes {
                let found = format!("it has {found} bytes, and had {} before", table.bytes);
                return Err(StoreError::Changed { path, found });
            }
        }
        Ok(Self::of(folder, manifest, tables, sequence))
    }

    fn of(folder: &Path, manifest: Manifest, tables: Vec<TableFile>, sequence: u64) -> Self {
        let largest = tables.iter().map(TableFile::last_user_key).max().unwrap_or_default().to_vec();
        let batch = Batch::default();
        let (folder, block_bytes) = (folder.to_owned(), BLOCK_BYTES);
        LevelDbWriter { folder, manifest, tables, largest, sequence, batch, block_bytes }
    }

    /// Ends blocks with this many bytes.
    pub(super) fn with_blocks(mut self, block_bytes: u32) -> Self {
        self.block_bytes = block_bytes;
        self
    }

    /// Writes the batch as a table.
    fn write(&mut self) -> Result<(), StoreError> {
        let number = self.tables.last().map_or(FIRST_TABLE, |last| last.number + 1);
        let mut table = TableFile { number, bytes: 0, smallest: Box::default(), largest: Box::default() };
        let path = path(&self.folder, &table);
        let failed = |action| StoreError::io(&path, action);
        let file = File::create(&path).map_err(failed("create the table"))?;
        let block_bytes = self.block_bytes;
        let options = TableOptions { block_bytes, keys: Keys::Tagged, ..TableOptions::default() };
        let (mut sequence, mut largest) = (self.sequence, Vec::new());
        let write = || -> Result<(), BuildError> {
            let mut builder = TableBuilder::new(BufWriter::new(&file), options);
            for (key, value) in self.batch.sorted() {
                sequence += 1;
                largest = tagged(key, sequence);
                builder.add(&largest, value)?;
                if table.smallest.is_empty() {
                    table.smallest = largest.as_slice().into();
                }
            }
            builder.finish()?.flush()?;
            Ok(file.sync_data()?)
        };
        write().map_err(|error| StoreError::Table { path: path.clone(), error })?;
        table.largest = largest.into();
        table.bytes = file.metadata().map_err(failed("find the table"))?.len();
        // A table of the last level must lie apart from all others: those of level 0 would hide it.
        let is_behind = self.tables.is_empty() || table.first_user_key() > &self.largest[..];
        let is_apart = is_behind || !self.tables.iter().any(|other| meet(other, &table));
        let level = if is_apart { LAST_LEVEL } else { 0 };
        self.manifest.add(level, &table, sequence)?;
        if table.last_user_key() > &self.largest[..] {
            self.largest = table.last_user_key().to_vec();
        }
        self.sequence = sequence;
        self.tables.push(table);
        Ok(())
    }
}

impl StoreWriter for LevelDbWriter {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        Backend::LevelDb
            .check_key(key)
            .map_err(|cause| StoreError::Key { path: self.folder.clone(), cause })?;
        self.batch.push(key, value);
        Ok(())
    }

    fn is_due(&self) -> bool {
        self.batch.bytes() >= TABLE_BYTES
    }

    fn commit(&mut self) -> Result<Mark, StoreError> {
        if !self.batch.is_empty() {
            let written = self.write();
            self.batch.clear();
            written?;
        }
        Ok(Mark::LevelDb { bytes: self.manifest.bytes })
    }

    fn finish(mut self: Box<Self>) -> Result<(), StoreError> {
        self.commit()?;
        // One that was written after the last mark, and then never again.
        let tables: HashSet<_> = self.tables.iter().map(|table| path(&self.folder, table)).collect();
        for entry in fs::read_dir(&self.folder).map_err(StoreError::io(&self.folder, "list the folder"))? {
            let path = entry.map_err(StoreError::io(&self.folder, "list the folder"))?.path();
            if path.extension().is_some_and(|ending| ending == "ldb") && !tables.contains(&path) {
                fs::remove_file(&path).map_err(StoreError::io(&path, "remove the file"))?;
            }
        }
        self.manifest.finish()
    }
}
