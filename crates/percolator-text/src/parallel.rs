//! Deals work to several threads, and returns the results in the order of the work.

use std::sync::Mutex;
use std::thread;

/// Takes numbered items from `next` until there is none, and works on them with this many threads. Returns
/// the results in the order of their items. Each thread calls `work` once for the closure that it runs on its
/// items.
///
/// After an error no further items are taken. If several fail, the error of the first item is returned, so
/// that it does not depend on the threads.
pub(crate) fn in_order<I: Send, O: Send, E: Send, W: FnMut(I) -> Result<O, E>>(
    threads: usize,
    next: impl FnMut() -> Result<Option<(usize, I)>, E> + Send,
    work: impl Fn() -> W + Sync,
) -> Result<Vec<O>, E> {
    let source = Mutex::new(Source { next, is_over: false, failed: None });
    let done = Mutex::new(Vec::new());
    let thread = || {
        let mut work = work();
        while let Some((number, item)) = take(&source) {
            match work(item) {
                Ok(made) => lock(&done).push((number, made)),
                Err(error) => lock(&source).fail(number, error),
            }
        }
    };
    thread::scope(|scope| {
        // Where no more threads can be started, these and this one do the work.
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, thread).ok();
        let _others: Vec<_> = (1..threads).map_while(spawn).collect();
        thread();
    });
    if let Some((_, error)) = lock(&source).failed.take() {
        return Err(error);
    }
    let mut done = std::mem::take(&mut *lock(&done));
    done.sort_unstable_by_key(|(number, _)| *number);
    Ok(done.into_iter().map(|(_, made)| made).collect())
}

struct Source<N, E> {
    next: N,
    is_over: bool,
    failed: Option<(usize, E)>,
}

impl<N, E> Source<N, E> {
    fn fail(&mut self, number: usize, error: E) {
        self.is_over = true;
        if self.failed.as_ref().is_none_or(|(first, _)| number < *first) {
            self.failed = Some((number, error));
        }
    }
}

fn take<I, E>(
    source: &Mutex<Source<impl FnMut() -> Result<Option<(usize, I)>, E>, E>>,
) -> Option<(usize, I)> {
    let mut source = lock(source);
    if source.is_over {
        return None;
    }
    match (source.next)() {
        Ok(Some(item)) => return Some(item),
        Ok(None) => source.is_over = true,
        // Numbered after all items, so that an error of an item already taken comes first.
        Err(error) => source.fail(usize::MAX, error),
    }
    None
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Poisoning does not matter: if a thread panics, so does the scope.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_and_the_first_error_is_returned() {
        for threads in 1..5 {
            let run = |count: usize, bad: &[usize]| {
                let mut items = 0..count;
                let next = move || Ok(items.next().map(|item| (item, item)));
                in_order(threads, next, || |item| if bad.contains(&item) { Err(item) } else { Ok(item * 2) })
            };
            assert_eq!(run(100, &[]), Ok((0..100).map(|item| item * 2).collect()));
            assert_eq!(run(0, &[]), Ok(Vec::new()));
            assert_eq!(run(100, &[7, 8, 50]), Err(7));
            let broken: Result<Vec<usize>, usize> =
                in_order(threads, || Err::<Option<(usize, usize)>, _>(3), || Ok);
            assert_eq!(broken, Err(3));
        }
    }
}
