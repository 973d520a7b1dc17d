//! Reading ahead of a walk over a mapped file.
//!
//! Whoever touches a page of a map that is not in memory waits for the disk, page fault after page fault, and the
//! workers would all wait at once. So the walk, which is ahead of them anyhow, has the system read what comes after it:
//! a few chunks at a time, each only if it is not in memory, and only while the walk goes forward through the file.
//! A database that was written in the order of its keys lies so.
//!
//! A walk of some of the ranks of a job passes over the others' records, and cannot know where those lie that it wants
//! before it has come to them. Where it passes over more than it takes, by and large, and more at a time than a request
//! is worth, nothing is read ahead of it but the values that it takes, when it comes to them: the workers are a ring
//! behind.

use std::ops::Range;

use crate::source::READ_AHEAD_BYTES;

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
    /// How far the walk goes on: to the end of the file, unless something else was said.
    end: u64,
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
        Window { file_bytes, end: file_bytes, at: 0, steps_forward: 0, asked: 0, quiet: 0..0 }
    }

    /// Whether the walk is taken to go on as it went.
    #[inline]
    pub(super) fn is_forward(&self) -> bool {
        self.steps_forward > STEPS_FORWARD
    }

    /// Nothing is asked for until the walk has gone forward again for a while.
    #[inline]
    pub(super) fn pause(&mut self) {
        (self.steps_forward, self.quiet) = (0, 0..0);
    }

    /// The walk goes on up to there, and what it comes to is to be asked for again; or, for `None`, to the end of the file.
    pub(super) fn goes_on_until(&mut self, end: Option<u64>) {
        if let Some(end) = end {
            (self.end, self.asked) = (end.min(self.file_bytes), 0);
        } else {
            self.end = self.file_bytes;
        }
        self.quiet = 0..0;
    }

    /// What to ask for now that the walk has come to `at`, to be cut into chunks: often nothing.
    #[inline]
    pub(super) fn came_to(&mut self, at: u64) -> Range<u64> {
        if self.quiet.contains(&at) { at..at } else { self.look(at) }
    }

    fn look(&mut self, at: u64) -> Range<u64> {
        // Forward by and large: a database has pages that lie a little before those of the records before.
        let is_near = at.abs_diff(self.at) <= READ_AHEAD_BYTES;
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
        let wanted = (at + READ_AHEAD_BYTES).min(self.end);
        self.asked = wanted.min(from + CHUNKS_A_STEP * CHUNK_BYTES).max(from);
        if self.asked >= wanted {
            let is_all = self.asked >= self.end;
            self.quiet.end = if is_all { self.end } else { at + CHUNK_BYTES };
        }
        from..self.asked
    }
}

/// What has to lie between two values for it to be worth a request of its own to leave it out.
const GAP_BYTES: u64 = 128 << 10;
/// Smaller values share their pages, with each other or with what the walk itself touches.
const OWN_PAGES_BYTES: u64 = 16 << 10;

/// How far back it is remembered what a walk took, in bytes: sizes vary, and a few records say little of them.
const MEMORY_BYTES: u64 = READ_AHEAD_BYTES;

/// How much a walk takes of what it comes to: some values one after the other, then passes over some, and so on.
///
/// The sums are halved together when they come to more than is remembered, so that what was long ago counts for less.
/// What makes a walk picky has to fall to less than half until it is so no longer: each change of mind costs what was
/// read for the other one.
#[derive(Debug, Default)]
pub(super) struct Appetite {
    taken: u64,
    passed_over: u64,
    /// What the gaps have to come to together, to be worth requests of their own.
    worth: u64,
    is_in_gap: bool,
    is_picky: bool,
}

impl Appetite {
    #[inline]
    pub(super) fn took(&mut self, bytes: u64) {
        self.is_in_gap = false;
        self.taken = self.taken.saturating_add(bytes);
        self.decide();
    }

    #[inline]
    pub(super) fn passed_over(&mut self, bytes: u64) {
        if bytes < OWN_PAGES_BYTES {
            return;
        }
        if !self.is_in_gap {
            self.is_in_gap = true;
            self.worth += GAP_BYTES;
        }
        self.passed_over = self.passed_over.saturating_add(bytes);
        self.decide();
    }

    /// Whether it saves something to ask for single values.
    #[inline]
    pub(super) fn is_picky(&self) -> bool {
        self.is_picky
    }

