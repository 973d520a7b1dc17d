//! Takes the messages of a stream apart while they come: a batch's body goes from HTTP/2's frames straight to
//! the memory where it stays.
//!
//! The slow version, which the tests compare with: collect a message, by its prefix, and decode
//! [`FlightData`](crate::flight::FlightData) from it.

use std::sync::Arc;

use arrow_buffer::MutableBufferError;
use bytes::Bytes;

use super::scatter::{RoomBodies, Scatter, ScatteredBatch};
use super::slot::{BodyPool, BodySlot};
use crate::grpc::PREFIX_BYTES;
use crate::message::BODY_BYTES_MAX;

/// The most bytes of a message's header, and of its metadata.
const HEAD_BYTES_MAX: usize = 1 << 20;

/// The most bytes of a message: a body, what is before it, and what is skipped.
const MESSAGE_BYTES_MAX: usize = BODY_BYTES_MAX + 4 * HEAD_BYTES_MAX;

/// What is wrong with something that a server sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) String);

impl From<MutableBufferError> for Malformed {
    fn from(error: MutableBufferError) -> Self {
        Malformed(format!("a body for which there is no memory: {error}"))
    }
}

/// A message of a stream: what a client uses of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ReceivedMessage {
    pub(crate) header: Vec<u8>,
    pub(crate) metadata: Vec<u8>,
    pub(crate) body: Bytes,
}

/// Makes messages from pieces of any length.
///
/// 1. No more is held than came: nothing is allocated because a number says so.
/// 2. Within a message, what it still has (`left`) is at least what its field still has.
#[derive(Debug)]
pub(crate) struct MessageReader {
    pool: Arc<BodyPool>,
    at: At,
    prefix: [u8; PREFIX_BYTES],
    /// The bytes of the message that are still to come.
    left: usize,
    number: Varint,
    header: Vec<u8>,
    metadata: Vec<u8>,
    body: Option<BodyPlace>,
    /// If bodies go to a feed's own memory.
    rooms: Option<RoomBodies>,
}

/// Where a body goes while it comes.
#[derive(Debug)]
enum BodyPlace {
    Slot(BodySlot),
    Room(Box<Scatter>),
}

/// Something whole.
#[derive(Debug)]
pub(crate) enum Received {
    Message(ReceivedMessage),
    /// A batch whose body went to a feed's own memory.
    Scattered(Box<ScatteredBatch>),
}

/// What the next byte belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// The prefix, of which so many bytes are there.
    Prefix(usize),
    /// The number and type of a field.
    Key,
    /// The length of a field.
    Length(Part),
    /// A number that nobody needs.
    Number,
    /// A field, of which so many bytes are still to come.
    Bytes(Part, usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Header,
    Metadata,
    Body,
    Skipped,
}

/// A number of Protocol Buffers, seven bits a byte.
#[derive(Debug, Default)]
struct Varint {
    value: u64,
    shift: u32,
}

impl Varint {
    /// The number, if this is its last byte.
    fn push(&mut self, byte: u8) -> Result<Option<u64>, Malformed> {
        // The tenth byte has room for one bit.
        if self.shift == 63 && byte > 1 {
            return Err(Malformed("a number of more than 64 bits".to_owned()));
        }
        self.value |= u64::from(byte & 0x7f) << self.shift;
        if byte & 0x80 != 0 {
            self.shift += 7;
            return Ok(None);
        }
        Ok(Some(std::mem::take(self).value))
    }
}

impl MessageReader {
    pub(crate) fn new(pool: Arc<BodyPool>) -> Self {
        MessageReader {
            pool,
            at: At::Prefix(0),
            prefix: [0; PREFIX_BYTES],
            left: 0,
            number: Varint::default(),
            header: Vec::new(),
            metadata: Vec::new(),
            body: None,
            rooms: None,
        }
    }

    /// Of a stream whose batches go to a feed's own memory, if that is given.
    pub(crate) fn with_rooms(pool: Arc<BodyPool>, rooms: Option<RoomBodies>) -> Self {
        MessageReader { rooms, ..Self::new(pool) }
    }

    /// What waits for a room, before the next message can be read: nothing within one, or before the schema.
    pub(crate) fn awaited(&self) -> Option<&RoomBodies> {
        self.rooms.as_ref().filter(|rooms| !self.is_within() && !rooms.awaits_schema())
    }

    /// Whether something of a message is there.
    pub(crate) fn is_within(&self) -> bool {
        self.at != At::Prefix(0)
    }

