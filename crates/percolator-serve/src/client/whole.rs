//! A stream whose bytes are there: what a lane would make of them.

use std::sync::Arc;

use super::batch::RemoteBatch;
use super::fields::RemoteColumns;
use super::receive::{Malformed, MessageReader, Received};
use super::slot::BodyPool;

/// The bytes of each column of each batch of a stream that comes in pieces.
pub(crate) fn batches_of<'b>(
    pieces: impl IntoIterator<Item = &'b [u8]>,
) -> Result<Vec<Vec<Vec<u8>>>, Malformed> {
    let mut reader = MessageReader::new(BodyPool::new(2));
    let (mut columns, mut batches) = (None::<Arc<RemoteColumns>>, Vec::new());
    for mut piece in pieces {
        while !piece.is_empty() {
            let Some(Received::Message(message)) = reader.push(&mut piece)? else { break };
            let Some(columns) = &columns else {
                columns = Some(Arc::new(RemoteColumns::of_message(&message.header)?));
                continue;
            };
            let batch = RemoteBatch::decode(columns, message)?;
            let bytes = columns.each().map(|field| batch.bytes(&field.name).map(<[u8]>::to_vec));
            batches.push(bytes.collect::<Result<_, _>>().map_err(|error| Malformed(error.to_string()))?);
        }
    }
    if reader.is_within() {
        Err(Malformed("a stream that ends within a message".to_owned()))
    } else {
        Ok(batches)
    }
}
