//! A cursor over tables in sequence: those of a level, or one table of level 0.

use std::ops::Range;
use std::sync::Arc;

use crate::ahead::Ahead;
use crate::database::Database;
use crate::entry::{Entry, Home};
use crate::error::LevelDbError;
use crate::key::{self, KEY_BYTES_MAX, TAG_BYTES, Tag, VALUE};
use crate::map::TableBytes;
use crate::record_place::RecordPlace;
use crate::table::{TableCursor, TableError, Value, Verify};

/// How far ahead of a cursor its tables are read when they are not in memory.
const READ_AHEAD_BYTES: u64 = 64 << 20;

#[derive(Debug)]
pub(crate) struct LevelCursor<A> {
    database: Arc<Database>,
    level: usize,
    /// The tables still to be entered.
    tables: Range<usize>,
    /// All tables of the cursor.
    all: Range<usize>,
    cursor: TableCursor<TableBytes>,
    /// The open table, if any.
    open: Option<usize>,
    tag: Tag,
    /// Applies to tables that stay mapped: checking a deferred checksum needs the bytes.
    verify: Verify,
    /// What is unpacked ahead of the cursor, if there are helpers.
    ahead: Option<A>,
    /// Whether the cursor has opened a table. Nothing is read ahead before that, because a walk may read only
    /// one record.
    is_under_way: bool,
    /// All tables before this one that the cursor will reach have been requested from the kernel.
    asked: usize,
    /// The table, by level and number there, up to which the walk continues before it jumps; `None` if it
    /// does not jump.
    until: Option<(usize, usize)>,
}

impl<A: Ahead> LevelCursor<A> {
    /// Returns a cursor over some tables of a level.
    pub(crate) fn new(
        database: &Arc<Database>,
        level: usize,
        all: Range<usize>,
        verify: Verify,
        ahead: Option<A>,
    ) -> Self {
        let (database, cursor) = (database.clone(), TableCursor::new(KEY_BYTES_MAX + TAG_BYTES));
        let (open, tag) = (None, Tag::default());
        let (is_under_way, asked) = (false, 0);
        LevelCursor {
            database,
            level,
            tables: all.clone(),
            all,
            cursor,
            open,
            tag,
            verify,
            ahead,
            is_under_way,
            asked,
            until: None,
        }
    }

    /// Moves to the first entry whose key is `start` or after it; returns `false` if there is none.
    pub(crate) fn seek(&mut self, start: &[u8]) -> Result<bool, LevelDbError> {
        self.close();
        if let Some(ahead) = &mut self.ahead {
            ahead.restart();
        }
        (self.is_under_way, self.asked) = (false, 0);
        let tables = &self.database.tables(self.level)[self.all.clone()];
        let before = tables.partition_point(|table| table.file.last_user_key() < start);
        self.tables = self.all.start + before..self.all.end;
        if start.is_empty() {
            return self.advance();
        }
        if !self.open_next()? {
            return Ok(false);
        }
        match self.cursor.seek(|key| key::user(key) < start) {
            Ok(true) => self.accept().map(|()| true),
            Ok(false) => self.advance(),
            Err(error) => Err(self.damaged(error)),
        }
    }

    /// Moves to the next entry; returns `false` past the last one.
    #[inline]
    pub(crate) fn advance(&mut self) -> Result<bool, LevelDbError> {
        match self.cursor.advance_with(&mut self.ahead) {
            Ok(true) => self.accept().map(|()| true),
            Ok(false) => self.advance_table(),
            Err(error) => Err(self.damaged(error)),
        }
    }

    /// Moves to the first entry of the next table that has one.
    fn advance_table(&mut self) -> Result<bool, LevelDbError> {
        self.check_last()?;
        while self.open_next()? {
            match self.cursor.advance_with(&mut self.ahead) {
                Ok(true) => {
                    self.accept()?;
                    self.check_first()?;
                    return Ok(true);
                }
                Ok(false) => {}
                Err(error) => return Err(self.damaged(error)),
            }
        }
        Ok(false)
    }

