//! An open LevelDB: what its cursors share. Nothing in it changes, except that tables get mapped.
//!
//! A table is mapped, or the cursor that enters it reads all of it and releases it on leaving.

use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::LogCut;
use super::edit::{LEVELS, TableFile};
use super::error::LevelDbError;
use super::folder::{Folder, TableName};
use super::map::{Lending, TableBytes};
use super::memtable::Memtable;
use super::opened::{OpenTable, OpenTables};
use crate::source::Identity;
use crate::source::SourceError;
use crate::source::file_id::FileState;
use percolator_files::Reading;
use percolator_files::shown;

/// A table of a level.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) file: TableFile,
    pub(super) name: TableName,
    /// The state of its file when the database was opened.
    pub(super) state: FileState,
    /// Its number in the store. Each cursor maps tables past the store's last one for itself.
    pub(super) slot: usize,
}

#[derive(Debug)]
pub(super) struct Database {
    pub(super) folder: Folder,
    /// Level 0 from the newest table on, the others in key order.
    pub(super) levels: [Vec<Table>; LEVELS],
    pub(super) last_sequence: u64,
    pub(super) memtable: Memtable,
    pub(super) lending: Lending,
    pub(super) cuts: Vec<LogCut>,
    /// What the logs lack, if that was allowed.
    pub(super) gaps: Vec<LevelDbError>,
    /// The MANIFEST and the logs that it was opened from.
    pub(super) opened_from: Identity,
    pub(super) reading: Reading,
    /// The tables that stay open, if tables are read.
    pub(super) open_tables: OpenTables,
}

impl Database {
    /// Returns how many records there are, if all are in the logs.
    pub(super) fn records(&self) -> Option<u64> {
        self.levels.iter().all(Vec::is_empty).then_some(self.memtable.len() as u64)
    }

    /// Returns how many bytes are held as long as the database is open, besides mapped files.
    pub(super) fn held_bytes(&self) -> usize {
        let keys = |table: &Table| table.file.smallest.len() + table.file.largest.len();
        let level = |level: &Vec<Table>| {
            level.capacity() * size_of::<Table>() + level.iter().map(keys).sum::<usize>()
        };
        self.memtable.held_bytes()
            + self.lending.store().held_bytes()
            + self.open_tables.held_bytes()
            + self.levels.iter().map(level).sum::<usize>()
            + self.cuts.capacity() * size_of::<LogCut>()
            + self.gaps.capacity() * size_of::<LevelDbError>()
    }

    /// Returns the greatest key in any table or log, deleted or not.
    pub(super) fn greatest_key(&self) -> Option<&[u8]> {
        let of_tables = self.levels.iter().flatten().map(|table| table.file.last_user_key());
        let last = self.memtable.len().checked_sub(1).and_then(|last| self.memtable.get(last));
        of_tables.chain(last.map(|write| self.lending.store().bytes(write.key))).max()
    }

    pub(super) fn tables(&self, level: usize) -> &[Table] {
        &self.levels[level]
    }

    pub(super) fn table_path(&self, level: usize, table: usize) -> PathBuf {
        let table = &self.levels[level][table];
        self.folder.table(table.file.number, table.name)
    }

    /// Asks the kernel to read the first bytes of a table, at most `bytes_max`. If that fails, the cursor
    /// that gets there reads them.
    pub(super) fn will_need(&self, level: usize, table: usize, bytes_max: u64) {
        match self.reading {
            Reading::Mapped => {
                if let Ok(TableBytes::Kept { store, table }) = self.open_table(level, table) {
                    store.will_need(table, bytes_max);
                }
            }
            Reading::Read => {
                let Table { file, slot, .. } = &self.levels[level][table];
                if let Some(open) = self.open_tables.get(*slot) {
                    open.will_need(bytes_max.min(file.bytes));
                }
            }
        }
    }

    /// Identifies the state of the files that the database consists of.
    pub(super) fn identity(&self) -> Identity {
        let identity = self.opened_from.clone().with("last write", self.last_sequence);
        self.levels.iter().flatten().fold(identity, |identity, Table { file, .. }| {
            identity.with("table", format_args!("{}: {} bytes", file.number, file.bytes))
        })
    }

