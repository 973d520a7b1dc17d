//! Every record of a data set on all cores, with the results in order.
//!
//! ```text
//! feeder     reads records into chunks (chunk), also behind damage (resume); which ones: selection
//!   v        one thread for a database; each worker for itself if the source is seekable
//! workers    do what the caller wants with each record
//!   v        any order
//! mod        puts the results in order, and gives the chunks back
//! ```
//!
//! Memory: there are as many chunks as threads, and as many again, and each has 64 records, or 1 MiB and a
//! record. A chunk is read only once another came back, so results that wait for their turn are bounded, too.

mod chunk;
mod feeder;
mod progress;
mod resume;
mod sample;
mod selection;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use percolator::source::SourceError;

use self::chunk::{Chunk, Held};
use self::feeder::Feeder;
use crate::open::DataSet;

pub use self::chunk::{FAULTS_IN_A_ROW_MAX, Seen, Unreadable};
pub use self::progress::Progress;
pub(crate) use self::sample::{look_at_first, look_at_spread};
pub use self::selection::Selection;

/// What a scan does about records that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDamage {
    /// It ends with the error.
    #[default]
    End,
    /// It reports them, and goes on behind them.
    GoOn,
}

/// How a data set is scanned.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scan {
    /// How many threads work; by default one for each processor.
    pub threads: Option<NonZeroUsize>,
    /// Which records are looked at.
    pub selection: Selection,
    /// What happens to records that cannot be read.
    pub on_damage: OnDamage,
}

/// Why a scan has no result.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The data set cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// [`Progress::stop`] was called.
    #[error("stopped before the end")]
    Stopped,
}

/// What a scan finds, in order.
#[derive(Debug)]
pub enum Event<T> {
    /// What the work made of a record.
    Done(T),
    /// Records that cannot be read, if the scan [goes on](OnDamage::GoOn).
    Unreadable(Unreadable),
}

/// How many records a worker takes at once of a source that it seeks in. Each is a file.
const FILES_AT_ONCE: u64 = 8;

/// The results of a chunk, or of the attempt to read one.
struct Results<T> {
    chunk: Chunk,
    events: Result<Vec<Event<T>>, SourceError>,
}

impl Scan {
    /// Calls `work` for each record, on all threads, with a state that `start` made for the thread, and
    /// `take` with each result, in order, on this thread. Returns the states.
    ///
    /// # Errors
    ///
    /// The caller's own error, from `take`, or one made of [`ScanError`].
    ///
    /// # Panics
    ///
    /// If `start`, `work` or `take` panics.
    pub fn run<S: Send, T: Send, E: From<ScanError>>(
        &self,
        data: &DataSet,
        progress: &Progress,
        start: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, Seen<'_>) -> T + Sync,
        take: impl FnMut(Event<T>) -> Result<(), E>,
    ) -> Result<Vec<S>, E> {
        progress.begin(self.selection.len().or_else(|| data.records()), data.file_bytes());
        let threads = self.threads.map_or_else(default_threads, usize::from);
        let chunks = 2 * threads;
        let (free_in, free) = bounded(chunks);
        for _ in 0..chunks {
            // There is room for all of them.
            let _ = free_in.send(Chunk::default());
        }
        let (results_in, results) = bounded(chunks);
        let (start, work, claims) = (&start, &work, &Mutex::new(0));
        thread::scope(|scope| {
            let full = match self.seekable(data) {
                Some(_) => None,
                None => {
                    let (full_in, full) = bounded(chunks);
                    let (free, results_in) = (free.clone(), results_in.clone());
                    scope.spawn(move || self.read(data, &free, &full_in, &results_in));
                    Some(full)
                }
            };
            let worker = || {
                let (full, free, results_in) = (full.clone(), free.clone(), results_in.clone());
                scope.spawn(move || {
                    let mut state = start();
                    match full {
                        Some(full) => work_on(&full, &results_in, &mut state, work),
                        None => self.seek_and_work(data, claims, &free, &results_in, &mut state, work),
                    }
                    state
                })
            };
            let workers: Vec<_> = (0..threads).map(|_| worker()).collect();
            // The threads end when the other ends of their channels do.
            drop((full, free, results_in));
            let taken = in_order(results, free_in, progress, take);
            let join = |worker: thread::ScopedJoinHandle<'_, S>| {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            let states = workers.into_iter().map(join).collect();
            taken.map(|()| states)
        })
    }

