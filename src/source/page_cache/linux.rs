//! Linux's page cache, advised on behalf of one cursor over a map.

#![expect(unsafe_code, reason = "the cursor promises that the map stays")]

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::ahead::{CHUNK_BYTES, STEPS_FORWARD, Selectivity, Window};
use super::behind::{Trail, Way};
use super::mapped::{Mapped, steps};
use crate::source::file_id::FileId;
use crate::source::{Dealt, READ_AHEAD_BYTES};
use percolator_files::shown;

/// The unit of dropping: a few system calls for a thousand pages.
const PART_BYTES: u64 = 4 << 20;

/// The page cache of one cursor over a mapped file. If the kernel does not cooperate, the cursor works
/// without.
#[derive(Debug)]
pub(in crate::source) struct PageCache {
    path: PathBuf,
    id: FileId,
    /// The addresses of the map.
    map: Range<usize>,
    steps: u32,
    /// The step at which the file is opened. A cursor that only looks at the first record never needs it.
    steps_before: u32,
    selectivity: Selectivity,
    drops_behind: bool,
    active: Option<Active>,
}

/// The state of a cursor whose file is open.
#[derive(Debug)]
struct Active {
    mapped: Mapped,
    window: Window,
    /// Whether page faults do not read neighbouring pages.
    is_narrow: bool,
    behind: Option<Behind>,
}

/// Tracks what is dropped.
#[derive(Debug)]
struct Behind {
    trail: Trail,
    /// The end of the parts that the cursor has reached; `usize::MAX` after a seek.
    end: usize,
}

impl PageCache {
    /// Creates the page cache of a cursor over this map of the file. Records of which the values are
    /// elsewhere are not its.
    ///
    /// # Safety
    ///
    /// The map is a shared one of the file, from its first byte on, or empty. It stays for as long as the
    /// result lives.
    pub(in crate::source) unsafe fn of(path: &Path, id: FileId, map: &[u8]) -> Self {
        PageCache {
            path: path.to_owned(),
            id,
            map: map.as_ptr().addr()..map.as_ptr().addr() + map.len(),
            steps: 0,
            steps_before: STEPS_FORWARD,
            selectivity: Selectivity::default(),
            drops_behind: false,
            active: None,
        }
    }

    /// The cursor has reached this record, and takes it.
    #[inline]
    pub(in crate::source) fn took(&mut self, key: &[u8], value: &[u8]) {
        self.selectivity.took(value.len() as u64);
        self.came_to(key, value, true);
    }

    /// The cursor has reached this record, and nobody will touch its value.
    #[inline]
    pub(in crate::source) fn passed_over(&mut self, key: &[u8], value: &[u8]) {
        self.selectivity.passed_over(value.len() as u64);
        self.came_to(key, value, false);
    }

    /// From now on, what the cursor has passed is dropped once its runs are used.
    pub(in crate::source) fn drop_behind(&mut self) -> bool {
        (self.steps_before, self.drops_behind) = (1, true);
        true
    }

    pub(in crate::source) fn dealt(&mut self, dealt: Dealt) {
        let Some(Active { mapped, behind: Some(behind), .. }) = &mut self.active else { return };
        behind.trail.dealt(dealt, |parts| mapped.drop_from_memory(bytes_of(&parts)));
    }

    /// The cursor reads up to this value and then seeks elsewhere; `None` if it continues. `false` if this
    /// was ignored, because a cursor that has hardly started has nothing read ahead.
    pub(in crate::source) fn reads_until(&mut self, last: Option<&[u8]>) -> bool {
        let Some(Active { mapped, window, .. }) = &mut self.active else { return false };
        window.reads_until(last.map(|value| mapped.place_of(value).end));
        true
    }

    /// The next step is somewhere else, and what is between belongs to others. If it is not known how far the
    /// cursor reads from there, read-ahead pauses until that becomes clear.
    pub(in crate::source) fn jump(&mut self, is_end_known: bool) {
        let Some(Active { window, behind, .. }) = &mut self.active else { return };
        if !is_end_known {
            window.pause();
        }
        if let Some(behind) = behind {
            behind.end = usize::MAX;
        }
    }

    /// Closes the file until the cursor has made a few steps again. The map must still stay. Called when the
    /// cursor has no use for it for some time.
    pub(in crate::source) fn close(&mut self) {
        (self.active, self.steps) = (None, 0);
    }

