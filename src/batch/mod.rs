//! A batch: a place for each record in one recycled buffer.
//!
//! A buffer cycles through four states, each with its own type, so that code that a state forbids does not
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
//! 4. Every row of a delivered batch was written: `Places` that are dropped without `finish` fail their
//!    batch, and rows of bad records are removed or overwritten with good ones.

#![expect(unsafe_code, reason = "several threads write their own parts of one buffer at the same time")]

mod bad_rows;
pub(crate) mod fault;
pub(crate) mod field;
mod layout;
pub(crate) mod memory;
pub(crate) mod mix;
mod row;

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;

use crate::bad::{BadAction, BadRecord};
use crate::base::sync::atomic::{AtomicUsize, Ordering};
use crate::base::sync::{Mutex, Sender, Touches};
use crate::batch::fault::BatchFault;
use crate::receipt::content::ContentHash;
use crate::record::RecordId;
use crate::transform::{Cut, Draw};

pub use crate::base::shape::{AXES_MAX, BatchShape, Dtype, Element, Extents, ImageShape, Layout};
pub use crate::record::random::RecordRandom;
pub use fault::{RecordCause, RecordError};
pub use field::{FIELDS_MAX, Field, FieldError, FieldKey, FieldKind, FieldsError, Pad};
#[cfg(feature = "cuda-driver")]
pub(crate) use layout::ARRAY_ALIGNMENT;
use layout::Count;
pub(crate) use layout::{Array, ArrayPart, LayoutError};
pub use layout::{BatchLayout, Capacity};
pub use memory::{HostMemory, PageMemory};
pub use row::Row;
use row::{Memory, RowParts, part};

/// The memory of one batch, recycled for as long as its feed lives.
struct Buffer {
    cells: UnsafeCell<Cells>,
    writers: AtomicUsize,
    /// The failure of the earliest failed record, whichever thread reports it first.
    failure: Mutex<Option<(usize, BatchFault)>>,
    /// The records that the batch leaves out, in the order in which they were found.
    bad: Mutex<Vec<BadRecord>>,
    /// Receives a message when the last writer has gone.
    done: Sender<()>,
    /// Which thread touches which row of the cells, for the model checker.
    rows: Touches,
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
    pads: bool,
    /// Whether the elements of its ragged fields are contiguous already.
    is_joined: bool,
}

/// A complete buffer, which is only read.
pub(crate) struct Filled {
    buffer: Arc<Buffer>,
    layout: Arc<BatchLayout>,
    pointers: Pointers,
    rows: usize,
    /// The number of real rows; padding rows may follow.
    records: usize,
    /// In the order of their rows.
    bad: Vec<BadRecord>,
}

/// The places of a few successive records of a batch. [Finishing](Self::finish) them counts them as written;
/// dropping them fails the batch.
pub(crate) struct Places {
    buffer: Arc<Buffer>,
    layout: Arc<BatchLayout>,
    pointers: Pointers,
    range: Range<usize>,
    /// Whether they were counted as written.
    is_finished: bool,
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

impl Pointers {
    /// One row.
    ///
    /// # Safety
    ///
    /// - The pointers are those of a buffer that began a batch with this layout, and that lives as long as
    ///   `'a`.
    /// - `row` is below the layout's rows, and nobody else reads or writes this row during `'a`.
    #[inline]
    unsafe fn row<'a>(&self, layout: &'a BatchLayout, row: usize, seed: u64) -> Row<'a> {
        let Pointers { memory, ids, draws, contents, has_contents } = *self;
        // SAFETY: `begin` found room for as many ids as the layout has rows, and the caller promises the
        // rest.
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
        // (the memory's promise). The caller promises that the row is nobody else's.
        unsafe { Row::new(layout, Memory(memory), row, parts, seed) }
    }
}

impl Frame {
    /// A buffer for up to `records` records, which sends to `done` whenever a batch in it is complete.
    pub(crate) fn new(memory: Box<dyn HostMemory>, records: usize, done: Sender<()>) -> Self {
        let (ids, draws) = (vec![RecordId::default(); records], vec![Draw::default(); records]);
        let cells = Cells { memory, ids, draws, contents: Vec::new() };
        let (cells, writers) = (UnsafeCell::new(cells), AtomicUsize::new(0));
        let (failure, bad, rows) = (Mutex::new(None), Mutex::new(Vec::new()), Touches::default());
        Frame(Arc::new(Buffer { cells, writers, failure, bad, done, rows }))
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
        self.0.rows.write(0..layout.rows());
        *self.0.failure.lock() = None;
        self.0.bad.lock().clear();
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
    fn release(&self) -> bool {
        // AcqRel: this writer's writes happen before anything in a thread that sees 0, and the last writer,
        // which announces the batch for all, has seen the others' writes.
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
        Places { buffer: self.buffer.clone(), layout, pointers, range, is_finished: false }
    }

    /// Ends the handing out of places: the batch holds the records taken so far.
    pub(crate) fn finish(self) -> Pending {
        self.buffer.release();
        let Filling { buffer, layout, pointers, taken } = self;
        Pending { buffer, layout, pointers, rows: taken, records: taken, pads: false, is_joined: false }
    }

    /// Like [`finish`](Self::finish), with zeros in the places that were not taken.
    pub(crate) fn finish_padded(mut self) -> Pending {
        let records = self.taken;
        let mut places = self.take(self.layout.rows() - records);
        for position in 0..places.range.len() {
            places.get(position, 0).clear();
        }
        places.finish();
        Pending { records, pads: true, ..self.finish() }
    }
}

/// What somebody writes who makes a whole batch: ragged fields are joined, and offsets in their place.
impl Filling {
    pub(crate) fn layout(&self) -> &Arc<BatchLayout> {
        &self.layout
    }

