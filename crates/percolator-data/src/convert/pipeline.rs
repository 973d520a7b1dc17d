//! Items dealt to workers, whose results come back in the items' order.
//!
//! The reader's thread gathers items into jobs. It sends each job to the workers with a channel for its
//! result, and the other end of that channel to the writer. The writer receives those ends in order, so it
//! receives the results in order, whichever thread finishes first. Their number is bounded, and with it the
//! memory.

use std::ops::Range;
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};

use super::error::ConvertError;
use super::maker::{Maker, Size, Unmade};
use super::{Convert, Progress};
use crate::input::{InputError, Item, ItemReader};

/// The most items of a job, and the bytes of work with which it is full.
const ITEMS_MAX: usize = 64;
const BYTES_MAX: usize = 256 << 10;

/// Jobs under way for each worker: one in its hands, one waiting, one done.
const JOBS_EACH: usize = 3;

/// What became of the items of a job.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// The values of all records.
    bytes: Vec<u8>,
    items: Vec<(Item, Value)>,
}

/// The value of an item's record, or why there is none.
type Value = Result<(Range<usize>, Option<Size>), String>;

/// The same, borrowed.
type Outcome<'a> = Result<(&'a [u8], Option<Size>), &'a str>;

impl Made {
    /// The items in order, each with its value and the size of its image, or why there is none.
    pub(super) fn items(&self) -> impl Iterator<Item = (&Item, Outcome<'_>)> {
        self.items.iter().map(|(item, value)| {
            let value = value.as_ref().map_err(String::as_str);
            (item, value.map(|(range, size)| (&self.bytes[range.clone()], *size)))
        })
    }
}

type Done = Result<Made, InputError>;

/// Converts the items from number `from` on, and gives the results to `write`, in order. Ends with the first
/// error of either side, or when the progress is told to stop.
pub(super) fn run(
    convert: &Convert,
    from: u64,
    progress: &Progress,
    mut write: impl FnMut(&Made) -> Result<(), ConvertError>,
) -> Result<(), ConvertError> {
    let workers = convert.workers();
    let (jobs, taken) = bounded::<(Vec<Item>, Sender<Done>)>(workers);
    let (in_order, results) = bounded::<Receiver<Done>>(workers * JOBS_EACH);
    // Buffers that were used, for the next job.
    let (used, spare) = unbounded::<Vec<u8>>();
    thread::scope(|scope| {
        // They end when the writer leaves: it drops `results` and with it everything that they wait for.
        let spawn = |name: String| thread::Builder::new().name(name);
        let begin = || -> std::io::Result<()> {
            for worker in 0..workers {
                let (taken, spare) = (taken.clone(), spare.clone());
                let work = move || {
                    let mut maker = Maker::new(&convert.images, &convert.records);
                    for (items, result) in taken {
                        let bytes = spare.try_recv().unwrap_or_default();
                        // The writer may have left.
                        let _ = result.send(made_of(items, bytes, &mut maker));
                    }
                };
                spawn(format!("convert:{worker}")).spawn_scoped(scope, work)?;
            }
            let read = move || deal(convert, from, progress, &jobs, &in_order);
            spawn("convert:reader".to_owned()).spawn_scoped(scope, read).map(drop)
        };
        begin().map_err(ConvertError::Thread)?;
        drop((taken, spare));
        // Dropped when this closure ends: the reader does not wait for a writer that has left.
        let results = results;
        for result in &results {
            // A worker that ended has panicked; the scope passes that on.
            let Ok(made) = result.recv() else { break };
            let mut made = made?;
            write(&made)?;
            made.bytes.clear();
            let _ = used.send(made.bytes);
            if progress.is_stopped() {
                return Err(ConvertError::Stopped);
            }
        }
        Ok(())
    })
}

/// Reads the items, and deals them in jobs.
fn deal(
    convert: &Convert,
    from: u64,
    progress: &Progress,
    jobs: &Sender<(Vec<Item>, Sender<Done>)>,
    in_order: &Sender<Receiver<Done>>,
) {
    let mut reader = match convert.input.reader_unless_stopped(from, &|| progress.is_stopped()) {
        Ok(reader) => Some(reader),
        Err(error) => {
            fail(error, in_order);
            None
        }
    };
    while let Some(reader) = &mut reader {
        let (items, failed) = gather(&mut **reader);
        let is_end = items.is_empty();
        if !is_end {
            let (result, received) = bounded(1);
            if in_order.send(received).is_err() || jobs.send((items, result)).is_err() {
                return;
            }
        }
        if let Some(error) = failed {
            return fail(error, in_order);
        }
        if is_end {
            return;
        }
    }
}

/// Sends an error after all results.
fn fail(error: InputError, in_order: &Sender<Receiver<Done>>) {
    let (result, received) = bounded(1);
    let _ = result.send(Err(error));
    let _ = in_order.send(received);
}

/// Reads the items of a job; those before an error come with it.
fn gather(reader: &mut dyn ItemReader) -> (Vec<Item>, Option<InputError>) {
    let (mut items, mut bytes) = (Vec::new(), 0);
    while items.len() < ITEMS_MAX && bytes < BYTES_MAX {
        match reader.next() {
            Ok(Some(item)) => {
                bytes += item.weight();
                items.push(item);
            }
            Ok(None) => break,
            Err(error) => return (items, Some(error)),
        }
    }
    (items, None)
}

fn made_of(items: Vec<Item>, bytes: Vec<u8>, maker: &mut Maker<'_>) -> Done {
    let mut made = Made { bytes, items: Vec::with_capacity(items.len()) };
    for item in items {
        let start = made.bytes.len();
        let value = match maker.make(&item, &mut made.bytes) {
            Ok(size) => Ok((start..made.bytes.len(), size)),
            Err(Unmade::Item(reason)) => Err(reason),
            Err(Unmade::Unknown(error)) => return Err(error),
        };
        made.items.push((item, value));
    }
    Ok(made)
}
