//! One block of a table: located, verified and unpacked; and a cursor over its entries.

use std::ops::Range;

use percolator_files::checksum::AHEAD_BYTES;

use super::deferred::{DeferredChecksum, Unverified, Verify};
use super::error::TableError;
use super::footer::BlockHandle;
use super::shelf::{NoShelf, Shelf};
use super::unpack::{SNAPPY, Trailer, UNCOMPRESSED, unpack};
use crate::coding::{fixed32, varint};

/// After every block: its type, and the masked crc32c of the block and that type.
pub(crate) const TRAILER_BYTES: usize = 5;

const COUNT_BYTES: usize = size_of::<u32>();

/// Reads the entries of a block. It does not borrow the file: the caller passes it to every call. Buffers are
/// kept from block to block.
///
/// An entry is the number of bytes its key shares with the key before it, the lengths of the rest of the key
/// and of the value (varints), that rest, and the value. After the entries come the offsets of those that
/// share nothing (the restart points), and their count.
#[derive(Debug)]
pub(crate) struct BlockCursor {
    /// The longest key that is assembled.
    key_bytes_max: usize,
    place: Place,
    /// `Some` as long as the block is unverified.
    unverified: Option<Unverified>,
    /// The bytes of a compressed block, at `place`; the buffer may also have those of blocks after it.
    unpacked: Vec<u8>,
    /// Where in the file the block starts.
    offset: usize,
    /// Where in the block the entries end and the restart points begin.
    entries: usize,
    /// The number of restart points.
    restarts: usize,
    /// Where in the block the current entry starts.
    current: usize,
    /// Where in the block the next entry starts.
    next: usize,
    /// The key of the current entry.
    key: Vec<u8>,
    /// Where in the block its value is.
    value: Range<usize>,
}

/// Where the uncompressed bytes of a block are.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    InFile(Range<usize>),
    /// In `unpacked`.
    Unpacked(Range<usize>),
}

impl Default for Place {
    fn default() -> Self {
        Place::Unpacked(0..0)
    }
}

/// Where the value of an entry is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// In these bytes of the file, for as long as the file is there.
    InFile(Range<usize>),
    /// In the cursor's own buffer, until the cursor moves.
    Unpacked(&'a [u8]),
}

impl BlockCursor {
    /// Returns a cursor over nothing. It refuses keys longer than `key_bytes_max`.
    pub(crate) fn new(key_bytes_max: usize) -> Self {
        BlockCursor {
            key_bytes_max,
            place: Place::default(),
            unverified: None,
            unpacked: Vec::new(),
            offset: 0,
            entries: 0,
            restarts: 0,
            current: 0,
            next: 0,
            key: Vec::new(),
            value: 0..0,
        }
    }

