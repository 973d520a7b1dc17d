//! Work shared among threads.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::sync::{Mutex, PoisonError};
use std::thread;

/// Returns what `work` makes of each item, in the order of the items. `threads` threads work on them, this
/// one among them; 0 stands for one a processor.
pub(super) fn map<T: Send, R: Send>(items: Vec<T>, threads: usize, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    let threads = match threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let others = threads.min(items.len()).saturating_sub(1);
    let queue = Mutex::new(items.into_iter().enumerate());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let run = || std::iter::from_fn(next).map(|(number, item)| (number, work(item))).collect::<Vec<_>>();
    let mut done = thread::scope(|scope| {
        // If no more threads can be had, fewer do the work.
        let spawn = |_| thread::Builder::new().name("checkpoint".to_owned()).spawn_scoped(scope, run).ok();
        let spawned: Vec<_> = (0..others).map_while(spawn).collect();
        let mut done = run();
        for thread in spawned {
            match thread.join() {
                Ok(mut more) => done.append(&mut more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|&(number, _)| number);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for threads in 0..5 {
            for count in [0, 1, 2, 100] {
                let items: Vec<usize> = (0..count).collect();
                assert_eq!(
                    map(items, threads, |item| item * 2),
                    (0..count).map(|item| item * 2).collect::<Vec<_>>()
                );
            }
        }
    }
}
