//! The cursor over a database's records.

#![expect(unsafe_code, reason = "records of a mapped file are lent")]

use std::ops::Range;
use std::sync::Arc;

use super::Lmdb;
use super::by_position::PositionCursor;
use super::environment::View;
use super::fault::Fault;
use super::page::{Holds, Leaf, Place, Value};
use super::pages::Pages;
use super::tree::Walk;
use super::values::Values;
use crate::record::RecordId;
use crate::source::page_cache::PageCache;
use crate::source::{Cursor, Entry, HeldBytes, Lender, Run, SourceError};

/// Who checks the page that a large value starts on. Checking it may mean waiting for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heads {
    /// The cursor, when it reaches the value.
    ByCursor,
    /// The value's consumer, through its lender. In a file that is not mapped, the cursor has read the head
    /// anyway, and leaves the handling of a wrong one to the consumer.
    ByUser,
}

/// How many records ahead of the cursor the head of a large value is prefetched.
const HEADS_AHEAD: u16 = 8;

/// A cursor. It stays on one thread; what it lends does not.
pub(super) struct LmdbCursor {
    walk: Walk,
    /// Declared, hence dropped, before the lender, which keeps the map.
    page_cache: PageCache,
    /// The cursor by position, after a seek; `None` while this one walks the tree.
    by_position: Option<PositionCursor>,
    /// The position before which the cursor stops or seeks elsewhere after its next seek.
    until: u64,
    heads: Heads,
    /// The buffer for values of a file that is not mapped.
    values: Values,
    /// What is wrong with the last record, if its user reports that.
    damage: Option<SourceError>,
    /// The key of the last record, and where its value is, if the buffer of `values` holds only that value.
    alone: (Vec<u8>, Option<Range<usize>>),
    /// The view, as the holders of lent bytes keep it.
    lender: Lender,
    view: Arc<View>,
    source: Lmdb,
    /// The position of the next step.
    position: u64,
}

impl LmdbCursor {
    pub(super) fn open(source: &Lmdb, heads: Heads) -> Result<Self, SourceError> {
        let view = Arc::new(View::begin(&source.environment)?);
        let tree = source.tree(&view)?;
        let lender = Lender::verifying(view.clone());
        // SAFETY: what the cursor reads is in the view's map, which was made before, and which `lender` keeps
        // for longer than the cursor keeps this. For a file that is not mapped, it is given no bytes.
        let page_cache = unsafe { view.page_cache() };
        Ok(LmdbCursor {
            walk: view.walk(tree, Holds::Records),
            page_cache,
            by_position: None,
            until: u64::MAX,
            heads,
            values: Values::default(),
            damage: None,
            alone: (Vec::new(), None),
            lender,
            view,
            source: source.clone(),
            position: 0,
        })
    }

    /// Uses the index from here on, if there is one.
    fn seek_by_index(&mut self) {
        if self.by_position.is_some() {
            return;
        }
        let by_position = |indexed| PositionCursor::new(indexed, &self.view);
        self.by_position = self.source.index_within(self.view.transaction()).map(by_position);
        if let Some(by_position) = &mut self.by_position {
            by_position.reads_until(self.until);
        }
    }

    /// Steps to the next record; `None` past the last one.
    #[inline]
    fn step(&mut self) -> Result<Option<Place>, SourceError> {
        let place = match &mut self.by_position {
            Some(by_position) => by_position.step(&self.source, self.position)?,
            None => {
                let pages = self.view.pages();
                let stepped = self.walk.step(pages).and_then(|place| {
                    // What was read belongs to the view if nobody has committed since.
                    if self.walk.is_at_leaf_start() { self.view.check().map(|()| place) } else { Ok(place) }
                });
                stepped.map_err(|fault| self.view.error(fault, self.walk.last_key()))?
            }
        };
        // The same holds for lent bytes. Workers check after use. Consumers of a plain cursor do not, so the
        // cursor checks for them.
        if self.heads == Heads::ByCursor && self.view.pages().is_mapped() {
            self.view.check().map_err(|fault| self.view.error(fault, None))?;
        }
        self.position += u64::from(place.is_some());
        Ok(place)
    }

    /// Reads the record at this place of a file that is not mapped. The cursor has just reached it.
    fn read(&mut self, place: Place) -> Result<Entry<'_>, SourceError> {
        let Self { walk, by_position, values, view, alone, heads, damage, .. } = self;
        let (held, pages) = match by_position {
            Some(by_position) => (Some(by_position.held()), &**by_position.view().pages()),
            None => (walk.held(), &**view.pages()),
        };
        let bytes = held.map(|held| pages.bytes(held)).unwrap_or_default();
        let record = Leaf::parse(bytes, place.page).and_then(|leaf| leaf.record(usize::from(place.node)));
        let (key, value) = record.map_err(|fault| view.error(fault, None))?;
        let (page, bytes) = match value {
            Value::Inline(value) => return Ok(Entry::borrowed(key, value)),
            Value::Overflow { page, bytes } => (page, bytes),
        };
        let read = values.read(pages, page, bytes).and_then(|(read, is_new)| {
            if is_new {
                view.check()?;
            }
            Ok(read)
        });
        let read = match read {
            Ok(read) => read,
            // The head of the value: what else could be wrong with its pages was checked with the leaf.
            Err(fault @ Fault::Page { .. }) if *heads == Heads::ByUser => {
                // What somebody wrote in the meantime looks wrong too.
                view.check().map_err(|fault| view.error(fault, None))?;
                let damage = damage.insert(view.error(fault, Some(key)));
                return Ok(Entry::damaged(key, values.here(pages, page, bytes), damage));
            }
            Err(fault) => return Err(view.error(fault, Some(key))),
        };
        let entry = Entry::borrowed(key, values.bytes(read.range.clone()));
        let can_be_given = read.is_alone && key.len() <= read.range.start;
        if *heads == Heads::ByCursor || !can_be_given {
            return Ok(entry);
        }
        alone.0.clear();
        alone.0.extend_from_slice(key);
        alone.1 = Some(read.range);
        Ok(entry.whole())
    }
}

