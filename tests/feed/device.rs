//! A GPU reads a batch long after the call that sent it has returned. The device of these tests does nothing
//! by itself: an event happens when the test triggers it. They show that the feed waits for no event it does
//! not need; that it writes no memory that the device may still read (the device keeps a copy of each batch,
//! and compares); and that a failing device ends its lane with its own error.

#![expect(unsafe_code, reason = "the device reads a batch's memory behind the feed's back, as a GPU does")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use percolator::device::{Backend, Capacity, Event, HostBatch, HostMemory, PageMemory, Transfer};
use percolator::distribute::{
    DistributedIterator, InputOptions, InputWorker, InputWorkers, distribute_from_fn,
};
use percolator::order::{InputContext, OrderError};
use percolator::reader::Registry;
use percolator::{Batch, Device, DeviceError, Feed, FeedBuilder, FeedError, Lane};

use crate::common::process::must_end;
use crate::common::source::{MemorySource, Probe};

/// A batch that was sent: its address in host memory, and what was there.
struct Sent {
    address: usize,
    copy: Vec<u8>,
    labels: Vec<i32>,
}

/// What fails, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    Memory,
    /// The memory has 1 byte, whatever was requested.
    MemoryTooSmall,
    Transfer,
    Submit(usize),
    Release,
    ReleasePanics,
    LastUse(usize),
    /// Nothing, but dropping a transfer waits until the device is done with it, as with a GPU.
    WaitsInDrop,
}

#[derive(Default)]
struct State {
    sent: Vec<Sent>,
    arrived: HashSet<usize>,
    /// Batches that the consumer has dropped.
    released: HashSet<usize>,
    /// Batches that the device has finished reading.
    finished: HashSet<usize>,
    /// Batches whose last use the feed waits for.
    awaited: HashSet<usize>,
    by_itself: bool,
    /// The addresses that a living transfer may be reading.
    in_use: HashSet<usize>,
    /// Whether memory was freed while it was in use.
    freed_in_use: bool,
    /// The number of batch memories alive.
    memories: usize,
    /// The threads that dropped transfers.
    dropped_on: HashSet<String>,
}

#[derive(Clone)]
struct Bench(Arc<(Mutex<State>, Condvar)>, Broken);

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bench({:?})", self.1)
    }
}

impl Bench {
    fn new(broken: Broken) -> Self {
        Bench(Arc::default(), broken)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap()
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) {
        let _ = change(&mut self.state());
        self.0.1.notify_all();
    }

    fn wait_until(&self, reached: impl Fn(&State) -> bool) {
        drop(self.0.1.wait_while(self.state(), |state| !reached(state)).unwrap());
    }

    /// From now on, every event happens at once.
    fn let_go(&self) {
        self.change(|state| state.by_itself = true);
    }

    /// Whether the memory of a batch still holds what was sent.
    fn is_intact(&self, number: usize) -> bool {
        let state = self.state();
        let Sent { address, copy, .. } = &state.sent[number];
        // SAFETY: the tests ask only while the lane lives, and the lane owns this memory. That nobody writes
        // it now is what is tested: if the test fails, this reads bytes that are being written.
        let now = unsafe { std::slice::from_raw_parts(*address as *const u8, copy.len()) };
        now == copy
    }

    fn error(&self, call: &'static str) -> DeviceError {
        DeviceError::Call { device: self.name(), call, message: "the test says so".to_owned() }
    }
}

impl Backend for Bench {
    fn name(&self) -> String {
        "bench:0".to_owned()
    }

    fn host_memory(&self, bytes: usize) -> Result<Box<dyn HostMemory>, DeviceError> {
        match self.1 {
            Broken::Memory => Err(self.error("host_memory")),
            Broken::MemoryTooSmall => Ok(Box::new(PageMemory::new(1).unwrap())),
            _ => {
                self.change(|state| state.memories += 1);
                Ok(Box::new(Memory { bench: self.clone(), pages: PageMemory::new(bytes).unwrap() }))
            }
        }
    }

    fn transfer(&self, _room: Capacity) -> Result<Box<dyn Transfer>, DeviceError> {
        if self.1 == Broken::Transfer {
            return Err(self.error("transfer"));
        }
        let event = |is_arrival| Signal { bench: self.clone(), number: Mutex::new(None), is_arrival };
        Ok(Box::new(Way { reads: None, bench: self.clone(), arrival: event(true), last_use: event(false) }))
    }
}

