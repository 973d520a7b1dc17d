//! Reading ahead of a walk over a mapped file.
//!
//! Whoever touches a page of a map that is not in memory waits for the disk, page fault after page fault, and the
//! workers would all wait at once. So the walk, which is ahead of them anyhow, has the system read what comes after it:
//! a few chunks at a time, each only if it is not in memory, and only while the walk goes forward through the file.
//! A database that was written in the order of its keys lies so.
//!
//! A walk of some of the ranks of a job passes over the others' records, and cannot know where those lie that it wants
//! before it has come to them. Where it passes over more than it takes, and more at a time than a request is worth,
//! nothing is read ahead of it but the values that it takes, when it comes to them: the workers are a ring behind.

use std::ops::Range;

/// How far ahead of the walk the file is read.
pub(super) const WINDOW_BYTES: u64 = 64 << 20;
/// What is asked for at a time.
pub(super) const CHUNK_BYTES: u64 = 1 << 20;
/// Chunks that are asked for at one step of the walk: the first records are not to wait for the whole window.
const CHUNKS_A_STEP: u64 = 2;
/// Steps forward, one after the other, after which a walk is taken to go on so.
pub(super) const STEPS_FORWARD: u32 = 8;

/// What of a file is to be asked for, as a walk goes through it.
#[derive(Debug)]
pub(super) struct Window {
    file_bytes: u64,
    /// Where the walk was when it was looked last.
    at: u64,
    steps_forward: u32,
    /// How far the file was asked for.
    asked: u64,
    /// Where the walk may be without anything being asked for.
    quiet: Range<u64>,
}

impl Window {
    pub(super) fn new(file_bytes: u64) -> Self {
        Window { file_bytes, at: 0, steps_forward: 0, asked: 0, quiet: 0..0 }
    }

    /// Whether the walk is taken to go on as it went.
    #[inline]
    pub(super) fn is_forward(&self) -> bool {
        self.steps_forward > STEPS_FORWARD
    }

    /// What to ask for now that the walk has come to `at`, to be cut into chunks: often nothing.
    #[inline]
    pub(super) fn came_to(&mut self, at: u64) -> Range<u64> {
        if self.quiet.contains(&at) { at..at } else { self.look(at) }
    }

    fn look(&mut self, at: u64) -> Range<u64> {
        // Forward by and large: a database has pages that lie a little before those of the records before.
        let is_near = at.abs_diff(self.at) <= WINDOW_BYTES;
        self.at = at;
        if !is_near {
            (self.steps_forward, self.asked) = (0, at);
        }
        self.steps_forward = self.steps_forward.saturating_add(1);
        self.quiet = at..at;
        if !self.is_forward() {
            return at..at;
        }
        let from = self.asked.max(at);
        let wanted = (at + WINDOW_BYTES).min(self.file_bytes);
        self.asked = wanted.min(from + CHUNKS_A_STEP * CHUNK_BYTES).max(from);
        if self.asked >= wanted {
            let is_all = self.asked >= self.file_bytes;
            self.quiet.end = if is_all { self.file_bytes } else { at + CHUNK_BYTES };
        }
        from..self.asked
    }
}

/// What has to lie between two values for it to be worth a request of its own to leave it out.
const GAP_BYTES: u64 = 128 << 10;
/// Smaller values share their pages, with each other or with what the walk itself touches.
const OWN_PAGES_BYTES: u64 = 16 << 10;

/// How much a walk takes of what it comes to: some values one after the other, then passes over some, and so on.
#[derive(Debug, Default)]
pub(super) struct Appetite {
    now: Stretch,
    before: Stretch,
}

#[derive(Clone, Copy, Debug, Default)]
struct Stretch {
    taken: u64,
    /// Behind what was taken.
    passed_over: u64,
}

impl Appetite {
    #[inline]
    pub(super) fn took(&mut self, bytes: u64) {
        if self.now.passed_over > 0 {
            self.before = std::mem::take(&mut self.now);
        }
        self.now.taken = self.now.taken.saturating_add(bytes);
    }

    #[inline]
    pub(super) fn passed_over(&mut self, bytes: u64) {
        if bytes >= OWN_PAGES_BYTES {
            self.now.passed_over = self.now.passed_over.saturating_add(bytes);
        }
    }

