//! A batch: a place for each record in one recycled buffer.
//!
//! A buffer cycles through four states, each a type of its own, so that what a state forbids does not
//! compile:
//!
//! ```text
//! Frame --begin--> Filling --finish--> Pending --filled--> Filled --recycle--> Frame
//!  (free)            |  take(n)         (workers            (read-only:
//!                    v                   still write)        delivered)
//!                  Places: n records' own bytes, on any thread
//! ```
//!
//! # Invariants
//!
//! 1. At most one of `Frame`, `Filling`, `Pending` and `Filled` exists for a buffer, and none is `Clone`.
//! 2. `Places` of one buffer never overlap: `Filling` hands out each record's place once.
//! 3. `writers` counts the living `Places`, plus the `Filling`. The thread that brings it to 0 announces it
//!    through `done`, exactly once a batch. Only then does `Pending` become `Filled`, and only `Filled`
//!    reads.
//! 4. Every row of a delivered batch was written: `Places` that are dropped without being left fail their
//!    batch.

#![expect(unsafe_code, reason = "several threads write their own parts of one buffer at the same time")]

pub(crate) mod fault;
pub(crate) mod field;
mod layout;
pub(crate) mod memory;
pub(crate) mod random;
mod row;

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;

use crate::base::sync::atomic::{AtomicUsize, Ordering};
use crate::base::sync::{Mutex, Sender};
use crate::batch::fault::BatchFault;
use crate::receipt::content::ContentHash;
use crate::record::RecordId;
use crate::transform::{Cut, Draw};

pub use crate::base::shape::{AXES_MAX, BatchShape, Dtype, Element, Extents, ImageShape, Layout};
pub use fault::{RecordCause, RecordError};
pub use field::{FIELDS_MAX, Field, FieldError, FieldKey, FieldKind, FieldsError, Pad};
#[cfg(feature = "cuda-driver")]
pub(crate) use layout::ARRAY_ALIGNMENT;
use layout::Count;
pub(crate) use layout::{Array, LayoutError, Part};
pub use layout::{BatchLayout, Capacity};
pub use memory::{HostMemory, PageMemory};
pub use random::RecordRandom;
pub use row::Row;
use row::{Memory, RowParts, part};

/// The memory of one batch, recycled for as long as its feed lives.
struct Buffer {
    cells: UnsafeCell<Cells>,
    writers: AtomicUsize,
    /// The failure of the earliest failed record, whichever thread reports it first.
    failure: Mutex<Option<(usize, BatchFault)>>,
    /// Receives a message when the last writer has gone.
    done: Sender<()>,
}

struct Cells {
    memory: Box<dyn HostMemory>,
    ids: Vec<RecordId>,
    draws: Vec<Draw>,
    /// Empty if content hashes are not kept.
    contents: Vec<ContentHash>,
}

// SAFETY: the cells themselves are reached only through `&mut Frame`, of which there is one (invariant 1).
// What they own is `Send + Sync`.
unsafe impl Sync for Buffer {}

/// A buffer that is not in use.
pub(crate) struct Frame(Arc<Buffer>);

/// A buffer that is being filled.
pub(crate) struct Filling {
    buffer: Arc<Buffer>,
    layout: Arc<BatchLayout>,
    pointers: Pointers,
    /// The number of records whose place was handed out.
    taken: usize,
}

/// A buffer whose places were all handed out, and may still be written.
pub(crate) struct Pending {
    buffer: Arc<Buffer>,
    layout: Arc<BatchLayout>,
    pointers: Pointers,
    rows: usize,
    records: usize,
}

/// A complete buffer, which is only read.
pub(crate) struct Filled {
    buffer: Arc<Buffer>,
    layout: Arc<BatchLayout>,
    pointers: Pointers,
    rows: usize,
    /// The number of real rows; padding rows may follow.
    records: usize,
}