/// Memory that notices when it is freed too early.
#[derive(Debug)]
struct Memory {
    bench: Bench,
    pages: PageMemory,
}

// SAFETY: the pages inside keep every promise of the trait.
unsafe impl HostMemory for Memory {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.pages.as_mut_ptr()
    }

    fn len(&self) -> usize {
        self.pages.len()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let address = self.pages.as_mut_ptr() as usize;
        self.bench.change(|state| {
            state.freed_in_use |= state.in_use.contains(&address);
            state.memories -= 1;
        });
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        self.bench.change(|state| state.dropped_on.insert(thread));
        if self.bench.1 == Broken::WaitsInDrop {
            self.last_use.wait().unwrap();
        }
        if let Some(address) = self.reads.take() {
            self.bench.change(|state| state.in_use.remove(&address));
        }
    }
}

#[derive(Debug)]
struct Way {
    /// The address of the batch that was submitted last.
    reads: Option<usize>,
    bench: Bench,
    arrival: Signal,
    last_use: Signal,
}

impl Transfer for Way {
    fn submit(&mut self, batch: HostBatch<'_>) -> Result<(), DeviceError> {
        let mut state = self.bench.state();
        let [pixels, labels] = ["data", "label"].map(|name| batch.array(name).unwrap());
        let address = pixels.bytes.as_ptr() as usize;
        state.in_use.insert(address);
        self.reads = Some(address);
        let number = state.sent.len();
        if self.bench.1 == Broken::Submit(number) {
            return Err(self.bench.error("submit"));
        }
        assert_eq!((pixels.offset, address), (0, batch.memory().as_ptr() as usize));
        let (copy, labels) = (pixels.bytes.to_vec(), bytemuck::cast_slice(labels.bytes).to_vec());
        state.sent.push(Sent { address, copy, labels });
        drop(state);
        self.bench.0.1.notify_all();
        *self.arrival.number.lock().unwrap() = Some(number);
        *self.last_use.number.lock().unwrap() = Some(number);
        Ok(())
    }

    fn arrival(&self) -> &dyn Event {
        &self.arrival
    }

    fn release(&mut self) -> Result<(), DeviceError> {
        match self.bench.1 {
            Broken::Release => return Err(self.bench.error("release")),
            Broken::ReleasePanics => panic!("the test says so"),
            _ => {}
        }
        let number = self.last_use.number.lock().unwrap().expect("a batch is released after it was sent");
        self.bench.change(|state| state.released.insert(number));
        Ok(())
    }

    fn last_use(&self) -> &dyn Event {
        &self.last_use
    }
}

#[derive(Debug)]
struct Signal {
    bench: Bench,
    /// The batch that this event belongs to; `None` before the first one, when there is nothing to wait for.
    number: Mutex<Option<usize>>,
    is_arrival: bool,
}

impl Signal {
    fn number(&self) -> Result<Option<usize>, DeviceError> {
        let number = *self.number.lock().unwrap();
        match (self.bench.1, number) {
            (Broken::LastUse(broken), Some(number)) if number == broken && !self.is_arrival => {
                Err(self.bench.error("last_use"))
            }
            _ => Ok(number),
        }
    }

    fn has_happened(&self, state: &State, number: usize) -> bool {
        let happened = if self.is_arrival { &state.arrived } else { &state.finished };
        state.by_itself || happened.contains(&number)
    }
}

impl Event for Signal {
    fn is_complete(&self) -> Result<bool, DeviceError> {
        let number = self.number()?;
        if let (Some(number), false) = (number, self.is_arrival) {
            self.bench.change(|state| state.awaited.insert(number));
        }
        Ok(number.is_none_or(|number| self.has_happened(&self.bench.state(), number)))
    }

    fn wait(&self) -> Result<(), DeviceError> {
        let Some(number) = self.number()? else { return Ok(()) };
        self.bench.wait_until(|state| self.has_happened(state, number));
        Ok(())
    }
}

fn feed(bench: &Bench, prefetch: usize) -> FeedBuilder {
    Feed::builder()
        .source(MemorySource::images("device", 50, 1, 8, 8))
        .registry(&Registry::new())
        .threads(2)
        .batch_size(4)
        .prefetch(prefetch)
        .devices([Device::from_backend(Arc::new(bench.clone()))])
}

fn lane_of(bench: &Bench, prefetch: usize) -> (Feed, Lane) {
    let mut feed = feed(bench, prefetch).build().unwrap();
    let lane = feed.take_lanes().unwrap().remove(0);
    (feed, lane)
}