    /// All memory of a batch of which no place was handed out, up to the end of the last array.
    ///
    /// # Panics
    ///
    /// If a place was handed out, which is a bug in the caller.
    pub(crate) fn memory_mut(&mut self) -> &mut [u8] {
        assert_eq!(self.taken, 0, "some of the batch is another's");
        // SAFETY: `begin` checked that there is room for the layout, and the bytes are initialised (the
        // memory's promise). No place was handed out, so by invariants 1 and 2 nobody else reaches them.
        unsafe { std::slice::from_raw_parts_mut(self.pointers.memory, self.layout.bytes()) }
    }

    /// The ids of all rows of a batch of which no place was handed out.
    ///
    /// # Panics
    ///
    /// If a place was handed out, which is a bug in the caller.
    pub(crate) fn ids_mut(&mut self) -> &mut [RecordId] {
        assert_eq!(self.taken, 0, "some of the batch is another's");
        // SAFETY: as in `memory_mut`: `begin` found as many ids as there are rows.
        unsafe { std::slice::from_raw_parts_mut(self.pointers.ids, self.layout.rows()) }
    }

    /// The batch whose memory was written as a whole: so many rows, of which the first are records.
    ///
    /// # Errors
    ///
    /// What is wrong with its rows, or with what counts and booleans say in its memory: readers rely on
    /// those.
    pub(crate) fn finish_whole(mut self, rows: usize, records: usize) -> Result<Pending, String> {
        let rows_max = self.layout.rows();
        if rows > rows_max || records > rows {
            return Err(format!("{records} records in {rows} rows, of which a batch has up to {rows_max}"));
        }
        let layout = self.layout.clone();
        layout.check_whole(self.memory_mut(), rows)?;
        self.buffer.rows.write(0..rows);
        Ok(Pending { rows, records, is_joined: true, ..self.finish() })
    }
}

impl Places {
    /// Counts the places as written; returns whether that completed the batch.
    pub(crate) fn finish(mut self) -> bool {
        self.is_finished = true;
        self.buffer.release()
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
        self.buffer.rows.write(row..row + 1);
        // SAFETY: `row` is below the layout's rows, for which `begin` found room in the buffer, and `self`
        // keeps the buffer. The row is this record's own: by invariant 2 no other `Places` has it, and `&mut
        // self` prevents lending it twice.
        unsafe { self.pointers.row(&self.layout, row, seed) }
    }

    /// Marks a record as bad: the batch will leave it out.
    pub(crate) fn mark_bad(&mut self, position: usize, bad: BadRecord) {
        let row = self.range.start + position;
        self.get(position, 0).set_id(bad.id);
        self.buffer.bad.lock().push(BadRecord { row, ..bad });
    }

    /// Fails the batch because of one of the records. Of several failures the earliest record's is kept, so
    /// that the same database always fails in the same way, for any number and timing of threads.
    pub(crate) fn fail(&self, position: usize, fault: impl Into<BatchFault>) {
        let record = self.range.start + position;
        let mut failure = self.buffer.failure.lock();
        if failure.as_ref().is_none_or(|(earliest, _)| record < *earliest) {
            *failure = Some((record, fault.into()));
        }
    }
}

impl Drop for Places {
    /// Fails the batch if the places were not finished: something went wrong before, and it is unknown which
    /// of them are written.
    fn drop(&mut self) {
        if !self.is_finished {
            self.fail(0, BatchFault::Unwritten);
            self.buffer.release();
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

    /// Returns the complete batch, in which good records replace bad ones, or which leaves them out.
    ///
    /// # Panics
    ///
    /// If it is not complete, which is a bug in the caller.
    pub(crate) fn filled(self, on_bad: BadAction) -> Filled {
        assert!(self.is_complete(), "a batch was taken while it was being written");
        let Pending { buffer, layout, pointers, rows, records, pads, is_joined } = self;
        buffer.rows.write(0..rows);
        let bad = std::mem::take(&mut *buffer.bad.lock());
        let mut filled = Filled { buffer, layout, pointers, rows, records, bad: Vec::new() };
        if !bad.is_empty() {
            filled.settle_bad(bad, on_bad, pads);
        }
        if !is_joined {
            filled.join_ragged();
        }
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
        self.buffer.rows.read(0..self.rows);
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

    /// The size in bytes of what the consumer uses: the images, or, if there are none, all arrays.
    pub(crate) fn delivered_bytes(&self) -> usize {
        match self.layout.fields()[0].layout() {
            Some(_) => self.image_shape().bytes(),
            None => self.layout.arrays().iter().map(|array| self.array_bytes(array).len()).sum(),
        }
    }

    /// The bad records that the batch leaves out, in the order of their rows.
    pub(crate) fn bad(&self) -> &[BadRecord] {
        &self.bad
    }

    pub(crate) fn ids(&self) -> &[RecordId] {
        self.buffer.rows.read(0..self.records);
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
#[cfg(shuttle)]
mod model;
#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;
