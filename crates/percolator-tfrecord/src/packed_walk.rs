//! Walks over the records of a compressed file, which are unpacked in order.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;
use std::mem::take;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use percolator_files::{Buffers, SpareBuffers};

use crate::buffer::{PIECE_BYTES, grow};
use crate::error::{RecordAt, TfRecordError};
use crate::frame::{BadFrame, FOOT_BYTES, FRAME_BYTES, Frame, HEAD_BYTES, checksum_of};
use crate::packed::{PackedFile, Stream};
use crate::walk::LARGE_BYTES;

/// How much is unpacked at a time on the way back to a place.
const RETURN_BYTES: usize = 64 << 10;

/// A place between two records of a compressed file.
#[derive(Debug)]
pub struct PackedWalk {
    packed: Arc<PackedFile>,
    /// `None` before the first record, at the end, and if reading has left the file.
    stream: Option<Stream>,
    is_at_end: bool,
    /// Where the next record starts, in unpacked bytes.
    offset: u64,
    /// The next record's position.
    position: u64,
    /// The caller's room, then the last record's data and foot.
    buffer: Vec<u8>,
    /// How many bytes at the front of the buffer are the caller's.
    room: usize,
    /// The length of the data of the record that was read last.
    data_bytes: usize,
    /// Where the buffer comes from and goes to, if several walks share it.
    spare: Option<Rc<SpareBuffers>>,
    /// Why there is no next record: after damage, nothing says where one starts.
    error: Option<TfRecordError>,
}

impl PackedWalk {
    /// Returns a walk before the first record. In the [buffer](Self::buffer), `room` bytes before the data
    /// are left to the caller.
    #[must_use]
    pub fn new(packed: &Arc<PackedFile>, room: usize) -> Self {
        PackedWalk {
            packed: packed.clone(),
            stream: None,
            is_at_end: false,
            offset: 0,
            position: 0,
            buffer: Vec::new(),
            room,
            data_bytes: 0,
            spare: None,
            error: None,
        }
    }

    /// Returns where all records start, by a walk over the whole file. Their data are not verified.
    ///
    /// # Errors
    ///
    /// As [`skip`](Self::skip).
    pub fn scan(packed: &Arc<PackedFile>) -> Result<Vec<u64>, TfRecordError> {
        let mut walk = PackedWalk::new(packed, 0);
        let mut offsets = Vec::new();
        while let Some(frame) = walk.skip()? {
            offsets.push(frame.offset);
        }
        Ok(offsets)
    }

    /// Returns the number of the next record.
    #[inline]
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Goes back before the first record.
    pub fn rewind(&mut self) {
        (self.stream, self.is_at_end, self.offset, self.position) = (None, false, 0, 0);
        self.error = None;
    }

    /// Reads the next record and verifies it; `None` at the end. [`data`](Self::data) has its data.
    ///
    /// # Errors
    ///
    /// [`TfRecordError::Data`] if the checksum of the data is wrong: the record is passed, and `data` has
    /// them as they are. Any other error is returned again by the next step.
    pub fn step(&mut self) -> Result<Option<Frame>, TfRecordError> {
        self.unless_failed(Self::read)
    }

    /// Passes the next record without keeping its data, which are not verified; `None` at the end.
    ///
    /// # Errors
    ///
    /// [`TfRecordError`] if there is no whole record. It is returned again by the next step.
    pub fn skip(&mut self) -> Result<Option<Frame>, TfRecordError> {
        self.unless_failed(Self::pass_over)
    }