fn next(lane: &mut Lane) -> Batch {
    lane.next().expect("the lane goes on").unwrap()
}

#[test]
fn batches_are_sent_in_order_and_handed_over_before_they_arrive() {
    must_end("a lane whose batches have not arrived", || {
        let bench = Bench::new(Broken::Nothing);
        let (_feed, mut lane) = lane_of(&bench, 3);
        let batches = [next(&mut lane), next(&mut lane), next(&mut lane)];
        for (number, batch) in batches.iter().enumerate() {
            assert!(!batch.arrival().is_complete().unwrap(), "nobody waited for batch {number}");
            assert_eq!(batch.records()[0].index, 4 * number as u64);
            let state = bench.state();
            assert_eq!(state.sent[number].copy, batch.bytes());
            assert_eq!(state.sent[number].labels, batch.labels());
        }
        // They arrive one by one, the last one first.
        bench.change(|state| state.arrived.insert(2));
        batches[2].wait().unwrap();
        assert!(!batches[0].arrival().is_complete().unwrap());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| batches[0].wait());
            bench.change(|state| state.arrived.insert(0));
            waiter.join().unwrap().unwrap();
        });
        assert!(!batches[1].arrival().is_complete().unwrap());
        bench.let_go();
        drop(batches);
        for number in 3..100 {
            assert_eq!(next(&mut lane).records()[0].index, 4 * number % 50);
        }
    });
}

#[test]
fn memory_is_not_written_before_its_last_use() {
    must_end("a lane whose batches are still read", || {
        let bench = Bench::new(Broken::Nothing);
        let (_feed, mut lane) = lane_of(&bench, 2);
        drop([next(&mut lane), next(&mut lane)]);
        assert_eq!(bench.state().released, HashSet::from([0, 1]), "the consumer has let go of both");
        // The feed needs the first batch's memory, and the device still reads both.
        bench.wait_until(|state| state.awaited.contains(&0));
        assert!(lane.try_next().unwrap().batch().is_none());
        assert!(bench.is_intact(0) && bench.is_intact(1));
        bench.change(|state| state.finished.insert(0));
        let third = next(&mut lane);
        assert_eq!(third.bytes().as_ptr() as usize, bench.state().sent[0].address, "its memory was reused");
        assert!(!bench.is_intact(0), "and the check can fail");
        bench.wait_until(|state| state.awaited.contains(&1));
        assert!(bench.is_intact(1), "the other's was not");
        drop(third);
        // The third was dropped too, but the device is not done with it or with the second.
        assert!(lane.try_next().unwrap().batch().is_none());
        assert!(bench.is_intact(1) && bench.is_intact(2));
        bench.let_go();
        for _ in 0..50 {
            next(&mut lane);
        }
    });
}

#[test]
fn a_batch_that_is_done_with_need_not_wait_for_one_before_it() {
    must_end("a lane whose second batch is done with first", || {
        let bench = Bench::new(Broken::Nothing);
        let (_feed, mut lane) = lane_of(&bench, 2);
        drop([next(&mut lane), next(&mut lane)]);
        bench.wait_until(|state| state.awaited.contains(&0) && state.awaited.contains(&1));
        bench.change(|state| state.finished.insert(1));
        let third = next(&mut lane);
        assert_eq!(
            third.bytes().as_ptr() as usize,
            bench.state().sent[1].address,
            "the second's memory was reused"
        );
        assert!(bench.is_intact(0), "the first's was not");
        bench.let_go();
    });
}

#[test]
fn a_lane_ends_while_its_device_is_still_busy() {
    must_end("a cancelled lane whose device has not let go of a batch", || {
        let bench = Bench::new(Broken::Nothing);
        let (feed, mut lane) = lane_of(&bench, 2);
        drop([next(&mut lane), next(&mut lane)]);
        bench.wait_until(|state| state.awaited.contains(&0));
        // The prefetcher waits for the device and for a cancellation at once.
        feed.canceller().cancel();
        assert!(matches!(lane.next(), Some(Err(FeedError::Cancelled))));
        bench.let_go();
    });
}

#[test]
fn a_complete_batch_is_delivered_while_an_earlier_one_is_still_read() {
    must_end("a complete batch behind one that is still read", || {
        // Large enough that the second is being written when the first is dropped.
        let bench = Bench::new(Broken::Nothing);
        let source = MemorySource::images("large", 4, 3, 1500, 1500);
        let mut feed = feed(&bench, 2).source(source).batch_size(1).threads(1).build().unwrap();
        let mut lane = feed.take_lanes().unwrap().remove(0);
        drop(next(&mut lane));
        // The device never finishes with the first; the second is delivered anyway.
        assert_eq!(next(&mut lane).records()[0].index, 1);
        bench.let_go();
    });
}

