//! The cursor over a file's records.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use percolator_tfrecord::{Frame, PackedWalk, PlainFile, PlainWalk, RecordFile};

use super::index::Indexed;
use super::key::{DecimalKey, KEY_BYTES};
use super::lending::Mapped;
use super::{TfRecord, TfRecordError};
use crate::record::RecordId;
use crate::source::index::Damage;
use crate::source::{Cursor, Entry, HeldBytes, Run, SourceError, SpareBuffers};

/// After this many steps since a seek, the cursor is assumed to continue from record to record.
const STEPS_APART: u32 = 4;

/// For this many steps after a seek, a large record is requested when the cursor reaches it. After that,
/// read-ahead has requested it already.
const STEPS_ASKED_FOR: u32 = 24;

/// Records of at least this length are large. The pages of a smaller one are read soon enough when it is
/// used.
const ASKED_FOR_BYTES: u64 = 16 << 10;

/// Who verifies the data of records in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verify {
    ByCursor,
    /// The user of the data, through their lender.
    ByUser,
}

/// A cursor. It stays on one thread; what it lends does not.
pub(super) struct TfRecordCursor {
    source: TfRecord,
    verify: Verify,
    at: At,
    key: DecimalKey,
    /// What is wrong with the last record, if its user reports that.
    damage: Option<SourceError>,
}

/// Where the records come from.
enum At {
    Plain(Box<PlainCursor>),
    Packed {
        walk: Box<PackedWalk>,
        /// Where the last value is in the walk's buffer, if a run may take the buffer over together with it.
        whole: Option<Range<usize>>,
    },
}

/// A cursor over a file that is not compressed.
struct PlainCursor {
    walk: PlainWalk,
    /// The map in which the cursor reads from record to record; `None` if the file is read.
    forward: Option<Mapped>,
    /// The map in which it seeks, once it has.
    by_position: Option<Mapped>,
    is_by_position: bool,
    indexed: Option<Indexed>,
    /// Where the next record must end according to the index; set only right after a seek by the index.
    end_by_index: Option<u64>,
    /// Why the index could not tell.
    index_damage: Option<Damage>,
    /// The number of steps since the last seek; more than enough if there was none.
    steps: u32,
    /// The position before which the cursor stops or seeks elsewhere (`u64::MAX` if unknown), and whether
    /// `page_cache` knows it.
    until: u64,
    is_end_set: bool,
    /// Where the last value is, if the walk's buffer holds only that value.
    alone: Option<Range<usize>>,
}

impl TfRecordCursor {
    pub(super) fn new(source: &TfRecord, verify: Verify) -> Self {
        let at = match &source.file {
            RecordFile::Plain(plain) => At::Plain(Box::new(PlainCursor::new(plain, verify))),
            RecordFile::Packed(packed) => {
                At::Packed { walk: Box::new(PackedWalk::new(packed, KEY_BYTES)), whole: None }
            }
        };
        TfRecordCursor { source: source.clone(), verify, at, key: DecimalKey::new(), damage: None }
    }

    fn position(&self) -> u64 {
        match &self.at {
            At::Plain(plain) => plain.walk.position(),
            At::Packed { walk, .. } => walk.position(),
        }
    }

    /// Uses the index for the seek that follows, if there is one.
    fn use_index(&mut self) {
        if let At::Plain(plain) = &mut self.at
            && plain.indexed.is_none()
        {
            plain.indexed = self.source.indexed();
        }
    }
}

