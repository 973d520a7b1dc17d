//! Every record of a data set on all cores, with the results in order.
//!
//! ```text
//! sample     looks at a few records before, to find out what they are
//!
//! feeder     reads records into chunks (chunk), also behind damage (resume); which ones: selection
//!   v        one thread for a database; each worker for itself if the source is seekable
//! workers    do what the caller wants with each record
//!   v        any order
//! mod        puts the results in order, and gives the chunks back
//! ```
//!
//! Memory: there are as many chunks as threads, and as many again, and each has 64 records or fewer, or 1 MiB
//! and a record. A chunk is read only once another came back, so results that wait for their turn are
//! bounded, too.

mod chunk;
mod feeder;
mod resume;
mod sample;
mod selection;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use percolator::batch::RecordCause;
use percolator::record::Key;
use percolator::source::SourceError;
use percolator_files::shown::{self, panic_message};

use crate::content::Content;
use crate::open::DataSet;

pub(crate) use self::chunk::{Chunk, Held};
pub use self::chunk::{FAULTS_IN_A_ROW_MAX, Seen, Unreadable};
pub(crate) use self::feeder::Feeder;
pub(crate) use self::sample::{look_at_first, look_at_spread};
pub use self::selection::Selection;
pub use percolator::Progress;

/// What a scan does about records that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDamage {
    /// It ends with the error.
    #[default]
    End,
    /// It reports them, and goes on after them.
    GoOn,
}

/// How a data set is scanned.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scan {
    /// How many threads work, at most [`THREADS_MAX`]; by default one for each processor.
    pub threads: Option<NonZeroUsize>,
    /// Which records are read.
    pub selection: Selection,
    /// What happens to records that cannot be read.
    pub on_damage: OnDamage,
    /// The most records that a worker takes at once (default: 64). Results wait for their turn in as many
    /// places as there are threads, twice, so large results want fewer.
    pub at_once: Option<NonZeroUsize>,
}

/// The most threads that a scan may have, as many as a feed.
pub const THREADS_MAX: usize = 1024;

/// Why a scan has no result.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// The data set cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// [`Progress::stop`] was called.
    #[error("stopped before the end")]
    Stopped,
    /// The feature that has the image was stated, and the values have no features.
    #[error(
        "{}: {feature:?} names the feature that has the image, and the values are of the kind {content}, \
         which has no features: leave it out",
        shown::path(path)
    )]
    NoFeatures {
        /// The data set.
        path: PathBuf,
        /// The feature.
        feature: String,
        /// What the values are.
        content: Content,
    },
    /// Several features are images, and one is wanted.
    #[error(
        "{}: there are images in the features {}: say which is meant (`--image FEATURE`; \
         `OpenOptions::image_feature` in a program)",
        shown::path(path),
        shown::message(&features.join(", "))
    )]
    SeveralImages {
        /// The data set.
        path: PathBuf,
        /// The features.
        features: Vec<String>,
    },
    /// More threads are wanted than [`THREADS_MAX`].
    #[error("{found} threads are too many; at most {THREADS_MAX} are allowed")]
    TooManyThreads {
        /// How many are wanted.
        found: usize,
    },
    /// A thread cannot be started.
    #[error("cannot start {threads} threads; use fewer")]
    Thread {
        /// How many are wanted.
        threads: usize,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// Reading the data set panicked.
    #[error("{}: reading it panicked: {message}; this is a bug, please report it", shown::path(path))]
    ReadingPanicked {
        /// The data set.
        path: PathBuf,
        /// The panic's message.
        message: String,
    },
    /// There is no memory to work on a record, of which nothing is known then.
    #[error("{}: record {number}, key {key}: {cause}; nothing is known of the record", shown::path(path))]
    NoMemory {
        /// The data set.
        path: PathBuf,
        /// The record's number.
        number: u64,
        /// Its key.
        key: Key,
        /// What there is no memory for.
        cause: Box<RecordCause>,
    },
    /// Working on a record panicked.
    #[error(
        "{}: record {number}, key {key}: working on it panicked: {message}; this is a bug, please report it",
        shown::path(path)
    )]
    Panicked {
        /// The data set.
        path: PathBuf,
        /// The record's number.
        number: u64,
        /// Its key.
        key: Key,
        /// The panic's message.
        message: String,
    },
}

