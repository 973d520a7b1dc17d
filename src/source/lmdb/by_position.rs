//! A walk from a position on: each record is looked up in the index, and read on its page. A page is checked when the first
//! walk comes to it; what the branches above say of it was checked when the index was made.

#![expect(unsafe_code, reason = "a walk that goes on for a while has the system read ahead in the map")]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fmt;
use std::sync::Arc;

use super::Lmdb;
use super::cursor::Mapped;
use super::environment::View;
use super::index::Indexed;
use super::page::{Bounds, Holds, Leaf, Place};
use super::pages::Held;
use crate::source::page_cache::PageCache;
use crate::source::{Dealt, Lender, SourceError};

/// Steps after a jump from which on the walk is looked at as one through the file, for which that is read ahead.
const STEPS_APART: u32 = 4;

/// Steps after a jump for which a large value is asked for when the walk comes to it: by then it is read ahead.
const STEPS_ASKED_FOR: u32 = 24;

/// How many steps a page's head has for its way from memory.
const FORESEEN: usize = 4;

/// What a large value is: of a smaller one the pages are read soon enough by whoever uses it.
const VALUE_BYTES: usize = 16 << 10;

/// A walk that was sent to a position, within a transaction.
pub(super) struct PositionCursor {
    indexed: Indexed,
    /// The page of the last step, where the file is not mapped.
    held: Held,
    held_number: u64,
    /// Since the last jump.
    steps: u32,
    /// What the system keeps in memory for the walk, once it goes on from record to record. Declared, hence dropped, before
    /// the view, which keeps the map.
    page_cache: Option<PageCache>,
    drops_behind: bool,
    /// Where the walk goes on to, and whether `page_cache` has been told.
    until: u64,
    is_end_told: bool,
    /// Where the walk will come to, and what of that is on its way to the processor's cache.
    foreseen: [Option<Place>; FORESEEN],
    /// What the walk sees, in the map that is told of walks by index.
    view: Arc<View>,
    lender: Lender,
}

impl fmt::Debug for PositionCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PositionCursor").field("steps", &self.steps).finish_non_exhaustive()
    }
}

impl PositionCursor {
    pub(super) fn new(indexed: Indexed, view: &View, drops_behind: bool) -> Self {
        let view = Arc::new(view.on(indexed.pages.clone()));
        let lender = Lender::keeping(view.clone());
        PositionCursor {
            indexed,
            held: Held::default(),
            held_number: 0,
            steps: 0,
            page_cache: None,
            drops_behind,
            until: u64::MAX,
            is_end_told: true,
            foreseen: [None; FORESEEN],
            view,
            lender,
        }
    }

    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// The next step is somewhere else. What the system has in memory for the walk is kept: it sees for itself that the
    /// walk has gone elsewhere, and what is behind it is still to be dropped.
    pub(super) fn jump(&mut self) {
        // Where the walk was going on, the system may have been told that it is.
        if self.steps >= STEPS_APART {
            self.view.pages().read_singly();
        }
        if let Some(page_cache) = &mut self.page_cache {
            page_cache.jump(self.until != u64::MAX);
        }
        self.steps = 0;
    }

    /// What is read ahead is to end before this position.
    pub(super) fn goes_on_until(&mut self, position: u64) {
        (self.until, self.is_end_told) = (position, false);
    }

    pub(super) fn leave(&mut self) {
        if let Some(page_cache) = &mut self.page_cache {
            page_cache.leave();
        }
    }

    pub(super) fn dealt(&mut self, dealt: Dealt) {
        if let Some(page_cache) = &mut self.page_cache {
            page_cache.dealt(dealt);
        }
    }

    /// Asks for what the step to a position will look at: the head of its page, and, once that has come, its node.
    #[inline]
    pub(super) fn foresee(&mut self, position: u64) {
        let pages = self.view.pages();
        let place =
            self.indexed.index.place(position).ok().flatten().map(|[number]| Place::of_number(number));
        if let Some(place) = place {
            pages.ask_for_head(place.page);
        }
        self.foreseen.rotate_left(1);
        let [.., newest] = &mut self.foreseen;
        if let Some(earlier) = std::mem::replace(newest, place) {
            pages.ask_for_node(earlier);
        }
    }