/// The number of batches delivered, and the error that ends them.
fn end(bench: &Bench) -> (usize, FeedError) {
    bench.let_go();
    let watched = bench.clone();
    let bench = bench.clone();
    let ended = must_end("a lane of a broken device", move || {
        let (_feed, mut lane) = lane_of(&bench, 2);
        let mut batches = 0;
        loop {
            match lane.next().expect("an error comes before the end") {
                Ok(batch) => {
                    assert_eq!(batch.records()[0].index, 4 * batches % 50);
                    batches += 1;
                }
                Err(error) => {
                    assert!(lane.next().is_none(), "once");
                    return (usize::try_from(batches).unwrap(), error);
                }
            }
        }
    });
    assert!(!watched.state().freed_in_use, "memory was freed before the transfer that may be reading it");
    ended
}

#[test]
fn an_error_of_submit_ends_the_lane_after_the_batches_before_it() {
    for number in [0, 1, 5] {
        let bench = Bench::new(Broken::Submit(number));
        let (batches, error) = end(&bench);
        assert_eq!(batches, number);
        assert_eq!(error, FeedError::Device(bench.error("submit")));
    }
}

#[test]
fn an_error_of_the_last_use_ends_the_lane() {
    let bench = Bench::new(Broken::LastUse(3));
    let (batches, error) = end(&bench);
    // Batch 3 was delivered, and perhaps the next one of the ring.
    assert!(batches == 4 || batches == 5, "{batches}");
    assert_eq!(error, FeedError::Device(bench.error("last_use")));
}

#[test]
fn an_error_of_release_ends_the_lane() {
    let bench = Bench::new(Broken::Release);
    let (batches, error) = end(&bench);
    assert!((1..=2).contains(&batches), "the ring has two: {batches}");
    assert_eq!(error, FeedError::Device(bench.error("release")));
}

#[test]
fn a_device_without_room_is_told_at_build() {
    for (broken, call) in [(Broken::Memory, "host_memory"), (Broken::Transfer, "transfer")] {
        let bench = Bench::new(broken);
        // Beside a lane that was already started.
        let devices = [Device::host(0), Device::from_backend(Arc::new(bench.clone()))];
        let registry = Registry::new();
        let error = feed(&bench, 2).devices(devices).registry(&registry).build().unwrap_err();
        assert_eq!(error, FeedError::Device(bench.error(call)));
        assert!(registry.is_empty(), "nothing is left running");
    }
}

#[test]
fn a_device_that_gives_too_little_memory_is_an_error_and_not_a_write_past_its_end() {
    let bench = Bench::new(Broken::MemoryTooSmall);
    let error = feed(&bench, 2).build().unwrap_err();
    assert!(matches!(error, FeedError::Device(DeviceError::OutOfMemory { .. })), "{error}");
}

#[test]
fn a_broken_device_ends_its_own_lane_and_no_other() {
    must_end("the lane beside a broken device", || {
        let bench = Bench::new(Broken::Submit(2));
        bench.let_go();
        let devices = [Device::from_backend(Arc::new(bench.clone())), Device::host(1)];
        let mut feed = feed(&bench, 2).devices(devices).build().unwrap();
        let mut lanes = feed.take_lanes().unwrap();
        let (other, broken) = (lanes.remove(1), lanes.remove(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let errors: Vec<_> = broken.filter_map(Result::err).collect();
                assert_eq!(errors, [FeedError::Device(bench.error("submit"))]);
            });
            // Many times the capacity of the queues: the reader does not wait for the lane that is gone.
            assert_eq!(other.take(50).filter(Result::is_ok).count(), 50);
        });
    });
}

#[test]
fn a_lane_may_go_while_its_batches_are_on_their_way() {
    must_end("the drop of a lane whose batches have not arrived", || {
        for taken in 0..3 {
            let bench = Bench::new(Broken::WaitsInDrop);
            let (feed, mut lane) = lane_of(&bench, 3);
            let batches: Vec<Batch> = (0..taken).map(|_| next(&mut lane)).collect();
            bench.wait_until(|state| state.sent.len() == 3);
            drop(lane);
            drop(feed);
            drop(batches);
            assert_eq!(bench.state().released.len(), taken);
            bench.let_go();
            bench.wait_until(|state| state.memories == 0);
            assert!(!bench.state().freed_in_use);
        }
    });
}

