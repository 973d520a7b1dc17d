//! What comes for a lane, from the task that has its connection to the thread that asks for it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;

use super::batch::RemoteBatch;
use super::error::ClientError;
use super::fields::RemoteColumns;
use super::receive::{Malformed, ReceivedMessage};
use super::scatter::ScatteredBatch;
use super::shared::PlacedBatch;
use crate::message::BatchNote;

/// Something that came for a lane: first the schema, and then batches.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// A message of Flight.
    Message(ReceivedMessage),
    /// The schema of batches that stay in the server's memory.
    Schema(Vec<u8>),
    /// Such a batch.
    Placed(PlacedBatch),
    /// A batch that is in a feed's own memory.
    Scattered(Box<ScatteredBatch>),
}

/// A batch, wherever it is.
#[derive(Debug)]
pub(crate) enum ArrivedBatch {
    Received(RemoteBatch),
    Scattered(Box<ScatteredBatch>),
}

impl ArrivedBatch {
    pub(crate) fn note(&self) -> &BatchNote {
        match self {
            ArrivedBatch::Received(batch) => batch.note(),
            ArrivedBatch::Scattered(batch) => &batch.note,
        }
    }
}

impl Arrival {
    /// The columns of a stream, which it begins with.
    pub(crate) fn columns(self) -> Result<RemoteColumns, Malformed> {
        match self {
            Arrival::Message(message) => RemoteColumns::of_message(&message.header),
            Arrival::Schema(schema) => RemoteColumns::of_encapsulated(&schema),
            Arrival::Placed(_) | Arrival::Scattered(_) => {
                Err(Malformed("a batch before the schema".to_owned()))
            }
        }
    }

    /// A batch of these columns.
    pub(crate) fn batch(self, columns: &Arc<RemoteColumns>) -> Result<ArrivedBatch, Malformed> {
        match self {
            Arrival::Message(message) => RemoteBatch::decode(columns, message).map(ArrivedBatch::Received),
            Arrival::Placed(placed) => RemoteBatch::placed(columns, placed).map(ArrivedBatch::Received),
            Arrival::Scattered(batch) => Ok(ArrivedBatch::Scattered(batch)),
            Arrival::Schema(_) => Err(Malformed("a second schema".to_owned())),
        }
    }
}

/// How a connection ended, when it has.
type Outcome = Arc<Mutex<Option<Result<(), ClientError>>>>;

/// The end of a connection's task.
#[derive(Debug)]
pub(crate) struct ToLane {
    arrivals: SyncSender<Arrival>,
    outcome: Outcome,
    window: usize,
}

/// The lane's end.
#[derive(Debug)]
pub(crate) struct Arrivals {
    arrivals: Receiver<Arrival>,
    /// It is there when nothing more comes.
    outcome: Outcome,
}

/// The way from a connection to its lane, of which so many batches may be unacknowledged.
pub(crate) fn way(window: usize) -> (ToLane, Arrivals) {
    // The window's batches, and the schema. There are never more unless the server sends them unasked.
    let (to_lane, arrivals) = sync_channel(window + 1);
    let outcome = Outcome::default();
    (ToLane { arrivals: to_lane, outcome: outcome.clone(), window }, Arrivals { arrivals, outcome })
}

impl ToLane {
    /// Hands something over. Returns whether the lane is still there.
    pub(crate) fn hand(&self, arrival: Arrival) -> Result<bool, Malformed> {
        match self.arrivals.try_send(arrival) {
            Ok(()) => Ok(true),
            Err(TrySendError::Full(_)) => {
                let window = self.window;
                Err(Malformed(format!("more than the {window} batches that may be unacknowledged")))
            }
            Err(TrySendError::Disconnected(_)) => Ok(false),
        }
    }

    /// Says how it ended, after all that was handed over.
    pub(crate) fn end(self, outcome: Result<(), ClientError>) {
        *self.outcome.lock() = Some(outcome);
    }
}

impl Arrivals {
    /// What came next, or `None` at the end. `lost` is the error if nobody said how it ended.
    #[cfg(test)]
    pub(crate) fn next(&self, lost: impl Fn() -> ClientError) -> Result<Option<Arrival>, ClientError> {
        self.next_within(Duration::MAX, lost).expect("nobody waits for that long")
    }

    /// The same, or nothing if nothing comes within this time.
    pub(crate) fn next_within(
        &self,
        time: Duration,
        lost: impl FnOnce() -> ClientError,
    ) -> Option<Result<Option<Arrival>, ClientError>> {
        match self.arrivals.recv_timeout(time) {
            Ok(arrival) => Some(Ok(Some(arrival))),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                Some(self.outcome.lock().take().unwrap_or_else(|| Err(lost())).map(|()| None))
            }
        }
    }
}
