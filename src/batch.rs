//! A batch: a place for each record in one recycled buffer.
//!
//! A buffer goes round through four states, each a type of its own, so that what a state forbids does not
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
//! 3. `writers` counts the living `Places`, plus the `Filling`. Who brings it to 0 says so through `done`,
//!    exactly once a batch. Only then does `Pending` become `Filled`, and only `Filled` reads.
//! 4. Every row of a batch that is delivered was written: `Places` that are dropped, and not left, fail their
//!    batch.

#![expect(unsafe_code, reason = "several threads write their own parts of one buffer at the same time")]

mod arrays;

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_channel::Sender;
use parking_lot::Mutex;

use crate::content::ContentHash;
use crate::fault::BatchFault;
use crate::memory::HostMemory;
use crate::record::RecordId;
use crate::transform::{Cut, Draw};

use arrays::Offsets;
pub use arrays::Room;
pub(crate) use arrays::{ARRAY_ALIGNMENT, Arrays};

/// The memory of one batch, recycled for as long as its feed lives.
struct Buffer {
    cells: UnsafeCell<Cells>,
    writers: AtomicUsize,
    /// The failure that concerns the earliest record, whichever thread met it first.
    failure: Mutex<Option<(usize, BatchFault)>>,
    /// Told when the last writer has gone.
    done: Sender<()>,
}

struct Cells {
    memory: Box<dyn HostMemory>,
    ids: Vec<RecordId>,
    draws: Vec<Draw>,
    /// Empty where nobody asked for them.
    contents: Vec<ContentHash>,
}

// SAFETY: the cells themselves are reached through `&mut Frame` only, of which there is one (invariant 1).
// What they own is `Send + Sync`.
unsafe impl Sync for Buffer {}

/// A buffer that nobody uses.
pub(crate) struct Frame(Arc<Buffer>);

/// A buffer that is being filled.
pub(crate) struct Filling {
    buffer: Arc<Buffer>,
    arrays: Arrays,
    pointers: Pointers,
    /// Records whose place was handed out.
    taken: usize,
}

/// A buffer all of whose places were handed out, and may still be written.
pub(crate) struct Pending {
    buffer: Arc<Buffer>,
    arrays: Arrays,
    pointers: Pointers,
    records: usize,
}

/// A buffer that is complete: it is only read.
pub(crate) struct Filled {
    buffer: Arc<Buffer>,
    arrays: Arrays,
    pointers: Pointers,
    /// Those that are real: the arrays have more where the batch was padded.
    records: usize,
}

/// The places of a few successive records of a batch. They are written when they are [left](Self::leave);
/// dropping them fails the batch.
pub(crate) struct Places {
    buffer: Arc<Buffer>,
    arrays: Arrays,
    pointers: Pointers,
    range: Range<usize>,
    /// They have been counted as written.
    is_left: bool,
}

/// One record's place in its batch.
pub(crate) struct RecordPlace<'a> {
    /// The bytes of its pixels, aligned to the batch's type.
    pub(crate) pixels: &'a mut [u8],
    /// The bytes of its target, aligned to the targets' type; none where there are no targets.
    pub(crate) target: &'a mut [u8],
    label: &'a mut [i32],
    label_f32: &'a mut [f32],
    /// None where the pixels are transformed already.
    cut: &'a mut [Cut],
    id: &'a mut [RecordId],
    draw: &'a mut [Draw],
    /// None where nobody asked for it.
    content: &'a mut [ContentHash],
}

/// Where the parts of a buffer begin: each has room for the records of the shape it was made with.
#[derive(Clone, Copy)]
struct Pointers {
    /// Where the memory begins, too.
    pixels: *mut u8,
    /// Bytes from there to the end of the last array.
    bytes: usize,
    targets: *mut u8,
    labels: *mut i32,
    labels_f32: *mut f32,
    cuts: *mut Cut,
    ids: *mut RecordId,
    draws: *mut Draw,
    contents: *mut ContentHash,
    has_contents: bool,
}

// SAFETY: whoever holds the pointers holds the buffer they lead into, and goes through them as the
// invariants allow: `Places` each to their own records, then `Filled`, alone, to read.
unsafe impl Send for Pointers {}
// SAFETY: as above.
unsafe impl Sync for Pointers {}

