//! A chunk whose items are compressed in groups.
//!
//! ```text
//! LDFZ01\0\0 | version: u16 | flags: u16 | items, items a frame, frames: u32 each
//! offsets of the items, and the end, in what all frames unpack to: u32 each
//! frames: first item, items: u32 | offset in the file: u64 | packed bytes, unpacked bytes: u32
//! the frames
//! ```

use std::ops::Range;

use crate::unpack::RECORD_MAX;
use crate::{DataFile, FormatError};

pub(super) const MAGIC: &[u8; 8] = b"LDFZ01\0\0";

const HEAD: u64 = 24;
const FRAME: u64 = 24;
const OFFSET: u64 = 4;

/// The frames of a chunk, which hold all of its items.
#[derive(Debug)]
pub(super) struct FrameTable {
    frames: Vec<Frame>,
}

/// A frame of zstd.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    first: u64,
    /// Where it lies in the file.
    pub(super) packed: Range<u64>,
    /// The bytes that it unpacks to.
    pub(super) bytes: usize,
    /// Where they begin in what all frames unpack to.
    start: u64,
}

impl FrameTable {
    /// Reads the tables, and compares them with each other and the file.
    pub(super) fn read(file: &DataFile, items: u64) -> Result<Self, FormatError> {
        let damaged = |at: u64, what: String| Err(FormatError::damaged(file.path(), what).byte(at));
        let mut buffer = Vec::new();
        let head = Fields(file.read(0..HEAD, &mut buffer)?);
        let (version, flags) = (head.u16(8), head.u16(10));
        if (version, flags) != (1, 0) {
            let what = format!(
                "its frames have version {version} and flags {flags}; version 1 without flags is read"
            );
            return Err(FormatError::refused(file.path(), what));
        }
        let (stated, count) = (u64::from(head.u32(12)), u64::from(head.u32(20)));
        if stated != items {
            return damaged(12, format!("it has {stated} items, and the index says that it has {items}"));
        }
        let offsets_end = HEAD.saturating_add(OFFSET.saturating_mul(items.saturating_add(1)));
        let table_end = offsets_end.saturating_add(FRAME.saturating_mul(count));
        let table = Fields(file.read(offsets_end..table_end, &mut buffer)?).0.chunks_exact(24);
        let (mut frames, mut next, mut start) = (Vec::new(), 0_u64, 0_u64);
        for (number, frame) in (0_u64..).zip(table.map(Fields)) {
            let at = offsets_end.saturating_add(FRAME.saturating_mul(number));
            let (first, of_frame) = (u64::from(frame.u32(0)), u64::from(frame.u32(4)));
            let (offset, packed) = (frame.u64(8), u64::from(frame.u32(16)));
            let end = offset.saturating_add(packed);
            if first != next {
                return damaged(at, format!("frame {number} begins with item {first}, and {next} is due"));
            }
            if offset < table_end || end > file.bytes() {
                let what = format!(
                    "frame {number} lies from byte {offset} to {end}, and frames from {table_end} to {}: \
                     it is cut or damaged; copy it again from where it came",
                    file.bytes()
                );
                return damaged(at, what);
            }
            let bytes = usize::try_from(frame.u32(20)).unwrap_or(usize::MAX);
            if bytes > RECORD_MAX {
                let what = format!("frame {number} unpacks to {bytes} bytes, and {RECORD_MAX} are the limit");
                return Err(FormatError::refused(file.path(), what).byte(at));
            }
            frames.push(Frame { first, packed: offset..end, bytes, start });
            next = first.saturating_add(of_frame);
            start = start.saturating_add(bytes as u64);
        }
        if next != items {
            return damaged(offsets_end, format!("its frames have {next} items, and the chunk has {items}"));
        }
        Ok(FrameTable { frames })
    }

    /// The number of an item's frame, and the frame.
    pub(super) fn of(&self, item: u64) -> Option<(usize, &Frame)> {
        let number = self.frames.partition_point(|frame| frame.first <= item).checked_sub(1)?;
        Some((number, self.frames.get(number)?))
    }

    /// Where an item lies in what its frame unpacks to.
    pub(super) fn range(
        &self,
        file: &DataFile,
        item: u64,
        frame: &Frame,
        buffer: &mut Vec<u8>,
    ) -> Result<Range<usize>, FormatError> {
        let at = HEAD.saturating_add(OFFSET.saturating_mul(item));
        let limits = Fields(file.read(at..at.saturating_add(2 * OFFSET), buffer)?);
        let within =
            |offset: u32| u64::from(offset).checked_sub(frame.start).and_then(|at| usize::try_from(at).ok());
        match (within(limits.u32(0)), within(limits.u32(4))) {
            (Some(start), Some(end)) if start <= end && end <= frame.bytes => Ok(start..end),
            _ => {
                let what = format!(
                    "the item lies from byte {} to {} of what the frames unpack to, and its frame from {} on \
                     has {} bytes",
                    limits.u32(0),
                    limits.u32(4),
                    frame.start,
                    frame.bytes
                );
                Err(FormatError::damaged(file.path(), what).record(item).byte(at))
            }
        }
    }
}

/// Numbers at fixed places, which are there.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn at<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.at(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.at(at))
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.at(at))
    }
}
