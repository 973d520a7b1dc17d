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
//! - when it leaves the block, if nobody took its deferred checksum.
//!
//! The one thing a damaged block can still do is to have other records than it had. The user of any of those
//! records finds the damage, and at least one of them was handed over.

use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::Arc;

use percolator_table::Verify;

use super::BY_THE_USER;
use super::ahead::{Ahead, Pool};
use super::batch::Write;
use super::database::Database;
use super::index::RecordPlace;
use super::key::{self, Tag};
use super::level::LevelCursor;
use crate::record::RecordId;
use crate::source::internals::{CursorInternals, HeldBytes};
use crate::source::{Cursor, Entry, Run, SourceError};
use percolator_files::Reading;

/// A walk over the keys from `start` (inclusive) to `end` (exclusive).
#[derive(Debug)]
pub(super) struct MergeCursor {
    database: Arc<Database>,
    start: Box<[u8]>,
    end: Option<Box<[u8]>>,
    /// Where the walk begins instead of at `start`, until it is rewound; empty if it begins at `start`. Kept
    /// for its buffer.
    from: Vec<u8>,
    children: Vec<Child>,
    /// The children that have an entry, as a heap: the first one's entry is the next of the walk.
    heap: Vec<usize>,
    /// The key of the last step, and its tag. Writes of the same key that follow are older.
    key: Vec<u8>,
    tag: Tag,
    /// What helpers unpack ahead of the children, if there are helpers.
    pool: Option<Rc<Pool>>,
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
    Failed(SourceError),
}

impl MergeCursor {
    /// Returns a walk over everything, for users that check the deferred checksums of entries before using
    /// their values.
    pub(super) fn deferring(database: &Arc<Database>, pool: Option<Rc<Pool>>) -> Self {
        Self::with(database, (&[], None), BY_THE_USER, pool)
    }

    pub(super) fn new(database: &Arc<Database>, start: &[u8], end: Option<&[u8]>) -> Self {
        Self::with(database, (start, end), Verify::AtOnce, None)
    }

    fn with(
        database: &Arc<Database>,
        (start, end): (&[u8], Option<&[u8]>),
        verify: Verify,
        pool: Option<Rc<Pool>>,
    ) -> Self {
        let mut children = Vec::new();
        if !database.memtable().is_empty() {
            children.push(Child::Memory(MemoryCursor { database: database.clone(), position: 0 }));
        }
        let newest = 0..database.tables(0).len();
        let ahead = || pool.as_ref().map(Ahead::new);
        let level = |level, tables| Child::Level(LevelCursor::new(database, level, tables, verify, ahead()));
        children.extend(newest.map(|table| level(0, table..table + 1)));
        for number in 1..database.levels() {
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
            pool,
            state: State::Start,
        }
    }

    fn start(&mut self) -> Result<(), SourceError> {
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

    /// Restarts the walk before the first key that is greater than `key`.
    pub(super) fn go_after(&mut self, key: &[u8]) {
        self.from.clear();
        self.from.extend_from_slice(key);
        self.from.push(0);
        self.state = State::Start;
    }

    /// Closes tables that are read instead of mapped, until the walk restarts [after a key](Self::go_after)
    /// or is rewound.
    pub(super) fn rest(&mut self) {
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

    /// Sets the table of some level up to which the walk reads before it jumps elsewhere.
    pub(super) fn reads_until_table(&mut self, table: Option<(usize, usize)>) {
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
    pub(super) fn next_place(&mut self) -> Result<Option<RecordPlace>, SourceError> {
        if !self.step()? {
            return Ok(None);
        }
        let child = &self.children[self.heap[0]];
        match child {
            Child::Memory(memory) => Ok(Some(RecordPlace::Memory(memory.position))),
            Child::Level(level) => level.place().map(Some),
        }
    }

    /// Moves to the next write that is the newest of its key and not a deletion; returns `false` past the
    /// last one.
    #[inline]
    fn step(&mut self) -> Result<bool, SourceError> {
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
    fn pass(&mut self) -> Result<(), SourceError> {
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

impl Cursor for MergeCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        match self.step() {
            Ok(true) => Ok(Some(self.children[self.heap[0]].entry())),
            Ok(false) => Ok(None),
            Err(error) => {
                self.state = State::Failed(error.clone());
                Err(error)
            }
        }
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.from.clear();
        self.state = State::Start;
        Ok(())
    }

    fn internals(&mut self) -> Option<&mut dyn CursorInternals> {
        Some(self)
    }
}

impl CursorInternals for MergeCursor {
    fn give(&mut self, id: RecordId, run: &mut Run) -> bool {
        match self.heap.first().map(|&top| &mut self.children[top]) {
            Some(Child::Level(level)) => level.give(id, run),
            _ => false,
        }
    }

    fn held_bytes(&mut self, _value_bytes: usize) -> HeldBytes {
        let packed = self.children.iter().filter(|child| child.is_packed()).count();
        let levels = self.children.iter().filter_map(|child| match child {
            Child::Memory(_) => None,
            Child::Level(level) => Some(level),
        });
        let own = levels.clone().map(LevelCursor::read_bytes_max).fold(0, usize::saturating_add);
        // Tables of other databases that share the pool count as compressed too.
        let pool = self.pool.as_ref().filter(|_| packed > 0);
        let shared = pool.map(|pool| pool.held_bytes(packed + pool.tables().saturating_sub(levels.count())));
        HeldBytes { own, shared: shared.unwrap_or_default() }
    }
}

/// A source of the merge.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a walk has only one small child")]
enum Child {
    Memory(MemoryCursor),
    Level(LevelCursor),
}

impl Child {
    fn seek(&mut self, start: &[u8]) -> Result<bool, SourceError> {
        match self {
            Child::Memory(memory) => Ok(memory.seek(start)),
            Child::Level(level) => level.seek(start),
        }
    }

    #[inline]
    fn advance(&mut self) -> Result<bool, SourceError> {
        match self {
            Child::Memory(memory) => Ok(memory.advance()),
            Child::Level(level) => level.advance(),
        }
    }

    /// Verifies the current block, unless that is done already.
    #[inline]
    fn verify(&mut self) -> Result<(), SourceError> {
        match self {
            Child::Memory(_) => Ok(()),
            Child::Level(level) => level.verify(),
        }
    }

    fn is_packed(&self) -> bool {
        match self {
            Child::Memory(_) => false,
            Child::Level(level) => level.is_packed(),
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
    fn disorder(&self, last: &[u8]) -> SourceError {
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
        self.position = self.database.memtable().position(start, self.database.lending().store());
        self.position < self.database.memtable().len()
    }

    fn advance(&mut self) -> bool {
        self.position += 1;
        self.position < self.database.memtable().len()
    }

    fn write(&self) -> Option<&Write> {
        self.database.memtable().get(self.position)
    }

    #[inline]
    fn user_key(&self) -> &[u8] {
        self.write().map(|write| self.database.lending().store().bytes(write.key)).unwrap_or_default()
    }

    #[inline]
    fn tag(&self) -> Tag {
        self.write().map(|write| write.tag).unwrap_or_default()
    }

    #[inline]
    fn entry(&self) -> Entry<'_> {
        match self.write() {
            Some(write) => self.database.lending().entry(write.key, write.value),
            None => Entry::borrowed(&[], &[]),
        }
    }
}
