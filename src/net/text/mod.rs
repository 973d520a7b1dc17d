//! Protobuf's text format, as far as a net needs it.
//!
//! The text is read once, from front to back, straight into the messages of [`crate::proto`]: no tree of it is
//! kept. What no data layer needs is checked for its form and passed over, so a text of gigabytes of weights
//! costs no memory. The rules are those of protobuf's own parser, which Caffe uses: unknown fields of the
//! messages that matter here are refused, and a field that is not repeated stands once.

mod lexer;
mod literal;
pub(super) mod notes;
mod passing;
mod reader;
mod schema;
mod value;

use self::notes::Notes;
use self::reader::Reader;
use super::BYTES_MAX;
use super::error::{NetCause, NetError};
use crate::proto::NetParameter;

/// Reads the text of a net. Comments may be of any bytes, the rest is UTF-8.
///
/// # Errors
///
/// The first thing that is wrong, with its place.
pub(super) fn parse(text: &[u8]) -> Result<(NetParameter, Notes), NetError> {
    if text.len() as u64 > BYTES_MAX {
        return Err(NetError::new(NetCause::TooLarge { allowed: BYTES_MAX }));
    }
    let mut reader = Reader::new(text)?;
    let net = reader.whole()?;
    Ok((net, reader.notes))
}