impl ScanError {
    /// The error that ends a scan whose work on a record failed with `cause`, if that is a lack of memory: it
    /// must not count as the record's damage.
    pub(crate) fn no_memory(path: &Path, number: u64, key: &[u8], cause: &RecordCause) -> Option<Self> {
        cause.is_lack_of_memory().then(|| ScanError::NoMemory {
            path: path.to_owned(),
            number,
            key: Key(key.to_owned()),
            cause: Box::new(cause.clone()),
        })
    }
}

/// What a scan finds, in order.
#[derive(Debug)]
pub enum Event<T> {
    /// What the work made of a record.
    Done(T),
    /// Records that cannot be read, if the scan [goes on](OnDamage::GoOn).
    Unreadable(Unreadable),
}

/// How many records a worker takes at once, and how many of a source that it seeks in: there, each is a file.
const AT_ONCE: u64 = 64;
const FILES_AT_ONCE: u64 = 8;

/// The results of a chunk, or of the attempt to read one.
struct Results<T> {
    chunk: Chunk,
    events: Result<Vec<Event<T>>, ScanError>,
}

impl Scan {
    /// Calls `work` for each record, on all threads, with a state that `start` made for the thread, and
    /// `take` with each result, in order, on this thread. Returns the states.
    ///
    /// The progress is in records, or in bytes of them if the number of records is not known; its bytes are
    /// those of keys and values.
    ///
    /// # Errors
    ///
    /// The caller's own error, from `take`, or one made of [`ScanError`], which a panic of `work` or of a
    /// source is, too.
    ///
    /// # Panics
    ///
    /// If `start` or `take` panics.
    pub fn run<S: Send, T: Send, E: From<ScanError>>(
        &self,
        data: &DataSet,
        progress: &Progress,
        start: impl Fn() -> S + Sync,
        work: impl Fn(&mut S, Seen<'_>) -> T + Sync,
        take: impl FnMut(Event<T>) -> Result<(), E>,
    ) -> Result<Vec<S>, E> {
        let records = self.selection.len().or_else(|| data.records());
        // Where the number of records is not known, the work is measured in bytes.
        let unit = if records.is_some() { Chunk::records } else { Chunk::bytes };
        progress.begin(records.unwrap_or_else(|| data.file_bytes()));
        let threads = self.threads()?;
        let chunks = 2 * threads;
        let (free_in, free) = bounded(chunks);
        for _ in 0..chunks {
            // There is room for all of them.
            let _ = free_in.send(Chunk::with_records(self.at_once(AT_ONCE)));
        }
        let (results_in, results) = bounded(chunks);
        let (start, work, claims) = (&start, &work, &Mutex::new(0));
        let failed = |error| ScanError::Thread { threads, error };
        thread::scope(|scope| {
            let full = match self.seekable(data) {
                Some(_) => None,
                None => {
                    let (full_in, full) = bounded(chunks);
                    let (free, results_in) = (free.clone(), results_in.clone());
                    let read = move || self.read(data, &free, &full_in, &results_in);
                    let reader = thread::Builder::new().name("scan:reader".to_owned());
                    reader.spawn_scoped(scope, read).map_err(failed)?;
                    Some(full)
                }
            };
            let worker = |number| {
                let (full, free, results_in) = (full.clone(), free.clone(), results_in.clone());
                let run = move || {
                    let mut state = start();
                    match full {
                        Some(full) => work_on(data.path(), &full, &results_in, &mut state, work),
                        None => self.seek_and_work(data, claims, &free, &results_in, &mut state, work),
                    }
                    state
                };
                let worker = thread::Builder::new().name(format!("scan:{number}"));
                worker.spawn_scoped(scope, run).map_err(failed)
            };
            // Those that were started end with the channels, if another cannot be.
            let workers = (0..threads).map(worker).collect::<Result<Vec<_>, _>>()?;
            // The threads end when the other ends of their channels do.
            drop((full, free, results_in));
            let taken = in_order(results, free_in, (progress, unit), take);
            let join = |worker: thread::ScopedJoinHandle<'_, S>| {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            let states = workers.into_iter().map(join).collect();
            taken.map(|()| states)
        })
    }

    fn threads(&self) -> Result<usize, ScanError> {
        match self.threads.map(usize::from) {
            None => Ok(default_threads()),
            Some(found) if found > THREADS_MAX => Err(ScanError::TooManyThreads { found }),
            Some(threads) => Ok(threads),
        }
    }

    fn at_once(&self, usual: u64) -> u64 {
        self.at_once.map_or(usual, |wanted| usual.min(wanted.get() as u64))
    }

    /// The number of records to read, if each worker can seek its own.
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
            if let Err(error) = caught(data.path(), || feeder.fill(&mut chunk)) {
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
        let (records, at_once) = (self.seekable(data).unwrap_or(0), self.at_once(FILES_AT_ONCE));
        let mut feeder = Feeder::new(data, self.selection, self.on_damage);
        for mut chunk in free {
            // Claimed with a chunk in hand: the worker with the lowest claim never waits for one.
            chunk.place = {
                let mut next = claims.lock();
                *next += 1;
                *next - 1
            };
            let first = chunk.place * at_once;
            if first >= records {
                break;
            }
            let places: Range<u64> = first..records.min(first + at_once);
            let filled = caught(data.path(), || feeder.fill_range(&mut chunk, places));
            let events = filled.and_then(|()| events_of(data.path(), &chunk, state, work));
            if results.send(Results { chunk, events }).is_err() {
                break;
            }
        }
    }
}

/// Reads. A panic is an error: without the thread, all others would wait for its chunk for ever. The scan
/// ends with it, so its remains are not used.
fn caught(path: &Path, read: impl FnOnce() -> Result<(), SourceError>) -> Result<(), ScanError> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(read) => Ok(read?),
        Err(panic) => {
            Err(ScanError::ReadingPanicked { path: path.to_owned(), message: panic_message(&*panic) })
        }
    }
}

