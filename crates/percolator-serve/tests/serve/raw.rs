//! Calls by hand: what no client of ours would say, or would not do.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, channel};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::runtime::Runtime;

use crate::process::hung_after;

/// The path of Flight's methods.
const SERVICE: &str = "/arrow.flight.protocol.FlightService/";

/// What a stream is asked for with.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Ticket {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) ticket: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Descriptor {
    #[prost(int32, tag = "1")]
    pub(crate) kind: i32,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) cmd: Vec<u8>,
}

/// What a client sends in an exchange.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Said {
    #[prost(message, optional, tag = "1")]
    pub(crate) descriptor: Option<Descriptor>,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) metadata: Vec<u8>,
}

impl Said {
    /// The first message of an exchange.
    pub(crate) fn first(ticket: &str, metadata: &str) -> Self {
        let descriptor = Some(Descriptor { kind: 2, cmd: ticket.into() });
        Said { descriptor, metadata: metadata.into() }
    }

    pub(crate) fn more(metadata: &str) -> Self {
        Said { descriptor: None, metadata: metadata.into() }
    }
}

/// A message behind its prefix.
pub(crate) fn framed(message: &impl Message) -> Vec<u8> {
    let message = message.encode_to_vec();
    let mut framed = vec![0];
    framed.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    framed.extend(message);
    framed
}

/// The number of whole messages.
pub(crate) fn messages(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Some((prefix, after)) = bytes.split_first_chunk::<5>() {
        let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
        let Some(after) = after.get(length..) else { break };
        (bytes, count) = (after, count + 1);
    }
    count
}

/// The body of a call: pieces, and then its end, or nothing.
pub(crate) struct Pieces {
    pieces: VecDeque<Bytes>,
    ends: bool,
}

impl Pieces {
    /// All of these, and then the end.
    pub(crate) fn whole(pieces: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Pieces { pieces: pieces.into_iter().map(Bytes::from).collect(), ends: true }
    }

    /// All of these; more could come, and does not.
    pub(crate) fn open(pieces: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Pieces { ends: false, ..Self::whole(pieces) }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let body = self.get_mut();
        match body.pieces.pop_front() {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            None if body.ends => Poll::Ready(None),
            None => Poll::Pending,
        }
    }
}

/// A connection to a server.
pub(crate) struct Connection {
    sender: SendRequest<Pieces>,
    /// Disconnects when the connection has ended.
    ended: Receiver<Infallible>,
    runtime: Runtime,
}

/// How a call ended: its code and message, and the bytes that came before.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: u32,
    pub(crate) message: String,
    pub(crate) bytes: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(server: SocketAddr) -> Self {
        Self::with_window(server, 1 << 20)
    }

    /// It takes so many bytes of each answer before somebody reads them.
    pub(crate) fn with_window(server: SocketAddr, bytes: u32) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (alive, ended) = channel::<Infallible>();
        let sender = runtime.block_on(async {
            let socket = tokio::net::TcpStream::connect(server).await.unwrap();
            let mut builder = Builder::new(TokioExecutor::new());
            builder.initial_stream_window_size(bytes);
            let (sender, connection) = builder.handshake(TokioIo::new(socket)).await.unwrap();
            tokio::spawn(async move {
                let _ = connection.await;
                drop(alive);
            });
            sender
        });
        Connection { sender, ended, runtime }
    }

    /// Begins a call of one of Flight's methods. Nothing of the answer is taken until it is read.
    pub(crate) fn begin(&mut self, method: &str, body: Pieces) -> Response<Incoming> {
        self.begin_at(&format!("{SERVICE}{method}"), body).unwrap()
    }

    fn begin_at(&mut self, path: &str, body: Pieces) -> hyper::Result<Response<Incoming>> {
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://localhost{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(body);
        self.runtime.block_on(self.sender.send_request(request.unwrap()))
    }

    /// Calls one of Flight's methods.
    pub(crate) fn call(&mut self, method: &str, body: Pieces) -> Outcome {
        self.call_at(&format!("{SERVICE}{method}"), body)
    }

    pub(crate) fn call_at(&mut self, path: &str, body: Pieces) -> Outcome {
        let answer = self.begin_at(path, body).unwrap();
        self.read(answer)
    }

    /// Takes an answer, up to its end.
    pub(crate) fn read(&mut self, answer: Response<Incoming>) -> Outcome {
        let (head, mut body) = answer.into_parts();
        let mut ends = head.headers;
        let mut bytes = Vec::new();
        self.runtime.block_on(async {
            // What follows an early answer is no news.
            while let Some(Ok(frame)) = body.frame().await {
                match frame.into_data() {
                    Ok(data) => bytes.extend_from_slice(&data),
                    Err(frame) => ends.extend(frame.into_trailers().ok().unwrap_or_default()),
                }
            }
        });
        let text = |name: &str| text_of(&ends, name);
        let code = text("grpc-status").expect("an answer has a status").parse().unwrap();
        Outcome { code, message: text("grpc-message").unwrap_or_default(), bytes }
    }

    /// Waits until the server hangs up.
    #[track_caller]
    pub(crate) fn is_hung_up_on(&self) {
        let ended = self.ended.recv_timeout(hung_after());
        assert_eq!(ended, Err(std::sync::mpsc::RecvTimeoutError::Disconnected), "the connection stays");
    }
}

fn text_of(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).map(|value| value.to_str().unwrap().to_owned())
}

/// What a server answers to these bytes, up to the end of the connection.
pub(crate) fn answer_to(server: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut socket = std::net::TcpStream::connect(server).unwrap();
    socket.set_read_timeout(Some(hung_after())).unwrap();
    // It may have hung up before all of it was sent.
    let _ = socket.write_all(bytes);
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return answer,
            Ok(read) => answer.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return answer,
            Err(error) => panic!("it does not hang up: {error}"),
        }
    }
}

/// What plain HTTP answers: the status, and the text.
pub(crate) fn get(server: SocketAddr, path: &str) -> (u16, String) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let answer = String::from_utf8(answer_to(server, request.as_bytes())).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}
