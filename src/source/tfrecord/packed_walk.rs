//! Walks over the records of a compressed file, which are unpacked in order.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;
use std::mem::take;
use std::ops::Range;
use std::rc::Rc;

use super::buffer::{PIECE_BYTES, grow, room_for};
use super::error::{RecordAt, TfRecordError};
use super::frame::{BOTH_BYTES, BadFrame, FOOT_BYTES, Frame, HEAD_BYTES, checksum_of};
use super::key::KEY_BYTES;
use super::packed::{Packed, Stream};
use crate::source::{Buffers, SourceError, SpareBuffers};

/// How much is unpacked at a time on the way back to a place.
const RETURN_BYTES: usize = 64 << 10;

/// A place between two records of a compressed file.
#[derive(Debug)]
pub(super) struct PackedWalk {
    packed: Packed,
    /// `None` before the first record, at the end, and if reading has left the file.
    stream: Option<Stream>,
    is_at_end: bool,
    /// Where the next record starts, in unpacked bytes.
    pub(super) offset: u64,
    /// The next record's position.
    pub(super) position: u64,
    /// Room for a key, then the last record's data and foot.
    buffer: Vec<u8>,
    /// Where the buffer comes from and goes to, if several cursors share it.
    spare: Option<Rc<SpareBuffers>>,
    /// Why there is no next record: after damage, nothing says where one starts.
    error: Option<SourceError>,
}

impl PackedWalk {
    pub(super) fn new(packed: &Packed) -> Self {
        PackedWalk {
            packed: packed.clone(),
            stream: None,
            is_at_end: false,
            offset: 0,
            position: 0,
            buffer: Vec::new(),
            spare: None,
            error: None,
        }
    }

    /// Where all records start, by a walk over the whole file.
    pub(super) fn scan(packed: &Packed) -> Result<Vec<u64>, SourceError> {
        let mut walk = PackedWalk::new(packed);
        let mut offsets = Vec::new();
        while let Some(frame) = walk.skip()? {
            offsets.push(frame.offset);
        }
        Ok(offsets)
    }

    /// Goes back before the first record.
    pub(super) fn rewind(&mut self) {
        (self.stream, self.is_at_end, self.offset, self.position) = (None, false, 0, 0);
        self.error = None;
    }

    /// Reads the next record and verifies it; `None` at the end. [`bytes`](Self::bytes) has its data. As in a
    /// plain file, a record with damaged data is passed, and any other error is returned again.
    pub(super) fn step(&mut self) -> Result<Option<Frame>, SourceError> {
        self.unless_failed(Self::read)
    }

    /// Passes the next record without keeping its data, which are not verified; `None` at the end.
    pub(super) fn skip(&mut self) -> Result<Option<Frame>, SourceError> {
        self.unless_failed(Self::pass_over)
    }

