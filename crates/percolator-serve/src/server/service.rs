//! The methods of Flight, and what plain HTTP is answered.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, Method as HttpMethod, Request, Response, StatusCode, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use percolator::record::StepId;
use prost::Message;
use ring::hmac;
use serde::Deserialize;
use tokio::sync::Notify;

use super::registry::{self, Registry, Subscription, Taking};
use super::status::Method;
use super::stream::{Answer, Batches, Said};
use crate::columns::Columns;
use crate::flight::{
    Action, ActionResult, ActionType, Criteria, DescriptorType, FlightData, FlightDescriptor, FlightEndpoint,
    FlightInfo, SERVICE, SchemaResult, Ticket,
};
use crate::grpc::{self, Code, Status, Unframer};
use crate::message::SchemaMessage;
use crate::request::{Column, FeedRequest};
use crate::ticket::{Position, StreamId, TICKET_BYTES_MAX, TicketContent};

/// The most bytes of a message: a ticket, and what is around it.
const MESSAGE_BYTES_MAX: usize = TICKET_BYTES_MAX + 4096;

/// The most bytes of all tickets of an answer: each rank's has the whole request.
const TICKETS_BYTES_MAX: usize = 16 << 20;

/// How long a client may take to say what it wants.
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// The highest number of an epoch or a step.
const COUNTED_MAX: u64 = 1 << 43;

/// What the server does beside serving feeds.
const ACTIONS: [(&str, &str); 2] = [
    ("status", "What the server does at the moment, as JSON"),
    ("position", "The ticket of a stream from a step on: of {\"ticket\": T, \"epoch\": E, \"step\": S}"),
];

/// A stream's ticket, and a step of its feed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskedPosition {
    ticket: String,
    epoch: u64,
    step: u64,
}

/// What all connections know.
pub(super) struct Service {
    pub(super) registry: Arc<Registry>,
    pub(super) tokens: Tokens,
}

/// Who is on the other end of a connection.
#[derive(Clone)]
pub(super) struct Peer {
    pub(super) name: String,
    /// Whether it has asked for something, with a token if one is wanted.
    pub(super) is_known: Arc<AtomicBool>,
    pub(super) hang_up: Arc<Notify>,
}

/// The tokens of which a client needs one, as signatures: comparing them takes the same time wherever they
/// differ.
pub(super) struct Tokens {
    key: hmac::Key,
    signed: Vec<hmac::Tag>,
}

impl Tokens {
    pub(super) fn new(tokens: &[String]) -> Result<Self, ring::error::Unspecified> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &ring::rand::SystemRandom::new())?;
        let signed = tokens.iter().map(|token| hmac::sign(&key, token.as_bytes())).collect();
        Ok(Tokens { key, signed })
    }

    fn check(&self, headers: &HeaderMap) -> Result<(), Status> {
        let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        self.check_token(given.and_then(|value| value.strip_prefix(b"Bearer ")))
    }

    pub(super) fn check_token(&self, token: Option<&[u8]>) -> Result<(), Status> {
        if self.signed.is_empty() {
            return Ok(());
        }
        let Some(token) = token else {
            let message = "this server wants a token: send the header `authorization: Bearer TOKEN`";
            return Err(Status::new(Code::Unauthenticated, message));
        };
        let is_known = |tag: &hmac::Tag| hmac::verify(&self.key, token, tag.as_ref()).is_ok();
        // Each is compared, whichever it is.
        match self.signed.iter().filter(|tag| is_known(tag)).count() {
            0 => Err(Status::new(Code::Unauthenticated, "this server does not know the token")),
            _ => Ok(()),
        }
    }
}

/// The next message of a call, or `None` at its end.
pub(super) async fn next_message<M: Message + Default>(
    body: &mut Incoming,
    unframer: &mut Unframer,
) -> Result<Option<M>, Status> {
    loop {
        if let Some(message) = unframer.next()? {
            return grpc::decoded(message).map(Some);
        }
        match body.frame().await {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    unframer.push(&data);
                }
            }
            Some(Err(error)) => {
                return Err(Status::new(Code::Cancelled, format!("the client went away: {error}")));
            }
            None if unframer.is_within() => {
                return Err(Status::new(Code::InvalidArgument, "the call ends within a message"));
            }
            None => return Ok(None),
        }
    }
}

