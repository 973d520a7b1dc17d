//! Walks over the records of a file that is not compressed, from head to head.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;
use std::mem::take;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;
use std::sync::Arc;

use super::buffer::{PIECE_BYTES, grow, room_for};
use super::error::{RecordAt, TfRecordError};
use super::frame::{FOOT_BYTES, Frame, HEAD_BYTES, checksum_of};
use super::key::KEY_BYTES;
use super::open_files::OpenFile;
use super::plain::{Map, Plain};
use crate::source::{Buffers, SourceError, SpareBuffers};

/// Values of at least this length are read alone, into a buffer that a run can take over.
pub(super) const LARGE_BYTES: usize = 64 << 10;
/// Smaller records are read in windows of this length.
const WINDOW_BYTES: usize = 256 << 10;
/// How much is read first if reading returns to the middle of a file: it may leave again at once.
const RETURN_BYTES: u64 = 16 << 10;

/// A place between two records of a file.
#[derive(Debug)]
pub(super) struct Walk {
    plain: Arc<Plain>,
    /// Where the next record starts.
    pub(super) offset: u64,
    /// The next record's position.
    pub(super) position: u64,
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
    /// A large value: room for a key, the value, and what follows it up to the next record's data.
    alone: Vec<u8>,
    /// Where the buffers come from and go to, if several cursors share them.
    spare: Option<Rc<SpareBuffers>>,
    has_left: bool,
}

/// Where the data of the record that was read are.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Window(Range<usize>),
    /// By itself, behind room for a key.
    Alone(Range<usize>),
}

impl Walk {
    pub(super) fn new(plain: &Arc<Plain>) -> Self {
        let read = Read { wanted: WINDOW_BYTES as u64, has_left: true, ..Read::default() };
        Walk { plain: plain.clone(), offset: 0, position: 0, read }
    }

    /// Where all records start, by a walk over the whole file.
    pub(super) fn scan(plain: &Arc<Plain>) -> Result<Vec<u64>, SourceError> {
        let mut walk = Walk::new(plain);
        let map = plain.map().cloned();
        let mut offsets = Vec::new();
        while let Some(frame) = walk.step(map.as_deref())? {
            offsets.push(frame.offset);
        }
        Ok(offsets)
    }

    /// Moves to the record that starts and ends at these bytes.
    pub(super) fn jump(&mut self, position: u64, (start, end): (u64, u64)) {
        (self.position, self.offset) = (position, start);
        // For a large record, only the head is read first; the rest goes to a buffer of its own.
        let whole = end.saturating_sub(start);
        self.read.wanted = if whole < LARGE_BYTES as u64 { whole } else { HEAD_BYTES as u64 };
    }

    /// From now on, reads whole windows: the records that follow are read one after the other.
    pub(super) fn goes_on(&mut self) {
        self.read.wanted = WINDOW_BYTES as u64;
    }

    /// Passes the next record; `None` at the end. `map` is the map to read from, if the file is mapped.
    #[inline]
    pub(super) fn step(&mut self, map: Option<&Map>) -> Result<Option<Frame>, SourceError> {
        let found = self.look(map)?;
        if let Some(frame) = found {
            self.offset = frame.end();
            self.position = self.position.saturating_add(1);
        }
        Ok(found)
    }

