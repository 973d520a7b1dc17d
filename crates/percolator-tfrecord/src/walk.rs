//! Walks over the records of a file that is not compressed, from head to head.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;
use std::mem::take;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;
use std::sync::Arc;

use percolator_files::{Buffers, SpareBuffers};

use crate::buffer::{PIECE_BYTES, grow};
use crate::error::{RecordAt, TfRecordError};
use crate::frame::{FOOT_BYTES, Frame, HEAD_BYTES, checksum_of};
use crate::map::FileMap;
use crate::open_files::OpenFile;
use crate::plain::PlainFile;

/// Data of at least this length are read alone, into a buffer that can be taken over.
pub const LARGE_BYTES: usize = 64 << 10;
/// Smaller records are read in windows of this length.
const WINDOW_BYTES: usize = 256 << 10;
/// How much is read first if reading returns to the middle of a file: it may leave again at once.
const RETURN_BYTES: u64 = 16 << 10;

/// A place between two records of a file that is not compressed.
///
/// If the file is mapped, the caller keeps the map, and takes the data of the records that it passes from
/// there ([`FileMap::data`]). Otherwise it [reads](Self::read) those that it wants.
#[derive(Debug)]
pub struct PlainWalk {
    plain: Arc<PlainFile>,
    /// Where the next record starts.
    offset: u64,
    /// The next record's position.
    position: u64,
    /// What was read last, if the file is not mapped.
    read: Read,
}

/// The buffers for a file that is not mapped.
#[derive(Debug, Default)]
struct Read {
    file: OpenFile,
    window: Vec<u8>,
    /// Which part of the file the window is.
    part: Range<u64>,
    /// How much to read at the next place that is not in the window.
    wanted: u64,
    /// Large data: the caller's room, the data, and what follows them up to the next record's data.
    alone: Vec<u8>,
    /// How many bytes at the front of `alone` are the caller's.
    room: usize,
    /// Where the data of the record that was read last are.
    place: Place,
    /// Where the buffers come from and go to, if several walks share them.
    spare: Option<Rc<SpareBuffers>>,
    has_left: bool,
}

/// Where the data of a record are.
#[derive(Clone, Debug)]
enum Place {
    Window(Range<usize>),
    /// By themselves, behind the caller's room.
    Alone(Range<usize>),
}

impl Default for Place {
    fn default() -> Self {
        Place::Window(0..0)
    }
}

impl PlainWalk {
    /// Returns a walk before the first record. In a [buffer](Self::buffer) that holds the data of one record
    /// only, `room` bytes before them are left to the caller.
    #[must_use]
    pub fn new(plain: &Arc<PlainFile>, room: usize) -> Self {
        let read = Read { wanted: WINDOW_BYTES as u64, room, has_left: true, ..Read::default() };
        PlainWalk { plain: plain.clone(), offset: 0, position: 0, read }
    }

    /// Returns where all records start, by a walk over the whole file. Their data are not verified.
    ///
    /// # Errors
    ///
    /// As [`step`](Self::step).
    pub fn scan(plain: &Arc<PlainFile>) -> Result<Vec<u64>, TfRecordError> {
        let mut walk = PlainWalk::new(plain, 0);
        let map = plain.map().cloned();
        let mut offsets = Vec::new();
        while let Some(frame) = walk.step(map.as_deref())? {
            offsets.push(frame.offset);
        }
        Ok(offsets)
    }

    /// Returns the byte where the next record starts.
    #[inline]
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the number of the next record.
    #[inline]
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Goes back before the first record.
    pub fn rewind(&mut self) {
        (self.offset, self.position) = (0, 0);
        self.goes_on();
    }

    /// Moves to the record of this number, which starts and ends at these bytes. They are not checked: the
    /// next step fails, or finds a record that ends elsewhere, if they are wrong.
    pub fn jump(&mut self, position: u64, (start, end): (u64, u64)) {
        (self.position, self.offset) = (position, start);
        // For a large record, only the head is read first; the rest goes to a buffer of its own.
        let whole = end.saturating_sub(start);
        self.read.wanted = if whole < LARGE_BYTES as u64 { whole } else { HEAD_BYTES as u64 };
    }

    /// From now on, reads whole windows: the records that follow are read one after the other.
    pub fn goes_on(&mut self) {
        self.read.wanted = WINDOW_BYTES as u64;
    }

