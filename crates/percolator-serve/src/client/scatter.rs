//! A batch's body that goes, while it comes, to where a feed here has the batch: each column to its array.
//!
//! The header comes before the body and says where each column is in it. What it says is checked before
//! anything is written; what only the bytes say (offsets, lengths) is checked when they are there.

use std::sync::Arc;

use parking_lot::Mutex;
use percolator::feed::{BatchRoom, SuppliedBatch};
use percolator::record::RecordId;
use tokio::sync::Notify;

use super::batch::{self, RemoteBatch};
use super::fields::RemoteColumns;
use super::receive::Malformed;
use crate::columns::{NotedKind, added_named};
use crate::message::BatchNote;
use crate::request::Column;

/// Where the lane of a feed puts the next batch that is to be filled, for whoever receives it.
#[derive(Debug, Default)]
pub(crate) struct RoomPlace {
    /// The number of records of the data, if it is known.
    records: Option<u64>,
    room: Mutex<Option<BatchRoom>>,
    is_there: Notify,
}

/// The bodies of a stream whose batches go to a feed's own memory.
#[derive(Debug)]
pub(crate) struct RoomBodies {
    place: Arc<RoomPlace>,
    /// What the schema says, once it is there.
    columns: Option<Arc<RemoteColumns>>,
}

/// A body that is under way.
#[derive(Debug)]
pub(crate) struct Scatter {
    place: Arc<RoomPlace>,
    note: BatchNote,
    /// In the order of the body.
    segments: Vec<Segment>,
    /// The first segment that is not over.
    at: usize,
    /// How many bytes of the body came.
    came: usize,
    epochs: Vec<u8>,
    positions: Vec<u8>,
    /// The arrays of offsets, and how many elements follow them.
    ragged: Vec<(usize, usize)>,
}

/// A batch in a feed's own memory.
#[derive(Debug)]
pub(crate) struct ScatteredBatch {
    pub(crate) note: BatchNote,
    pub(crate) batch: SuppliedBatch,
}

/// A part of a body that somebody wants.
#[derive(Debug)]
struct Segment {
    start: usize,
    end: usize,
    to: To,
}

#[derive(Clone, Copy, Debug)]
enum To {
    Array(usize),
    Epochs,
    Positions,
    /// Columns that say what is known.
    Nowhere,
}

impl RoomPlace {
    /// A place for batches of so many records' data.
    pub(crate) fn new(records: Option<u64>) -> Self {
        RoomPlace { records, ..Self::default() }
    }

    /// Checks that the data have a record.
    pub(crate) fn check(&self, id: RecordId) -> Result<(), Malformed> {
        match self.records {
            Some(records) if id.index >= records => {
                Err(Malformed(format!("a batch with {id}, which the data do not have")))
            }
            _ => Ok(()),
        }
    }

    /// Puts a room there.
    pub(crate) fn put(&self, room: BatchRoom) {
        *self.room.lock() = Some(room);
        self.is_there.notify_one();
    }

    /// Takes the room, if it is there.
    pub(crate) fn take(&self) -> Option<BatchRoom> {
        self.room.lock().take()
    }

    pub(crate) fn is_there(&self) -> bool {
        self.room.lock().is_some()
    }

    /// Waits until a room is there.
    pub(crate) async fn wait(&self) {
        while self.room.lock().is_none() {
            self.is_there.notified().await;
        }
    }
}

impl RoomBodies {
    pub(crate) fn new(place: Arc<RoomPlace>) -> Self {
        RoomBodies { place, columns: None }
    }

    /// Whether the next message is the schema.
    pub(crate) fn awaits_schema(&self) -> bool {
        self.columns.is_none()
    }

    pub(crate) fn place(&self) -> &RoomPlace {
        &self.place
    }

    /// Reads the schema.
    pub(crate) fn begin(&mut self, header: &[u8]) -> Result<(), Malformed> {
        self.columns = Some(Arc::new(RemoteColumns::of_message(header)?));
        Ok(())
    }