/// The places of a few successive records of a batch. [Leaving](Self::leave) them counts them as written;
/// dropping them fails the batch.
pub(crate) struct Places {
    buffer: Arc<Buffer>,
    layout: Arc<BatchLayout>,
    pointers: Pointers,
    range: Range<usize>,
    /// Whether they were counted as written.
    is_left: bool,
}

/// Where the parts of a buffer start. Each has room for the rows of the layout with which the batch began.
#[derive(Clone, Copy)]
struct Pointers {
    memory: *mut u8,
    ids: *mut RecordId,
    draws: *mut Draw,
    contents: *mut ContentHash,
    has_contents: bool,
}

// SAFETY: the holder of the pointers also holds the buffer they point into, and uses them only as the
// invariants allow: each `Places` for its own records, and then `Filled`, alone, to read.
unsafe impl Send for Pointers {}
// SAFETY: as above.
unsafe impl Sync for Pointers {}

impl Frame {
    /// A buffer for up to `records` records, which sends to `done` whenever a batch in it is complete.
    pub(crate) fn new(memory: Box<dyn HostMemory>, records: usize, done: Sender<()>) -> Self {
        let (ids, draws) = (vec![RecordId::default(); records], vec![Draw::default(); records]);
        let cells = Cells { memory, ids, draws, contents: Vec::new() };
        let (cells, writers) = (UnsafeCell::new(cells), AtomicUsize::new(0));
        Frame(Arc::new(Buffer { cells, writers, failure: Mutex::new(None), done }))
    }

    /// Makes room for each record's hash from now on.
    pub(crate) fn keep_contents(&mut self) {
        let cells = self.cells_mut();
        cells.contents = vec![ContentHash::default(); cells.ids.len()];
    }

    /// Replaces the memory with a larger one.
    pub(crate) fn replace_memory(&mut self, memory: Box<dyn HostMemory>) {
        self.cells_mut().memory = memory;
    }

    /// Starts a batch of up to as many records as the layout has rows.
    ///
    /// # Panics
    ///
    /// If the buffer is smaller than the layout, which is a bug in the caller.
    pub(crate) fn begin(mut self, layout: &Arc<BatchLayout>) -> Filling {
        let cells = self.cells_mut();
        assert!(layout.bytes() <= cells.memory.len(), "the buffer is as large as its batch");
        assert!(layout.rows() <= cells.ids.len(), "the buffer has an id for each record");
        let pointers = Pointers {
            // The memory starts on a page, and each array at a cache line.
            memory: cells.memory.as_mut_ptr(),
            ids: cells.ids.as_mut_ptr(),
            draws: cells.draws.as_mut_ptr(),
            // As many as there are record ids, or none.
            contents: cells.contents.as_mut_ptr(),
            has_contents: !cells.contents.is_empty(),
        };
        *self.0.failure.lock() = None;
        // Counts the `Filling` itself. Relaxed: any thread that gets places receives them, and this store,
        // through a channel.
        self.0.writers.store(1, Ordering::Relaxed);
        Filling { buffer: self.0, layout: layout.clone(), pointers, taken: 0 }
    }

    fn cells_mut(&mut self) -> &mut Cells {
        // SAFETY: by invariants 1 and 3 nothing else reaches the cells of a buffer that has a `Frame`, and
        // `&mut self` is the only way through this one.
        unsafe { &mut *self.0.cells.get() }
    }
}

impl Buffer {
    /// Counts one writer fewer; returns whether it was the last.
    fn leave(&self) -> bool {
        // AcqRel: what this writer wrote happens before anything in a thread that sees 0, and the last
        // writer, which announces the batch for all, has seen what the others wrote.
        let last = self.writers.fetch_sub(1, Ordering::AcqRel) == 1;
        if last {
            // The queue has room for every buffer of its lane; an error means that the lane has gone.
            let _ = self.done.try_send(());
        }
        last
    }
}

impl Filling {
    pub(crate) fn is_full(&self) -> bool {
        self.taken == self.layout.rows()
    }

