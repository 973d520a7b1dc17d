//! A lane of a feed elsewhere: each batch once, whatever becomes of the connection.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use percolator_files::shown;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use super::Connected;
use super::arrival::{Arrival, Arrivals, ArrivedBatch, ToLane, way};
use super::batch::RemoteBatch;
use super::call::CallBody;
use super::connection::Dialer;
use super::error::ClientError;
use super::fields::RemoteColumns;
use super::receive::{Malformed, MessageReader, Received};
use super::scatter::{RoomBodies, RoomPlace};
use super::servers::FeedDigest;
use super::shared::{self, Saying};
use super::slot::BodyPool;
use crate::flight::{DescriptorType, FlightData, FlightDescriptor};
use crate::grpc;
use crate::local::FromClient;
use crate::ticket::TICKET_BYTES_MAX;

/// How long a lane waits before it connects again, at first and at most.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The longest time until a lane that waits sees that it was closed.
const TURN: Duration = Duration::from_millis(50);

/// What a lane holds beside its window, without a fresh allocation: a batch that is being received, and one
/// that its consumer has acknowledged and still reads.
const MORE_SLOTS: usize = 2;

/// The batches of one rank of a feed elsewhere, in order.
///
/// A batch is done with when the next one is asked for, or when that is [said](Self::acknowledge). Until then
/// it counts as not delivered: whoever goes on with the lane's [ticket](Self::ticket) gets it again. The
/// server sends no more than the [window](crate::ClientBuilder::window) ahead of that.
///
/// If the connection breaks, or the server ends or lets go of the lane, the lane connects again with its
/// ticket, to the next server if there are several. So its consumer gets each batch once.
///
/// Over [`shared://`](crate::Client::connect), batches that are still read count, too: who holds as many as
/// the window has gets no more. A batch that is held stays what it is, whatever becomes of the lane and of
/// the server.
///
/// Dropping it ends its connection. What was acknowledged before is still sent.
pub struct RemoteLane {
    /// The stream's ticket, without a position.
    stream_ticket: String,
    /// The position after the last batch that was acknowledged, as it is appended to a ticket.
    position: String,
    /// The batch that was handed over last, if it is not acknowledged: its number and the position after it.
    handed_over: Option<(u64, String)>,
    columns: Option<Arc<RemoteColumns>>,
    pool: Arc<BodyPool>,
    /// If its batches go to a feed's own memory: where that is put.
    rooms: Option<Arc<RoomPlace>>,
    stream: Option<Stream>,
    is_over: bool,
    is_closed: Arc<AtomicBool>,
    digest: FeedDigest,
    /// The server that it is taken from.
    server: Arc<Dialer>,
    /// Dropped after the stream: whoever drops the last of these waits for what streams still send.
    client: Arc<Connected>,
}

impl fmt::Debug for RemoteLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RemoteLane");
        shown.field("url", &self.server.url).field("position", &self.position);
        shown.field("is_over", &self.is_over).finish_non_exhaustive()
    }
}

/// Ends a lane that another thread has, and may be waiting for.
#[derive(Clone, Debug)]
pub struct LaneCloser(Arc<AtomicBool>);

