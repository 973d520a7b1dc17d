//! One round of the pipeline: it is built, warms up, and is measured.
//!
//! The measured window starts and ends when the first lane's consumer takes a batch, so it has whole batches
//! of that lane. Records are dealt to the lanes in turn, so the others are at most a batch away.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use percolator::{Feed, FeedBuilder, Lane, Stats};

use crate::error::MeasureError;
use crate::process::{Memory, cpu_time, storage_bytes};
use percolator::Progress;

/// How often memory is sampled.
const LOOK: Duration = Duration::from_millis(5);
/// How often a consumer in its step looks whether it is asked to end.
const STEP_LOOK: Duration = Duration::from_millis(50);
/// The first batches come from a pipeline that is not full yet.
const WARM_BATCHES: usize = 4;

/// When the window starts and ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// The window's length. Before it, the pipeline warms up for one pass over the source, or for as long as
    /// this.
    pub(crate) length: Duration,
    /// Whether the source was evicted from memory. If so, the window starts with `build()` and ends once the
    /// reader has been through the source, because its next pass would find the source in memory.
    pub(crate) is_cold: bool,
    /// How long a consumer holds each batch, as if it trained on it.
    pub(crate) step: Duration,
}

/// The state at one end of the window.
#[derive(Clone, Debug)]
struct Mark {
    at: Instant,
    stats: Stats,
    cpu: Duration,
    storage_bytes: Option<u64>,
}

/// The results of one round.
#[non_exhaustive]
#[derive(Debug)]
pub struct Run {
    /// The statistics of the window alone.
    pub stats: Stats,
    /// The processor time in the window.
    pub cpu: Duration,
    /// The bytes that came from storage in the window, rather than from memory, if the system says.
    pub storage_bytes: Option<u64>,
    /// The mean size of a record's value, in bytes.
    pub value_bytes: f64,
    /// The time from `build()` to the first batch on its device.
    pub first_batch: Duration,
    /// The times between the batches of a lane, in the window.
    pub intervals: Vec<Duration>,
    /// The peak of the process's own memory, from before `build()` to the end, less what it had before.
    pub anonymous_bytes: Option<u64>,
}

/// The state that the threads of a round share.
struct Round<'a> {
    feed: &'a Feed,
    rule: Rule,
    progress: &'a Progress,
    built: Instant,
    first_batch: OnceLock<Duration>,
    /// The ends of the window.
    start: OnceLock<Mark>,
    end: OnceLock<Mark>,
    stop: AtomicBool,
}

/// Runs one round.
pub(crate) fn run(feed: FeedBuilder, rule: Rule, progress: &Progress) -> Result<Run, MeasureError> {
    let mut memory = Memory::open();
    let before = memory.anonymous_bytes();
    let built = Instant::now();
    let mut feed = feed.build()?;
    let lanes = feed.take_lanes()?;
    let round = Round {
        feed: &feed,
        rule,
        progress,
        built,
        first_batch: OnceLock::new(),
        start: OnceLock::new(),
        end: OnceLock::new(),
        stop: AtomicBool::new(false),
    };
    if rule.is_cold {
        round.start.get_or_init(|| round.mark(built));
    }
    let mut peak = before;
    let taken = std::thread::scope(|scope| {
        let (done, ended) = channel::<()>();
        let mut consumers = Vec::with_capacity(lanes.len());
        let mut failed = None;
        for lane in lanes {
            let (round, done) = (&round, done.clone());
            let (name, number) = (format!("consumer:{}", lane.number()), lane.number());
            let consume = move || {
                let _done = done;
                round.consume(lane)
            };
            match Builder::new().name(name).spawn_scoped(scope, consume) {
                Ok(consumer) => consumers.push(consumer),
                Err(error) => {
                    // The consumers that were started stop.
                    round.stop.store(true, Ordering::Relaxed);
                    let said = format!("cannot start the thread of lane {number}: {error}");
                    failed = Some(MeasureError::Machine(said));
                    break;
                }
            }
        }
        drop(done);
        // Every consumer holds a sender. This ends when the last sender is dropped.
        while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            peak = peak.max(memory.anonymous_bytes());
        }
        let taken = consumers
            .into_iter()
            .map(|consumer| consumer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        let taken = taken.collect::<Result<Vec<_>, MeasureError>>();
        failed.map_or(taken, Err)
    })?;
    let anonymous_bytes = peak.zip(before).map(|(peak, before)| peak - before);
    round.finish(&taken, anonymous_bytes)
}

