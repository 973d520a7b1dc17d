//! What one walk asks of Linux for the map that it walks over.

#![expect(unsafe_code, reason = "it is for the walk to promise that the map stays")]

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::ahead::{Appetite, CHUNK_BYTES, STEPS_FORWARD, Window};
use super::behind::{Trail, Way};
use super::mapped::{Mapped, steps};
use crate::source::file_id::FileId;
use crate::source::{Dealt, READ_AHEAD_BYTES};

/// What is dropped at a time: a few calls of the system for a thousand pages.
const PART_BYTES: u64 = 4 << 20;

/// The memory that one walk over a mapped file has the system use for it. Where nothing can be done for the walk,
/// it goes on without.
#[derive(Debug)]
pub(in crate::source) struct PageCache {
    path: PathBuf,
    id: FileId,
    steps: u32,
    /// When the map is looked for: a walk that only looks at the first record need not know.
    steps_before: u32,
    appetite: Appetite,
    drops_behind: bool,
    walk: Option<Walk>,
}

/// A walk that has gone on for a while.
#[derive(Debug)]
struct Walk {
    mapped: Mapped,
    window: Window,
    /// Whether pages around those that are touched are not read with them.
    is_narrow: bool,
    behind: Option<Behind>,
}

/// What is dropped.
#[derive(Debug)]
struct Behind {
    trail: Trail,
    /// The end of the parts that the walk has come to; none where it was sent elsewhere.
    end: usize,
}

impl PageCache {
    /// Of a walk over a map of this file.
    ///
    /// # Safety
    ///
    /// The map that the walk's records lie in is made before its first step, and stays for as long as the result
    /// lives.
    pub(in crate::source) unsafe fn of(path: &Path, id: FileId) -> Self {
        PageCache {
            path: path.to_owned(),
            id,
            steps: 0,
            steps_before: STEPS_FORWARD,
            appetite: Appetite::default(),
            drops_behind: false,
            walk: None,
        }
    }

    /// The walk has come to this record, and takes it.
    #[inline]
    pub(in crate::source) fn took(&mut self, key: &[u8], value: &[u8]) {
        self.appetite.took(value.len() as u64);
        self.came_to(key, value, true);
    }

    /// The walk has come to this record, and nobody will touch its value.
    #[inline]
    pub(in crate::source) fn passed_over(&mut self, key: &[u8], value: &[u8]) {
        self.appetite.passed_over(value.len() as u64);
        self.came_to(key, value, false);
    }

    /// From now on what was passed is dropped, once its runs are used.
    pub(in crate::source) fn drop_behind(&mut self) -> bool {
        (self.steps_before, self.drops_behind) = (1, true);
        true
    }

    pub(in crate::source) fn dealt(&mut self, dealt: Dealt) {
        let Some(Walk { mapped, behind: Some(behind), .. }) = &mut self.walk else { return };
        behind.trail.dealt(dealt, |parts| mapped.drop_from_memory(bytes_of(&parts)));
    }

    /// The walk goes on up to this value, and then elsewhere; or it goes on, for `None`. Whether that was taken in: a walk
    /// that has hardly begun has nothing read ahead.
    pub(in crate::source) fn goes_on_until(&mut self, last: Option<&[u8]>) -> bool {
        let Some(Walk { mapped, window, .. }) = &mut self.walk else { return false };
        window.goes_on_until(last.map(|value| mapped.place_of(value).end));
        true
    }

    /// The next step is somewhere else: what lies between is none of this walk's. Where it is not known how far it goes
    /// on from there, that is to be seen first.
    pub(in crate::source) fn jump(&mut self, is_end_known: bool) {
        let Some(Walk { window, behind, .. }) = &mut self.walk else { return };
        if !is_end_known {
            window.pause();
        }
        if let Some(behind) = behind {
            behind.end = usize::MAX;
        }
    }