impl LaneCloser {
    /// Lets the lane end: whoever waits for its next batch gets [`ClientError::Closed`] within a moment, or
    /// once [`Discover`](crate::Discover) has answered, if the lane is asking for servers.
    pub fn close(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One connection's part of a lane. Dropping it ends it.
struct Stream {
    dialer: Arc<Dialer>,
    /// Before what is said: what nobody took is released while the connection is still there.
    arrivals: Arrivals,
    to_server: ToServer,
    columns: Option<Arc<RemoteColumns>>,
    /// The number of the next batch.
    next: u64,
}

/// Where a lane says what it is done with.
enum ToServer {
    /// Over Flight, and what receives.
    Flight(mpsc::UnboundedSender<u64>, AbortHandle),
    /// On the same machine. The connection ends when this is dropped.
    Shared(mpsc::UnboundedSender<FromClient>),
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let ToServer::Flight(_, receiving) = &self.to_server {
            receiving.abort();
        }
    }
}

impl Stream {
    /// Begins a stream, whose batches go to `rooms` if there are any.
    fn begin(
        client: &Connected,
        dialer: Arc<Dialer>,
        ticket: String,
        (pool, rooms): (&Arc<BodyPool>, Option<&Arc<RoomPlace>>),
    ) -> Self {
        let window = client.window.get();
        let (to_lane, arrivals) = way(window);
        let of_stream = dialer.clone();
        let to_server = match dialer.shared() {
            Some(path) => {
                let (to_server, said) = mpsc::unbounded_channel();
                let (path, saying) = (path.to_owned(), Saying { said, releases: to_server.downgrade() });
                client.runtime.spawn_awaited(shared::take(dialer, path, ticket, window, saying, to_lane));
                ToServer::Shared(to_server)
            }
            None => {
                let (to_server, acknowledged) = mpsc::unbounded_channel();
                let rooms = rooms.map(|place| RoomBodies::new(place.clone()));
                let reader = MessageReader::with_rooms(pool.clone(), rooms);
                let receiving = client.runtime.spawn(async move {
                    let ended = receive(&dialer, ticket, window, acknowledged, reader, &to_lane).await;
                    to_lane.end(ended);
                });
                ToServer::Flight(to_server, receiving)
            }
        };
        Stream { dialer: of_stream, arrivals, to_server, columns: None, next: 0 }
    }

    /// What came next, or `None` at the end.
    fn arrival(&self, is_closed: &AtomicBool) -> Result<Option<Arrival>, ClientError> {
        while !is_closed.load(Ordering::Relaxed) {
            // Without an outcome, the task is lost: that is no end either.
            if let Some(next) = self.arrivals.next_within(TURN, || self.dialer.cut_off()) {
                return next;
            }
        }
        Err(ClientError::Closed)
    }

    /// Says that all batches up to this number are done with. If the connection broke, the ticket says it.
    fn acknowledge(&self, number: u64) {
        match &self.to_server {
            ToServer::Flight(to_server, _) => {
                let _ = to_server.send(number);
            }
            ToServer::Shared(to_server) => {
                let _ = to_server.send(FromClient::Acknowledged(number));
            }
        }
    }

