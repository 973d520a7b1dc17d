//! Everything the driver knows, behind one lock.

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

/// Signalled when an operation ends, a device fails, or a worker goes.
pub(crate) static DONE: Condvar = Condvar::new();

/// A test that panicked with the lock held has failed already: the others go on to say why.
pub(crate) fn lock() -> Guard {
    WORLD.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Gives the lock away until `signal` comes.
pub(crate) fn wait(signal: &Condvar, world: Guard) -> Guard {
    signal.wait(world).unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Handles of each kind begin elsewhere, so that one kind is never taken for another, nor for an address.
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
    /// How often the primary context is retained; it lives while that is not 0.
    pub(crate) retained: u32,
    /// An operation failed: every call in the context says so, until the context is reset.
    pub(crate) sticky: Option<Code>,
    /// The device fell off the bus: every call that concerns it says so, for good.
    pub(crate) lost: Option<Code>,
    /// Bytes ever allocated: addresses are never used again.
    pub(crate) next_offset: u64,
    pub(crate) used_bytes: usize,
    pub(crate) null_stream: Option<Handle>,
    /// The per-thread stream of each thread that used it, by the thread's number.
    pub(crate) thread_streams: HashMap<u64, Handle>,
    /// Streams that were created by the test: the next one's place in that order.
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
    /// Destroyed streams too, until their queue is empty.
    pub(crate) streams: HashMap<Handle, Stream>,
    /// The last operation of each stream that ended, also of streams that are gone.
    pub(crate) progress: HashMap<Handle, u64>,
    /// Streams by device and place whose operations wait, and how many of them may still go.
    pub(crate) held: HashMap<(usize, i32), u64>,
    /// What the host knows to have ended: by a wait, a query, or a host function.
    pub(crate) host: Clock,
    pub(crate) events: HashMap<Handle, Event>,
    /// Device and pinned memory by its first address.
    pub(crate) buffers: BTreeMap<u64, Buffer>,
    pub(crate) dead: BTreeMap<u64, Dead>,
    pub(crate) pinned_bytes: usize,
    pub(crate) kernels: HashMap<String, Kernel>,
    pub(crate) modules: HashMap<Handle, Module>,
    pub(crate) functions: HashMap<Handle, Function>,
    pub(crate) graphs: HashSet<Handle>,
    pub(crate) faults: Faults,
    pub(crate) ledger: Ledger,
    /// Threads of streams.
    pub(crate) workers: usize,
    handles: u64,
    /// Destroyed handles are told from those that never were.
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

    /// Handles go on counting over a reset: an old one is never taken for a new one.
    pub(crate) fn next_handle(&self) -> u64 {
        self.handles
    }

    pub(crate) fn continue_handles(&mut self, handles: u64) {
        self.handles = handles;
    }

    /// The handle of a device's primary context: the same each time, as the driver's is.
    pub(crate) fn context_handle(device: usize) -> Handle {
        ((Kind::Context as u64) << KIND_SHIFT) | ((device as u64 + 1) << 4)
    }

    /// The device whose context this is, alive or not.
    pub(crate) fn device_of_context(&self, context: Handle) -> Option<usize> {
        (0..self.devices.len()).find(|&device| World::context_handle(device) == context)
    }

    pub(crate) fn device(&self, ordinal: i32) -> Answer<usize> {
        usize::try_from(ordinal).ok().filter(|&device| device < self.devices.len()).ok_or(INVALID_DEVICE)
    }

    pub(crate) fn bury(&mut self, handle: Handle) {
        self.destroyed.insert(handle);
    }

    /// What a call gets for a handle that is not alive; one that was is a violation.
    pub(crate) fn bad_handle(&mut self, what: &str, handle: Handle, symbol: &str) -> Code {
        if self.destroyed.contains(&handle) {
            self.ledger.violation(format!("use after destroy: {symbol} with the {what} {handle:#x}"));
        } else {
            self.ledger.violation(format!("not a {what}: {symbol} with {handle:#x}"));
        }
        INVALID_HANDLE
    }

    /// The error that every call and operation of a device ends with, if it has one.
    pub(crate) fn broken(&self, device: usize) -> Option<Code> {
        self.devices[device].broken()
    }

    /// Whether an operation has ended. Those of a stream that nobody knows have.
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
