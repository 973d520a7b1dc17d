//! Feeds a database of the user's own to consumers that look at every pixel and every label. Each lane has a
//! thread, as in a training loop that drives each device from a thread of its own.

use std::panic::resume_unwind;
use std::path::Path;
use std::thread;
use std::time::Instant;

use indicatif::ProgressBar;
use percolator::{FeedBuilder, Lane};

use crate::report;
use crate::tally::Tally;

/// Feeds `source` until enough of it was seen, and prints a summary.
pub(crate) fn run(builder: FeedBuilder, source: &Path, enough: &Enough) -> anyhow::Result<()> {
    let mut feed = builder.build()?;
    let lanes = feed.take_lanes()?;
    let step_records = (feed.layout().rows() * lanes.len()) as u64;

    let records = feed.records().map_or_else(String::new, |records| format!("{records} records, "));
    let first = feed.input_shape().map_or_else(String::new, |shape| shape.to_string());
    report::say(format_args!("{}: {records}the first {first}", source.display()))?;
    report::say(format_args!("feeding batches of {} to {} lane(s)", feed.layout(), lanes.len()))?;

    let length = match enough {
        Enough { batches: Some(batches), .. } => Some((*batches as u64).saturating_mul(step_records)),
        // The feed ends by itself.
        Enough { deadline: None, .. } => feed.records(),
        _ => None,
    };
    let progress = report::progress(length, "records");
    let tally = consume_all(lanes, enough, &progress);
    let stats = feed.stats();
    progress.finish();
    report::say(format_args!("{}", tally?))?;
    report::print_table(&stats)?;
    Ok(())
}

/// Runs each lane on a thread, and merges what they have seen.
fn consume_all(lanes: Vec<Lane>, enough: &Enough, progress: &ProgressBar) -> anyhow::Result<Tally> {
    thread::scope(|scope| {
        let start = |lane| scope.spawn(|| consume(lane, enough, progress));
        let consumers: Vec<_> = lanes.into_iter().map(start).collect();
        consumers.into_iter().try_fold(Tally::default(), |tally, consumer| {
            let seen = consumer.join().unwrap_or_else(|panic| resume_unwind(panic))?;
            Ok(tally.merge(seen))
        })
    })
}

/// When a consumer has seen enough: after a number of batches, after a time, or at the end of the feed.
pub(crate) struct Enough {
    /// For each lane.
    pub(crate) batches: Option<usize>,
    pub(crate) deadline: Option<Instant>,
}

impl Enough {
    fn is_reached(&self, batches: usize) -> bool {
        self.batches.is_some_and(|enough| batches >= enough)
            || self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }
}

fn consume(lane: Lane, enough: &Enough, progress: &ProgressBar) -> anyhow::Result<Tally> {
    let mut tally = Tally::default();
    for (batches, batch) in (1..).zip(lane) {
        let batch = batch?;
        tally.add(&batch)?;
        progress.inc(batch.len() as u64);
        if enough.is_reached(batches) {
            break;
        }
    }
    Ok(tally)
}