impl Round<'_> {
    /// Takes a lane's batches until the window has ended. Returns the moments at which it took them.
    fn consume(&self, mut lane: Lane) -> Result<Vec<Instant>, MeasureError> {
        let leads = lane.number() == 0;
        let taken = self.take(&mut lane, leads);
        if leads {
            self.stop.store(true, Ordering::Relaxed);
        }
        // The next measurement must not count this round's memory.
        lane.close();
        taken
    }

    fn take(&self, lane: &mut Lane, leads: bool) -> Result<Vec<Instant>, MeasureError> {
        let mut taken = Vec::new();
        for batch in lane {
            let batch = batch?;
            if taken.is_empty() {
                batch.wait()?;
                self.first_batch.get_or_init(|| self.built.elapsed());
            }
            self.train();
            drop(batch);
            if self.progress.is_stopped() {
                return Err(MeasureError::Stopped);
            }
            let now = Instant::now();
            taken.push(now);
            if leads && self.is_over(now, taken.len()) || self.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(taken)
    }

    /// Takes as long as a training step, unless the measurement is asked to end.
    fn train(&self) {
        let start = Instant::now();
        while let Some(left) = self.rule.step.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
            if self.progress.is_stopped() {
                break;
            }
            std::thread::sleep(left.min(STEP_LOOK));
        }
    }

    /// Starts or ends the window if it is time to. Returns whether it has ended. Only the first lane's
    /// consumer calls it.
    fn is_over(&self, now: Instant, batches: usize) -> bool {
        let Rule { length, is_cold, .. } = self.rule;
        let mark = || self.mark(now);
        let passed = || self.feed.stats().reader.passes > 0;
        match self.start.get() {
            Some(start) => {
                let is_over = now - start.at >= length || is_cold && passed();
                if is_over {
                    self.end.get_or_init(mark);
                }
                is_over
            }
            None => {
                let first = self.built + *self.first_batch.get().unwrap_or(&Duration::ZERO);
                let is_warm = batches >= WARM_BATCHES && (now - first >= length || passed());
                if is_warm {
                    self.start.get_or_init(mark);
                }
                false
            }
        }
    }

    fn mark(&self, at: Instant) -> Mark {
        Mark { at, stats: self.feed.stats(), cpu: cpu_time(), storage_bytes: storage_bytes() }
    }

    fn finish(self, taken: &[Vec<Instant>], anonymous_bytes: Option<u64>) -> Result<Run, MeasureError> {
        let ends = self.start.into_inner().zip(self.end.into_inner());
        let (start, end) = ends.ok_or(MeasureError::EndedEarly)?;
        let first_batch = self.first_batch.into_inner().ok_or(MeasureError::EndedEarly)?;
        let reader = &end.stats.reader;
        let intervals = taken.iter().flat_map(|taken| {
            let inside = taken.iter().filter(|&&at| start.at <= at && at <= end.at);
            inside.clone().zip(inside.skip(1)).map(|(one, next)| *next - *one).collect::<Vec<_>>()
        });
        let mut stats = end.stats.since(&start.stats);
        // The feed's own clock stops when its last lane ends.
        stats.elapsed = end.at - start.at;
        Ok(Run {
            value_bytes: reader.value_bytes as f64 / reader.records.max(1) as f64,
            stats,
            cpu: end.cpu.saturating_sub(start.cpu),
            storage_bytes: end
                .storage_bytes
                .zip(start.storage_bytes)
                .map(|(end, start)| end.saturating_sub(start)),
            first_batch,
            intervals: intervals.collect(),
            anonymous_bytes,
        })
    }
}
