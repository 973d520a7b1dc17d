//! The same work on each of many sources, on all processors.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;

use super::{Source, SourceError};

/// Does the work on each source, on as many at once as there are processors. The error is that of the first
/// source in order that has one, as if the sources were handled one after the other.
pub(super) fn for_each(
    sources: &[&Arc<dyn Source>],
    work: impl Fn(&dyn Source) -> Result<(), SourceError> + Sync,
) -> Result<(), SourceError> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(sources.len());
    let next = AtomicUsize::new(0);
    // The first source that has an error, and the error.
    let failed: Mutex<Option<(usize, SourceError)>> = Mutex::new(None);
    let log = tracing::dispatcher::get_default(Clone::clone);
    let run = || {
        // Sources are begun in order, and all those before one with an error are finished.
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(source) = sources.get(number) else { return };
            if failed.lock().as_ref().is_some_and(|(first, _)| *first < number) {
                return;
            }
            if let Err(error) = work(&***source) {
                let mut failed = failed.lock();
                if failed.as_ref().is_none_or(|(first, _)| number < *first) {
                    *failed = Some((number, error));
                }
                return;
            }
        }
    };
    thread::scope(|scope| {
        let helper = |number| {
            let name = format!("source:{number}");
            let run = || tracing::dispatcher::with_default(&log, run);
            thread::Builder::new().name(name).spawn_scoped(scope, run)
        };
        // If a thread cannot be started, the running ones do its share.
        let helpers: Vec<_> = (1..threads).map_while(|number| helper(number).ok()).collect();
        run();
        for helper in helpers {
            if let Err(panic) = helper.join() {
                resume_unwind(panic);
            }
        }
    });
    failed.into_inner().map_or(Ok(()), |(_, error)| Err(error))
}