    /// Opens the next table; returns `false` if there is none.
    fn open_next(&mut self) -> Result<bool, LevelDbError> {
        self.close();
        let Some(table) = self.tables.next() else { return Ok(false) };
        let bytes = self.database.open_table(self.level, table)?;
        self.database.check_length(self.level, table)?;
        self.open = Some(table);
        if std::mem::replace(&mut self.is_under_way, true) {
            self.read_ahead(table);
        }
        let verify = match &bytes {
            TableBytes::Kept(_) => self.verify,
            TableBytes::Own(_) => Verify::AtOnce,
        };
        if let Some(ahead) = &mut self.ahead {
            ahead.open(bytes.kept());
        }
        match self.cursor.open(bytes, verify) {
            Ok(()) => Ok(true),
            Err(error) => Err(self.damaged(error)),
        }
    }

    /// Asks the kernel to read the tables after `table` that are not in memory: whole, or, of a longer one,
    /// the first [`READ_AHEAD_BYTES`]. Touching a page of a map that is not in memory waits for the disk.
    fn read_ahead(&mut self, table: usize) {
        let mut bytes = 0;
        for next in table + 1..self.all.end {
            if bytes >= READ_AHEAD_BYTES || self.is_past_the_end(next) {
                break;
            }
            bytes += self.database.tables(self.level)[next].file.bytes;
            if next >= self.asked {
                self.database.will_need(self.level, next, READ_AHEAD_BYTES);
                self.asked = next + 1;
            }
        }
    }

    /// Returns whether the walk jumps elsewhere before it reaches a table of the level.
    fn is_past_the_end(&self, table: usize) -> bool {
        let file = |level, table: usize| self.database.tables(level).get(table).map(|table| &table.file);
        let last = self.until.and_then(|(level, last)| file(level, last));
        last.zip(file(self.level, table))
            .is_some_and(|(last, table)| table.first_user_key() > last.last_user_key())
    }

    /// Sets the table, by level and number there, up to which the walk reads before it jumps elsewhere.
    pub(crate) fn reads_until(&mut self, table: Option<(usize, usize)>) {
        self.until = table;
    }

    /// Returns the most bytes that the tables it reads, instead of mapping them, take.
    pub(crate) fn read_bytes_max(&self) -> usize {
        self.database.read_bytes_max(self.level, self.all.clone())
    }

    /// Closes the open table, if any.
    pub(crate) fn close(&mut self) {
        self.open = None;
        self.cursor.close();
        if let Some(ahead) = &mut self.ahead {
            ahead.close();
        }
    }

    /// Makes the cursor's entry the current one, after checking its key.
    #[inline]
    fn accept(&mut self) -> Result<(), LevelDbError> {
        match key::split(self.cursor.key()) {
            Some((_, tag))
                if tag.kind() <= u64::from(VALUE) && tag.sequence() <= self.database.last_sequence() =>
            {
                self.tag = tag;
                if self.is_past_its_block() { self.verify() } else { Ok(()) }
            }
            found => Err(self.strange_key(found.map(|(_, tag)| tag))),
        }
    }

    /// Returns whether blocks are unpacked ahead of the cursor.
    pub(crate) fn is_packed(&self) -> bool {
        self.ahead.as_ref().is_some_and(A::is_packed)
    }

    /// Verifies the current block, unless that is done already.
    pub(crate) fn verify(&mut self) -> Result<(), LevelDbError> {
        self.cursor.verify().map_err(|error| self.damaged(error))
    }

    /// Returns whether the current block is unverified and none of its entries has been handed over.
    #[inline]
    pub(crate) fn is_newly_unverified(&self) -> bool {
        self.cursor.unverified().is_some_and(|unverified| !unverified.is_taken())
    }

    /// Returns whether the current block may have `key` or a key after it, by what is verified: the index and
    /// the MANIFEST.
    pub(crate) fn may_reach(&self, key: &[u8]) -> bool {
        let end =
            self.open.map_or(&[][..], |table| self.database.tables(self.level)[table].file.last_user_key());
        key <= end && key <= key::user(self.cursor.index_key())
    }

    /// Returns whether the current block is unverified and has a key that its table's index rules out.
    #[inline]
    fn is_past_its_block(&self) -> bool {
        self.cursor.unverified().is_some() && !self.may_reach(self.user_key())
    }

    #[cold]
    fn strange_key(&self, tag: Option<Tag>) -> LevelDbError {
        self.key_error(match tag {
            None => format!("a key has {} bytes, but its tag alone has {TAG_BYTES}", self.cursor.key().len()),
            Some(tag) if tag.kind() > u64::from(VALUE) => {
                format!("a write is of kind {}: allowed are 0 and 1", tag.kind())
            }
            Some(tag) => {
                let last = self.database.last_sequence();
                format!("there is write number {}, but the database's last one is {last}", tag.sequence())
            }
        })
    }

