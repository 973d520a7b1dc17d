//! One client's stream of batches, as the body of an answer.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body::Frame;
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use super::backlog::{Arrays, GRACE, Place, Taken};
use super::registry::Subscription;
use super::service;
use super::status::Method;
use crate::columns::Columns;
use crate::flight::FlightData;
use crate::grpc::{Code, Status, Unframer};
use crate::message::{BatchEncoder, SchemaMessage};
use crate::request::Share;

/// The most bytes that the connection is given at one time, of which it says when it wants more.
const PIECE_BYTES: usize = 4 << 20;

/// What an answer is made of.
pub(super) enum Answer {
    /// All of it at once, and how it ends.
    Whole(Option<Bytes>, Option<http::HeaderMap>),
    Stream(Box<Batches>),
}

/// A stream of batches.
pub(super) struct Batches {
    subscription: Subscription,
    columns: Columns,
    encoder: BatchEncoder,
    /// The stream's ticket, without a position.
    ticket: String,
    /// What is to be sent of the batch that is under way.
    pieces: VecDeque<Bytes>,
    /// Each piece of a batch holds a copy until it is sent.
    unsent: Arc<()>,
    /// The number of the batch that is under way. A client of `DoGet` is done with it when it was sent.
    sent: Option<u64>,
    /// Until then nothing more is sent, since enough was.
    pause: Option<Pin<Box<Sleep>>>,
    is_ended: bool,
    /// Reads the client's acknowledgements.
    acknowledging: Option<JoinHandle<()>>,
}

/// A piece of a batch, until the connection has sent it.
struct Unsent {
    piece: Bytes,
    _of: Arc<()>,
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

/// What a client says in a stream.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Said {
    /// How many batches it wants to hold at most.
    #[serde(default)]
    pub(super) window: Option<usize>,
    /// All batches up to this number are done with.
    #[serde(default)]
    pub(super) acknowledged: Option<u64>,
}

impl Said {
    /// Reads what a message says; most say nothing.
    pub(super) fn of(message: &FlightData) -> Result<Self, Status> {
        if message.app_metadata.is_empty() {
            return Ok(Said { window: None, acknowledged: None });
        }
        serde_json::from_slice(&message.app_metadata).map_err(|error| {
            let message =
                format!("a client says {{\"acknowledged\": NUMBER}}, or {{\"window\": NUMBER}}: {error}");
            Status::new(Code::InvalidArgument, message)
        })
    }
}

impl Batches {
    pub(super) fn new(subscription: Subscription, columns: Columns, ticket: String) -> Result<Self, Status> {
        let encoder = BatchEncoder::new(columns.schema())?;
        let pieces = VecDeque::from([SchemaMessage::of(columns.schema()).in_stream]);
        Ok(Batches {
            subscription,
            columns,
            encoder,
            ticket,
            pieces,
            unsent: Arc::default(),
            sent: None,
            pause: None,
            is_ended: false,
            acknowledging: None,
        })
    }

