//! A cursor that goes to records by their places.

use std::path::Path;
use std::sync::Arc;

use percolator_files::{Reading, shown};

use crate::database::Database;
use crate::entry::Entry;
use crate::error::LevelDbError;
use crate::key::{self, KEY_BYTES_MAX, TAG_BYTES, Tag, VALUE};
use crate::map::TableBytes;
use crate::opened::OpenTable;
use crate::record_place::RecordPlace;
use crate::table::{EntryPlace, PlaceCursor, TableError, Value, Verify};

/// The shortest block that is requested from the kernel before it is read.
const BLOCK_BYTES: u64 = 16 << 10;

/// Goes to records by their places. Places are not trusted. The cursor keeps its current table and block, so
/// further records of the same block are found quickly.
#[derive(Debug)]
pub struct RecordCursor {
    database: Arc<Database>,
    at: At,
    /// The table that the cursor was last in; `cursor` keeps the block.
    table: Option<Table>,
    cursor: PlaceCursor,
}

/// Where the cursor is.
#[derive(Debug)]
enum At {
    Nothing,
    /// The position in the memtable.
    Memory(usize),
    Table,
}

#[derive(Debug)]
struct Table {
    /// Its number in the store; then its level, and its number there.
    slot: usize,
    level: usize,
    number: usize,
    bytes: Bytes,
}

#[derive(Debug)]
enum Bytes {
    Whole(TableBytes),
    /// The current block only.
    Block(Block),
}

/// The current block of a table that is read instead of mapped.
#[derive(Debug)]
struct Block {
    table: Arc<OpenTable>,
    /// The block's offset and length, once there is one.
    at: Option<(u64, u64)>,
    /// The block and its trailer.
    bytes: Vec<u8>,
}

impl Block {
    /// Reads the block of `place`.
    fn read(&mut self, place: EntryPlace, path: &Path, file_bytes: u64) -> Result<(), LevelDbError> {
        self.at = None;
        let damaged = |error| LevelDbError::Table { file: path.to_owned(), error };
        let part = place.block(file_bytes).map_err(damaged)?;
        self.table.read_part(path, file_bytes, part, &mut self.bytes)?;
        self.at = Some((place.offset, place.bytes));
        Ok(())
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        match self {
            Bytes::Whole(bytes) => bytes.as_ref(),
            Bytes::Block(block) => &block.bytes,
        }
    }
}

impl RecordCursor {
    /// Returns a cursor at no record.
    #[must_use]
    pub fn new(database: &Arc<Database>) -> Self {
        let cursor = PlaceCursor::new(KEY_BYTES_MAX + TAG_BYTES);
        RecordCursor { database: database.clone(), at: At::Nothing, table: None, cursor }
    }

    /// Leaves the record. The table and the block are kept.
    pub fn clear(&mut self) {
        self.at = At::Nothing;
    }

    /// Goes to the record at a place. An uncompressed block of a table that stays mapped is verified as
    /// `verify` says.
    ///
    /// # Errors
    ///
    /// [`LevelDbError::NoRecord`] if there is none, another [`LevelDbError`] if the table cannot be read or
    /// its block is damaged.
    pub fn go_to(&mut self, place: RecordPlace, verify: Verify) -> Result<(), LevelDbError> {
        self.at = At::Nothing;
        self.at = match place {
            RecordPlace::Memory(number) => {
                let write = self.database.memtable.get(number);
                if write.is_none_or(|write| write.tag.is_deletion()) {
                    return Err(self.no_record(format!("write {number} of the logs is not a record")));
                }
                At::Memory(number)
            }
            RecordPlace::Table { table, place } => {
                self.enter(table)?;
                self.go_to_entry(place, verify)?;
                At::Table
            }
        };
        Ok(())
    }

