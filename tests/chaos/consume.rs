//! Takes the batches of a feed, as a scenario says, and checks each.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::thread;
use std::time::Duration;

use percolator::feed::{FeedHandle, TryNext};
use percolator::{Batch, Feed, FeedError, Lane};
use percolator_chaos::{Chaos, Faults};

use crate::limits::Count;
use crate::model::{self, Due, Torn};
use crate::scenario::{Consumer, Order, Scenario};

/// What the consumer of a lane saw.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub taken: usize,
    pub error: Option<FeedError>,
    /// Whether it has seen the end.
    pub is_ended: bool,
    /// Whether it left, or stopped at a limit.
    pub has_left: bool,
    /// An error of a batch's arrival.
    pub arrival: Option<FeedError>,
    /// What it had of its epoch, and of the epochs before that.
    pub count: Count,
    /// The bad records of its batches.
    pub bad: Vec<u64>,
}

/// How a feed is consumed.
pub(crate) struct Consuming<'a> {
    pub scenario: &'a Scenario,
    pub due: &'a Due,
    /// What each lane had before.
    pub counts: Vec<Count>,
    pub has_limits: bool,
    pub cut: Option<usize>,
    pub torn: Torn,
    /// If this feed is struck.
    pub chaos: Option<&'a Chaos>,
}

impl Consuming<'_> {
    /// The batches that a lane is to take before it stops; `None` if it goes on to its end.
    fn limit(&self, lane: usize) -> Option<usize> {
        let is_endless = matches!(self.scenario.order, Order::RoundRobin { .. });
        let due = self.due[lane].len();
        match self.cut {
            Some(cut) => Some(cut.min(due)),
            None => is_endless.then_some(due),
        }
    }

    /// The lanes before their first batch.
    fn unseen(&self) -> Vec<Seen> {
        self.counts.iter().map(|&count| Seen { count, ..Seen::default() }).collect()
    }

    pub(crate) fn consume(&self, feed: &mut Feed) -> Vec<Seen> {
        let handle = feed.handle();
        match self.scenario.consumer {
            Consumer::Lanes => self.lanes(feed, &handle),
            Consumer::Steps => self.steps(feed, &handle),
            Consumer::Polls => self.polls(feed, &handle),
            Consumer::Waits => self.waits(feed, &handle),
            Consumer::Streams => self.streams(feed, &handle),
        }
    }

    fn check(&self, seen: &mut Seen, lane: usize, batch: &Batch) {
        let due = self.due[lane].get(seen.taken).expect("no batch comes after the last");
        model::check_batch(self.scenario, batch, &due.records, self.torn);
        assert_eq!(batch.lane(), lane);
        let bad = batch.bad_records();
        let counts = seen.count.add(due, |id| bad.iter().any(|bad| bad.id == *id));
        let are_within = counts.iter().all(|count| count.is_within(self.scenario));
        assert!(!self.has_limits || are_within, "more are bad than may be: {counts:?}");
        seen.bad.extend(bad.iter().map(|bad| bad.id.index));
        seen.taken += 1;
        if let Err(error) = batch.wait() {
            seen.arrival = Some(error.into());
        }
    }

    /// Pauses the feed, resumes it, and sets its threads, if the scenario says so.
    fn meddle(&self, handle: &FeedHandle, number: usize) {
        if !self.scenario.is_controlled {
            return;
        }
        match number % 6 {
            1 => handle.pause(),
            2 => handle.resume(),
            4 => drop(handle.set_threads(1 + number % 3)),
            _ => {}
        }
        // Nobody else resumes it.
        if handle.is_paused() {
            thread::yield_now();
            handle.resume();
        }
    }

    fn lanes(&self, feed: &mut Feed, handle: &FeedHandle) -> Vec<Seen> {
        thread::scope(|scope| {
            let drain = |mut lane: Lane| {
                scope.spawn(move || {
                    let number = lane.number();
                    match self.chaos.filter(|_| number == 0) {
                        Some(chaos) => {
                            let mut consumer = chaos.consumer(lane);
                            let seen = self.drain(&mut consumer, number, handle);
                            // One that has left has dropped its lane.
                            self.ended(seen, consumer.into_inner())
                        }
                        None => {
                            let seen = self.drain(&mut lane, number, handle);
                            self.ended(seen, Some(lane))
                        }
                    }
                })
            };
            let lanes: Vec<_> = feed.take_lanes().unwrap().into_iter().map(drain).collect();
            let joined: Vec<(Seen, Option<Lane>)> =
                lanes.into_iter().map(|lane| lane.join().expect("its checks hold")).collect();
            // The source may be stuck still: the drop of the last lane would wait for it.
            if let Some(chaos) = self.chaos {
                chaos.release();
            }
            joined.into_iter().map(|(seen, _lane)| seen).collect()
        })
    }

    fn drain(
        &self,
        lane: &mut dyn Iterator<Item = Result<Batch, FeedError>>,
        number: usize,
        handle: &FeedHandle,
    ) -> Seen {
        let mut seen = Seen { count: self.counts[number], ..Seen::default() };
        while self.limit(number).is_none_or(|limit| seen.taken < limit) {
            match lane.next() {
                Some(Ok(batch)) => {
                    self.check(&mut seen, number, &batch);
                    self.meddle(handle, seen.taken);
                }
                Some(Err(error)) => {
                    assert!(lane.next().is_none(), "an error comes last, and once");
                    seen.error = Some(error);
                    return seen;
                }
                None => {
                    seen.is_ended = true;
                    return seen;
                }
            }
        }
        seen.has_left = true;
        seen
    }

    fn ended(&self, mut seen: Seen, lane: Option<Lane>) -> (Seen, Option<Lane>) {
        seen.has_left |= lane.is_none();
        (seen, lane)
    }

    fn steps(&self, feed: &mut Feed, handle: &FeedHandle) -> Vec<Seen> {
        let mut seen = self.unseen();
        let limit = (0..seen.len()).filter_map(|lane| self.limit(lane)).max();
        let none = Chaos::new(Faults::none());
        let mut steps = self.chaos.unwrap_or(&none).consumer(feed.steps());
        let mut taken = 0;
        while limit.is_none_or(|limit| taken < limit) {
            match steps.next() {
                Some(Ok(batches)) => {
                    batches.iter().for_each(|batch| self.check(&mut seen[batch.lane()], batch.lane(), batch));
                }
                Some(Err(error)) => {
                    assert!(steps.next().is_none(), "an error comes last, and once");
                    seen.iter_mut().for_each(|seen| seen.error = Some(error.clone()));
                    return seen;
                }
                None => {
                    let has_left = steps.into_inner().is_none();
                    seen.iter_mut().for_each(|seen| (seen.is_ended, seen.has_left) = (true, has_left));
                    return seen;
                }
            }
            taken += 1;
            self.meddle(handle, taken);
        }
        seen.iter_mut().for_each(|seen| seen.has_left = true);
        seen
    }

    fn polls(&self, feed: &mut Feed, handle: &FeedHandle) -> Vec<Seen> {
        self.in_turns(feed, handle, |lane| match lane.try_next() {
            Ok(TryNext::Batch(batch)) => Some(Some(Ok(batch))),
            Ok(TryNext::Ended) => Some(None),
            Ok(_) => {
                thread::yield_now();
                None
            }
            Err(error) => Some(Some(Err(error))),
        })
    }

    fn waits(&self, feed: &mut Feed, handle: &FeedHandle) -> Vec<Seen> {
        self.in_turns(feed, handle, |lane| lane.wait_timeout(Duration::from_millis(1)).then(|| lane.next()))
    }

    /// One thread takes a batch of each lane in turn, if there is one: lanes that resume at different steps
    /// wait for each other.
    fn in_turns(
        &self,
        feed: &mut Feed,
        handle: &FeedHandle,
        mut next: impl FnMut(&mut Lane) -> Option<Next>,
    ) -> Vec<Seen> {
        let mut turns = Turns::of(self, feed);
        while !turns.left.is_empty() {
            turns.take(handle, &mut next);
        }
        turns.end()
    }

    /// One task, which is polled only after it was woken: a wake-up that is missed hangs.
    fn streams(&self, feed: &mut Feed, handle: &FeedHandle) -> Vec<Seen> {
        use std::future::poll_fn;
        use std::pin::Pin;
        use std::task::Poll;

        use futures_core::Stream as _;

        let mut turns = Turns::of(self, feed);
        crate::common::tasks::block_on(poll_fn(|context| {
            while !turns.left.is_empty() {
                let has_taken = turns.take(handle, |lane| match Pin::new(lane).poll_next(context) {
                    Poll::Ready(next) => Some(next),
                    Poll::Pending => None,
                });
                if !has_taken {
                    return Poll::Pending;
                }
            }
            Poll::Ready(())
        }));
        turns.end()
    }
}