    /// Forgets the block; the cursor is then at its end.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.place = Place::default();
        self.unverified = None;
        (self.entries, self.restarts) = (0, 0);
        self.value = 0..0;
        self.rewind();
    }

    /// Moves before the first entry of the block at `handle`, after verifying its checksum or deferring that,
    /// as `verify` allows. The block must be in the bytes `allowed` of the file. Returns the offset where its
    /// trailer ends.
    pub(crate) fn load(
        &mut self,
        file: &[u8],
        handle: BlockHandle,
        allowed: Range<usize>,
        verify: Verify,
    ) -> Result<usize, TableError> {
        self.load_from(&mut NoShelf, file, handle, allowed, verify)
    }

    /// Does the same as [`load`](Self::load), for a block that `shelf` may have unpacked.
    pub(crate) fn load_from(
        &mut self,
        shelf: &mut impl Shelf,
        file: &[u8],
        handle: BlockHandle,
        allowed: Range<usize>,
        verify: Verify,
    ) -> Result<usize, TableError> {
        self.clear();
        let misplaced = || TableError::Place {
            offset: handle.offset,
            bytes: handle.bytes,
            from: allowed.start,
            to: allowed.end,
        };
        let (block, end) = locate(handle, &allowed).ok_or_else(misplaced)?;
        self.offset = block.start;
        let place = match shelf.take(&block, &mut self.unpacked) {
            Some(unpacked) => Place::Unpacked(unpacked),
            None => {
                let trailer = Trailer::read(file, &block).ok_or_else(misplaced)?;
                self.place(file, block, trailer, verify)?
            }
        };
        shelf.entered(match &place {
            Place::InFile(_) => None,
            Place::Unpacked(unpacked) => Some(unpacked.len()),
        });
        self.find_restarts(file, &place).map_err(|error| self.blame(file, error))?;
        self.place = place;
        Ok(end)
    }

    /// Locates the bytes of a block that has not been unpacked, and unpacks it if it is compressed.
    #[inline]
    fn place(
        &mut self,
        file: &[u8],
        block: Range<usize>,
        trailer: Trailer,
        verify: Verify,
    ) -> Result<Place, TableError> {
        let checksum = DeferredChecksum::new(&block, trailer.stored);
        match (verify, trailer.kind) {
            // Damage to the type byte is found whatever type it now shows: the checksum covers it too.
            (Verify::ByTheUser { block_bytes_min }, UNCOMPRESSED) if block.len() >= block_bytes_min => {
                self.unverified = Some(Unverified::new(checksum));
            }
            // The blocks of a table are stored one after the other, so the next one's bytes are wanted soon.
            _ => checksum.check(file, AHEAD_BYTES)?,
        }
        match trailer.kind {
            UNCOMPRESSED => Ok(Place::InFile(block)),
            SNAPPY => unpack(file, block, &mut self.unpacked).map(|bytes| Place::Unpacked(0..bytes)),
            found => Err(TableError::Compression { offset: block.start, found }),
        }
    }

    /// Verifies the block, unless that is done already.
    #[inline]
    pub(crate) fn verify(&mut self, file: &[u8]) -> Result<(), TableError> {
        if let Some(unverified) = &self.unverified {
            unverified.checksum().check(file, 0)?;
            self.unverified = None;
        }
        Ok(())
    }

    /// Returns the block's deferred checksum, as long as the block is unverified.
    #[inline]
    pub(crate) fn unverified(&self) -> Option<&Unverified> {
        self.unverified.as_ref()
    }

    /// Returns the cause of an error: verifies an unverified block now, for damage to it explains any other
    /// error.
    #[cold]
    pub(crate) fn blame(&self, file: &[u8], error: TableError) -> TableError {
        let damage =
            self.unverified.as_ref().and_then(|unverified| unverified.checksum().check(file, 0).err());
        damage.unwrap_or(error)
    }

    #[inline]
    fn find_restarts(&mut self, file: &[u8], place: &Place) -> Result<(), TableError> {
        let contents = contents(place, &self.unpacked, file);
        let bytes = contents.len();
        let before_count = bytes.checked_sub(COUNT_BYTES);
        let found = before_count.and_then(|at| fixed32(contents, at)).unwrap_or_default();
        let entries = usize::try_from(found)
            .ok()
            // Some writers give an empty block no restart point at all.
            .filter(|&restarts| restarts > 0 || bytes == COUNT_BYTES)
            .and_then(|restarts| before_count?.checked_sub(restarts.checked_mul(COUNT_BYTES)?))
            .ok_or(TableError::Restarts { offset: self.offset, bytes, found })?;
        self.entries = entries;
        self.restarts = usize::try_from(found).unwrap_or_default();
        Ok(())
    }

    /// Moves to the next entry. Past the last one it returns `false`, and the last one stays current.
    #[inline]
    pub(crate) fn advance(&mut self, file: &[u8]) -> Result<bool, TableError> {
        let contents = contents(&self.place, &self.unpacked, file);
        let rest = contents.get(self.next..self.entries).unwrap_or_default();
        if rest.is_empty() {
            return Ok(false);
        }
        self.current = self.next;
        let entry = Entry::read(rest).ok_or_else(|| self.damaged("its lengths do not fit in the block"))?;
        if entry.shared > self.key.len() {
            return Err(self.damaged("its key shares more bytes than the key before it has"));
        }
        // Checked before the key is assembled: an entry of a few bytes can share a key of any length.
        let key_bytes = entry.shared.saturating_add(entry.unshared.len());
        if key_bytes > self.key_bytes_max {
            return Err(self.key_too_long(key_bytes));
        }
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(entry.unshared);
        let end = self.entries.saturating_sub(entry.rest);
        self.value = end.saturating_sub(entry.value)..end;
        self.next = end;
        Ok(true)
    }

    /// Moves to the first entry whose key is not `before` the target; returns `false` if all are. Keys for
    /// which `before` holds must precede those for which it does not.
    pub(crate) fn seek(&mut self, file: &[u8], before: &impl Fn(&[u8]) -> bool) -> Result<bool, TableError> {
        // Find the last restart point before the target, or the first one.
        let (mut low, mut high) = (0, self.restarts);
        while high.saturating_sub(low) > 1 {
            let middle = usize::midpoint(low, high);
            self.restart(file, middle)?;
            if self.advance(file)? && before(&self.key) {
                low = middle;
            } else {
                high = middle;
            }
        }
        self.restart(file, low)?;
        while self.advance(file)? {
            if !before(&self.key) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where in the block the current entry starts.
    #[inline]
    pub(crate) fn current(&self) -> usize {
        self.current
    }

    /// Whether the current entry is the only one of its block.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.current == 0 && self.next >= self.entries
    }

    /// Where in the block the entry after the current one starts.
    #[inline]
    pub(crate) fn next(&self) -> usize {
        self.next
    }

    /// Returns the value of the entry that starts at `start`, and where the entry after it starts. Returns
    /// `None` past the last entry, and if the entry is malformed: a cursor that gets there reports the error.
    #[inline]
    pub(crate) fn value_at<'a>(&'a self, file: &'a [u8], start: usize) -> Option<(&'a [u8], usize)> {
        let contents = contents(&self.place, &self.unpacked, file);
        let entry = Entry::read(contents.get(start..self.entries)?)?;
        let end = self.entries.checked_sub(entry.rest)?;
        Some((contents.get(end.checked_sub(entry.value)?..end)?, end))
    }

    /// Moves before the first entry.
    #[inline]
    pub(crate) fn rewind(&mut self) {
        self.key.clear();
        (self.current, self.next) = (0, 0);
    }

    /// Moves before the entry at a restart point.
    fn restart(&mut self, file: &[u8], restart: usize) -> Result<(), TableError> {
        let contents = contents(&self.place, &self.unpacked, file);
        let at = self.entries.saturating_add(restart.saturating_mul(COUNT_BYTES));
        let next = fixed32(contents, at).and_then(|offset| usize::try_from(offset).ok());
        // With no key to share bytes with, an entry that claims to share some is refused.
        self.key.clear();
        self.next = next.unwrap_or(usize::MAX);
        if self.next > self.entries {
            self.current = at;
            return Err(self.damaged("it is a restart point past the last entry"));
        }
        Ok(())
    }

    /// Returns an error about the current entry.
    pub(crate) fn damaged(&self, message: &'static str) -> TableError {
        TableError::Entry { offset: self.offset, entry: self.current, message }
    }

    #[cold]
    fn key_too_long(&self, found: usize) -> TableError {
        let (offset, entry, allowed) = (self.offset, self.current, self.key_bytes_max);
        TableError::KeyLength { offset, entry, found, allowed }
    }

    /// Where in the file the block starts.
    #[inline]
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// The key of the current entry.
    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value of the current entry.
    #[inline]
    pub(crate) fn value_bytes<'a>(&'a self, file: &'a [u8]) -> &'a [u8] {
        contents(&self.place, &self.unpacked, file).get(self.value.clone()).unwrap_or_default()
    }

    /// Returns the current value's range in the buffer, if the value may be given away together with the
    /// buffer: the block was compressed, and the value is its last, fills most of the buffer, and starts
    /// further from the buffer's front than its key is long.
    #[inline]
    pub(crate) fn whole_value(&self) -> Option<Range<usize>> {
        let Place::Unpacked(block) = &self.place else { return None };
        let (start, end) =
            (block.start.checked_add(self.value.start)?, block.start.checked_add(self.value.end)?);
        let is_last = self.next >= self.entries && end <= self.unpacked.len();
        let is_whole = is_last && self.value.len() > self.unpacked.len() / 2 && self.key.len() <= start;
        is_whole.then_some(start..end)
    }

    /// Returns the current key, the buffer, which may be exchanged for another, and the range of such a value
    /// in it.
    #[inline]
    pub(crate) fn whole(&mut self) -> Option<(&[u8], &mut Vec<u8>, Range<usize>)> {
        let value = self.whole_value()?;
        Some((&self.key, &mut self.unpacked, value))
    }

    /// Where the value of the current entry is stored.
    #[inline]
    pub(crate) fn value(&self) -> Value<'_> {
        match &self.place {
            Place::InFile(block) => Value::InFile(
                block.start.saturating_add(self.value.start)..block.start.saturating_add(self.value.end),
            ),
            Place::Unpacked(block) => {
                let contents = self.unpacked.get(block.clone()).unwrap_or_default();
                Value::Unpacked(contents.get(self.value.clone()).unwrap_or_default())
            }
        }
    }
}