    /// Whether it saves something to ask for single values.
    #[inline]
    pub(super) fn is_picky(&self) -> bool {
        let Appetite { now, before } = self;
        let passed_over = now.passed_over.max(before.passed_over);
        passed_over >= GAP_BYTES && passed_over >= now.taken.max(before.taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE_BYTES: u64 = 200 << 20;

    #[test]
    fn a_walk_forward_is_ahead_of_itself_by_the_window_and_asks_for_everything_once() {
        let mut window = Window::new(FILE_BYTES);
        let mut asked = 0;
        let mut steps = 0;
        for at in (0..FILE_BYTES).step_by(150_000) {
            let wanted = window.came_to(at);
            steps += 1;
            if wanted.is_empty() {
                continue;
            }
            assert!(wanted.end - wanted.start <= CHUNKS_A_STEP * CHUNK_BYTES);
            assert!(asked == wanted.start || asked == 0, "{wanted:?}");
            assert!(wanted.end <= FILE_BYTES && wanted.start >= at);
            asked = wanted.end;
            // Two chunks a step are more than a step is long.
            let reached = (at + WINDOW_BYTES).min(FILE_BYTES);
            assert!(steps < 60 || asked + 2 * CHUNK_BYTES >= reached, "{at}: {asked}");
        }
        assert_eq!(asked, FILE_BYTES);
        assert!(window.came_to(FILE_BYTES - 1).is_empty(), "the end is quiet");
    }

    #[test]
    fn small_steps_ask_seldom() {
        let mut window = Window::new(FILE_BYTES);
        let asked = (0..FILE_BYTES).step_by(3000).filter(|&at| !window.came_to(at).is_empty()).count();
        assert!(asked <= 150 + 32, "{asked} times, and not at each of the 70,000 steps");
    }

    #[test]
    fn a_walk_in_no_order_asks_for_nothing() {
        const FILE_BYTES: u64 = 20 << 30;

        let mut window = Window::new(FILE_BYTES);
        let mut state = 1_u64;
        for _step in 0..10_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            assert!(window.came_to((state >> 20) % FILE_BYTES).is_empty());
        }
    }

    #[test]
    fn steps_back_ask_for_nothing_twice() {
        let mut window = Window::new(FILE_BYTES);
        let mut asked = 0;
        for at in (0..FILE_BYTES).step_by(4096) {
            // Every third record lies before the one before it.
            let at = if at % 3 == 0 { at.saturating_sub(100 << 10) } else { at };
            let wanted = window.came_to(at);
            asked += wanted.end - wanted.start;
        }
        assert!(asked <= FILE_BYTES, "{asked}");
        assert!(asked > FILE_BYTES - (1 << 20), "{asked}");
    }

    #[test]
    fn a_second_pass_is_asked_for_again() {
        let mut window = Window::new(FILE_BYTES);
        let mut pass = || {
            (0..FILE_BYTES)
                .step_by(10_000)
                .map(|at| window.came_to(at))
                .map(|wanted| wanted.end - wanted.start)
                .sum::<u64>()
        };
        let first = pass();
        assert!(first > FILE_BYTES - (1 << 20));
        assert!(pass() > FILE_BYTES - (1 << 20));
    }

    /// At which of so many records of `bytes` a walk of ranks `first` to `end` of `of` is picky.
    fn picky(bytes: u64, ranks: Range<usize>, of: usize) -> Vec<bool> {
        let mut appetite = Appetite::default();
        let step = |record: usize| {
            if ranks.contains(&(record % of)) {
                appetite.took(bytes);
            } else {
                appetite.passed_over(bytes);
            }
            appetite.is_picky()
        };
        (0..10 * of).map(step).collect()
    }

    #[test]
    fn one_rank_of_many_asks_for_its_own_large_values() {
        for first in [0, 3, 7] {
            let picky = picky(150_000, first..first + 1, 8);
            assert!(picky[2..].iter().all(|&is_picky| is_picky), "before a walk forward is known as one");
        }
        assert!(picky(20_000, 63..64, 64)[STEPS_FORWARD as usize..].iter().all(|&is_picky| is_picky));
        assert!(picky(150_000, 2..4, 4)[4..].iter().all(|&is_picky| is_picky), "half of the ranks");
    }

    #[test]
    fn small_values_and_small_gaps_are_read_through() {
        assert!(!picky(3_000, 0..1, 100).contains(&true), "values that share pages");
        assert!(!picky(50_000, 0..1, 2).contains(&true), "a gap that is not worth a request");
        assert!(!picky(150_000, 0..1, 1).contains(&true), "a walk that takes everything");
        assert!(!picky(150_000, 0..7, 8)[16..].contains(&true), "one that takes nearly everything");
    }

    #[test]
    fn a_walk_that_takes_everything_from_now_on_is_not_picky_any_more() {
        let mut appetite = Appetite::default();
        for _ in 0..5 {
            appetite.took(100_000);
            appetite.passed_over(700_000);
        }
        let left = (0..20).filter(|_| {
            appetite.took(100_000);
            appetite.is_picky()
        });
        assert_eq!(left.count(), 7, "as long as there may be a gap again");
    }
}