impl Frame {
    /// A buffer for up to `records` records, which tells `done` whenever a batch in it is complete.
    pub(crate) fn new(memory: Box<dyn HostMemory>, records: usize, done: Sender<()>) -> Self {
        let (ids, draws) = (vec![RecordId::default(); records], vec![Draw::default(); records]);
        let cells = Cells { memory, ids, draws, contents: Vec::new() };
        let (cells, writers) = (UnsafeCell::new(cells), AtomicUsize::new(0));
        Frame(Arc::new(Buffer { cells, writers, failure: Mutex::new(None), done }))
    }

    /// From now on there is room for each record's hash.
    pub(crate) fn keep_contents(&mut self) {
        let cells = self.cells_mut();
        cells.contents = vec![ContentHash::default(); cells.ids.len()];
    }

    /// Replaces the memory by a larger one.
    pub(crate) fn replace_memory(&mut self, memory: Box<dyn HostMemory>) {
        self.cells_mut().memory = memory;
    }

    /// Starts a batch; the arrays have as many records as it may come to hold.
    ///
    /// # Panics
    ///
    /// If the buffer is smaller than the arrays: a bug of the caller.
    pub(crate) fn begin(mut self, arrays: Arrays) -> Filling {
        let cells = self.cells_mut();
        let fits = |offsets: &Offsets| offsets.end <= cells.memory.len();
        let offsets = arrays.offsets().filter(fits).expect("the buffer is as large as its batch");
        assert!(arrays.pixels.records <= cells.ids.len(), "the buffer has fewer names than its batch");
        let pixels = cells.memory.as_mut_ptr();
        // SAFETY: all arrays lie within the memory, as was just seen.
        let [targets, labels, labels_f32, cuts] =
            [offsets.targets, offsets.labels, offsets.labels_f32, offsets.cuts]
                .map(|offset| unsafe { pixels.add(offset) });
        let pointers = Pointers {
            pixels,
            bytes: offsets.end,
            targets,
            // The memory begins on a page, and each array at a cache line.
            labels: labels.cast(),
            labels_f32: labels_f32.cast(),
            cuts: cuts.cast(),
            ids: cells.ids.as_mut_ptr(),
            draws: cells.draws.as_mut_ptr(),
            // As many as there are names, or none.
            contents: cells.contents.as_mut_ptr(),
            has_contents: !cells.contents.is_empty(),
        };
        *self.0.failure.lock() = None;
        // The filling itself. Relaxed: whoever gets a place gets it, with this, through a channel.
        self.0.writers.store(1, Ordering::Relaxed);
        Filling { buffer: self.0, arrays, pointers, taken: 0 }
    }

    fn cells_mut(&mut self) -> &mut Cells {
        // SAFETY: by invariants 1 and 3 nobody else reaches the cells of a buffer that has a `Frame`, and
        // `&mut self` is the only way through this one.
        unsafe { &mut *self.0.cells.get() }
    }
}

impl Buffer {
    /// One writer fewer; whether it was the last.
    fn leave(&self) -> bool {
        // AcqRel: what this writer wrote happens before whoever sees 0, and the last one, who speaks for
        // all, has seen what the others wrote.
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
        self.taken == self.arrays.pixels.records
    }

    /// Hands out the places of the next `records` records.
    ///
    /// # Panics
    ///
    /// If the batch has fewer left: a bug of the caller.
    pub(crate) fn take(&mut self, records: usize) -> Places {
        let range = self.taken..self.taken + records;
        assert!(range.end <= self.arrays.pixels.records, "a batch has no place for a record too many");
        self.taken = range.end;
        // Relaxed: the new writer starts after it receives its places through a channel.
        self.buffer.writers.fetch_add(1, Ordering::Relaxed);
        let (arrays, pointers) = (self.arrays, self.pointers);
        Places { buffer: self.buffer.clone(), arrays, pointers, range, is_left: false }
    }

    /// No more places: the batch holds what was taken.
    pub(crate) fn finish(self) -> Pending {
        let arrays = self.arrays.of(self.taken);
        self.buffer.leave();
        Pending { buffer: self.buffer, arrays, pointers: self.pointers, records: self.taken }
    }