    /// The cursor has moved to another file.
    pub(in crate::source) fn leave(&mut self) {
        if let Some(Active { behind: Some(behind), .. }) = &mut self.active {
            behind.trail.leave();
        }
    }

    #[inline]
    fn came_to(&mut self, key: &[u8], value: &[u8], is_taken: bool) {
        // An empty value may lie at the end of its map, which is where another map begins.
        if self.active.is_none() && !value.is_empty() {
            self.locate(value);
        }
        if let Some(active) = &mut self.active {
            active.came_to(key, value, is_taken, self.selectivity.is_selective());
        }
    }

    #[cold]
    fn locate(&mut self, value: &[u8]) {
        self.steps = self.steps.saturating_add(1);
        if self.steps != self.steps_before {
            return;
        }
        let is_there = self.map.contains(&value.as_ptr().addr());
        // SAFETY: the map is one of the file, and outlives the result, as `of` was promised.
        let mapped = is_there.then(|| unsafe { Mapped::of(&self.path, self.id, self.map.clone()) }).flatten();
        if self.drops_behind && mapped.is_none() {
            let path = shown::path(&self.path);
            tracing::warn!(%path, "nothing is dropped from memory: the file cannot be opened at its path");
        }
        self.active = mapped.map(|mapped| Active::new(mapped, self.drops_behind));
    }
}

impl Active {
    fn new(mapped: Mapped, drops_behind: bool) -> Self {
        let window = Window::new(mapped.file_bytes());
        let parts = parts_of(&(0..mapped.file_bytes())).end;
        let behind = drops_behind.then(|| Behind { trail: Trail::new(parts), end: usize::MAX });
        Active { mapped, window, is_narrow: false, behind }
    }

    #[inline]
    fn came_to(&mut self, key: &[u8], value: &[u8], is_taken: bool, is_selective: bool) {
        let place = self.mapped.place_of(value);
        if let Some(behind) = &mut self.behind {
            behind.came_to(&self.mapped.place_of(key), &place);
        }
        // Page faults of the cursor must not read values that it passes over, nor bring back what was dropped
        // around a page that is touched again.
        let is_narrow = is_selective || self.behind.is_some();
        if is_narrow != self.is_narrow {
            self.is_narrow = is_narrow;
            self.mapped.reads_around(!is_narrow);
        }
        let wanted = if is_selective {
            self.window.pause();
            0..0
        } else {
            self.window.came_to(place.start)
        };
        if !wanted.is_empty() {
            self.ask(wanted);
        } else if is_taken && (is_selective || is_narrow && !self.window.is_forward()) {
            self.mapped.will_need(place);
        }
    }

    fn ask(&self, wanted: Range<u64>) {
        for start in steps(wanted.clone(), CHUNK_BYTES) {
            let end = (start + CHUNK_BYTES).min(wanted.end);
            // With `is_narrow`, faults read no neighbours, so the last page being in memory says nothing
            // about the pages before it.
            if self.is_narrow || !self.mapped.is_in_memory(end - 1) {
                self.mapped.will_need(start..end);
            }
        }
    }
}

impl Drop for Active {
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
        // In a forward pass, what is between two records and belongs to neither was read ahead with them.
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

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn an_empty_value_locates_no_map() {
        let folder = tempfile::tempdir().unwrap();
        let map = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, [7; 10_000]).unwrap();
            let file = File::open(&path).unwrap();
            let id = FileId::of(&file.metadata().unwrap());
            // SAFETY: nobody writes to the file any more.
            let map = unsafe { memmap2::Mmap::map(&file) }.unwrap();
            (path, id, map)
        };
        let ((path, id, ours), (_, _, next)) = (map("ours"), map("next"));
        // SAFETY: `ours` is older, and lives longer. Of `next`, only an address is taken.
        let mut page_cache = unsafe { PageCache::of(&path, id, &ours) };
        for _ in 0..2 * STEPS_FORWARD {
            // As at the end of a map right before this one.
            page_cache.took(&ours[..4], &next[..0]);
        }
        assert!(page_cache.active.is_none());
        for value in ours.chunks(10).take(2 * STEPS_FORWARD as usize) {
            page_cache.took(&ours[..4], value);
            let Some(active) = &page_cache.active else { continue };
            assert_eq!(active.mapped.place_of(&ours[5..9]), 5..9);
        }
        assert!(page_cache.active.is_some());
    }
}