    /// The next batch, or `None` at the end.
    fn batch(&mut self, is_closed: &AtomicBool) -> Result<Option<ArrivedBatch>, ClientError> {
        let dialer = self.dialer.clone();
        let malformed = |found| dialer.malformed(found);
        let columns = match &self.columns {
            Some(columns) => columns.clone(),
            None => {
                // A stream of which all was taken has no schema.
                let Some(first) = self.arrival(is_closed)? else { return Ok(None) };
                let columns = first.columns().map_err(malformed)?;
                self.columns.insert(Arc::new(columns)).clone()
            }
        };
        let Some(arrival) = self.arrival(is_closed)? else { return Ok(None) };
        let batch = arrival.batch(&columns).map_err(malformed)?;
        let number = batch.note().number;
        if number != self.next {
            let found = format!("batch {number} where batch {} was due", self.next);
            return Err(malformed(Malformed(found)));
        }
        self.next += 1;
        Ok(Some(batch))
    }
}

/// Takes a stream over Flight, and hands its messages to the lane.
async fn receive(
    dialer: &Arc<Dialer>,
    ticket: String,
    window: usize,
    acknowledged: mpsc::UnboundedReceiver<u64>,
    mut reader: MessageReader,
    to_lane: &ToLane,
) -> Result<(), ClientError> {
    let malformed = |found| dialer.malformed(found);
    let kind = DescriptorType::Cmd.into();
    let first = FlightData {
        flight_descriptor: Some(FlightDescriptor { kind, cmd: ticket.into(), path: Vec::new() }),
        app_metadata: format!("{{\"window\": {window}}}").into(),
        ..FlightData::default()
    };
    let mut link = dialer.dial().await?;
    let mut answer = link.call("DoExchange", CallBody::exchange(grpc::framed(&first), acknowledged)).await?;
    while let Some(piece) = answer.next().await? {
        let mut rest = &piece[..];
        while !rest.is_empty() {
            if let Some(rooms) = reader.awaited() {
                rooms.place().wait().await;
            }
            let arrival = match reader.push(&mut rest).map_err(malformed)? {
                Some(Received::Message(message)) => Arrival::Message(message),
                Some(Received::Scattered(batch)) => Arrival::Scattered(batch),
                None => break,
            };
            if !to_lane.hand(arrival).map_err(malformed)? {
                return Ok(());
            }
        }
    }
    if reader.is_within() { Err(dialer.cut_off()) } else { Ok(()) }
}

impl RemoteLane {
    pub(super) fn new(
        client: &Arc<Connected>,
        digest: FeedDigest,
        server: Arc<Dialer>,
        ticket: &str,
        rooms: Option<Arc<RoomPlace>>,
    ) -> Result<Self, ClientError> {
        let (stream_ticket, position) = divided(ticket).map_err(|what| ClientError::Ticket { what })?;
        let pool = BodyPool::new(client.window.get() + MORE_SLOTS);
        // It begins at once: others may wait for all ranks to be there.
        let to = (&pool, rooms.as_ref());
        let stream = Some(Stream::begin(client, server.clone(), ticket.to_owned(), to));
        Ok(RemoteLane {
            client: client.clone(),
            stream_ticket: stream_ticket.to_owned(),
            position: position.to_owned(),
            handed_over: None,
            columns: None,
            pool,
            rooms,
            stream,
            is_over: false,
            is_closed: Arc::default(),
            digest,
            server,
        })
    }

    /// Says that the batch that was handed over last is done with, and does not come again.
    pub fn acknowledge(&mut self) {
        let Some((number, position)) = self.handed_over.take() else { return };
        self.position = position;
        if let Some(stream) = &self.stream {
            stream.acknowledge(number);
        }
    }

    /// The ticket of what follows the last batch that was acknowledged.
    /// [`Client::resume`](crate::Client::resume) goes on with it, in any process.
    #[must_use]
    pub fn ticket(&self) -> String {
        format!("{}{}", self.stream_ticket, self.position)
    }

    /// The next batch, wherever it is. Acknowledges the one before.
    pub(super) fn next_arrived(&mut self) -> Option<Result<ArrivedBatch, ClientError>> {
        if self.is_over {
            return None;
        }
        self.acknowledge();
        let outcome = self.receive_or_give_up().transpose();
        self.is_over = !matches!(outcome, Some(Ok(_)));
        outcome
    }

    /// The error of a batch that is none, of the server that sent it.
    pub(super) fn malformed(&self, found: &str) -> ClientError {
        super::malformed(&self.server, found)
    }

    /// What ends the lane from another thread.
    #[must_use]
    pub fn closer(&self) -> LaneCloser {
        LaneCloser(self.is_closed.clone())
    }