    /// Begins a body of this length.
    pub(crate) fn scatter(&self, header: &[u8], note: &[u8], length: usize) -> Result<Scatter, Malformed> {
        let Some(columns) = &self.columns else {
            return Err(Malformed("a body with the schema".to_owned()));
        };
        let (note, header) = batch::read_head(header, note)?;
        let of_batch = batch::checked(columns, &header, length, &note)?;
        let mut plan = Planned { arrays: 0, segments: Vec::new(), ragged: Vec::new() };
        plan.columns(columns, &of_batch, note.rows)?;
        let Planned { arrays, mut segments, ragged } = plan;
        segments.sort_by_key(|segment| (segment.start, segment.end));
        if segments.windows(2).any(|two| two[0].end > two[1].start) {
            return Err(Malformed("a batch whose columns are in one place".to_owned()));
        }
        let mut scatter = Scatter {
            place: self.place.clone(),
            note,
            segments,
            at: 0,
            came: 0,
            epochs: Vec::new(),
            positions: Vec::new(),
            ragged,
        };
        scatter.check_room(arrays)?;
        Ok(scatter)
    }
}

/// Where the parts of a body go, column by column.
struct Planned {
    /// The number of arrays so far.
    arrays: usize,
    segments: Vec<Segment>,
    ragged: Vec<(usize, usize)>,
}

impl Planned {
    fn columns(
        &mut self,
        columns: &RemoteColumns,
        of_batch: &arrow_ipc::RecordBatch<'_>,
        rows: usize,
    ) -> Result<(), Malformed> {
        let mut nodes = of_batch.nodes().into_iter().flatten();
        let mut buffers = of_batch.buffers().into_iter().flatten();
        for (number, field) in columns.each().enumerate() {
            let short = || Malformed(format!("a batch without all of the column {:?}", field.name));
            let is_nested = columns.is_nested(number);
            let mut elements = nodes.next().ok_or_else(short)?.length();
            let mut next = || buffers.next().ok_or_else(short).map(place_of);
            let kind = columns.kind(number);
            let to = match (kind, added_named(&field.name)) {
                (None, Some(Column::Epoch)) => To::Epochs,
                (None, Some(Column::Position)) => To::Positions,
                (None, Some(_)) => To::Nowhere,
                // Elements, and then lengths, are arrays of the feed.
                _ => To::Array(self.arrays),
            };
            next()?;
            let offsets = if kind == Some(NotedKind::Ragged) { Some(next()?) } else { None };
            if is_nested {
                elements = nodes.next().ok_or_else(short)?.length();
                next()?;
            }
            let values = next()?;
            let elements = usize::try_from(elements).map_err(|_| short())?;
            let bytes = elements.saturating_mul(field.dtype.size());
            let due = field.row_elements().map(|of_row| of_row.saturating_mul(rows));
            if values.1 - values.0 != bytes || due.is_some_and(|due| due != elements) {
                return Err(short());
            }
            self.add(values, to);
            if let Some(offsets) = offsets {
                let due = rows.saturating_add(1).saturating_mul(size_of::<i64>());
                // Of no rows, there may be none.
                if offsets.1 - offsets.0 != due && !(rows == 0 && offsets.0 == offsets.1) {
                    return Err(short());
                }
                self.ragged.push((self.arrays, elements));
                self.add(offsets, To::Array(self.arrays));
            }
        }
        Ok(())
    }

    fn add(&mut self, (start, end): (usize, usize), to: To) {
        if let To::Array(_) = to {
            self.arrays += 1;
        }
        if start < end {
            self.segments.push(Segment { start, end, to });
        }
    }
}

/// The begin and the end of a buffer, which were checked.
fn place_of(buffer: &arrow_ipc::Buffer) -> (usize, usize) {
    let of = |number: i64| usize::try_from(number).unwrap_or(0);
    let start = of(buffer.offset());
    (start, start.saturating_add(of(buffer.length())))
}

impl Scatter {
    /// Checks that the batch's parts fit the room, and makes what comes of no byte.
    fn check_room(&mut self, arrays: usize) -> Result<(), Malformed> {
        let mut room = self.place.room.lock();
        let room = room.as_mut().ok_or_else(no_room)?;
        let unfit = |room: &BatchRoom| {
            Malformed(format!("a batch of {} rows that is not one of {}", self.note.rows, room.layout()))
        };
        if arrays != room.arrays() || self.note.rows > room.layout().rows() || self.note.missed > 0 {
            return Err(unfit(room));
        }
        for segment in &self.segments {
            let bytes = segment.end - segment.start;
            if let To::Array(number) = segment.to
                && room.array_mut(number).len() < bytes
            {
                return Err(unfit(room));
            }
        }
        for &(offsets, _) in &self.ragged {
            room.array_mut(offsets)[..size_of::<i64>()].fill(0);
        }
        Ok(())
    }

