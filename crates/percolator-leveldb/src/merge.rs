//! A walk over a whole database, or a range of its keys. It returns the newest write of each key, in order,
//! unless that write is a deletion.
//!
//! A walk that leaves the verification of blocks to the users of their values must not be misled by a damaged
//! block. So it verifies a block itself
//!
//! - when it enters the block, unless all of the block's keys come before those of all other children:
//!   nothing else then belongs between the block's keys;
//! - when it meets a key in the block that the table's index rules out;
//! - before it drops a write of the block, or reports a fault of a key;
//! - when it leaves the block, if its deferred checksum was not taken.
//!
//! A damaged block can then only have other records than it should. The user of any of those records finds
//! the damage, and at least one of them was handed over.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use percolator_files::Reading;

use crate::ahead::Ahead;
use crate::batch::Write;
use crate::database::Database;
use crate::edit::LEVELS;
use crate::entry::Entry;
use crate::error::LevelDbError;
use crate::key::{self, Tag};
use crate::level::LevelCursor;
use crate::record_place::RecordPlace;
use crate::table::{NoShelf, Verify};

/// A walk over the keys from `start` (inclusive) to `end` (exclusive): the newest write of each, in order,
/// unless it deletes the key.
#[derive(Debug)]
pub struct MergeCursor<A = NoShelf> {
    database: Arc<Database>,
    start: Box<[u8]>,
    end: Option<Box<[u8]>>,
    /// Where the walk begins instead of at `start`, until it is rewound; empty if it begins at `start`. Kept
    /// for its buffer.
    from: Vec<u8>,
    children: Vec<Child<A>>,
    /// The children that have an entry, as a heap: the first one's entry is the next of the walk.
    heap: Vec<usize>,
    /// The key of the last step, and its tag. Writes of the same key that follow are older.
    key: Vec<u8>,
    tag: Tag,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Before the first entry.
    Start,
    /// `key` and `tag` are those of the heap's first child. If `is_first`, there is no last step yet.
    Inside {
        is_first: bool,
    },
    End,
    Failed(LevelDbError),
}

impl<A: Ahead> MergeCursor<A> {
    /// Returns a walk whose blocks are verified as `verify` says: by itself, or by the user of the values,
    /// with the deferred checksums of the [entries](Entry). `ahead` is called for each sequence of tables
    /// that the walk goes through, and returns what unpacks blocks ahead of it there, if anything does.
    #[must_use]
    pub fn new(
        database: &Arc<Database>,
        start: &[u8],
        end: Option<&[u8]>,
        verify: Verify,
        mut ahead: impl FnMut() -> Option<A>,
    ) -> Self {
        let mut children = Vec::new();
        if !database.memtable.is_empty() {
            children.push(Child::Memory(MemoryCursor { database: database.clone(), position: 0 }));
        }
        let newest = 0..database.tables(0).len();
        let mut level =
            |level, tables| Child::Level(LevelCursor::new(database, level, tables, verify, ahead()));
        children.extend(newest.map(|table| level(0, table..table + 1)));
        for number in 1..LEVELS {
            let tables = database.tables(number).len();
            if tables > 0 {
                children.push(level(number, 0..tables));
            }
        }
        MergeCursor {
            database: database.clone(),
            start: start.into(),
            end: end.map(Into::into),
            from: Vec::new(),
            heap: Vec::with_capacity(children.len()),
            children,
            key: Vec::new(),
            tag: Tag::default(),
            state: State::Start,
        }
    }

    fn start(&mut self) -> Result<(), LevelDbError> {
        self.heap.clear();
        let start = if self.from.is_empty() { &*self.start } else { &*self.from };
        for (number, child) in self.children.iter_mut().enumerate() {
            if child.seek(start)? {
                self.heap.push(number);
            }
        }
        if self.heap.len() > 1 {
            for &number in &self.heap {
                self.children[number].verify()?;
            }
        }
        for position in (0..self.heap.len() / 2).rev() {
            self.sift_down(position);
        }
        self.state = State::Inside { is_first: true };
        Ok(())
    }

