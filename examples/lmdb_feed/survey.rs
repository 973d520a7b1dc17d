//! Feeds an LMDB of the user's own to consumers that look at every pixel and every label: one thread a lane,
//! as a loop would have it that drives each device from a thread of its own.

use std::panic::resume_unwind;
use std::path::Path;
use std::thread;
use std::time::Instant;

use anyhow::Context as _;
use indicatif::ProgressBar;
use percolator::{Feed, Lane};

use crate::options::Options;
use crate::report;
use crate::tally::Tally;

pub(crate) fn run(path: &Path, options: &Options) -> anyhow::Result<()> {
    let mut builder = Feed::builder()
        .lmdb(path)
        .transform(options.transform())
        .devices(options.devices()?)
        .batch_size(options.batch_size)
        .threads(options.threads)
        .prefetch(options.prefetch)
        .seed(options.seed);
    if options.once {
        builder = builder.once();
    }
    let mut feed = builder.build()?;
    let lanes = feed.lanes();

    let records = feed.records().context("an LMDB knows how many records it holds")?;
    report::say(format_args!("{}: {records} records, the first {}", path.display(), feed.input_shape()))?;
    report::say(format_args!("feeding batches of {} to {} lane(s)", feed.batch_shape(), lanes.len()))?;

    let length = if options.once {
        Some(records)
    } else {
        options.batches.map(|batches| batches.saturating_mul(options.step_records()) as u64)
    };
    let progress = report::progress(length, "records");
    let enough = Enough { batches: options.batches, deadline: options.deadline()? };
    let tally = consume_all(lanes, &enough, &progress);
    let stats = feed.stats();
    progress.finish();
    report::say(format_args!("{}", tally?))?;
    report::print_table(&stats)?;
    Ok(())
}

/// Gives each lane to a thread, and puts together what they have seen.
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

/// When a consumer has seen enough: after so many batches, after a time, or at the end of the feed.
struct Enough {
    batches: Option<usize>,
    deadline: Option<Instant>,
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
