//! Work that several threads share. Its results come in the order of the work.
//!
//! The calling thread is one of the threads. If no more can be started, fewer do the work.

use std::convert::Infallible;
use std::iter::from_fn;
use std::panic::resume_unwind;
use std::thread;

use parking_lot::Mutex;

/// Returns what `work` makes of each item, in the order of the items. `threads` threads share the items; 0
/// means one per processor.
///
/// # Panics
///
/// If `work` does.
pub fn map<I: Send, O: Send>(
    name: &str,
    threads: usize,
    items: impl IntoIterator<Item = I, IntoIter: Send>,
    work: impl Fn(I) -> O + Sync,
) -> Vec<O> {
    match try_map(name, threads, items, |item| Ok::<_, Infallible>(work(item))) {
        Ok(made) => made,
        Err(never) => match never {},
    }
}

/// Like [`map`], with work that may fail.
///
/// # Errors
///
/// The error of the first item that has one, whatever the threads. No further items are taken after an error.
///
/// # Panics
///
/// If `work` does.
pub fn try_map<I: Send, O: Send, E: Send>(
    name: &str,
    threads: usize,
    items: impl IntoIterator<Item = I, IntoIter: Send>,
    work: impl Fn(I) -> Result<O, E> + Sync,
) -> Result<Vec<O>, E> {
    let mut items = items.into_iter();
    let most = items.size_hint().1.unwrap_or(usize::MAX);
    let threads = if threads == 0 { processors() } else { threads };
    in_order(name, threads.min(most), || Ok(items.next()), || &work)
}

/// Takes items from `next` until there is none, and works on them with this many threads, whose names begin
/// with `name`; 0 means the calling thread alone. Each thread calls `work` once, for the closure that it runs
/// on its items.
///
/// # Errors
///
/// The error of the first item that has one, whatever the threads; otherwise, that of `next`. No further
/// items are taken after an error.
///
/// # Panics
///
/// If `next` or `work` does.
pub fn in_order<I: Send, O: Send, E: Send, W: FnMut(I) -> Result<O, E>>(
    name: &str,
    threads: usize,
    next: impl FnMut() -> Result<Option<I>, E> + Send,
    work: impl Fn() -> W + Sync,
) -> Result<Vec<O>, E> {
    let items = Mutex::new(Items { next, taken: 0, is_over: false, failed: None });
    let log = &tracing::dispatcher::get_default(Clone::clone);
    let run = || {
        let (mut work, mut done) = (work(), Vec::new());
        for (number, item) in from_fn(|| items.lock().take()) {
            match work(item) {
                Ok(made) => done.push((number, made)),
                Err(error) => items.lock().fail(number, error),
            }
        }
        done
    };
    let mut done = thread::scope(|scope| {
        let spawn = |number| {
            let thread = thread::Builder::new().name(format!("{name}:{number}"));
            thread.spawn_scoped(scope, move || tracing::dispatcher::with_default(log, run)).ok()
        };
        let others: Vec<_> = (1..threads).map_while(spawn).collect();
        let mut done = run();
        for other in others {
            done.append(&mut other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        done
    });
    if let Some((_, error)) = items.into_inner().failed {
        return Err(error);
    }
    done.sort_unstable_by_key(|&(number, _)| number);
    Ok(done.into_iter().map(|(_, made)| made).collect())
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The items that threads take in turn.
struct Items<N, E> {
    next: N,
    taken: usize,
    is_over: bool,
    /// The first item that has an error, and the error.
    failed: Option<(usize, E)>,
}

impl<I, E, N: FnMut() -> Result<Option<I>, E>> Items<N, E> {
    fn take(&mut self) -> Option<(usize, I)> {
        if self.is_over {
            return None;
        }
        match (self.next)() {
            Ok(Some(item)) => {
                self.taken += 1;
                return Some((self.taken, item));
            }
            Ok(None) => self.is_over = true,
            // It comes after all items, so that an error of an item already taken comes first.
            Err(error) => self.fail(usize::MAX, error),
        }
        None
    }

    fn fail(&mut self, number: usize, error: E) {
        self.is_over = true;
        if self.failed.as_ref().is_none_or(|&(first, _)| number < first) {
            self.failed = Some((number, error));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;
    use crate::shown::panic_message;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for threads in 0..5 {
            for count in [0, 1, 2, 100] {
                let doubled: Vec<usize> = (0..count).map(|item| item * 2).collect();
                assert_eq!(map("test", threads, 0..count, |item| item * 2), doubled);
            }
        }
    }

    #[test]
    fn the_first_error_is_returned() {
        for threads in 1..5 {
            let run = |count: usize, bad: &[usize]| {
                try_map(
                    "test",
                    threads,
                    0..count,
                    |item| if bad.contains(&item) { Err(item) } else { Ok(item) },
                )
            };
            assert_eq!(run(100, &[]), Ok((0..100).collect()));
            assert_eq!(run(100, &[7, 8, 50]), Err(7));
            let broken = in_order("test", threads, || Err::<Option<()>, _>(3), || Ok);
            assert_eq!(broken, Err(3));
        }
    }

    #[test]
    fn a_panic_is_passed_on_as_it_is() {
        let panic =
            catch_unwind(|| map("test", 3, 0..10, |item| assert_ne!(item, 7, "of the test"))).unwrap_err();
        let message = panic_message(&*panic);
        assert!(message.contains("of the test"), "{message}");
    }
}
