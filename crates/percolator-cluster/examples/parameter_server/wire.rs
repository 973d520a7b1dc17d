//! What trainers and servers say to each other: messages of protobuf, each after its length in bytes, four of
//! them, the highest first.
//!
//! A peer may be anything that connects. So a length is compared with what is allowed before memory is taken
//! for it, and every wait for a peer has an end.

use std::io;
use std::time::Duration;

use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

/// How long a message may take, once it has begun.
pub(crate) const MESSAGE_WITHIN: Duration = Duration::from_secs(10);
/// What a message may have beside the numbers of a shard.
const OTHER_BYTES: usize = 4096;

/// What a trainer asks of the server of a shard.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Request {
    /// Who it takes the server for. An address that was found may be another server's by now.
    #[prost(string, tag = "1")]
    pub(crate) job: String,
    #[prost(uint32, tag = "2")]
    pub(crate) shard: u32,
    #[prost(uint32, tag = "3")]
    pub(crate) of: u32,
    #[prost(oneof = "Ask", tags = "4, 5, 6")]
    pub(crate) ask: Option<Ask>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Ask {
    /// The weights of the shard, please.
    #[prost(message, tag = "4")]
    Pull(Pull),
    /// Change them along a gradient. The answer has the weights after that.
    #[prost(message, tag = "5")]
    Push(Push),
    /// Are you there? Anybody may ask that, whoever the server is.
    #[prost(message, tag = "6")]
    Probe(Probe),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Pull {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Probe {}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Push {
    /// Which trainer it is: a number that no other has.
    #[prost(fixed64, tag = "1")]
    pub(crate) trainer: u64,
    /// Counts the trainer's gradients. One that comes twice, because its answer was lost, is taken once.
    #[prost(uint64, tag = "2")]
    pub(crate) sequence: u64,
    #[prost(float, repeated, tag = "3")]
    pub(crate) gradient: Vec<f32>,
}

/// What a server answers.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Answer {
    #[prost(oneof = "Said", tags = "1, 2, 3")]
    pub(crate) said: Option<Said>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub(crate) enum Said {
    #[prost(message, tag = "1")]
    Weights(Weights),
    #[prost(message, tag = "2")]
    Refused(Refused),
    #[prost(message, tag = "3")]
    Present(Present),
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Weights {
    /// How many gradients they are the result of.
    #[prost(uint64, tag = "1")]
    pub(crate) updates: u64,
    #[prost(float, repeated, tag = "2")]
    pub(crate) weights: Vec<f32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Refused {
    #[prost(string, tag = "1")]
    pub(crate) message: String,
    /// Whether another server, or the same one later, may answer.
    #[prost(bool, tag = "2")]
    pub(crate) may_pass: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Present {
    #[prost(string, tag = "1")]
    pub(crate) job: String,
    #[prost(uint32, tag = "2")]
    pub(crate) shard: u32,
    #[prost(uint64, tag = "3")]
    pub(crate) updates: u64,
}

/// Why a message does not come, or does not go.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error("the connection failed")]
    Io(#[from] io::Error),
    #[error("the peer closed the connection")]
    Closed,
    #[error("the peer closed the connection within a message: it has {stated} bytes")]
    Cut { stated: usize },
    #[error("a message of {stated} bytes: 1 to {allowed} are allowed; is this peer no {expected}?")]
    Length { stated: usize, allowed: usize, expected: &'static str },
    #[error("the message is none of this protocol")]
    Message(#[from] prost::DecodeError),
    #[error("the peer did not {what} within {within:?}")]
    Slow { what: &'static str, within: Duration },
}

/// What may come from a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    /// Who the peer should be.
    pub(crate) peer: &'static str,
    /// The most numbers that a message has.
    pub(crate) numbers: usize,
    /// How long it is waited for a message to begin.
    pub(crate) begins_within: Duration,
}

impl Expected {
    fn bytes_max(&self) -> usize {
        self.numbers.saturating_mul(size_of::<f32>()).saturating_add(OTHER_BYTES)
    }
}

/// Receives a message.
pub(crate) async fn receive<M: Message + Default>(
    stream: &mut (impl AsyncRead + Unpin),
    expected: Expected,
) -> Result<M, WireError> {
    let within = expected.begins_within;
    let first = timeout(within, stream.read_u8()).await;
    let first = match first.map_err(|_| WireError::Slow { what: "say anything", within })? {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Err(WireError::Closed),
        first => first?,
    };
    let rest = timeout(MESSAGE_WITHIN, receive_rest(stream, first, expected)).await;
    rest.map_err(|_| WireError::Slow { what: "finish a message", within: MESSAGE_WITHIN })?
}

async fn receive_rest<M: Message + Default>(
    stream: &mut (impl AsyncRead + Unpin),
    first: u8,
    expected: Expected,
) -> Result<M, WireError> {
    let cut = |stated| {
        move |error: io::Error| match error.kind() {
            io::ErrorKind::UnexpectedEof => WireError::Cut { stated },
            _ => WireError::Io(error),
        }
    };
    let mut length = [first, 0, 0, 0];
    stream.read_exact(&mut length[1..]).await.map_err(cut(length.len()))?;
    let stated = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    let allowed = expected.bytes_max();
    if stated == 0 || stated > allowed {
        return Err(WireError::Length { stated, allowed, expected: expected.peer });
    }
    let mut bytes = vec![0; stated];
    stream.read_exact(&mut bytes).await.map_err(cut(stated))?;
    Ok(M::decode(&*bytes)?)
}

/// Sends a message.
pub(crate) async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &impl Message,
) -> Result<(), WireError> {
    let length = message.encoded_len();
    let stated = u32::try_from(length).map_err(|_| {
        let allowed = usize::try_from(u32::MAX).unwrap_or(usize::MAX);
        WireError::Length { stated: length, allowed, expected: "peer with so large a shard" }
    })?;
    let mut bytes = Vec::with_capacity(length.saturating_add(size_of::<u32>()));
    bytes.extend(stated.to_be_bytes());
    message.encode(&mut bytes).expect("a vector grows as it must");
    match timeout(MESSAGE_WITHIN, stream.write_all(&bytes)).await {
        Ok(sent) => Ok(sent?),
        Err(_) => Err(WireError::Slow { what: "take a message", within: MESSAGE_WITHIN }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: Expected =
        Expected { peer: "trainer", numbers: 100, begins_within: Duration::from_secs(60) };

    fn received(bytes: &[u8]) -> Result<Request, WireError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut bytes = bytes;
        runtime.block_on(receive(&mut bytes, EXPECTED))
    }

    fn sent(message: &impl Message) -> Vec<u8> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut bytes = Vec::new();
        runtime.block_on(send(&mut bytes, message)).unwrap();
        bytes
    }

    fn push() -> Request {
        let push = Push { trainer: u64::MAX, sequence: u64::MAX, gradient: vec![0.5; EXPECTED.numbers] };
        Request { job: "digits".repeat(100), shard: 1, of: u32::MAX, ask: Some(Ask::Push(push)) }
    }

    #[test]
    fn what_is_sent_is_received() {
        for message in [push(), Request { ask: Some(Ask::Pull(Pull {})), ..Request::default() }] {
            assert_eq!(received(&sent(&message)).unwrap(), message);
        }
        assert!(matches!(received(&[]), Err(WireError::Closed)));
    }

    #[test]
    fn a_message_may_be_cut_anywhere() {
        let bytes = sent(&push());
        for length in 1..bytes.len() {
            let error = received(&bytes[..length]).unwrap_err();
            assert!(matches!(error, WireError::Cut { .. }), "{length}: {error}");
        }
    }

    #[test]
    fn a_length_is_judged_before_it_is_used() {
        for stated in [0, 4497, u32::MAX] {
            let error = received(&stated.to_be_bytes()).unwrap_err().to_string();
            assert!(
                error.contains(&format!("a message of {stated} bytes: 1 to 4496 are allowed")),
                "{error}"
            );
        }
        // Somebody who takes it for another kind of server.
        let error = received(b"GET / HTTP/1.1\r\n\r\n").unwrap_err().to_string();
        assert!(error.contains("is this peer no trainer?"), "{error}");
    }

    #[test]
    fn other_bytes_are_no_message() {
        let mut bytes = 40_u32.to_be_bytes().to_vec();
        bytes.extend([0xff; 40]);
        assert!(matches!(received(&bytes), Err(WireError::Message(_))));
    }
}
