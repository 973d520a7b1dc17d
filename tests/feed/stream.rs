//! Lanes as streams: an executor gets what an iterator gets, and its thread never waits in a lane. The
//! executor of these tests polls only after a wake-up, so a missed wake-up hangs the test.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use futures_core::Stream as _;
use percolator::feed::Building;
use percolator::source::{FnSource, SourceError};
use percolator::{Batch, Epochs, Feed, FeedBuilder, FeedError, Lane, RawBytes};

use crate::common::process::must_end;
use crate::common::tasks::block_on;

async fn next(lane: &mut Lane) -> Option<Result<Batch, FeedError>> {
    poll_fn(|context| Pin::new(&mut *lane).poll_next(context)).await
}

fn feed(records: u64, bad: u64) -> FeedBuilder {
    let source = FnSource::new("made", records, move |position, value| {
        if position == bad {
            return Err(SourceError::other("made", "it broke"));
        }
        value.extend(position.to_le_bytes());
        Ok(())
    });
    Feed::builder()
        .source(source)
        .decoder(RawBytes::fixed())
        .batch_size(3)
        .prefetch(2)
        .epochs(Epochs::OnePass)
}

#[test]
fn a_task_gets_every_batch_in_order_and_then_the_end() {
    must_end("a stream of 500 batches", || {
        let names = block_on(async {
            let mut feed = Building::start(feed(1_499, u64::MAX)).await.unwrap();
            let mut lane = feed.take_lanes().unwrap().remove(0);
            let mut names = Vec::new();
            while let Some(batch) = next(&mut lane).await {
                names.extend(batch.unwrap().records().iter().map(|id| id.index));
            }
            assert!(lane.is_ended() && next(&mut lane).await.is_none());
            names
        });
        assert!(names.into_iter().eq(0..1_499));
    });
}

#[test]
fn a_task_that_held_all_batches_is_woken_when_it_has_dropped_one() {
    must_end("a ring of two batches that a task holds", || {
        block_on(async {
            let mut feed = feed(30, u64::MAX).build().unwrap();
            let mut lane = feed.take_lanes().unwrap().remove(0);
            let mut held =
                vec![next(&mut lane).await.unwrap().unwrap(), next(&mut lane).await.unwrap().unwrap()];
            let is_pending =
                poll_fn(|context| Poll::Ready(Pin::new(&mut lane).poll_next(context).is_pending()));
            assert!(is_pending.await);
            held.remove(0);
            assert_eq!(next(&mut lane).await.unwrap().unwrap().records()[0].index, 6);
        });
    });
}

#[test]
fn a_task_hears_of_errors_once_and_of_what_cannot_be_built() {
    must_end("a source that breaks", || {
        block_on(async {
            let mut feed = Building::start(feed(30, 20)).await.unwrap();
            let mut lane = feed.take_lanes().unwrap().remove(0);
            let mut seen = 0;
            let error = loop {
                match next(&mut lane).await.unwrap() {
                    Ok(batch) => seen += batch.len(),
                    Err(error) => break error,
                }
            };
            assert!(seen <= 20 && error.to_string().contains("it broke"), "{seen} {error}");
            assert!(next(&mut lane).await.is_none());
            let refused = Building::start(Feed::builder()).await.map(drop);
            assert!(matches!(refused, Err(FeedError::Config(_))));
        });
    });
}
