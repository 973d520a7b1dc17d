//! Linux's page cache, advised on behalf of one cursor over a map.

#![expect(unsafe_code, reason = "the cursor promises that the map stays")]

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::ahead::{CHUNK_BYTES, STEPS_FORWARD, Selectivity, Window};
use super::mapped::{Mapped, steps};
use percolator_files::file_id::FileId;

/// The page cache of one cursor over a mapped file. If the kernel does not cooperate, the cursor works
/// without.
#[derive(Debug)]
pub(in crate::source) struct PageCache {
    path: PathBuf,
    id: FileId,
    /// The addresses of the map.
    map: Range<usize>,
    /// How many records it has reached. A cursor that only reads the first one never opens the file.
    steps: u32,
    selectivity: Selectivity,
    active: Option<Active>,
}

/// The state of a cursor whose file is open.
#[derive(Debug)]
struct Active {
    mapped: Mapped,
    window: Window,
    /// Whether page faults do not read neighbouring pages.
    is_narrow: bool,
}

impl PageCache {
    /// Creates the page cache of a cursor over this map of the file. It ignores records whose values are
    /// elsewhere.
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
            selectivity: Selectivity::default(),
            active: None,
        }
    }

    /// The cursor has reached this record, and takes it.
    #[inline]
    pub(in crate::source) fn took(&mut self, value: &[u8]) {
        self.selectivity.took(value.len() as u64);
        self.came_to(value, true);
    }

    /// The cursor has reached this record, and its value will not be touched.
    #[inline]
    pub(in crate::source) fn passed_over(&mut self, value: &[u8]) {
        self.selectivity.passed_over(value.len() as u64);
        self.came_to(value, false);
    }

    /// The cursor reads up to this value and then seeks elsewhere; `None` if it continues. `false` if this
    /// was ignored, because a cursor that has hardly started has nothing read ahead.
    pub(in crate::source) fn reads_until(&mut self, last: Option<&[u8]>) -> bool {
        let Some(Active { mapped, window, .. }) = &mut self.active else { return false };
        window.reads_until(last.map(|value| mapped.place_of(value).end));
        true
    }

    /// The next step is in another place, and the records between belong to others. If it is not known how
    /// far the cursor reads from there, read-ahead pauses until that becomes clear.
    pub(in crate::source) fn jump(&mut self, is_end_known: bool) {
        if let Some(Active { window, .. }) = &mut self.active
            && !is_end_known
        {
            window.pause();
        }
    }

    /// Closes the file until the cursor has made a few steps again. The map must still stay. Called when the
    /// cursor has no use for it for some time.
    pub(in crate::source) fn close(&mut self) {
        (self.active, self.steps) = (None, 0);
    }

    #[inline]
    fn came_to(&mut self, value: &[u8], is_taken: bool) {
        // An empty value may lie at the end of its map, which is where another map begins.
        if self.active.is_none() && !value.is_empty() {
            self.locate(value);
        }
        if let Some(active) = &mut self.active {
            active.came_to(value, is_taken, self.selectivity.is_selective());
        }
    }

    #[cold]
    fn locate(&mut self, value: &[u8]) {
        self.steps = self.steps.saturating_add(1);
        if self.steps != STEPS_FORWARD {
            return;
        }
        let is_there = self.map.contains(&value.as_ptr().addr());
        // SAFETY: the map is one of the file, and outlives the result, as `of` was promised.
        let mapped = is_there.then(|| unsafe { Mapped::of(&self.path, self.id, self.map.clone()) }).flatten();
        self.active = mapped.map(Active::new);
    }
}

impl Active {
    fn new(mapped: Mapped) -> Self {
        let window = Window::new(mapped.file_bytes());
        Active { mapped, window, is_narrow: false }
    }

    #[inline]
    fn came_to(&mut self, value: &[u8], is_taken: bool, is_selective: bool) {
        let place = self.mapped.place_of(value);
        // Page faults of the cursor must not read values that it passes over.
        if is_selective != self.is_narrow {
            self.is_narrow = is_selective;
            self.mapped.reads_around(!is_selective);
        }
        let wanted = if is_selective {
            self.window.pause();
            0..0
        } else {
            self.window.came_to(place.start)
        };
        if !wanted.is_empty() {
            self.ask(wanted);
        } else if is_taken && is_selective {
            self.mapped.will_need(place);
        }
    }

    fn ask(&self, wanted: Range<u64>) {
        for start in steps(wanted.clone(), CHUNK_BYTES) {
            let end = (start + CHUNK_BYTES).min(wanted.end);
            if !self.mapped.is_in_memory(end - 1) {
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
            page_cache.took(&next[..0]);
        }
        assert!(page_cache.active.is_none());
        for value in ours.chunks(10).take(2 * STEPS_FORWARD as usize) {
            page_cache.took(value);
            let Some(active) = &page_cache.active else { continue };
            assert_eq!(active.mapped.place_of(&ours[5..9]), 5..9);
        }
        assert!(page_cache.active.is_some());
    }
}
