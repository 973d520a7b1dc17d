//! Files with one message, in protobuf's binary form or in text.

use std::path::Path;

use percolator_files::input_file;
use prost::bytes::Bytes;
use prost::{DecodeError, Message};
use prost_reflect::DynamicMessage;

use super::error::GraphError;
use crate::proto;
use crate::text::{self, TextFault};

/// The most bytes of a message, which is protobuf's own limit.
const MESSAGE_BYTES_MAX: u64 = (1 << 31) - 1;

/// A message's bytes, and the message.
pub(super) struct Read<M> {
    pub(super) bytes: Bytes,
    pub(super) message: M,
}

/// The bytes of a file. They are no more than a message can have.
pub(super) fn read(path: &Path) -> Result<Bytes, GraphError> {
    let bytes = input_file::read(path, MESSAGE_BYTES_MAX)
        .map_err(|error| GraphError::Io { path: path.to_owned(), error })?;
    // A single line break would be an empty text; it is the rest of a truncated file.
    if bytes.trim_ascii().is_empty() {
        return Err(GraphError::no_model(path, "the file is empty: it was cut, or never written"));
    }
    Ok(bytes.into())
}

/// Decodes a message from its binary form. `name` is its name in the schema.
pub(super) fn decode<M: Message + Default>(
    path: &Path,
    name: &'static str,
    bytes: Bytes,
) -> Result<Read<M>, GraphError> {
    let message = M::decode(&*bytes).map_err(damaged(path, name))?;
    Ok(Read { bytes, message })
}

fn damaged(path: &Path, message: &'static str) -> impl FnOnce(DecodeError) -> GraphError {
    let path = path.to_owned();
    move |error| {
        let text = error.to_string();
        let fault = text.strip_prefix("failed to decode Protobuf message: ").unwrap_or(&text).to_owned();
        GraphError::Binary { path, message, fault }
    }
}

/// Reads a message from its text form.
pub(super) fn parse<M: Message + Default>(
    path: &Path,
    name: &'static str,
    text: &str,
) -> Result<Read<M>, GraphError> {
    let parsed = text::parse(proto::descriptor(name), text).map_err(fault(path, name))?;
    decode(path, name, parsed.encode_to_vec().into())
}

fn fault(path: &Path, message: &'static str) -> impl FnOnce(TextFault) -> GraphError {
    let path = path.to_owned();
    move |TextFault { line, column, message: fault }| GraphError::Text { path, message, line, column, fault }
}

/// Prints a message in its text form, with all its fields: those as well that nothing has read.
pub(super) fn print(path: &Path, name: &'static str, bytes: &[u8]) -> Result<String, GraphError> {
    let message = DynamicMessage::decode(proto::descriptor(name), bytes).map_err(damaged(path, name))?;
    Ok(text::print(&message))
}

/// Returns the file's text, if it looks like some: a message in binary form nearly always has bytes that no
/// text has.
pub(super) fn as_text(bytes: &[u8]) -> Option<&str> {
    let is_control = |byte: &u8| matches!(byte, 0..=8 | 14..=31 | 127);
    if bytes.iter().any(is_control) { None } else { std::str::from_utf8(bytes).ok() }
}

/// The bytes of a file's text, which must be UTF-8.
pub(super) fn text_of<'a>(path: &Path, name: &'static str, bytes: &'a [u8]) -> Result<&'a str, GraphError> {
    bytes.utf8_chunks().next().map_or(Ok(""), |valid| match valid.invalid() {
        [] => Ok(valid.valid()),
        _ => Err(fault(path, name)(TextFault::new(valid.valid(), usize::MAX, "it is not UTF-8"))),
    })
}
