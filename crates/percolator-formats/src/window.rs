//! The bytes of a file, plain or unpacked, of which the next ones are at hand.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;
use std::sync::Arc;

use crate::unpack::{Packing, RECORD_MAX, Unpacked};
use crate::{DataFile, FormatError, Lent};

/// How many bytes are read at a time.
const STEP: usize = 1 << 16;

/// A file's bytes from a position on, as far as they are at hand. A plain file that is mapped has all of
/// them.
#[derive(Debug)]
pub(crate) struct Window {
    file: Arc<DataFile>,
    packing: Option<Packing>,
    unpacked: Option<Unpacked>,
    /// What was read, of which the window is the part from `start` on.
    buffer: Vec<u8>,
    start: usize,
    /// What was read last, on its way to the buffer.
    piece: Vec<u8>,
    /// Where the window begins, in the plain or unpacked bytes.
    at: u64,
    /// How many bytes the next reading asks for.
    ahead: usize,
}

impl Window {
    pub(crate) fn new(file: &Arc<DataFile>, packing: Option<Packing>) -> Result<Self, FormatError> {
        Ok(Window {
            file: Arc::clone(file),
            packing,
            unpacked: packing.map(|packing| Unpacked::new(file, packing)).transpose()?,
            buffer: Vec::new(),
            start: 0,
            piece: Vec::new(),
            at: 0,
            ahead: STEP,
        })
    }

    /// Where the window begins, in the plain or unpacked bytes.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The bytes that are at hand.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self.map() {
            Some(map) => usize::try_from(self.at)
                .ok()
                .and_then(|at| map.as_ref().as_ref().get(at..))
                .unwrap_or_default(),
            None => self.buffer.get(self.start..).unwrap_or_default(),
        }
    }

    /// Lends a range of the window that is at hand.
    pub(crate) fn lend(&self, range: Range<usize>) -> Lent<'_> {
        match self.map() {
            Some(map) => {
                // The file was mapped, so its positions are addresses.
                let at = usize::try_from(self.at).unwrap_or(usize::MAX);
                let ends = [range.start, range.end]
                    .map(|end| at.saturating_add(end).min(map.as_ref().as_ref().len()));
                let [start, end] = ends;
                Lent::Mapped(map, start..end)
            }
            None => Lent::Buffer(self.bytes().get(range).unwrap_or_default()),
        }
    }

    fn map(&self) -> Option<&Arc<crate::FileMap>> {
        self.file.map().filter(|_| self.packing.is_none())
    }

    /// Reads on; false if the window reaches the end of the bytes.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if the file cannot be read or unpacked, or more is wanted at once than is unpacked.
    pub(crate) fn more(&mut self) -> Result<bool, FormatError> {
        if self.map().is_some() {
            return Ok(false);
        }
        let held = self.bytes().len();
        // The window moves to the front once it is at most half of the buffer: each byte moves once or twice.
        if self.start >= held {
            self.buffer.drain(..self.start);
            self.start = 0;
        }
        let wanted = self.ahead.max(held);
        self.ahead = STEP;
        match &mut self.unpacked {
            Some(unpacked) => {
                if held >= RECORD_MAX {
                    let what =
                        format!("a record has more than {RECORD_MAX} bytes; unpack the file, and read that");
                    return Err(FormatError::refused(self.file.path(), what).byte(self.at));
                }
                let before = self.buffer.len();
                let result = unpacked.append(&mut self.buffer, wanted);
                // What precedes an error is whole. The next reading returns the error again.
                if self.buffer.len() > before { Ok(true) } else { result.map(|bytes| bytes > 0) }
            }
            None => {
                let from = self.at.saturating_add(held as u64);
                let end = from.saturating_add(wanted as u64).min(self.file.bytes());
                if from >= end {
                    return Ok(false);
                }
                let piece = self.file.read(from..end, &mut self.piece)?;
                self.buffer.extend_from_slice(piece);
                Ok(true)
            }
        }
    }

    /// Passes over bytes that are at hand.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.at = self.at.saturating_add(bytes as u64);
        self.start = self.start.saturating_add(bytes).min(self.buffer.len());
    }

    /// Passes over bytes, at hand or not; returns how many there were, fewer only at the end.
    ///
    /// # Errors
    ///
    /// As [`more`](Self::more).
    pub(crate) fn pass_over(&mut self, bytes: u64) -> Result<u64, FormatError> {
        let end = self.at.saturating_add(bytes);
        loop {
            let rest = end.saturating_sub(self.at);
            let held = self.bytes().len();
            self.consume(usize::try_from(rest).unwrap_or(usize::MAX).min(held));
            if rest <= held as u64 || !self.more()? {
                return Ok(bytes.saturating_sub(end.saturating_sub(self.at)));
            }
        }
    }

    /// Goes to a position of a plain file, and reads `ahead` bytes there at first; or to the beginning.
    ///
    /// # Errors
    ///
    /// [`FormatError`] if a compressed file cannot be unpacked from the beginning.
    pub(crate) fn seek(&mut self, at: u64, ahead: usize) -> Result<(), FormatError> {
        if let Some(packing) = self.packing {
            self.unpacked = Some(Unpacked::new(&self.file, packing)?);
        }
        self.buffer.clear();
        self.start = 0;
        self.at = if self.packing.is_some() { 0 } else { at };
        self.ahead = ahead.clamp(1, STEP);
        Ok(())
    }
}

/// The line, from 1, in which a byte of a plain file is.
///
/// # Errors
///
/// [`FormatError`] if the file cannot be read.
pub(crate) fn line_at(file: &DataFile, byte: u64) -> Result<u64, FormatError> {
    let (mut at, mut line, mut buffer) = (0_u64, 1_u64, Vec::new());
    let end = byte.min(file.bytes());
    while at < end {
        let next = at.saturating_add(1 << 20).min(end);
        let breaks = memchr::memchr_iter(b'\n', file.read(at..next, &mut buffer)?).count();
        line = line.saturating_add(breaks as u64);
        at = next;
    }
    Ok(line)
}
