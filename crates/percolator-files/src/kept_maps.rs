//! Counts the maps of data files that stay as long as their readers are open, over the whole process.
//!
//! A process may have 65,530 maps (`vm.max_map_count`), and its threads, its libraries and its batches need
//! some of them. Files for which no map is left are read, or are mapped only while they are used.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Half of what Linux allows.
const MAPS_MAX: usize = 32_768;

static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Some of the maps that may be kept. They are given back when this is dropped.
#[derive(Debug, Default)]
pub struct KeptMaps(usize);

impl KeptMaps {
    /// Takes this many, or as many as are left.
    #[must_use]
    pub fn take(wanted: usize) -> Self {
        Self::take_of(&KEPT, wanted)
    }

    fn take_of(kept: &AtomicUsize, wanted: usize) -> Self {
        let granted = |kept: usize| wanted.min(MAPS_MAX.saturating_sub(kept));
        // Relaxed is enough: the counter guards no other memory.
        let before =
            kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |kept| Some(kept + granted(kept)));
        KeptMaps(granted(before.unwrap_or_else(|kept| kept)))
    }

    /// Returns how many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0
    }
}

impl Drop for KeptMaps {
    fn drop(&mut self) {
        KEPT.fetch_sub(self.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::mem::forget;

    use super::*;

    #[test]
    fn no_more_than_allowed_are_given() {
        let kept = AtomicUsize::new(MAPS_MAX - 3);
        for (wanted, due) in [(0, 0), (2, 2), (2, 1), (1, 0)] {
            let taken = KeptMaps::take_of(&kept, wanted);
            assert_eq!(taken.count(), due);
            // They are not those of the process.
            forget(taken);
        }
        assert_eq!(kept.into_inner(), MAPS_MAX);
    }
}