/// Returns the range of a block without its trailer, and the offset where the trailer ends.
#[inline]
pub(super) fn locate(handle: BlockHandle, allowed: &Range<usize>) -> Option<(Range<usize>, usize)> {
    let start = usize::try_from(handle.offset).ok()?;
    let end = start.checked_add(usize::try_from(handle.bytes).ok()?)?;
    let trailer_end = end.checked_add(TRAILER_BYTES)?;
    (start >= allowed.start && trailer_end <= allowed.end).then_some((start..end, trailer_end))
}

#[inline]
fn contents<'a>(place: &Place, unpacked: &'a [u8], file: &'a [u8]) -> &'a [u8] {
    match place {
        Place::InFile(range) => file.get(range.clone()).unwrap_or_default(),
        Place::Unpacked(range) => unpacked.get(range.clone()).unwrap_or_default(),
    }
}

/// One entry, as stored in the block.
struct Entry<'a> {
    shared: usize,
    unshared: &'a [u8],
    /// The length of the value.
    value: usize,
    /// How many bytes of entries follow this one.
    rest: usize,
}

impl<'a> Entry<'a> {
    #[inline]
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (lengths, rest) = match bytes.split_first_chunk::<3>() {
            Some((&[shared, unshared, value], rest)) if (shared | unshared | value) < 0x80 => {
                ([usize::from(shared), usize::from(unshared), usize::from(value)], rest)
            }
            _ => long_lengths(bytes)?,
        };
        let [shared, unshared, value] = lengths;
        let (unshared, rest) = rest.split_at_checked(unshared)?;
        let rest = rest.len().checked_sub(value)?;
        Some(Entry { shared, unshared, value, rest })
    }
}

fn long_lengths(bytes: &[u8]) -> Option<([usize; 3], &[u8])> {
    let mut lengths = [0; 3];
    let mut rest = bytes;
    for length in &mut lengths {
        let (value, after) = varint(rest)?;
        *length = usize::try_from(u32::try_from(value).ok()?).ok()?;
        rest = after;
    }
    Some((lengths, rest))
}