    /// Hands out the places of the next `records` records.
    ///
    /// # Panics
    ///
    /// If the batch has fewer left, which is a bug in the caller.
    pub(crate) fn take(&mut self, records: usize) -> Places {
        let range = self.taken..self.taken + records;
        assert!(range.end <= self.layout.rows(), "a batch has no place for another record");
        self.taken = range.end;
        // Relaxed: the new writer starts after it receives its places through a channel.
        self.buffer.writers.fetch_add(1, Ordering::Relaxed);
        let (layout, pointers) = (self.layout.clone(), self.pointers);
        Places { buffer: self.buffer.clone(), layout, pointers, range, is_left: false }
    }

    /// Ends the handing out of places: the batch holds the records taken so far.
    pub(crate) fn finish(self) -> Pending {
        self.buffer.leave();
        let Filling { buffer, layout, pointers, taken } = self;
        Pending { buffer, layout, pointers, rows: taken, records: taken }
    }

    /// Like [`finish`](Self::finish), with zeros in the places that were not taken.
    pub(crate) fn finish_padded(mut self) -> Pending {
        let records = self.taken;
        let mut places = self.take(self.layout.rows() - records);
        for position in 0..places.range.len() {
            places.get(position, 0).clear();
        }
        places.leave();
        Pending { records, ..self.finish() }
    }
}

impl Places {
    /// Counts the places as written; returns whether that completed the batch.
    pub(crate) fn leave(mut self) -> bool {
        self.is_left = true;
        self.buffer.leave()
    }

    /// The place of the record at `position` among these places. The record's own random numbers are drawn
    /// from `seed`.
    ///
    /// # Panics
    ///
    /// If there are not that many, which is a bug in the caller.
    #[inline]
    pub(crate) fn get(&mut self, position: usize, seed: u64) -> Row<'_> {
        assert!(position < self.range.len(), "a record has no place in its run");
        let row = self.range.start + position;
        let Pointers { memory, ids, draws, contents, has_contents } = self.pointers;
        // SAFETY: `row` is below the layout's rows, for which `begin` found room in the buffer, and `self`
        // keeps the buffer. The id is this record's own: by invariant 2 no other `Places` has it, and `&mut
        // self` prevents lending it twice.
        let [id] = (unsafe { part(ids, row, 1) }) else { unreachable!("one was requested") };
        // SAFETY: as above, for the record's draw.
        let [draw] = (unsafe { part(draws, row, 1) }) else { unreachable!("one was requested") };
        let content: &mut [ContentHash] = match has_contents {
            // SAFETY: as above, for the record's hash: there is room for all hashes if there are any.
            true => unsafe { part(contents, row, 1) },
            false => &mut [],
        };
        let parts = RowParts { id, draw, content };
        // SAFETY: `begin` checked that the memory is as large as the layout, and its bytes are initialised
        // (the memory's promise). The row is this record's own, for the reason given above.
        unsafe { Row::new(&self.layout, Memory(memory), row, parts, seed) }
    }

    /// Fails the batch because of one of the records. Of several failures the earliest record's is kept, so
    /// that the same database fails the same way whatever the threads do.
    pub(crate) fn fail(&self, position: usize, fault: impl Into<BatchFault>) {
        let record = self.range.start + position;
        let mut failure = self.buffer.failure.lock();
        if failure.as_ref().is_none_or(|(earliest, _)| record < *earliest) {
            *failure = Some((record, fault.into()));
        }
    }
}

impl Drop for Places {
    /// Fails the batch if the places were not left: something went wrong before, and nobody knows which of
    /// them are written.
    fn drop(&mut self) {
        if !self.is_left {
            self.fail(0, BatchFault::Unwritten);
            self.buffer.leave();
        }
    }
}

impl Pending {
    pub(crate) fn is_complete(&self) -> bool {
        // Acquire pairs with the AcqRel of the last writer: what was written is visible.
        self.buffer.writers.load(Ordering::Acquire) == 0
    }