    /// Takes a piece up to the end of a message, which it then returns, or all of it. After an error, nothing
    /// more can be read.
    pub(crate) fn push(&mut self, piece: &mut &[u8]) -> Result<Option<Received>, Malformed> {
        while let Some((&byte, rest)) = piece.split_first() {
            match self.at {
                At::Prefix(there) => {
                    *piece = rest;
                    self.take_prefix(there, byte)?;
                }
                At::Bytes(part, of_part) => {
                    let (now, rest) = piece.split_at(piece.len().min(of_part));
                    *piece = rest;
                    self.put(part, now)?;
                    self.left -= now.len();
                    self.at =
                        if now.len() == of_part { At::Key } else { At::Bytes(part, of_part - now.len()) };
                }
                At::Key | At::Length(_) | At::Number => {
                    *piece = rest;
                    self.left -= 1;
                    if let Some(number) = self.number.push(byte)? {
                        self.at = self.after(number)?;
                    }
                }
            }
            if self.left == 0 && !matches!(self.at, At::Prefix(_)) {
                return self.finish().map(Some);
            }
        }
        Ok(None)
    }

    fn take_prefix(&mut self, there: usize, byte: u8) -> Result<(), Malformed> {
        self.prefix[there] = byte;
        if there + 1 < PREFIX_BYTES {
            self.at = At::Prefix(there + 1);
            return Ok(());
        }
        let [is_compressed, length @ ..] = self.prefix;
        if is_compressed != 0 {
            return Err(Malformed("a compressed message, which nobody asked for".to_owned()));
        }
        self.left = u32::from_be_bytes(length) as usize;
        if self.left > MESSAGE_BYTES_MAX {
            return Err(Malformed(format!("a message of {} bytes: no batch has as many", self.left)));
        }
        self.at = At::Key;
        Ok(())
    }

    /// What follows a number.
    fn after(&mut self, number: u64) -> Result<At, Malformed> {
        match self.at {
            At::Length(part) => self.begin(part, number),
            At::Key => self.after_key(number),
            _ => Ok(At::Key),
        }
    }

    fn after_key(&self, key: u64) -> Result<At, Malformed> {
        let (field, kind) = (key >> 3, key & 7);
        let part = match field {
            0 => return Err(Malformed("a field without a number".to_owned())),
            2 => Part::Header,
            3 => Part::Metadata,
            1000 => Part::Body,
            _ => Part::Skipped,
        };
        let fixed = match (part, kind) {
            (_, 2) => return Ok(At::Length(part)),
            (Part::Skipped, 0) => return Ok(At::Number),
            (Part::Skipped, 1) => 8,
            (Part::Skipped, 5) => 4,
            _ => return Err(Malformed(format!("a field {field} of the type {kind}, which it cannot have"))),
        };
        if fixed > self.left {
            return Err(too_long(fixed as u64, self.left));
        }
        Ok(At::Bytes(Part::Skipped, fixed))
    }

    /// Begins a field of this length. If it was there before, the later one counts.
    fn begin(&mut self, part: Part, stated: u64) -> Result<At, Malformed> {
        let length = usize::try_from(stated).ok().filter(|&length| length <= self.left);
        let length = length.ok_or_else(|| too_long(stated, self.left))?;
        let most = match part {
            Part::Header | Part::Metadata => HEAD_BYTES_MAX,
            Part::Body => BODY_BYTES_MAX,
            Part::Skipped => usize::MAX,
        };
        if length > most {
            return Err(Malformed(format!("a field of {length} bytes, where at most {most} are taken")));
        }
        match part {
            Part::Header => self.header.clear(),
            Part::Metadata => self.metadata.clear(),
            Part::Body => {
                self.body = None;
                self.body = if length > 0 { Some(self.begin_body(length)?) } else { None };
            }
            Part::Skipped => {}
        }
        Ok(if length > 0 { At::Bytes(part, length) } else { At::Key })
    }

    fn begin_body(&self, length: usize) -> Result<BodyPlace, Malformed> {
        Ok(match &self.rooms {
            Some(rooms) => BodyPlace::Room(Box::new(rooms.scatter(&self.header, &self.metadata, length)?)),
            None => BodyPlace::Slot(self.pool.slot(length)?),
        })
    }

