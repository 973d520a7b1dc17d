//! A lane as a stream, for asynchronous programs: nothing here blocks an executor's thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures_core::{FusedStream, Stream};

use super::batch::Batch;
use super::error::FeedError;
use super::lane::Lane;
use super::{Feed, FeedBuilder};
use crate::base::sync::{Mutex, panic_message, thread};

/// The lane's batches, as they come. If none is ready, the task is woken when one is: no thread waits.
///
/// No warning is logged when data are late, and [`give_up_after`](FeedBuilder::give_up_after) does not apply:
/// a task that holds all batches of the ring is not woken before it drops one. A task's wait begins when it
/// finds no batch, and ends when it takes one.
///
/// Dropping a lane joins its thread, which takes as long as a read of the source that is already running.
/// That thread also wakes tasks. A waker schedules its task, as those of all common executors do; if it polls
/// the task at once instead, the lane must not be dropped there: the drop would wait for its own thread.
impl Stream for Lane {
    type Item = Result<Batch, FeedError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let lane = self.get_mut();
        if lane.ended {
            return Poll::Ready(None);
        }
        let mut received = lane.try_receive();
        if received.is_none() {
            // Register before the second check: a sender that sends, or ends, after that check wakes this
            // task.
            lane.consumer.wake_later(context.waker());
            received = lane.try_receive();
        }
        let Some(message) = received else {
            // The number of active workers depends on how long consumers wait.
            let lane_wait = || lane.meters.of_consumer(lane.meters.all_held().is_some()).begin_owned();
            lane.task_wait.get_or_insert_with(lane_wait);
            return Poll::Pending;
        };
        lane.task_wait = None;
        let next = lane.accept(message);
        Poll::Ready(lane.counted(next))
    }
}

impl FusedStream for Lane {
    fn is_terminated(&self) -> bool {
        self.is_ended()
    }
}

/// A future of a feed that is being built on its own thread: opening a source and allocating memory take
/// milliseconds, or seconds on a network file system. If it is dropped before it is ready, the feed is built
/// and dropped on that thread.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Building(Arc<Mutex<Built>>);

#[derive(Debug)]
enum Built {
    NotYet(Option<Waker>),
    /// `Some` until it is taken.
    Done(Option<Box<Result<Feed, FeedError>>>),
}

impl Building {
    /// Starts to [build](FeedBuilder::build) a feed. The future is ready when the feed is, or with the error
    /// of the build.
    pub fn start(builder: FeedBuilder) -> Self {
        let built = Arc::new(Mutex::new(Built::NotYet(None)));
        let place = built.clone();
        let run = move || {
            let built = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| builder.build()));
            let built = built.unwrap_or_else(|panic| {
                Err(FeedError::Panicked { name: "build".to_owned(), message: panic_message(&*panic) })
            });
            finish(&place, built);
        };
        if let Err(error) = thread::Builder::new().name("build".to_owned()).spawn(run) {
            finish(&built, Err(FeedError::Thread { name: "build".to_owned(), source: error.into() }));
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
    /// If it is polled again after it was ready.
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