    /// Takes the client's acknowledgements from what it sends.
    pub(super) fn acknowledged_by(mut self, body: Incoming, unframer: Unframer) -> Self {
        let place = self.subscription.place.clone();
        self.acknowledging = Some(tokio::spawn(acknowledge(place, body, unframer)));
        self
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, Status>> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                // Who takes a large batch slowly does something.
                self.subscription.place.excuse(Instant::now());
                return Poll::Ready(Ok(Some(piece)));
            }
            if let Some(sent) = self.sent.take_if(|_| self.subscription.counters.method == Method::Get) {
                self.subscription.place.acknowledge(sent, Instant::now())?;
            }
            if let Some(pause) = &mut self.pause {
                if pause.as_mut().poll(context).is_pending() {
                    return self.subscription.place.poll_dismissed(context).map(Err);
                }
                self.pause = None;
            }
            match ready!(self.subscription.place.poll_next(context, Instant::now())) {
                Some(taken) => self.encode(&taken?)?,
                None => return self.poll_acknowledged(context).map_ok(|()| None),
            }
        }
    }

    /// Waits until the client has acknowledged all batches, or says nothing more. The stream's end would
    /// reach it before batches that it has not read: HTTP/2 resets a stream whose other half is open, and
    /// gRPC then drops what was received.
    fn poll_acknowledged(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        if let Some(acknowledging) = &mut self.acknowledging {
            if Pin::new(acknowledging).poll(context).is_pending() {
                return self.subscription.place.poll_done(context);
            }
            self.acknowledging = None;
            // The last that it said may have been wrong.
            if let Poll::Ready(status) = self.subscription.place.poll_dismissed(context) {
                return Poll::Ready(Err(status));
            }
        }
        Poll::Ready(Ok(()))
    }

    fn encode(&mut self, taken: &Taken<Arrays>) -> Result<(), Status> {
        let batch = self.columns.of_batch(&taken.batch)?;
        let note = self.subscription.note(taken, &self.ticket)?;
        let mut pieces = self.encoder.pieces(&batch, &note)?;
        if let Share::Windowed { .. } = self.subscription.feed.share {
            // A client that stalls in the middle of a batch would keep the batch from all others.
            pieces.iter_mut().for_each(|piece| *piece = Bytes::copy_from_slice(piece));
        }
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        for piece in pieces {
            let mut piece = Bytes::from_owner(Unsent { piece, _of: self.unsent.clone() });
            while piece.len() > PIECE_BYTES {
                self.pieces.push_back(piece.split_to(PIECE_BYTES));
            }
            self.pieces.push_back(piece);
        }
        self.sent = Some(taken.number);
        self.subscription.count(1, bytes, taken.missed);
        let limits = self.subscription.registry().admission.limits();
        if let Some(rate) = limits.client_bytes_per_second.filter(|&rate| rate > 0) {
            let time = Duration::from_secs_f64(bytes as f64 / rate as f64);
            self.pause = Some(Box::pin(tokio::time::sleep(time)));
            if let Some(until) = Instant::now().checked_add(time) {
                self.subscription.place.excuse(until);
            }
        }
        Ok(())
    }

    /// Hangs up on a client that was let go and does not take what comes before that message: the connection
    /// would keep the batch's memory, from all who share the feed, for as long as its system answers.
    fn hang_up_unless_taken(&self) {
        let (unsent, hang_up) = (Arc::downgrade(&self.unsent), self.subscription.hang_up.clone());
        let registry = self.subscription.registry().clone();
        tokio::spawn(async move {
            tokio::time::sleep(GRACE).await;
            if unsent.strong_count() > 0 {
                registry.hang_up_on(&hang_up);
            }
        });
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        if let Some(acknowledging) = &self.acknowledging {
            acknowledging.abort();
        }
    }
}

/// Reads a client's acknowledgements until it says nothing more.
async fn acknowledge(place: Arc<Place<Arrays>>, mut body: Incoming, mut unframer: Unframer) {
    loop {
        let message = match service::next_message::<FlightData>(&mut body, &mut unframer).await {
            Ok(Some(message)) => message,
            // What it still holds, it never acknowledges: that is limited by time.
            Ok(None) => return,
            Err(status) => return place.dismiss(status),
        };
        // Some clients send the descriptor by itself, and the window after it.
        let said = Said::of(&message).and_then(|Said { window, acknowledged }| {
            window.into_iter().for_each(|window| place.narrow(window));
            acknowledged.map_or(Ok(()), |number| place.acknowledge(number, Instant::now()))
        });
        if let Err(status) = said {
            return place.dismiss(status);
        }
    }
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let batches = match self.get_mut() {
            Answer::Whole(bytes, trailers) => {
                let frame = bytes.take().map(Frame::data).or_else(|| trailers.take().map(Frame::trailers));
                return Poll::Ready(frame.map(Ok));
            }
            Answer::Stream(batches) => batches,
        };
        if batches.is_ended {
            return Poll::Ready(None);
        }
        let outcome = match ready!(batches.poll_piece(context)) {
            Ok(Some(piece)) => return Poll::Ready(Some(Ok(Frame::data(piece)))),
            Ok(None) => Ok(()),
            Err(status) => Err(status),
        };
        batches.is_ended = true;
        batches.pieces.clear();
        if outcome.is_err() && batches.subscription.place.is_let_go() {
            batches.hang_up_unless_taken();
        }
        Poll::Ready(Some(Ok(Frame::trailers(Status::trailers(&outcome)))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Answer::Whole(bytes, trailers) => bytes.is_none() && trailers.is_none(),
            Answer::Stream(batches) => batches.is_ended,
        }
    }
}