    /// Moves to the next record and returns it; `None` past the last one.
    ///
    /// # Errors
    ///
    /// [`LevelDbError`] if a table cannot be read or is damaged; the same error again, until the walk
    /// restarts.
    #[inline]
    pub fn advance(&mut self) -> Result<Option<Entry<'_>>, LevelDbError> {
        match self.step() {
            Ok(true) => Ok(Some(self.children[self.heap[0]].entry())),
            Ok(false) => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Notes an error, after which the order of the heap is not known.
    fn failed(&mut self, error: LevelDbError) -> LevelDbError {
        self.state = State::Failed(error.clone());
        error
    }

    /// Restarts the walk before its first record.
    pub fn rewind(&mut self) {
        self.from.clear();
        self.state = State::Start;
    }

    /// Returns the key, the buffer and the value's range in it, if the current entry's value
    /// [fills most of a buffer](crate::Home::Cursor). The caller may exchange the buffer for another. The
    /// range starts further from the buffer's front than the key is long.
    pub fn whole(&mut self) -> Option<(&[u8], &mut Vec<u8>, Range<usize>)> {
        if !matches!(self.state, State::Inside { is_first: false }) {
            return None;
        }
        match self.heap.first().map(|&top| &mut self.children[top]) {
            Some(Child::Level(level)) => level.whole(),
            _ => None,
        }
    }

    /// Restarts the walk before the first of its keys that is greater than `key`.
    pub fn go_after(&mut self, key: &[u8]) {
        self.rewind();
        if key >= &*self.start {
            self.from.extend_from_slice(key);
            self.from.push(0);
        }
    }

    /// Closes tables that are read instead of mapped, until the walk restarts [after a key](Self::go_after)
    /// or is rewound.
    pub fn rest(&mut self) {
        if self.database.reading == Reading::Mapped || matches!(self.state, State::Failed(_)) {
            return;
        }
        for child in &mut self.children {
            if let Child::Level(level) = child {
                level.close();
            }
        }
        self.state = State::Start;
    }

    /// Sets the place up to which the walk reads before it jumps elsewhere, so that no table after it is read
    /// ahead; `None` if it does not jump.
    pub fn reads_until(&mut self, place: Option<RecordPlace>) {
        let table = match place {
            Some(RecordPlace::Table { table, .. }) => self.database.table_at(table),
            Some(RecordPlace::Memory(_)) | None => None,
        };
        for child in &mut self.children {
            if let Child::Level(level) = child {
                level.reads_until(table);
            }
        }
    }

    /// Moves to the next record and returns its place; `None` past the last one.
    ///
    /// If the record is alone in an unverified block, its value is not touched: the next reader of its place
    /// verifies the block. Damage may make two records look like one; that reader finds it.
    ///
    /// # Errors
    ///
    /// As [`advance`](Self::advance).
    pub fn next_place(&mut self) -> Result<Option<RecordPlace>, LevelDbError> {
        let place = match self.step() {
            Ok(true) => match &self.children[self.heap[0]] {
                Child::Memory(memory) => Ok(Some(RecordPlace::Memory(memory.position))),
                Child::Level(level) => level.place().map(Some),
            },
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        };
        place.map_err(|error| self.failed(error))
    }

    /// Moves to the next write that is the newest of its key and not a deletion; returns `false` past the
    /// last one.
    #[inline]
    fn step(&mut self) -> Result<bool, LevelDbError> {
        let is_first = match &self.state {
            State::Inside { is_first } => *is_first,
            State::Failed(error) => return Err(error.clone()),
            State::End => return Ok(false),
            State::Start => {
                self.start()?;
                true
            }
        };
        if !is_first {
            self.pass()?;
        }
        let mut has_key = !is_first;
        while let Some(&top) = self.heap.first() {
            let child = &self.children[top];
            let (key, tag) = (child.user_key(), child.tag());
            if self.end.as_deref().is_some_and(|end| key >= end) {
                break;
            }
            let order = if has_key { self.key.as_slice().cmp(key) } else { Ordering::Less };
            match order {
                Ordering::Less => {
                    self.key.clear();
                    self.key.extend_from_slice(key);
                    self.tag = tag;
                    has_key = true;
                    if !tag.is_deletion() {
                        self.state = State::Inside { is_first: false };
                        return Ok(true);
                    }
                }
                Ordering::Equal if tag <= self.tag => {}
                _ => return Err(child.disorder(&self.key)),
            }
            self.children[top].verify()?;
            self.pass()?;
        }
        self.state = State::End;
        Ok(false)
    }

    /// Moves the first child past its entry.
    #[inline]
    fn pass(&mut self) -> Result<(), LevelDbError> {
        let top = self.heap[0];
        if !self.children[top].advance()? {
            self.heap.swap_remove(0);
        } else if self.children[top].is_newly_unverified() && !self.is_apart(top) {
            self.children[top].verify()?;
        }
        if self.heap.len() > 1 {
            self.sift_down(0);
        }
        Ok(())
    }

    fn levels(&self) -> impl Iterator<Item = &LevelCursor<A>> {
        self.children.iter().filter_map(|child| match child {
            Child::Memory(_) => None,
            Child::Level(level) => Some(level),
        })
    }

    /// Returns how many tables the walk is in at once, at most, and in how many of them blocks are unpacked
    /// ahead of it.
    #[must_use]
    pub fn tables(&self) -> (usize, usize) {
        (self.levels().count(), self.levels().filter(|level| level.is_packed()).count())
    }

    /// Returns the most bytes that the walk holds of tables which it reads, instead of mapping them.
    #[must_use]
    pub fn read_bytes_max(&self) -> usize {
        self.levels().map(LevelCursor::read_bytes_max).fold(0, usize::saturating_add)
    }

    /// Returns whether all keys of the first child's block come before those of the other children.
    fn is_apart(&self, top: usize) -> bool {
        // One of these two has the least key of the others.
        let mut others = self.heap.iter().skip(1).take(2).map(|&other| self.children[other].user_key());
        others.all(|key| !self.children[top].may_reach(key))
    }

    /// Moves the child at `position` of the heap down to its place.
    fn sift_down(&mut self, mut position: usize) {
        loop {
            let mut least = position;
            for below in [2 * position + 1, 2 * position + 2] {
                if below < self.heap.len() && self.is_before(below, least) {
                    least = below;
                }
            }
            if least == position {
                return;
            }
            self.heap.swap(position, least);
            position = least;
        }
    }

    fn is_before(&self, one: usize, other: usize) -> bool {
        let [one, other] = [one, other].map(|position| &self.children[self.heap[position]]);
        one.user_key().cmp(other.user_key()).then(other.tag().cmp(&one.tag())).is_lt()
    }
}

/// A source of the merge.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a walk has only one small child")]
enum Child<A> {
    Memory(MemoryCursor),
    Level(LevelCursor<A>),
}

impl<A: Ahead> Child<A> {
    fn seek(&mut self, start: &[u8]) -> Result<bool, LevelDbError> {
        match self {
            Child::Memory(memory) => Ok(memory.seek(start)),
            Child::Level(level) => level.seek(start),
        }
    }

