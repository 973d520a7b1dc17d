//! How a run is watched: options of `feed`.

use std::cell::Cell;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::anyhow;
use clap::Args;
use percolator_observe::metrics::{Endpoint, Feeds};
use percolator_observe::trace::{Existing, Summary, TraceFile};
use percolator_observe::view::{self, Left, Local};

use crate::args::addresses;
use crate::output::{self, FileKind, Output};
use crate::run::consumer::{self, Consumer};
use crate::run::stop::Enough;
use crate::terminal::log;

/// The name of the command's feed, where feeds have names.
pub(super) const NAME: &str = "feed";

#[derive(Debug, Args)]
pub(super) struct ObserveArgs {
    /// Draw the pipeline in the terminal while it runs, until the user quits unless there is another limit.
    /// Keys: p pauses, + and - change the number of threads, q stops the run.
    #[arg(long)]
    pub(super) watch: bool,
    /// Publish metrics for Prometheus while the run lasts, at http://ADDR/metrics. ADDR is HOST:PORT, a host,
    /// or a port [default: 127.0.0.1:9464].
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "127.0.0.1",
        value_parser = addresses::of_metrics)]
    metrics: Option<SocketAddr>,
    /// Write a trace of the run, for https://ui.perfetto.dev: who did what when, batch by batch.
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,
    /// Replace the file of --trace if there is one.
    #[arg(short, long, requires = "trace")]
    force: bool,
    /// Mark runs and batches as NVTX ranges, for NVIDIA's profilers; without NVIDIA's library, it does
    /// nothing.
    #[arg(long)]
    nvtx: bool,
}

/// What watches a run from its start to its end.
#[derive(Debug, Default)]
pub(super) struct Observers<'a> {
    /// The trace, and where it goes.
    trace: Option<(TraceFile, Output<'a>)>,
}

impl ObserveArgs {
    /// Starts what has to be there before the run, and the logging.
    pub(super) fn begin(&self, verbose: u8) -> anyhow::Result<Observers<'_>> {
        let existing = Existing::replaced_if(self.force);
        let begin = |path| {
            let output = Output::check(path, FileKind::Trace, existing)?;
            Ok::<_, anyhow::Error>((TraceFile::create(path, existing)?, output))
        };
        let trace = self.trace.as_deref().map(begin).transpose()?;
        log::init(verbose, trace.as_ref().map(|(trace, _)| trace), self.nvtx);
        Ok(Observers { trace })
    }

    /// Checks that there is a terminal, if one is needed.
    pub(super) fn check_terminal(&self) -> Result<(), view::NoTerminal> {
        if self.watch { view::check_terminal() } else { Ok(()) }
    }

    /// Publishes the feed's metrics, if requested, until the endpoint is dropped.
    pub(super) fn publish(&self, feed: &percolator::Feed) -> anyhow::Result<Option<Endpoint>> {
        let Some(address) = self.metrics else { return Ok(None) };
        let feeds = Feeds::new();
        feeds.put(NAME, feed.handle());
        Ok(Some(Endpoint::serve(address, &feeds)?))
    }

    /// Runs the consumers, beside the live view if that is requested. Returns their reports, and the error of
    /// a terminal that is gone.
    pub(super) fn consume(
        &self,
        feed: &percolator::Feed,
        consumers: Vec<Consumer>,
        enough: &Enough<'_>,
    ) -> (Vec<anyhow::Result<Option<String>>>, anyhow::Result<()>) {
        if !self.watch {
            return (consumer::consume(consumers, enough), Ok(()));
        }
        let (mut subject, handle) = (Local::new(NAME, feed), feed.handle());
        std::thread::scope(|scope| {
            let consume = move || consumer::consume(consumers, enough);
            let work =
                match std::thread::Builder::new().name("consumers".to_owned()).spawn_scoped(scope, consume) {
                    Ok(work) => work,
                    Err(error) => {
                        let error = anyhow!(error).context("cannot start a thread for the consumers");
                        return (vec![Err(error)], Ok(()));
                    }
                };
            let held = log::hold();
            let left = {
                // Also if drawing panics: the consumers of a paused feed would wait for ever.
                let _end = OnDrop(|| {
                    if enough.signals.caught().is_some() || !work.is_finished() {
                        enough.call_off();
                    }
                    handle.resume();
                });
                let looked = Cell::new(Instant::now());
                view::watch(&mut subject, || {
                    let since = looked.replace(Instant::now()).elapsed();
                    if handle.is_paused() {
                        enough.postpone(since);
                    }
                    work.is_finished() || enough.signals.caught().is_some()
                })
            };
            drop(held);
            if let Ok(Left::Interrupted) = left {
                enough.signals.interrupt();
            }
            let counted = work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (counted, left.map(drop).map_err(|error| anyhow!("the live view ended: {error}")))
        })
    }
}

/// Does something when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl Observers<'_> {
    /// Completes what was written about the run.
    pub(super) fn finish(self) -> anyhow::Result<Option<Summary>> {
        let Some((trace, output)) = self.trace else { return Ok(None) };
        let place = output.place();
        let finished = trace.finish_at(&place.path, place.existing);
        output::ended(finished.map(Some).map_err(Into::into), [place])
    }
}
