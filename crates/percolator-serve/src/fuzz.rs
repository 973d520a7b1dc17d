//! What hostile bytes meet first, for fuzz targets. It is not part of the interface.

use bytes::Bytes;
use percolator::feed::FeedSpec;
use prost::Message as _;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::client;
use crate::flight::FlightData;
use crate::grpc::{self, Status, Unframer};
use crate::local::{FromClient, FromServer, Hello, Parts, framed};
use crate::request::{FeedRequest, RequestError};
use crate::ticket::{Key, TicketContent, TicketError};

/// Returns what a request describes, as far as that can be told without data.
///
/// # Errors
///
/// [`RequestError`] if it describes none.
pub fn described(request: &FeedRequest) -> Result<FeedSpec, RequestError> {
    request.builder().map(|builder| builder.spec().clone())
}

/// A server's key.
#[derive(Debug)]
pub struct TicketKey(Key);

/// What a ticket says.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub struct TicketRead {
    /// The feed.
    pub request: FeedRequest,
    /// The rank.
    pub rank: usize,
    /// The ticket as the server would write it.
    pub again: String,
}

impl TicketKey {
    /// The key of these bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        TicketKey(Key::of(bytes))
    }

    /// Returns a ticket of these parts with the right signatures, if there are as many parts as a ticket has.
    #[must_use]
    pub fn signed(&self, ticket: &str) -> Option<String> {
        self.0.signed_anew(ticket)
    }

    /// Reads a ticket.
    ///
    /// # Errors
    ///
    /// [`TicketError`] if it is none.
    pub fn read(&self, ticket: &str) -> Result<TicketRead, TicketError> {
        let (TicketContent { stream, from }, _) = self.0.read(ticket)?;
        let mut again = self.0.ticket(&stream)?;
        if let Some(position) = from {
            let position = self.0.position(&again, position);
            again.push_str(&position);
        }
        Ok(TicketRead { request: stream.request, rank: stream.rank, again })
    }
}

/// Takes the messages of a call from its bytes, as the server does. Returns them, and how that ends: whether
/// within a message, or with an error.
pub fn messages<'b>(
    pieces: impl IntoIterator<Item = &'b [u8]>,
    most: usize,
) -> (Vec<Bytes>, Result<bool, Status>) {
    let (mut unframer, mut found) = (Unframer::new(most), Vec::new());
    for piece in pieces {
        unframer.push(piece);
        loop {
            match unframer.next() {
                Ok(Some(message)) => found.push(message),
                Ok(None) => break,
                Err(status) => return (found, Err(status)),
            }
        }
    }
    (found, Ok(unframer.is_within()))
}

/// Reads what a client says in an exchange, and writes it again.
///
/// # Errors
///
/// [`Status`] if it is no message.
pub fn said(message: Bytes) -> Result<Vec<u8>, Status> {
    grpc::decoded::<FlightData>(message).map(|message| message.encode_to_vec())
}

/// Returns what a client makes of a status that a server sends, if it is one.
#[must_use]
pub fn told(status: &Status) -> Option<Result<(), Status>> {
    Status::outcome(&Status::trailers(&Err(status.clone())))
}

/// Who speaks over a socket of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// A client: first which stream it wants, and then what it is done with.
    Client,
    /// A server.
    Server,
}

/// Reads what is said over a socket of one machine. Returns the messages, each written again, and the error
/// if there is one.
pub fn local_messages<'b>(
    pieces: impl IntoIterator<Item = &'b [u8]>,
    speaker: Speaker,
    most: usize,
) -> (Vec<Vec<u8>>, Result<(), String>) {
    let (mut parts, mut found) = (Parts::new(most), Vec::new());
    for piece in pieces {
        parts.push(piece);
        loop {
            let next = match speaker {
                Speaker::Server => next::<FromServer>(&mut parts),
                Speaker::Client if found.is_empty() => next::<Hello>(&mut parts),
                Speaker::Client => next::<FromClient>(&mut parts),
            };
            match next {
                Ok(Some(message)) => found.push(message),
                Ok(None) => break,
                Err(error) => return (found, Err(error)),
            }
        }
    }
    (found, Ok(()))
}

fn next<M: DeserializeOwned + Serialize>(parts: &mut Parts) -> Result<Option<Vec<u8>>, String> {
    match parts.next::<M>() {
        Ok(message) => Ok(message.map(|message| framed(&message))),
        Err(error) => Err(error.to_string()),
    }
}

/// Takes the batches of a stream from its bytes, as a client does. Returns the bytes of each column of each.
///
/// # Errors
///
/// What is wrong with it.
pub fn batches<'b>(pieces: impl IntoIterator<Item = &'b [u8]>) -> Result<Vec<Vec<Vec<u8>>>, String> {
    client::batches_of(pieces).map_err(|client::Malformed(found)| found)
}
