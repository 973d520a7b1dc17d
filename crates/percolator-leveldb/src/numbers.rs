//! The sequence numbers of writes, from the MANIFEST and the tables: which of them a log must have.
//!
//! LevelDB numbers writes one by one. It puts a batch in a log before it counts the batch's numbers. It
//! writes what one memtable held to tables as a whole, the older memtable first. So, if a database is intact,
//!
//! - the live logs, in order, have every number from the first one in them to the last one;
//! - that last number is at least the one that the MANIFEST counts, and the first is at most the one after
//!   it;
//! - tables that have a number have all before it, except those that later writes have replaced.
//!
//! If a log has no write left, only these rules tell whether it had any.

use std::path::{Path, PathBuf};

use percolator_files::{Reading, shown};

use crate::database::Table;
use crate::edit::{LEVELS, LogStart};
use crate::error::LevelDbError;
use crate::folder::Folder;
use crate::key::{self, KEY_BYTES_MAX, TAG_BYTES};
use crate::map::{FileBytes, open_table};
use crate::table::{NoShelf, TableCursor, Verify};

/// What is known of a database's sequence numbers besides its logs.
#[derive(Debug)]
pub(crate) struct Numbers<'a> {
    pub(crate) folder: &'a Folder,
    pub(crate) manifest: &'a Path,
    pub(crate) levels: &'a [Vec<Table>; LEVELS],
    /// The number of the last write that the MANIFEST counts.
    pub(crate) counted: u64,
    pub(crate) log_number: u64,
    pub(crate) log_start: &'a LogStart,
    pub(crate) reading: Reading,
}

impl Numbers<'_> {
    /// Returns the number due after logs without a write, if the next log starts with `found`. It is `found`
    /// if nothing is lost.
    pub(crate) fn due_after_empty(&self, found: u64) -> Result<u64, LevelDbError> {
        let start = self.log_start;
        if (start.is_first && found == start.last_sequence.saturating_add(1)) || self.bounds_reach(found) {
            return Ok(found);
        }
        if let Some(due) = self.due_by_flush()? {
            return Ok(due.min(found));
        }
        // A log that was started and has no write is rare, so reading all tables to find out is acceptable.
        let due = self.last_in(|_| true)?.saturating_add(1);
        Ok(match start.is_first {
            _ if due >= found => found,
            true => start.last_sequence.saturating_add(1),
            false => due,
        })
    }

    /// Returns the least number lost if no log has a write; `None` if none is known to be lost.
    pub(crate) fn lost_with_all(&self) -> Result<Option<u64>, LevelDbError> {
        let start = self.log_start;
        if self.bounds_reach(self.counted.saturating_add(1)) {
            return Ok(None);
        }
        let after_start = start.last_sequence.saturating_add(1);
        let due = match start.is_first {
            true => after_start,
            false => self.due_by_flush()?.unwrap_or(after_start),
        };
        if due > self.counted || self.last_in(|_| true)? >= self.counted {
            return Ok(None);
        }
        Ok(Some(due))
    }

    /// Returns whether a first or last key shows that the tables have the number before `due`. One does if
    /// keys were written in order, as Caffe's are.
    fn bounds_reach(&self, due: u64) -> bool {
        let files = self.levels.iter().flatten().map(|table| &table.file);
        let tags = files.flat_map(|file| [&file.smallest, &file.largest]).filter_map(|key| key::split(key));
        due <= 1 || tags.map(|(_, tag)| tag.sequence()).any(|number| number >= due - 1)
    }

    /// Returns the number that the oldest log starts with, if the tables of the memtable before it still
    /// exist: they have that memtable's last write.
    fn due_by_flush(&self) -> Result<Option<u64>, LevelDbError> {
        let LogStart { is_first, tables, .. } = self.log_start;
        let is_there = |number: &u64| self.levels.iter().flatten().any(|table| table.file.number == *number);
        if *is_first || tables.is_empty() || !tables.iter().all(is_there) {
            return Ok(None);
        }
        Ok(Some(self.last_in(|table| tables.contains(&table.file.number))?.saturating_add(1)))
    }

    /// Returns the last number in some tables. This reads all of their blocks.
    fn last_in(&self, is_meant: impl Fn(&Table) -> bool) -> Result<u64, LevelDbError> {
        let mut cursor = TableCursor::new(KEY_BYTES_MAX + TAG_BYTES);
        let mut last = 0;
        for table in self.levels.iter().flatten().filter(|table| is_meant(table)) {
            let path = self.folder.table(table.file.number, table.name);
            tracing::debug!(file = %shown::path(&path), "read for the number of its last write");
            let damaged = |error| LevelDbError::Table { file: path.clone(), error };
            let file = open_table(&path, table.state)?;
            let bytes = FileBytes::of(&file, &path, Some(table.file.bytes), self.reading)?;
            cursor.open(bytes, Verify::AtOnce).map_err(damaged)?;
            while cursor.advance_with(&mut NoShelf).map_err(damaged)? {
                last = last.max(key::split(cursor.key()).map_or(0, |(_, tag)| tag.sequence()));
            }
            // Release this table before the next one is read.
            cursor.close();
        }
        Ok(last)
    }

    /// Returns the path of the oldest live log.
    pub(crate) fn oldest_log(&self) -> PathBuf {
        self.folder.log(self.log_number)
    }
}