    /// Checks the table's first key against the MANIFEST, and so detects a table that replaced another one.
    fn check_first(&self) -> Result<(), LevelDbError> {
        let due = self.open.map(|table| self.database.tables(self.level)[table].file.first_user_key());
        match due {
            Some(due) if self.user_key() < due => Err(self.key_error(format!(
                "a key comes before {}, where the MANIFEST has the table start",
                key::shown(due)
            ))),
            _ => Ok(()),
        }
    }

    fn check_last(&self) -> Result<(), LevelDbError> {
        let due = self.open.map(|table| self.database.tables(self.level)[table].file.last_user_key());
        match due {
            Some(due) if self.user_key() > due => Err(self.key_error(format!(
                "a key comes after {}, where the MANIFEST has the table end",
                key::shown(due)
            ))),
            _ => Ok(()),
        }
    }

    /// Returns an error about the current key, or the damage that explains it.
    #[cold]
    pub(crate) fn key_error(&self, message: String) -> LevelDbError {
        if let Err(error) = self.cursor.suspect() {
            return self.damaged(error);
        }
        let block = self.cursor.block_offset();
        let file = self.open.map(|table| self.database.table_path(self.level, table)).unwrap_or_default();
        LevelDbError::Key { file, block, message }
    }

    #[cold]
    fn damaged(&self, error: TableError) -> LevelDbError {
        let file = self.open.map(|table| self.database.table_path(self.level, table)).unwrap_or_default();
        match error {
            // Reported as for logs: without the tag.
            TableError::KeyLength { offset: block, entry: offset, found, .. } => {
                let (found, allowed) = (found - TAG_BYTES, KEY_BYTES_MAX);
                LevelDbError::KeyLength { file, block, offset, found, allowed }
            }
            error => LevelDbError::Table { file, error },
        }
    }

    /// Returns the place of the current entry. Takes the block's deferred checksum if the entry is the only
    /// one there.
    pub(crate) fn place(&self) -> Result<RecordPlace, LevelDbError> {
        if let Some(unverified) = self.cursor.unverified().filter(|_| self.cursor.is_alone()) {
            let _checked_by_the_next_reader = unverified.take();
        }
        let place = self.slot().zip(self.cursor.place());
        let place = place.map(|(table, place)| RecordPlace::Table { table, place });
        place.ok_or_else(|| self.key_error("it is in no block of a table".to_owned()))
    }

    /// Returns the number in the store of the open table.
    #[inline]
    pub(crate) fn slot(&self) -> Option<usize> {
        self.open.map(|table| self.database.tables(self.level)[table].slot)
    }

    /// Returns the key of the current entry, without its tag.
    #[inline]
    pub(crate) fn user_key(&self) -> &[u8] {
        key::user(self.cursor.key())
    }

    #[inline]
    pub(crate) fn tag(&self) -> Tag {
        self.tag
    }

    /// Returns whether the current value fills most of its buffer, and nothing else in the buffer is needed.
    fn is_whole(&self) -> bool {
        self.ahead.as_ref().is_some_and(A::is_last) && self.cursor.is_whole()
    }

    /// Returns the key, the buffer and the value's range in it if [`is_whole`](Self::is_whole).
    pub(crate) fn whole(&mut self) -> Option<(&[u8], &mut Vec<u8>, Range<usize>)> {
        if !self.is_whole() {
            return None;
        }
        self.cursor.whole().map(|(key, buffer, value)| (key::user(key), buffer, value))
    }

    /// Returns the current entry.
    #[inline]
    pub(crate) fn entry(&self) -> Entry<'_> {
        let key = self.user_key();
        match (self.cursor.value(), self.cursor.file()) {
            (Value::InFile(range), Some(TableBytes::Kept(table))) => {
                table.entry(key, range, self.cursor.unverified())
            }
            (Value::InFile(range), Some(TableBytes::Own(map))) => {
                Entry::of_cursor(key, map.as_ref().get(range).unwrap_or_default())
            }
            (Value::Unpacked(value), _) => {
                Entry { key, value, home: Home::Cursor { is_whole: self.is_whole() } }
            }
            (Value::InFile(_), None) => Entry::of_cursor(key, &[]),
        }
    }
}