    /// As [`finish`](Self::finish), with zeros in the places that were not taken.
    pub(crate) fn finish_padded(mut self) -> Pending {
        let records = self.taken;
        let mut places = self.take(self.arrays.pixels.records - records);
        for position in 0..places.range.len() {
            places.get(position).clear();
        }
        places.leave();
        Pending { records, ..self.finish() }
    }
}

impl Places {
    /// They are written; whether the batch is complete by that.
    pub(crate) fn leave(mut self) -> bool {
        self.is_left = true;
        self.buffer.leave()
    }

    pub(crate) fn arrays(&self) -> Arrays {
        self.arrays
    }

    /// The place of one of the records, counted from the first that these places are for.
    ///
    /// # Panics
    ///
    /// If there are not so many: a bug of the caller.
    pub(crate) fn get(&mut self, position: usize) -> RecordPlace<'_> {
        assert!(position < self.range.len(), "a record has no place in its run");
        let record = self.range.start + position;
        let bytes = self.arrays.pixels.record_bytes();
        let target_bytes = self.arrays.target.map_or(0, |target| target.record_bytes());
        let Pointers {
            pixels, targets, labels, labels_f32, cuts, ids, draws, contents, has_contents, ..
        } = self.pointers;
        // SAFETY: `record` is below the arrays' records, for which `begin` found room in the buffer, which
        // `self` keeps. The bytes are this record's own: by invariant 2 no other `Places` has them, and
        // `&mut self` keeps them from being lent twice.
        let pixels = unsafe { part(pixels, record * bytes, bytes) };
        // SAFETY: as above, for the record's target, which lies past all pixels; where there are no targets
        // it has no bytes,
        let target = unsafe { part(targets, record * target_bytes, target_bytes) };
        // SAFETY: as above, for the record's label,
        let label = unsafe { part(labels, record, 1) };
        // SAFETY: its label as a float,
        let label_f32 = unsafe { part(labels_f32, record, 1) };
        let cut: &mut [Cut] = match self.arrays.transformed {
            // SAFETY: its cut, for which there is room where the pixels have still to be transformed,
            Some(_) => unsafe { part(cuts, record, 1) },
            None => &mut [],
        };
        // SAFETY: its name,
        let id = unsafe { part(ids, record, 1) };
        // SAFETY: its random numbers,
        let draw = unsafe { part(draws, record, 1) };
        let content: &mut [ContentHash] = match has_contents {
            // SAFETY: and its hash, for which there is room where there are any.
            true => unsafe { part(contents, record, 1) },
            false => &mut [],
        };
        RecordPlace { pixels, target, label, label_f32, cut, id, draw, content }
    }

    /// Fails the batch for what is wrong with one of the records. Of several failures the earliest
    /// record's stays, so that the same database fails in the same way whatever the threads do.
    pub(crate) fn fail(&self, position: usize, fault: impl Into<BatchFault>) {
        let record = self.range.start + position;
        let mut failure = self.buffer.failure.lock();
        if failure.as_ref().is_none_or(|(earliest, _)| record < *earliest) {
            *failure = Some((record, fault.into()));
        }
    }
}

/// Part of an array.
///
/// # Safety
///
/// - `base` leads to at least `start + len` initialised elements, which outlive `'a`.
/// - Nobody else reads or writes those from `start` on for as long as `'a`.
unsafe fn part<'a, T>(base: *mut T, start: usize, len: usize) -> &'a mut [T] {
    // SAFETY: the caller says that there are so many elements.
    let first = unsafe { base.add(start) };
    // SAFETY: and that they are the caller's alone.
    unsafe { std::slice::from_raw_parts_mut(first, len) }
}

impl Drop for Places {
    /// Where they were not left, something went wrong on the way to it, and nobody knows which of them are
    /// written.
    fn drop(&mut self) {
        if !self.is_left {
            self.fail(0, BatchFault::Unwritten);
            self.buffer.leave();
        }
    }
}

