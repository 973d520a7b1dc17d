//! The queues that connect a lane's prefetcher with the workers and with the lane's consumer: both ends.

use std::sync::Arc;

use super::consumer_task::ConsumerTask;
use super::slot::{Delivered, Returned};
use crate::base::sync::atomic::AtomicBool;
use crate::base::sync::{Receiver, Sender, bounded};
use crate::feed::FeedError;

/// What a prefetcher hands over: a batch, or the error that ends the lane. `None`: its records have ended. A
/// consumer takes a closed queue for the same.
pub(crate) type Message = Option<Result<Delivered, FeedError>>;

/// The prefetcher's ends.
pub(crate) struct Queues {
    /// Receives a message whenever a batch is complete; `done_sender` is for new slots.
    pub(super) done: Receiver<()>,
    pub(super) done_sender: Sender<()>,
    pub(super) full: Sender<Message>,
    /// Woken after each send to `full`, and after the last.
    pub(super) consumer: Arc<ConsumerTask>,
    /// Slots whose batch the consumer has dropped.
    pub(super) free: Receiver<Returned>,
    /// Disconnects when the consumer's end is dropped.
    pub(super) stop: Receiver<()>,
    /// Set by the consumer's end after this thread is done.
    pub(super) is_left: Arc<AtomicBool>,
}

/// The consumer's ends.
pub(crate) struct ConsumerQueues {
    pub(crate) full: Receiver<Message>,
    pub(crate) consumer: Arc<ConsumerTask>,
    pub(crate) free: Sender<Returned>,
    /// Dropped to stop the prefetcher.
    pub(crate) stop: Sender<()>,
    pub(crate) is_left: Arc<AtomicBool>,
}

/// The queues of a lane whose ring has up to `batches` batches. Each has room for all that can be in it, so
/// no send waits.
pub(crate) fn lane_queues(batches: usize) -> (Queues, ConsumerQueues) {
    let (free_sender, free) = bounded(batches);
    // Two messages more than there are batches: the end, and an error that comes after it.
    let (full, full_receiver) = bounded(batches + 2);
    // Room for a message that never comes: a wait on a queue without room allocates.
    let (stop_sender, stop) = bounded(1);
    let (done_sender, done) = bounded(batches);
    let (consumer, is_left) = (Arc::new(ConsumerTask::default()), Arc::new(AtomicBool::new(false)));
    let of_consumer = ConsumerQueues {
        full: full_receiver,
        consumer: consumer.clone(),
        free: free_sender,
        stop: stop_sender,
        is_left: is_left.clone(),
    };
    (Queues { done, done_sender, full, consumer, free, stop, is_left }, of_consumer)
}