    /// Passes the next record; `None` at the end. `map` is the map to read from, if the file is mapped. Only
    /// the length is verified.
    ///
    /// # Errors
    ///
    /// [`TfRecordError`] if there is no record, which is then not passed.
    #[inline]
    pub fn step(&mut self, map: Option<&FileMap>) -> Result<Option<Frame>, TfRecordError> {
        let found = self.look(map)?;
        if let Some(frame) = found {
            self.offset = frame.end();
            self.position = self.position.saturating_add(1);
        }
        Ok(found)
    }

    /// The next record, without passing it.
    #[inline]
    fn look(&mut self, map: Option<&FileMap>) -> Result<Option<Frame>, TfRecordError> {
        let offset = self.offset;
        let left = self.plain.state.bytes.saturating_sub(offset);
        if left == 0 {
            return Ok(None);
        }
        let range = offset..offset.saturating_add(HEAD_BYTES as u64).min(self.plain.state.bytes);
        let head = match map {
            Some(map) => map.bytes(range),
            None => {
                let range = self.read.fill(&self.plain, range)?;
                self.read.window.get(range).unwrap_or_default()
            }
        };
        match Frame::read(head, offset, left) {
            Ok(frame) => Ok(Some(frame)),
            Err(bad) => {
                let at = RecordAt { record: Some(self.position), offset, is_unpacked: false };
                Err(bad.error(&self.plain.path, at, left))
            }
        }
    }

    /// Reads the data of the record that the last step passed, and verifies them. This is for a file that is
    /// not mapped.
    ///
    /// # Errors
    ///
    /// [`TfRecordError::Data`] if their checksum is wrong: [`data`](Self::data) then has them as they are.
    /// Any other error if they cannot be read.
    pub fn read(&mut self, frame: Frame) -> Result<(), TfRecordError> {
        let start = frame.offset.saturating_add(HEAD_BYTES as u64);
        let bytes = if frame.length < LARGE_BYTES as u64 {
            let range = self.read.fill(&self.plain, start..frame.end())?;
            self.read.place = Place::Window(without_foot(&range));
            self.read.window.get(range)
        } else {
            let range = self.read.fill_alone(&self.plain, start..frame.end())?;
            self.read.place = Place::Alone(without_foot(&range));
            self.read.alone.get(range)
        };
        let whole = bytes.and_then(<[u8]>::split_last_chunk::<FOOT_BYTES>);
        let (data, foot) = whole.unwrap_or((&[], &[0; FOOT_BYTES]));
        let (found, stored) = (checksum_of(data), u32::from_le_bytes(*foot));
        if found == stored {
            return Ok(());
        }
        let record = self.position.checked_sub(1);
        let at = RecordAt { record, offset: frame.offset, is_unpacked: false };
        let (file, bytes) = (self.plain.path.clone(), frame.length);
        Err(TfRecordError::Data { file, at, bytes, found, stored })
    }

    /// Returns the data of the record that was read last. They are there until the next step.
    #[inline]
    #[must_use]
    pub fn data(&self) -> &[u8] {
        match &self.read.place {
            Place::Window(range) => self.read.window.get(range.clone()),
            Place::Alone(range) => self.read.alone.get(range.clone()),
        }
        .unwrap_or_default()
    }

    /// Returns where in the [buffer](Self::buffer) the data of the record that was read last are, if they are
    /// large: then they have it for themselves.
    #[inline]
    #[must_use]
    pub fn alone(&self) -> Option<Range<usize>> {
        match &self.read.place {
            Place::Window(_) => None,
            Place::Alone(range) => Some(range.clone()),
        }
    }

    /// Returns the buffer for large data, which the caller may exchange for another.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.read.alone
    }

    /// Shares the buffers with other walks.
    pub fn share_buffers(&mut self, spare: &Rc<SpareBuffers>) {
        self.read.spare = Some(spare.clone());
    }

    /// Puts the buffers where other walks find them; returns `false` if they are not shared.
    pub fn put_buffers(&mut self) -> bool {
        let Read { window, part, wanted, alone, spare: Some(spare), has_left, .. } = &mut self.read else {
            return false;
        };
        spare.put(Buffers { window: take(window), value: take(alone) });
        (*part, *has_left) = (0..0, true);
        if self.offset > 0 {
            *wanted = (*wanted).min(RETURN_BYTES);
        }
        true
    }

    /// Returns the memory of the buffers at their full size, if records have this much data: the first record
    /// may not have used them yet.
    #[must_use]
    pub fn held_bytes(&self, data_bytes: usize) -> usize {
        let Read { window, alone, room, .. } = &self.read;
        let whole = match data_bytes < LARGE_BYTES {
            true => 0,
            false => room.saturating_add(data_bytes).saturating_add(FOOT_BYTES).saturating_add(HEAD_BYTES),
        };
        window.capacity().max(WINDOW_BYTES).saturating_add(alone.capacity().max(whole))
    }
}