    #[inline]
    fn advance(&mut self) -> Result<bool, LevelDbError> {
        match self {
            Child::Memory(memory) => Ok(memory.advance()),
            Child::Level(level) => level.advance(),
        }
    }

    /// Verifies the current block, unless that is done already.
    #[inline]
    fn verify(&mut self) -> Result<(), LevelDbError> {
        match self {
            Child::Memory(_) => Ok(()),
            Child::Level(level) => level.verify(),
        }
    }

    #[inline]
    fn is_newly_unverified(&self) -> bool {
        match self {
            Child::Memory(_) => false,
            Child::Level(level) => level.is_newly_unverified(),
        }
    }

    /// Returns whether the current block may have `key` or a key after it.
    fn may_reach(&self, key: &[u8]) -> bool {
        match self {
            Child::Memory(_) => true,
            Child::Level(level) => level.may_reach(key),
        }
    }

    #[inline]
    fn user_key(&self) -> &[u8] {
        match self {
            Child::Memory(memory) => memory.user_key(),
            Child::Level(level) => level.user_key(),
        }
    }

    #[inline]
    fn tag(&self) -> Tag {
        match self {
            Child::Memory(memory) => memory.tag(),
            Child::Level(level) => level.tag(),
        }
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        match self {
            Child::Memory(memory) => memory.entry(),
            Child::Level(level) => level.entry(),
        }
    }

    /// Returns the error for an entry that should have come before `last`.
    #[cold]
    fn disorder(&self, last: &[u8]) -> LevelDbError {
        let (key, last) = (key::shown(self.user_key()), key::shown(last));
        let message = format!("the keys are not in order: {key} comes after {last}");
        match self {
            // The memtable is sorted, and the heap returns the least key first.
            Child::Memory(_) => unreachable!("the logs' writes are sorted, but {message}"),
            Child::Level(level) => level.key_error(message),
        }
    }
}

/// A cursor over the memtable.
#[derive(Debug)]
struct MemoryCursor {
    database: Arc<Database>,
    position: usize,
}

impl MemoryCursor {
    fn seek(&mut self, start: &[u8]) -> bool {
        self.position = self.database.memtable.position(start, &self.database.store);
        self.position < self.database.memtable.len()
    }

    #[inline]
    fn advance(&mut self) -> bool {
        self.position += 1;
        self.position < self.database.memtable.len()
    }

    #[inline]
    fn write(&self) -> Option<&Write> {
        self.database.memtable.get(self.position)
    }

    #[inline]
    fn user_key(&self) -> &[u8] {
        self.write().map(|write| self.database.store.bytes(write.key)).unwrap_or_default()
    }

    #[inline]
    fn tag(&self) -> Tag {
        self.write().map(|write| write.tag).unwrap_or_default()
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        match self.write() {
            Some(write) => self.database.entry(write),
            None => Entry::of_cursor(&[], &[]),
        }
    }
}