impl RecordPlace<'_> {
    /// Leaves the record's random numbers for whoever writes it: they are drawn in the order of the
    /// records, and the records are written in any.
    pub(crate) fn leave_draw(&mut self, draw: Draw) {
        self.draw.fill(draw);
    }

    /// The record's random numbers.
    pub(crate) fn draw(&self) -> Draw {
        self.draw[0]
    }

    /// Leaves what is cut out of the record for the device that transforms it.
    pub(crate) fn leave_cut(&mut self, cut: Cut) {
        self.cut.fill(cut);
    }

    /// Leaves the record's hash for whoever writes down what was delivered.
    pub(crate) fn leave_content(&mut self, hash: ContentHash) {
        self.content.fill(hash);
    }

    /// Leaves zeros, for a record that there is none of.
    fn clear(&mut self) {
        self.pixels.fill(0);
        self.target.fill(0);
        self.cut.fill(Cut::default());
        self.tag(RecordId::default(), 0);
    }

    /// Writes what is known of the record beside its pixels.
    pub(crate) fn tag(&mut self, id: RecordId, label: i32) {
        self.id.fill(id);
        self.label.fill(label);
        self.label_f32.fill(as_caffe_label(label));
    }
}

/// Caffe's label: the integer as a float, exact up to 2^24.
#[expect(clippy::cast_precision_loss, reason = "Caffe's labels are floats; the exact ones lie beside them")]
fn as_caffe_label(label: i32) -> f32 {
    label as f32
}

impl Pending {
    pub(crate) fn is_complete(&self) -> bool {
        // Acquire pairs with the AcqRel of the last writer: what was written is visible.
        self.buffer.writers.load(Ordering::Acquire) == 0
    }

    /// What is wrong with the earliest bad record, once the batch is complete.
    pub(crate) fn failure(&self) -> Option<BatchFault> {
        self.buffer.failure.lock().take().map(|(_, fault)| fault)
    }

    /// The complete batch.
    ///
    /// # Panics
    ///
    /// If it is not complete: a bug of the caller.
    pub(crate) fn filled(self) -> Filled {
        assert!(self.is_complete(), "a batch was taken while it was being written");
        let Pending { buffer, arrays, pointers, records } = self;
        Filled { buffer, arrays, pointers, records }
    }
}

impl Filled {
    pub(crate) fn arrays(&self) -> Arrays {
        self.arrays
    }

    /// What is cut out of each record; none where the pixels are transformed already.
    pub(crate) fn cuts(&self) -> &[Cut] {
        let records = self.arrays.transformed.map_or(0, |shape| shape.records);
        // SAFETY: as in `bytes`; any bytes are a cut.
        unsafe { std::slice::from_raw_parts(self.pointers.cuts, records) }
    }

    /// The memory from its beginning to the end of the last array.
    pub(crate) fn memory(&self) -> &[u8] {
        // SAFETY: as in `bytes`.
        unsafe { std::slice::from_raw_parts(self.pointers.pixels, self.pointers.bytes) }
    }

