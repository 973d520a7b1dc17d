//! A client of etcd, version 3: blocking calls over gRPC, each with a deadline.
//!
//! It knows etcd's messages, not what they are for: that is [`EtcdMetadata`](crate::metadata::EtcdMetadata).
//!
//! # How it works
//!
//! The connections of a client live on a thread of their own, with a runtime for that thread alone. A call
//! hands its work to that thread and waits for a channel. So it blocks the thread that calls and nothing
//! else, and may come from any thread, one of another runtime among them. A runtime that all clients share
//! would need more threads to be as fair, and an owner that ends it.
//!
//! One endpoint is asked until it fails; then the next one is. What may be done twice is tried on one after
//! the other until the deadline. What may not (a transaction) is tried again only if it is certain that no
//! endpoint has taken it.

mod client;
mod endpoint;
mod failure;
mod options;
pub(crate) mod proto;
mod runtime;
mod session;

pub(crate) use self::client::{Calls, Client, Repeat};
pub(crate) use self::failure::Failure;
pub use self::options::EtcdOptions;
pub(crate) use self::session::{Answer, Session};