/// A feed of one lane whose only pass has this many batches.
fn pass_of(bench: &Bench, batches: usize, prefetch: usize) -> (Feed, Lane, Arc<Probe>) {
    let source = MemorySource::images("pass", 4 * batches, 1, 8, 8);
    let probe = source.probe();
    let mut feed = feed(bench, prefetch).source(source).once().build().unwrap();
    let lane = feed.take_lanes().unwrap().remove(0);
    (feed, lane, probe)
}

#[test]
fn the_end_of_a_pass_and_its_last_batches_wait_for_no_device() {
    must_end("a thread without which the device does not go on, at the end of a pass", || {
        let bench = Bench::new(Broken::WaitsInDrop);
        let (feed, mut lane, _) = pass_of(&bench, 4, 4);
        let mut batches: Vec<Batch> = (0..4).map(|_| next(&mut lane)).collect();
        // The device still reads the first batch while the others are held, and reads all of them when the
        // lane ends. It continues only when this thread tells it to, like a GPU whose step waits for another
        // one's, which is launched from here.
        drop(batches.remove(0));
        assert!(lane.next().is_none());
        drop(batches);
        assert_eq!(bench.state().released.len(), 4);
        // The lane does not wait either, although all batches have been returned.
        drop((lane, feed));
        bench.let_go();
        bench.wait_until(|state| state.memories == 0);
        assert!(!bench.state().freed_in_use);
        assert_eq!(bench.state().dropped_on, HashSet::from(["prefetch:0".to_owned()]));
    });
}

#[test]
fn a_lane_and_a_feed_that_are_closed_have_given_their_memory_back() {
    must_end("the end of a lane's batches", || {
        for closes_feed in [false, true] {
            let bench = Bench::new(Broken::WaitsInDrop);
            let mut feed = feed(&bench, 3).build().unwrap();
            bench.wait_until(|state| !state.sent.is_empty());
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    // The prefetch thread waits for the device.
                    bench.wait_until(|state| !state.dropped_on.is_empty());
                    bench.let_go();
                });
                if closes_feed {
                    feed.close();
                } else {
                    let mut lane = feed.take_lanes().unwrap().remove(0);
                    drop([next(&mut lane), next(&mut lane)]);
                    lane.close();
                }
                assert_eq!(bench.state().memories, 0);
            });
            assert!(!bench.state().freed_in_use);
        }
        // A batch that the consumer holds is not waited for: the thread that would wait may be the one that
        // holds it.
        let bench = Bench::new(Broken::WaitsInDrop);
        let (_feed, mut lane) = lane_of(&bench, 3);
        let held = next(&mut lane);
        lane.close();
        drop(held);
        bench.let_go();
        bench.wait_until(|state| state.memories == 0);
    });
}

#[test]
fn batches_that_outlive_their_lane_wait_for_no_device_and_hold_nothing_else() {
    must_end("a thread without which the device does not go on, and which drops its lane first", || {
        let bench = Bench::new(Broken::WaitsInDrop);
        let (feed, mut lane, probe) = pass_of(&bench, 8, 4);
        let first = next(&mut lane);
        let second = next(&mut lane);
        drop(next(&mut lane));
        drop(lane);
        drop(feed);
        assert!(probe.is_dropped() && probe.cursors() == 0, "the reader has ended");
        // The device finishes the third, and whatever was in flight.
        bench.change(|state| {
            state.finished.insert(2);
            state.finished.insert(3);
        });
        bench.wait_until(|state| state.memories == 2);
        assert_eq!(second.records()[0].index, 4, "what is held stays");
        drop(first);
        std::thread::spawn(|| drop(second)).join().unwrap();
        assert_eq!(bench.state().memories, 2, "the device is at work on both");
        bench.let_go();
        bench.wait_until(|state| state.memories == 0);
        assert!(!bench.state().freed_in_use);
        assert_eq!(bench.state().dropped_on, HashSet::from(["prefetch:0".to_owned()]));
    });
}