impl Cursor for TfRecordCursor {
    fn advance(&mut self) -> Result<Option<Entry<'_>>, SourceError> {
        let TfRecordCursor { source, verify, at, key, damage } = self;
        match at {
            At::Plain(plain) => {
                let Some(frame) = plain.step(source, *verify)? else { return Ok(None) };
                key.go_to(plain.walk.position() - 1);
                plain.entry(frame, *verify, key.bytes(), damage).map(Some)
            }
            At::Packed { walk, whole } => {
                *whole = None;
                let stepped = walk.step();
                key.go_to(walk.position().saturating_sub(1));
                match stepped {
                    Ok(Some(_)) => {}
                    Ok(None) => {
                        walk.close();
                        source.learn(walk.position())?;
                        return Ok(None);
                    }
                    Err(error @ TfRecordError::Data { .. }) if *verify == Verify::ByUser => {
                        let damage = damage.insert(error.into());
                        return Ok(Some(Entry::damaged(key.bytes(), walk.data(), damage)));
                    }
                    Err(error) => return Err(error.into()),
                }
                let entry = Entry::borrowed(key.bytes(), walk.data());
                *whole = walk.alone().filter(|_| *verify == Verify::ByUser);
                Ok(Some(if whole.is_some() { entry.whole() } else { entry }))
            }
        }
    }

    fn skip(&mut self) -> Result<bool, SourceError> {
        let TfRecordCursor { source, verify, at, .. } = self;
        match at {
            At::Plain(plain) => {
                let Some(frame) = plain.step(source, *verify)? else { return Ok(false) };
                plain.came_to(frame, false);
                Ok(true)
            }
            At::Packed { walk, .. } => {
                let is_there = walk.skip()?.is_some();
                if !is_there {
                    walk.close();
                    source.learn(walk.position())?;
                }
                Ok(is_there)
            }
        }
    }

    fn rewind(&mut self) -> Result<(), SourceError> {
        match &mut self.at {
            At::Plain(plain) => plain.rewind(),
            At::Packed { walk, .. } => walk.rewind(),
        }
        Ok(())
    }

    fn seek(&mut self, position: u64) -> Result<(), SourceError> {
        if position == self.position() {
            return Ok(());
        }
        if position == 0 {
            return self.rewind();
        }
        self.use_index();
        if let At::Plain(plain) = &mut self.at
            && plain.jump(position, self.verify)?
        {
            return Ok(());
        }
        if position < self.position() {
            self.rewind()?;
        }
        while self.position() < position && self.skip()? {}
        Ok(())
    }

    fn foresee(&mut self, position: u64) {
        if let At::Plain(plain) = &mut self.at
            && let Some(mapped) = &plain.by_position
            && let Some((start, _)) =
                plain.indexed.as_ref().and_then(|indexed| indexed.place(position).ok()?)
        {
            mapped.ask_for_head(start);
        }
    }

    fn reads_until(&mut self, position: u64) {
        if position != u64::MAX {
            self.use_index();
        }
        if let At::Plain(plain) = &mut self.at {
            (plain.until, plain.is_end_set) = (position, false);
        }
    }

    fn give(&mut self, id: RecordId, run: &mut Run) -> bool {
        let (buffer, value) = match &mut self.at {
            At::Plain(plain) => match plain.alone.take() {
                Some(value) => (plain.walk.buffer(), value),
                None => return false,
            },
            At::Packed { walk, whole } => match whole.take() {
                Some(value) => (walk.buffer(), value),
                None => return false,
            },
        };
        run.exchange(id, self.key.bytes(), buffer, value);
        true
    }

    fn share_buffers(&mut self, spare: &Rc<SpareBuffers>) {
        match &mut self.at {
            At::Plain(plain) => plain.walk.share_buffers(spare),
            At::Packed { walk, .. } => walk.share_buffers(spare),
        }
    }

    fn set_aside(&mut self) {
        match &mut self.at {
            At::Plain(plain) => {
                plain.close();
                plain.put_buffers();
            }
            At::Packed { walk, whole } => {
                walk.close();
                *whole = None;
            }
        }
    }

    fn held_bytes(&mut self, value_bytes: usize) -> HeldBytes {
        let shared = match &self.at {
            At::Plain(plain) if plain.forward.is_some() => 0,
            At::Plain(plain) => plain.walk.held_bytes(value_bytes),
            At::Packed { walk, .. } => walk.held_bytes(value_bytes),
        };
        HeldBytes { own: 0, shared }
    }
}

impl PlainCursor {
    fn new(plain: &Arc<PlainFile>, verify: Verify) -> Self {
        PlainCursor {
            walk: PlainWalk::new(plain, KEY_BYTES),
            forward: plain.map().map(|map| Mapped::new(plain, map, verify)),
            by_position: None,
            is_by_position: false,
            indexed: None,
            end_by_index: None,
            index_damage: None,
            steps: STEPS_ASKED_FOR,
            until: u64::MAX,
            is_end_set: true,
            alone: None,
        }
    }

    /// Closes the file that is kept open for read-ahead: there may be thousands of files.
    fn close(&mut self) {
        for mapped in self.forward.iter_mut().chain(&mut self.by_position) {
            mapped.page_cache.close();
        }
    }

    fn rewind(&mut self) {
        self.walk.rewind();
        (self.is_by_position, self.end_by_index, self.steps) = (false, None, STEPS_ASKED_FOR);
    }

    /// Seeks by the index; `false` if there is none.
    fn jump(&mut self, position: u64, verify: Verify) -> Result<bool, SourceError> {
        let Some(indexed) = &self.indexed else { return Ok(false) };
        let plain = indexed.plain.clone();
        match indexed.place(position) {
            Ok(Some((start, end))) => {
                self.walk.jump(position, (start, end));
                self.end_by_index = Some(end);
            }
            Ok(None) if position >= indexed.index.records() => {
                let end = plain.state().bytes;
                self.walk.jump(position, (end, end));
                self.end_by_index = None;
            }
            // The next step notices, because no record is that long.
            damaged => {
                self.walk.jump(position, (0, 0));
                self.end_by_index = Some(u64::MAX);
                self.index_damage = damaged.err();
            }
        }
        if self.by_position.is_none()
            && let Some(map) = plain.map_by_position()?
        {
            self.by_position = Some(Mapped::new(&plain, map, verify));
        }
        self.is_by_position = true;
        let is_end_known = self.until != u64::MAX;
        if let Some(Mapped { page_cache, .. }) = &mut self.by_position {
            page_cache.jump(is_end_known);
        }
        self.steps = 0;
        Ok(true)
    }