    /// Comes to the record at a position; `None` past the last one.
    #[inline]
    pub(super) fn step(&mut self, source: &Lmdb, position: u64) -> Result<Option<Place>, SourceError> {
        let Some(place) = self.place(source, position)? else { return Ok(None) };
        let (view, pages) = (&self.view, self.view.pages());
        if !pages.is_mapped() && place.page != self.held_number {
            // Nothing is there if it cannot be read.
            self.held_number = 0;
            let held = pages.hold(place.page, &mut self.held).and_then(|()| view.check());
            held.map_err(|fault| view.error(fault, None))?;
            self.held_number = place.page;
        }
        if !self.indexed.checked.has(place.page) {
            self.check(place.page)?;
        }
        self.steps = self.steps.saturating_add(1);
        Ok(Some(place))
    }

    #[inline]
    fn place(&mut self, source: &Lmdb, position: u64) -> Result<Option<Place>, SourceError> {
        let place = match self.indexed.index.place(position) {
            Ok(place) => place,
            Err(damage) => {
                self.indexed = source.mend(&self.view, &damage)?;
                self.indexed.index.place(position).unwrap_or_default()
            }
        };
        Ok(place.map(|[number]| Place::of_number(number)))
    }

    /// Checks a leaf that no walk has come to by this index.
    #[cold]
    fn check(&self, page: u64) -> Result<(), SourceError> {
        let (view, pages) = (&self.view, self.view.pages());
        let bytes = match pages.is_mapped() {
            true => pages.mapped(page).unwrap_or_default(),
            false => pages.bytes(&self.held),
        };
        let free = view.free();
        let checked = free.check(page).and_then(|()| Leaf::parse(bytes, page)).and_then(|leaf| {
            leaf.check(&self.indexed.tree, Bounds::default(), pages.file_bytes(), Holds::Records, free)?;
            view.check()
        });
        checked.map_err(|fault| view.error(fault, None))?;
        self.indexed.checked.add(page);
        Ok(())
    }

    /// The page of the last step, of a file that is not mapped.
    pub(super) fn held(&self) -> &Held {
        &self.held
    }

    /// The record of a mapped file that the last step came to; whether it is taken, or nobody will touch its value.
    #[inline]
    pub(super) fn came_to(&mut self, place: Place, is_taken: bool) -> Result<Mapped<'_>, SourceError> {
        // What is to be dropped is known of from the first on. Before what is read ahead is asked for, which is to end there.
        let is_going_on = self.steps >= STEPS_APART || self.drops_behind;
        if is_going_on && !(self.page_cache.is_some() && self.is_end_told) {
            self.begin_going_on();
        }
        let record = Mapped::at(place, &self.view, &self.lender)?;
        if is_taken && self.steps < STEPS_ASKED_FOR && record.value.len() >= VALUE_BYTES {
            self.view.pages().will_need_bytes(record.value);
        }
        match &mut self.page_cache {
            Some(page_cache) if is_going_on && is_taken => page_cache.took(record.key, record.value),
            Some(page_cache) if is_going_on => page_cache.passed_over(record.key, record.value),
            _ => {}
        }
        Ok(record)
    }

    /// Tells the system where the last value lies that the walk goes on to. Its leaf is looked at, to which the walk comes soon.
    #[cold]
    fn begin_going_on(&mut self) {
        let page_cache = self.page_cache.get_or_insert_with(|| {
            // SAFETY: what this walk comes to lies in the view's map, which is there, and which `view` keeps for longer than
            // this is kept.
            let mut page_cache = unsafe { self.view.page_cache() };
            if self.drops_behind {
                page_cache.drop_behind();
            }
            page_cache
        });
        if self.is_end_told {
            return;
        }
        let last = self.until.checked_sub(1).filter(|_| self.until != u64::MAX);
        let place = last.and_then(|last| self.indexed.index.place(last).ok().flatten());
        let place = place.map(|[number]| Place::of_number(number));
        let last = place.and_then(|place| Mapped::at(place, &self.view, &self.lender).ok());
        self.is_end_told = page_cache.goes_on_until(last.map(|record| record.value));
    }
}
