//! A cursor that can seek by position: a merged walk, and next to it a cursor that follows the index.

use std::path::Path;
use std::sync::Arc;

use percolator_table::{EntryPlace, PlaceCursor, TableError, Value, Verify};

use super::LevelDb;
use super::error::LevelDbError;
use super::index::RecordPlace;
use super::key::{self, KEY_BYTES_MAX, TAG_BYTES};
use super::map::TableBytes;
use super::merge::MergeCursor;
use super::opened::OpenTable;
use crate::record::RecordId;
use crate::source::index::RecordIndex;
use crate::source::internals::{CursorInternals, HeldBytes};
use crate::source::{Cursor, Entry, Run, SourceError, UnverifiedTable};
use percolator_files::Reading;
use percolator_files::shown;

/// After this many steps since a jump, the merged walk takes over: it reads and unpacks blocks ahead.
const STEPS_APART: u32 = 32;

/// The shortest block that is requested from the kernel before it is read.
const BLOCK_BYTES: u64 = 16 << 10;

/// A cursor over a database.
#[derive(Debug)]
pub(super) struct LevelDbCursor {
    source: LevelDb,
    merge: MergeCursor,
    verify: Verify,
    /// The position of the next step.
    position: u64,
    /// Finds entries by the index; kept between seeks for its buffers.
    by_position: Option<PositionCursor>,
    /// Whether `by_position` is at the position, rather than the merged walk.
    is_by_position: bool,
}

impl LevelDbCursor {
    /// `merge` must cover all of the source and be before its first step. It verifies blocks as `verify`
    /// says.
    pub(super) fn new(source: &LevelDb, merge: MergeCursor, verify: Verify) -> Self {
        LevelDbCursor {
            source: source.clone(),
            merge,
            verify,
            position: 0,
            by_position: None,
            is_by_position: false,
        }
    }

    /// Moves to the record at the position; returns `false` past the last record.
    fn step(&mut self) -> Result<bool, SourceError> {
        let Some(by_position) = &mut self.by_position else { return Ok(false) };
        let is_there = by_position.step(&self.source, self.position, self.verify)?;
        self.position = self.position.saturating_add(u64::from(is_there));
        Ok(is_there)
    }

    /// Lets the merged walk continue after the current record, if the steps since the last jump are enough.
    fn resume_merge(&mut self) {
        let has_gone = |by_position: &&PositionCursor| {
            by_position.steps >= STEPS_APART && !matches!(by_position.at, At::Nothing)
        };
        let settled = self.by_position.as_ref().filter(|_| self.is_by_position).filter(has_gone);
        if let Some(by_position) = settled {
            self.merge.go_after(by_position.key(&self.source));
            self.is_by_position = false;
        }
    }
}

impl Cursor for LevelDbCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        self.resume_merge();
        if self.is_by_position {
            let is_there = self.step()?;
            let by_position = self.by_position.as_ref().filter(|_| is_there);
            return Ok(by_position.map(|by_position| by_position.entry(&self.source)));
        }
        let entry = self.merge.advance()?;
        self.position = self.position.saturating_add(u64::from(entry.is_some()));
        Ok(entry)
    }

    /// With an index, skipped records are not looked at.
    fn skip(&mut self) -> Result<bool, SourceError> {
        self.resume_merge();
        let is_there = match self.by_position.as_mut().filter(|_| self.is_by_position) {
            Some(by_position) => {
                (by_position.at, by_position.steps) = (At::Nothing, by_position.steps.saturating_add(1));
                self.position < by_position.index.records()
            }
            None => self.merge.skip()?,
        };
        self.position = self.position.saturating_add(u64::from(is_there));
        Ok(is_there)
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        (self.position, self.is_by_position) = (0, false);
        self.merge.rewind()
    }

    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        if position == self.position {
            return Ok(());
        }
        if self.by_position.is_none() {
            self.by_position =
                self.source.indexed.lock().as_ref().map(|indexed| PositionCursor::new(&indexed.index));
        }
        if let Some(by_position) = &mut self.by_position {
            (by_position.steps, self.position, self.is_by_position) = (0, position, true);
            self.merge.rest();
            return Ok(());
        }
        if position < self.position {
            self.rewind()?;
        }
        while self.position < position && self.skip()? {}
        Ok(())
    }

    fn internals(&mut self) -> Option<&mut dyn CursorInternals> {
        Some(self)
    }
}

