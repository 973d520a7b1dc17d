//! An open LevelDB: what its cursors share. Nothing in it changes, except that tables get mapped.
//!
//! A table is mapped, or the cursor that enters it reads all of it and releases it on leaving.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use percolator_files::file_id::FileState;
use percolator_files::{Reading, shown};

use crate::batch::Write;
use crate::cut::LogCut;
use crate::edit::{LEVELS, TableFile};
use crate::entry::{Entry, Home};
use crate::error::LevelDbError;
use crate::folder::{Folder, TableName};
use crate::map::{Store, TableBytes};
use crate::memtable::Memtable;
use crate::merge::MergeCursor;
use crate::opened::{OpenTable, OpenTables};
use crate::options::Options;
use crate::recovery;
use crate::table::Verify;

/// A table of a level.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) file: TableFile,
    pub(crate) name: TableName,
    /// The state of its file when the database was opened.
    pub(crate) state: FileState,
    /// Its number in the store. Each cursor maps tables past the store's last one for itself.
    pub(crate) slot: usize,
}

/// A fact that identifies the state of a database's files: its name, and what is known.
pub type Fact = (&'static str, String);

/// A LevelDB opened for reading. Nothing on disk is changed, and no lock is taken.
///
/// Its cursors share it. A database must not be written to while it is open, except by LevelDB, which adds
/// files and deletes them: cursors return the database as it was when it was opened.
#[derive(Debug)]
pub struct Database {
    pub(crate) folder: Folder,
    /// Level 0 from the newest table on, the others in key order.
    pub(crate) levels: [Vec<Table>; LEVELS],
    pub(crate) last_sequence: u64,
    pub(crate) memtable: Memtable,
    pub(crate) store: Arc<Store>,
    pub(crate) cuts: Vec<LogCut>,
    /// What the logs lack, if that was allowed.
    pub(crate) gaps: Vec<LevelDbError>,
    /// The MANIFEST and the logs that it was opened from.
    pub(crate) opened_from: Vec<Fact>,
    pub(crate) reading: Reading,
    /// The tables that stay open, if tables are read.
    pub(crate) open_tables: OpenTables,
}

impl Database {
    /// Opens a database: the folder that holds CURRENT.
    ///
    /// Opening reads the logs and maps the tables, or opens them; cursors read the tables.
    ///
    /// **A file that is truncated while it is mapped, or that the disk cannot read, ends the process** with
    /// SIGBUS, because the kernel has no other way to report it. If files are read instead
    /// ([`Options::access`]), every failure is an error.
    ///
    /// # Errors
    ///
    /// [`LevelDbError`] if there is no such database, if one of its files is missing or has the wrong length,
    /// if its MANIFEST or a log is damaged, or if its logs lack writes.
    pub fn open(path: &Path, options: &Options) -> Result<Arc<Self>, LevelDbError> {
        let database = recovery::open(path, options)?;
        tracing::debug!(
            path = %shown::path(path),
            tables = database.levels.iter().map(Vec::len).sum::<usize>(),
            keys_in_logs = database.memtable.len(),
            "a LevelDB is open"
        );
        Ok(Arc::new(database))
    }

    /// Returns a walk over the keys from `start` (inclusive) to `end` (exclusive); `None` leaves the end
    /// open. It verifies every block that it enters.
    #[must_use]
    pub fn range(self: &Arc<Self>, start: &[u8], end: Option<&[u8]>) -> MergeCursor {
        MergeCursor::new(self, start, end, Verify::AtOnce, || None)
    }

    /// Returns the cuts of the logs and of the MANIFEST, as after a crash, and what each dropped. Usually
    /// there are none.
    #[must_use]
    pub fn cuts(&self) -> &[LogCut] {
        &self.cuts
    }

    /// Returns what the logs lack if that was allowed: up to 100 of the errors that would otherwise have been
    /// returned. Usually there are none.
    #[must_use]
    pub fn gaps(&self) -> &[LevelDbError] {
        &self.gaps
    }

    /// Returns the number of the last write.
    #[inline]
    #[must_use]
    pub fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// Returns where the bytes of [entries](Entry) stay.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Returns how many records there are, if all are in the logs.
    #[must_use]
    pub fn records(&self) -> Option<u64> {
        self.levels.iter().all(Vec::is_empty).then_some(self.memtable.len() as u64)
    }

    /// Returns how many bytes are held as long as the database is open, besides mapped files.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let keys = |table: &Table| table.file.smallest.len() + table.file.largest.len();
        let level = |level: &Vec<Table>| {
            level.capacity() * size_of::<Table>() + level.iter().map(keys).sum::<usize>()
        };
        self.memtable.held_bytes()
            + self.store.held_bytes()
            + self.open_tables.held_bytes()
            + self.levels.iter().map(level).sum::<usize>()
            + self.cuts.capacity() * size_of::<LogCut>()
            + self.gaps.capacity() * size_of::<LevelDbError>()
    }

    /// Returns the greatest key in any table or log, deleted or not.
    #[must_use]
    pub fn greatest_key(&self) -> Option<&[u8]> {
        let of_tables = self.levels.iter().flatten().map(|table| table.file.last_user_key());
        let last = self.memtable.len().checked_sub(1).and_then(|last| self.memtable.get(last));
        of_tables.chain(last.map(|write| self.store.bytes(write.key))).max()
    }

    pub(crate) fn tables(&self, level: usize) -> &[Table] {
        &self.levels[level]
    }

    pub(crate) fn table_path(&self, level: usize, table: usize) -> PathBuf {
        let table = &self.levels[level][table];
        self.folder.table(table.file.number, table.name)
    }

    /// Asks the kernel to read the first bytes of a table, at most `bytes_max`. If that fails, the cursor
    /// that gets there reads them.
    pub(crate) fn will_need(&self, level: usize, table: usize, bytes_max: u64) {
        match self.reading {
            Reading::Mapped => {
                if let Ok(TableBytes::Kept(table)) = self.open_table(level, table) {
                    table.will_need_front(usize::try_from(bytes_max).unwrap_or(usize::MAX));
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

    /// Returns the facts that tell the state of the files that the database consists of.
    pub fn facts(&self) -> impl Iterator<Item = Fact> {
        let tables = self.levels.iter().flatten();
        let table = |Table { file, .. }: &Table| ("table", format!("{}: {} bytes", file.number, file.bytes));
        let last_write = ("last write", self.last_sequence.to_string());
        self.opened_from.iter().cloned().chain([last_write]).chain(tables.map(table))
    }

    /// Returns the level of the table with this number in the store, and its number there.
    pub(crate) fn table_at(&self, slot: usize) -> Option<(usize, usize)> {
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
    pub(crate) fn open_table(&self, level: usize, table: usize) -> Result<TableBytes, LevelDbError> {
        let Table { file, slot, state, .. } = &self.levels[level][table];
        if self.reading == Reading::Read {
            let (open, path) = (self.open_file(level, table)?, self.table_path(level, table));
            return open.read(&path, file.bytes).map(TableBytes::Own);
        }
        let opened = self.store.open_table(*slot, || self.table_path(level, table), *state);
        opened.map_err(|error| match error {
            LevelDbError::Io { kind: io::ErrorKind::NotFound, .. } => self.went_away(level, table),
            error => error,
        })
    }

    /// Returns an open table, to be read.
    pub(crate) fn open_file(&self, level: usize, table: usize) -> Result<Arc<OpenTable>, LevelDbError> {
        let Table { slot, state, .. } = &self.levels[level][table];
        if let Some(open) = self.open_tables.get(*slot) {
            return Ok(open.clone());
        }
        match OpenTable::open(&self.table_path(level, table), *state) {
            Ok(open) => Ok(Arc::new(open)),
            Err(LevelDbError::Io { kind: io::ErrorKind::NotFound, .. }) => Err(self.went_away(level, table)),
            Err(error) => Err(error),
        }
    }

    /// Returns how many bytes a cursor over these tables of a level, one after the other, holds of them at
    /// most, besides maps.
    pub(crate) fn read_bytes_max(&self, level: usize, tables: Range<usize>) -> usize {
        let longest = self.levels[level][tables].iter().map(|table| table.file.bytes).max();
        match self.reading {
            Reading::Mapped => 0,
            Reading::Read => usize::try_from(longest.unwrap_or_default()).unwrap_or(usize::MAX),
        }
    }

    /// Maps every table that stays mapped, or opens those that stay open, at most `open_max`. Files that a
    /// writer deletes after that can still be read.
    pub(crate) fn hold_tables(&mut self, open_max: usize) -> Result<(), LevelDbError> {
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
        let kept = |&(level, table): &(usize, usize)| self.store.keeps(self.levels[level][table].slot);
        for (level, table) in tables.filter(kept) {
            let Table { slot, state, .. } = &self.levels[level][table];
            self.store.open_table(*slot, || self.table_path(level, table), *state)?;
        }
        Ok(())
    }

    /// Checks that a table still has its length, for a cursor that is about to enter it: reading a map past
    /// the end of its file ends the process with a signal. The map of a deleted table stays readable.
    pub(crate) fn check_length(&self, level: usize, table: usize) -> Result<(), LevelDbError> {
        let Table { slot, state, .. } = &self.levels[level][table];
        self.store.check_length(*slot, *state)
    }

    /// Returns the error for a table that existed when the database was opened, and no longer does.
    fn went_away(&self, level: usize, table: usize) -> LevelDbError {
        let (path, file) = (self.folder.path().to_owned(), self.table_path(level, table));
        let error = format!("{} is no longer there", shown::path(&file));
        LevelDbError::BeingWritten { path, error }
    }

    /// Returns the newest write of a key in the logs.
    #[inline]
    pub(crate) fn entry(&self, write: &Write) -> Entry<'_> {
        Entry { key: self.store.bytes(write.key), value: self.store.bytes(write.value), home: Home::Log }
    }
}