fn without_foot(range: &Range<usize>) -> Range<usize> {
    range.start..range.end.saturating_sub(FOOT_BYTES)
}

fn index(at: u64) -> usize {
    usize::try_from(at).unwrap_or(usize::MAX)
}

impl Read {
    /// Takes the buffers that another walk has put.
    fn come_back(&mut self) {
        if take(&mut self.has_left)
            && let Some(spare) = &self.spare
        {
            Buffers { window: self.window, value: self.alone } = spare.take();
        }
    }

    /// Makes sure that the window holds this part of the file; returns its place in the window.
    fn fill(&mut self, plain: &PlainFile, part: Range<u64>) -> Result<Range<usize>, TfRecordError> {
        if part.start < self.part.start || part.end > self.part.end {
            let end = part.start.saturating_add(self.wanted).min(plain.state.bytes).max(part.end);
            let bytes = index(end.saturating_sub(part.start));
            self.come_back();
            // If the read fails, the window holds nothing.
            self.part = 0..0;
            // The window never shrinks: old bytes are overwritten.
            if self.window.len() < bytes {
                self.window.reserve_exact(bytes.saturating_sub(self.window.len()));
                self.window.resize(bytes, 0);
            }
            let Read { file, window, .. } = self;
            read_at(file, plain, window.get_mut(..bytes).unwrap_or_default(), part.start)?;
            self.part = part.start..end;
        }
        let at = |byte: u64| index(byte.saturating_sub(self.part.start));
        Ok(at(part.start)..at(part.end))
    }

    /// Reads a part of the file into the buffer for large data, and the head of the next record into the
    /// window. Returns the part's place in the buffer.
    fn fill_alone(&mut self, plain: &PlainFile, part: Range<u64>) -> Result<Range<usize>, TfRecordError> {
        let end = part.end.saturating_add(HEAD_BYTES as u64).min(plain.state.bytes);
        let Read { file, window, part: held, alone, room, .. } = self;
        let room = *room;
        let whole = room.saturating_add(index(end.saturating_sub(part.start)));
        // The window has the beginning of the part if a small record came before.
        let is_held = held.contains(&part.start);
        let front = if is_held { index(held.end.min(end).saturating_sub(part.start)) } else { 0 };
        let from = index(part.start.saturating_sub(held.start));
        let mut filled = room.saturating_add(front);
        grow(alone, filled.max(PIECE_BYTES.min(whole)), whole).map_err(|error| failed(plain, &error))?;
        if let (Some(into), Some(front)) =
            (alone.get_mut(room..filled), window.get(from..from.saturating_add(front)))
        {
            into.copy_from_slice(front);
        }
        // A file with holes may be longer than the disk.
        while filled < whole {
            let to = filled.saturating_add(PIECE_BYTES).max(alone.len()).min(whole);
            grow(alone, to, whole).map_err(|error| failed(plain, &error))?;
            let at = part.start.saturating_add(filled.saturating_sub(room) as u64);
            read_at(file, plain, alone.get_mut(filled..to).unwrap_or_default(), at)?;
            filled = to;
        }
        let place = room..room.saturating_add(index(part.end.saturating_sub(part.start)));
        if held.end < end {
            window.clear();
            window.extend_from_slice(alone.get(place.end..whole).unwrap_or_default());
            *held = part.end..end;
        }
        Ok(place)
    }
}

fn read_at(file: &mut OpenFile, plain: &PlainFile, into: &mut [u8], at: u64) -> Result<(), TfRecordError> {
    let PlainFile { path, state, .. } = plain;
    let file = file.get(path, *state)?;
    file.read_exact_at(into, at).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            let found = format!("it has {} now", file.metadata().map_or(0, |found| found.len()));
            TfRecordError::Changed { file: path.clone(), was: state.bytes, found }
        }
        _ => failed(plain, &error),
    })
}

fn failed(plain: &PlainFile, error: &io::Error) -> TfRecordError {
    TfRecordError::io(&plain.path, "read the file", error)
}
