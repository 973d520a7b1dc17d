//! How a record is framed: read, and written.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io::{self, Write};
use std::ops::Range;
use std::path::Path;

use percolator_files::checksum::{Crc32c, masked_crc32c};

use crate::error::{RecordAt, TfRecordError};

/// The bytes before a record's data: its length, and the checksum of that.
pub const HEAD_BYTES: usize = LENGTH_BYTES + CHECKSUM_BYTES;

/// The bytes after a record's data: its checksum.
pub const FOOT_BYTES: usize = CHECKSUM_BYTES;

/// The bytes that a record takes besides its data.
pub const FRAME_BYTES: u64 = (HEAD_BYTES + FOOT_BYTES) as u64;

/// The longest data of a record, as in an LMDB or a LevelDB. A file with holes may be longer than its disk,
/// so it proves little that a file is long enough for a record.
pub(crate) const DATA_BYTES_MAX: u64 = u32::MAX as u64;

const LENGTH_BYTES: usize = 8;
const CHECKSUM_BYTES: usize = 4;

/// A record's head whose checksum is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WrongHead {
    /// The length that it states.
    pub(crate) length: u64,
    /// The checksum of that length.
    pub(crate) found: u32,
    /// The checksum that the head has.
    pub(crate) stored: u32,
}

/// The place of a record in its file: head, data and foot. In a compressed file, it counts unpacked bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The byte where its head starts.
    pub offset: u64,
    /// The length of its data.
    pub length: u64,
}

impl Frame {
    /// Reads a record's head, of which there must be at least one byte. `left` is the number of bytes from
    /// there to the end of the file.
    #[inline]
    pub(crate) fn read(head: &[u8], offset: u64, left: u64) -> Result<Frame, BadFrame> {
        let Some(head) = head.first_chunk() else { return Err(BadFrame::Cut { needed: HEAD_BYTES as u64 }) };
        let length = length_in(head).map_err(BadFrame::Head)?;
        match left.checked_sub(FRAME_BYTES) {
            Some(room) if length <= room.min(DATA_BYTES_MAX) => Ok(Frame { offset, length }),
            Some(room) if length <= room => Err(BadFrame::TooLarge { length }),
            _ => Err(BadFrame::Cut { needed: length.saturating_add(FRAME_BYTES) }),
        }
    }

    /// Returns the byte where the next record starts.
    #[inline]
    #[must_use]
    pub fn end(self) -> u64 {
        self.offset.saturating_add(FRAME_BYTES).saturating_add(self.length)
    }
}

/// Why there is no valid record where one should start.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BadFrame {
    Head(WrongHead),
    Cut { needed: u64 },
    TooLarge { length: u64 },
}

