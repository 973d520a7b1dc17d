//! What the workers make of items.
//!
//! The reader's thread gathers items into jobs.

use std::ops::Range;

use crossbeam_channel::{Receiver, unbounded};

use super::error::ConvertError;
use super::maker::{Maker, Size, Unmade};
use super::{Convert, Progress};
use crate::input::{InputError, Item, ItemReader};
use crate::workers::{Job, Workers};

/// The most items of a job, and the bytes of work with which it is full.
const ITEMS_MAX: usize = 64;
const BYTES_MAX: usize = 256 << 10;

/// What became of the items of a job.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// The values of all records.
    bytes: Vec<u8>,
    items: Vec<(Item, Value)>,
}

/// The value of an item's record, or why there is none.
type Value = Result<(Range<usize>, Option<Size>), String>;

/// What a worker gets, and gives.
type Dealt = Job<Result<Vec<Item>, InputError>, Result<Made, InputError>>;

/// A value, borrowed.
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

/// Converts the items from number `from` on with these workers, and gives the results to `write`, in order.
/// Ends with the first error of either side, or when the progress is told to stop.
pub(super) fn run(
    convert: &Convert,
    workers: &Workers,
    from: u64,
    progress: &Progress,
    mut write: impl FnMut(&Made) -> Result<(), ConvertError>,
) -> Result<(), ConvertError> {
    // Buffers that were used, for the next job.
    let (used, spare) = unbounded::<Vec<u8>>();
    let read = |deal: &dyn Fn(Result<Vec<Item>, InputError>) -> bool| {
        let mut reader = match convert.input.reader_unless_stopped(from, &|| progress.is_stopped()) {
            Ok(reader) => reader,
            Err(error) => {
                deal(Err(error));
                return;
            }
        };
        let mut is_end = false;
        while !is_end {
            let (items, failed) = gather(&mut reader);
            is_end = items.is_empty() || !deal(Ok(items));
            if let Some(error) = failed {
                is_end = true;
                deal(Err(error));
            }
        }
    };
    let worker = |jobs: Receiver<Dealt>| {
        let mut maker = Maker::new(&convert.images, &convert.records, convert.input.record_parts());
        for (items, result) in jobs {
            let bytes = spare.try_recv().unwrap_or_default();
            let made = items.and_then(|items| made_of(items, bytes, &mut maker));
            // Once the taker has left, no more results are wanted.
            if result.send(made).is_err() {
                break;
            }
        }
    };
    let take = |made: Result<Made, InputError>| -> Result<(), ConvertError> {
        let mut made = made?;
        write(&made)?;
        made.bytes.clear();
        let _ = used.send(made.bytes);
        if progress.is_stopped() { Err(ConvertError::Stopped) } else { Ok(()) }
    };
    workers.run(read, worker, take)?.map(drop)
}

/// Reads the items of a job; those before an error come with it.
fn gather(reader: &mut ItemReader<'_>) -> (Vec<Item>, Option<InputError>) {
    let (mut items, mut bytes) = (Vec::new(), 0);
    while items.len() < ITEMS_MAX && bytes < BYTES_MAX {
        match reader.next() {
            Some(Ok(item)) => {
                bytes += item.weight();
                items.push(item);
            }
            Some(Err(error)) => return (items, Some(error)),
            None => break,
        }
    }
    (items, None)
}

fn made_of(items: Vec<Item>, bytes: Vec<u8>, maker: &mut Maker<'_>) -> Result<Made, InputError> {
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