    /// Puts what came to its places.
    pub(crate) fn put(&mut self, mut bytes: &[u8]) -> Result<(), Malformed> {
        let mut room = self.place.room.lock();
        let room = room.as_mut().ok_or_else(no_room)?;
        while let Some(Segment { start, end, to }) = self.segments.get(self.at) {
            // What is before it is padding.
            let skipped = start.saturating_sub(self.came).min(bytes.len());
            (self.came, bytes) = (self.came + skipped, &bytes[skipped..]);
            if bytes.is_empty() {
                return Ok(());
            }
            let (now, rest) = bytes.split_at(bytes.len().min(end - self.came));
            match to {
                To::Array(number) => {
                    let at = self.came - start;
                    room.array_mut(*number)[at..at + now.len()].copy_from_slice(now);
                }
                To::Epochs => self.epochs.extend_from_slice(now),
                To::Positions => self.positions.extend_from_slice(now),
                To::Nowhere => {}
            }
            (self.came, bytes) = (self.came + now.len(), rest);
            if self.came == *end {
                self.at += 1;
            }
        }
        self.came += bytes.len();
        Ok(())
    }

    /// The batch, of which all came. After an error, the room is still where it was.
    pub(crate) fn finish(self) -> Result<ScatteredBatch, Malformed> {
        let mut place = self.place.room.lock();
        let room = place.as_mut().ok_or_else(no_room)?;
        let Scatter { note, epochs, positions, ragged, .. } = &self;
        for (offsets, elements) in ragged {
            let at = note.rows * size_of::<i64>();
            let last: i64 =
                bytemuck::pod_read_unaligned(&room.array_mut(*offsets)[at..at + size_of::<i64>()]);
            if usize::try_from(last) != Ok(*elements) {
                return Err(Malformed(format!("a batch whose offsets end at {last} of {elements} elements")));
            }
        }
        let ids = epochs.as_chunks().0.iter().zip(positions.as_chunks().0);
        let ids = ids.map(|(epoch, index)| RecordId {
            epoch: u64::from_le_bytes(*epoch),
            index: u64::from_le_bytes(*index),
        });
        let mut named = 0;
        for (to, id) in room.records_mut().iter_mut().zip(ids.take(note.records)) {
            self.place.check(id)?;
            *to = id;
            named += 1;
        }
        if named < note.records {
            return Err(Malformed("a batch that does not say which records it has".to_owned()));
        }
        let (room, note) = (place.take().ok_or_else(no_room)?, note.clone());
        let batch = room.filled(RemoteBatch::step_of(&note), note.rows, note.records);
        Ok(ScatteredBatch { note, batch })
    }
}

