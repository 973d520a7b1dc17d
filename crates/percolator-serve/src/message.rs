//! Batches as messages of Flight: a head that is made for each, and then the batch's own memory.

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteOptions, StreamEncoder};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use bytes::{BufMut, Bytes, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint};
use serde::{Deserialize, Serialize};

use crate::grpc::{self, Code, Status};

/// The most bytes of a batch's body: pyarrow's clients take no more, and gRPC could not say much more.
pub(crate) const BODY_BYTES_MAX: usize = i32::MAX as usize;

/// What comes before a message of Arrow, where it stands alone: a mark, and the length of its header.
const CONTINUATION: [u8; 4] = [0xff; 4];
const CONTINUATION_BYTES: usize = 8;

/// The numbers of the fields of Flight's message.
const DATA_HEADER: u32 = 2;
const APP_METADATA: u32 = 3;
const DATA_BODY: u32 = 1000;

/// pyarrow's clients put a message at a multiple of 16 bytes in memory that begins at one of 64, less 32. A
/// body that begins at a multiple of 64 after that is aligned for every type.
const HEAD_ALIGNMENT: usize = 64;
const HEAD_REMAINDER: usize = 32;

/// Shorter pieces are collected: each piece is a part of a system call.
const COLLECTED_BYTES: usize = 1024;

/// What a batch says about itself, as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BatchNote {
    /// The number of the batch in its stream.
    pub(crate) number: u64,
    /// The step that it is a part of. The short batch at the end of a single pass has none.
    pub(crate) epoch: Option<u64>,
    pub(crate) step: Option<u64>,
    pub(crate) is_last: bool,
    pub(crate) records: usize,
    pub(crate) rows: usize,
    /// How many batches were lost before it.
    pub(crate) missed: u64,
    /// What the stream's ticket becomes by it.
    pub(crate) ticket: String,
}

/// The schema as a message of Arrow that stands alone, and as one of Flight's.
pub(crate) struct SchemaMessage {
    pub(crate) alone: Bytes,
    pub(crate) in_stream: Bytes,
}

impl SchemaMessage {
    pub(crate) fn of(schema: &Schema) -> Self {
        let options = IpcWriteOptions::default();
        let mut dictionaries = DictionaryTracker::new(false);
        let generator = IpcDataGenerator::default();
        let mut header = generator
            .schema_to_bytes_with_dictionary_tracker(schema, &mut dictionaries, &options)
            .ipc_message;
        header.resize(header.len().next_multiple_of(8), 0);
        let mut alone = BytesMut::with_capacity(CONTINUATION_BYTES + header.len());
        alone.put_slice(&CONTINUATION);
        alone.put_u32_le(u32::try_from(header.len()).expect("a schema is as long as its request allows"));
        alone.put_slice(&header);
        let message = crate::flight::FlightData { data_header: header.into(), ..Default::default() };
        SchemaMessage { alone: alone.freeze(), in_stream: grpc::framed(&message) }
    }
}

/// Makes the messages of one stream's batches.
pub(crate) struct BatchEncoder(StreamEncoder);

impl BatchEncoder {
    pub(crate) fn new(schema: &SchemaRef) -> Result<Self, Status> {
        let mut encoder = StreamEncoder::try_new(schema).map_err(failed)?;
        // The first batch is preceded by the schema, which a stream of Flight has by itself.
        encoder.encode(&RecordBatch::new_empty(schema.clone())).map_err(failed)?;
        Ok(BatchEncoder(encoder))
    }

