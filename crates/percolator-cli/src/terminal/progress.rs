//! Work beside a progress bar, ended by a signal.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use percolator::Progress;

use crate::run::stop::Signals;
use crate::terminal::out::tell;

/// How often the progress is shown and signals are checked.
const LOOK: Duration = Duration::from_millis(100);

/// How often a line says how far the work is, if there is no terminal to show a bar on.
const LINE: Duration = Duration::from_secs(10);

/// A signal ended the work, and the user knows it; the code to exit with.
#[derive(Debug)]
pub(crate) struct Stopped(pub(crate) ExitCode);

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a signal ended it")
    }
}

impl std::error::Error for Stopped {}

/// Does work, which may print lines to the standard output, beside a progress bar with a message, which is
/// made of the progress and the time since the start. On SIGINT or SIGTERM, the progress is told to stop; if
/// that ends the work, the error is [`Stopped`].
pub(crate) fn watched<T: Send>(
    is_quiet: bool,
    mut message: impl FnMut(&Progress, Duration) -> String,
    work: impl FnOnce(&Progress, &Lines) -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    let progress = &Progress::new();
    let signals = Signals::catch()?;
    let measured = ProgressStyle::with_template("{wide_bar} {percent:>3} %  {msg}")
        .context("the progress bar's template")?;
    let bar = bar(is_quiet)?;
    let lines = &Lines { beside: std::io::stdout().is_terminal().then(|| bar.clone()) };
    let start = Instant::now();
    let (is_over, watcher) = (AtomicBool::new(false), thread::current());
    let done = thread::scope(|scope| {
        let is_over = &is_over;
        let work = thread::Builder::new()
            .name("work".to_owned())
            .spawn_scoped(scope, move || {
                let _end = End { is_over, watcher };
                work(progress, lines)
            })
            .context("cannot start a thread for the work")?;
        let mut next_line = (!is_quiet && !std::io::stderr().is_terminal()).then_some(LINE);
        // Acquire pairs with the Release in `End`; the result comes by the join.
        while !is_over.load(Ordering::Acquire) {
            if signals.caught().is_some() {
                progress.stop();
            }
            let total = progress.total();
            let done = progress.done().min(total);
            if total > 0 {
                bar.set_style(measured.clone());
                bar.update(|state| {
                    state.set_len(total);
                    state.set_pos(done);
                });
            }
            let took = start.elapsed();
            let mut said = || {
                let left = left(done, progress.done_before(), total, took);
                format!("{}{}", message(progress, took), left.unwrap_or_default())
            };
            if total > 0 || progress.records() > 0 {
                bar.set_message(said());
                bar.tick();
            }
            if let Some(due) = next_line.filter(|due| took >= *due) {
                tell(&line(done, total, &said()));
                next_line = Some(due + LINE);
            }
            // It does not synchronise: the work is joined below.
            thread::park_timeout(LOOK);
        }
        bar.finish_and_clear();
        work.join().map_err(|_| anyhow::anyhow!("a thread has panicked"))
    })?;
    match (done, signals.caught()) {
        (Err(error), Some((signal, code))) if progress.is_stopped() => {
            tell(&format!("{signal}: {error:#}"));
            Err(Stopped(ExitCode::from(code)).into())
        }
        (done, _) => done,
    }
}

/// Lines printed to the standard output while a bar may be shown on the same terminal.
pub(crate) struct Lines {
    /// The bar, if the lines are not going anywhere else.
    beside: Option<ProgressBar>,
}

impl Lines {
    /// Prints, with the bar out of the way. What is printed ends with a line break, and leaves no buffer.
    pub(crate) fn print(&self, print: impl FnOnce()) {
        match &self.beside {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }
}

/// Wakes the watcher when the work is over, also by a panic.
struct End<'a> {
    is_over: &'a AtomicBool,
    watcher: Thread,
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        self.watcher.unpark();
    }
}