impl Service {
    /// Answers a request. What goes wrong is told to who asked, and ends nothing else.
    pub(super) async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: Peer,
    ) -> Result<Response<Answer>, Infallible> {
        if request.method() == HttpMethod::GET {
            return Ok(self.plain(&request));
        }
        let answer = match self.call(request, peer).await {
            Ok(answer) => answer,
            Err(status) => {
                tracing::debug!(code = %status.code, message = %status.message, "a request was refused");
                let mut response = Response::new(Answer::Whole(None, None));
                *response.headers_mut() = Status::trailers(&Err(status));
                response.headers_mut().insert(CONTENT_TYPE, grpc::CONTENT_TYPE);
                return Ok(response);
            }
        };
        let mut response = Response::new(answer);
        response.headers_mut().insert(CONTENT_TYPE, grpc::CONTENT_TYPE);
        Ok(response)
    }

    /// What probes and Prometheus ask for.
    fn plain(&self, request: &Request<Incoming>) -> Response<Answer> {
        let (status, text) = match request.uri().path() {
            "/healthz" => (StatusCode::OK, "ok\n".to_owned()),
            "/readyz" if self.registry.is_draining() => {
                (StatusCode::SERVICE_UNAVAILABLE, "draining\n".to_owned())
            }
            "/readyz" => (StatusCode::OK, "ok\n".to_owned()),
            "/metrics" => match self.tokens.check(request.headers()) {
                Ok(()) => (StatusCode::OK, self.registry.status().metrics()),
                Err(status) => (StatusCode::UNAUTHORIZED, status.message + "\n"),
            },
            _ => (
                StatusCode::NOT_FOUND,
                "this is a server of Arrow Flight; GET /metrics, /healthz, /readyz\n".to_owned(),
            ),
        };
        let mut response = Response::new(Answer::Whole(Some(text.into()), None));
        *response.status_mut() = status;
        let kind = http::HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        response
    }

    async fn call(&self, request: Request<Incoming>, peer: Peer) -> Result<Answer, Status> {
        // Over HTTP/1, any page that a browser on this machine shows could call a server without tokens.
        if request.version() != Version::HTTP_2 {
            return Err(Status::new(Code::Unimplemented, "gRPC is spoken over HTTP/2, and not over HTTP/1"));
        }
        self.tokens.check(request.headers())?;
        peer.is_known.store(true, Ordering::Relaxed);
        let Some(method) = request.uri().path().strip_prefix(SERVICE).map(str::to_owned) else {
            let message = "this server speaks Arrow Flight, and nothing else over gRPC";
            return Err(Status::new(Code::Unimplemented, message));
        };
        let mut body = request.into_body();
        let mut unframer = Unframer::new(MESSAGE_BYTES_MAX);
        match &*method {
            "GetFlightInfo" => {
                let descriptor = only::<FlightDescriptor>(&mut body, &mut unframer).await?;
                self.flight_info(descriptor).await.map(|info| whole([info]))
            }
            "GetSchema" => {
                let descriptor = only::<FlightDescriptor>(&mut body, &mut unframer).await?;
                let FlightInfo { schema, .. } = self.flight_info(descriptor).await?;
                Ok(whole([SchemaResult { schema }]))
            }
            "ListFlights" => {
                only::<Criteria>(&mut body, &mut unframer).await?;
                self.flights().map(whole)
            }
            "DoGet" => {
                let Ticket { ticket } = only(&mut body, &mut unframer).await?;
                let batches = self.batches(&ticket, Method::Get, None, peer).await?;
                match batches {
                    Some(batches) => Ok(Answer::Stream(Box::new(batches))),
                    None => self.ended(&ticket).await,
                }
            }
            "DoExchange" => self.exchange(body, unframer, peer).await,
            "DoAction" => {
                let action = only(&mut body, &mut unframer).await?;
                Ok(whole([ActionResult { body: self.act(&action)? }]))
            }
            "ListActions" => Ok(whole(ACTIONS.map(|(name, description)| ActionType {
                r#type: name.to_owned(),
                description: description.to_owned(),
            }))),
            other => {
                let message = format!(
                    "this server has no {other}: feeds are asked for by GetFlightInfo, and taken by DoGet or \
                     DoExchange"
                );
                Err(Status::new(Code::Unimplemented, message))
            }
        }
    }

    fn act(&self, action: &Action) -> Result<Bytes, Status> {
        match &*action.r#type {
            "status" => {
                let status = serde_json::to_vec(&self.registry.status());
                Ok(status.map_err(|error| Status::new(Code::Internal, error.to_string()))?.into())
            }
            "position" => {
                let asked: AskedPosition =
                    serde_json::from_slice(&action.body).map_err(|error| invalid(&error))?;
                self.position(&asked).map(Bytes::from)
            }
            other => {
                let message = format!("there is no action {other:?}: `status` and `position` are");
                Err(Status::new(Code::Unimplemented, message))
            }
        }
    }

    /// The ticket of a stream from a step on. Whether there is such a step is seen when it is taken.
    fn position(&self, asked: &AskedPosition) -> Result<String, Status> {
        let AskedPosition { ticket, epoch, step } = asked;
        let (_, of_stream) = self.registry.key.read(ticket).map_err(|error| invalid(&error))?;
        if [*epoch, *step].iter().any(|&number| number > COUNTED_MAX) {
            let message = format!("there is no step {step} in epoch {epoch}: none is counted as far");
            return Err(Status::new(Code::InvalidArgument, message));
        }
        let position = Position::Step(StepId { epoch: *epoch, step: *step });
        Ok(format!("{of_stream}{}", self.registry.key.position(of_stream, position)))
    }

    async fn flight_info(&self, descriptor: FlightDescriptor) -> Result<FlightInfo, Status> {
        if self.registry.is_draining() {
            return Err(registry::draining());
        }
        if descriptor.kind != i32::from(DescriptorType::Cmd) {
            let message = "a feed is described by a descriptor's command: the JSON of a request";
            return Err(Status::new(Code::InvalidArgument, message));
        }
        let request = parse(&descriptor.cmd)?;
        let prepared = self.registry.prepare(request.clone()).await?;
        let described = self.registry.describe(prepared).await?;
        let columns = Columns::of(&described.fields, &request.columns)?;
        let endpoint = self.endpoints(&request, described.ranks)?;
        let facts = serde_json::json!({
            "version": 1,
            "ranks": described.ranks,
            "window": self.registry.window,
            "memory_bytes": described.memory,
            "records": described.records,
            "input": described.input,
            "start": described.start.as_ref().ok(),
            "no_start": described.start.as_ref().err(),
        });
        Ok(FlightInfo {
            schema: SchemaMessage::of(columns.schema()).alone,
            flight_descriptor: Some(descriptor),
            endpoint,
            total_records: described.records.and_then(|records| i64::try_from(records).ok()).unwrap_or(-1),
            total_bytes: -1,
            ordered: true,
            app_metadata: facts.to_string().into(),
        })
    }

    /// A ticket for each rank.
    fn endpoints(&self, request: &FeedRequest, ranks: usize) -> Result<Vec<FlightEndpoint>, Status> {
        let (mut endpoints, mut bytes) = (Vec::new(), 0);
        for rank in 0..ranks {
            let stream = StreamId { request: request.clone(), rank };
            let ticket = self.registry.key.ticket(&stream).map_err(|error| invalid(&error))?;
            bytes += ticket.len();
            if bytes > TICKETS_BYTES_MAX {
                let message = format!(
                    "the tickets of {ranks} ranks, of which each has the whole request, have more than \
                     {TICKETS_BYTES_MAX} bytes: make the request shorter"
                );
                return Err(Status::new(Code::InvalidArgument, message));
            }
            let ticket = Some(Ticket { ticket: ticket.into() });
            endpoints.push(FlightEndpoint { ticket, ..Default::default() });
        }
        Ok(endpoints)
    }

    /// The feeds that run. Their tickets are their clients' own.
    fn flights(&self) -> Result<Vec<FlightInfo>, Status> {
        let running = self.registry.running();
        let described = running.into_iter().map(|(name, source, fields)| {
            let columns = Columns::of(&fields, &[])?;
            let descriptor = FlightDescriptor {
                kind: DescriptorType::Path.into(),
                path: vec![name],
                ..Default::default()
            };
            Ok(FlightInfo {
                schema: SchemaMessage::of(columns.schema()).alone,
                flight_descriptor: Some(descriptor),
                endpoint: Vec::new(),
                total_records: -1,
                total_bytes: -1,
                ordered: true,
                app_metadata: serde_json::json!({ "source": source }).to_string().into(),
            })
        });
        described.collect()
    }

    async fn exchange(
        &self,
        mut body: Incoming,
        mut unframer: Unframer,
        peer: Peer,
    ) -> Result<Answer, Status> {
        let first = within(next_message::<FlightData>(&mut body, &mut unframer)).await?;
        let Some(first) = first else {
            return Err(Status::new(
                Code::InvalidArgument,
                "an exchange begins with a message that has a descriptor",
            ));
        };
        let Said { window, acknowledged } = Said::of(&first)?;
        if let Some(number) = acknowledged {
            let message = format!("batch {number} is acknowledged before any was sent");
            return Err(Status::new(Code::InvalidArgument, message));
        }
        let Some(descriptor) = first.flight_descriptor else {
            return Err(Status::new(
                Code::InvalidArgument,
                "the first message of an exchange has no descriptor",
            ));
        };
        let batches = self.batches(&descriptor.cmd, Method::Exchange, window, peer).await?;
        match batches {
            Some(batches) => Ok(Answer::Stream(Box::new(batches.acknowledged_by(body, unframer)))),
            None => self.ended(&descriptor.cmd).await,
        }
    }

    async fn batches(
        &self,
        ticket: &[u8],
        method: Method,
        window: Option<usize>,
        peer: Peer,
    ) -> Result<Option<Batches>, Status> {
        let taking = Taking { method, peer: peer.name, window, hang_up: peer.hang_up };
        let taken = self.take(ticket, taking).await?;
        taken.map(|(subscription, columns, ticket)| Batches::new(subscription, columns, ticket)).transpose()
    }

    /// The stream of a ticket of which all was taken: its schema, without which pyarrow takes the end for a
    /// failure.
    async fn ended(&self, ticket: &[u8]) -> Result<Answer, Status> {
        let ticket = str::from_utf8(ticket).map_err(|_| invalid(&"a ticket is text, and this is not"))?;
        let (content, _) = self.registry.key.read(ticket).map_err(|error| invalid(&error))?;
        let request = content.stream.request;
        let added = request.columns.clone();
        let described = self.registry.describe(self.registry.prepare(request).await?).await?;
        let columns = Columns::of(&described.fields, &added)?;
        let schema = SchemaMessage::of(columns.schema()).in_stream;
        Ok(Answer::Whole(Some(schema), Some(Status::trailers(&Ok(())))))
    }

    /// The stream of a ticket, or of a request itself, with the columns of its batches and the ticket without
    /// a position. `None` if all of it was taken.
    pub(super) async fn take(
        &self,
        ticket: &[u8],
        taking: Taking,
    ) -> Result<Option<(Subscription, Columns, String)>, Status> {
        let key = &self.registry.key;
        let (content, ticket) = if ticket.starts_with(b"{") {
            let stream = StreamId { request: parse(ticket)?, rank: 0 };
            let ticket = key.ticket(&stream).map_err(|error| invalid(&error))?;
            (TicketContent { stream, from: None }, ticket)
        } else {
            let text = str::from_utf8(ticket).map_err(|_| invalid(&"a ticket is text, and this is not"))?;
            let (content, of_stream) = key.read(text).map_err(|error| invalid(&error))?;
            (content, of_stream.to_owned())
        };
        let added: Vec<Column> = content.stream.request.columns.clone();
        let Some(subscription) = self.registry.subscribe(content, taking).await? else { return Ok(None) };
        let columns = Columns::of(&subscription.feed.fields, &added)?;
        Ok(Some((subscription, columns, ticket)))
    }
}