    /// The walk has gone on to another file.
    pub(in crate::source) fn leave(&mut self) {
        if let Some(Walk { behind: Some(behind), .. }) = &mut self.walk {
            behind.trail.leave();
        }
    }

    #[inline]
    fn came_to(&mut self, key: &[u8], value: &[u8], is_taken: bool) {
        if self.walk.is_none() {
            self.look(value);
        }
        if let Some(walk) = &mut self.walk {
            walk.came_to(key, value, is_taken, self.appetite.is_picky());
        }
    }

    #[cold]
    fn look(&mut self, value: &[u8]) {
        self.steps = self.steps.saturating_add(1);
        if self.steps != self.steps_before {
            return;
        }
        // SAFETY: `value` lies in the walk's map, which stays for longer than this, as `of` was promised.
        let mapped = unsafe { Mapped::find(&self.path, self.id, value.as_ptr().addr()) };
        if self.drops_behind && mapped.is_none() {
            tracing::warn!(path = %self.path.display(), "nothing is dropped from memory: the map cannot be found");
        }
        self.walk = mapped.map(|mapped| Walk::new(mapped, self.drops_behind));
    }
}

impl Walk {
    fn new(mapped: Mapped, drops_behind: bool) -> Self {
        let window = Window::new(mapped.file_bytes());
        let parts = parts_of(&(0..mapped.file_bytes())).end;
        let behind = drops_behind.then(|| Behind { trail: Trail::new(parts), end: usize::MAX });
        Walk { mapped, window, is_narrow: false, behind }
    }

    #[inline]
    fn came_to(&mut self, key: &[u8], value: &[u8], is_taken: bool, is_picky: bool) {
        let place = self.mapped.place_of(value);
        if let Some(behind) = &mut self.behind {
            behind.came_to(&self.mapped.place_of(key), &place);
        }
        // What is passed over is not to be read in the wake of what the walk itself touches, and what was dropped
        // not in that of what is touched again.
        let is_narrow = is_picky || self.behind.is_some();
        if is_narrow != self.is_narrow {
            self.is_narrow = is_narrow;
            self.mapped.reads_around(!is_narrow);
        }
        let wanted = if is_picky {
            self.window.pause();
            0..0
        } else {
            self.window.came_to(place.start)
        };
        if !wanted.is_empty() {
            self.ask(wanted);
        } else if is_taken && (is_picky || is_narrow && !self.window.is_forward()) {
            self.mapped.will_need(place);
        }
    }

    fn ask(&self, wanted: Range<u64>) {
        for start in steps(wanted.clone(), CHUNK_BYTES) {
            let end = (start + CHUNK_BYTES).min(wanted.end);
            // Nothing is read around what is touched there, so that the last page says nothing of those before it.
            if self.is_narrow || !self.mapped.is_in_memory(end - 1) {
                self.mapped.will_need(start..end);
            }
        }
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        if self.is_narrow {
            self.mapped.reads_around(true);
        }
    }
}

impl Behind {
    #[inline]
    fn came_to(&mut self, key: &Range<u64>, value: &Range<u64>) {
        self.trail.came_to(Way::Keys, parts_of(key));
        let parts = parts_of(value);
        // What lies between two records of a walk forward, and is neither's, was read ahead with them.
        let ahead = parts_of(&(0..READ_AHEAD_BYTES)).end;
        let is_forward = (self.end..self.end.saturating_add(ahead)).contains(&parts.start);
        let start = if is_forward { self.end } else { parts.start };
        self.end = parts.end;
        self.trail.came_to(Way::Values, start..parts.end);
    }
}

fn parts_of(place: &Range<u64>) -> Range<usize> {
    let part = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
    part(place.start / PART_BYTES)..part(place.end.div_ceil(PART_BYTES))
}

fn bytes_of(parts: &Range<usize>) -> Range<u64> {
    parts.start as u64 * PART_BYTES..parts.end as u64 * PART_BYTES
}
