//! How many threads and batches a feed has: as set, or as chosen.

use std::fmt;

use super::resolve::THREADS_MAX;

/// Caffe's own depth.
const PREFETCH: usize = 4;
/// How deep a ring becomes if its two ends wait alternately.
const PREFETCH_MAX: usize = 8;

/// How many threads and batches a feed has. What is not set is chosen.
///
/// **Threads**: one per core, of which only as many are active as it takes to keep the consumers from waiting
/// ([`WorkerStats::active`](crate::feed::WorkerStats::active)).
///
/// **A ring** has 4 batches, as in Caffe. It gets one more, up to 8, whenever during two rounds of the ring
/// it was full for long enough, and its consumer waited for long enough
/// ([`LaneStats::ring`](crate::feed::LaneStats::ring)). If a device has memory of its own, the ring stays at
/// 4: that memory is for the program that trains there.
///
/// If the [memory limit](crate::FeedBuilder::memory_limit) requires it, both are fewer from the start: first
/// the rings shrink to 2 batches, then there are fewer threads, and last the rings shrink to 1 batch.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing {
    /// The number of worker threads, for all lanes together.
    pub threads: usize,
    /// Whether that number was chosen, so that some of them may be inactive.
    pub are_threads_chosen: bool,
    /// The number of batches in a lane's ring at the start.
    pub prefetch: usize,
    /// The most batches that a ring may come to have: as many as at the start, if their number was set.
    pub prefetch_max: usize,
    /// Whether the number of batches was chosen.
    pub is_prefetch_chosen: bool,
}

impl Sizing {
    /// The sizings to choose from when these options are set, the best first: the memory limit decides. There
    /// is at least one, and, if all of them may deepen, one that does not.
    pub(super) fn choices(threads: Option<usize>, prefetch: Option<usize>) -> Vec<Sizing> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        choices_on(cores, threads, prefetch, PREFETCH_MAX)
    }

    /// Whether rings of a chosen size may become deeper than they start.
    pub(super) fn may_deepen(&self) -> bool {
        self.is_prefetch_chosen && self.prefetch_max > self.prefetch
    }
}

fn choices_on(
    cores: usize,
    threads: Option<usize>,
    prefetch: Option<usize>,
    prefetch_max: usize,
) -> Vec<Sizing> {
    let sizing = |workers, batches: usize| Sizing {
        threads: workers,
        are_threads_chosen: threads.is_none(),
        prefetch: prefetch.unwrap_or(batches.min(PREFETCH)),
        prefetch_max: batches,
        is_prefetch_chosen: prefetch.is_none(),
    };
    let all_threads = threads.unwrap_or(cores);
    let (rings, shallow) = match prefetch {
        Some(batches) => (vec![batches], batches),
        None => ((2..=prefetch_max).rev().collect(), 2),
    };
    let mut choices: Vec<Sizing> = rings.into_iter().map(|batches| sizing(all_threads, batches)).collect();
    let mut fewest = all_threads;
    while threads.is_none() && fewest > 1 {
        fewest /= 2;
        choices.push(sizing(fewest, shallow));
    }
    if prefetch.is_none() {
        choices.push(sizing(fewest, 1));
    }
    choices
}

impl fmt::Display for Sizing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sizing { threads, are_threads_chosen, prefetch, prefetch_max, is_prefetch_chosen } = self;
        let chosen = |is_chosen: &bool| if *is_chosen { " (chosen)" } else { "" };
        write!(f, "{threads} worker(s){}, {prefetch} batch(es) a ring", chosen(are_threads_chosen))?;
        if prefetch_max > prefetch {
            write!(f, " and up to {prefetch_max}")?;
        }
        f.write_str(chosen(is_prefetch_chosen))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(choices: &[Sizing]) -> Vec<[usize; 3]> {
        choices.iter().map(|choice| [choice.threads, choice.prefetch, choice.prefetch_max]).collect()
    }

    #[test]
    fn options_that_are_set_leave_no_choice() {
        let choices = choices_on(16, Some(3), Some(7), 8);
        assert_eq!(of(&choices), [[3, 7, 7]]);
        assert_eq!(choices[0].to_string(), "3 worker(s), 7 batch(es) a ring");
    }

    #[test]
    fn options_that_are_not_set_shrink_to_the_memory_limit_rings_first() {
        let choices = choices_on(8, None, None, 8);
        let due = [
            [8, 4, 8],
            [8, 4, 7],
            [8, 4, 6],
            [8, 4, 5],
            [8, 4, 4],
            [8, 3, 3],
            [8, 2, 2],
            [4, 2, 2],
            [2, 2, 2],
            [1, 2, 2],
            [1, 1, 1],
        ];
        assert_eq!(of(&choices), due);
        assert_eq!(choices[0].to_string(), "8 worker(s) (chosen), 4 batch(es) a ring and up to 8 (chosen)");
    }

    #[test]
    fn one_option_may_be_set_without_the_other() {
        assert_eq!(of(&choices_on(5, None, Some(6), 8)), [[5, 6, 6], [2, 6, 6], [1, 6, 6]]);
        let choices = choices_on(5, Some(2), None, 8);
        assert_eq!((choices.len(), of(&choices)[7]), (8, [2, 1, 1]));
        assert_eq!(of(&choices_on(1, None, None, 4))[0], [1, 4, 4], "a ring that must not be deepened");
    }
}
