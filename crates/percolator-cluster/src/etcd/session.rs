//! One attempt's view of etcd: a connection, and who asks.

use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status};

use super::proto::auth_client::AuthClient;
use super::proto::kv_client::KvClient;
use super::proto::lease_client::LeaseClient;
use super::proto::maintenance_client::MaintenanceClient;
use super::proto::watch_client::WatchClient;
use super::proto::{
    LeaseGrantResponse, LeaseKeepAliveResponse, LeaseRevokeResponse, LeaseTimeToLiveResponse, RangeResponse,
    ResponseHeader, StatusResponse, TxnResponse, WatchResponse,
};
use crate::metadata::{OPERATIONS_MAX, VALUE_BYTES_MAX};

/// The most bytes of an answer: the records of all conditions, each as large as etcd takes them by default.
pub(super) const ANSWER_BYTES_MAX: usize = OPERATIONS_MAX * (VALUE_BYTES_MAX / 2 * 3);

/// What says who asks.
pub(super) type Token = MetadataValue<Ascii>;

/// A connection to an endpoint that has been checked.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(super) channel: Channel,
    pub(super) token: Option<Token>,
}

impl Session {
    /// A request of the one who asks. A member that knows of no leader refuses it at once, instead of waiting
    /// for one.
    pub(crate) fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }

    pub(crate) fn records(&self) -> KvClient<Channel> {
        KvClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(crate) fn watch(&self) -> WatchClient<Channel> {
        WatchClient::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    pub(crate) fn leases(&self) -> LeaseClient<Channel> {
        LeaseClient::new(self.channel.clone())
    }

    pub(super) fn maintenance(&self) -> MaintenanceClient<Channel> {
        MaintenanceClient::new(self.channel.clone())
    }

    pub(super) fn login(&self) -> AuthClient<Channel> {
        AuthClient::new(self.channel.clone())
    }

    /// An answer that a stream owes.
    pub(crate) fn due<T>(answer: Option<T>) -> Result<T, Status> {
        answer.ok_or_else(|| Status::unavailable("the stream ended without an answer"))
    }
}

/// What says which cluster it comes from.
pub(crate) trait Answer: Send + 'static {
    /// What all of etcd's answers begin with.
    fn header(&self) -> Option<&ResponseHeader>;
}

macro_rules! answers {
    ($($message:ty),*) => {
        $(impl Answer for $message {
            fn header(&self) -> Option<&ResponseHeader> {
                self.header.as_ref()
            }
        })*
    };
}

answers!(
    LeaseGrantResponse,
    LeaseKeepAliveResponse,
    LeaseRevokeResponse,
    LeaseTimeToLiveResponse,
    RangeResponse,
    StatusResponse,
    TxnResponse,
    WatchResponse
);

/// A stream with its first answer.
impl<S: Send + 'static, A: Answer> Answer for (S, A) {
    fn header(&self) -> Option<&ResponseHeader> {
        self.1.header()
    }
}
