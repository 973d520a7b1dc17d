//! The whole state of the driver, behind one lock.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard};

use crate::abi::{Answer, Code, Handle, INVALID_DEVICE, INVALID_HANDLE};
use crate::clocks::Clock;
use crate::config::Config;
use crate::events::Event;
use crate::faults::Faults;
use crate::kernels::{Function, Kernel, Module};
use crate::ledger::{Ledger, Living};
use crate::memory::{Buffer, Dead};
use crate::streams::Stream;

pub(crate) type Guard = MutexGuard<'static, World>;

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| Mutex::new(World::new(Config::from_environment())));

/// Signalled when an operation ends, a device fails, or a worker ends.
pub(crate) static DONE: Condvar = Condvar::new();

/// A test that panicked with the lock held has already failed: the others continue, to report why.
pub(crate) fn lock() -> Guard {
    WORLD.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Releases the lock until `signal`.
pub(crate) fn wait(signal: &Condvar, world: Guard) -> Guard {
    signal.wait(world).unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The handles of each kind start at a number of their own, so that no kind is mistaken for another, or for
/// an address.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Context = 0x5A01,
    Stream = 0x5A02,
    Event = 0x5A03,
    Module = 0x5A04,
    Function = 0x5A05,
    Graph = 0x5A06,
}

const KIND_SHIFT: u32 = 32;

/// A device and its primary context.
#[derive(Debug, Default)]
pub(crate) struct Device {
    /// The reference count of the primary context; it is alive unless this is 0.
    pub(crate) retained: u32,
    /// An operation failed: every call in the context returns this, until the context is reset.
    pub(crate) sticky: Option<Code>,
    /// The device fell off the bus: every call that concerns it returns this, for good.
    pub(crate) lost: Option<Code>,
    /// Bytes ever allocated: addresses are never reused.
    pub(crate) next_offset: u64,
    pub(crate) used_bytes: usize,
    pub(crate) null_stream: Option<Handle>,
    /// The per-thread stream of each thread that used it, by the thread's number.
    pub(crate) thread_streams: HashMap<u64, Handle>,
    /// The number of streams that the test has created: the next one's place in that order.
    pub(crate) streams_created: i32,
}

impl Device {
    pub(crate) fn broken(&self) -> Option<Code> {
        self.lost.or(self.sticky)
    }
}

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) config: Config,
    pub(crate) initialised: bool,
    pub(crate) devices: Vec<Device>,
    /// Including destroyed streams, until their queue is empty.
    pub(crate) streams: HashMap<Handle, Stream>,
    /// The last operation of each stream that has ended, including streams that are gone.
    pub(crate) progress: HashMap<Handle, u64>,
    /// Held streams, by device and place, and how many of their operations may still begin.
    pub(crate) held: HashMap<(usize, i32), u64>,
    /// What the host knows to have ended: by a wait, a query, or a host function.
    pub(crate) host: Clock,
    pub(crate) events: HashMap<Handle, Event>,
    /// Device and pinned memory, by its first address.
    pub(crate) buffers: BTreeMap<u64, Buffer>,
    pub(crate) dead: BTreeMap<u64, Dead>,
    pub(crate) pinned_bytes: usize,
    pub(crate) kernels: HashMap<String, Kernel>,
    pub(crate) modules: HashMap<Handle, Module>,
    pub(crate) functions: HashMap<Handle, Function>,
    pub(crate) graphs: HashSet<Handle>,
    pub(crate) faults: Faults,
    pub(crate) ledger: Ledger,
    /// The number of stream threads.
    pub(crate) workers: usize,
    handles: u64,
    /// Distinguishes destroyed handles from those that never existed.
    destroyed: HashSet<Handle>,
}

impl World {
    pub(crate) fn new(config: Config) -> World {
        World {
            devices: (0..config.devices).map(|_| Device::default()).collect(),
            config,
            initialised: false,
            streams: HashMap::new(),
            progress: HashMap::new(),
            held: HashMap::new(),
            host: Clock::default(),
            events: HashMap::new(),
            buffers: BTreeMap::new(),
            dead: BTreeMap::new(),
            pinned_bytes: 0,
            kernels: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            graphs: HashSet::new(),
            faults: Faults::default(),
            ledger: Ledger::default(),
            workers: 0,
            handles: 0,
            destroyed: HashSet::new(),
        }
    }

    pub(crate) fn handle(&mut self, kind: Kind) -> Handle {
        self.handles += 1;
        ((kind as u64) << KIND_SHIFT) | (self.handles << 4)
    }

    /// Handles continue to count over a reset, so that an old one is never taken for a new one.
    pub(crate) fn next_handle(&self) -> u64 {
        self.handles
    }

    pub(crate) fn continue_handles(&mut self, handles: u64) {
        self.handles = handles;
    }

    /// The handle of a device's primary context: always the same, as in the driver.
    pub(crate) fn context_handle(device: usize) -> Handle {
        ((Kind::Context as u64) << KIND_SHIFT) | ((device as u64 + 1) << 4)
    }

    /// The device that this context belongs to, alive or not.
    pub(crate) fn device_of_context(&self, context: Handle) -> Option<usize> {
        (0..self.devices.len()).find(|&device| World::context_handle(device) == context)
    }

    pub(crate) fn device(&self, ordinal: i32) -> Answer<usize> {
        usize::try_from(ordinal).ok().filter(|&device| device < self.devices.len()).ok_or(INVALID_DEVICE)
    }

    pub(crate) fn bury(&mut self, handle: Handle) {
        self.destroyed.insert(handle);
    }

    /// The error for a handle that is not alive; one that once was is a violation.
    pub(crate) fn bad_handle(&mut self, what: &str, handle: Handle, symbol: &str) -> Code {
        if self.destroyed.contains(&handle) {
            self.ledger.violation(format!("use after destroy: {symbol} with the {what} {handle:#x}"));
        } else {
            self.ledger.violation(format!("not a {what}: {symbol} with {handle:#x}"));
        }
        INVALID_HANDLE
    }

    /// The error that every call and operation of a device ends with, if the device is broken.
    pub(crate) fn broken(&self, device: usize) -> Option<Code> {
        self.devices[device].broken()
    }

    /// Whether an operation has ended. Operations of unknown streams have.
    pub(crate) fn has_ended(&self, stream: Handle, seq: u64) -> bool {
        self.progress.get(&stream).is_none_or(|&ended| ended >= seq)
    }

    pub(crate) fn living(&self) -> Living {
        let mut living = Living {
            contexts: self.devices.iter().filter(|device| device.retained > 0).count(),
            streams: self.streams.values().filter(|stream| stream.place >= 0 && !stream.destroyed).count(),
            events: self.events.len(),
            modules: self.modules.len(),
            graphs: self.graphs.len(),
            ..Living::default()
        };
        for buffer in self.buffers.values() {
            buffer.count(&mut living);
        }
        living
    }
}
