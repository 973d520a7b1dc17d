//! Values on pages of their own, in a file that is not mapped: read into a buffer, neighbouring values
//! together.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::io;
use std::ops::Range;

use super::fault::Fault;
use super::page::{HEAD_BYTES, check_overflow};
use super::pages::Pages;

/// Room before a value for its record's key: both go to a run together with the buffer. LMDB's keys have at
/// most 511 bytes, unless it was built otherwise.
const KEY_BYTES: usize = 512;

/// Values of at least this length are read alone, into a buffer that a run can take over.
const LARGE_BYTES: usize = 64 << 10;

/// Smaller values that follow each other in the file are read in windows of this length.
const WINDOW_BYTES: usize = 256 << 10;

/// Reads values.
#[derive(Debug, Default)]
pub(super) struct Values {
    /// Room for a key, then a part of the file.
    buffer: Vec<u8>,
    /// Which part of the file that is.
    part: Range<u64>,
}

/// A value in the buffer.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub(super) range: Range<usize>,
    /// Whether the buffer holds only this value.
    pub(super) is_alone: bool,
}

impl Values {
    /// The memory of the buffer at its full size, if values have this many bytes: the first record may not
    /// have used it yet.
    pub(super) fn held_bytes(&self, value_bytes: usize) -> usize {
        let most = WINDOW_BYTES.max(HEAD_BYTES.saturating_add(value_bytes));
        self.buffer.capacity().max(KEY_BYTES.saturating_add(most))
    }

    /// The bytes of the buffer in this range.
    #[inline]
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        self.buffer.get(range).unwrap_or_default()
    }

    /// The buffer, for a caller that exchanges it for another. Its contents are forgotten.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        self.part = 0..0;
        &mut self.buffer
    }

    /// A value that starts on this page, if it is in the buffer, even if its head is wrong.
    pub(super) fn here(&self, pages: &Pages, page: u64, bytes: usize) -> &[u8] {
        let Ok(start) = pages.start_of(page) else { return &[] };
        let start = start.saturating_add(HEAD_BYTES as u64);
        let end = start.saturating_add(bytes as u64);
        if start < self.part.start || end > self.part.end {
            return &[];
        }
        let from = usize::try_from(start.saturating_sub(self.part.start)).unwrap_or(usize::MAX);
        let from = KEY_BYTES.saturating_add(from);
        self.bytes(from..from.saturating_add(bytes))
    }

    /// Reads the value that starts on this page. The `bool` is true if the file had to be read for it.
    pub(super) fn read(&mut self, pages: &Pages, page: u64, bytes: usize) -> Result<(Read, bool), Fault> {
        let start = pages.start_of(page)?;
        let end = start.saturating_add(HEAD_BYTES as u64).saturating_add(bytes as u64);
        let is_new = start < self.part.start || end > self.part.end;
        if is_new {
            // The value comes soon after the part in the buffer: the cursor moves forward through the file.
            let is_next = (self.part.end..self.part.end.saturating_add(WINDOW_BYTES as u64)).contains(&start)
                || self.part.contains(&start);
            let wanted = if bytes < LARGE_BYTES && is_next { WINDOW_BYTES as u64 } else { 0 };
            if bytes >= LARGE_BYTES {
                // Nothing is allocated because of a node's length alone: the value's own head is checked
                // first.
                let mut head = [0; HEAD_BYTES];
                pages.read_at(&mut head, start)?;
                check_overflow(&head, page, bytes, pages.page_bytes())?;
            }
            let file_end = pages.file_bytes().max(end);
            let window = start..start.saturating_add(wanted).min(file_end).max(end);
            match self.fill(pages, window.clone()) {
                // The unreadable part may be a value after this one.
                Err(_) if window.end > end => self.fill(pages, start..end)?,
                filled => filled?,
            }
        }
        let from = usize::try_from(start.saturating_sub(self.part.start)).unwrap_or(usize::MAX);
        let head = KEY_BYTES.saturating_add(from)..KEY_BYTES.saturating_add(from).saturating_add(HEAD_BYTES);
        check_overflow(self.bytes(head.clone()), page, bytes, pages.page_bytes())?;
        let range = head.end..head.end.saturating_add(bytes);
        Ok((Read { range, is_alone: is_new && bytes >= LARGE_BYTES }, is_new))
    }

    fn fill(&mut self, pages: &Pages, part: Range<u64>) -> Result<(), Fault> {
        // If the read fails, the buffer holds nothing.
        self.part = 0..0;
        let bytes = usize::try_from(part.end.saturating_sub(part.start)).unwrap_or(usize::MAX);
        let end = KEY_BYTES.saturating_add(bytes);
        // The buffer never shrinks: old bytes are overwritten.
        if let Some(more) = end.checked_sub(self.buffer.len()) {
            self.buffer.try_reserve(more).map_err(io::Error::from)?;
            self.buffer.resize(end, 0);
        }
        pages.read_at(self.buffer.get_mut(KEY_BYTES..end).unwrap_or_default(), part.start)?;
        self.part = part;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "a test may panic")]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;

    use super::*;
    use percolator_files::Reading;

    /// Neighbouring values are read together. If one cannot be read, those before it are not lost.
    #[test]
    #[cfg_attr(miri, ignore = "needs the system's files")]
    fn a_value_that_can_be_read_by_itself_is_read() {
        const PAGE_BYTES: usize = 4096;
        const VALUE_BYTES: usize = PAGE_BYTES - HEAD_BYTES;

        let mut file = tempfile::tempfile().unwrap();
        for page in 0..20_u8 {
            // Its number, nothing, that it is of a value, how many pages that has.
            let head = [&u64::from(page).to_le_bytes()[..], &[0, 0, 4, 0], &1_u32.to_le_bytes()].concat();
            file.write_all(&head).unwrap();
            file.write_all(&vec![page; VALUE_BYTES]).unwrap();
        }
        let bytes = file.metadata().unwrap().len();
        let pages =
            Pages::open(Arc::new(file.try_clone().unwrap()), bytes, PAGE_BYTES, Reading::Read).unwrap();
        file.set_len(bytes / 2).unwrap();
        let mut values = Values::default();
        for page in 2..20_u8 {
            let read = values.read(&pages, page.into(), VALUE_BYTES);
            assert_eq!(read.is_ok(), page < 10, "page {page}");
            if let Ok((read, _)) = read {
                assert_eq!(values.bytes(read.range), [page; VALUE_BYTES]);
            }
        }
    }
}
