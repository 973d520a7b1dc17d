//! How much of its machine a feed takes: what was said, and what is chosen where nothing was.

use std::fmt;

use super::resolve::THREADS_MAX;

/// Caffe's own depth.
const PREFETCH: usize = 4;
/// As deep as a ring becomes whose ends wait by turns.
const PREFETCH_MAX: usize = 8;

/// How much of its machine a feed takes. What nobody said is chosen.
///
/// **Threads** are one a core, of which as few are at work as keep the consumers from waiting
/// ([`WorkerStats::at_work`](crate::feed::WorkerStats::at_work)). **A ring** has 4 batches, as Caffe's, and gets one more, up to
/// 8, as often as it is seen that it was full and its consumer waited, both for long enough, while it went round twice
/// ([`LaneStats::ring`](crate::feed::LaneStats::ring)); where a device has memory of its own, which a program that trains fills
/// with other things, it stays at 4. Both are fewer from the start where the
/// [memory limit](crate::FeedBuilder::memory_limit) asks for it: first the rings, down to 2 batches, then the threads, then
/// the last batch but one.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizing {
    /// Worker threads, for all lanes together.
    pub threads: usize,
    /// Whether that was chosen, so that some of them may stand by.
    pub are_threads_chosen: bool,
    /// Batches in a lane's ring to begin with.
    pub prefetch: usize,
    /// The most that may become of them: as many, where their number was said.
    pub prefetch_max: usize,
    /// Whether that was chosen.
    pub is_prefetch_chosen: bool,
}

impl Sizing {
    /// What is left to choose where so much was said, the best first: the memory limit decides. There is at least one.
    /// A ring that is chosen may be deepened later where that `may_deepen`.
    pub(super) fn choices(threads: Option<usize>, prefetch: Option<usize>, may_deepen: bool) -> Vec<Sizing> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        choices_on(cores, threads, prefetch, if may_deepen { PREFETCH_MAX } else { PREFETCH })
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
    fn what_was_said_is_all_there_is() {
        let said = choices_on(16, Some(3), Some(7), 8);
        assert_eq!(of(&said), [[3, 7, 7]]);
        assert_eq!(said[0].to_string(), "3 worker(s), 7 batch(es) a ring");
    }

    #[test]
    fn what_was_not_said_gives_way_to_the_memory_limit_rings_first() {
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
    fn one_may_be_said_without_the_other() {
        assert_eq!(of(&choices_on(5, None, Some(6), 8)), [[5, 6, 6], [2, 6, 6], [1, 6, 6]]);
        let choices = choices_on(5, Some(2), None, 8);
        assert_eq!((choices.len(), of(&choices)[7]), (8, [2, 1, 1]));
        assert_eq!(of(&choices_on(1, None, None, 4))[0], [1, 4, 4], "a ring that is not to be deepened");
    }
}