    /// The failure of the earliest bad record; call it once the batch is complete.
    pub(crate) fn failure(&self) -> Option<BatchFault> {
        self.buffer.failure.lock().take().map(|(_, fault)| fault)
    }

    /// Returns the complete batch.
    ///
    /// # Panics
    ///
    /// If it is not complete, which is a bug in the caller.
    pub(crate) fn filled(self) -> Filled {
        assert!(self.is_complete(), "a batch was taken while it was being written");
        let Pending { buffer, layout, pointers, rows, records } = self;
        let mut filled = Filled { buffer, layout, pointers, rows, records };
        filled.join_ragged();
        filled
    }
}

impl Filled {
    pub(crate) fn layout(&self) -> &Arc<BatchLayout> {
        &self.layout
    }

    /// The number of rows in its arrays: its records and any padding.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Makes the elements of ragged fields contiguous, and turns their lengths into offsets.
    fn join_ragged(&mut self) {
        let (layout, rows) = (self.layout.clone(), self.rows);
        for (number, field) in layout.fields().iter().enumerate() {
            let FieldKind::Ragged { .. } = field.kind() else { continue };
            let (place, size) = (layout.place(number), field.dtype().size());
            let memory = self.memory_mut();
            let (mut end, mut total) = (place.values, 0_usize);
            for row in 0..rows {
                let count = count_at(memory, place.counts, row + 1);
                let start = place.values + row * place.row_bytes;
                let bytes = count * size;
                if start != end {
                    memory.copy_within(start..start + bytes, end);
                }
                (end, total) = (end + bytes, total + count);
                put_count(memory, place.counts, row + 1, total);
            }
            put_count(memory, place.counts, 0, 0);
        }
    }

    /// The memory up to the end of the last array.
    pub(crate) fn memory(&self) -> &[u8] {
        // SAFETY: `begin` checked that there is room for the layout; every byte is initialised (the memory's
        // promise); by invariant 3 nobody writes any more, and nobody will before this value is recycled.
        unsafe { std::slice::from_raw_parts(self.pointers.memory, self.layout.bytes()) }
    }

    fn memory_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `memory`; `&mut self` prevents others from reading it.
        unsafe { std::slice::from_raw_parts_mut(self.pointers.memory, self.layout.bytes()) }
    }

    /// The address of an array for the batch's consumer, which may write there.
    pub(crate) fn address(&self, array: &Array) -> *mut u8 {
        // SAFETY: the array lies within the memory.
        unsafe { self.pointers.memory.add(array.offset) }
    }

    /// The extents of an array, records first.
    pub(crate) fn extents(&self, array: &Array) -> Extents {
        let place = self.layout.place(array.field);
        self.layout.extents(array, self.rows, || count_at(self.memory(), place.counts, self.rows))
    }

    /// The bytes of an array, up to the end of its last element.
    pub(crate) fn array_bytes(&self, array: &Array) -> &[u8] {
        let elements = self.extents(array).checked_elements().unwrap_or_default();
        let bytes = elements * array.dtype.size();
        &self.memory()[array.offset..array.offset + bytes]
    }

    /// What the device cuts out of each record; empty if it transforms nothing.
    pub(crate) fn cuts(&self) -> &[Cut] {
        let Some((_, _, cuts)) = self.layout.staged(self.rows) else { return &[] };
        bytemuck::cast_slice(&self.memory()[cuts..cuts + self.rows * size_of::<Cut>()])
    }

    /// The shape of the images that the consumer gets: the first field's, or that of the device's transform.
    pub(crate) fn image_shape(&self) -> BatchShape {
        self.layout.image_shape(self.rows)
    }

    /// The size in bytes of what the consumer wants: the images, or, if there are none, all arrays.
    pub(crate) fn delivered_bytes(&self) -> usize {
        match self.layout.fields()[0].layout() {
            Some(_) => self.image_shape().bytes(),
            None => self.layout.arrays().iter().map(|array| self.array_bytes(array).len()).sum(),
        }
    }

    pub(crate) fn ids(&self) -> &[RecordId] {
        // SAFETY: as in `memory`.
        unsafe { std::slice::from_raw_parts(self.pointers.ids, self.records) }
    }

    /// The records' hashes, in the order of the ids; empty if they are not kept.
    pub(crate) fn contents(&self) -> &[ContentHash] {
        let records = if self.pointers.has_contents { self.records } else { 0 };
        // SAFETY: as in `memory`.
        unsafe { std::slice::from_raw_parts(self.pointers.contents, records) }
    }

    pub(crate) fn recycle(self) -> Frame {
        Frame(self.buffer)
    }
}