    fn put(&mut self, part: Part, bytes: &[u8]) -> Result<(), Malformed> {
        match (part, &mut self.body) {
            (Part::Header, _) => self.header.extend_from_slice(bytes),
            (Part::Metadata, _) => self.metadata.extend_from_slice(bytes),
            (Part::Body, Some(BodyPlace::Slot(slot))) => slot.extend(bytes)?,
            (Part::Body, Some(BodyPlace::Room(scatter))) => scatter.put(bytes)?,
            (Part::Body, None) | (Part::Skipped, _) => {}
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Received, Malformed> {
        if self.at != At::Key || self.number.shift != 0 {
            return Err(Malformed("a message that ends within a field".to_owned()));
        }
        self.at = At::Prefix(0);
        let mut body = self.body.take();
        match &mut self.rooms {
            Some(rooms) if rooms.awaits_schema() => rooms.begin(&self.header)?,
            Some(_) if body.is_none() => body = Some(self.begin_body(0)?),
            _ => {}
        }
        let (header, metadata) = (std::mem::take(&mut self.header), std::mem::take(&mut self.metadata));
        let body = match body {
            Some(BodyPlace::Room(scatter)) => return Ok(Received::Scattered(Box::new(scatter.finish()?))),
            Some(BodyPlace::Slot(slot)) => slot.into_bytes(),
            None => Bytes::new(),
        };
        Ok(Received::Message(ReceivedMessage { header, metadata, body }))
    }
}

fn too_long(stated: u64, left: usize) -> Malformed {
    Malformed(format!("a field of {stated} bytes in a message that has {left} more"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flight::{FlightData, FlightDescriptor};
    use crate::grpc;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use prost::Message;

    fn reader() -> MessageReader {
        MessageReader::new(BodyPool::new(2))
    }

    /// All messages of these pieces, or the first error.
    fn read(pieces: &[&[u8]]) -> Result<Vec<ReceivedMessage>, Malformed> {
        let (mut reader, mut found) = (reader(), Vec::new());
        for mut piece in pieces.iter().copied() {
            while !piece.is_empty() {
                match reader.push(&mut piece)? {
                    Some(Received::Message(message)) => found.push(message),
                    Some(scattered) => panic!("{scattered:?}"),
                    None => {}
                }
            }
        }
        assert!(!reader.is_within(), "{reader:?}");
        Ok(found)
    }

    fn refused(pieces: &[&[u8]]) -> String {
        read(pieces).unwrap_err().0
    }

    fn prefixed(message: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(message);
        bytes
    }

    fn twin(message: &[u8]) -> ReceivedMessage {
        let FlightData { data_header, app_metadata, data_body, .. } = FlightData::decode(message).unwrap();
        ReceivedMessage { header: data_header.into(), metadata: app_metadata.into(), body: data_body }
    }

    fn data(header: &[u8], metadata: &[u8], body: &[u8]) -> FlightData {
        FlightData {
            flight_descriptor: None,
            data_header: Bytes::copy_from_slice(header),
            app_metadata: Bytes::copy_from_slice(metadata),
            data_body: Bytes::copy_from_slice(body),
        }
    }

    #[test]
    fn it_does_not_matter_where_a_message_is_cut() {
        let first = data(b"header", b"{\"number\": 0}", &[7; 40]);
        let bytes =
            [grpc::framed(&first), grpc::framed(&data(b"", b"", b"")), grpc::framed(&data(b"h", b"", b""))];
        let bytes = bytes.concat();
        let whole = read(&[&bytes]).unwrap();
        assert_eq!(whole[0], twin(&first.encode_to_vec()));
        assert_eq!((whole.len(), &whole[1]), (3, &ReceivedMessage::default()));
        assert_eq!(read(&bytes.chunks(1).collect::<Vec<_>>()).unwrap(), whole);
        for first in 0..=bytes.len() {
            for second in first..=bytes.len() {
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(read(&pieces).unwrap(), whole, "{first} {second}");
            }
        }
    }

    #[test]
    fn a_message_that_ends_early_is_none() {
        let bytes = grpc::framed(&data(b"header", b"metadata", b"body"));
        for end in 1..bytes.len() {
            let (mut reader, mut piece) = (reader(), &bytes[..end]);
            assert!(matches!(reader.push(&mut piece), Ok(None)) && reader.is_within(), "{end}");
        }
        // As the length of the prefix says it.
        for end in 1..bytes.len() - PREFIX_BYTES {
            let cut = prefixed(&bytes[PREFIX_BYTES..PREFIX_BYTES + end]);
            let ends = read(&[&cut]);
            let is_whole = [8, 18].contains(&end);
            assert_eq!(ends.is_ok(), is_whole, "{end}: {ends:?}");
        }
    }

    #[test]
    fn sizes_that_cannot_be_are_refused() {
        assert!(refused(&[&[1, 0, 0, 0, 0]]).contains("compressed"));
        assert!(refused(&[&[0, 0xff, 0xff, 0xff, 0xff]]).starts_with("a message of 4294967295 bytes"));
        // More than the message has, up to the most that can be said.
        let long = [0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
        assert_eq!(
            refused(&[&prefixed(&long)]),
            format!("a field of {} bytes in a message that has 0 more", u64::MAX)
        );
        assert_eq!(refused(&[&prefixed(&[0x12, 5, 0])]), "a field of 5 bytes in a message that has 1 more");
        assert_eq!(refused(&[&prefixed(&[0x21, 0])]), "a field of 8 bytes in a message that has 1 more");
        assert!(
            refused(&[&prefixed(&[0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02])])
                .starts_with("a number of more")
        );
        // A header may have a mebibyte, whatever the message has.
        let mut large = vec![0, 0x7f, 0, 0, 0, 0x12];
        prost::encoding::encode_varint((HEAD_BYTES_MAX + 1) as u64, &mut large);
        assert_eq!(refused(&[&large]), "a field of 1048577 bytes, where at most 1048576 are taken");
        let mut large = vec![0, 0x80, 0x20, 0, 0];
        prost::encoding::encode_key(1000, prost::encoding::WireType::LengthDelimited, &mut large);
        prost::encoding::encode_varint(1 << 31, &mut large);
        assert_eq!(refused(&[&large]), "a field of 2147483648 bytes, where at most 2147483647 are taken");
    }

    #[test]
    fn what_no_message_has_is_refused() {
        assert_eq!(refused(&[&prefixed(&[0x02, 0])]), "a field without a number");
        // The header as a number, a group, and a type that there is not.
        for (key, field, kind) in [(0x10, 2, 0), (0x23, 4, 3), (0x26, 4, 6)] {
            let said = format!("a field {field} of the type {kind}, which it cannot have");
            assert_eq!(refused(&[&prefixed(&[key, 1])]), said);
        }
    }

    fn some_bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![Just(Vec::new()), vec(any::<u8>(), 0..8), vec(any::<u8>(), 100..400)]
    }

    /// Fields as they may come: in any order, more than once, and some that nobody knows.
    fn fields() -> impl Strategy<Value = Vec<u8>> {
        let field = (prop::sample::select(vec![1_u32, 2, 3, 1000, 77, 78, 79, 80]), some_bytes());
        vec(field, 0..8).prop_map(|fields| {
            use prost::encoding::{WireType, encode_key, encode_varint};
            let mut bytes = Vec::new();
            for (number, value) in fields {
                match number {
                    1 => {
                        let descriptor = FlightDescriptor { kind: 2, cmd: value.into(), path: vec![] };
                        prost::encoding::message::encode(1, &descriptor, &mut bytes);
                    }
                    77 => {
                        encode_key(number, WireType::Varint, &mut bytes);
                        encode_varint(value.len() as u64 * u64::from(u32::MAX), &mut bytes);
                    }
                    78 => {
                        encode_key(number, WireType::SixtyFourBit, &mut bytes);
                        bytes.extend_from_slice(&[9; 8]);
                    }
                    79 => {
                        encode_key(number, WireType::ThirtyTwoBit, &mut bytes);
                        bytes.extend_from_slice(&[9; 4]);
                    }
                    _ => {
                        encode_key(number, WireType::LengthDelimited, &mut bytes);
                        encode_varint(value.len() as u64, &mut bytes);
                        bytes.extend_from_slice(&value);
                    }
                }
            }
            bytes
        })
    }

    proptest! {
        #[test]
        fn messages_are_those_that_prost_decodes(
            messages in vec(fields(), 1..4),
            cuts in vec(1_usize..200, 1..20),
        ) {
            let bytes: Vec<u8> = messages.iter().flat_map(|message| prefixed(message)).collect();
            let (mut pieces, mut rest) = (Vec::new(), &bytes[..]);
            for cut in cuts.into_iter().cycle() {
                let (piece, after) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            let expected: Vec<_> = messages.iter().map(|message| twin(message)).collect();
            prop_assert_eq!(read(&pieces).unwrap(), expected);
        }

        #[test]
        fn any_bytes_are_messages_or_refused(bytes in vec(any::<u8>(), 0..64), length in 0_u8..64) {
            let mut all = vec![0, 0, 0, 0, length];
            all.extend_from_slice(&bytes);
            let (mut reader, mut piece) = (reader(), &all[..]);
            while !piece.is_empty() && reader.push(&mut piece).is_ok() {}
        }
    }
}