    /// The next record, without passing it.
    #[inline]
    pub(super) fn look(&mut self, map: Option<&Map>) -> Result<Option<Frame>, SourceError> {
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
                Err(bad.error(&self.plain.path, at, left).into())
            }
        }
    }

    /// Reads a record of a file that is not mapped, and verifies its data: returns where they are, and
    /// whether they are whole. The last step passed the record.
    pub(super) fn read(&mut self, frame: Frame) -> Result<(Place, Result<(), SourceError>), SourceError> {
        let start = frame.offset.saturating_add(HEAD_BYTES as u64);
        let (place, bytes) = if frame.length < LARGE_BYTES as u64 {
            let range = self.read.fill(&self.plain, start..frame.end())?;
            (Place::Window(without_foot(&range)), self.read.window.get(range))
        } else {
            let range = self.read.fill_alone(&self.plain, start..frame.end())?;
            (Place::Alone(without_foot(&range)), self.read.alone.get(range))
        };
        let whole = bytes.and_then(<[u8]>::split_last_chunk::<FOOT_BYTES>);
        let (data, foot) = whole.unwrap_or((&[], &[0; FOOT_BYTES]));
        let (found, stored) = (checksum_of(data), u32::from_le_bytes(*foot));
        if found == stored {
            return Ok((place, Ok(())));
        }
        let record = self.position.checked_sub(1);
        let at = RecordAt { record, offset: frame.offset, is_unpacked: false };
        let (file, bytes) = (self.plain.path.clone(), frame.length);
        Ok((place, Err(TfRecordError::Data { file, at, bytes, found, stored }.into())))
    }

    /// The bytes at a place.
    #[inline]
    pub(super) fn bytes(&self, place: &Place) -> &[u8] {
        match place {
            Place::Window(range) => self.read.window.get(range.clone()),
            Place::Alone(range) => self.read.alone.get(range.clone()),
        }
        .unwrap_or_default()
    }

    /// The buffer of a large value, for a caller that exchanges it for another.
    pub(super) fn alone(&mut self) -> &mut Vec<u8> {
        &mut self.read.alone
    }

    /// Shares the buffers with other walks.
    pub(super) fn share_buffers(&mut self, spare: &Rc<SpareBuffers>) {
        self.read.spare = Some(spare.clone());
    }

    /// Puts the buffers where other walks find them. `false` if they are not shared.
    pub(super) fn put_buffers(&mut self) -> bool {
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

    /// The memory of the buffers at their full size, if values have this length: the first record may not
    /// have used them yet.
    pub(super) fn held_bytes(&self, value_bytes: usize) -> usize {
        let window = self.read.window.capacity().max(WINDOW_BYTES);
        let alone =
            if value_bytes < LARGE_BYTES { 0 } else { room_for(value_bytes).saturating_add(HEAD_BYTES) };
        window.saturating_add(self.read.alone.capacity().max(alone))
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
    fn fill(&mut self, plain: &Plain, part: Range<u64>) -> Result<Range<usize>, SourceError> {
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

    /// Reads a part of the file into the buffer for a large value, and the head of the next record into the
    /// window. Returns the part's place in the buffer.
    fn fill_alone(&mut self, plain: &Plain, part: Range<u64>) -> Result<Range<usize>, SourceError> {
        let end = part.end.saturating_add(HEAD_BYTES as u64).min(plain.state.bytes);
        let whole = KEY_BYTES.saturating_add(index(end.saturating_sub(part.start)));
        let Read { file, window, part: held, alone, .. } = self;
        // The window has the beginning of the part if a small record came before.
        let is_held = held.contains(&part.start);
        let front = if is_held { index(held.end.min(end).saturating_sub(part.start)) } else { 0 };
        let from = index(part.start.saturating_sub(held.start));
        let mut filled = KEY_BYTES.saturating_add(front);
        grow(alone, filled.max(PIECE_BYTES.min(whole)), whole).map_err(|error| failed(plain, &error))?;
        if let (Some(into), Some(front)) =
            (alone.get_mut(KEY_BYTES..filled), window.get(from..from.saturating_add(front)))
        {
            into.copy_from_slice(front);
        }
        // A file with holes may be longer than the disk.
        while filled < whole {
            let to = filled.saturating_add(PIECE_BYTES).max(alone.len()).min(whole);
            grow(alone, to, whole).map_err(|error| failed(plain, &error))?;
            let at = part.start.saturating_add(filled.saturating_sub(KEY_BYTES) as u64);
            read_at(file, plain, alone.get_mut(filled..to).unwrap_or_default(), at)?;
            filled = to;
        }
        let place = KEY_BYTES..KEY_BYTES.saturating_add(index(part.end.saturating_sub(part.start)));
        if held.end < end {
            window.clear();
            window.extend_from_slice(alone.get(place.end..whole).unwrap_or_default());
            *held = part.end..end;
        }
        Ok(place)
    }
}

fn read_at(file: &mut OpenFile, plain: &Plain, into: &mut [u8], at: u64) -> Result<(), SourceError> {
    let Plain { path, state, .. } = plain;
    let file = file.get(path, *state)?;
    file.read_exact_at(into, at).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            let found = format!("it has {} now", file.metadata().map_or(0, |found| found.len()));
            TfRecordError::Changed { file: path.clone(), was: state.bytes, found }.into()
        }
        _ => failed(plain, &error),
    })
}

fn failed(plain: &Plain, error: &io::Error) -> SourceError {
    SourceError::io(&plain.path, "read the file", error)
}
