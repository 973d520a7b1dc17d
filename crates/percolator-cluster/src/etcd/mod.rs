//! A client of etcd, version 3: blocking calls over gRPC, each with a deadline.
//!
//! It handles etcd's messages, not their purpose: that is [`EtcdMetadata`](crate::metadata::EtcdMetadata).
//!
//! # How it works
//!
//! The connections of a client live on a separate thread, with its own runtime. A call hands its work to that
//! thread and waits for a channel. So it blocks only the calling thread, and may come from any thread, even
//! one of another runtime. A runtime that all clients share would need more threads to be as fair, and an
//! owner that ends it.
//!
//! One endpoint is used until it fails; then the next one is. Requests that may be executed twice are tried
//! on one endpoint after the other until the deadline. One that may not (a transaction) is tried again only
//! if it is certain that no endpoint has executed it.

mod client;
mod endpoint;
mod failure;
mod options;
pub(crate) mod rpc;
mod runtime;
mod session;

pub(crate) use self::client::{Calls, Client, Repeat};
pub(crate) use self::failure::Failure;
pub use self::options::EtcdOptions;
pub(crate) use self::session::Session;