/// How far the work is, for a log.
fn line(done: u64, total: u64, message: &str) -> String {
    match (u128::from(done) * 100).checked_div(total.into()) {
        Some(percent) => format!("{percent} %  {message}"),
        None => message.to_owned(),
    }
}

/// How long the rest takes if it goes on as in this time, in which everything but `before` was done. Nothing
/// is known of it before anything is done.
fn left(done: u64, before: u64, total: u64, took: Duration) -> Option<String> {
    let rest = u128::from(total.saturating_sub(done)) * took.as_millis();
    let left = rest.checked_div(u128::from(done.saturating_sub(before)) * 1000)?;
    let left = Duration::from_secs(u64::try_from(left).unwrap_or(u64::MAX));
    Some(format!("  {} left", HumanDuration(left)))
}

/// A bar for work whose size is not known yet, and may never be.
fn bar(is_quiet: bool) -> anyhow::Result<ProgressBar> {
    let unmeasured =
        ProgressStyle::with_template("{spinner} {msg}").context("the progress bar's template")?;
    Ok(if is_quiet { ProgressBar::hidden() } else { ProgressBar::no_length().with_style(unmeasured) })
}

/// A message that counts: what is done, as in "train: run", and how many of them.
pub(crate) fn counted(what: String) -> impl Fn(&Progress, Duration) -> String {
    move |progress: &Progress, _: Duration| format!("{what} {} of {}", progress.done(), progress.total())
}

/// The rate of records and of their bytes, for a bar or a log.
#[expect(clippy::cast_precision_loss, reason = "it is shown without decimals")]
pub(crate) fn rate(progress: &Progress, took: Duration) -> String {
    let rate = progress.records() as f64 / took.as_secs_f64().max(1e-3);
    format!("{rate:.0} records/s, {:.1} MB/s", megabytes_per_second(progress.bytes(), took))
}

/// Returns the millions of bytes for each second of this time.
#[expect(clippy::cast_precision_loss, reason = "it is shown with one decimal")]
pub(crate) fn megabytes_per_second(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / 1e6 / took.as_secs_f64().max(1e-3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_done_and_its_error_is_returned() {
        let work = |progress: &Progress, _: &Lines| {
            progress.set_done(2);
            Ok(("value", progress.done()))
        };
        assert_eq!(watched(true, |_, _| String::new(), work).unwrap(), ("value", 2));
        // Without a signal, nothing has asked it to end.
        let failed = |_: &Progress, _: &Lines| -> anyhow::Result<()> { anyhow::bail!("no disk") };
        let error = watched(true, |_, _| String::new(), failed).unwrap_err();
        assert_eq!(error.to_string(), "no disk");
    }

    #[test]
    fn a_log_has_lines() {
        assert_eq!(line(1, 3, "5/s"), "33 %  5/s");
        assert_eq!(line(u64::MAX, u64::MAX, "5/s"), "100 %  5/s");
        assert_eq!(line(7, 0, "5/s"), "5/s", "the total is not known");
    }

    #[test]
    fn the_time_left_is_that_of_what_this_run_did() {
        let left = |done, before, total| left(done, before, total, Duration::from_secs(10));
        assert_eq!(left(1, 0, 3).as_deref(), Some("  20 seconds left"));
        assert_eq!(left(90, 80, 100).as_deref(), Some("  10 seconds left"), "80 were done before");
        assert_eq!(left(u64::MAX, 0, u64::MAX).as_deref(), Some("  0 seconds left"));
        assert_eq!(left(0, 0, 3), None);
        assert_eq!(left(80, 80, 100), None, "nothing is done yet");
    }

    #[test]
    fn a_panic_is_an_error() {
        let panics = |_: &Progress, _: &Lines| -> anyhow::Result<()> { panic!("on purpose") };
        let error = watched(true, |_, _| String::new(), panics);
        assert_eq!(error.unwrap_err().to_string(), "a thread has panicked");
    }
}