    /// The number of records to look at, if each worker can seek its own.
    fn seekable(&self, data: &DataSet) -> Option<u64> {
        match data.sources() {
            [source] if source.is_seekable() => self.selection.len().or_else(|| source.records()),
            _ => None,
        }
    }

    /// Reads all chunks, one after the other.
    fn read<T>(
        &self,
        data: &DataSet,
        free: &Receiver<Chunk>,
        full: &Sender<Chunk>,
        results: &Sender<Results<T>>,
    ) {
        let mut feeder = Feeder::new(data, self.selection, self.on_damage);
        for (place, mut chunk) in (0..).zip(free) {
            chunk.place = place;
            if let Err(error) = feeder.fill(&mut chunk) {
                let _ = results.send(Results { chunk, events: Err(error) });
                break;
            }
            if chunk.is_empty() || full.send(chunk).is_err() {
                break;
            }
        }
    }

    /// Claims a few records, seeks and reads them, and works on them, until there are none.
    fn seek_and_work<S, T>(
        &self,
        data: &DataSet,
        claims: &Mutex<u64>,
        free: &Receiver<Chunk>,
        results: &Sender<Results<T>>,
        state: &mut S,
        work: &impl Fn(&mut S, Seen<'_>) -> T,
    ) {
        let records = self.seekable(data).unwrap_or(0);
        let mut feeder = Feeder::new(data, self.selection, self.on_damage);
        for mut chunk in free {
            // Claimed with a chunk in hand: whoever has the lowest claim never waits for one.
            chunk.place = {
                let mut next = claims.lock();
                *next += 1;
                *next - 1
            };
            let first = chunk.place * FILES_AT_ONCE;
            if first >= records {
                break;
            }
            let places: Range<u64> = first..records.min(first + FILES_AT_ONCE);
            let filled = feeder.fill_range(&mut chunk, places);
            let events = filled.map(|()| events_of(&chunk, state, work));
            if results.send(Results { chunk, events }).is_err() {
                break;
            }
        }
    }
}

/// Works on the chunks that were read.
fn work_on<S, T>(
    full: &Receiver<Chunk>,
    results: &Sender<Results<T>>,
    state: &mut S,
    work: &impl Fn(&mut S, Seen<'_>) -> T,
) {
    for chunk in full {
        let events = Ok(events_of(&chunk, state, work));
        if results.send(Results { chunk, events }).is_err() {
            break;
        }
    }
}

fn events_of<S, T>(chunk: &Chunk, state: &mut S, work: &impl Fn(&mut S, Seen<'_>) -> T) -> Vec<Event<T>> {
    let event = |held: Held<'_>| match held {
        Held::Record(seen) => Event::Done(work(state, seen)),
        Held::Unreadable(unreadable) => Event::Unreadable(unreadable.clone()),
    };
    chunk.held().map(event).collect()
}

/// Hands the results on in order, and gives each chunk back.
fn in_order<T, E: From<ScanError>>(
    results: Receiver<Results<T>>,
    free: Sender<Chunk>,
    progress: &Progress,
    mut take: impl FnMut(Event<T>) -> Result<(), E>,
) -> Result<(), E> {
    let mut waiting = BTreeMap::new();
    let mut next = 0;
    for found in results {
        waiting.insert(found.chunk.place, found);
        while let Some(Results { chunk, events }) = waiting.remove(&next) {
            next += 1;
            if progress.is_stopped() {
                return Err(ScanError::Stopped.into());
            }
            for event in events.map_err(ScanError::from)? {
                take(event)?;
            }
            progress.add(chunk.records(), chunk.bytes());
            // The threads may be done.
            let _ = free.send(chunk);
        }
    }
    Ok(())
}

fn default_threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Counts a data set's records, by passing over them if their number is not stored.
///
/// # Errors
///
/// [`ScanError`].
pub fn count(data: &DataSet, progress: &Progress) -> Result<u64, ScanError> {
    if let Some(records) = data.records() {
        return Ok(records);
    }
    let mut records = 0;
    for source in data.sources() {
        let mut cursor = source.cursor()?;
        while cursor.skip()? {
            records += 1;
            if progress.is_stopped() {
                return Err(ScanError::Stopped);
            }
        }
    }
    Ok(records)
}
