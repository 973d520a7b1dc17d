//! What of Arrow Flight's interface is spoken.
//!
//! Written from its public schema (`Flight.proto`), with its names, field numbers and types. Fields that are
//! left out here are skipped when they come, and have their defaults where they are not sent.

use bytes::Bytes;
use prost::{Enumeration, Message};

/// The path of each method begins with it.
pub(crate) const SERVICE: &str = "/arrow.flight.protocol.FlightService/";

/// What a client asks for: its request as bytes, or a name.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FlightDescriptor {
    #[prost(enumeration = "DescriptorType", tag = "1")]
    pub(crate) kind: i32,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) cmd: Bytes,
    #[prost(string, repeated, tag = "3")]
    pub(crate) path: Vec<String>,
}

/// Which half of a descriptor counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum DescriptorType {
    Unknown = 0,
    Path = 1,
    Cmd = 2,
}

/// What a client may take, and where.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FlightInfo {
    /// An encapsulated message of Arrow: its schema.
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) schema: Bytes,
    #[prost(message, optional, tag = "2")]
    pub(crate) flight_descriptor: Option<FlightDescriptor>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) endpoint: Vec<FlightEndpoint>,
    /// -1 if it is not known.
    #[prost(int64, tag = "4")]
    pub(crate) total_records: i64,
    /// -1 if it is not known.
    #[prost(int64, tag = "5")]
    pub(crate) total_bytes: i64,
    #[prost(bool, tag = "6")]
    pub(crate) ordered: bool,
    #[prost(bytes = "bytes", tag = "7")]
    pub(crate) app_metadata: Bytes,
}

/// One stream of a flight. Without a location, it is where the answer came from.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FlightEndpoint {
    #[prost(message, optional, tag = "1")]
    pub(crate) ticket: Option<Ticket>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) location: Vec<Location>,
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) app_metadata: Bytes,
}

/// An address.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Location {
    #[prost(string, tag = "1")]
    pub(crate) uri: String,
}

/// What a stream is asked for with.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ticket {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) ticket: Bytes,
}

/// A schema alone.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SchemaResult {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) schema: Bytes,
}

/// Which flights are listed.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Criteria {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) expression: Bytes,
}

/// Something else to do.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Action {
    #[prost(string, tag = "1")]
    pub(crate) r#type: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) body: Bytes,
}

/// What it answers.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ActionResult {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) body: Bytes,
}

/// What can be done.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ActionType {
    #[prost(string, tag = "1")]
    pub(crate) r#type: String,
    #[prost(string, tag = "2")]
    pub(crate) description: String,
}

/// One message of a stream, as a client sends it. The server writes its own piece by piece:
/// [`message`](crate::message).
#[derive(Clone, PartialEq, Message)]
pub(crate) struct FlightData {
    #[prost(message, optional, tag = "1")]
    pub(crate) flight_descriptor: Option<FlightDescriptor>,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) data_header: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) app_metadata: Bytes,
    #[prost(bytes = "bytes", tag = "1000")]
    pub(crate) data_body: Bytes,
}
