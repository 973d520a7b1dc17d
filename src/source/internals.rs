//! What the crate's own sources do for a feed beyond [`Source`] and [`Cursor`].
//!
//! The traits are public only because hidden methods of those two mention them, and only this repository's
//! tests name them (through `bench_support`). For every other source, each of their methods has a default
//! here.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::files::Files;
use super::leveldb::Pool;
use super::{Cursor, IndexPlace, Run, Source, SourceError};
use crate::base::offload::Helpers;
use crate::record::RecordId;

/// The promise to verify the deferred checksums of a run's records before their values are used, and the
/// threads that help the cursor meanwhile. Only this crate can give it. It holds for one cursor, and for the
/// cursors that it consists of; they share their helpers.
#[derive(Clone, Debug)]
pub struct VerifiesLater {
    pool: Option<Rc<Pool>>,
    /// Whether blocks are left to the caller as well, and not only values that have their own checksum.
    of_blocks: bool,
}

impl VerifiesLater {
    /// The promise of a feed's stages, whose workers verify and help.
    pub(crate) fn promised(helpers: Option<Arc<dyn Helpers>>) -> Self {
        VerifiesLater { pool: helpers.map(Pool::new), of_blocks: true }
    }

    /// The part of the promise that covers values. Blocks are verified by the cursor, which needs no help.
    pub(super) fn of_values() -> Self {
        VerifiesLater { pool: None, of_blocks: false }
    }

    /// Whether blocks are left to the caller.
    pub(super) fn is_of_blocks(&self) -> bool {
        self.of_blocks
    }

    /// The pool of blocks that the helpers unpack ahead of the cursor.
    pub(super) fn pool(self) -> Option<Rc<Pool>> {
        self.pool
    }
}

/// The buffers of a cursor that copies its records.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    /// For several small records.
    pub(super) window: Vec<u8>,
    /// For one value.
    pub(super) value: Vec<u8>,
}

/// Buffers that no cursor uses at the moment. The cursors over joined sources share them: one that is set
/// aside, or is at its end, puts its buffers here, and the next one takes them. Otherwise their memory would
/// grow with the number of sources.
#[derive(Debug, Default)]
pub struct SpareBuffers(RefCell<Buffers>);

impl SpareBuffers {
    /// Keeps buffers; of two, the larger one.
    pub(super) fn put(&self, buffers: Buffers) {
        let Buffers { window, value } = &mut *self.0.borrow_mut();
        for (kept, new) in [(window, buffers.window), (value, buffers.value)] {
            if kept.capacity() < new.capacity() {
                *kept = new;
            }
        }
    }

    pub(super) fn take(&self) -> Buffers {
        self.0.take()
    }
}

/// The commit of a source that cannot be written to while it is read.
const NOT_WRITTEN: u64 = 0;

/// What a source of this crate can do in addition.
pub trait SourceInternals: Source {
    /// The names of the consecutive files that make up the source, for messages.
    fn files(&self) -> Files {
        Files::of([self.path()])
    }

    /// The sources that it joins; it has no records of its own.
    fn parts(&self) -> &[Arc<dyn Source>] {
        &[]
    }

    /// Whether neighbouring records may have different lenders. If so, holders of several records reserve
    /// room for the lenders.
    fn has_several_lenders(&self) -> bool {
        false
    }

    /// Calls `look` with the key and the value of the last record, if a source that is not seekable reaches
    /// that record directly and can read it.
    fn look_at_last(&self, _look: &mut dyn FnMut(&[u8], &[u8])) {}

    /// Makes the number of records known. The source becomes seekable only if that takes its index.
    ///
    /// # Errors
    ///
    /// As [`index`](Source::index).
    fn count(&self, place: &IndexPlace) -> Result<(), SourceError> {
        self.index(place)
    }

    /// The newest commit to the source: a number that every commit changes, and 0 if it cannot be written to
    /// while it is read. A caller that counts its records compares this with the [commit of the
    /// cursor](CursorInternals::commit) that reads them. `None` if that cursor may belong to a source that
    /// is not known here.
    ///
    /// # Errors
    ///
    /// As [`cursor`](Source::cursor).
    fn commit(&self) -> Result<Option<u64>, SourceError> {
        Ok(Some(NOT_WRITTEN))
    }

    /// A checksum of the index of the records, if there is an index that stays the same as long as the data
    /// set does.
    fn index_checksum(&self) -> Option<u32> {
        None
    }

    /// Opens a [cursor](Source::cursor) for a caller that verifies deferred checksums before it uses the
    /// values.
    ///
    /// # Errors
    ///
    /// As [`cursor`](Source::cursor).
    fn deferring_cursor(&self, _promise: VerifiesLater) -> Result<Box<dyn Cursor>, SourceError> {
        self.cursor()
    }
}

/// What a cursor of this crate can do in addition.
pub trait CursorInternals {
    /// The [commit](SourceInternals::commit) that the cursor reads.
    fn commit(&mut self) -> u64 {
        NOT_WRITTEN
    }

