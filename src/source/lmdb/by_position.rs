//! A cursor by position: each record is looked up in the index, and read on its page. A page is checked when
//! the first cursor reaches it. What the branches above say about it was checked when the index was built.

#![expect(unsafe_code, reason = "a cursor that continues for a while has the kernel read ahead in the map")]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fmt;
use std::sync::Arc;

use super::Lmdb;
use super::cursor::Mapped;
use super::environment::View;
use super::index::Indexed;
use super::page::{Bounds, Holds, Leaf, Place};
use super::pages::Held;
use crate::source::index::Damage;
use crate::source::page_cache::PageCache;
use crate::source::{Lender, SourceError};

/// After this many steps since a jump, the cursor counts as moving through the file, which is then read ahead
/// of it.
const STEPS_APART: u32 = 4;

/// For this many steps after a jump, a large value is requested when the cursor reaches it. After that,
/// read-ahead has requested it already.
const STEPS_ASKED_FOR: u32 = 24;

/// How many steps after its page's head a node is prefetched into the processor's cache: by then the head has
/// arrived there.
const FORESEEN: usize = 4;

/// Values of at least this length are large. The pages of a smaller value are read soon enough by its
/// consumer.
const VALUE_BYTES: usize = 16 << 10;

/// A cursor that has sought to a position, within a transaction.
pub(super) struct PositionCursor {
    indexed: Indexed,
    /// The page of the last step, if the file is not mapped.
    held: Held,
    held_number: u64,
    /// The number of steps since the last jump.
    steps: u32,
    /// The page cache of the map, once the cursor continues from record to record. Declared, hence dropped,
    /// before the view, which keeps the map.
    page_cache: Option<PageCache>,
    /// The position before which the cursor stops or seeks elsewhere (`u64::MAX` if unknown), and whether
    /// `page_cache` knows it.
    until: u64,
    is_end_set: bool,
    /// The next places of the cursor, which are being prefetched into the processor's cache.
    foreseen: [Option<Place>; FORESEEN],
    /// What the cursor sees, in the map of cursors by index.
    view: Arc<View>,
    lender: Lender,
}

impl fmt::Debug for PositionCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PositionCursor").field("steps", &self.steps).finish_non_exhaustive()
    }
}

impl PositionCursor {
    pub(super) fn new(indexed: Indexed, view: &View) -> Self {
        let view = Arc::new(view.on(indexed.pages.clone()));
        let lender = Lender::verifying(view.clone());
        PositionCursor {
            indexed,
            held: Held::default(),
            held_number: 0,
            steps: 0,
            page_cache: None,
            until: u64::MAX,
            is_end_set: true,
            foreseen: [None; FORESEEN],
            view,
            lender,
        }
    }

    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// The next step is in another place. `page_cache` stays: it notices by itself that the cursor has moved.
    pub(super) fn jump(&mut self) {
        // While the cursor continued from record to record, the kernel may have been advised so.
        if self.steps >= STEPS_APART {
            self.view.pages().read_singly();
        }
        if let Some(page_cache) = &mut self.page_cache {
            page_cache.jump(self.until != u64::MAX);
        }
        self.steps = 0;
    }

    /// Ends read-ahead before this position.
    pub(super) fn reads_until(&mut self, position: u64) {
        (self.until, self.is_end_set) = (position, false);
    }

    /// Prefetches what the step to a position will read: the head of its page, and, once that has arrived,
    /// its node.
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

    /// Seeks to the record at a position; `None` past the last one.
    #[inline]
    pub(super) fn step(&mut self, source: &Lmdb, position: u64) -> Result<Option<Place>, SourceError> {
        let Some(place) = self.place(source, position)? else { return Ok(None) };
        let (view, pages) = (&self.view, self.view.pages());
        if !pages.is_mapped() && place.page != self.held_number {
            // If reading fails, no page is held.
            self.held_number = 0;
            let held = pages.hold(place.page, &mut self.held).and_then(|()| view.check());
            held.map_err(|fault| view.error(fault, None))?;
            self.held_number = place.page;
        }
        if !self.indexed.checked.has(place.page) {
            self.check(source, position, place)?;
        }
        self.steps = self.steps.saturating_add(1);
        Ok(Some(place))
    }

    #[inline]
    fn place(&mut self, source: &Lmdb, position: u64) -> Result<Option<Place>, SourceError> {
        let place = match self.indexed.index.place(position) {
            Ok(place) => place,
            Err(damage) => {
                self.indexed = source.rebuild_index(&self.view, &damage)?;
                self.indexed.index.place(position).unwrap_or_default()
            }
        };
        Ok(place.map(|[number]| Place::of_number(number)))
    }

