//! A source whose records and cursors may fail.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use percolator::record::RecordId;
use percolator::source::{
    Cursor, Entry, Files, HeldBytes, Identity, IndexPlace, Passes, RecordParts, Run, Source, SourceError,
    SpareBuffers, VerifiesLater,
};

use crate::fault::{Effect, Place};
use crate::splitmix::{SplitMix, fold};
use crate::state::State;

/// Separates the bytes of damaged records from all other draws of a seed.
const DAMAGE: u64 = 0x6461_6d61_6765;

/// A source that a [`Chaos`](crate::Chaos::source) has wrapped. It has the inner source's name and identity,
/// and everything that a feed uses: the index, deferred checksums, read-ahead.
#[derive(Debug)]
pub struct ChaosSource {
    inner: Arc<dyn Source>,
    state: Arc<State>,
    /// The number of cursors that were requested.
    cursors: AtomicU64,
}

impl ChaosSource {
    pub(crate) fn new(inner: Arc<dyn Source>, state: &Arc<State>) -> Self {
        state.note_living(|living| living.sources += 1);
        ChaosSource { inner, state: state.clone(), cursors: AtomicU64::new(0) }
    }

    fn wrapped(
        &self,
        open: impl FnOnce() -> Result<Box<dyn Cursor>, SourceError>,
    ) -> Result<Box<dyn Cursor>, SourceError> {
        let number = self.cursors.fetch_add(1, Ordering::Relaxed);
        let effects = self.state.strike(Place::Cursor, number);
        self.state
            .suffer(&effects, &format_args!("cursor {number}"))
            .map_err(|message| SourceError::other(self.path(), message))?;
        let inner = open()?;
        self.state.note_living(|living| living.cursors += 1);
        let path = self.path().to_owned();
        Ok(Box::new(ChaosCursor {
            inner,
            living: Counted(self.state.clone()),
            path,
            next: 0,
            torn: Vec::new(),
        }))
    }
}

impl Drop for ChaosSource {
    fn drop(&mut self) {
        self.state.note_living(|living| living.sources -= 1);
    }
}

impl Source for ChaosSource {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn paths(&self) -> Vec<PathBuf> {
        self.inner.paths()
    }

    fn records(&self) -> Option<u64> {
        self.inner.records()
    }

    fn identity(&self) -> Identity {
        self.inner.identity()
    }

    fn passes(&self) -> Passes {
        self.inner.passes()
    }

    fn file_records(&self) -> Option<Vec<u64>> {
        self.inner.file_records()
    }

    fn held_bytes(&self) -> usize {
        self.inner.held_bytes()
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>, SourceError> {
        self.wrapped(|| self.inner.cursor())
    }

    fn is_seekable(&self) -> bool {
        self.inner.is_seekable()
    }

    fn index(&self, place: &IndexPlace) -> Result<(), SourceError> {
        self.inner.index(place)
    }

    fn files(&self) -> Files {
        self.inner.files()
    }

    fn record_parts(&self) -> Option<Arc<dyn RecordParts>> {
        self.inner.record_parts()
    }

    fn has_several_lenders(&self) -> bool {
        self.inner.has_several_lenders()
    }

    /// The last record is what a cursor would return. If its position is not known, it is unknown whether a
    /// fault strikes it, so it is not read.
    fn look_at_last(&self, look: &mut dyn FnMut(&[u8], &[u8])) {
        let last = self.inner.records().and_then(|records| records.checked_sub(1));
        let Some(position) = last else {
            if !self.state.faults.iter().any(|fault| fault.place == Place::Record) {
                self.inner.look_at_last(look);
            }
            return;
        };
        let mut torn = Vec::new();
        self.inner.look_at_last(&mut |key, value| {
            let effects = self.state.strike(Place::Record, position);
            if self.state.suffer(&effects, &format_args!("record {position}")).is_ok() {
                look(key, self.state.tear(&effects, position, value, &mut torn).unwrap_or(value));
            }
        });
    }

    fn count(&self, place: &IndexPlace) -> Result<(), SourceError> {
        self.inner.count(place)
    }

    fn commit(&self) -> Result<Option<u64>, SourceError> {
        self.inner.commit()
    }

    fn index_checksum(&self) -> Option<u32> {
        self.inner.index_checksum()
    }

    fn deferring_cursor(&self, promise: VerifiesLater) -> Result<Box<dyn Cursor>, SourceError> {
        self.wrapped(|| self.inner.deferring_cursor(promise))
    }
}

/// Counts a cursor as long as it lives, and has its faults.
struct Counted(Arc<State>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.note_living(|living| living.cursors -= 1);
    }
}