/// Prefetches the heads of large values that the cursor reaches soon; otherwise it would wait for each of
/// them. On a leaf that the cursor has just entered, these are the first ones.
#[inline]
fn ask_for_heads(pages: &Pages, place: Place) {
    let ahead = place.node.saturating_add(HEADS_AHEAD);
    let first = if place.node == 0 { 1 } else { ahead };
    for node in first..=ahead {
        pages.ask_for_value_head(Place { node, ..place });
    }
}

/// A record of a mapped file, and its lender.
pub(super) struct Mapped<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
    view: &'a View,
    lender: &'a Lender,
}

impl<'a> Mapped<'a> {
    #[inline]
    pub(super) fn at(place: Place, view: &'a View, lender: &'a Lender) -> Result<Self, SourceError> {
        let pages = view.pages();
        let record = || {
            let bytes = pages.mapped(place.page).unwrap_or_default();
            let (key, value) = Leaf::parse(bytes, place.page)?.record(usize::from(place.node))?;
            let value = match value {
                Value::Inline(value) => value,
                Value::Overflow { page, bytes } => pages.overflow(page, bytes)?,
            };
            Ok(Mapped { key, value, view, lender })
        };
        record().map_err(|fault| view.error(fault, None))
    }
}

impl Cursor for LmdbCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        let Some(place) = self.step()? else { return Ok(None) };
        if !self.view.pages().is_mapped() {
            return self.read(place).map(Some);
        }
        let Mapped { key, value, view, lender } = match &mut self.by_position {
            Some(by_position) => by_position.record_at(place, true)?,
            None => {
                if self.heads == Heads::ByCursor {
                    ask_for_heads(self.view.pages(), place);
                }
                let record = Mapped::at(place, &self.view, &self.lender)?;
                self.page_cache.took(record.value);
                record
            }
        };
        // Read-ahead was requested before: this waits for the page.
        if self.heads == Heads::ByCursor {
            view.pages().check_value(value).map_err(|fault| view.error(fault, Some(key)))?;
        }
        // SAFETY: the record is in the view's map, which is never written to, and `lender` holds the view,
        // which keeps it. What another process could do to the file is the caveat of every map, which
        // `Access::Mapped` names.
        Ok(Some(unsafe { Entry::lent(key, value, lender) }))
    }

    fn skip(&mut self) -> Result<bool, SourceError> {
        let Some(place) = self.step()? else { return Ok(false) };
        if self.view.pages().is_mapped() {
            match &mut self.by_position {
                Some(by_position) => by_position.record_at(place, false).map(|_| ())?,
                None => {
                    let record = Mapped::at(place, &self.view, &self.lender)?;
                    self.page_cache.passed_over(record.value);
                }
            }
        }
        Ok(true)
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        (self.position, self.by_position) = (0, None);
        self.walk.rewind();
        Ok(())
    }

    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        if position == self.position {
            return Ok(());
        }
        self.seek_by_index();
        if let Some(by_position) = &mut self.by_position {
            by_position.jump();
            self.position = position;
            return Ok(());
        }
        if position < self.position {
            self.rewind()?;
        }
        while self.position < position && self.skip()? {}
        Ok(())
    }

    fn commit(&mut self) -> u64 {
        self.view.transaction()
    }

    fn reads_until(&mut self, position: u64) {
        self.until = position;
        if position != u64::MAX {
            // A walk through the tree does not know where that is.
            self.seek_by_index();
        }
        if let Some(by_position) = &mut self.by_position {
            by_position.reads_until(position);
        }
    }

    fn foresee(&mut self, position: u64) {
        if let Some(by_position) = &mut self.by_position {
            by_position.foresee(position);
        }
    }

    fn give(&mut self, id: RecordId, run: &mut Run) -> bool {
        let Some(value) = self.alone.1.take() else { return false };
        run.exchange(id, &self.alone.0, self.values.buffer(), value);
        true
    }

    fn held_bytes(&mut self, value_bytes: usize) -> HeldBytes {
        let own = match self.view.pages().is_mapped() {
            true => 0,
            false => self.walk.held_bytes().saturating_add(self.values.held_bytes(value_bytes)),
        };
        HeldBytes { own, shared: 0 }
    }
}
