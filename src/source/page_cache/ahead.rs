//! Reading ahead of a cursor over a mapped file.
//!
//! Touching a mapped page that is not in memory waits for the disk, one page fault after another, and all
//! workers would wait at once. The cursor is ahead of the workers anyway, so it asks the kernel to read what
//! comes next: a few chunks at a time, each only if it is not in memory, and only while the cursor moves
//! forward through the file. A database that was written in key order is stored that way.
//!
//! A cursor for some ranks of a job skips the records of the others, and learns where its own are only when
//! it reaches them. On average, it may skip more than it takes, and more at a time than a request is worth.
//! Then nothing is read ahead: the values that it takes are requested when it reaches them. That is early
//! enough, because the workers are a whole ring of batches behind.

use std::ops::Range;

use crate::source::READ_AHEAD_BYTES;

/// The unit of requests.
pub(super) const CHUNK_BYTES: u64 = 1 << 20;
/// Chunks requested in one step of the cursor, so that the first records do not wait for the whole window.
const CHUNKS_A_STEP: u64 = 2;
/// After this many consecutive forward steps, the cursor is assumed to continue forward.
pub(super) const STEPS_FORWARD: u32 = 8;

/// Decides what part of a file to request as a cursor moves through it.
#[derive(Debug)]
pub(super) struct Window {
    file_bytes: u64,
    /// How far the cursor reads: to the end of the file unless set otherwise.
    end: u64,
    /// Where the cursor was when this was last evaluated.
    at: u64,
    steps_forward: u32,
    /// How far the file has been requested.
    asked: u64,
    /// While the cursor is here, nothing needs to be requested.
    quiet: Range<u64>,
}

impl Window {
    pub(super) fn new(file_bytes: u64) -> Self {
        Window { file_bytes, end: file_bytes, at: 0, steps_forward: 0, asked: 0, quiet: 0..0 }
    }

    /// Whether the cursor is assumed to continue forward.
    #[inline]
    pub(super) fn is_forward(&self) -> bool {
        self.steps_forward > STEPS_FORWARD
    }

    /// Requests nothing until the cursor has moved forward for a while again.
    #[inline]
    pub(super) fn pause(&mut self) {
        (self.steps_forward, self.quiet) = (0, 0..0);
    }

    /// The cursor reads up to `end`, and what it reaches is requested again; `None` is the end of the file.
    pub(super) fn reads_until(&mut self, end: Option<u64>) {
        if let Some(end) = end {
            (self.end, self.asked) = (end.min(self.file_bytes), 0);
        } else {
            self.end = self.file_bytes;
        }
        self.quiet = 0..0;
    }

    /// What to request now that the cursor has reached `at`, to be divided into chunks. Often empty.
    #[inline]
    pub(super) fn came_to(&mut self, at: u64) -> Range<u64> {
        if self.quiet.contains(&at) { at..at } else { self.look(at) }
    }

