//! gRPC over HTTP/2: a message behind five bytes, and a status after the last one.

use std::fmt;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use prost::Message;

/// Before each message: whether it is compressed, and its length.
pub(crate) const PREFIX_BYTES: usize = 5;

/// The media type of requests and answers.
pub(crate) const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// The most bytes of a status's message: gRPC's implementations refuse headers of more than 8 KiB.
const MESSAGE_BYTES_MAX: usize = 2048;

/// How a call ended, if not well: gRPC's codes, of those that are used.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// The caller went away, or was told to.
    Cancelled,
    /// Something that nobody expected.
    Unknown,
    /// What was asked for cannot be.
    InvalidArgument,
    /// It took too long.
    DeadlineExceeded,
    /// There is no such file.
    NotFound,
    /// The caller may not have it.
    PermissionDenied,
    /// There is no room for it.
    ResourceExhausted,
    /// It is not the time for it.
    FailedPrecondition,
    /// There is no such method.
    Unimplemented,
    /// A fault of the server.
    Internal,
    /// The server is not there, or is about to go.
    Unavailable,
    /// The data are damaged.
    DataLoss,
    /// The caller did not say who it is.
    Unauthenticated,
    /// A code that is not used here.
    Other(u32),
}

impl Code {
    const KNOWN: [(Code, u32); 13] = [
        (Code::Cancelled, 1),
        (Code::Unknown, 2),
        (Code::InvalidArgument, 3),
        (Code::DeadlineExceeded, 4),
        (Code::NotFound, 5),
        (Code::PermissionDenied, 7),
        (Code::ResourceExhausted, 8),
        (Code::FailedPrecondition, 9),
        (Code::Unimplemented, 12),
        (Code::Internal, 13),
        (Code::Unavailable, 14),
        (Code::DataLoss, 15),
        (Code::Unauthenticated, 16),
    ];

    pub(crate) fn number(self) -> u32 {
        match self {
            Code::Other(number) => number,
            code => Self::KNOWN.iter().find(|(known, _)| *known == code).map_or(2, |(_, number)| *number),
        }
    }

    pub(crate) fn of(number: u32) -> Self {
        let known = Self::KNOWN.iter().find(|(_, known)| *known == number);
        known.map_or(Code::Other(number), |(code, _)| *code)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Code::Other(number) => write!(f, "code {number}"),
            code => write!(f, "{code:?}"),
        }
    }
}

/// Why a call failed: what its caller is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    /// The kind of failure.
    pub code: Code,
    /// What happened, and what to do.
    pub message: String,
}

impl Status {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Status { code, message: message.into() }
    }

    /// What follows the last message of an answer.
    pub(crate) fn trailers(outcome: &Result<(), Status>) -> HeaderMap {
        let mut trailers = HeaderMap::new();
        match outcome {
            Ok(()) => {
                trailers.insert(STATUS, HeaderValue::from_static("0"));
            }
            Err(status) => {
                trailers.insert(STATUS, HeaderValue::from(status.code.number()));
                trailers.insert(MESSAGE, escaped(&status.message));
            }
        }
        trailers
    }

    /// The outcome of a call, by its trailers or, if it had no messages, by its headers. `None` if they do
    /// not say.
    pub(crate) fn outcome(headers: &HeaderMap) -> Option<Result<(), Status>> {
        let number = headers.get(STATUS)?.to_str().ok()?.parse().ok()?;
        if number == 0 {
            return Some(Ok(()));
        }
        let message = headers.get(MESSAGE).map(|message| unescaped(message.as_bytes())).unwrap_or_default();
        Some(Err(Status { code: Code::of(number), message }))
    }
}

/// A message as the value of a header: what is not printable ASCII is escaped, as gRPC has it.
fn escaped(message: &str) -> HeaderValue {
    let mut end = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let mut bytes = Vec::with_capacity(end);
    for &byte in &message.as_bytes()[..end] {
        match byte {
            b' '..=b'~' if byte != b'%' => bytes.push(byte),
            _ => bytes.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    HeaderValue::from_bytes(&bytes).expect("printable ASCII is the value of a header")
}

fn unescaped(message: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(message.len());
    let mut rest = message;
    while let [first, after @ ..] = rest {
        let code = after.get(..2).and_then(|code| str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A message with its prefix.
pub(crate) fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut framed = BytesMut::with_capacity(PREFIX_BYTES + length);
    put_prefix(&mut framed, length);
    message.encode(&mut framed).expect("the buffer grows");
    framed.freeze()
}

/// Writes the prefix of a message of this length.
///
/// # Panics
///
/// If it is longer than gRPC can say.
pub(crate) fn put_prefix(to: &mut BytesMut, length: usize) {
    to.put_u8(0);
    to.put_u32(u32::try_from(length).expect("larger messages are refused before"));
}

/// Takes the messages of a call from its bytes, as they come.
#[derive(Debug)]
pub(crate) struct Unframer {
    held: BytesMut,
    /// The most bytes of a message.
    most: usize,
}

impl Unframer {
    pub(crate) fn new(most: usize) -> Self {
        Unframer { held: BytesMut::new(), most }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
    }

    /// Whether something of a message is there.
    pub(crate) fn is_within(&self) -> bool {
        !self.held.is_empty()
    }

    /// The next message, if it is whole.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let Some((prefix, _)) = self.held.split_first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        let [is_compressed, length @ ..] = *prefix;
        if is_compressed != 0 {
            let message = "compressed messages are not read here: send them as they are";
            return Err(Status::new(Code::Unimplemented, message));
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > self.most {
            let message = format!("a message of {length} bytes: at most {} are read", self.most);
            return Err(Status::new(Code::ResourceExhausted, message));
        }
        if self.held.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.held.advance(PREFIX_BYTES);
        Ok(Some(self.held.split_to(length).freeze()))
    }
}

/// A message from its bytes.
pub(crate) fn decoded<M: Message + Default>(bytes: Bytes) -> Result<M, Status> {
    M::decode(bytes).map_err(|error| {
        Status::new(Code::InvalidArgument, format!("this is no message of Flight's method: {error}"))
    })
}