    /// Returns the level of the table with this number in the store, and its number there.
    pub(super) fn table_at(&self, slot: usize) -> Option<(usize, usize)> {
        let mut table = slot;
        for (level, tables) in self.levels.iter().enumerate() {
            match tables.get(table) {
                Some(found) => return (found.slot == slot).then_some((level, table)),
                None => table -= tables.len(),
            }
        }
        None
    }

    /// Returns the bytes of a table, mapped or read.
    pub(super) fn open_table(&self, level: usize, table: usize) -> Result<TableBytes, SourceError> {
        let Table { file, slot, state, .. } = &self.levels[level][table];
        if self.reading == Reading::Read {
            let (open, path) = (self.open_file(level, table)?, self.table_path(level, table));
            return open.read(&path, file.bytes).map(TableBytes::Own);
        }
        let opened = self.lending.open_table(*slot, || self.table_path(level, table), *state);
        opened.map_err(|error| match error {
            SourceError::Io { kind: io::ErrorKind::NotFound, .. } => self.went_away(level, table),
            error => error,
        })
    }

    /// Returns an open table, to be read.
    pub(super) fn open_file(&self, level: usize, table: usize) -> Result<Arc<OpenTable>, SourceError> {
        let Table { slot, state, .. } = &self.levels[level][table];
        if let Some(open) = self.open_tables.get(*slot) {
            return Ok(open.clone());
        }
        match OpenTable::open(&self.table_path(level, table), *state) {
            Ok(open) => Ok(Arc::new(open)),
            Err(SourceError::Io { kind: io::ErrorKind::NotFound, .. }) => Err(self.went_away(level, table)),
            Err(error) => Err(error),
        }
    }

    /// Returns how many bytes a cursor over these tables of a level, one after the other, holds of them at
    /// most, besides maps.
    pub(super) fn read_bytes_max(&self, level: usize, tables: Range<usize>) -> usize {
        let longest = self.levels[level][tables].iter().map(|table| table.file.bytes).max();
        match self.reading {
            Reading::Mapped => 0,
            Reading::Read => usize::try_from(longest.unwrap_or_default()).unwrap_or(usize::MAX),
        }
    }

    /// Maps every table that stays mapped, or opens those that stay open, at most `open_max`. Whatever a
    /// writer deletes after that can still be read.
    pub(super) fn hold_tables(&mut self, open_max: usize) -> Result<(), SourceError> {
        let of_level = |level: usize| (0..self.levels[level].len()).map(move |table| (level, table));
        let tables = (0..LEVELS).flat_map(of_level);
        if self.reading == Reading::Read {
            // In slot order: `OpenTables` is indexed by slot.
            for (level, table) in tables.take(open_max) {
                let (path, state) = (self.table_path(level, table), self.levels[level][table].state);
                if !self.open_tables.keep(&path, state)? {
                    break;
                }
            }
            return Ok(());
        }
        let kept = |&(level, table): &(usize, usize)| self.lending.keeps(self.levels[level][table].slot);
        for (level, table) in tables.filter(kept) {
            let Table { slot, state, .. } = &self.levels[level][table];
            self.lending.open_table(*slot, || self.table_path(level, table), *state)?;
        }
        Ok(())
    }

    /// Checks that a table still has its length, for a cursor that is about to enter it: reading a map past
    /// the end of its file ends the process with a signal. The map of a deleted table stays readable.
    pub(super) fn check_length(&self, level: usize, table: usize) -> Result<(), SourceError> {
        let Table { slot, state, .. } = &self.levels[level][table];
        self.lending.check_length(*slot, *state)
    }

    /// Returns the error for a table that was there when the database was opened, and is gone.
    fn went_away(&self, level: usize, table: usize) -> SourceError {
        let (path, file) = (self.folder.path().to_owned(), self.table_path(level, table));
        let error = format!("{} is no longer there", shown::path(&file));
        LevelDbError::BeingWritten { path, error }.into()
    }

    /// Returns how many levels there are.
    pub(super) fn levels(&self) -> usize {
        self.levels.len()
    }

    pub(super) fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    pub(super) fn memtable(&self) -> &Memtable {
        &self.memtable
    }

    pub(super) fn lending(&self) -> &Lending {
        &self.lending
    }
}
