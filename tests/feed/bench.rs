//! A device for tests, which does nothing by itself: an event happens when the test triggers it. The device
//! keeps a copy of each batch to compare with, and fails where the test says so.

#![expect(unsafe_code, reason = "the device reads a batch's memory behind the feed's back, as a GPU does")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use percolator::device::{Backend, Capacity, Event, HostBatch, HostMemory, PageMemory, Transfer};
use percolator::{Batch, Device, DeviceError, Feed, FeedBuilder, Lane};

use crate::common::source::MemorySource;

/// A batch that was sent: its address in host memory, and what was there.
pub(crate) struct Sent {
    pub address: usize,
    pub copy: Vec<u8>,
    pub labels: Vec<i32>,
}

/// What fails, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
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
pub(crate) struct State {
    pub sent: Vec<Sent>,
    pub arrived: HashSet<usize>,
    /// Batches that the consumer has dropped.
    pub released: HashSet<usize>,
    /// Batches that the device has finished reading.
    pub finished: HashSet<usize>,
    /// Batches whose last use the feed waits for.
    pub awaited: HashSet<usize>,
    by_itself: bool,
    /// Whether a batch that is being sent has to wait.
    pub holds_submit: bool,
    /// The addresses that a living transfer may be reading.
    in_use: HashSet<usize>,
    /// Whether memory was freed while it was in use.
    pub freed_in_use: bool,
    /// The number of batch memories alive.
    pub memories: usize,
    /// The last batches of the transfers that were dropped, in order.
    pub dropped: Vec<Option<usize>>,
    /// The threads that dropped transfers.
    pub dropped_on: HashSet<String>,
}

#[derive(Clone)]
pub(crate) struct Bench(Arc<(Mutex<State>, Condvar)>, Broken);

impl std::fmt::Debug for Bench {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Bench({:?})", self.1)
    }
}

impl Bench {
    pub(crate) fn new(broken: Broken) -> Self {
        Bench(Arc::default(), broken)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap()
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) {
        let _ = change(&mut self.state());
        self.0.1.notify_all();
    }

    pub(crate) fn wait_until(&self, reached: impl Fn(&State) -> bool) {
        drop(self.0.1.wait_while(self.state(), |state| !reached(state)).unwrap());
    }

    /// From now on, every event happens at once.
    pub(crate) fn let_go(&self) {
        self.change(|state| state.by_itself = true);
    }

    /// Whether the memory of a batch still holds what was sent.
    pub(crate) fn is_intact(&self, number: usize) -> bool {
        let state = self.state();
        let Sent { address, copy, .. } = &state.sent[number];
        // SAFETY: the tests ask only while the lane lives, and the lane owns this memory. That nobody writes
        // it now is what is tested: if the test fails, this reads bytes that are being written.
        let now = unsafe { std::slice::from_raw_parts(*address as *const u8, copy.len()) };
        now == copy
    }

    pub(crate) fn error(&self, call: &'static str) -> DeviceError {
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
        let last = *self.last_use.number.lock().unwrap();
        self.bench.change(|state| {
            state.dropped.push(last);
            state.dropped_on.insert(thread)
        });
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
        let bench = &*self.bench.0;
        let mut state = bench.1.wait_while(self.bench.state(), |state| state.holds_submit).unwrap();
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

pub(crate) fn feed(bench: &Bench, prefetch: usize) -> FeedBuilder {
    feed_of(MemorySource::images("device", 50, 1, 8, 8), bench, prefetch)
}

pub(crate) fn feed_of(source: MemorySource, bench: &Bench, prefetch: usize) -> FeedBuilder {
    Feed::builder()
        .source(source)
        .threads(2)
        .batch_size(4)
        .prefetch(prefetch)
        .devices([Device::from_backend(Arc::new(bench.clone()))])
}

pub(crate) fn lane_of(bench: &Bench, prefetch: usize) -> (Feed, Lane) {
    let mut feed = feed(bench, prefetch).build().unwrap();
    let lane = feed.take_lanes().unwrap().remove(0);
    (feed, lane)
}

pub(crate) fn next(lane: &mut Lane) -> Batch {
    lane.next().expect("the lane goes on").unwrap()
}