    fn unless_failed(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<Option<Frame>, SourceError>,
    ) -> Result<Option<Frame>, SourceError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let found = step(self);
        if let Err(error) = &found
            && !matches!(error, SourceError::TfRecord(TfRecordError::Data { .. }))
        {
            self.error = Some(error.clone());
        }
        found
    }

    fn read(&mut self) -> Result<Option<Frame>, SourceError> {
        let Some(frame) = self.head()? else { return Ok(None) };
        let whole = frame.length.saturating_add(FOOT_BYTES as u64);
        let whole = usize::try_from(whole).map_err(|_| self.failed(&io::ErrorKind::OutOfMemory.into()))?;
        let mut filled = 0_usize;
        while filled < whole {
            let piece = PIECE_BYTES.min(whole.saturating_sub(filled));
            let (start, end) =
                (KEY_BYTES.saturating_add(filled), KEY_BYTES.saturating_add(filled).saturating_add(piece));
            let grown = grow(&mut self.buffer, end, KEY_BYTES.saturating_add(whole));
            grown.map_err(|error| self.failed(&error))?;
            let read = self.fill(start..end)?;
            filled = filled.saturating_add(read);
            if read < piece {
                return Err(self.cut(frame, filled));
            }
        }
        let bytes = self.buffer.get(KEY_BYTES..KEY_BYTES.saturating_add(whole)).unwrap_or_default();
        let (data, foot) = bytes.split_last_chunk::<FOOT_BYTES>().unwrap_or((&[], &[0; FOOT_BYTES]));
        let (found, stored) = (checksum_of(data), u32::from_le_bytes(*foot));
        if found != stored {
            let (file, at, bytes) = (self.packed.path.clone(), self.at(), frame.length);
            self.pass(frame);
            return Err(TfRecordError::Data { file, at, bytes, found, stored }.into());
        }
        self.pass(frame);
        Ok(Some(frame))
    }

    fn pass_over(&mut self) -> Result<Option<Frame>, SourceError> {
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

    /// Where the data of the last record that was read are in the buffer, if they have this length.
    pub(super) fn place(&self, length: u64) -> Range<usize> {
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        KEY_BYTES..KEY_BYTES.saturating_add(bytes)
    }

    pub(super) fn bytes(&self, place: Range<usize>) -> &[u8] {
        self.buffer.get(place).unwrap_or_default()
    }

    /// The buffer, for a caller that exchanges it for another.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Shares the buffer with other walks.
    pub(super) fn share_buffers(&mut self, spare: &Rc<SpareBuffers>) {
        self.spare = Some(spare.clone());
    }

    /// The memory of the buffer and the stream, if values have this length.
    pub(super) fn held_bytes(&self, value_bytes: usize) -> usize {
        let buffer = self.buffer.capacity().max(room_for(value_bytes)).max(RETURN_BYTES);
        buffer.saturating_add(Stream::HELD_BYTES)
    }

    /// Closes the file, and puts the buffer where other walks find it. If there are more records, the next
    /// step opens the file again.
    pub(super) fn close(&mut self) {
        self.stream = None;
        if let Some(spare) = &self.spare {
            spare.put(Buffers { window: Vec::new(), value: take(&mut self.buffer) });
        }
    }

    /// Opens the file, and unpacks it up to the next record.
    fn open(&mut self) -> Result<(), SourceError> {
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
                return Err(TfRecordError::Changed { file, was, found }.into());
            }
        }
        Ok(())
    }

    fn pass(&mut self, frame: Frame) {
        self.offset = frame.end();
        self.position = self.position.saturating_add(1);
    }

    /// Unpacks the next record's head.
    fn head(&mut self) -> Result<Option<Frame>, SourceError> {
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
        match Frame::read(head, offset, allowed.saturating_add(BOTH_BYTES)) {
            Ok(frame) => Ok(Some(frame)),
            Err(BadFrame::Cut { needed }) if read == HEAD_BYTES => {
                let (file, at, packed_bytes) = (self.packed.path.clone(), self.at(), self.packed.bytes());
                let length = needed.saturating_sub(BOTH_BYTES);
                Err(TfRecordError::TooLong { file, at, length, packed_bytes, allowed }.into())
            }
            Err(bad) => Err(bad.error(&self.packed.path, self.at(), read as u64).into()),
        }
    }

    /// Unpacks into a part of the buffer; returns how many bytes there were.
    fn fill(&mut self, range: Range<usize>) -> Result<usize, SourceError> {
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
    fn fault(&self, error: &io::Error, packed_offset: u64) -> SourceError {
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
        .into()
    }

    fn cut(&self, frame: Frame, filled: usize) -> SourceError {
        let left = (filled as u64).saturating_add(HEAD_BYTES as u64);
        let needed = frame.end().saturating_sub(frame.offset);
        TfRecordError::Cut { file: self.packed.path.clone(), at: self.at(), needed, left }.into()
    }

    fn failed(&self, error: &io::Error) -> SourceError {
        SourceError::io(&self.packed.path, "read the file", error)
    }

    fn at(&self) -> RecordAt {
        RecordAt { record: Some(self.position), offset: self.offset, is_unpacked: true }
    }
}