/// An answer of these messages.
fn whole<M: Message>(messages: impl IntoIterator<Item = M>) -> Answer {
    let framed: Vec<Bytes> = messages.into_iter().map(|message| grpc::framed(&message)).collect();
    let bytes = Bytes::from(framed.concat());
    Answer::Whole((!bytes.is_empty()).then_some(bytes), Some(Status::trailers(&Ok(()))))
}

/// The one message of a call that has one.
async fn only<M: Message + Default>(body: &mut Incoming, unframer: &mut Unframer) -> Result<M, Status> {
    let message = within(next_message(body, unframer)).await?;
    message.ok_or_else(|| Status::new(Code::InvalidArgument, "the call has no message"))
}

/// What a client says, if it says it in time.
pub(super) async fn within<T>(said: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
    let late =
        |_| Status::new(Code::DeadlineExceeded, format!("nothing was asked for within {REQUEST_TIME:?}"));
    tokio::time::timeout(REQUEST_TIME, said).await.map_err(late)?
}

fn parse(request: &[u8]) -> Result<FeedRequest, Status> {
    FeedRequest::parse(request).map_err(|error| invalid(&error))
}

fn invalid(error: &dyn std::fmt::Display) -> Status {
    Status::new(Code::InvalidArgument, error.to_string())
}
