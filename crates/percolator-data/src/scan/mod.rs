//! Every record of a data set on all cores, with the results in order.
//!
//! ```text
//! sample     looks at a few records before, to find out what they are
//!
//! feeder     reads records into chunks (chunk), also behind damage (resume); which ones: selection
//!   v        one thread for a database; each worker for itself if the source is seekable
//! workers    (of the crate) do what the caller wants with each record; the results come in order
//! ```
//!
//! Memory: each thread has two chunks, one in its hands and one that waits for it, and each has 64 records or
//! fewer, or 1 MiB and a record. The results of as many chunks wait for their turn.

mod chunk;
mod feeder;
mod resume;
mod sample;
mod selection;
#[cfg(test)]
mod tests;

use std::num::NonZeroUsize;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crossbeam_channel::{Receiver, unbounded};
use percolator::batch::RecordCause;
use percolator::record::Key;
use percolator::source::SourceError;
use percolator_files::shown::{self, panic_message};

use crate::open::DataSet;
use crate::workers::{Job, Workers};

pub(crate) use self::chunk::{Chunk, Held};
pub use self::chunk::{FAULTS_IN_A_ROW_MAX, Seen, Unreadable};
pub(crate) use self::feeder::Feeder;
pub(crate) use self::sample::{look_at_first, look_at_spread};
pub use self::selection::Selection;
pub use crate::workers::{THREADS_MAX, ThreadsError};
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
    /// It is not said which feature has the image, or it is, and the values have no features.
    #[error("{}: {message}", shown::path(path))]
    ImageFeature {
        /// The data set.
        path: PathBuf,
        /// What was found, and what to say.
        message: String,
    },
    /// There are no threads to work.
    #[error(transparent)]
    Threads(#[from] ThreadsError),
    /// Reading the data set panicked.
    #[error("{}: reading it panicked: {message}; this is a bug, please report it", shown::path(path))]
    ReadingPanicked {
        /// The data set.
        path: PathBuf,
        /// The panic's message.
        message: String,
    },
    /// Working on a record panicked, or there is no memory for it: nothing is known of the record.
    #[error("{}: record {number}, key {key}: {message}", shown::path(path))]
    Record {
        /// The data set.
        path: PathBuf,
        /// The record's number.
        number: u64,
        /// Its key.
        key: Key,
        /// What happened.
        message: String,
    },
}

impl ScanError {
    /// The error that ends a scan whose work on a record failed with `cause`, if that is a lack of memory: it
    /// must not count as the record's damage.
    pub(crate) fn no_memory(path: &Path, number: u64, key: &[u8], cause: &RecordCause) -> Option<Self> {
        cause.is_lack_of_memory().then(|| ScanError::Record {
            path: path.to_owned(),
            number,
            key: Key(key.to_owned()),
            message: format!("{cause}; nothing is known of the record"),
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

impl<T> Event<T> {
    /// What the work made of a record.
    ///
    /// # Errors
    ///
    /// Why records cannot be read, which ends the scan.
    pub(crate) fn done(self) -> Result<T, ScanError> {
        match self {
            Event::Done(done) => Ok(done),
            Event::Unreadable(unreadable) => Err(unreadable.error.into()),
        }
    }
}

/// How many records a worker takes at once, and how many of a source that it seeks in: there, each is a file.
const AT_ONCE: u64 = 64;
const FILES_AT_ONCE: u64 = 8;

/// What a worker gets.
enum Records {
    /// Records, if they could be read.
    Read(Result<Chunk, ScanError>),
    /// The places of those that it seeks.
    At(Range<u64>),
}

/// What a worker made of a chunk.
struct Results<T> {
    events: Vec<Event<T>>,
    records: u64,
    bytes: u64,
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
        mut take: impl FnMut(Event<T>) -> Result<(), E>,
    ) -> Result<Vec<S>, E> {
        let records = self.selection.count().or_else(|| data.records());
        progress.begin(records.unwrap_or_else(|| data.file_bytes()));
        let workers = Workers::new("scan", self.threads.map(usize::from), 2).map_err(ScanError::from)?;
        let (used, spare) = unbounded();
        let chunk = || spare.try_recv().unwrap_or_else(|_| Chunk::with_records(self.at_once(AT_ONCE)));
        let read = |deal: &dyn Fn(Records) -> bool| match self.seekable(data) {
            Some(records) => {
                let at_once = self.at_once(FILES_AT_ONCE);
                let places = |place: u64| place * at_once..records.min((place + 1) * at_once);
                let _ = (0..records.div_ceil(at_once)).all(|place| deal(Records::At(places(place))));
            }
            None => {
                let mut feeder = Feeder::new(data, self.selection, self.on_damage);
                loop {
                    let mut chunk = chunk();
                    let read = caught(data.path(), || feeder.fill(&mut chunk));
                    let is_last = read.is_err() || chunk.is_empty();
                    if !deal(Records::Read(read.map(|()| chunk))) || is_last {
                        break;
                    }
                }
            }
        };
        let worker = |jobs: Receiver<Job<Records, Result<Results<T>, ScanError>>>| {
            let mut state = start();
            let mut feeder = Feeder::new(data, self.selection, self.on_damage);
            for (records, result) in jobs {
                let read = match records {
                    Records::Read(read) => read,
                    Records::At(places) => {
                        let mut chunk = chunk();
                        caught(data.path(), || feeder.fill_range(&mut chunk, places)).map(|()| chunk)
                    }
                };
                let results = read.and_then(|chunk| {
                    let events = events_of(data.path(), &chunk, &mut state, &work)?;
                    let results = Results { events, records: chunk.records(), bytes: chunk.bytes() };
                    let _ = used.send(chunk);
                    Ok(results)
                });
                // Once the taker has left, no more results are wanted.
                if result.send(results).is_err() {
                    break;
                }
            }
            state
        };
        let take = |results: Result<Results<T>, ScanError>| -> Result<(), E> {
            if progress.is_stopped() {
                return Err(ScanError::Stopped.into());
            }
            let results = results?;
            results.events.into_iter().try_for_each(&mut take)?;
            progress.add_records(results.records);
            progress.add_bytes(results.bytes);
            // Where the number of records is not known, the work is measured in bytes.
            progress.add_done(if records.is_some() { results.records } else { results.bytes });
            Ok(())
        };
        workers.run(read, worker, take).map_err(ScanError::from)?
    }

    fn at_once(&self, usual: u64) -> u64 {
        self.at_once.map_or(usual, |wanted| usual.min(wanted.get() as u64))
    }

    /// The number of records to read, if each worker can seek its own.
    fn seekable(&self, data: &DataSet) -> Option<u64> {
        match data.sources() {
            [source] if source.is_seekable() => self.selection.count().or_else(|| source.records()),
            _ => None,
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
            done.map(Event::Done).map_err(|panic| ScanError::Record {
                path: path.to_owned(),
                number: seen.number,
                key: Key(seen.key.to_owned()),
                message: format!(
                    "working on it panicked: {}; this is a bug, please report it",
                    panic_message(&*panic)
                ),
            })
        }
        Held::Unreadable(unreadable) => Ok(Event::Unreadable(unreadable.clone())),
    };
    chunk.held().map(event).collect()
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