impl BadFrame {
    pub(crate) fn error(self, file: &Path, at: RecordAt, left: u64) -> TfRecordError {
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
pub enum FrameFault {
    /// The part ends inside the record.
    Cut,
    /// The record is damaged: what is wrong, as the end of a sentence about it.
    Damaged(&'static str),
    /// The file cannot be read.
    Io(io::Error),
}

/// Reads the record at the start of a part of a file into `data`, and verifies it; returns where it ends.
/// `read` reads the file's bytes from an offset on.
///
/// # Errors
///
/// [`FrameFault`] if there is no whole record.
pub fn read_frame(
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
pub(crate) fn head_of(bytes: u64) -> [u8; HEAD_BYTES] {
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
pub(crate) fn length_in(head: &[u8; HEAD_BYTES]) -> Result<u64, WrongHead> {
    let [l0, l1, l2, l3, l4, l5, l6, l7, checksum @ ..] = *head;
    let length = [l0, l1, l2, l3, l4, l5, l6, l7];
    let (found, stored) = (checksum_of(&length), u32::from_le_bytes(checksum));
    let length = u64::from_le_bytes(length);
    if found == stored { Ok(length) } else { Err(WrongHead { length, found, stored }) }
}

/// The checksum that follows a record with this data.
#[inline]
pub(crate) fn checksum_of(data: &[u8]) -> u32 {
    masked_crc32c(data, &[])
}

/// Writes a record, framed as in a TFRecord file. A file of such records and nothing else is a plain TFRecord
/// file, which may grow by more.
///
/// # Errors
///
/// [`io::Error`] if it cannot be written, or is longer than 4 GiB - 1 and could not be read.
pub fn write_record(mut out: impl Write, record: &[u8]) -> io::Result<()> {
    let (head, foot) = frame_around(&[record])?;
    out.write_all(&head)?;
    out.write_all(record)?;
    out.write_all(&foot)
}

/// Returns what comes before and after a record whose data are these pieces, one after the other.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] if they are longer than 4 GiB - 1 together, and could not be read.
pub fn frame_around(pieces: &[&[u8]]) -> io::Result<([u8; HEAD_BYTES], [u8; FOOT_BYTES])> {
    let bytes = pieces.iter().fold(0_u64, |bytes, piece| bytes.saturating_add(piece.len() as u64));
    if bytes > DATA_BYTES_MAX {
        let message = format!("the record has {bytes} bytes, and may have {DATA_BYTES_MAX}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    let mut checksum = Crc32c::new();
    pieces.iter().for_each(|piece| checksum.update(piece));
    Ok((head_of(bytes), checksum.masked().to_le_bytes()))
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use super::*;

    /// TensorFlow's masked checksum, by another library.
    fn masked(bytes: &[u8]) -> [u8; 4] {
        crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
    }

    fn read(file: &[u8], start: u64, data: &mut Vec<u8>) -> Result<u64, FrameFault> {
        let at = |into: &mut [u8], offset: u64| {
            let start = usize::try_from(offset).unwrap();
            into.copy_from_slice(&file[start..start + into.len()]);
            Ok(())
        };
        read_frame(start..file.len() as u64, data, at)
    }

    #[test]
    fn a_record_is_framed_as_by_another_library_and_read_back() {
        let records: [&[u8]; 3] = [b"", b"one", &[7; 300]];
        let (mut file, mut due) = (Vec::new(), Vec::new());
        for record in records {
            write_record(&mut file, record).unwrap();
            let length = (record.len() as u64).to_le_bytes();
            due.extend([&length[..], &masked(&length), record, &masked(record)].concat());
            let (front, rest) = record.split_at(record.len() / 3);
            assert_eq!(frame_around(&[front, rest]).unwrap(), frame_around(&[record]).unwrap());
        }
        assert_eq!(file, due);
        let (mut at, mut data) = (0, Vec::new());
        for record in records {
            let end = read(&file, at, &mut data).unwrap();
            assert_eq!((&*data, end - at), (record, FRAME_BYTES + record.len() as u64));
            at = end;
        }
        assert!(matches!(read(&file, at, &mut data), Err(FrameFault::Cut)), "there is no more");
    }

    #[test]
    fn a_frame_that_is_cut_or_has_another_byte_is_none() {
        let mut file = Vec::new();
        write_record(&mut file, b"data").unwrap();
        for end in 0..file.len() {
            assert!(matches!(read(&file[..end], 0, &mut Vec::new()), Err(FrameFault::Cut)), "{end}");
        }
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 1 << (at % 8);
            let fault = read(&damaged, 0, &mut Vec::new()).unwrap_err();
            assert!(matches!(fault, FrameFault::Damaged(_)), "byte {at}: {fault:?}");
        }
        let forged = [&head_of(DATA_BYTES_MAX + 1)[..], &[0; 40]].concat();
        assert!(matches!(read(&forged, 0, &mut Vec::new()), Err(FrameFault::Cut)));
        let wide = read_frame(0..u64::MAX, &mut Vec::new(), |into, _| {
            into.copy_from_slice(&forged[..into.len()]);
            Ok(())
        });
        assert!(matches!(wide, Err(FrameFault::Damaged("is longer than a record may be"))), "{wide:?}");
    }
}
