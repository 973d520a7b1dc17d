//! A lane as a stream, for programs that are asynchronous: nothing here makes an executor's thread wait.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crossbeam_channel::TryRecvError;
use futures_core::{FusedStream, Stream};
use parking_lot::Mutex;

use super::batch::Batch;
use super::lane::Lane;
use super::{Feed, FeedBuilder};
use crate::base::sync::panic_message;
use crate::error::FeedError;

/// The lane's batches, as they come. Where there is none yet, its task is woken when there is one: no thread waits.
///
/// No warning says that data are late, and [`give_up_after`](FeedBuilder::give_up_after) does not apply: a task that holds all
/// batches of the ring is not woken before it drops one. A task's wait begins when it is told that there is no batch, and ends
/// when it takes one.
///
/// Dropping a lane joins its thread, which takes as long as one read of the source that is under way.
impl Stream for Lane {
    type Item = Result<Batch, FeedError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let lane = self.get_mut();
        if lane.ended {
            return Poll::Ready(None);
        }
        let mut received = lane.full.try_recv();
        if matches!(received, Err(TryRecvError::Empty)) {
            // Before looking once more: who sends, or ends, after that look wakes this task.
            lane.consumer.wake_later(context.waker());
            received = lane.full.try_recv();
        }
        let message = match received {
            Ok(message) => Some(message),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => {
                // The workers are as many as it takes to keep consumers from waiting.
                let lane_wait = || lane.meters.for_batch.begin_owned();
                lane.task_wait.get_or_insert_with(lane_wait);
                return Poll::Pending;
            }
        };
        lane.task_wait = None;
        let next = lane.accept(message);
        Poll::Ready(lane.noted(next))
    }
}

impl FusedStream for Lane {
    fn is_terminated(&self) -> bool {
        self.is_ended()
    }
}

/// A feed that is being built on a thread of its own. See [`FeedBuilder::build_in_background`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Building(Arc<Mutex<Built>>);

#[derive(Debug)]
enum Built {
    NotYet(Option<Waker>),
    /// Until it is taken.
    Done(Option<Box<Result<Feed, FeedError>>>),
}

impl FeedBuilder {
    /// As [`build`](Self::build), on a thread of its own: opening a source and reserving memory take milliseconds, or, on a
    /// network file system, seconds. If the future is dropped before it is ready, the feed is built and dropped on
    /// that thread.
    ///
    /// # Errors
    ///
    /// As [`build`](Self::build).
    pub fn build_in_background(self) -> Building {
        let built = Arc::new(Mutex::new(Built::NotYet(None)));
        let place = built.clone();
        let run = move || {
            let built = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.build()));
            let built = built.unwrap_or_else(|panic| {
                Err(FeedError::Panicked { name: "build".to_owned(), message: panic_message(&*panic) })
            });
            finish(&place, built);
        };
        if let Err(error) = std::thread::Builder::new().name("build".to_owned()).spawn(run) {
            let (name, message) = ("build".to_owned(), error.to_string());
            finish(&built, Err(FeedError::Thread { name, message }));
        }
        Building(built)
    }
}

fn finish(place: &Mutex<Built>, result: Result<Feed, FeedError>) {
    let before = std::mem::replace(&mut *place.lock(), Built::Done(Some(Box::new(result))));
    if let Built::NotYet(Some(waker)) = before {
        waker.wake();
    }
}

impl Future for Building {
    type Output = Result<Feed, FeedError>;

    /// # Panics
    ///
    /// If it is polled once more after it was ready.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self.0.lock() {
            Built::NotYet(waker) => {
                *waker = Some(context.waker().clone());
                Poll::Pending
            }
            Built::Done(built) => {
                Poll::Ready(*built.take().expect("a future is not polled again after it was ready"))
            }
        }
    }
}
