//! The records of a write-ahead log: batches of writes.
//!
//! ```text
//! batch: number of its first write: 8 bytes | number of writes: 4 | writes
//! write: 1 | key | value   or   0 | key   each string after its length, a varint
//! ```
//!
//! A batch is read in place, in the pieces into which the log's blocks cut it. Only a key or a value that
//! spans several pieces is copied.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;

use crate::coding::varint;
use crate::key::{DELETION, KEY_BYTES_MAX, SEQUENCE_MAX, Tag, VALUE};
use crate::map::Place;

/// The longest varint of 32 bits.
const VARINT32_BYTES_MAX: usize = 5;

/// One write, with the places of its key and its value. A deletion has an empty value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    pub(crate) key: Place,
    pub(crate) value: Place,
    pub(crate) tag: Tag,
}

/// What is wrong with a batch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BatchFault {
    /// What was found, and what is allowed.
    Malformed(String),
    /// The write that starts at byte `at` of the log has a key of `found` bytes.
    KeyLength { at: usize, found: usize },
}

impl From<String> for BatchFault {
    fn from(message: String) -> Self {
        BatchFault::Malformed(message)
    }
}

/// The writes of all logs.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    /// In log order.
    pub(crate) writes: Vec<Write>,
    /// The keys and values that had to be copied.
    pub(crate) joined: Vec<u8>,
}

impl Writes {
    /// Adds the batch in the `pieces` of a log; returns the sequence numbers of its writes.
    pub(crate) fn add(
        &mut self,
        log: u32,
        bytes: &[u8],
        pieces: &[Range<usize>],
    ) -> Result<Range<u64>, BatchFault> {
        let mut batch = Pieces::new(bytes, pieces);
        let total = batch.left;
        let header = batch.fixed64().zip(batch.fixed32());
        let (first, count) =
            header.ok_or_else(|| format!("it has {total} bytes, but a batch has at least 12"))?;
        let due = first.checked_add(u64::from(count)).filter(|&end| end <= SEQUENCE_MAX);
        let end =
            due.ok_or_else(|| format!("its {count} writes from number {first} on pass {SEQUENCE_MAX}"))?;
        let mut sequence = first;
        while batch.left > 0 {
            let (at, starts) = (total.saturating_sub(batch.left), batch.piece.start);
            let kind = batch.byte().unwrap_or_default();
            let key = match kind {
                DELETION | VALUE => batch.string(log, &mut self.joined),
                found => {
                    let message =
                        format!("the write at its byte {at} is of kind {found}: allowed are 0 and 1");
                    return Err(message.into());
                }
            };
            let value = match kind {
                VALUE => batch.string(log, &mut self.joined),
                _ => Some(Place::joined(0, 0)),
            };
            let cut = || format!("the write at its byte {at} has no end");
            let (key, value) = key.zip(value).ok_or_else(cut)?;
            if sequence == end {
                return Err(format!("it has more than the {count} writes that it claims").into());
            }
            if key.bytes() > KEY_BYTES_MAX {
                return Err(BatchFault::KeyLength { at: starts, found: key.bytes() });
            }
            self.writes.push(Write { key, value, tag: Tag::new(sequence, kind) });
            sequence = sequence.saturating_add(1);
        }
        if sequence != end {
            let found = sequence.saturating_sub(first);
            return Err(format!("it has {found} writes, but claims {count}").into());
        }
        Ok(first..end)
    }
}

/// Reads from the front of a record that is in pieces.
struct Pieces<'a> {
    bytes: &'a [u8],
    /// The rest of the current piece; empty only if nothing is left at all.
    piece: Range<usize>,
    more: std::slice::Iter<'a, Range<usize>>,
    left: usize,
}

impl<'a> Pieces<'a> {
    fn new(bytes: &'a [u8], pieces: &'a [Range<usize>]) -> Self {
        let left = pieces.iter().map(ExactSizeIterator::len).fold(0, usize::saturating_add);
        let mut pieces = Pieces { bytes, piece: 0..0, more: pieces.iter(), left };
        pieces.skip(0);
        pieces
    }