    /// The next batch of this connection, or of a new one. A connection that failed is gone afterwards.
    fn receive(&mut self) -> Result<Option<ArrivedBatch>, ClientError> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(ClientError::Closed);
        }
        if self.rooms.as_ref().is_some_and(|rooms| self.stream.is_none() && !rooms.is_there()) {
            return Err(ClientError::Lost);
        }
        let stream = self.stream.take();
        let mut stream = stream.unwrap_or_else(|| {
            let to = (&self.pool, self.rooms.as_ref());
            Stream::begin(&self.client, self.server.clone(), self.ticket(), to)
        });
        let Some(batch) = stream.batch(&self.is_closed)? else { return Ok(None) };
        let malformed = |found| super::malformed(&self.server, found);
        let position = &batch.note().ticket;
        if !position.starts_with('.') || self.stream_ticket.len() + position.len() > TICKET_BYTES_MAX {
            return Err(malformed("a batch without the ticket of what follows"));
        }
        if let (Some(before), Some(now)) = (&self.columns, &stream.columns)
            && before.schema != now.schema
        {
            return Err(malformed(
                "other columns than before: the data changed while the lane was not connected",
            ));
        }
        self.columns.clone_from(&stream.columns);
        self.handed_over = Some((batch.note().number, position.clone()));
        self.stream = Some(stream);
        Ok(Some(batch))
    }

    /// The next batch, for as long as a server may come back.
    fn receive_or_give_up(&mut self) -> Result<Option<ArrivedBatch>, ClientError> {
        let (after, mut failing_since, mut pause) = (self.client.give_up_after, None, PAUSE);
        loop {
            let is_again = failing_since.is_some();
            let goes_on = is_again || !self.position.is_empty();
            let error = match self.receive() {
                Err(error) if error.may_pass() => error,
                // A server notices later that a connection broke, and until then has what it gave to it.
                Err(error) if goes_on && error.is_for_want_of_room() => error,
                outcome => return outcome,
            };
            let since: &mut Instant = failing_since.get_or_insert_with(Instant::now);
            let left = after.saturating_sub(since.elapsed());
            if left.is_zero() {
                let (url, error) = (self.server.url.clone(), Box::new(error));
                return Err(ClientError::GaveUp { url, after, error });
            }
            tracing::warn!(error = %shown::with_sources(&error), "a lane connects again");
            // Once more where it was: the feed that it left may be there.
            if is_again {
                self.server = self.client.servers.after(&self.server, self.digest);
            }
            let until = Instant::now() + pause.min(left);
            while Instant::now() < until && !self.is_closed.load(Ordering::Relaxed) {
                thread::sleep(TURN.min(until.saturating_duration_since(Instant::now())));
            }
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }
}

/// Each item is a batch, or the error that ends the lane. Asking for it acknowledges the one before.
impl Iterator for RemoteLane {
    type Item = Result<RemoteBatch, ClientError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_arrived()? {
            Ok(ArrivedBatch::Received(batch)) => Some(Ok(batch)),
            Ok(ArrivedBatch::Scattered(_)) => unreachable!("no room was given"),
            Err(error) => Some(Err(error)),
        }
    }
}

impl std::iter::FusedIterator for RemoteLane {}

/// A ticket's part that is the stream's, and its position, which may be empty.
fn divided(ticket: &str) -> Result<(&str, &str), &'static str> {
    if ticket.len() > TICKET_BYTES_MAX {
        return Err("it is too long");
    }
    let dots: Vec<usize> = ticket.match_indices('.').map(|(at, _)| at).collect();
    match dots[..] {
        _ if ticket.starts_with('{') => Err("a request is opened first: `Client::open` does it"),
        [_, _] => Ok((ticket, "")),
        [_, _, end, _] => Ok(ticket.split_at(end)),
        _ => Err("its parts are not three or five"),
    }
}

/// The most batches that may be unacknowledged.
pub(super) fn window_of(asked: NonZeroUsize) -> NonZeroUsize {
    const MOST: NonZeroUsize = NonZeroUsize::new(1024).expect("it is not zero");
    asked.min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_has_a_stream_and_maybe_a_position() {
        assert_eq!(divided("percolator1.X.Y"), Ok(("percolator1.X.Y", "")));
        assert_eq!(divided("percolator1.X.Y.0-1.Z"), Ok(("percolator1.X.Y", ".0-1.Z")));
        for wrong in ["", "percolator1", "percolator1.X.Y.Z", "a.b.c.d.e.f", "{\"version\": 1.0.0}"] {
            assert!(divided(wrong).is_err(), "{wrong}");
        }
        assert!(divided(&".".repeat(TICKET_BYTES_MAX + 1)).is_err());
    }
}
