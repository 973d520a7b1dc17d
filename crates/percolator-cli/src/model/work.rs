//! Work on many tensors: on all processors, with a progress bar, ended by a signal.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use percolator::Progress;

pub(super) use crate::watch::Ended;
use crate::watch::{self, megabytes_per_second};

/// Does work beside a progress bar. On SIGINT or SIGTERM, its progress is told to stop.
pub(super) fn watched<T: Send>(
    is_quiet: bool,
    work: impl FnOnce(&Progress) -> anyhow::Result<T> + Send,
) -> anyhow::Result<Ended<T>> {
    let progress = Progress::new();
    let message =
        |progress: &Progress, took| format!("{:.1} MB/s", megabytes_per_second(progress.done(), took));
    watch::watched(is_quiet, &progress, message, || work(&progress))
}

/// Calls `work` with each number below `count`, on all processors. Returns what it returned, in order.
pub(super) fn each<R: Send>(count: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(count);
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(count));
    let run = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            let result = work(number);
            results.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
        }
    };
    thread::scope(|scope| {
        // Where no more threads can be started, these and this one do the work.
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, run).ok();
        let _others: Vec<_> = (1..threads).map_while(spawn).collect();
        run();
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_unstable_by_key(|&(number, _)| number);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order() {
        assert_eq!(each(1000, |number| number * 2), (0..1000).map(|number| number * 2).collect::<Vec<_>>());
        assert!(each(0, |number| number).is_empty());
    }
}