    /// The current piece's bytes.
    fn piece(&self) -> &'a [u8] {
        self.bytes.get(self.piece.clone()).unwrap_or_default()
    }

    /// Skips bytes of the current piece.
    fn skip(&mut self, bytes: usize) {
        self.piece.start = self.piece.start.saturating_add(bytes);
        self.left = self.left.saturating_sub(bytes);
        while self.piece.is_empty() {
            let Some(piece) = self.more.next() else { break };
            self.piece = piece.clone();
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.piece().first()?;
        self.skip(1);
        Some(byte)
    }

    fn array<const BYTES: usize>(&mut self) -> Option<[u8; BYTES]> {
        let mut array = [0; BYTES];
        for byte in &mut array {
            *byte = self.byte()?;
        }
        Some(array)
    }

    fn fixed32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn fixed64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn varint32(&mut self) -> Option<u32> {
        let piece = self.piece();
        if let Some((value, rest)) = varint(piece) {
            self.skip(piece.len().saturating_sub(rest.len()));
            return u32::try_from(value).ok();
        }
        // It may continue in the next piece.
        let mut bytes = [0; VARINT32_BYTES_MAX];
        for byte in &mut bytes {
            *byte = self.byte()?;
            if *byte < 0x80 {
                break;
            }
        }
        varint(&bytes).and_then(|(value, _)| u32::try_from(value).ok())
    }

    /// Reads a string after its length. Returns its place: in the log, or in `joined`, where it is copied if
    /// the log cuts it into pieces.
    fn string(&mut self, log: u32, joined: &mut Vec<u8>) -> Option<Place> {
        let bytes = self.varint32()?;
        let mut missing = usize::try_from(bytes).ok().filter(|&bytes| bytes <= self.left)?;
        if missing <= self.piece.len() {
            let place = Place::in_log(log, self.piece.start, bytes);
            self.skip(missing);
            return Some(place);
        }
        let place = Place::joined(joined.len(), bytes);
        while missing > 0 {
            let part = self.piece().get(..missing).unwrap_or(self.piece());
            if part.is_empty() {
                return None;
            }
            joined.extend_from_slice(part);
            missing = missing.saturating_sub(part.len());
            self.skip(part.len());
        }
        Some(place)
    }
}

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "a test may panic")]
#[allow(clippy::cast_possible_truncation, reason = "a test's numbers are small")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::map::Store;

    type Ops = Vec<(Vec<u8>, Option<Vec<u8>>)>;

    fn string(batch: &mut Vec<u8>, bytes: &[u8]) {
        let mut length = bytes.len();
        while length >= 0x80 {
            batch.push((length & 0x7f) as u8 | 0x80);
            length >>= 7;
        }
        batch.push(length as u8);
        batch.extend(bytes);
    }

    fn batch(first: u64, count: u32, ops: &Ops) -> Vec<u8> {
        let mut batch = [&first.to_le_bytes()[..], &count.to_le_bytes()].concat();
        for (key, value) in ops {
            batch.push(if value.is_some() { VALUE } else { DELETION });
            string(&mut batch, key);
            value.iter().for_each(|value| string(&mut batch, value));
        }
        batch
    }

    /// Cuts a batch into pieces with gaps between them, reads it, and returns what was read.
    fn read(batch: &[u8], cuts: &[prop::sample::Index]) -> Result<(Range<u64>, Ops), BatchFault> {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(batch.len() + 1)).collect();
        cuts.extend([0, batch.len()]);
        cuts.sort_unstable();
        let (mut log, mut pieces) = (Vec::new(), Vec::new());
        for piece in cuts.windows(2) {
            log.extend([0xee; 7]);
            pieces.push(log.len()..log.len() + piece[1] - piece[0]);
            log.extend(&batch[piece[0]..piece[1]]);
        }
        let mut writes = Writes::default();
        let numbers = writes.add(0, &log, &pieces)?;
        assert!(writes.joined.len() <= batch.len());
        // No log is mapped here: it is appended to the joined bytes, and `moved_from_log` adjusts its places.
        let start = writes.joined.len();
        writes.joined.extend(&log);
        let store = Store::new(Vec::new(), writes.joined, 0);
        let bytes = |place: Place| store.bytes(place.moved_from_log(start)).to_vec();
        let op = |write: &Write| (bytes(write.key), (!write.tag.is_deletion()).then(|| bytes(write.value)));
        for (at, write) in writes.writes.iter().enumerate() {
            assert_eq!(write.tag.sequence(), numbers.start + at as u64);
        }
        Ok((numbers, writes.writes.iter().map(op).collect()))
    }

    fn ops() -> impl Strategy<Value = Ops> {
        let bytes = || {
            prop_oneof![
                4 => prop::collection::vec(any::<u8>(), 0..20),
                1 => prop::collection::vec(any::<u8>(), 100..400),
            ]
        };
        prop::collection::vec((bytes(), prop::option::of(bytes())), 0..20)
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_in_any_pieces(
            ops in ops(), first in 1..1_u64 << 50,
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let count = u32::try_from(ops.len()).unwrap();
            let numbers = first..first + u64::from(count);
            prop_assert_eq!(read(&batch(first, count, &ops), &cuts), Ok((numbers, ops)));
        }

        #[test]
        fn any_bytes_are_a_batch_or_an_error(
            bytes in prop::collection::vec(prop_oneof![0..4_u8, any::<u8>()], 0..200),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            let whole = read(&bytes, &[]);
            prop_assert_eq!(read(&bytes, &cuts), whole);
        }
    }

    #[test]
    fn what_is_no_batch_says_why() {
        let ops = vec![(b"key".to_vec(), Some(b"value".to_vec())), (b"gone".to_vec(), None)];
        let good = batch(5, 2, &ops);
        let refused = |bytes: &[u8], message: &str| {
            assert_eq!(read(bytes, &[]), Err(message.to_owned().into()));
        };
        refused(&good[..11], "it has 11 bytes, but a batch has at least 12");
        refused(&good[..good.len() - 1], "the write at its byte 23 has no end");
        refused(&batch(5, 1, &ops), "it has more than the 1 writes that it claims");
        refused(&batch(5, 3, &ops), "it has 2 writes, but claims 3");
        refused(&[&good[..], &[2]].concat(), "the write at its byte 29 is of kind 2: allowed are 0 and 1");
        refused(
            &batch(SEQUENCE_MAX, 2, &ops),
            "its 2 writes from number 72057594037927935 on pass 72057594037927935",
        );
        // A length of 2^32 - 1 allocates nothing.
        let huge = [&batch(1, 1, &vec![])[..], &[1, 0xff, 0xff, 0xff, 0xff, 0x0f]].concat();
        refused(&huge, "the write at its byte 12 has no end");
    }
}
