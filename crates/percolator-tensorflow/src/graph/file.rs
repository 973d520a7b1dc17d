//! Files with one message, in protobuf's binary form or in text.

use std::io::Read as _;
use std::path::Path;

use percolator_files::input_file;
use prost::Message;
use prost::bytes::Bytes;

use super::error::GraphError;
use crate::text::{self, Parsed, Style};
use crate::{proto, wire};

/// The most bytes of a message, which is protobuf's own limit.
const MESSAGE_BYTES_MAX: u64 = (1 << 31) - 1;

/// A message's bytes, and the message.
pub(super) struct Read<M> {
    pub(super) bytes: Bytes,
    pub(super) message: M,
    /// How its text is written, if it was in text.
    pub(super) style: Option<Style>,
}

/// The bytes of a file. They are no more than a message can have.
pub(super) fn read(path: &Path) -> Result<Bytes, GraphError> {
    let io = |error| GraphError::io(path, error);
    let (file, length) = input_file::open(path).map_err(io)?;
    let room = usize::try_from(length.min(MESSAGE_BYTES_MAX)).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(room).map_err(|_| io(std::io::ErrorKind::OutOfMemory.into()))?;
    file.take(MESSAGE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > MESSAGE_BYTES_MAX {
        let (path, allowed) = (path.to_owned(), MESSAGE_BYTES_MAX);
        return Err(GraphError::TooLarge { path, found: length, allowed });
    }
    // A single line break would be an empty text; it is the rest of a truncated file.
    if bytes.trim_ascii().is_empty() {
        return Err(GraphError::Empty { path: path.to_owned() });
    }
    Ok(bytes.into())
}

/// Decodes a message from its binary form. `name` is its name in the schema.
pub(super) fn decode<M: Message + Default>(
    path: &Path,
    name: &'static str,
    bytes: Bytes,
) -> Result<Read<M>, GraphError> {
    let binary = |offset, field, fault| {
        let path = path.to_owned();
        GraphError::Binary { path, message: name, offset, field, fault }
    };
    // This check is for the fault's place, and allows what the decoder allows.
    if let Some(descriptor) = proto::descriptor(name) {
        let checked = wire::check(&descriptor, &bytes);
        checked.map_err(|fault| binary(fault.at, fault.path, fault.message))?;
    }
    let decoded = M::decode(&*bytes);
    let message = decoded.map_err(|error| binary(0, String::new(), error.to_string()))?;
    Ok(Read { bytes, message, style: None })
}

/// Reads a message from its text form.
pub(super) fn parse<M: Message + Default>(
    path: &Path,
    name: &'static str,
    text: &str,
) -> Result<Read<M>, GraphError> {
    let fault = |line, column, fault| {
        let path = path.to_owned();
        GraphError::Text { path, message: name, line, column, fault }
    };
    let Some(descriptor) = proto::descriptor(name) else {
        return Err(fault(1, 1, "the schema does not have it".to_owned()));
    };
    let parsed = text::parse(&descriptor, text);
    let Parsed { bytes, style } = parsed.map_err(|found| fault(found.line, found.column, found.message))?;
    Ok(Read { style: Some(style), ..decode(path, name, bytes.into())? })
}

/// Prints a message in its text form.
pub(super) fn print(name: &'static str, bytes: &[u8], style: Style) -> String {
    proto::descriptor(name).map_or_else(String::new, |descriptor| text::print(&descriptor, bytes, style))
}

/// Returns the file's text, if it looks like some: a message in binary form nearly always has bytes that no
/// text has.
pub(super) fn as_text(bytes: &[u8]) -> Option<&str> {
    let is_control = |byte: &u8| matches!(byte, 0..=8 | 14..=31 | 127);
    if bytes.iter().any(is_control) { None } else { std::str::from_utf8(bytes).ok() }
}

/// The bytes of a file's text, which must be UTF-8.
pub(super) fn text_of<'a>(path: &Path, name: &'static str, bytes: &'a [u8]) -> Result<&'a str, GraphError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|byte| **byte != b'\n').count() + 1;
        let (path, fault) = (path.to_owned(), "it is not UTF-8".to_owned());
        GraphError::Text { path, message: name, line, column, fault }
    })
}
