//! A LevelDB that is open: what its cursors share. Nothing in it changes, but for tables that get mapped.

use std::path::PathBuf;

use super::LogCut;
use super::edit::{LEVELS, TableFile};
use super::folder::{Folder, TableName};
use super::map::{Lending, TableBytes};
use super::memtable::Memtable;
use crate::source::Identity;
use crate::source::SourceError;

/// A table of a level.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) file: TableFile,
    pub(super) name: TableName,
    /// Its number in the store; tables past the store's last one are mapped by each walk anew.
    pub(super) slot: usize,
}

#[derive(Debug)]
pub(super) struct Database {
    pub(super) folder: Folder,
    /// Level 0 from the newest table on, the others in the order of their keys.
    pub(super) levels: [Vec<Table>; LEVELS],
    pub(super) last_sequence: u64,
    pub(super) memtable: Memtable,
    pub(super) lending: Lending,
    pub(super) cuts: Vec<LogCut>,
    /// The MANIFEST and the logs that it was opened from.
    pub(super) opened_from: Identity,
}

impl Database {
    /// How many records there are, if all lie in the logs.
    pub(super) fn records(&self) -> Option<u64> {
        self.levels.iter().all(Vec::is_empty).then_some(self.memtable.len() as u64)
    }

    /// What is held for as long as the database is open, beside files that are mapped.
    pub(super) fn held_bytes(&self) -> usize {
        let keys = |table: &Table| table.file.smallest.len() + table.file.largest.len();
        let level = |level: &Vec<Table>| {
            level.capacity() * size_of::<Table>() + level.iter().map(keys).sum::<usize>()
        };
        self.memtable.held_bytes()
            + self.lending.store().held_bytes()
            + self.levels.iter().map(level).sum::<usize>()
            + self.cuts.capacity() * size_of::<LogCut>()
    }

    pub(super) fn tables(&self, level: usize) -> &[Table] {
        &self.levels[level]
    }

    pub(super) fn table_path(&self, level: usize, table: usize) -> PathBuf {
        let table = &self.levels[level][table];
        self.folder.table(table.file.number, table.name)
    }

    /// Has the system read the first bytes of a table, so many at the most. Where that cannot be, whoever comes there does.
    pub(super) fn will_need(&self, level: usize, table: usize, bytes_max: u64) {
        if let Ok(TableBytes::Kept { store, table }) = self.open_table(level, table) {
            store.will_need(table, bytes_max);
        }
    }

    /// Which state of which files it is.
    pub(super) fn identity(&self) -> Identity {
        let identity = self.opened_from.clone().with("last write", self.last_sequence);
        self.levels.iter().flatten().fold(identity, |identity, Table { file, .. }| {
            identity.with("table", format_args!("{}: {} bytes", file.number, file.bytes))
        })
    }

    /// The level of the table of this number in the store, and its number there.
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

    /// The bytes of a table, mapped.
    pub(super) fn open_table(&self, level: usize, table: usize) -> Result<TableBytes, SourceError> {
        let Table { file, slot, .. } = &self.levels[level][table];
        self.lending.open_table(*slot, || self.table_path(level, table), file.bytes)
    }

    /// How many levels there are.
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