    /// Checks a leaf that no cursor has reached by this index, and that the index is of this leaf.
    #[cold]
    fn check(&mut self, source: &Lmdb, position: u64, place: Place) -> Result<(), SourceError> {
        let (view, pages) = (&self.view, self.view.pages());
        let bytes = match pages.is_mapped() {
            true => pages.mapped(place.page).unwrap_or_default(),
            false => pages.bytes(&self.held),
        };
        let free = view.free();
        let checked = free.check(place.page).and_then(|()| Leaf::parse(bytes, place.page)).and_then(|leaf| {
            leaf.check(&self.indexed.tree, Bounds::default(), pages.file_bytes(), Holds::Records, free)?;
            view.check().map(|()| leaf.len() as u64)
        });
        let records = checked.map_err(|fault| view.error(fault, None))?;
        let is_as_indexed = match is_as_indexed(&self.indexed, position, place, records) {
            Ok(is_as_indexed) => is_as_indexed,
            Err(damage) => {
                self.indexed = source.rebuild_index(&self.view, &damage)?;
                self.indexed.index.place(position).is_ok_and(|found| found == Some([place.to_number()]))
            }
        };
        if !is_as_indexed {
            return Err(SourceError::NoPositions {
                path: source.path.clone(),
                found: format!(
                    "its index is of another file: it does not have the {records} records of page {}",
                    place.page
                ),
                hint: "remove the index, which is made anew",
            });
        }
        self.indexed.checked.add(place.page);
        Ok(())
    }

    /// The page of the last step, if the file is not mapped.
    pub(super) fn held(&self) -> &Held {
        &self.held
    }

    /// The record of a mapped file that the last step reached. `is_taken` is whether its value will be used.
    #[inline]
    pub(super) fn record_at(&mut self, place: Place, is_taken: bool) -> Result<Mapped<'_>, SourceError> {
        // The end is set before anything is read ahead, because read-ahead ends there.
        let continues = self.steps >= STEPS_APART;
        if continues && !(self.page_cache.is_some() && self.is_end_set) {
            self.start_read_ahead();
        }
        let record = Mapped::at(place, &self.view, &self.lender)?;
        if is_taken && self.steps < STEPS_ASKED_FOR && record.value.len() >= VALUE_BYTES {
            self.view.pages().will_need_bytes(record.value);
        }
        match &mut self.page_cache {
            Some(page_cache) if continues && is_taken => page_cache.took(record.value),
            Some(page_cache) if continues => page_cache.passed_over(record.value),
            _ => {}
        }
        Ok(record)
    }

    /// Starts read-ahead, up to the last value that the cursor continues to. This reads that value's leaf,
    /// which the cursor reaches soon.
    #[cold]
    fn start_read_ahead(&mut self) {
        let page_cache = self.page_cache.get_or_insert_with(|| {
            // SAFETY: what this cursor reads is in the view's map, which exists, and which `view` keeps for
            // longer than this is kept.
            unsafe { self.view.page_cache() }
        });
        if self.is_end_set {
            return;
        }
        let last = self.until.checked_sub(1).filter(|_| self.until != u64::MAX);
        let place = last.and_then(|last| self.indexed.index.place(last).ok().flatten());
        let place = place.map(|[number]| Place::of_number(number));
        let last = place.and_then(|place| Mapped::at(place, &self.view, &self.lender).ok());
        self.is_end_set = page_cache.reads_until(last.map(|record| record.value));
    }
}

/// Whether the records of a leaf, one of which is at this position, are those that the index has there, by
/// the first and the last of them. An index of another file with the same identity would skip records, and
/// return others twice.
fn is_as_indexed(indexed: &Indexed, position: u64, place: Place, records: u64) -> Result<bool, Damage> {
    let Some(first) = position.checked_sub(place.node.into()) else { return Ok(false) };
    let place_of = |position: u64| {
        indexed.index.place(position).map(|place| place.map(|[number]| Place::of_number(number)))
    };
    let last = first.saturating_add(records).saturating_sub(1);
    let is_last =
        |found: Place| found.page == place.page && u64::from(found.node).saturating_add(1) == records;
    Ok(place_of(first)?.is_some_and(|found| found == Place { node: 0, ..place })
        && place_of(last)?.is_some_and(is_last)
        && place_of(last.saturating_add(1))?.is_none_or(|next| next.page != place.page))
}