    fn look(&mut self, at: u64) -> Range<u64> {
        // Forward on the whole: some pages of a database are slightly before those of the previous records.
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

/// The smallest gap between two values for which separate requests are worthwhile.
const GAP_BYTES: u64 = 128 << 10;
/// Smaller values share their pages with each other, or with what the cursor itself touches.
const OWN_PAGES_BYTES: u64 = 16 << 10;

/// How many bytes back the cursor's choices are remembered: sizes vary, and a few records say little about
/// them.
const MEMORY_BYTES: u64 = READ_AHEAD_BYTES;

/// How much of what it reaches a cursor takes: it takes some consecutive values, skips some, and so on.
///
/// The sums are halved together when they exceed what is remembered, so that old choices count for less. A
/// selective cursor stays selective until the ratio falls below half of the threshold: each switch wastes
/// what was read for the other mode.
#[derive(Debug, Default)]
pub(super) struct Selectivity {
    taken: u64,
    passed_over: u64,
    /// How large all gaps together must be for separate requests to be worthwhile.
    worth: u64,
    is_in_gap: bool,
    is_selective: bool,
}

impl Selectivity {
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

    /// Whether requesting single values saves anything.
    #[inline]
    pub(super) fn is_selective(&self) -> bool {
        self.is_selective
    }

    #[inline]
    fn decide(&mut self) {
        if self.taken.saturating_add(self.passed_over) > MEMORY_BYTES {
            self.taken /= 2;
            self.passed_over /= 2;
            self.worth /= 2;
        }
        let least = self.worth.max(self.taken);
        let least = if self.is_selective { least / 2 } else { least };
        self.is_selective = self.passed_over > 0 && self.passed_over >= least;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE_BYTES: u64 = 200 << 20;

    #[test]
    fn a_forward_cursor_requests_everything_once_and_a_window_ahead() {
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
            // Two chunks per step are longer than a step.
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
    fn a_cursor_in_no_order_requests_nothing() {
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
            // Every third record is stored before its predecessor.
            let at = if at % 3 == 0 { at.saturating_sub(100 << 10) } else { at };
            let wanted = window.came_to(at);
            asked += wanted.end - wanted.start;
        }
        assert!(asked <= FILE_BYTES, "{asked}");
        assert!(asked > FILE_BYTES - (1 << 20), "{asked}");
    }

    #[test]
    fn a_cursor_that_reads_up_to_an_end_requests_nothing_past_it() {
        const SHARE: u64 = 9 << 20;

        let mut window = Window::new(FILE_BYTES);
        let mut asked = 0;
        // Every second share is another rank's.
        for start in (0..FILE_BYTES - SHARE).step_by(18 << 20) {
            window.reads_until(Some(start + SHARE));
            for at in (start..start + SHARE).step_by(100_000) {
                let wanted = window.came_to(at);
                assert!(
                    wanted.is_empty() || wanted.start >= start && wanted.end <= start + SHARE,
                    "{wanted:?}"
                );
                asked += wanted.end - wanted.start;
            }
        }
        assert!(asked > 10 * SHARE, "{asked}");
        window.reads_until(None);
        assert!((0..100).any(|step| window.came_to(FILE_BYTES - SHARE + step).end > FILE_BYTES - SHARE));
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
    fn a_paused_cursor_must_move_forward_again_and_requests_nothing_twice() {
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

    /// For each record of `bytes`, whether a cursor for ranks `first` to `end` of `of` is selective after it.
    fn selective(bytes: u64, ranks: Range<usize>, of: usize) -> Vec<bool> {
        let mut selectivity = Selectivity::default();
        let step = |record: usize| {
            if ranks.contains(&(record % of)) {
                selectivity.took(bytes);
            } else {
                selectivity.passed_over(bytes);
            }
            selectivity.is_selective()
        };
        (0..10 * of).map(step).collect()
    }

    #[test]
    fn one_rank_of_many_asks_for_its_own_large_values() {
        for first in [0, 3, 7] {
            let selective = selective(150_000, first..first + 1, 8);
            assert!(
                selective[2..].iter().all(|&is_selective| is_selective),
                "before a forward cursor is recognised"
            );
        }
        assert!(
            selective(20_000, 63..64, 64)[STEPS_FORWARD as usize..].iter().all(|&is_selective| is_selective)
        );
        assert!(
            selective(150_000, 2..4, 4)[4..].iter().all(|&is_selective| is_selective),
            "half of the ranks"
        );
    }

    #[test]
    fn small_values_and_small_gaps_are_read_through() {
        assert!(!selective(3_000, 0..1, 100).contains(&true), "values that share pages");
        assert!(!selective(50_000, 0..1, 2).contains(&true), "a gap that is not worth a request");
        assert!(!selective(150_000, 0..1, 1).contains(&true), "a cursor that takes everything");
        assert!(!selective(150_000, 0..7, 8)[16..].contains(&true), "one that takes nearly everything");
    }

    #[test]
    fn a_cursor_that_takes_everything_from_now_on_is_not_selective_for_more_than_it_remembers() {
        // Like ranks that pass over the records of others, and like a cursor that skips the first records of
        // all.
        for (gaps, bytes) in [(5, 700_000), (1_000, 700_000), (1, 10 << 30), (100_000, 100_000)] {
            let mut selectivity = Selectivity::default();
            for _ in 0..gaps {
                selectivity.took(100_000);
                selectivity.passed_over(bytes);
            }
            let left = (0..2_000).filter(|_| {
                selectivity.took(100_000);
                selectivity.is_selective()
            });
            let left = left.count() as u64 * 100_000;
            assert!(left < 2 * MEMORY_BYTES, "{left} bytes are taken one by one after {gaps} of {bytes}");
        }
    }

    #[test]
    fn a_cursor_that_took_everything_becomes_selective_when_it_passes_over_most() {
        let mut selectivity = Selectivity::default();
        for _ in 0..100_000 {
            selectivity.took(100_000);
        }
        let mut walked = 0;
        while !selectivity.is_selective() {
            selectivity.took(100_000);
            selectivity.passed_over(700_000);
            walked += 800_000;
        }
        assert!(walked < 2 * MEMORY_BYTES, "{walked}");
    }

    /// Sizes distributed like those of JPEGs: log-normal, with this mean, and this standard deviation in
    /// units of the mean.
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

    /// The result of a pass that takes the records of one rank.
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
        let (mut window, mut selectivity) = (Window::new(file), Selectivity::default());
        let (mut walked, mut at, mut was_selective) = (Walked { file, ..Walked::default() }, 0, false);
        for (record, bytes) in sizes.into_iter().enumerate() {
            let is_taken = record % of == rank;
            if is_taken {
                selectivity.took(bytes)
            } else {
                selectivity.passed_over(bytes)
            }
            let is_selective = selectivity.is_selective();
            if is_selective {
                window.pause();
            } else {
                let wanted = window.came_to(at);
                walked.asked += wanted.end - wanted.start;
            }
            walked.taken += if is_taken { bytes } else { 0 };
            walked.asked += if is_taken && is_selective { bytes } else { 0 };
            walked.flips += usize::from(is_selective != was_selective);
            (was_selective, at) = (is_selective, at + bytes);
        }
        walked
    }

    #[test]
    fn varying_sizes_seldom_change_the_decision() {
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
