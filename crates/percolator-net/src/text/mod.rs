//! Protobuf's text format, as far as a net needs it.
//!
//! The text is parsed in one pass, directly into the messages of [`crate::proto`], without a syntax tree.
//! Fields that no data layer needs are checked for their syntax and skipped, so gigabytes of weights in text
//! cost no memory. The rules are those of protobuf's own parser, which Caffe uses: unknown fields of the
//! messages that matter here are refused, and a field that is not repeated may be set once.

mod lexer;
mod literal;
pub(super) mod notes;
mod reader;
mod schema;
mod skip;
mod value;

use self::notes::Notes;
use self::reader::Reader;
use super::BYTES_MAX;
use super::error::{NetCause, NetError};
use crate::proto::NetParameter;

/// Parses a net in text format. Comments may have any bytes; the rest is UTF-8.
///
/// # Errors
///
/// The first error, with its place.
pub(super) fn parse(text: &[u8]) -> Result<(NetParameter, Notes), NetError> {
    if text.len() as u64 > BYTES_MAX {
        return Err(NetError::new(NetCause::TooLarge { allowed: BYTES_MAX }));
    }
    let mut reader = Reader::new(text)?;
    let net = reader.whole()?;
    Ok((net, reader.notes))
}