/// Works on the chunks that were read.
fn work_on<S, T>(
    path: &Path,
    full: &Receiver<Chunk>,
    results: &Sender<Results<T>>,
    state: &mut S,
    work: &impl Fn(&mut S, Seen<'_>) -> T,
) {
    for chunk in full {
        let events = events_of(path, &chunk, state, work);
        if results.send(Results { chunk, events }).is_err() {
            break;
        }
    }
}

/// Works on a chunk's records. After a panic, the scan ends, so the state that it left is not used.
fn events_of<S, T>(
    path: &Path,
    chunk: &Chunk,
    state: &mut S,
    work: &impl Fn(&mut S, Seen<'_>) -> T,
) -> Result<Vec<Event<T>>, ScanError> {
    let event = |held: Held<'_>| match held {
        Held::Record(seen) => {
            let done = catch_unwind(AssertUnwindSafe(|| work(state, seen)));
            done.map(Event::Done).map_err(|panic| ScanError::Panicked {
                path: path.to_owned(),
                number: seen.number,
                key: Key(seen.key.to_owned()),
                message: panic_message(&*panic),
            })
        }
        Held::Unreadable(unreadable) => Ok(Event::Unreadable(unreadable.clone())),
    };
    chunk.held().map(event).collect()
}

/// Hands the results on in order, and gives each chunk back.
fn in_order<T, E: From<ScanError>>(
    results: Receiver<Results<T>>,
    free: Sender<Chunk>,
    (progress, unit): (&Progress, fn(&Chunk) -> u64),
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
            for event in events? {
                take(event)?;
            }
            progress.add_records(chunk.records());
            progress.add_bytes(chunk.bytes());
            progress.add_done(unit(&chunk));
            // The threads may be done.
            let _ = free.send(chunk);
        }
    }
    Ok(())
}

fn default_threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX)
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
