//! What is said over a Unix socket to a client of the same machine, whose batches do not travel.
//!
//! After the first four bytes, which tell it from HTTP, each message is a length (four bytes, the lowest
//! first) and JSON. The client says [`Hello`]; the server answers with [`FromServer::Schema`], and then says
//! [`FromServer::Batch`] for each batch: which region of memory it is in, and where each array is. The
//! descriptor of a region comes with the first batch that is in it. The client says [`FromClient`] when it is
//! done with a batch, and when nobody reads its memory any more. Numbers of batches and of regions never
//! start again.
//!
//! Memory is written again only after the client has released it. What it has not released when the
//! connection ends, for whatever reason, stays as it is for as long as the client has it mapped: the server's
//! ring gets other memory in its place.

use serde::{Deserialize, Serialize};

use crate::message::BatchNote;
use crate::ticket::TICKET_BYTES_MAX;

/// What a connection begins with.
pub(crate) const MAGIC: [u8; 4] = *b"PLM1";

/// The most bytes of a client's message.
pub(crate) const CLIENT_BYTES_MAX: usize = TICKET_BYTES_MAX + 4096;

/// The most bytes of a server's message. Columns that were asked for are in it, as numbers of each row.
pub(crate) const SERVER_BYTES_MAX: usize = 256 << 20;

/// What a client says first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hello {
    pub(crate) ticket: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) window: Option<usize>,
}

/// What it says later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromClient {
    /// All batches up to this number are done with.
    Acknowledged(u64),
    /// The memory of this batch is no longer read.
    Released(u64),
}

/// What the server says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromServer {
    /// The schema as a message of Arrow, in base64.
    Schema(String),
    Batch(Box<LocalBatch>),
    /// The stream has ended: well, or with a code of gRPC and a message.
    End(Option<(u32, String)>),
}

/// A batch, by its place.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LocalBatch {
    pub(crate) note: BatchNote,
    /// The number of the region, and its length in bytes.
    pub(crate) region: u64,
    pub(crate) region_bytes: usize,
    /// Whether its descriptor comes with this message.
    pub(crate) is_new: bool,
    /// Regions in which there will be no more batches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) gone: Vec<u64>,
    /// The offset and the length of each array, in the order of the fields: the elements, then the lengths or
    /// offsets.
    pub(crate) arrays: Vec<(usize, usize)>,
    /// The columns that were asked for, in the order of the schema.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) columns: Vec<Vec<u64>>,
}

/// A message with its length.
pub(crate) fn framed(message: &impl Serialize) -> Vec<u8> {
    let mut framed = vec![0; 4];
    serde_json::to_writer(&mut framed, message).expect("texts and numbers can be written");
    let length = u32::try_from(framed.len() - 4).expect("messages are bounded by their parts");
    framed[..4].copy_from_slice(&length.to_le_bytes());
    framed
}

/// Takes messages from bytes as they come. After an error, there are no more.
#[derive(Debug)]
pub(crate) struct Parts {
    held: Vec<u8>,
    /// The most bytes of a message.
    most: usize,
}

/// Why bytes are no messages.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PartsError {
    #[error("a message of {found} bytes, where at most {most} are read")]
    TooLong { found: usize, most: usize },
    #[error("a message that is none of this protocol: {0}")]
    Form(serde_json::Error),
}

impl Parts {
    pub(crate) fn new(most: usize) -> Self {
        Parts { held: Vec::new(), most }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// The next message, if it is whole.
    pub(crate) fn next<M: for<'de> Deserialize<'de>>(&mut self) -> Result<Option<M>, PartsError> {
        let Some((length, rest)) = self.held.split_first_chunk::<4>() else { return Ok(None) };
        let found = u32::from_le_bytes(*length) as usize;
        if found > self.most {
            return Err(PartsError::TooLong { found, most: self.most });
        }
        let Some(message) = rest.get(..found) else { return Ok(None) };
        let message = serde_json::from_slice(message).map_err(PartsError::Form)?;
        self.held.drain(..4 + found);
        Ok(Some(message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_in_any_pieces() {
        let messages =
            [FromClient::Acknowledged(3), FromClient::Released(u64::MAX), FromClient::Acknowledged(4)];
        let bytes: Vec<u8> = messages.iter().flat_map(framed).collect();
        for piece in 1..=bytes.len() {
            let (mut parts, mut found) = (Parts::new(64), Vec::new());
            for bytes in bytes.chunks(piece) {
                parts.push(bytes);
                while let Some(message) = parts.next::<FromClient>().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, messages, "in pieces of {piece}");
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let refused = |bytes: &[u8]| {
            let mut parts = Parts::new(CLIENT_BYTES_MAX);
            parts.push(bytes);
            parts.next::<FromClient>().unwrap_err().to_string()
        };
        assert!(refused(&[0xff; 4]).starts_with("a message of 4294967295 bytes"));
        assert!(refused(&framed(&"{}")).starts_with("a message that is none of this protocol: "));
    }
}