    /// Passes the next record; `None` at the end.
    #[inline]
    fn step(&mut self, source: &TfRecord, verify: Verify) -> Result<Option<Frame>, SourceError> {
        let here = if self.is_by_position { &self.by_position } else { &self.forward };
        let map = here.as_ref().map(|here| &*here.map);
        let position = self.walk.position();
        let found = match self.end_by_index.take() {
            None => self.walk.step(map)?,
            Some(end) => match self.walk.step(map) {
                Ok(Some(frame)) if frame.end() == end => Some(frame),
                // Nothing was read that could be wrong.
                Err(error @ TfRecordError::Io { .. }) => return Err(error.into()),
                // Either the file is damaged here, or the index is of another state of the file.
                _ => return self.step_by_new_index(position, source, verify),
            },
        };
        self.steps = self.steps.saturating_add(1);
        if self.steps == STEPS_APART {
            self.walk.goes_on();
        }
        if found.is_none() {
            self.ended(source)?;
        }
        Ok(found)
    }

    /// Repeats the step with a rebuilt index. If the file is damaged, rebuilding fails with the error.
    #[cold]
    fn step_by_new_index(
        &mut self,
        position: u64,
        source: &TfRecord,
        verify: Verify,
    ) -> Result<Option<Frame>, SourceError> {
        let Some(wrong) = self.indexed.take() else {
            // Only a seek by the index sets the end that was not met. Ending here would lose records.
            let (path, message) = (source.path.clone(), "the index of the records is missing".to_owned());
            return Err(SourceError::Broken { path, index: position, message });
        };
        let why = match self.index_damage.take() {
            Some(damage) => damage.to_string(),
            None => format!("record {position} is not where it says"),
        };
        self.indexed = Some(source.rebuild_index(&wrong, &why)?);
        self.jump(position, verify)?;
        self.end_by_index = None;
        self.step(source, verify)
    }

    /// At the end: checks the number of records, and closes the file that is kept open for read-ahead.
    #[cold]
    fn ended(&mut self, source: &TfRecord) -> Result<(), SourceError> {
        if !self.is_by_position {
            source.learn(self.walk.position())?;
        }
        self.close();
        self.put_buffers();
        Ok(())
    }

    /// Releases the buffers, if other cursors use them as well.
    fn put_buffers(&mut self) {
        if self.forward.is_none() && self.walk.put_buffers() {
            (self.alone, self.steps) = (None, 0);
        }
    }

    /// Asks the kernel to read ahead of the record.
    #[inline]
    fn came_to(&mut self, frame: Frame, is_taken: bool) {
        let continues = self.steps > STEPS_APART;
        if continues && !self.is_end_set {
            self.set_end();
        }
        let here = if self.is_by_position { &mut self.by_position } else { &mut self.forward };
        let Some(Mapped { page_cache, map, .. }) = here else { return };
        let bytes = map.frame(frame);
        if continues && is_taken {
            page_cache.took(bytes);
        } else if continues {
            page_cache.passed_over(bytes);
        }
        if is_taken && self.steps < STEPS_ASKED_FOR && frame.length >= ASKED_FOR_BYTES {
            map.will_need(frame);
        }
    }

    /// Makes read-ahead end where the cursor will seek elsewhere.
    #[cold]
    fn set_end(&mut self) {
        let last = self.until.checked_sub(1).filter(|_| self.until != u64::MAX);
        let place = last.zip(self.indexed.as_ref()).and_then(|(last, indexed)| indexed.place(last).ok()?);
        let here = if self.is_by_position { &mut self.by_position } else { &mut self.forward };
        let Some(Mapped { page_cache, map, .. }) = here else { return };
        let last = place.map(|(start, end)| map.bytes(start..end)).filter(|last| !last.is_empty());
        self.is_end_set = page_cache.reads_until(last);
    }

    /// The record that the last step passed.
    #[inline]
    fn entry<'a>(
        &'a mut self,
        frame: Frame,
        verify: Verify,
        key: &'a [u8],
        damage: &'a mut Option<SourceError>,
    ) -> Result<Entry<'a>, SourceError> {
        self.came_to(frame, true);
        let here = if self.is_by_position { &self.by_position } else { &self.forward };
        if let Some(mapped) = here {
            return mapped.entry(frame, key, verify);
        }
        self.alone = None;
        match self.walk.read(frame) {
            Ok(()) => {}
            Err(error @ TfRecordError::Data { .. }) if verify == Verify::ByUser => {
                return Ok(Entry::damaged(key, self.walk.data(), damage.insert(error.into())));
            }
            Err(error) => return Err(error.into()),
        }
        self.alone = self.walk.alone().filter(|_| verify == Verify::ByUser);
        let entry = Entry::borrowed(key, self.walk.data());
        Ok(if self.alone.is_some() { entry.whole() } else { entry })
    }
}
