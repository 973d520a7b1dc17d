//! Reading ahead of a walk over a mapped file.
//!
//! Whoever touches a page of a map that is not in memory waits for the disk, page fault after page fault, and the
//! workers would all wait at once. So the walk, which is ahead of them anyhow, has the system read what comes after it:
//! a few chunks at a time, each only if it is not in memory, and only while the walk goes forward through the file.
//! A database that was written in the order of its keys lies so.

use std::ops::Range;

/// How far ahead of the walk the file is read.
const WINDOW_BYTES: u64 = 64 << 20;
/// What is asked for at a time.
const CHUNK_BYTES: u64 = 1 << 20;
/// What the system reads for one request, whatever it is asked for: Linux cuts it to what the disk is set to.
const PIECE_BYTES: u64 = 128 << 10;
/// Chunks that are asked for at one step of the walk: the first records are not to wait for the whole window.
const CHUNKS_A_STEP: u64 = 2;
/// Steps forward, one after the other, after which a walk is taken to go on so.
const STEPS_FORWARD: u32 = 8;

/// What of a file is to be asked for, as a walk goes through it.
#[derive(Debug)]
struct Window {
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
    fn new(file_bytes: u64) -> Self {
        Window { file_bytes, at: 0, steps_forward: 0, asked: 0, quiet: 0..0 }
    }

    /// What to ask for now that the walk has come to `at`, to be cut into chunks: often nothing.
    #[inline]
    fn came_to(&mut self, at: u64) -> Range<u64> {
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
        if self.steps_forward <= STEPS_FORWARD {
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

#[cfg(target_os = "linux")]
pub(super) use system::Ahead;

#[cfg(target_os = "linux")]
mod system {
    use std::fs::File;
    use std::io::IoSliceMut;
    use std::num::NonZeroU64;
    use std::path::{Path, PathBuf};

    use rustix::fs::{Advice, fadvise};
    use rustix::io::{Errno, ReadWriteFlags, preadv2};

    use super::{CHUNK_BYTES, PIECE_BYTES, STEPS_FORWARD, Window};

    /// Has the system read ahead of one walk.
    #[derive(Debug)]
    pub(in crate::source) struct Ahead {
        path: PathBuf,
        steps: u32,
        /// Known once the walk has gone on for a while: one that only looks at the first record need not know.
        mapped: Option<Mapped>,
    }

    #[derive(Debug)]
    struct Mapped {
        file: File,
        window: Window,
        /// The address of the file's beginning, or where that would be.
        base: usize,
    }

    impl Ahead {
        /// Of a walk over a map of this file.
        pub(in crate::source) fn of(path: &Path) -> Self {
            Ahead { path: path.to_owned(), steps: 0, mapped: None }
        }

        /// The walk has come to these bytes of the map. Where nothing can be done for it, it goes on without.
        #[inline]
        pub(in crate::source) fn came_to(&mut self, bytes: &[u8]) {
            match &mut self.mapped {
                Some(mapped) => mapped.came_to(bytes.as_ptr().addr()),
                None => self.look(bytes),
            }
        }

        #[cold]
        fn look(&mut self, bytes: &[u8]) {
            self.steps = self.steps.saturating_add(1);
            if self.steps == STEPS_FORWARD {
                self.mapped = Mapped::find(&self.path, bytes.as_ptr().addr());
            }
        }
    }

    impl Mapped {
        fn find(path: &Path, address: usize) -> Option<Self> {
            let file = File::open(path).ok()?;
            let window = Window::new(file.metadata().ok()?.len());
            let maps = std::fs::read("/proc/self/maps").ok()?;
            let base = base_of_map(&String::from_utf8_lossy(&maps), address)?;
            Some(Mapped { file, window, base })
        }

        #[inline]
        fn came_to(&mut self, address: usize) {
            let wanted = self.window.came_to(address.wrapping_sub(self.base) as u64);
            if !wanted.is_empty() {
                self.ask(wanted.start, wanted.end);
            }
        }

        fn ask(&self, from: u64, to: u64) {
            for start in steps(from, to, CHUNK_BYTES) {
                let end = (start + CHUNK_BYTES).min(to);
                if self.is_in_memory(end - 1) {
                    continue;
                }
                for piece in steps(start, end, PIECE_BYTES) {
                    let len = NonZeroU64::new(PIECE_BYTES.min(end - piece));
                    if let Err(error) = fadvise(&self.file, piece, len, Advice::WillNeed) {
                        tracing::debug!(%error, piece, "the system does not read ahead");
                    }
                }
            }
        }

        /// By a read that does not wait. Where that cannot be told, as of files on other machines, it is not: to ask for
        /// what is there costs little.
        fn is_in_memory(&self, at: u64) -> bool {
            let mut byte = [0];
            let read = preadv2(&self.file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT);
            !matches!(read, Err(Errno::AGAIN | Errno::OPNOTSUPP))
        }
    }

    /// Where the steps from one place to another begin.
    fn steps(from: u64, to: u64, step: u64) -> impl Iterator<Item = u64> {
        std::iter::successors(Some(from), move |at| at.checked_add(step)).take_while(move |&at| at < to)
    }

    /// Where the beginning of the file is mapped that this address lies in, by `/proc/self/maps`.
    pub(super) fn base_of_map(maps: &str, address: usize) -> Option<usize> {
        maps.lines().find_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let (first, end) = words.next()?.split_once('-')?;
            let hex = |text| usize::from_str_radix(text, 16).ok();
            let (first, end) = (hex(first)?, hex(end)?);
            let (offset, inode) = (hex(words.nth(1)?)?, words.nth(1)?);
            ((first..end).contains(&address) && inode != "0").then(|| first.wrapping_sub(offset))
        })
    }
}

/// Elsewhere nothing is read ahead.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub(super) struct Ahead;

#[cfg(not(target_os = "linux"))]
impl Ahead {
    pub(super) fn of(_path: &std::path::Path) -> Self {
        Ahead
    }

    pub(super) fn came_to(&mut self, _bytes: &[u8]) {}
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

    #[test]
    #[cfg(target_os = "linux")]
    fn a_map_is_found_by_an_address_in_it() {
        let maps = "\
55d0e0000000-55d0e0021000 rw-p 00000000 00:00 0 [heap]
7f1200000000-7f1240000000 r--s 00000000 fd:00 131 /data/train/data.mdb
7f1240000000-7f1280000000 r--s 40000000 fd:00 131 /data/train/data.mdb
";
        let base = |address| system::base_of_map(maps, address);
        assert_eq!(base(0x7f12_0000_1000), Some(0x7f12_0000_0000));
        assert_eq!(base(0x7f12_4000_0000), Some(0x7f12_0000_0000), "the second half of one file");
        assert_eq!(base(0x55d0_e000_0010), None, "no file's");
        assert_eq!(base(0x10), None);
    }
}
