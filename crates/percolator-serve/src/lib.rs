//! Feeds for whoever connects.

mod client;
mod columns;
#[cfg(feature = "fleet")]
mod fleet;
mod flight;
#[doc(hidden)]
pub mod fuzz;
mod grpc;
mod local;
mod message;
mod request;
mod server;
mod ticket;

pub use self::client::{
    Client, ClientBuilder, ClientError, Discover, FeedConnect, LaneCloser, RemoteArray, RemoteBatch,
    RemoteFeed, RemoteField, RemoteFieldKind, RemoteLane,
};
#[cfg(feature = "fleet")]
pub use self::fleet::{Fleet, FleetError, Member};
pub use self::grpc::{Code, Status};
pub use self::request::{Column, FeedRequest, NetRequest, RequestError, Share};
pub use self::server::{
    ClientStatus, FeedObserver, FeedStatus, Limits, Method, ServeError, Server, ServerBuilder, ServerStatus,
    Tls,
};
pub use self::ticket::{KeyError, TicketError};