/// A job of two lanes. The first, on this device, has one batch; the other, on the host, has ten, so empty
/// batches stand in for the first one's. Returns it after the first step, whose batches are dropped.
fn uneven_job(bench: &Bench) -> DistributedIterator {
    let device = Device::from_backend(Arc::new(bench.clone()));
    let workers = InputWorkers::new([
        InputWorker::here("short", [device.clone()]),
        InputWorker::here("long", [Device::host(0)]),
    ]);
    let described = move |context: InputContext| {
        let (records, device) =
            [(1, device.clone()), (10, Device::host(0))][context.input_pipeline_id].clone();
        let source = MemorySource::images("uneven", records, 1, 8, 8);
        Ok::<_, OrderError>(
            Feed::builder()
                .source(source)
                .registry(&Registry::new())
                .threads(1)
                .batch_size(1)
                .once()
                .devices([device]),
        )
    };
    let options = InputOptions::new().per_replica_buffer_size(0).prefetch(1);
    let mut job = distribute_from_fn(&workers.unwrap(), options, described).unwrap();
    assert!(!stand_in(&mut job).is_empty(), "the first step has a record for each");
    job
}

/// The first lane's batch of the next step.
fn stand_in(job: &mut DistributedIterator) -> Batch {
    let step = job.next().expect("the job goes on").unwrap();
    step.batches.into_iter().next().unwrap()
}

#[test]
fn empty_batches_wait_for_no_device_either() {
    must_end("a thread without which the device does not go on, at the end of a job", || {
        let bench = Bench::new(Broken::WaitsInDrop);
        let mut job = uneven_job(&bench);
        let [first, second, third] = [(); 3].map(|()| stand_in(&mut job));
        assert!(first.is_empty() && second.is_empty() && third.is_empty());
        // The device reads all of them: the first while it is held beyond its job, the second when the next
        // step begins, the third when the job is dropped.
        drop(second);
        drop(stand_in(&mut job));
        drop(third);
        drop(job);
        std::thread::spawn(|| drop(first)).join().unwrap();
        bench.let_go();
        bench.wait_until(|state| state.memories == 0);
        assert!(!bench.state().freed_in_use);
        assert_eq!(bench.state().dropped_on, HashSet::from(["prefetch:0".to_owned()]));
    });
}

#[test]
fn empty_batches_go_round_again_once_their_device_is_done_with_them() {
    must_end("a job whose empty batches are used again", || {
        let bench = Bench::new(Broken::WaitsInDrop);
        let mut job = uneven_job(&bench);
        let mut address = || stand_in(&mut job).bytes().as_ptr() as usize;
        let [first, second] = [address(), address()];
        assert_ne!(first, second, "the device is at work on the first when the second is made");
        bench.let_go();
        assert!([first, second].contains(&address()), "and now on none");
    });
}

#[test]
fn a_lane_that_has_ended_gives_nothing_by_a_poll_either() {
    must_end("a lane beside one that failed", || {
        let bench = Bench::new(Broken::Submit(0));
        bench.let_go();
        let devices = [Device::host(0), Device::from_backend(Arc::new(bench.clone()))];
        let mut feed = feed(&bench, 2).devices(devices).build().unwrap();
        let before = feed.snapshot().unwrap();
        let error = feed.steps().next().unwrap().unwrap_err();
        assert_eq!(error, FeedError::Device(bench.error("submit")));
        // All lanes lose the step. The first lane's ring is full again, and its next batch is that of step 1.
        while feed.stats().lanes[0].waits_for_free.count == 0 {
            std::thread::yield_now();
        }
        let mut lane = feed.take_lanes().unwrap().remove(0);
        assert!(lane.is_ended());
        assert!(lane.try_next().unwrap().batch().is_none());
        assert!(lane.next().is_none());
        assert_eq!(
            feed.snapshot().unwrap().to_string(),
            before.to_string(),
            "and the run goes on from step 0"
        );
    });
}

#[test]
fn a_panic_of_release_ends_the_lane_and_neither_its_consumer_nor_the_process() {
    must_end("a lane whose device panics", || {
        for as_tensors in [false, true] {
            let bench = Bench::new(Broken::ReleasePanics);
            bench.let_go();
            let (_feed, mut lane) = lane_of(&bench, 1);
            let batch = next(&mut lane);
            if as_tensors {
                let mut tensors = batch.into_dlpack().unwrap();
                let raw = tensors.take("data").unwrap().into_raw();
                drop(tensors);
                // SAFETY: the tensor lives until its deleter is called.
                let deleter = unsafe { (*raw).deleter }.unwrap();
                // SAFETY: it is called once, as a framework does.
                unsafe { deleter(raw) };
            } else {
                drop(batch);
            }
            let error = lane.next().unwrap().unwrap_err();
            assert_eq!(
                error.to_string(),
                "the device of lane 0: release failed: it panicked: the test says so"
            );
            assert!(lane.next().is_none());
        }
    });
}
