//! How a record is framed.
//!
//! ```text
//! length: 8 bytes, little-endian | masked crc32c of these 8 bytes: 4
//! data: `length` bytes           | masked crc32c of the data: 4
//! ```

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;
use std::ops::Range;
use std::path::Path;

use percolator_files::checksum::masked_crc32c;

use super::error::{RecordAt, TfRecordError};

/// The bytes before a record's data: its length, and the checksum of that.
pub(crate) const HEAD_BYTES: usize = LENGTH_BYTES + CHECKSUM_BYTES;
/// The bytes after a record's data: its checksum.
pub(super) const FOOT_BYTES: usize = CHECKSUM_BYTES;

/// What a record takes besides its data.
pub(super) const BOTH_BYTES: u64 = (HEAD_BYTES + FOOT_BYTES) as u64;

/// The longest data of a record, as in an LMDB or a LevelDB. A file with holes may be longer than its disk,
/// so it proves little that a file is long enough for a record.
pub(super) const DATA_BYTES_MAX: u64 = u32::MAX as u64;

const LENGTH_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 4;

/// A record's head whose checksum is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WrongHead {
    /// The length that it states.
    pub(super) length: u64,
    /// The checksum of that length.
    pub(super) found: u32,
    /// The checksum that the head has.
    pub(super) stored: u32,
}

/// The bytes of a record in its file: head, data and foot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Where its head starts.
    pub(super) offset: u64,
    /// The length of its data.
    pub(super) length: u64,
}

impl Frame {
    /// Reads a record's head, of which there must be at least one byte. `left` is the number of bytes from
    /// there to the end of the file.
    #[inline]
    pub(super) fn read(head: &[u8], offset: u64, left: u64) -> Result<Frame, BadFrame> {
        let Some(head) = head.first_chunk() else { return Err(BadFrame::Cut { needed: HEAD_BYTES as u64 }) };
        let length = length_in(head).map_err(BadFrame::Head)?;
        match left.checked_sub(BOTH_BYTES) {
            Some(room) if length <= room.min(DATA_BYTES_MAX) => Ok(Frame { offset, length }),
            Some(room) if length <= room => Err(BadFrame::TooLarge { length }),
            _ => Err(BadFrame::Cut { needed: length.saturating_add(BOTH_BYTES) }),
        }
    }

    /// Where the next record starts.
    #[inline]
    pub(super) fn end(self) -> u64 {
        self.offset.saturating_add(BOTH_BYTES).saturating_add(self.length)
    }
}

/// Why there is no valid record where one should start.
#[derive(Clone, Copy, Debug)]
pub(super) enum BadFrame {
    Head(WrongHead),
    Cut { needed: u64 },
    TooLarge { length: u64 },
}

impl BadFrame {
    pub(super) fn error(self, file: &Path, at: RecordAt, left: u64) -> TfRecordError {
        let file = file.to_owned();
        match self {
            BadFrame::Head(WrongHead { length, found, stored }) => {
                TfRecordError::Length { file, at, length, found, stored }
            }
            BadFrame::Cut { needed } => TfRecordError::Cut { file, at, needed, left },
            BadFrame::TooLarge { length } => {
                TfRecordError::TooLarge { file, at, length, allowed: DATA_BYTES_MAX }
            }
        }
    }
}

/// Why [`read_frame`] has no record.
#[derive(Debug)]
pub(crate) enum FrameFault {
    /// The part ends inside the record.
    Cut,
    Damaged(&'static str),
    Io(io::Error),
}

/// Reads the record at the start of a part of a file into `data`; returns where it ends. `read` reads the
/// file's bytes from an offset on.
pub(crate) fn read_frame(
    part: Range<u64>,
    data: &mut Vec<u8>,
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
) -> Result<u64, FrameFault> {
    let mut head = [0; HEAD_BYTES];
    let left = part.end.saturating_sub(part.start);
    if left < HEAD_BYTES as u64 {
        return Err(FrameFault::Cut);
    }
    read(&mut head, part.start).map_err(FrameFault::Io)?;
    let frame = Frame::read(&head, part.start, left).map_err(|fault| match fault {
        BadFrame::Head(_) => FrameFault::Damaged("has a length with a wrong checksum"),
        BadFrame::TooLarge { .. } => FrameFault::Damaged("is longer than a record may be"),
        BadFrame::Cut { .. } => FrameFault::Cut,
    })?;
    let length = usize::try_from(frame.length).map_err(|_| FrameFault::Cut)?;
    data.clear();
    data.try_reserve(length).map_err(|_| FrameFault::Io(io::ErrorKind::OutOfMemory.into()))?;
    data.resize(length, 0);
    let start = part.start.saturating_add(HEAD_BYTES as u64);
    read(data, start).map_err(FrameFault::Io)?;
    let mut foot = [0; FOOT_BYTES];
    read(&mut foot, start.saturating_add(frame.length)).map_err(FrameFault::Io)?;
    match checksum_of(data) == u32::from_le_bytes(foot) {
        true => Ok(frame.end()),
        false => Err(FrameFault::Damaged("has data with a wrong checksum")),
    }
}

/// Builds the head of a record of this many bytes.
pub(super) fn head_of(bytes: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    let length = bytes.to_le_bytes();
    let checksum = checksum_of(&length).to_le_bytes();
    for (to, from) in head.iter_mut().zip(length.into_iter().chain(checksum)) {
        *to = from;
    }
    head
}

/// Reads the length in a head, after verifying its checksum.
#[inline]
pub(super) fn length_in(head: &[u8; HEAD_BYTES]) -> Result<u64, WrongHead> {
    let [l0, l1, l2, l3, l4, l5, l6, l7, checksum @ ..] = *head;
    let length = [l0, l1, l2, l3, l4, l5, l6, l7];
    let (found, stored) = (checksum_of(&length), u32::from_le_bytes(checksum));
    let length = u64::from_le_bytes(length);
    if found == stored { Ok(length) } else { Err(WrongHead { length, found, stored }) }
}

/// The checksum that follows a record with this data.
#[inline]
pub(super) fn checksum_of(data: &[u8]) -> u32 {
    masked_crc32c(data, &[])
}
