//! Values of variable length, which lie apart from the rows.

use std::ops::Range;

use crate::unpack::RECORD_MAX;
use crate::{DataFile, FormatError};

/// The collections whose objects are known at a time.
const KNOWN_MAX: usize = 8;

/// The bytes before an object, and before the first one.
const HEADER: u64 = 16;

/// Finds objects of global heaps. The file's addresses and lengths have 8 bytes.
#[derive(Debug, Default)]
pub(super) struct HeapReader {
    /// The newest last.
    known: Vec<Collection>,
    buffer: Vec<u8>,
    /// What the record has taken.
    taken: usize,
}

/// Objects that lie together.
#[derive(Debug)]
struct Collection {
    /// Its first byte.
    at: u64,
    /// The objects' indexes, and where their bytes are.
    objects: Vec<(u16, Range<u64>)>,
}

/// Reads objects for a row of one part.
#[derive(Debug)]
pub(super) struct Heap<'a> {
    pub(super) reader: &'a mut HeapReader,
    pub(super) file: &'a DataFile,
    /// Where the file's addresses begin.
    pub(super) base: u64,
    /// The part's name.
    pub(super) part: &'a str,
}

impl HeapReader {
    /// Begins a record.
    pub(super) fn begin(&mut self) {
        self.taken = 0;
    }
}

impl Heap<'_> {
    /// The elements that 16 bytes of a row stand for: their number, the collection's address, the object's
    /// index. Each becomes a value of so much `memory`.
    pub(super) fn elements(
        &mut self,
        reference: &[u8],
        element_bytes: usize,
        memory: usize,
    ) -> Result<&[u8], FormatError> {
        let [a, b, c, d, address @ .., w, x, y, z] = reference else {
            return Err(self.damaged("a reference to values of variable length is cut"));
        };
        let length = usize::try_from(u32::from_le_bytes([*a, *b, *c, *d])).unwrap_or(usize::MAX);
        let address = u64::from_le_bytes(address.first_chunk::<8>().copied().unwrap_or_default());
        let wanted = length.saturating_mul(element_bytes) as u64;
        if wanted == 0 {
            return Ok(&[]);
        }
        let object = self.object(address, u32::from_le_bytes([*w, *x, *y, *z]))?;
        let there = object.end.saturating_sub(object.start);
        if wanted > there {
            let what = format!("{wanted} bytes of variable length are stated, and {there} are stored");
            return Err(self.damaged(what).byte(object.start));
        }
        let end = object.start.saturating_add(wanted);
        self.take(length.saturating_mul(memory.max(element_bytes)))?;
        self.file.read(object.start..end, &mut self.reader.buffer)
    }

    /// Notes what the record takes, which has an end: references of a hostile file may all lead to one value.
    fn take(&mut self, bytes: usize) -> Result<(), FormatError> {
        self.reader.taken = self.reader.taken.saturating_add(bytes);
        if self.reader.taken <= RECORD_MAX {
            return Ok(());
        }
        let what = format!("{}: a record's values take more than {RECORD_MAX} bytes", self.part);
        Err(FormatError::refused(self.file.path(), what))
    }

    fn damaged(&self, what: impl std::fmt::Display) -> FormatError {
        FormatError::damaged(self.file.path(), format!("{}: {what}", self.part))
    }

    /// Where an object's bytes are.
    fn object(&mut self, address: u64, index: u32) -> Result<Range<u64>, FormatError> {
        let at = address.saturating_add(self.base);
        let known = self.reader.known.iter().position(|known| known.at == at);
        let place = match known {
            Some(place) => place,
            None => {
                let objects = self.collection(at)?;
                // Finding an object again in a collection that was forgotten is work that the record takes.
                self.take(objects.len())?;
                if self.reader.known.len() >= KNOWN_MAX {
                    self.reader.known.remove(0);
                }
                self.reader.known.push(Collection { at, objects });
                self.reader.known.len().saturating_sub(1)
            }
        };
        let objects = self.reader.known.get(place).map(|known| known.objects.as_slice()).unwrap_or_default();
        let index = u16::try_from(index).ok();
        let found = objects.iter().find(|(known, _)| Some(*known) == index);
        found.map(|(_, range)| range.clone()).ok_or_else(|| {
            self.damaged("there is no object of that index in its collection of values").byte(at)
        })
    }

    /// The objects of the collection at a byte.
    fn collection(&mut self, at: u64) -> Result<Vec<(u16, Range<u64>)>, FormatError> {
        let none = |heap: &Self| heap.damaged("there is no collection of values of variable length").byte(at);
        let (first, of_file) = (at.saturating_add(HEADER), self.file.bytes());
        if first > of_file {
            return Err(none(self));
        }
        let header = self.file.read(at..first, &mut self.reader.buffer)?;
        let [b'G', b'C', b'O', b'L', 1, _, _, _, size @ ..] = header else { return Err(none(self)) };
        let size = u64::from_le_bytes(size.first_chunk::<8>().copied().unwrap_or_default());
        let end = at.saturating_add(size);
        if end > of_file {
            let what = format!("a collection of {size} bytes is stated, and the file has {of_file} in all");
            return Err(self.damaged(what).byte(at));
        }
        let (mut objects, mut at) = (Vec::new(), first);
        while at.saturating_add(HEADER) <= end {
            let begin = at.saturating_add(HEADER);
            let header = self.file.read(at..begin, &mut self.reader.buffer)?;
            let [one, two, _, _, _, _, _, _, size @ ..] = header else { break };
            let index = u16::from_le_bytes([*one, *two]);
            // What is left of the collection is free.
            if index == 0 {
                break;
            }
            let size = u64::from_le_bytes(size.first_chunk::<8>().copied().unwrap_or_default());
            let behind = begin.saturating_add(size);
            if behind > end {
                return Err(self.damaged("an object leaves its collection of values").byte(at));
            }
            objects.push((index, begin..behind));
            at = begin.saturating_add(size.checked_next_multiple_of(8).unwrap_or(size));
        }
        Ok(objects)
    }
}