    #[inline]
    fn decide(&mut self) {
        if self.taken.saturating_add(self.passed_over) > MEMORY_BYTES {
            self.taken /= 2;
            self.passed_over /= 2;
            self.worth /= 2;
        }
        let least = self.worth.max(self.taken);
        let least = if self.is_picky { least / 2 } else { least };
        self.is_picky = self.passed_over > 0 && self.passed_over >= least;
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
            let reached = (at + READ_AHEAD_BYTES).min(FILE_BYTES);
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
    fn a_walk_that_goes_on_to_somewhere_asks_for_nothing_behind_that() {
        const STRETCH: u64 = 9 << 20;

        let mut window = Window::new(FILE_BYTES);
        let mut asked = 0;
        // Every second stretch is another's.
        for start in (0..FILE_BYTES - STRETCH).step_by(18 << 20) {
            window.goes_on_until(Some(start + STRETCH));
            for at in (start..start + STRETCH).step_by(100_000) {
                let wanted = window.came_to(at);
                assert!(
                    wanted.is_empty() || wanted.start >= start && wanted.end <= start + STRETCH,
                    "{wanted:?}"
                );
                asked += wanted.end - wanted.start;
            }
        }
        assert!(asked > 10 * STRETCH, "{asked}");
        window.goes_on_until(None);
        assert!((0..100).any(|step| window.came_to(FILE_BYTES - STRETCH + step).end > FILE_BYTES - STRETCH));
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

    #[test]
    fn a_walk_that_was_paused_has_to_go_forward_again_and_asks_for_nothing_twice() {
        let mut window = Window::new(FILE_BYTES);
        let mut asked = 0;
        for (step, at) in (0..FILE_BYTES).step_by(500_000).enumerate() {
            let since_pause = step % 100;
            if since_pause < 20 {
                window.pause();
                continue;
            }
            let wanted = window.came_to(at);
            assert!(wanted.is_empty() || since_pause >= 20 + STEPS_FORWARD as usize, "{step}: {wanted:?}");
            assert!(wanted.is_empty() || wanted.start >= asked, "{step}: {wanted:?}");
            asked = asked.max(wanted.end);
        }
        assert_eq!(asked, FILE_BYTES);
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
    fn a_walk_that_takes_everything_from_now_on_is_not_picky_for_more_than_it_remembers() {
        // As ranks that pass over the others' records, and as one that skips the first records of all.
        for (gaps, bytes) in [(5, 700_000), (1_000, 700_000), (1, 10 << 30), (100_000, 100_000)] {
            let mut appetite = Appetite::default();
            for _ in 0..gaps {
                appetite.took(100_000);
                appetite.passed_over(bytes);
            }
            let left = (0..2_000).filter(|_| {
                appetite.took(100_000);
                appetite.is_picky()
            });
            let left = left.count() as u64 * 100_000;
            assert!(left < 2 * MEMORY_BYTES, "{left} bytes are taken one by one after {gaps} of {bytes}");
        }
    }

    #[test]
    fn a_walk_that_took_everything_becomes_picky_when_it_passes_over_most() {
        let mut appetite = Appetite::default();
        for _ in 0..100_000 {
            appetite.took(100_000);
        }
        let mut walked = 0;
        while !appetite.is_picky() {
            appetite.took(100_000);
            appetite.passed_over(700_000);
            walked += 800_000;
        }
        assert!(walked < 2 * MEMORY_BYTES, "{walked}");
    }

    /// Sizes as JPEGs have them: log-normal, of this mean and this standard deviation in means.
    #[expect(clippy::cast_possible_truncation, reason = "a size is a whole number of bytes")]
    fn sizes(seed: u64, mean: f64, deviation: f64) -> impl Iterator<Item = u64> {
        let mut state = seed;
        let mut uniform = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((state >> 33) as f64 + 1.0) / f64::from(1_u32 << 31)
        };
        let variance = deviation.mul_add(deviation, 1.0).ln();
        std::iter::repeat_with(move || {
            let normal = (-2.0 * uniform().ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
            (mean * variance.sqrt().mul_add(normal, -variance / 2.0).exp()) as u64
        })
    }

    /// What came of a walk that takes the records of one rank.
    #[derive(Debug, Default)]
    struct Walked {
        file: u64,
        taken: u64,
        asked: u64,
        flips: usize,
    }

    const RECORDS: usize = 10_000;

    fn walk(sizes: impl Iterator<Item = u64>, rank: usize, of: usize) -> Walked {
        let sizes: Vec<u64> = sizes.take(RECORDS).collect();
        let file = sizes.iter().sum();
        let (mut window, mut appetite) = (Window::new(file), Appetite::default());
        let (mut walked, mut at, mut was_picky) = (Walked { file, ..Walked::default() }, 0, false);
        for (record, bytes) in sizes.into_iter().enumerate() {
            let is_taken = record % of == rank;
            if is_taken {
                appetite.took(bytes)
            } else {
                appetite.passed_over(bytes)
            }
            let is_picky = appetite.is_picky();
            if is_picky {
                window.pause();
            } else {
                let wanted = window.came_to(at);
                walked.asked += wanted.end - wanted.start;
            }
            walked.taken += if is_taken { bytes } else { 0 };
            walked.asked += if is_taken && is_picky { bytes } else { 0 };
            walked.flips += usize::from(is_picky != was_picky);
            (was_picky, at) = (is_picky, at + bytes);
        }
        walked
    }

    #[test]
    fn sizes_that_vary_change_a_walks_mind_seldom() {
        for (mean, deviation) in [(110e3, 0.0), (110e3, 0.5), (110e3, 1.35), (40e3, 1.0), (300e3, 1.35)] {
            for of in [2, 3, 4, 8, 64] {
                for seed in 0..10_usize {
                    let walked = walk(sizes(seed as u64, mean, deviation), seed % of, of);
                    assert!(walked.flips < 5 * RECORDS / 1000, "{mean} {deviation} 1 of {of}: {walked:?}");
                    assert!(
                        walked.asked <= walked.file + walked.file / 20,
                        "{mean} {deviation} 1 of {of}: {walked:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn one_rank_of_four_or_more_asks_for_little_but_its_own_whatever_the_sizes() {
        for (mean, deviation) in [(110e3, 0.0), (110e3, 0.5), (110e3, 1.35), (300e3, 1.35)] {
            for of in [4, 8] {
                for seed in 0..10_usize {
                    let walked = walk(sizes(seed as u64, mean, deviation), seed % of, of);
                    let allowed = walked.taken + 3 * walked.taken / 10;
                    assert!(walked.asked <= allowed, "{mean} {deviation} 1 of {of}: {walked:?}");
                }
            }
        }
    }
}
