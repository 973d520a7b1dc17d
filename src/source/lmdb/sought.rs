//! A walk from a position on: each record is looked up in the index, and read on its page.

#![expect(unsafe_code, reason = "a walk that goes on for a while has the system read ahead in the map")]
#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::fmt;
use std::sync::Arc;

use super::Lmdb;
use super::page::{Pages, Place, Record};
use crate::source::index::RecordIndex;
use crate::source::resident::Resident;
use crate::source::{Dealt, SourceError};

/// Steps after a jump from which on the walk is looked at as one through the file, for which that is read ahead.
const STEPS_APART: u32 = 4;

/// Steps after a jump for which a large value is asked for when the walk comes to it: by then it is read ahead.
const STEPS_ASKED_FOR: u32 = 24;

/// How many steps a page's head has for its way from memory.
const FORESEEN: usize = 4;

/// What a large value is: of a smaller one the pages are read soon enough by whoever uses it.
const VALUE_BYTES: usize = 16 << 10;

/// A walk that was sent to a position, within a transaction.
pub(super) struct Sought {
    index: Arc<RecordIndex>,
    /// The number of the commit that the walk sees, and the index is of.
    transaction: u64,
    /// Since the last jump.
    steps: u32,
    /// What the system keeps in memory for the walk, once it goes on from record to record.
    resident: Option<Resident>,
    drops_behind: bool,
    /// Where the walk goes on to, and whether `resident` has been told.
    until: u64,
    is_end_told: bool,
    /// Where the walk will come to, and what of that is on its way to the processor's cache.
    foreseen: [Option<Place>; FORESEEN],
}

impl fmt::Debug for Sought {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sought").field("steps", &self.steps).finish_non_exhaustive()
    }
}

impl Sought {
    /// # Safety
    ///
    /// The environment of the sources that it is given stays for as long as the result lives, and is one.
    pub(super) unsafe fn new(index: Arc<RecordIndex>, transaction: u64, drops_behind: bool) -> Self {
        let (steps, resident, foreseen) = (0, None, [None; FORESEEN]);
        let (until, is_end_told) = (u64::MAX, true);
        Sought { index, transaction, steps, resident, drops_behind, until, is_end_told, foreseen }
    }

    /// The next step is somewhere else. What the system has in memory for the walk is kept: it sees for itself that the
    /// walk has gone elsewhere, and what is behind it is still to be dropped.
    pub(super) fn jump(&mut self, source: &Lmdb) {
        // Where the walk was going on, the system may have been told that it is.
        if self.steps >= STEPS_APART {
            pages(source).read_singly();
        }
        if let Some(resident) = &mut self.resident {
            resident.jump(self.until != u64::MAX);
        }
        self.steps = 0;
    }

    /// What is read ahead is to end before this position.
    pub(super) fn goes_on_until(&mut self, position: u64) {
        (self.until, self.is_end_told) = (position, false);
    }

    pub(super) fn leave(&mut self) {
        if let Some(resident) = &mut self.resident {
            resident.leave();
        }
    }

    pub(super) fn dealt(&mut self, dealt: Dealt) {
        if let Some(resident) = &mut self.resident {
            resident.dealt(dealt);
        }
    }

    /// Asks for what the step to a position will look at: the head of its page, and, once that has come, its node.
    #[inline]
    pub(super) fn foresee(&mut self, source: &Lmdb, position: u64) {
        let pages = pages(source);
        let place = self.index.place(position).ok().flatten().map(|[number]| Place::of_number(number));
        if let Some(place) = place {
            pages.ask_for_head(place.page);
        }
        self.foreseen.rotate_left(1);
        let [.., newest] = &mut self.foreseen;
        if let Some(earlier) = std::mem::replace(newest, place) {
            pages.ask_for_node(earlier);
        }
    }

    /// The record at a position, and the position behind it; `None` past the last one.
    #[inline]
    pub(super) fn step<'source>(
        &mut self,
        source: &'source Lmdb,
        position: &mut u64,
        is_taken: bool,
    ) -> Result<Option<Record<'source>>, SourceError> {
        let Some(place) = self.place(source, *position)? else { return Ok(None) };
        let pages = pages(source);
        let record = pages.leaf(place.page).and_then(|leaf| leaf.record(usize::from(place.node)));
        let (key, value) = record.map_err(|fault| source.page_error(fault))?;
        *position = position.saturating_add(1);
        self.steps = self.steps.saturating_add(1);
        if is_taken && self.steps < STEPS_ASKED_FOR && value.len() >= VALUE_BYTES {
            pages.will_need_bytes(value);
        }
        // What is to be dropped is known of from the first on.
        if self.steps >= STEPS_APART || self.drops_behind {
            self.came_to(source, key, value, is_taken);
        }
        Ok(Some((key, value)))
    }

    #[inline]
    fn place(&mut self, source: &Lmdb, position: u64) -> Result<Option<Place>, SourceError> {
        let place = match self.index.place(position) {
            Ok(place) => place,
            Err(damage) => {
                self.index = source.mend(self.transaction, &damage)?;
                self.index.place(position).unwrap_or_default()
            }
        };
        Ok(place.map(|[number]| Place::of_number(number)))
    }

    #[inline]
    fn came_to(&mut self, source: &Lmdb, key: &[u8], value: &[u8], is_taken: bool) {
        self.resident.get_or_insert_with(|| {
            let environment = &source.environment;
            // SAFETY: what this walk comes to lies in the environment's map of our own, which was made before there was
            // an index and stays for as long as the environment, which stays for longer than this by `new`.
            let mut resident = unsafe { Resident::of(&environment.data, environment.file) };
            if self.drops_behind {
                resident.drop_behind();
            }
            resident
        });
        // Before it asks ahead, which is to end there.
        if !self.is_end_told {
            self.tell_end(source);
        }
        match (&mut self.resident, is_taken) {
            (Some(resident), true) => resident.took(key, value),
            (Some(resident), false) => resident.passed_over(key, value),
            (None, _) => {}
        }
    }

    /// Tells where the last value lies that the walk goes on to. Its leaf is looked at, to which the walk comes soon.
    #[cold]
    fn tell_end(&mut self, source: &Lmdb) {
        let last = self.until.checked_sub(1).filter(|_| self.until != u64::MAX);
        let place = last.and_then(|last| self.index.place(last).ok().flatten());
        let last = place.map(|[number]| Place::of_number(number)).and_then(|place| {
            let (_, value) = pages(source).leaf(place.page).ok()?.record(usize::from(place.node)).ok()?;
            Some(value)
        });
        self.is_end_told = self.resident.as_mut().is_none_or(|resident| resident.goes_on_until(last));
    }
}

fn pages(source: &Lmdb) -> &Pages {
    source.environment.pages.get().expect("whoever has an index has made it of the pages")
}
