//! Runs a scenario: its workers at the same time, with faults; then what is left of it, without.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use percolator::chaos::{Chaos, Effect, Faults};
use percolator::feed::{FeedCanceller, FeedControl, TryNext};
use percolator::order::{AutoShardPolicy, World};
use percolator::reader::Registry;
use percolator::receipt::Verdict;
use percolator::source::{IndexPlace, Matching};
use percolator::{
    Batch, DecodeFailure, Device, Dtype, Feed, FeedBuilder, FeedError, Field, Lane, LastBatch, Receipt,
    Snapshot, Target,
};

use crate::model::{self, Due};
use crate::scenario::{Consumer, Order, Scenario};
use crate::stores::{BYTES, Coding, Kind, Stores, checksum};

/// What a worker's lanes got, and how they ended.
#[derive(Default)]
struct Leg {
    due: Due,
    lanes: Vec<Seen>,
    /// Why there is no feed.
    refused: Option<Refused>,
    snapshot: Option<Snapshot>,
    receipt: Option<Receipt>,
    budget_bytes: usize,
}

#[derive(Debug)]
enum Refused {
    Error(Box<FeedError>),
    Panic,
}

/// What the consumer of a lane saw.
#[derive(Debug, Default)]
struct Seen {
    taken: usize,
    error: Option<FeedError>,
    /// Whether it has seen the end.
    is_ended: bool,
    /// Whether it left, or stopped at a limit.
    has_left: bool,
    /// An error of a batch's arrival.
    arrival: Option<FeedError>,
}

/// What the legs of one scenario share.
struct Run<'a> {
    scenario: &'a Scenario,
    stores: &'a Stores,
    chaos: Chaos,
    /// Counts what belongs to the lanes that are not struck.
    calm: Chaos,
    canceller: Mutex<Option<FeedCanceller>>,
    registry: Registry,
}

/// Makes the stores of a scenario, if they are not there yet.
pub(crate) fn open_stores(scenario: &Scenario, stores: &Stores) {
    let Scenario { kind, coding, records, access, .. } = *scenario;
    drop(stores.open(kind, coding, records, access, &Chaos::new(Faults::none())));
}

/// Runs a scenario, checks everything, and returns the bytes that its feeds announced.
pub(crate) fn run(scenario: &Scenario, stores: &Stores) -> usize {
    let run = Run {
        scenario,
        stores,
        chaos: Chaos::new(scenario.faults.clone()),
        calm: Chaos::new(Faults::none()),
        canceller: Mutex::default(),
        registry: Registry::new(),
    };
    if !scenario.is_armed_early {
        run.chaos.disarm();
    }
    let first = run.with_releaser(|| run.all_workers(&|_| None, true));
    let dues: Vec<Due> = first.iter().map(|leg| leg.due.clone()).collect();
    if first.iter().all(|leg| leg.refused.is_none()) {
        model::check_once(scenario, &dues);
    }
    first.iter().enumerate().for_each(|(worker, leg)| run.check(leg, worker));
    run.go_on(&first);
    run.chaos.wait_until_gone();
    run.calm.wait_until_gone();
    assert_eq!((run.chaos.overwritten(), run.calm.overwritten()), (0, 0));
    assert!(run.registry.is_empty(), "a reader is left");
    first.iter().map(|leg| leg.budget_bytes).sum()
}