impl CursorInternals for LevelDbCursor {
    fn reads_until(&mut self, position: u64) {
        // Looked up outside the lock: a part of the index may have to be read.
        let index = self.source.indexed.lock().as_ref().map(|indexed| indexed.index.clone());
        let last = position.checked_sub(1).filter(|_| position != u64::MAX).zip(index);
        let place = last.and_then(|(last, index)| index.place(last).ok().flatten());
        let table = match place.map(RecordPlace::of_numbers) {
            Some(RecordPlace::Table { table, .. }) => self.source.database.table_at(table),
            Some(RecordPlace::Memory(_)) | None => None,
        };
        self.merge.reads_until_table(table);
    }

    fn leave(&mut self) {
        self.merge.leave();
    }

    fn give(&mut self, id: RecordId, run: &mut Run) -> bool {
        // An entry found by the index never offers its buffer.
        !self.is_by_position && self.merge.give(id, run)
    }

    fn held_bytes(&mut self, value_bytes: usize) -> HeldBytes {
        self.merge.held_bytes(value_bytes)
    }
}

/// Finds records by the index.
#[derive(Debug)]
struct PositionCursor {
    index: Arc<RecordIndex>,
    /// Steps since the last jump.
    steps: u32,
    at: At,
    /// The table that the cursor was last in; `cursor` keeps the block.
    table: Option<Table>,
    cursor: PlaceCursor,
}

