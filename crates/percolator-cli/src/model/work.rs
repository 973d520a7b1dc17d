//! Work on many tensors: on all processors, with a progress bar, ended by a signal.

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use percolator_tensorflow::convert::Progress;

use crate::stop::Signals;

/// How often the progress is shown and signals are checked.
const LOOK: Duration = Duration::from_millis(100);

/// What became of the work.
pub(super) enum Ended<T> {
    Done(T),
    /// A signal ended it; the code to exit with.
    Stopped(ExitCode),
}

/// Does work beside a progress bar. On SIGINT or SIGTERM, its progress is told to stop.
pub(super) fn watched<T: Send>(
    is_quiet: bool,
    work: impl FnOnce(&Progress) -> anyhow::Result<T> + Send,
) -> anyhow::Result<Ended<T>> {
    let signals = Signals::catch()?;
    let progress = Progress::new();
    let done = thread::scope(|scope| {
        let work = scope.spawn(|| work(&progress));
        let bar = Bar::new(is_quiet)?;
        while !work.is_finished() {
            if signals.caught().is_some() {
                progress.stop();
            }
            bar.show(&progress);
            // It does not synchronise: the work is joined below.
            thread::park_timeout(LOOK);
        }
        bar.bar.finish_and_clear();
        work.join().map_err(|_| anyhow::anyhow!("a thread has panicked"))
    })?;
    match (done, signals.caught()) {
        (Err(error), Some((signal, code))) if progress.check().is_err() => {
            let _ = writeln!(std::io::stderr(), "percolator: {signal}: {error:#}");
            Ok(Ended::Stopped(ExitCode::from(code)))
        }
        (done, _) => done.map(Ended::Done),
    }
}

struct Bar {
    bar: ProgressBar,
    start: Instant,
}

impl Bar {
    fn new(is_quiet: bool) -> anyhow::Result<Self> {
        let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {msg}  {eta} left")
            .context("the progress bar's template")?;
        let bar = if is_quiet { ProgressBar::hidden() } else { ProgressBar::new(1).with_style(style) };
        Ok(Bar { bar, start: Instant::now() })
    }

    fn show(&self, progress: &Progress) {
        let (total, done) = (progress.total(), progress.done());
        if total == 0 {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "it is shown with one decimal")]
        let rate = done as f64 / 1e6 / self.start.elapsed().as_secs_f64().max(1e-3);
        self.bar.set_message(format!("{rate:.1} MB/s"));
        self.bar.update(|state| {
            state.set_len(total);
            state.set_pos(done);
        });
    }
}

/// Calls `work` with each number below `count`, on all processors. Returns what it returned, in order.
pub(super) fn each<R: Send>(count: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(count);
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(count));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let result = work(number);
                    results.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
                }
            });
        }
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
