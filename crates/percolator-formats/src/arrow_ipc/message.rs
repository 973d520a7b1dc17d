//! Messages: where they lie, and what they are.

#![deny(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use std::ops::Range;
use std::path::Path;

use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::{Message, MessageHeader, MetadataVersion};
use arrow_schema::{Schema, SchemaRef};

use super::CONTINUATION;
use crate::table_files::{caught, mapped};
use crate::{DataFile, FormatError};

/// The bytes of an Arrow file, which may be a part of another one: slices of a map, or read for the purpose.
#[derive(Debug)]
pub(super) struct ArrowSource {
    file: DataFile,
    /// Where it lies in the file.
    within: Range<u64>,
    whole: Option<Buffer>,
}

impl ArrowSource {
    /// A range of a file, which has it.
    pub(super) fn new(file: DataFile, within: Range<u64>) -> Self {
        let whole = mapped(&file).map(Buffer::from);
        ArrowSource { file, within, whole }
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.within.end.saturating_sub(self.within.start)
    }

    /// A range of it.
    pub(super) fn buffer(&self, range: Range<u64>) -> Result<Buffer, FormatError> {
        let range = self.at(range.start)..self.at(range.end);
        let ends = (usize::try_from(range.start), usize::try_from(range.end));
        match (&self.whole, ends) {
            (Some(whole), (Ok(start), Ok(end))) if start <= end && end <= whole.len() => {
                Ok(whole.slice_with_length(start, end.saturating_sub(start)))
            }
            _ => {
                let mut bytes = Vec::new();
                // Compares the range with the file's length before it allocates.
                self.file.lend(range, &mut bytes)?;
                Ok(Buffer::from_vec(bytes))
            }
        }
    }

    pub(super) fn damaged(&self, at: u64, what: impl Into<String>) -> FormatError {
        FormatError::damaged(self.path(), what).byte(self.at(at))
    }

    /// A byte's place in the file.
    fn at(&self, byte: u64) -> u64 {
        self.within.start.saturating_add(byte)
    }
}

/// Where a message lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Its description.
    pub(super) metadata: Range<u64>,
    /// Its buffers.
    pub(super) body: Range<u64>,
}

/// What stands at a place where a message may begin.
pub(super) enum Found {
    /// A message.
    Message(Frame),
    /// The mark after the last one, up to this byte.
    EndMark(u64),
    /// Nothing: the bytes end.
    Nothing,
}

/// Looks for a message. Nothing of it is beyond `limit`.
pub(super) fn find(source: &ArrowSource, at: u64, limit: u64) -> Result<Found, FormatError> {
    if at >= limit {
        return Ok(Found::Nothing);
    }
    let after = |from: u64, length: u64| {
        from.checked_add(length).filter(|end| *end <= limit).ok_or_else(|| {
            let what = format!(
                "a message needs {length} bytes from byte {from} on, and they end at byte {limit}: it is cut \
                 or damaged; copy it again from where it came"
            );
            source.damaged(at, what)
        })
    };
    let number = |at: u64| {
        let four = source.buffer(at..after(at, 4)?)?;
        Ok(four.first_chunk::<4>().copied().unwrap_or_default())
    };
    let first = number(at)?;
    // Streams before Arrow 0.15 have the length alone.
    let (length, start) = match first == CONTINUATION {
        true => (number(after(at, 4)?)?, after(at, 8)?),
        false => (first, after(at, 4)?),
    };
    let length = i32::from_le_bytes(length);
    if length == 0 {
        return Ok(Found::EndMark(start));
    }
    let Ok(length) = u64::try_from(length) else {
        return Err(source.damaged(at, format!("a message states a negative length of metadata, {length}")));
    };
    let metadata = start..after(start, length)?;
    let bytes = source.buffer(metadata.clone())?;
    let body = parsed(source, &bytes, at)?.bodyLength();
    let Ok(body) = u64::try_from(body) else {
        return Err(source.damaged(at, format!("a message states a negative length of its body, {body}")));
    };
    let body = metadata.end..after(metadata.end, body)?;
    Ok(Found::Message(Frame { metadata, body }))
}

/// A message's description, verified as a flatbuffer.
pub(super) fn parsed<'a>(
    source: &ArrowSource,
    metadata: &'a [u8],
    at: u64,
) -> Result<Message<'a>, FormatError> {
    let message = arrow_ipc::root_as_message(metadata)
        .map_err(|error| source.damaged(at, format!("a message's metadata cannot be parsed: {error}")))?;
    if message.version() < MetadataVersion::V4 || message.version() > MetadataVersion::V5 {
        let what = format!("a message has metadata of version {:?}; 4 and 5 are read", message.version());
        return Err(FormatError::refused(source.path(), what).byte(at));
    }
    Ok(message)
}

/// The schema that a message at a place has.
pub(super) fn schema_at(source: &ArrowSource, frame: &Frame) -> Result<SchemaRef, FormatError> {
    let at = frame.metadata.start;
    let bytes = source.buffer(frame.metadata.clone())?;
    let message = parsed(source, &bytes, at)?;
    if message.header_type() != MessageHeader::Schema {
        let what = format!("the first message is no schema but {:?}", message.header_type());
        return Err(source.damaged(at, what));
    }
    schema_of(source, message.header_as_schema(), at)
}

/// A schema.
pub(super) fn schema_of(
    source: &ArrowSource,
    schema: Option<arrow_ipc::Schema<'_>>,
    at: u64,
) -> Result<SchemaRef, FormatError> {
    let schema = schema.ok_or_else(|| source.damaged(at, "the schema is missing"))?;
    if !schema.endianness().equals_to_target_endianness() {
        let what =
            "its numbers are big-endian, which are not read: write it again on a little-endian machine";
        return Err(FormatError::refused(source.path(), what));
    }
    let schema: Result<Schema, String> =
        caught(|| try_fb_to_schema(schema).map_err(|error| error.to_string()));
    schema.map(SchemaRef::new).map_err(|what| source.damaged(at, format!("the schema is damaged: {what}")))
}