impl Run<'_> {
    /// Does what it is told, while a thread releases whatever sticks, or cancels the feed first.
    fn with_releaser<T>(&self, act: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            scope.spawn(|| {
                self.chaos.wait_until_stuck();
                if let Some(canceller) = self.canceller.lock().unwrap().as_ref()
                    && self.scenario.may_cancel()
                {
                    // Its consumers see the end while the source is still stuck, and release it then.
                    return canceller.cancel();
                }
                self.chaos.release();
            });
            let done = act();
            self.chaos.release();
            done
        })
    }

    fn all_workers(&self, from: &(dyn Fn(usize) -> Option<Snapshot> + Sync), has_faults: bool) -> Vec<Leg> {
        thread::scope(|scope| {
            let leg = |worker: usize| scope.spawn(move || self.leg(worker, from(worker), has_faults));
            let workers: Vec<_> = (0..self.scenario.workers).map(leg).collect();
            workers.into_iter().map(|worker| worker.join().expect("its checks hold")).collect()
        })
    }

    /// Runs the feed of one worker.
    fn leg(&self, worker: usize, from: Option<Snapshot>, has_faults: bool) -> Leg {
        let is_struck = has_faults && worker == 0;
        let chaos = if is_struck { &self.chaos } else { &self.calm };
        let builder = self.describe(worker, chaos);
        let builder = from.iter().fold(builder, FeedBuilder::resume);
        // A source that panics at a record that is sampled, and a device that panics when it is asked for
        // memory, panic in `build`.
        let built = match catch_unwind(AssertUnwindSafe(|| builder.build())) {
            Ok(Ok(feed)) => feed,
            Ok(Err(error)) => {
                return Leg { refused: Some(Refused::Error(Box::new(error))), ..Leg::default() };
            }
            Err(_) => return Leg { refused: Some(Refused::Panic), ..Leg::default() },
        };
        let mut feed = built;
        if is_struck {
            *self.canceller.lock().unwrap() = Some(feed.canceller());
            chaos.arm();
        }
        let mut due = model::due(self.scenario, &feed, worker);
        if let Some(snapshot) = &from {
            for (lane, due) in due.iter_mut().enumerate() {
                due.drain(..self.taken(snapshot, &feed, worker * self.scenario.lanes + lane));
            }
        }
        let cut = if has_faults { self.scenario.cut } else { None };
        let lanes =
            Consuming { run: self, due: &due, cut, chaos: is_struck.then_some(chaos) }.consume(&mut feed);
        if is_struck {
            self.canceller.lock().unwrap().take();
            chaos.release();
        }
        let (snapshot, receipt) = (feed.snapshot().ok(), feed.receipt());
        let budget_bytes = feed.memory_budget().total_bytes();
        Leg { due, lanes, refused: None, snapshot, receipt, budget_bytes }
    }

    /// The batches that a replica had before a snapshot.
    fn taken(&self, snapshot: &Snapshot, feed: &Feed, replica: usize) -> usize {
        let next = snapshot.next(replica).expect("it is of all replicas");
        let before: u64 = match feed.plan() {
            Some(plan) => (0..next.epoch).map(|epoch| plan.steps(epoch).unwrap()).sum(),
            None => 0,
        };
        usize::try_from(before + next.step).unwrap()
    }

    fn describe(&self, worker: usize, chaos: &Chaos) -> FeedBuilder {
        let s = self.scenario;
        let source = self.stores.open(s.kind, s.coding, s.records, s.access, chaos);
        let device = |lane: usize| {
            let chaos = if lane == 0 { chaos } else { &self.calm };
            chaos.device(Device::host(lane))
        };
        // A compressed file is read by position from a copy of it, which is kept on the disk.
        let index = if s.kind == Kind::Gzip { IndexPlace::Beside } else { IndexPlace::Memory };
        let feed = Feed::builder().source(source).registry(&self.registry).devices((0..s.lanes).map(device));
        let feed =
            feed.batch_size(s.size).threads(s.threads).prefetch(s.prefetch).drop_behind(s.drops_behind);
        let feed =
            feed.receipts(s.has_receipts).give_up_after(None).index(index).bad_records(s.bad_records());
        let feed = match s.order {
            Order::Once => feed.once(),
            Order::RoundRobin { .. } => feed,
            Order::Plan { epochs, shuffle, last, assignment } => {
                let world = World::new(s.workers, s.workers * s.lanes).unwrap();
                let feed = feed.epochs(epochs).shuffle(shuffle).last_batch(last).assignment(assignment);
                return self.decoded(feed.seed(s.seed).policy(AutoShardPolicy::Data).worker(world, worker));
            }
        };
        self.decoded(feed.ranks(worker * s.lanes, s.workers * s.lanes))
    }

    fn decoded(&self, feed: FeedBuilder) -> FeedBuilder {
        let s = self.scenario;
        if s.coding == Coding::Datum {
            if !s.has_target {
                return feed;
            }
            let targets = self.stores.open(s.kind, s.coding, s.records, s.access, &self.calm);
            return feed.target(Target::paired(targets, Matching::Order));
        }
        feed.fields([Field::new("content", Dtype::U8, [BYTES])]).decode(|record, row| {
            let wrong = || DecodeFailure::new(format!("{} bytes fail their checksum", record.value.len()));
            let (position, rest) = record.value.split_first_chunk::<8>().ok_or_else(wrong)?;
            let (sum, content) = rest.split_first_chunk::<8>().ok_or_else(wrong)?;
            let is_right = checksum(u64::from_le_bytes(*position), content) == u64::from_le_bytes(*sum);
            if !is_right || content.len() != BYTES {
                return Err(wrong());
            }
            row.write("content", content)?;
            Ok(())
        })
    }

    /// Checks how a worker's first leg ended.
    fn check(&self, leg: &Leg, worker: usize) {
        let explained = |error: &FeedError| {
            self.scenario.faults.iter().any(|fault| model::explains(self.scenario, fault, error))
        };
        match &leg.refused {
            Some(_) if worker > 0 => panic!("a worker without faults was refused: {:?}", leg.refused),
            Some(Refused::Error(error)) => {
                return assert!(explained(error), "no fault explains this: {error}");
            }
            Some(Refused::Panic) => {
                let panics = self.scenario.faults.iter().any(|fault| fault.effect == Effect::Panic);
                return assert!(panics, "the build panicked");
            }
            None => {}
        }
        for (number, (lane, due)) in leg.lanes.iter().zip(&leg.due).enumerate() {
            let is_whole = lane.taken == due.len();
            if let Some(error) = &lane.error {
                let is_cancelled = *error == FeedError::Cancelled && self.scenario.may_cancel();
                assert!(worker == 0 && (is_cancelled || explained(error)), "no fault explains this: {error}");
                let is_of_device = matches!(error, FeedError::Device(_));
                let together = self.scenario.consumer == Consumer::Steps;
                assert!(number == 0 || !is_of_device || together, "another lane's device ended this one");
            } else {
                assert!(
                    is_whole || lane.has_left,
                    "lane {number} of worker {worker}: {lane:?} of {}",
                    due.len()
                );
            }
            if let Some(error) = &lane.arrival {
                assert!(explained(error), "no fault explains this: {error}");
            }
        }
        if let (0, Some(batches)) = (worker, model::batches_before(self.scenario, &leg.due)) {
            let lane = &leg.lanes[0];
            assert_eq!((lane.taken, lane.error.is_some()), (batches, true), "the batches before the error");
        }
    }

    /// Resumes where the first leg ended, without faults, and checks that the rest comes, once.
    fn go_on(&self, first: &[Leg]) {
        let is_like_another = !self.scenario.torn().is_empty() && self.scenario.is_armed_early;
        let snapshots: Option<Vec<&Snapshot>> = first.iter().map(|leg| leg.snapshot.as_ref()).collect();
        let joined = match snapshots {
            // Damaged bytes were sampled: the data set is not the one of the snapshot.
            Some(_) if is_like_another => return,
            Some(snapshots) => Some(Snapshot::join(snapshots).expect("the snapshots are of one run")),
            None => None,
        };
        let rest = self.all_workers(&|_| joined.clone(), false);
        for (worker, leg) in rest.iter().enumerate() {
            assert!(leg.refused.is_none(), "worker {worker}: {:?}", leg.refused);
            for (lane, due) in leg.lanes.iter().zip(&leg.due) {
                assert!(lane.error.is_none(), "{:?}", lane.error);
                assert_eq!(lane.taken, due.len(), "the rest of a lane of worker {worker}");
            }
        }
        if joined.is_some() {
            for (before, after) in first.iter().zip(&rest) {
                let counts = before.lanes.iter().zip(&before.due).zip(&after.due);
                counts.for_each(|((seen, all), rest)| assert_eq!(seen.taken + rest.len(), all.len()));
            }
        }
        self.prove(first.iter().filter(|_| joined.is_some()).chain(&rest));
    }

    fn prove<'a>(&self, legs: impl Iterator<Item = &'a Leg>) {
        let receipts: Vec<&Receipt> = legs.filter_map(|leg| leg.receipt.as_ref()).collect();
        let Order::Plan { epochs, last, .. } = self.scenario.order else { return };
        if receipts.is_empty() {
            return;
        }
        let verdict = Verdict::of(receipts.iter().map(|receipt| ("a leg", *receipt))).unwrap();
        assert!(verdict.is_sound(), "{verdict:?}");
        assert!(last == LastBatch::Wrap || verdict.first_not_covered(epochs).is_none(), "{verdict:?}");
    }
}