/// One of a field's lengths or offsets.
fn count_at(memory: &[u8], counts: usize, at: usize) -> usize {
    let start = counts + at * size_of::<Count>();
    let count: Count = bytemuck::pod_read_unaligned(&memory[start..start + size_of::<Count>()]);
    usize::try_from(count).expect("it was counted from elements in memory")
}

fn put_count(memory: &mut [u8], counts: usize, at: usize, count: usize) {
    let start = counts + at * size_of::<Count>();
    let count = Count::try_from(count).unwrap_or(Count::MAX);
    memory[start..start + size_of::<Count>()].copy_from_slice(bytemuck::bytes_of(&count));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::shape::Dtype;
    use crate::batch::fault::{RecordCause, RecordError};
    use crate::batch::field::{Field, FieldError};
    use crate::batch::memory::PageMemory;
    use crate::record::Key;
    use crossbeam_channel::{Receiver, bounded};
    use proptest::prelude::*;

    const SEED: u64 = 7;

    fn layout(records: usize) -> Arc<BatchLayout> {
        let fields = vec![
            Field::new("data", Dtype::U8, [1, 2, 3]),
            Field::new("target", Dtype::F32, [6]),
            Field::scalar("label", Dtype::I32),
        ];
        Arc::new(BatchLayout::new(fields, records).unwrap())
    }

    fn frame_of(layout: &BatchLayout) -> (Frame, Receiver<()>) {
        let (done, completed) = bounded(1);
        let memory = PageMemory::new(layout.bytes()).unwrap();
        (Frame::new(Box::new(memory), layout.rows(), done), completed)
    }

    fn frame(records: usize) -> (Frame, Receiver<()>) {
        frame_of(&layout(records))
    }

    fn write(mut places: Places, first: u8) {
        for position in 0..places.range.len() {
            let value = first + u8::try_from(position).unwrap();
            let mut row = places.get(position, SEED);
            row.leave_id(RecordId { epoch: 0, index: value.into() });
            row.write("data", &[value; 6]).unwrap();
            row.values_mut::<f32>("target").unwrap().fill(f32::from(value) / 2.0);
            row.set(2, -i32::from(value)).unwrap();
            row.check_written().unwrap();
        }
        places.leave();
    }

    /// An array's bytes.
    fn array<'a>(filled: &'a Filled, name: &str) -> &'a [u8] {
        let mut arrays = filled.layout().arrays().iter();
        filled.array_bytes(arrays.find(|array| &*array.name == name).unwrap())
    }

    #[test]
    fn every_record_is_written_to_its_own_place_from_any_thread() {
        let (mut frame, completed) = frame(64);
        let layout = layout(64);
        for _round in 0..20 {
            let mut filling = frame.begin(&layout);
            std::thread::scope(|scope| {
                for first in (0..64).step_by(4) {
                    let places = filling.take(4);
                    scope.spawn(move || write(places, first));
                }
            });
            assert!(filling.is_full());
            let filled = filling.finish().filled();
            completed.try_recv().expect("the last to leave announces it");
            assert!(completed.try_recv().is_err(), "and only once");
            let labels: &[i32] = bytemuck::cast_slice(array(&filled, "label"));
            for (record, bytes) in array(&filled, "data").chunks(6).enumerate() {
                assert!(bytes.iter().all(|&byte| usize::from(byte) == record));
                assert_eq!(filled.ids()[record].index, record as u64);
                assert_eq!(labels[record], -i32::try_from(record).unwrap());
            }
            let targets: &[f32] = bytemuck::cast_slice(array(&filled, "target"));
            assert_eq!((targets.len(), targets[64 * 6 - 1]), (64 * 6, 31.5));
            let memory = filled.memory();
            assert_eq!(memory.as_ptr_range().end, labels.as_ptr_range().end.cast());
            frame = filled.recycle();
        }
    }

    #[test]
    fn a_row_refuses_what_its_fields_are_not() {
        let layout = layout(1);
        let (frame, _completed) = frame(1);
        let mut filling = frame.begin(&layout);
        let mut places = filling.take(1);
        let mut row = places.get(0, SEED);
        let length = |field: &str, found, allowed| {
            Err(FieldError::Length { field: field.to_owned(), found, allowed, is_most: false })
        };
        assert_eq!(row.write("data", &[1_u8; 5]), length("data", 5, 6));
        assert_eq!(row.set("target", 1_f32), length("target", 1, 6));
        assert_eq!(row.set_len("data", 5), length("data", 5, 6));
        let of_type =
            |field: &str, found, wanted| Err(FieldError::Dtype { field: field.to_owned(), found, wanted });
        assert_eq!(row.set("label", 1_u32), of_type("label", Dtype::I32, Dtype::U32));
        assert_eq!(row.values_mut::<u8>("label").map(|_| ()), of_type("label", Dtype::I32, Dtype::U8));
        assert!(matches!(row.set("labels", 1), Err(FieldError::Unknown { .. })));
        let unwritten = |field: &str| Err(FieldError::NotWritten { field: field.to_owned() });
        assert_eq!(row.check_written(), unwritten("data"));
        row.write("data", &[1_u8; 6]).unwrap();
        row.set("label", 1).unwrap();
        assert_eq!(row.check_written(), unwritten("target"));
        row.values_mut::<f32>("target").unwrap().fill(0.0);
        assert_eq!(row.check_written(), Ok(()));
        places.leave();
    }

    proptest! {
        /// Writes batches of rows of varying length repeatedly in one buffer, and compares them with lists.
        #[test]
        fn rows_of_varying_length_are_joined_and_padded(
            batches in prop::collection::vec(
                prop::collection::vec(prop::collection::vec(any::<i16>(), 0..9), 0..7),
                1..4,
            ),
            pads: bool,
        ) {
            let fields = vec![
                Field::ragged("ragged", Dtype::I16, 8),
                Field::padded("padded", Dtype::I16, 8, -3),
                Field::scalar("bool", Dtype::Bool),
            ];
            let layout = Arc::new(BatchLayout::new(fields, 7).unwrap());
            let (mut frame, _completed) = frame_of(&layout);
            for rows in batches {
                let mut filling = frame.begin(&layout);
                let mut places = filling.take(rows.len());
                for (position, values) in rows.iter().enumerate() {
                    let mut row = places.get(position, SEED);
                    row.write("ragged", values).unwrap();
                    row.values_mut::<i16>("padded").unwrap()[..values.len()].copy_from_slice(values);
                    prop_assert!(row.check_written().is_err());
                    row.set_len("padded", values.len()).unwrap();
                    row.set("bool", values.len() > 4).unwrap();
                    prop_assert_eq!(row.check_written(), Ok(()));
                    let is_refused = matches!(
                        row.write("ragged", &[0_i16; 9]),
                        Err(FieldError::Length { allowed: 8, is_most: true, .. })
                    );
                    prop_assert!(is_refused);
                }
                places.leave();
                let filled = if pads { filling.finish_padded() } else { filling.finish() }.filled();
                let there = if pads { 7 } else { rows.len() };
                let nothing = vec![Vec::new(); there - rows.len()];
                let rows: Vec<Vec<i16>> = rows.into_iter().chain(nothing).collect();
                let values: &[i16] = bytemuck::cast_slice(array(&filled, "ragged"));
                prop_assert_eq!(values, rows.concat());
                let ends = rows.iter().scan(0, |end, row| { *end += row.len(); Some(*end) });
                let offsets: Vec<i64> = std::iter::once(0).chain(ends).map(|end| end as i64).collect();
                let found: &[i64] = bytemuck::cast_slice(array(&filled, "ragged.offsets"));
                prop_assert_eq!(found, offsets);
                let padded: Vec<i16> =
                    rows.iter().flat_map(|row| row.iter().copied().chain([-3; 8]).take(8)).collect();
                prop_assert_eq!(bytemuck::cast_slice::<u8, i16>(array(&filled, "padded")), padded);
                let lengths: Vec<i64> = rows.iter().map(|row| row.len() as i64).collect();
                prop_assert_eq!(bytemuck::cast_slice::<u8, i64>(array(&filled, "padded.lengths")), lengths);
                let long: Vec<u8> = rows.iter().map(|row| u8::from(row.len() > 4)).collect();
                prop_assert_eq!(array(&filled, "bool"), long);
                frame = filled.recycle();
            }
        }
    }

    #[test]
    fn a_batch_is_complete_only_when_its_last_place_is_left() {
        let (frame, completed) = frame(2);
        let mut filling = frame.begin(&layout(2));
        let (first, second) = (filling.take(1), filling.take(1));
        assert!(!second.leave());
        let pending = filling.finish();
        assert!(!pending.is_complete());
        assert!(completed.try_recv().is_err());
        assert!(first.leave());
        assert!(pending.is_complete());
        assert!(completed.try_recv().is_ok());
        assert_eq!(pending.failure(), None);
    }

    #[test]
    fn places_that_are_dropped_are_not_written_and_fail_their_batch() {
        let (frame, completed) = frame(2);
        let mut filling = frame.begin(&layout(2));
        write(filling.take(2), 0);
        let frame = filling.finish().filled().recycle();
        completed.try_recv().unwrap();
        // Unwritten, the second batch's second row would show the first batch's, with its label and id.
        let mut filling = frame.begin(&layout(2));
        let (first, second) = (filling.take(1), filling.take(1));
        write(first, 2);
        drop(second);
        let pending = filling.finish();
        assert!(pending.is_complete(), "nobody waits for rows that nobody will write");
        assert_eq!(completed.try_recv(), Ok(()));
        assert_eq!(pending.failure(), Some(BatchFault::Unwritten));
    }

    #[test]
    fn the_earliest_records_failure_wins() {
        let (frame, _completed) = frame(4);
        let mut filling = frame.begin(&layout(4));
        let (first, second) = (filling.take(2), filling.take(2));
        let failure = |index| {
            Box::new(RecordError {
                path: "db".into(),
                id: RecordId { epoch: 0, index },
                key: Key(Vec::new()),
                cause: RecordCause::Panicked { message: String::new() },
            })
        };
        second.fail(0, failure(2));
        first.fail(1, failure(1));
        second.fail(1, failure(3));
        assert!(!first.leave() && !second.leave());
        assert_eq!(filling.finish().failure(), Some(failure(1).into()));
    }

    #[test]
    fn a_short_batch_shows_only_what_it_holds() {
        let (frame, _completed) = frame(4);
        let mut filling = frame.begin(&layout(4));
        write(filling.take(3), 0);
        let filled = filling.finish().filled();
        assert_eq!((filled.rows(), filled.ids().len()), (3, 3));
        assert_eq!((array(&filled, "data").len(), array(&filled, "label").len()), (18, 12));
    }
}
