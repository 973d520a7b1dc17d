//! One block of a table: found, checked, uncompressed; and a walk over its entries.

use std::ops::Range;

use super::checksum::AHEAD_BYTES;
use super::coding::{fixed32, varint};
use super::deferred::{DeferredChecksum, Unverified, Verify};
use super::error::TableError;
use super::footer::BlockHandle;
use super::shelf::{NoShelf, Shelf};
use super::unpack::{SNAPPY, Trailer, UNCOMPRESSED, unpack};

/// Behind every block: its type, and the masked crc32c of the block and that type.
pub(crate) const TRAILER_BYTES: usize = 5;

const COUNT_BYTES: usize = size_of::<u32>();

/// A walk over the entries of a block. It holds no borrow of the file, which its caller passes to every
/// call; its buffers are kept from block to block.
///
/// An entry is the number of bytes its key shares with the key before it, the lengths of the rest of the key
/// and of the value (varints), that rest, and the value. Behind the entries come the offsets of those that
/// share nothing (the restart points), and how many of these there are.
#[derive(Debug)]
pub(crate) struct BlockCursor {
    /// The longest key that is put together.
    key_bytes_max: usize,
    place: Place,
    /// `Some` as long as the block has not been verified.
    unverified: Option<Unverified>,
    /// The bytes of a block that was compressed, where `place` says; perhaps those of blocks behind it, too.
    unpacked: Vec<u8>,
    /// Where in the file the block starts, for messages.
    offset: usize,
    /// Where in the block the entries end and the restart points begin.
    entries: usize,
    restarts: usize,
    /// Where in the block the current entry starts, and the next one.
    current: usize,
    next: usize,
    /// The key of the current entry.
    key: Vec<u8>,
    /// Where in the block its value lies.
    value: Range<usize>,
}

/// Where the uncompressed bytes of a block lie.
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

/// Where the value of an entry lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// In these bytes of the file, for as long as the file is there.
    InFile(Range<usize>),
    /// In the cursor's own buffer, until its next step.
    Unpacked(&'a [u8]),
}

impl BlockCursor {
    /// A walk over nothing, which will refuse a longer key than that.
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

