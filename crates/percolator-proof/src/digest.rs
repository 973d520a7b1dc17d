//! Makes the digest of a data set, in one pass that all processors hash.

use std::collections::BTreeMap;
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;
use percolator::feed::ConfigError;
use percolator::receipt::{DataDigest, DigestDetail};
use percolator::record::RecordId;
use percolator::source::{Passes, Run, Source, SourceError};
use percolator::{FeedBuilder, FeedError};
use percolator_files::Progress;

/// The limits of a run.
const RUN_BYTES: usize = 256 << 10;
const RUN_RECORDS: usize = 1024;

/// Makes the digest of what a feed would read, including its targets' companions. The feed is not built; only
/// its source and its targets matter. This takes one pass over the data set, which all processors hash.
///
/// # Errors
///
/// [`FeedError`] if the source cannot be opened or read, or is a list that shuffles itself.
pub fn digest(feed: &FeedBuilder, detail: DigestDetail) -> Result<DataDigest, FeedError> {
    // No other code has the progress, so it is never stopped.
    digest_watched(feed, detail, &Progress::new())?.ok_or(FeedError::Cancelled)
}

/// Makes the same [digest](digest()), and reports its progress; `None` if the progress was told to stop. The
/// progress is in records, with a total of 0 if the source does not know how many it has; its bytes are those
/// of the values.
///
/// # Errors
///
/// As of [`digest`](digest()).
pub fn digest_watched(
    feed: &FeedBuilder,
    detail: DigestDetail,
    progress: &Progress,
) -> Result<Option<DataDigest>, FeedError> {
    let source = feed.open_source()?;
    let pass = || {
        if source.passes() == Passes::Shuffled {
            return Err(ConfigError::ShufflesItself.into());
        }
        Ok(of_source(&*source, detail, progress)?)
    };
    // The source may be the caller's own.
    FeedError::of_panic(|| "the source".to_owned(), pass)
}

/// A run to be hashed, and the position of its first record.
type Part = (u64, Run);

/// The digest of the parts that follow each other from the start, and of parts after them: as many as some
/// hashers got through while another one hashed the part before.
struct Hashed {
    digest: DataDigest,
    later: BTreeMap<u64, DataDigest>,
    /// Set if the data were written to in the meantime: then the pass ends.
    changed: Option<SourceError>,
}

impl Hashed {
    fn add(&mut self, first: u64, part: DataDigest) {
        if self.changed.is_some() {
            // A part is missing, and all after it would wait for it.
            return;
        }
        self.later.insert(first, part);
        while let Some(next) = self.later.remove(&self.digest.contents().records()) {
            self.digest.append(next);
        }
    }
}

/// Reads a source from start to end; all processors hash. `None` if the progress was told to stop.
fn of_source(
    source: &dyn Source,
    detail: DigestDetail,
    progress: &Progress,
) -> Result<Option<DataDigest>, SourceError> {
    progress.begin(source.records().unwrap_or(0));
    // Asked here: a panic of the source in a hasher would lose its message.
    let path = source.path();
    let none = DataDigest::of_run(path, detail, &Run::with_capacity(0));
    let hashed = Mutex::new(Hashed { digest: none, later: BTreeMap::new(), changed: None });
    let hash = |(first, run): &Part| {
        let part = DataDigest::of_run(path, detail, run);
        // Lent bytes are valid if they were not written to before they were used.
        match run.check_used() {
            Ok(()) => hashed.lock().add(*first, part),
            Err(changed) => hashed.lock().changed = Some(changed),
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let (sender, parts) = bounded::<Part>(2 * threads);
    let (give_back, free) = bounded::<Run>(2 * threads);
    let is_whole = thread::scope(|scope| {
        let work = |parts: Receiver<Part>, give_back: Sender<Run>| {
            move || {
                for part in parts {
                    hash(&part);
                    // There is room for all runs; an error means that the pass has ended.
                    let _ = give_back.try_send(part.1);
                }
            }
        };
        let hashers = (0..threads).filter(|number| {
            let name = format!("digest:{number}");
            let work = work(parts.clone(), give_back.clone());
            thread::Builder::new().name(name).spawn_scoped(scope, work).is_ok()
        });
        let is_alone = hashers.count() == 0;
        // If no hasher could be started, this thread must not wait for one.
        drop((parts, give_back));
        let mut runs = 0;
        let is_whole = walk(source, |part| {
            if progress.is_stopped() || hashed.lock().changed.is_some() {
                return None;
            }
            count(&part.1, progress);
            if is_alone {
                hash(&part);
                return Some(part.1);
            }
            let _ = sender.send(part);
            if runs < 2 * threads {
                runs += 1;
                return Some(Run::with_capacity(RUN_RECORDS));
            }
            Some(free.recv().unwrap_or_else(|_| Run::with_capacity(RUN_RECORDS)))
        });
        drop(sender);
        is_whole
    })?;
    let Hashed { digest, changed, .. } = hashed.into_inner();
    match changed {
        _ if progress.is_stopped() && !is_whole => Ok(None),
        Some(changed) => Err(changed),
        None => Ok(Some(digest)),
    }
}

/// Reads a source from its first record on and hands its records over in runs, each in exchange for an empty
/// one. Returns `false` if `hand_over` ended the pass before the last of them.
fn walk(source: &dyn Source, mut hand_over: impl FnMut(Part) -> Option<Run>) -> Result<bool, SourceError> {
    let mut cursor = source.cursor()?;
    cursor.seek(0)?;
    let (mut run, mut first, mut index) = (Run::with_capacity(RUN_RECORDS), 0, 0);
    while let Some(entry) = cursor.advance()? {
        if run.value_bytes() >= RUN_BYTES || run.len() >= RUN_RECORDS {
            let Some(next) = hand_over((first, run)) else { return Ok(false) };
            run = next;
            run.clear();
            first = index;
        }
        run.push(RecordId { epoch: 0, index }, entry);
        index += 1;
    }
    Ok(hand_over((first, run)).is_some())
}

fn count(run: &Run, progress: &Progress) {
    progress.add_done(run.len() as u64);
    progress.add_records(run.len() as u64);
    progress.add_bytes(run.value_bytes() as u64);
}
