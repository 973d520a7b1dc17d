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
use crate::error::FeedError;
use crate::sync::panic_message;

/// The lane's batches, as they come. Where there is none yet, its task is woken when there is one: no thread waits.
///
/// Since nobody waits, no warning says that data are late, and [`give_up_after`](FeedBuilder::give_up_after) does not apply: a
/// task that holds all batches of the ring is not woken before it drops one. Waits are not counted in the
/// [statistics](Feed::stats).
///
/// Dropping a lane joins its thread, which takes as long as one read of the source that is under way.
impl Stream for Lane {
    type Item = Result<Batch, FeedError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let lane = self.get_mut();
        if lane.ended {
            return Poll::Ready(None);
        }
        // Before looking: who sends, or ends, behind the look wakes this task.
        lane.consumer.wake_later(context.waker());
        match lane.full.try_recv() {
            Ok(message) => {
                let next = lane.accept(Some(message));
                Poll::Ready(lane.noted(next))
            }
            Err(TryRecvError::Empty) => Poll::Pending,
            Err(TryRecvError::Disconnected) => Poll::Ready(lane.accept(None)),
        }
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
    Done(Option<Result<Feed, FeedError>>),
}

impl FeedBuilder {
    /// As [`build`](Self::build), on a thread of its own: opening a source and reserving memory take milliseconds, or, on a
    /// network file system, seconds. The future may be dropped; the feed is then built and dropped there.
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
    let before = std::mem::replace(&mut *place.lock(), Built::Done(Some(result)));
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
                Poll::Ready(built.take().expect("a future is not polled when it was ready"))
            }
        }
    }
}