/// Takes the batches of a feed, as the scenario says.
struct Consuming<'a> {
    run: &'a Run<'a>,
    due: &'a Due,
    cut: Option<usize>,
    /// If this feed is struck.
    chaos: Option<&'a Chaos>,
}

impl Consuming<'_> {
    /// The batches that a lane is to take before it stops; `None` if it goes on to its end.
    fn limit(&self, lane: usize) -> Option<usize> {
        let is_endless = matches!(self.run.scenario.order, Order::RoundRobin { .. });
        let due = self.due[lane].len();
        match self.cut {
            Some(cut) => Some(cut.min(due)),
            None => is_endless.then_some(due),
        }
    }

    fn consume(&self, feed: &mut Feed) -> Vec<Seen> {
        let control = feed.control();
        match self.run.scenario.consumer {
            Consumer::Lanes => self.lanes(feed, &control),
            Consumer::Steps => self.steps(feed, &control),
            Consumer::Polls => self.polls(feed, &control),
            Consumer::Waits => self.waits(feed, &control),
        }
    }

    fn check(&self, seen: &mut Seen, lane: usize, batch: &Batch) {
        let due = self.due[lane].get(seen.taken).expect("no batch comes after the last");
        let is_torn = self.chaos.is_some() && self.run.scenario.is_armed_early;
        model::check_batch(self.run.scenario, batch, due, is_torn);
        assert_eq!(batch.lane(), lane);
        seen.taken += 1;
        if let Err(error) = batch.wait() {
            seen.arrival = Some(error.into());
        }
    }

    /// Pauses the feed, resumes it, and sets its threads, if the scenario says so.
    fn meddle(&self, control: &FeedControl, number: usize) {
        if !self.run.scenario.is_controlled {
            return;
        }
        match number % 6 {
            1 => control.pause(),
            2 => control.resume(),
            4 => drop(control.set_threads(1 + number % 3)),
            _ => {}
        }
        // Nobody else resumes it.
        if control.is_paused() {
            thread::yield_now();
            control.resume();
        }
    }

    fn lanes(&self, feed: &mut Feed, control: &FeedControl) -> Vec<Seen> {
        thread::scope(|scope| {
            let drain = |mut lane: Lane| {
                scope.spawn(move || {
                    let number = lane.number();
                    match self.chaos.filter(|_| number == 0) {
                        Some(chaos) => {
                            let mut consumer = chaos.consumer(lane);
                            let seen = self.drain(&mut consumer, number, control);
                            // One that has left has dropped its lane.
                            self.ended(seen, consumer.into_inner())
                        }
                        None => {
                            let seen = self.drain(&mut lane, number, control);
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
        control: &FeedControl,
    ) -> Seen {
        let mut seen = Seen::default();
        while self.limit(number).is_none_or(|limit| seen.taken < limit) {
            match lane.next() {
                Some(Ok(batch)) => {
                    self.check(&mut seen, number, &batch);
                    self.meddle(control, seen.taken);
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

    fn steps(&self, feed: &mut Feed, control: &FeedControl) -> Vec<Seen> {
        let mut seen: Vec<Seen> = self.due.iter().map(|_| Seen::default()).collect();
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
            self.meddle(control, taken);
        }
        seen.iter_mut().for_each(|seen| seen.has_left = true);
        seen
    }

    fn polls(&self, feed: &mut Feed, control: &FeedControl) -> Vec<Seen> {
        self.in_turns(feed, control, |lane| match lane.try_next() {
            Ok(TryNext::Batch(batch)) => Some(Some(Ok(batch))),
            Ok(TryNext::Ended) => Some(None),
            Ok(_) => {
                thread::yield_now();
                None
            }
            Err(error) => Some(Some(Err(error))),
        })
    }

    fn waits(&self, feed: &mut Feed, control: &FeedControl) -> Vec<Seen> {
        self.in_turns(feed, control, |lane| lane.wait_timeout(Duration::from_millis(1)).then(|| lane.next()))
    }

    /// One thread takes a batch of each lane in turn, if there is one: lanes that resume at different steps
    /// wait for each other.
    fn in_turns(
        &self,
        feed: &mut Feed,
        control: &FeedControl,
        mut next: impl FnMut(&mut Lane) -> Option<Option<Result<Batch, FeedError>>>,
    ) -> Vec<Seen> {
        let mut seen: Vec<Seen> = self.due.iter().map(|_| Seen::default()).collect();
        let mut lanes = feed.take_lanes().unwrap();
        let mut left: Vec<usize> = (0..lanes.len()).collect();
        while !left.is_empty() {
            left.retain(|&number| {
                let seen = &mut seen[number];
                if self.limit(number).is_some_and(|limit| seen.taken >= limit) {
                    seen.has_left = true;
                    return false;
                }
                let Some(next) = next(&mut lanes[number]) else { return true };
                match next {
                    Some(Ok(batch)) => self.check(seen, number, &batch),
                    Some(Err(error)) => seen.error = Some(error),
                    None => seen.is_ended = true,
                }
                let goes_on = seen.error.is_none() && !seen.is_ended;
                assert_eq!(lanes[number].is_ended(), !goes_on);
                goes_on
            });
            self.meddle(control, seen[0].taken);
        }
        if let Some(chaos) = self.chaos {
            chaos.release();
        }
        seen
    }
}