    /// Enters a table, unless the cursor is in it.
    fn enter(&mut self, slot: usize) -> Result<(), LevelDbError> {
        if self.table.as_ref().is_some_and(|table| table.slot == slot) {
            return Ok(());
        }
        let before = self.table.take();
        self.cursor.clear();
        let Some((level, number)) = self.database.table_at(slot) else {
            return Err(self.no_record(format!("there is no table {slot}")));
        };
        let bytes = match self.database.reading {
            Reading::Mapped => Bytes::Whole(self.database.open_table(level, number)?),
            Reading::Read => {
                let bytes = match before.map(|table| table.bytes) {
                    Some(Bytes::Block(block)) => block.bytes,
                    Some(Bytes::Whole(_)) | None => Vec::new(),
                };
                let table = self.database.open_file(level, number)?;
                Bytes::Block(Block { table, at: None, bytes })
            }
        };
        self.table = Some(Table { slot, level, number, bytes });
        Ok(())
    }

    /// Moves to an entry of the table, which must be a record.
    fn go_to_entry(&mut self, place: EntryPlace, verify: Verify) -> Result<(), LevelDbError> {
        let Some(table) = &mut self.table else { return Ok(()) };
        let (level, number) = (table.level, table.number);
        let path = || self.database.table_path(level, number);
        // The offset of `file`'s first byte in the table, and the place of the entry relative to it.
        let (mut start, mut at) = (0, place);
        let verify = match &mut table.bytes {
            Bytes::Whole(TableBytes::Kept(table)) => {
                // A large block is requested at once; the reader would otherwise wait for it piece by piece.
                if place.bytes >= BLOCK_BYTES
                    && let (Ok(start), Ok(bytes)) =
                        (usize::try_from(place.offset), usize::try_from(place.bytes))
                {
                    table.will_need(start..start.saturating_add(bytes));
                }
                verify
            }
            Bytes::Whole(TableBytes::Own(_)) => Verify::AtOnce,
            Bytes::Block(block) => {
                if block.at != Some((place.offset, place.bytes)) {
                    // `PlaceCursor` knows blocks by their places, and every block read alone has the same
                    // one.
                    self.cursor.clear();
                    block.read(place, &path(), self.database.tables(level)[number].file.bytes)?;
                }
                (start, at) = (place.offset, place.in_block());
                Verify::AtOnce
            }
        };
        let file = table.bytes.as_ref();
        let damaged =
            |error: TableError| LevelDbError::Table { file: path(), error: error.of_block_at(start) };
        let is_entry = self.cursor.go_to(file, at, verify).map_err(damaged)?;
        let tag = key::split(self.cursor.key()).map(|(_, tag)| tag);
        let is_record =
            |tag: Tag| tag.kind() == u64::from(VALUE) && tag.sequence() <= self.database.last_sequence;
        if is_entry && tag.is_some_and(is_record) {
            return Ok(());
        }
        // Damage to the block may be the cause.
        self.cursor.verify(file).map_err(damaged)?;
        let EntryPlace { offset, entry, .. } = place;
        let file = shown::path(&path()).to_string();
        Err(self
            .no_record(format!("no record starts at byte {entry} of the block at byte {offset} of {file}")))
    }

    /// Returns the record that the cursor is at; `None` if it is at none.
    #[must_use]
    pub fn entry(&self) -> Option<Entry<'_>> {
        let table = match &self.at {
            At::Nothing => return None,
            At::Memory(number) => {
                return self.database.memtable.get(*number).map(|write| self.database.entry(write));
            }
            At::Table => self.table.as_ref()?,
        };
        let key = key::user(self.cursor.key());
        Some(match (&table.bytes, self.cursor.value()) {
            (Bytes::Whole(TableBytes::Kept(table)), Value::InFile(range)) => {
                table.entry(key, range, self.cursor.unverified())
            }
            (bytes, Value::InFile(range)) => {
                Entry::of_cursor(key, bytes.as_ref().get(range).unwrap_or_default())
            }
            (_, Value::Unpacked(value)) => Entry::of_cursor(key, value),
        })
    }

    /// Returns the error for a place that leads to no record.
    #[cold]
    fn no_record(&self, found: String) -> LevelDbError {
        LevelDbError::NoRecord { path: self.database.folder.path().to_owned(), found }
    }
}