    /// The message of a batch, in pieces that follow one another. What is large among them is the batch's
    /// own memory.
    pub(crate) fn pieces(&mut self, batch: &RecordBatch, note: &BatchNote) -> Result<Vec<Bytes>, Status> {
        let encoded = self.0.encode(batch).map_err(failed)?;
        let (header, body) = split(&encoded).ok_or_else(|| {
            Status::new(Code::Internal, "Arrow's encoder made no message; please report it")
        })?;
        let body_bytes: usize = body.iter().map(Bytes::len).sum();
        if body_bytes > BODY_BYTES_MAX {
            return Err(too_large(body_bytes));
        }
        let mut note = serde_json::to_vec(note).expect("names and numbers can be written");
        note.resize(padded(header.len(), note.len(), body_bytes), b' ');
        let head_bytes = head_len(header.len(), note.len(), body_bytes);
        let mut head = BytesMut::with_capacity(grpc::PREFIX_BYTES + head_bytes + COLLECTED_BYTES);
        grpc::put_prefix(&mut head, head_bytes + body_bytes);
        put_field(&mut head, DATA_HEADER, &header);
        put_field(&mut head, APP_METADATA, &note);
        if body_bytes > 0 {
            encode_key(DATA_BODY, WireType::LengthDelimited, &mut head);
            encode_varint(body_bytes as u64, &mut head);
        }
        let mut pieces = Vec::with_capacity(body.len() + 1);
        let mut collected = head;
        for piece in body {
            if piece.len() <= COLLECTED_BYTES {
                collected.put_slice(&piece);
                continue;
            }
            if !collected.is_empty() {
                pieces.push(collected.split().freeze());
            }
            pieces.push(piece);
        }
        if !collected.is_empty() {
            pieces.push(collected.freeze());
        }
        Ok(pieces)
    }
}

/// A batch that does not fit a message.
pub(crate) fn too_large(bytes: usize) -> Status {
    let message = format!(
        "a batch of {bytes} bytes does not fit a message of Flight, which has at most {BODY_BYTES_MAX}: make \
         batches smaller, or divide them among more ranks"
    );
    Status::new(Code::InvalidArgument, message)
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` passes it")]
fn failed(error: ArrowError) -> Status {
    Status::new(
        Code::Internal,
        format!("a batch does not become a message of Arrow: {error}; please report it"),
    )
}

/// The header of a message that stands alone, and the pieces of its body.
fn split(encoded: &[Buffer]) -> Option<(Vec<u8>, Vec<Bytes>)> {
    let mut pieces = encoded.iter();
    // What comes before the body is short.
    let mut begin = Vec::new();
    let header_bytes = loop {
        begin.extend_from_slice(pieces.next()?);
        if let Some((mark, rest)) = begin.split_first_chunk::<4>() {
            if *mark != CONTINUATION {
                return None;
            }
            if let Some((length, _)) = rest.split_first_chunk::<4>() {
                break u32::from_le_bytes(*length) as usize;
            }
        }
    };
    while begin.len() < CONTINUATION_BYTES + header_bytes {
        begin.extend_from_slice(pieces.next()?);
    }
    if begin.len() > CONTINUATION_BYTES + header_bytes {
        return None;
    }
    let body = pieces.filter(|piece| !piece.is_empty()).map(|piece| Bytes::from(piece.clone())).collect();
    Some((begin.split_off(CONTINUATION_BYTES), body))
}

fn put_field(to: &mut BytesMut, number: u32, value: &[u8]) {
    encode_key(number, WireType::LengthDelimited, to);
    encode_varint(value.len() as u64, to);
    to.put_slice(value);
}

/// The bytes of a message before its body.
fn head_len(header: usize, note: usize, body: usize) -> usize {
    let field = |number: u32, length: usize| {
        prost::encoding::key_len(number) + prost::encoding::encoded_len_varint(length as u64)
    };
    let of_body = if body > 0 { field(DATA_BODY, body) } else { 0 };
    field(DATA_HEADER, header) + header + field(APP_METADATA, note) + note + of_body
}

/// The length of a note with spaces after it, so that the body is aligned in the client's memory.
fn padded(header: usize, note: usize, body: usize) -> usize {
    let is_aligned = |note| head_len(header, note, body) % HEAD_ALIGNMENT == HEAD_REMAINDER;
    // Where the length of the note takes a byte more, one remainder is left out.
    (note..note + 2 * HEAD_ALIGNMENT).find(|&note| is_aligned(note)).unwrap_or(note)
}