struct ChaosCursor {
    inner: Box<dyn Cursor>,
    /// Dropped after the inner cursor.
    living: Counted,
    path: std::path::PathBuf,
    /// The position of the next record.
    next: u64,
    /// The value of a record that is cut or damaged.
    torn: Vec<u8>,
}

impl Cursor for ChaosCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        let ChaosCursor { inner, living: Counted(state), path, next, torn } = self;
        let Some(entry) = inner.advance()? else { return Ok(None) };
        let position = *next;
        *next += 1;
        let effects = state.strike(Place::Record, position);
        if effects.is_empty() {
            return Ok(Some(entry));
        }
        state
            .suffer(&effects, &format_args!("record {position}"))
            .map_err(|message| SourceError::Broken { path: path.clone(), index: position, message })?;
        let Some(value) = state.tear(&effects, position, entry.value(), torn) else {
            return Ok(Some(entry));
        };
        Ok(Some(entry.with_value(value)))
    }

    fn skip(&mut self) -> Result<bool, SourceError> {
        let is_there = self.inner.skip()?;
        self.next += u64::from(is_there);
        Ok(is_there)
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        self.inner.rewind()?;
        self.next = 0;
        Ok(())
    }

    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        self.inner.seek(position)?;
        self.next = position;
        Ok(())
    }

    fn commit(&mut self) -> u64 {
        self.inner.commit()
    }

    fn check_end(&mut self) -> Result<(), SourceError> {
        self.inner.check_end()
    }

    fn foresee(&mut self, position: u64) {
        self.inner.foresee(position);
    }

    fn reads_until(&mut self, position: u64) {
        self.inner.reads_until(position);
    }

    fn give(&mut self, id: RecordId, run: &mut Run) -> bool {
        self.inner.give(id, run)
    }

    fn share_buffers(&mut self, spare: &Rc<SpareBuffers>) {
        self.inner.share_buffers(spare);
    }

    fn set_aside(&mut self) {
        self.inner.set_aside();
    }

    fn held_bytes(&mut self, value_bytes: usize) -> HeldBytes {
        self.inner.held_bytes(value_bytes)
    }
}

impl State {
    /// A record's value after these effects, in a buffer; `None` if they do not change it.
    fn tear<'a>(
        &self,
        effects: &[&Effect],
        position: u64,
        value: &[u8],
        torn: &'a mut Vec<u8>,
    ) -> Option<&'a [u8]> {
        if !effects.iter().any(|effect| matches!(effect, Effect::Cut(_) | Effect::Damage)) {
            return None;
        }
        torn.clear();
        torn.extend_from_slice(value);
        let seed = self.faults.seed.unwrap_or_default();
        effects.iter().for_each(|effect| tear(torn, effect, seed, position));
        Some(torn)
    }
}

/// Cuts or damages a value. The first byte of a damaged one is 0xff, which begins no message of protobuf:
/// no field has that number and type.
fn tear(value: &mut Vec<u8>, effect: &Effect, seed: u64, position: u64) {
    match effect {
        Effect::Cut(bytes) => value.truncate(*bytes),
        Effect::Damage => {
            let mut draws = SplitMix(fold(seed, &[DAMAGE, position]));
            // Odd, so that no byte stays as it was.
            value.iter_mut().for_each(|byte| *byte ^= draws.next().to_le_bytes()[0] | 1);
            if let Some(first) = value.first_mut() {
                *first = 0xff;
            }
        }
        _ => {}
    }
}