    /// The bytes of the pixels, records one after the other.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `begin` found room for the arrays; every byte is initialised (the memory's promise); by
        // invariant 3 nobody writes any more, and nobody will before this value is recycled.
        unsafe { std::slice::from_raw_parts(self.pointers.pixels, self.arrays.pixels.bytes()) }
    }

    /// The bytes of the targets; none where there are no targets.
    pub(crate) fn target_bytes(&self) -> &[u8] {
        let bytes = self.arrays.target.map_or(0, |target| target.bytes());
        // SAFETY: as in `bytes`.
        unsafe { std::slice::from_raw_parts(self.pointers.targets, bytes) }
    }

    /// Where the pixels, the targets and the labels begin.
    pub(crate) fn addresses(&self) -> [*mut u8; 3] {
        let Pointers { pixels, targets, labels, .. } = self.pointers;
        [pixels, targets, labels.cast()]
    }

    pub(crate) fn labels(&self) -> &[i32] {
        // SAFETY: as in `bytes`.
        unsafe { std::slice::from_raw_parts(self.pointers.labels, self.arrays.pixels.records) }
    }

    pub(crate) fn labels_f32(&self) -> &[f32] {
        // SAFETY: as in `bytes`.
        unsafe { std::slice::from_raw_parts(self.pointers.labels_f32, self.arrays.pixels.records) }
    }

    pub(crate) fn ids(&self) -> &[RecordId] {
        // SAFETY: as in `bytes`.
        unsafe { std::slice::from_raw_parts(self.pointers.ids, self.records) }
    }

    /// The records' hashes, in the order of their names; none where nobody asked for them.
    pub(crate) fn contents(&self) -> &[ContentHash] {
        let records = if self.pointers.has_contents { self.records } else { 0 };
        // SAFETY: as in `bytes`.
        unsafe { std::slice::from_raw_parts(self.pointers.contents, records) }
    }

    pub(crate) fn recycle(self) -> Frame {
        Frame(self.buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{RecordCause, RecordError};
    use crate::memory::PageMemory;
    use crate::record::Key;
    use crate::shape::{BatchShape, Dtype, ImageShape, Layout};
    use crossbeam_channel::{Receiver, bounded};

    fn shape(records: usize) -> BatchShape {
        let image = ImageShape { channels: 1, height: 2, width: 3 };
        BatchShape { records, image, layout: Layout::Nchw, dtype: Dtype::U8 }
    }

    fn arrays(records: usize) -> Arrays {
        let target = BatchShape { dtype: Dtype::F32, ..shape(records) };
        Arrays { pixels: shape(records), target: Some(target), transformed: None }
    }

    fn frame(records: usize) -> (Frame, Receiver<()>) {
        let (done, completed) = bounded(1);
        let memory = PageMemory::new(arrays(records).room().unwrap().bytes).unwrap();
        (Frame::new(Box::new(memory), records, done), completed)
    }

    fn write(mut places: Places, first: u8) {
        for position in 0..places.range.len() {
            let value = first + u8::try_from(position).unwrap();
            let mut place = places.get(position);
            place.pixels.fill(value);
            place.target.fill(!value);
            place.tag(RecordId { epoch: 0, index: value.into() }, -i32::from(value));
        }
        places.leave();
    }

    #[test]
    fn every_record_is_written_to_its_own_place_from_any_thread() {
        let (mut frame, completed) = frame(64);
        for _round in 0..20 {
            let mut filling = frame.begin(arrays(64));
            std::thread::scope(|scope| {
                for first in (0..64).step_by(4) {
                    let places = filling.take(4);
                    scope.spawn(move || write(places, first));
                }
            });
            assert!(filling.is_full());
            let filled = filling.finish().filled();
            completed.try_recv().expect("the last to leave says so");
            assert!(completed.try_recv().is_err(), "and says so once");
            for (record, bytes) in filled.bytes().chunks(6).enumerate() {
                assert!(bytes.iter().all(|&byte| usize::from(byte) == record));
                assert_eq!(filled.ids()[record].index, record as u64);
                assert_eq!(filled.labels()[record], -i32::try_from(record).unwrap());
            }
            for (record, bytes) in filled.target_bytes().chunks(24).enumerate() {
                assert!(bytes.iter().all(|&byte| usize::from(!byte) == record));
            }
            assert_eq!(filled.target_bytes().len(), 64 * 24);
            assert_eq!(filled.labels_f32()[63], -63.0);
            let (memory, labels) = (filled.memory(), filled.labels_f32());
            assert_eq!(memory.as_ptr_range().end, labels.as_ptr_range().end.cast());
            let last: &[u8] = &memory[memory.len() - 4..];
            assert_eq!(last, bytemuck::bytes_of(&-63_f32));
            frame = filled.recycle();
        }
    }

    #[test]
    fn a_batch_is_complete_only_when_its_last_place_is_left() {
        let (frame, completed) = frame(2);
        let mut filling = frame.begin(arrays(2));
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
        let mut filling = frame.begin(arrays(2));
        write(filling.take(2), 0);
        let frame = filling.finish().filled().recycle();
        completed.try_recv().unwrap();
        // The second batch's second row would be the first's, with its label and its name.
        let mut filling = frame.begin(arrays(2));
        let (first, second) = (filling.take(1), filling.take(1));
        write(first, 2);
        drop(second);
        let pending = filling.finish();
        assert!(pending.is_complete(), "nobody waits for what nobody will write");
        assert_eq!(completed.try_recv(), Ok(()));
        assert_eq!(pending.failure(), Some(BatchFault::Unwritten));
    }

    #[test]
    fn the_earliest_records_failure_wins() {
        let (frame, _completed) = frame(4);
        let mut filling = frame.begin(arrays(4));
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
        let mut filling = frame.begin(Arrays { target: None, ..arrays(4) });
        write(filling.take(3), 0);
        let filled = filling.finish().filled();
        assert_eq!((filled.arrays().pixels.records, filled.bytes().len(), filled.labels().len()), (3, 18, 3));
        assert!(filled.target_bytes().is_empty());
    }
}
