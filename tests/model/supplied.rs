//! Feeds whose batches suppliers make: their threads, and those of the lanes, come to an end in every order.

use std::sync::Arc;

use percolator::feed::{BatchRoom, LaneSupplier, SuppliedBatch, Supply, SupplyError, SupplyLanes};
use percolator::record::{RecordId, StepEnd, StepId};
use percolator::{Device, Dtype, Feed, FeedBuilder, FeedError, Field};
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;

use crate::explore::explore_a_share;
use crate::feed::Kept;
use crate::memory::Memory;

/// As for other feeds.
const SHARE: usize = 5;

/// The batches of each lane.
const BATCHES: u64 = 3;

/// Supplies three batches to each lane, and then waits until it is closed, or fails, or ends.
#[derive(Clone, Copy, Debug)]
enum Then {
    Waits,
    Fails,
    Ends,
}

#[derive(Debug)]
struct Counted(Then);

struct CountedLane {
    then: Then,
    lane: u64,
    next: u64,
    closed: Arc<(Mutex<bool>, Condvar)>,
}

impl SupplyLanes for Counted {
    fn supplier(&self, lane: usize, from: StepId) -> Result<Box<dyn LaneSupplier>, SupplyError> {
        let closed = Arc::new((Mutex::new(false), Condvar::new()));
        Ok(Box::new(CountedLane { then: self.0, lane: lane as u64, next: from.step, closed }))
    }
}

impl LaneSupplier for CountedLane {
    fn fill(&mut self, mut room: BatchRoom) -> Result<Option<SuppliedBatch>, SupplyError> {
        let (step, index) = (self.next, 2 * self.next + self.lane);
        if step == BATCHES {
            return match self.then {
                Then::Fails => Err(SupplyError::new("on purpose")),
                Then::Ends => Ok(None),
                Then::Waits => {
                    let (closed, changed) = &*self.closed;
                    let mut closed = closed.lock().unwrap();
                    while !*closed {
                        closed = changed.wait(closed).unwrap();
                    }
                    Ok(None)
                }
            };
        }
        room.array_mut(0)[..8].copy_from_slice(&index.to_ne_bytes());
        room.records_mut()[0] = RecordId { epoch: 0, index };
        self.next += 1;
        Ok(Some(room.filled(Some(StepEnd { epoch: 0, step, is_last: false }), 1, 1)))
    }

    fn closer(&self) -> Box<dyn Fn() + Send> {
        let closed = self.closed.clone();
        Box::new(move || {
            *closed.0.lock().unwrap() = true;
            closed.1.notify_all();
        })
    }
}

/// Two lanes, with rings of two.
fn feed(source: &Arc<Memory>, then: Then) -> Feed {
    let field = || Field::scalar("number", Dtype::U64);
    let described: FeedBuilder = Feed::builder()
        .source(Kept(source.clone()))
        .decode([field()], |_, _| Ok(()))
        .devices([Device::host(0), Device::host(1)])
        .epochs(1)
        .prefetch(2);
    let start = described.clone().resolve().unwrap().snapshot().unwrap();
    described.build_supplied(Supply::new(start, [field()], Arc::new(Counted(then)))).unwrap()
}

/// The records of the steps until the end, and the error.
fn drain(feed: &mut Feed) -> (Vec<u64>, Option<FeedError>) {
    let mut found = Vec::new();
    for step in feed.steps() {
        match step {
            Ok(batches) => {
                for batch in batches {
                    assert_eq!(batch.get::<u64>("number").unwrap()[0], batch.records()[0].index);
                    found.push(batch.records()[0].index);
                }
            }
            Err(error) => return (found, Some(error)),
        }
    }
    (found, None)
}

/// Runs `scenario`; afterwards no thread may hold the source.
fn explore_supplied(scenario: impl Fn(&Arc<Memory>) + Send + Sync + 'static) {
    explore_a_share(SHARE, move || {
        let source = Memory::of(100);
        scenario(&source);
        assert_eq!(Arc::strong_count(&source), 1, "something outlived its feed");
    });
}

#[test]
fn every_batch_comes_once_and_in_order_before_the_end() {
    for then in [Then::Ends, Then::Fails] {
        explore_supplied(move |source| {
            let (found, error) = drain(&mut feed(source, then));
            assert_eq!(found, [0, 1, 2, 3, 4, 5]);
            assert_eq!(
                error.map(|error| error.to_string()),
                match then {
                    Then::Fails => Some("on purpose".to_owned()),
                    _ => None,
                }
            );
        });
    }
}

#[test]
fn whoever_cancels_pauses_or_leaves_ends_what_waits() {
    explore_supplied(|source| {
        let mut feed = feed(source, Then::Waits);
        let handle = feed.handle();
        let cancelling = thread::spawn(move || {
            handle.pause();
            handle.resume();
            handle.cancel();
        });
        let (found, error) = drain(&mut feed);
        cancelling.join().unwrap();
        assert!([0, 1, 2, 3, 4, 5].starts_with(&found), "{found:?}");
        assert_eq!(error, Some(FeedError::Cancelled));
    });
    explore_supplied(|source| {
        let mut feed = feed(source, Then::Waits);
        let mut lanes = feed.take_lanes().unwrap();
        drop(feed);
        let mut leaving = lanes.remove(0);
        let leaving = thread::spawn(move || drop(leaving.next().unwrap().unwrap()));
        drop(lanes.remove(0).next());
        leaving.join().unwrap();
    });
}