/// Where the last step ended.
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
    fn read(&mut self, place: EntryPlace, path: &Path, file_bytes: u64) -> Result<(), SourceError> {
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

impl PositionCursor {
    fn new(index: &Arc<RecordIndex>) -> Self {
        let cursor = PlaceCursor::new(KEY_BYTES_MAX + TAG_BYTES);
        PositionCursor { index: index.clone(), steps: 0, at: At::Nothing, table: None, cursor }
    }

    fn step(&mut self, source: &LevelDb, position: u64, verify: Verify) -> Result<bool, SourceError> {
        self.at = At::Nothing;
        let place = match self.index.place(position) {
            Ok(place) => place,
            Err(damage) => {
                self.index = source.mend(&damage)?;
                self.index.place(position).unwrap_or_default()
            }
        };
        let Some(place) = place.map(RecordPlace::of_numbers) else { return Ok(false) };
        self.at = match place {
            RecordPlace::Memory(number) => {
                let write = source.database.memtable().get(number);
                if write.is_none_or(|write| write.tag.is_deletion()) {
                    let found = format!("write {number} of the logs is not a record");
                    return Err(misled(source, position, found));
                }
                At::Memory(number)
            }
            RecordPlace::Table { table, place } => {
                self.enter(source, position, table)?;
                self.go_to(source, position, place, verify)?;
                At::Table
            }
        };
        self.steps = self.steps.saturating_add(1);
        Ok(true)
    }

    /// Enters a table, unless the cursor is in it.
    fn enter(&mut self, source: &LevelDb, position: u64, slot: usize) -> Result<(), SourceError> {
        if self.table.as_ref().is_some_and(|table| table.slot == slot) {
            return Ok(());
        }
        let before = self.table.take();
        self.cursor.leave();
        let Some((level, number)) = source.database.table_at(slot) else {
            return Err(misled(source, position, format!("there is no table {slot}")));
        };
        let bytes = match source.database.reading {
            Reading::Mapped => Bytes::Whole(source.database.open_table(level, number)?),
            Reading::Read => {
                let bytes = match before.map(|table| table.bytes) {
                    Some(Bytes::Block(block)) => block.bytes,
                    Some(Bytes::Whole(_)) | None => Vec::new(),
                };
                let table = source.database.open_file(level, number)?;
                Bytes::Block(Block { table, at: None, bytes })
            }
        };
        self.table = Some(Table { slot, level, number, bytes });
        Ok(())
    }

    /// Moves to an entry of the table, which must be a record.
    fn go_to(
        &mut self,
        source: &LevelDb,
        position: u64,
        place: EntryPlace,
        verify: Verify,
    ) -> Result<(), SourceError> {
        let Some(table) = &mut self.table else { return Ok(()) };
        let (level, number) = (table.level, table.number);
        let path = || source.database.table_path(level, number);
        // The offset of `file`'s first byte in the table, and the place of the entry relative to it.
        let (mut start, mut at) = (0, place);
        let verify = match &mut table.bytes {
            Bytes::Whole(TableBytes::Kept { store, table }) => {
                ask_for(place, |part| store.will_need_part(*table, part));
                verify
            }
            Bytes::Whole(TableBytes::Own(_)) => Verify::AtOnce,
            Bytes::Block(block) => {
                if block.at != Some((place.offset, place.bytes)) {
                    // `PlaceCursor` knows blocks by their places, and every block read alone has the same
                    // one.
                    self.cursor.leave();
                    block.read(place, &path(), source.database.tables(level)[number].file.bytes)?;
                }
                (start, at) = (place.offset, place.in_block());
                Verify::AtOnce
            }
        };
        let file = table.bytes.as_ref();
        let damaged = |error: TableError| {
            SourceError::from(LevelDbError::Table { file: path(), error: error.of_block_at(start) })
        };
        let is_entry = self.cursor.go_to(file, at, verify).map_err(damaged)?;
        let tag = key::split(self.cursor.key()).map(|(_, tag)| tag);
        let is_record = |tag: key::Tag| {
            tag.kind() == u64::from(key::VALUE) && tag.sequence() <= source.database.last_sequence()
        };
        if is_entry && tag.is_some_and(is_record) {
            return Ok(());
        }
        // Damage to the block may be the cause.
        self.cursor.verify(file).map_err(damaged)?;
        let EntryPlace { offset, entry, .. } = place;
        let found = format!(
            "no record starts at byte {entry} of the block at byte {offset} of {}",
            shown::path(&path())
        );
        Err(misled(source, position, found))
    }

    /// Returns the key of the last step.
    fn key<'a>(&'a self, source: &'a LevelDb) -> &'a [u8] {
        self.entry(source).key()
    }

    /// Returns the record of the last step.
    fn entry<'a>(&'a self, source: &'a LevelDb) -> Entry<'a> {
        let database = &source.database;
        let key = key::user(self.cursor.key());
        match (&self.at, self.table.as_ref().map(|table| &table.bytes), self.cursor.value()) {
            (At::Memory(number), ..) => match database.memtable().get(*number) {
                Some(write) => database.lending().entry(write.key, write.value),
                None => Entry::borrowed(&[], &[]),
            },
            (At::Table, Some(Bytes::Whole(TableBytes::Kept { table, .. })), Value::InFile(range)) => {
                let entry = database.lending().entry_of_table(key, *table, range);
                match self.cursor.unverified() {
                    Some(unverified) => entry.unverified(UnverifiedTable { table: *table, unverified }),
                    None => entry,
                }
            }
            (At::Table, Some(bytes), Value::InFile(range)) => {
                Entry::borrowed(key, bytes.as_ref().get(range).unwrap_or_default())
            }
            (At::Table, _, Value::Unpacked(value)) => Entry::borrowed(key, value),
            _ => Entry::borrowed(&[], &[]),
        }
    }
}

/// Requests a large block from the kernel at once; its reader would otherwise wait for it piece by piece.
fn ask_for(place: EntryPlace, will_need: impl FnOnce(std::ops::Range<usize>)) {
    if place.bytes >= BLOCK_BYTES
        && let (Ok(offset), Ok(bytes)) = (usize::try_from(place.offset), usize::try_from(place.bytes))
    {
        will_need(offset..offset.saturating_add(bytes));
    }
}

/// Returns the error for an index that leads to no record.
#[cold]
fn misled(source: &LevelDb, index: u64, found: String) -> SourceError {
    let message = format!("the record index is wrong ({found}); remove it");
    SourceError::Broken { path: source.path.clone(), index, message }
}
