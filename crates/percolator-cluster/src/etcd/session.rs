//! One attempt's view of etcd: a connection, and who asks.

use tokio_stream::Stream;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use super::rpc::{ANSWER_BYTES_MAX, Streamed, Unary};

/// What says who asks.
pub(super) type Token = MetadataValue<Ascii>;

/// A connection to an endpoint that has been checked.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(super) channel: Channel,
    pub(super) token: Option<Token>,
}

impl Session {
    /// Asks one question.
    pub(crate) async fn ask<Q: Unary>(&self, question: Q) -> Result<Q::Answer, Status> {
        self.send(self.request(question)).await
    }

    /// The same, also where a member knows of no leader.
    pub(super) async fn ask_any_member<Q: Unary>(&self, question: Q) -> Result<Q::Answer, Status> {
        self.send(self.request_of_any_member(question)).await
    }

    /// Asks questions one after the other. Returns what will be answered, and what is answered first.
    pub(crate) async fn ask_on<Q: Streamed>(
        &self,
        questions: impl Stream<Item = Q> + Send + 'static,
    ) -> Result<(Streaming<Q::Answer>, Q::Answer), Status> {
        let (path, codec) = (PathAndQuery::from_static(Q::METHOD), ProstCodec::<Q, Q::Answer>::default());
        let asked = self.etcd().await?.streaming(self.request(questions), path, codec).await;
        let mut answers = asked?.into_inner();
        let first = answers.message().await?;
        let first = first.ok_or_else(|| Status::unavailable("the stream ended without an answer"))?;
        Ok((answers, first))
    }

    async fn send<Q: Unary>(&self, question: Request<Q>) -> Result<Q::Answer, Status> {
        let (path, codec) = (PathAndQuery::from_static(Q::METHOD), ProstCodec::<Q, Q::Answer>::default());
        self.etcd().await?.unary(question, path, codec).await.map(Response::into_inner)
    }

    /// The connection, once it takes a question.
    async fn etcd(&self) -> Result<Grpc<Channel>, Status> {
        let mut etcd = Grpc::new(self.channel.clone()).max_decoding_message_size(ANSWER_BYTES_MAX);
        etcd.ready().await.map_err(|error| Status::from_error(error.into()))?;
        Ok(etcd)
    }

    /// A request of the one who asks. A member that knows of no leader refuses it at once, instead of waiting
    /// for one.
    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = self.request_of_any_member(message);
        request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        request
    }

    fn request_of_any_member<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }
}