/// What a lane gives: a batch, an error or the end.
type Next = Option<Result<Batch, FeedError>>;

/// Lanes of which one thread takes batches in turn.
struct Turns<'a> {
    consuming: &'a Consuming<'a>,
    seen: Vec<Seen>,
    lanes: Vec<Lane>,
    /// Those that have not ended.
    left: Vec<usize>,
}

impl<'a> Turns<'a> {
    fn of(consuming: &'a Consuming<'a>, feed: &mut Feed) -> Self {
        let lanes = feed.take_lanes().unwrap();
        Turns { consuming, seen: consuming.unseen(), left: (0..lanes.len()).collect(), lanes }
    }

    /// Takes from each lane what it gives now; whether one of them has given something, or is left.
    fn take(&mut self, handle: &FeedHandle, mut next: impl FnMut(&mut Lane) -> Option<Next>) -> bool {
        let Turns { consuming, seen, lanes, left } = self;
        let mut has_taken = false;
        left.retain(|&number| {
            let seen = &mut seen[number];
            if consuming.limit(number).is_some_and(|limit| seen.taken >= limit) {
                (seen.has_left, has_taken) = (true, true);
                return false;
            }
            let Some(next) = next(&mut lanes[number]) else { return true };
            has_taken = true;
            match next {
                Some(Ok(batch)) => consuming.check(seen, number, &batch),
                Some(Err(error)) => seen.error = Some(error),
                None => seen.is_ended = true,
            }
            let goes_on = seen.error.is_none() && !seen.is_ended;
            assert_eq!(lanes[number].is_ended(), !goes_on);
            goes_on
        });
        consuming.meddle(handle, seen[0].taken);
        has_taken
    }

    fn end(self) -> Vec<Seen> {
        if let Some(chaos) = self.consuming.chaos {
            chaos.release();
        }
        self.seen
    }
}