fn no_room() -> Malformed {
    Malformed("a batch for which there is no room".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use percolator::example::{ExampleFields, ExampleWriter};
    use percolator::feed::{LaneSupplier, Supply, SupplyError, SupplyLanes};
    use percolator::record::StepId;
    use percolator::source::FnSource;
    use percolator::{Batch, Feed, FeedBuilder};

    use super::*;
    use crate::client::receive::{MessageReader, Received};
    use crate::client::slot::BodyPool;
    use crate::columns::Columns;
    use crate::message::{BatchEncoder, SchemaMessage};

    /// Six records of all kinds of fields.
    fn described() -> FeedBuilder {
        let source = FnSource::new("scattered", 6, |position, value| {
            let number = i64::try_from(position).unwrap();
            let mut writer = ExampleWriter::new();
            writer.ints("id", [number]).floats("box", [0.5, -1.0]);
            writer.ints("words", 0..number % 4).ints("tokens", (0..number % 5).map(|at| number << at));
            value.extend_from_slice(&writer.to_bytes());
            Ok(())
        });
        let fields: ExampleFields = "id:i64,box:f32[2],words:i32[<=3]=-1,tokens:i64[<=4]".parse().unwrap();
        Feed::builder().source(source).example(fields).batch_size(6).epochs(1).threads(1)
    }

    /// The bytes of a stream of one batch: its schema, and the batch.
    fn stream(feed: &mut Feed) -> (Vec<u8>, Vec<u8>) {
        let batch = feed.epoch().unwrap().next().unwrap().unwrap();
        let columns = Columns::of(batch.fields(), &[Column::Step, Column::Epoch, Column::Position]).unwrap();
        let (records, rows) = (batch.len(), batch.rows());
        let arrays = batch.into_bytes().unwrap();
        let of_batch = columns.of_batch(&arrays).unwrap();
        let ticket = String::new();
        let (epoch, step) = (None, None);
        let note = BatchNote { number: 0, epoch, step, is_last: false, records, rows, missed: 0, ticket };
        let pieces = BatchEncoder::new(columns.schema()).unwrap().pieces(&of_batch, &note).unwrap();
        (SchemaMessage::of(columns.schema()).in_stream.to_vec(), pieces.concat())
    }

    /// Supplies what comes of the stream when one byte of it is another, byte by byte; last, of all as it is.
    #[derive(Debug)]
    struct Changed {
        schema: Vec<u8>,
        batch: Vec<u8>,
        next: Arc<AtomicUsize>,
        refused: Arc<AtomicUsize>,
    }

    #[derive(Debug)]
    struct ChangedLanes(Arc<Changed>);

    impl SupplyLanes for ChangedLanes {
        fn supplier(&self, _: usize, _: StepId) -> Result<Box<dyn LaneSupplier>, SupplyError> {
            Ok(Box::new(ChangedLane(self.0.clone())))
        }
    }

    struct ChangedLane(Arc<Changed>);

    impl LaneSupplier for ChangedLane {
        fn fill(&mut self, room: BatchRoom) -> Result<Option<SuppliedBatch>, SupplyError> {
            let Changed { schema, batch, next, refused } = &*self.0;
            let place = Arc::new(RoomPlace::new(Some(6)));
            place.put(room);
            loop {
                let at = next.fetch_add(1, Relaxed);
                if at > batch.len() {
                    return Ok(None);
                }
                let mut bytes = batch.clone();
                bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 0x15);
                let bodies = Some(RoomBodies::new(place.clone()));
                let mut reader = MessageReader::with_rooms(BodyPool::new(1), bodies);
                let read = [schema, &bytes].into_iter().try_fold(None, |_, bytes| {
                    // In two pieces, of which the second begins within the body.
                    let (mut first, mut second) = bytes.split_at(bytes.len() * 3 / 4);
                    reader.push(&mut first)?.map_or_else(|| reader.push(&mut second), |found| Ok(Some(found)))
                });
                match read {
                    Ok(Some(Received::Scattered(scattered))) => return Ok(Some(scattered.batch)),
                    Ok(_) | Err(_) => refused.fetch_add(1, Relaxed),
                };
            }
        }

        fn closer(&self) -> Box<dyn Fn() + Send> {
            let next = self.0.next.clone();
            // The next feed goes on.
            Box::new(move || drop(next.clone()))
        }
    }

    fn seen(batch: &Batch) -> String {
        let arrays: Vec<_> = batch.arrays().map(|array| (array.name, array.bytes)).collect();
        format!("{:?} {arrays:?}", batch.records())
    }

    #[test]
    fn whatever_a_stream_says_a_batch_is_whole_or_none() {
        let mut feed = described().build().unwrap();
        let due = feed.epoch().unwrap().map(|batch| seen(&batch.unwrap())).next().unwrap();
        let (schema, batch) = stream(&mut feed);
        let bytes = batch.len();
        let (next, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let changed = Arc::new(Changed { schema, batch, next: next.clone(), refused: refused.clone() });
        let (mut whole, mut last) = (0, String::new());
        while next.load(Relaxed) <= bytes {
            let resolved = described().resolve().unwrap();
            let lanes = Arc::new(ChangedLanes(changed.clone()));
            let supply = Supply::new(resolved.snapshot().unwrap(), resolved.layout().fields(), lanes);
            let mut feed = described().prefetch(1).build_supplied(supply).unwrap();
            for batch in feed.steps().map_while(Result::ok) {
                last = seen(&batch[0]);
                whole += 1;
            }
        }
        assert_eq!(last, due, "nothing was changed in the last one");
        let refused = refused.load(Relaxed);
        assert!(whole > 100 && refused > 100, "{whole} whole and {refused} refused of {bytes}");
    }
}