    fn unless_failed(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<Option<Frame>, TfRecordError>,
    ) -> Result<Option<Frame>, TfRecordError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let found = step(self);
        if let Err(error) = &found
            && !matches!(error, TfRecordError::Data { .. })
        {
            self.error = Some(error.clone());
        }
        found
    }

    fn read(&mut self) -> Result<Option<Frame>, TfRecordError> {
        let Some(frame) = self.head()? else { return Ok(None) };
        let whole = frame.length.saturating_add(FOOT_BYTES as u64);
        let whole = usize::try_from(whole).map_err(|_| self.failed(&io::ErrorKind::OutOfMemory.into()))?;
        let mut filled = 0_usize;
        while filled < whole {
            let piece = PIECE_BYTES.min(whole.saturating_sub(filled));
            let (start, end) =
                (self.room.saturating_add(filled), self.room.saturating_add(filled).saturating_add(piece));
            let grown = grow(&mut self.buffer, end, self.room.saturating_add(whole));
            grown.map_err(|error| self.failed(&error))?;
            let read = self.fill(start..end)?;
            filled = filled.saturating_add(read);
            if read < piece {
                return Err(self.cut(frame, filled));
            }
        }
        let bytes = self.buffer.get(self.room..self.room.saturating_add(whole)).unwrap_or_default();
        let (data, foot) = bytes.split_last_chunk::<FOOT_BYTES>().unwrap_or((&[], &[0; FOOT_BYTES]));
        let (found, stored) = (checksum_of(data), u32::from_le_bytes(*foot));
        self.data_bytes = data.len();
        if found != stored {
            let (file, at, bytes) = (self.packed.path.clone(), self.at(), frame.length);
            self.pass(frame);
            return Err(TfRecordError::Data { file, at, bytes, found, stored });
        }
        self.pass(frame);
        Ok(Some(frame))
    }

    fn pass_over(&mut self) -> Result<Option<Frame>, TfRecordError> {
        let Some(frame) = self.head()? else { return Ok(None) };
        let mut left = frame.length.saturating_add(FOOT_BYTES as u64);
        while left > 0 {
            let piece = usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            grow(&mut self.buffer, piece, piece).map_err(|error| self.failed(&error))?;
            let read = self.fill(0..piece)?;
            left = left.saturating_sub(read as u64);
            if read < piece {
                let whole = frame.length.saturating_add(FOOT_BYTES as u64);
                return Err(
                    self.cut(frame, usize::try_from(whole.saturating_sub(left)).unwrap_or(usize::MAX))
                );
            }
        }
        self.pass(frame);
        Ok(Some(frame))
    }

    /// Returns the data of the record that was read last. They are there until the next step.
    #[inline]
    #[must_use]
    pub fn data(&self) -> &[u8] {
        self.buffer.get(self.place()).unwrap_or_default()
    }

    /// Returns where in the [buffer](Self::buffer) the data of the record that was read last are, if they are
    /// large.
    #[inline]
    #[must_use]
    pub fn alone(&self) -> Option<Range<usize>> {
        Some(self.place()).filter(|place| place.len() >= LARGE_BYTES)
    }

    #[inline]
    fn place(&self) -> Range<usize> {
        self.room..self.room.saturating_add(self.data_bytes)
    }

    /// Returns the buffer, which the caller may exchange for another.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Shares the buffer with other walks.
    pub fn share_buffers(&mut self, spare: &Rc<SpareBuffers>) {
        self.spare = Some(spare.clone());
    }

    /// Returns the memory of the buffer and the decompressor, if records have this much data.
    #[must_use]
    pub fn held_bytes(&self, data_bytes: usize) -> usize {
        let whole = self.room.saturating_add(data_bytes).saturating_add(FOOT_BYTES);
        let buffer = self.buffer.capacity().max(whole).max(RETURN_BYTES);
        buffer.saturating_add(Stream::HELD_BYTES)
    }

    /// Closes the file, and puts the buffer where other walks find it. If there are more records, the next
    /// step opens the file again.
    pub fn close(&mut self) {
        self.stream = None;
        if let Some(spare) = &self.spare {
            spare.put(Buffers { window: Vec::new(), value: take(&mut self.buffer) });
        }
    }

    /// Opens the file, and unpacks it up to the next record.
    fn open(&mut self) -> Result<(), TfRecordError> {
        if let Some(spare) = self.spare.as_ref().filter(|_| self.buffer.capacity() == 0) {
            let Buffers { window, value } = spare.take();
            self.buffer = value;
            spare.put(Buffers { window, value: Vec::new() });
        }
        self.stream = Some(self.packed.stream()?);
        let mut left = self.offset;
        while left > 0 {
            let piece = usize::try_from(left).unwrap_or(usize::MAX).min(RETURN_BYTES);
            grow(&mut self.buffer, piece, piece).map_err(|error| self.failed(&error))?;
            let read = self.fill(0..piece)?;
            left = left.saturating_sub(read as u64);
            if read < piece {
                let (file, was) = (self.packed.path.clone(), self.packed.bytes());
                let found = format!("it unpacks to {} bytes now", self.offset.saturating_sub(left));
                return Err(TfRecordError::Changed { file, was, found });
            }
        }
        Ok(())
    }

    fn pass(&mut self, frame: Frame) {
        self.offset = frame.end();
        self.position = self.position.saturating_add(1);
    }

    /// Unpacks the next record's head.
    fn head(&mut self) -> Result<Option<Frame>, TfRecordError> {
        if self.is_at_end {
            return Ok(None);
        }
        if self.stream.is_none()
            && let Err(error) = self.open()
        {
            self.stream = None;
            return Err(error);
        }
        grow(&mut self.buffer, HEAD_BYTES, HEAD_BYTES).map_err(|error| self.failed(&error))?;
        let read = self.fill(0..HEAD_BYTES)?;
        if read == 0 {
            self.is_at_end = true;
            return Ok(None);
        }
        let head = self.buffer.get(..read).unwrap_or_default();
        let (offset, allowed) = (self.offset, self.packed.unpacked_bytes_max());
        match Frame::read(head, offset, allowed.saturating_add(FRAME_BYTES)) {
            Ok(frame) => Ok(Some(frame)),
            Err(BadFrame::Cut { needed }) if read == HEAD_BYTES => {
                let (file, at, packed_bytes) = (self.packed.path.clone(), self.at(), self.packed.bytes());
                let length = needed.saturating_sub(FRAME_BYTES);
                Err(TfRecordError::TooLong { file, at, length, packed_bytes, allowed })
            }
            Err(bad) => Err(bad.error(&self.packed.path, self.at(), read as u64)),
        }
    }

    /// Unpacks into a part of the buffer; returns how many bytes there were.
    fn fill(&mut self, range: Range<usize>) -> Result<usize, TfRecordError> {
        let PackedWalk { stream, buffer, .. } = self;
        // `head` opens it.
        let Some(stream) = stream else { return Ok(0) };
        let into = buffer.get_mut(range).unwrap_or_default();
        match stream.fill(into) {
            Ok(filled) => Ok(filled),
            Err(error) => {
                let packed_offset = stream.packed_offset();
                Err(self.fault(&error, packed_offset))
            }
        }
    }

    #[cold]
    fn fault(&self, error: &io::Error, packed_offset: u64) -> TfRecordError {
        // The system's errors have a number; the decompressor's have none.
        if error.raw_os_error().is_some() {
            return self.failed(error);
        }
        TfRecordError::Packed {
            file: self.packed.path.clone(),
            at: self.at(),
            compression: self.packed.compression,
            packed_offset,
            message: error.to_string(),
        }
    }

    fn cut(&self, frame: Frame, filled: usize) -> TfRecordError {
        let left = (filled as u64).saturating_add(HEAD_BYTES as u64);
        let needed = frame.end().saturating_sub(frame.offset);
        TfRecordError::Cut { file: self.packed.path.clone(), at: self.at(), needed, left }
    }

    fn failed(&self, error: &io::Error) -> TfRecordError {
        TfRecordError::io(&self.packed.path, "read the file", error)
    }

    fn at(&self) -> RecordAt {
        RecordAt { record: Some(self.position), offset: self.offset, is_unpacked: true }
    }
}