    /// If the cursor is behind the last record that one of several joined sources is known to have, checks
    /// that this source ends there. A reader that continues into the next source checks this anyway, and so
    /// does a seek; this is for a reader that stops there.
    ///
    /// # Errors
    ///
    /// [`SourceError::Broken`] if the source has more records.
    fn check_end(&mut self) -> Result<(), SourceError> {
        Ok(())
    }

    /// A hint: the cursor will seek to this position soon.
    fn foresee(&mut self, _position: u64) {}

    /// A hint: after its next seek, the cursor reads record by record up to this position and then seeks
    /// elsewhere; `u64::MAX` if it continues. Read-ahead should end there.
    fn reads_until(&mut self, _position: u64) {}

    /// Adds the record of the last step to an empty run, together with the buffer that its value fills, so
    /// that a large value is not copied. Allowed only for an entry with `is_whole` set. The entry's bytes are
    /// gone afterwards. `false` if nothing was added.
    fn give(&mut self, _id: RecordId, _run: &mut Run) -> bool {
        false
    }

    /// The cursor uses these buffers instead of new ones. It puts its own there at its end, and when it is
    /// [set aside](Self::set_aside). Called before the first step.
    fn share_buffers(&mut self, _spare: &Rc<SpareBuffers>) {}

    /// Reading continues in another source: the cursor closes what it has open for read-ahead, and puts its
    /// buffers where the next cursor finds them. The last entry's bytes are gone afterwards. A cursor in the
    /// middle of a compressed file also closes the file.
    fn set_aside(&mut self) {}

    /// The most memory that the cursor keeps, if its values have `value_bytes` bytes. A feed's memory budget
    /// counts it, and asks at the first record. Other sources report theirs in [`Source::held_bytes`].
    fn held_bytes(&mut self, _value_bytes: usize) -> HeldBytes {
        HeldBytes::default()
    }
}

/// The memory that a cursor keeps, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldBytes {
    /// It keeps this also while another source is read.
    pub own: usize,
    /// The cursors of joined sources [share](CursorInternals::share_buffers) this: each counts all of it.
    pub shared: usize,
}

impl HeldBytes {
    pub fn total(self) -> usize {
        self.own.saturating_add(self.shared)
    }
}

/// The same methods for any source.
impl dyn Source + '_ {
    pub(crate) fn files(&self) -> Files {
        self.internals().map_or_else(|| Files::of([self.path()]), SourceInternals::files)
    }

    pub(crate) fn has_several_lenders(&self) -> bool {
        self.internals().is_some_and(SourceInternals::has_several_lenders)
    }

    pub(crate) fn look_at_last(&self, look: &mut dyn FnMut(&[u8], &[u8])) {
        if let Some(own) = self.internals() {
            own.look_at_last(look);
        }
    }

    pub(crate) fn count(&self, place: &IndexPlace) -> Result<(), SourceError> {
        match self.internals() {
            Some(own) => own.count(place),
            None => self.index(place),
        }
    }

    /// A source of a caller's own may pass on the cursors of one of the crate's.
    pub(crate) fn commit(&self) -> Result<Option<u64>, SourceError> {
        self.internals().map_or(Ok(None), SourceInternals::commit)
    }

    pub(crate) fn index_checksum(&self) -> Option<u32> {
        self.internals()?.index_checksum()
    }

    pub(crate) fn deferring_cursor(&self, promise: VerifiesLater) -> Result<Box<dyn Cursor>, SourceError> {
        match self.internals() {
            Some(own) => own.deferring_cursor(promise),
            None => self.cursor(),
        }
    }
}

/// The same methods for any cursor.
impl dyn Cursor + '_ {
    pub(crate) fn commit(&mut self) -> u64 {
        self.internals().map_or(NOT_WRITTEN, CursorInternals::commit)
    }

    pub(crate) fn check_end(&mut self) -> Result<(), SourceError> {
        self.internals().map_or(Ok(()), CursorInternals::check_end)
    }

    pub(crate) fn foresee(&mut self, position: u64) {
        if let Some(own) = self.internals() {
            own.foresee(position);
        }
    }

    pub(crate) fn reads_until(&mut self, position: u64) {
        if let Some(own) = self.internals() {
            own.reads_until(position);
        }
    }

    pub(crate) fn give(&mut self, id: RecordId, run: &mut Run) -> bool {
        self.internals().is_some_and(|own| own.give(id, run))
    }

    pub(crate) fn share_buffers(&mut self, spare: &Rc<SpareBuffers>) {
        if let Some(own) = self.internals() {
            own.share_buffers(spare);
        }
    }

    pub(crate) fn set_aside(&mut self) {
        if let Some(own) = self.internals() {
            own.set_aside();
        }
    }

    pub(crate) fn held_bytes(&mut self, value_bytes: usize) -> HeldBytes {
        self.internals().map_or_else(HeldBytes::default, |own| own.held_bytes(value_bytes))
    }
}
