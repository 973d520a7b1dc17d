//! What of etcd's interface, version 3, is asked for: records, transactions, leases, waiting for changes,
//! logging in, and which version answers.
//!
//! Written from etcd's public schema (`api/etcdserverpb/rpc.proto`, `api/mvccpb/kv.proto`), with its names,
//! field numbers and types. Fields that are left out here are skipped when they come, and have their defaults
//! where they are not sent. What came after etcd 3.3 says so, and an older one may leave it out.

#[cfg(test)]
mod tests;

use prost::{Enumeration, Message, Oneof};

use crate::metadata::{OPERATIONS_MAX, VALUE_BYTES_MAX};

/// The most bytes of any answer. The largest have the records of all conditions, each as large as etcd takes
/// them by default.
pub(super) const ANSWER_BYTES_MAX: usize = OPERATIONS_MAX * (VALUE_BYTES_MAX / 2 * 3);

/// A message that is sent to one of etcd's methods.
pub(crate) trait Question: Message + Clone + 'static {
    /// The path of the method.
    const METHOD: &'static str;
    /// What it answers with.
    type Answer: Answer + Message + Default;
}

/// One that is asked once, and answered once.
pub(crate) trait Unary: Question {}

/// One that is asked on a stream, and answered on another.
pub(crate) trait Streamed: Question {}

/// What says which cluster it comes from.
pub(crate) trait Answer: Send + 'static {
    /// What all of etcd's answers begin with.
    fn header(&self) -> Option<&ResponseHeader>;
}

macro_rules! methods {
    ($($kind:ident $method:literal: $question:ty => $answer:ty;)*) => { $(
        impl Question for $question {
            const METHOD: &'static str = concat!("/etcdserverpb.", $method);
            type Answer = $answer;
        }

        impl $kind for $question {}

        impl Answer for $answer {
            fn header(&self) -> Option<&ResponseHeader> {
                self.header.as_ref()
            }
        }
    )* };
}

methods! {
    Unary "KV/Range": RangeRequest => RangeResponse;
    Unary "KV/Txn": TxnRequest => TxnResponse;
    Streamed "Watch/Watch": WatchRequest => WatchResponse;
    Unary "Lease/LeaseGrant": LeaseGrantRequest => LeaseGrantResponse;
    Unary "Lease/LeaseRevoke": LeaseRevokeRequest => LeaseRevokeResponse;
    Streamed "Lease/LeaseKeepAlive": LeaseKeepAliveRequest => LeaseKeepAliveResponse;
    Unary "Lease/LeaseTimeToLive": LeaseTimeToLiveRequest => LeaseTimeToLiveResponse;
    Unary "Maintenance/Status": StatusRequest => StatusResponse;
    Unary "Auth/Authenticate": AuthenticateRequest => AuthenticateResponse;
}

/// A stream with its first answer.
impl<S: Send + 'static, A: Answer> Answer for (S, A) {
    fn header(&self) -> Option<&ResponseHeader> {
        self.1.header()
    }
}

/// No answer, where nothing was asked but a connection.
impl Answer for () {
    fn header(&self) -> Option<&ResponseHeader> {
        None
    }
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    /// The store's revision when the request was applied; 0 if it has nothing to do with the store.
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(crate) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
    /// 0 for none.
    #[prost(int64, tag = "6")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    /// The end, which is not part of the range; empty for the one key, one zero byte for no end.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    /// 0 for no limit.
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    /// 0 for now.
    #[prost(int64, tag = "4")]
    pub(crate) revision: i64,
    #[prost(bool, tag = "9")]
    pub(crate) count_only: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(crate) more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}

/// Without its `range_end`: one key.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Operation", tags = "1, 2, 3")]
    pub(crate) request: Option<Operation>,
}

/// What a transaction does.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Operation {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

/// The answer to a look-up. The answer to a put or a removal is another message, which is skipped.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    pub(crate) range: Option<RangeResponse>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum CompareResult {
    Equal = 0,
    Less = 2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum CompareTarget {
    Version = 0,
    Create = 1,
    Mod = 2,
    Lease = 4,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compare {
    #[prost(enumeration = "CompareResult", tag = "1")]
    pub(crate) result: i32,
    #[prost(enumeration = "CompareTarget", tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    #[prost(oneof = "Compared", tags = "5, 6, 8")]
    pub(crate) target_union: Option<Compared>,
}

/// What a key's number is compared with. Of a key that is not there, each number is 0.
#[derive(Clone, Copy, PartialEq, Oneof)]
pub(crate) enum Compared {
    #[prost(int64, tag = "5")]
    CreateRevision(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    #[prost(int64, tag = "8")]
    Lease(i64),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) create_request: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) start_revision: i64,
    /// Large answers come in parts (3.4).
    #[prost(bool, tag = "8")]
    pub(crate) fragment: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    /// Not 0 if what happened at the revision asked for is no longer known.
    #[prost(int64, tag = "5")]
    pub(crate) compact_revision: i64,
    /// Of 3.4 and later.
    #[prost(string, tag = "6")]
    pub(crate) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

/// Something has changed. What it was is not asked.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Event {}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
    #[prost(string, tag = "4")]
    pub(crate) error: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseRevokeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    /// 0 if there is no such lease.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseTimeToLiveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct LeaseTimeToLiveResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    /// -1 if there is no such lease.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    /// The version of the member that answers.
    #[prost(string, tag = "2")]
    pub(crate) version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AuthenticateResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}