    /// Forgets the block: the walk is at its end.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.place = Place::default();
        self.unverified = None;
        (self.entries, self.restarts) = (0, 0);
        self.value = 0..0;
        self.rewind();
    }

    /// Goes before the first entry of the block at `handle`, once its checksum is found right, or sealed where
    /// that may wait. The block must lie in the bytes `allowed` of the file. Gives the offset where its trailer
    /// ends.
    pub(crate) fn load(
        &mut self,
        file: &[u8],
        handle: BlockHandle,
        allowed: Range<usize>,
        verify: Verify,
    ) -> Result<usize, TableError> {
        self.load_from(&mut NoShelf, file, handle, allowed, verify)
    }

    /// The same, of a block that may have been unpacked before.
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

    /// Where the bytes of a block are that nobody has unpacked.
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
            // A block whose type is damaged is found out, whatever type it seems to be: the checksum is of it, too.
            (Verify::ByTheUser { block_bytes_min }, UNCOMPRESSED) if block.len() >= block_bytes_min => {
                self.unverified = Some(Unverified::new(checksum));
            }
            // The blocks of a table lie one behind the other.
            _ => checksum.check(file, AHEAD_BYTES)?,
        }
        match trailer.kind {
            UNCOMPRESSED => Ok(Place::InFile(block)),
            SNAPPY => unpack(file, block, &mut self.unpacked).map(|bytes| Place::Unpacked(0..bytes)),
            found => Err(TableError::Compression { offset: block.start, found }),
        }
    }

    /// Verifies the block, if that is still to be done.
    #[inline]
    pub(crate) fn verify(&mut self, file: &[u8]) -> Result<(), TableError> {
        if let Some(unverified) = &self.unverified {
            unverified.checksum().check(file, 0)?;
            self.unverified = None;
        }
        Ok(())
    }

    /// The block's seal, as long as it has not been verified.
    #[inline]
    pub(crate) fn unverified(&self) -> Option<&Unverified> {
        self.unverified.as_ref()
    }

    /// Why there is an error: a block that was not verified may be damaged, and is verified now.
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
            .filter(|&restarts| restarts > 0)
            .and_then(|restarts| before_count?.checked_sub(restarts.checked_mul(COUNT_BYTES)?))
            .ok_or(TableError::Restarts { offset: self.offset, bytes, found })?;
        self.entries = entries;
        self.restarts = usize::try_from(found).unwrap_or_default();
        Ok(())
    }

    /// Steps to the next entry; `false` past the last one, and then the last one stays the current one.
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
        // Before it is put together: an entry of a few bytes can share a key of any length.
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

    /// Steps to the first entry whose key is not `before` the one that is sought; `false` if all are. Keys
    /// that are before it must precede those that are not.
    pub(crate) fn seek(&mut self, file: &[u8], before: &impl Fn(&[u8]) -> bool) -> Result<bool, TableError> {
        // The last restart point before the sought key, or the first one.
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

    /// Where in the block the entry behind the current one starts.
    #[inline]
    pub(crate) fn next(&self) -> usize {
        self.next
    }

    /// The value of the entry that starts there, and where the one behind it starts. `None` behind the last entry, and
    /// where there is none as it should be: a walk that comes there says so.
    #[inline]
    pub(crate) fn value_at<'a>(&'a self, file: &'a [u8], start: usize) -> Option<(&'a [u8], usize)> {
        let contents = contents(&self.place, &self.unpacked, file);
        let entry = Entry::read(contents.get(start..self.entries)?)?;
        let end = self.entries.checked_sub(entry.rest)?;
        Some((contents.get(end.checked_sub(entry.value)?..end)?, end))
    }

    /// Goes before the first entry.
    #[inline]
    pub(crate) fn rewind(&mut self) {
        self.key.clear();
        (self.current, self.next) = (0, 0);
    }

    /// Goes before the entry at a restart point.
    fn restart(&mut self, file: &[u8], restart: usize) -> Result<(), TableError> {
        let contents = contents(&self.place, &self.unpacked, file);
        let at = self.entries.saturating_add(restart.saturating_mul(COUNT_BYTES));
        let next = fixed32(contents, at).and_then(|offset| usize::try_from(offset).ok());
        // No key to share anything with: an entry that wants one is found out.
        self.key.clear();
        self.next = next.unwrap_or(usize::MAX);
        if self.next > self.entries {
            self.current = at;
            return Err(self.damaged("it is a restart point that lies behind the last entry"));
        }
        Ok(())
    }

    /// An error of the current entry.
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

    /// Where in the buffer the current value lies, if it is the last of a block that was compressed, and most of the
    /// buffer, and lies further from its front than its key is long.
    #[inline]
    pub(crate) fn whole_value(&self) -> Option<Range<usize>> {
        let Place::Unpacked(block) = &self.place else { return None };
        let (start, end) =
            (block.start.checked_add(self.value.start)?, block.start.checked_add(self.value.end)?);
        let is_last = self.next >= self.entries && end <= self.unpacked.len();
        let is_whole = is_last && self.value.len() > self.unpacked.len() / 2 && self.key.len() <= start;
        is_whole.then_some(start..end)
    }

    /// The current key, the buffer, which may be exchanged for another, and where in it such a value lies.
    #[inline]
    pub(crate) fn whole(&mut self) -> Option<(&[u8], &mut Vec<u8>, Range<usize>)> {
        let value = self.whole_value()?;
        Some((&self.key, &mut self.unpacked, value))
    }

    /// Where the value of the current entry lies.
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

/// The bytes of a block without its trailer, and the offset where that ends.
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

/// One entry, as the block has it.
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
