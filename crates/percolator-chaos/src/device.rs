//! A device whose calls and events may fail.

#![expect(unsafe_code, reason = "a wrapped device relies on what a lane promises")]

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytemuck::TransparentWrapper;
use parking_lot::Mutex;
use percolator::batch::HostMemory;
use percolator::device::{Backend, Capacity, Device, DeviceError, Event, HostBatch, Transfer};
use percolator::transform::DeviceTransform;

use crate::fault::{Effect, Place};
use crate::memory::{CountedMemory, Watch};
use crate::state::{State, pass};

/// How many of each were requested.
#[derive(Debug, Default)]
struct Counts {
    memories: AtomicU64,
    transfers: AtomicU64,
    batches: AtomicU64,
}

/// The backend of a wrapped device.
#[derive(Debug)]
pub(crate) struct ChaosBackend {
    inner: Device,
    shared: Arc<Shared>,
}

/// What the transfers of a device share.
#[derive(Debug)]
struct Shared {
    name: String,
    state: Arc<State>,
    counts: Counts,
}

impl Shared {
    /// Applies what should happen at the call with this number.
    fn call(&self, place: Place, number: u64) -> Result<(), String> {
        let effects = self.state.strike(place, number);
        self.state.suffer(&effects, &format_args!("{place} {number}"))
    }

    fn error(&self, call: &'static str, message: String) -> DeviceError {
        DeviceError::Call { device: self.name.clone(), call, message }
    }
}

impl ChaosBackend {
    pub(crate) fn new(inner: Device, state: &Arc<State>) -> Self {
        let (name, counts) = (inner.name(), Counts::default());
        ChaosBackend { inner, shared: Arc::new(Shared { name, state: state.clone(), counts }) }
    }

    fn inner(&self) -> &dyn Backend {
        // SAFETY: the transfers made by it are those within `ChaosTransfer`, one in each, which passes every
        // call of its lane on, never says that a last use is over before the inner one does, and is dropped
        // with the inner one in it. So the lane's promises hold for the inner one as well.
        unsafe { self.inner.backend_to_wrap() }
    }
}

impl Backend for ChaosBackend {
    fn name(&self) -> String {
        self.shared.name.clone()
    }

    fn host_memory(&self, bytes: usize) -> Result<Box<dyn HostMemory>, DeviceError> {
        let number = self.shared.counts.memories.fetch_add(1, Ordering::Relaxed);
        self.shared.call(Place::Memory, number).map_err(|message| DeviceError::OutOfMemory {
            device: self.name(),
            bytes,
            message,
        })?;
        let memory = self.inner().host_memory(bytes)?;
        Ok(Box::new(CountedMemory::new(memory, &self.shared.state)))
    }

    fn transfer(&self, capacity: Capacity) -> Result<Box<dyn Transfer>, DeviceError> {
        let number = self.shared.counts.transfers.fetch_add(1, Ordering::Relaxed);
        self.shared.call(Place::Transfer, number).map_err(|message| DeviceError::OutOfMemory {
            device: self.name(),
            bytes: capacity.bytes,
            message,
        })?;
        let inner = self.inner().transfer(capacity)?;
        Ok(Box::new(ChaosTransfer::new(inner, &self.shared)))
    }

    fn transforming(&self, transform: &DeviceTransform) -> Result<Arc<dyn Backend>, DeviceError> {
        let inner = Device::from_backend(self.inner().transforming(transform)?);
        Ok(Arc::new(ChaosBackend { inner, shared: self.shared.clone() }))
    }

    fn has_own_memory(&self) -> bool {
        self.inner().has_own_memory()
    }

    fn free_bytes(&self) -> Result<Option<usize>, DeviceError> {
        self.inner().free_bytes()
    }

    /// Those whose own end is reached are asked of the inner device together.
    fn first_unused(
        &self,
        transfers: &mut dyn Iterator<Item = &dyn Transfer>,
    ) -> Option<(usize, Result<(), DeviceError>)> {
        let mut asked = Vec::new();
        let mut inner = Vec::new();
        for (place, transfer) in transfers.enumerate() {
            match chaos_of(transfer).map_or(Ok(true), |chaos| chaos.is_over()) {
                Ok(true) => {
                    asked.push(place);
                    inner.push(transfer.inner().unwrap_or(transfer));
                }
                Ok(false) => {}
                Err(error) => return Some((place, Err(error))),
            }
        }
        let (at, outcome) = self.inner().first_unused(&mut inner.into_iter())?;
        Some((asked[at], outcome))
    }

    fn numa_node(&self) -> Option<usize> {
        self.inner().numa_node()
    }
}

fn chaos_of(transfer: &dyn Transfer) -> Option<&ChaosTransfer> {
    (transfer as &dyn Any).downcast_ref()
}

/// What should happen at an event of the batch that was submitted last.
#[derive(Debug, Default)]
struct Fate {
    fails: Option<String>,
    sticks: bool,
    until: Option<Instant>,
}

impl Fate {
    fn of(state: &State, place: Place, batch: u64) -> Self {
        let mut fate = Fate::default();
        for effect in state.strike(place, batch) {
            match effect {
                Effect::Fail(message) => fate.fails = Some(message.clone()),
                Effect::Stick => fate.sticks = true,
                Effect::Delay(time) => fate.until = Instant::now().checked_add(*time),
                _ => {}
            }
        }
        fate
    }

    fn is_any(&self) -> bool {
        self.sticks || self.until.is_some()
    }

    /// Whether the event may now happen.
    fn is_over(&self, state: &State) -> bool {
        let is_late = self.until.is_some_and(|until| Instant::now() < until);
        let is_stuck = self.sticks && !state.is_released();
        if is_stuck {
            state.note_stuck();
        }
        !is_late && !is_stuck
    }

    fn wait(&self, state: &State) {
        if self.sticks {
            state.stick();
        }
        pass(self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now())));
    }
}

/// A transfer of a wrapped device.
#[derive(Debug)]
struct ChaosTransfer {
    inner: Box<dyn Transfer>,
    shared: Arc<Shared>,
    /// The number of the batch that was submitted last.
    batch: Option<u64>,
    arrival: Fate,
    last_use: Fate,
    watch: Mutex<Watch>,
}

impl ChaosTransfer {
    fn new(inner: Box<dyn Transfer>, shared: &Arc<Shared>) -> Self {
        shared.state.note_living(|living| living.transfers += 1);
        ChaosTransfer {
            inner,
            shared: shared.clone(),
            batch: None,
            arrival: Fate::default(),
            last_use: Fate::default(),
            watch: Mutex::default(),
        }
    }

    /// Whether the fault at the last use is over.
    fn is_over(&self) -> Result<bool, DeviceError> {
        if let Some(message) = &self.last_use.fails {
            return Err(self.shared.error("last_use", message.clone()));
        }
        let is_over = self.last_use.is_over(&self.shared.state);
        if is_over {
            self.end_watch();
        }
        Ok(is_over)
    }

    fn end_watch(&self) {
        if self.watch.lock().is_overwritten() {
            self.shared.state.note_overwritten();
        }
    }
}

impl Transfer for ChaosTransfer {
    fn submit(&mut self, batch: HostBatch<'_>) -> Result<(), DeviceError> {
        let number = self.shared.counts.batches.fetch_add(1, Ordering::Relaxed);
        self.shared.call(Place::Submit, number).map_err(|message| self.shared.error("submit", message))?;
        self.inner.submit(batch)?;
        self.batch = Some(number);
        self.arrival = Fate::of(&self.shared.state, Place::Arrival, number);
        self.last_use = Fate::of(&self.shared.state, Place::LastUse, number);
        *self.watch.get_mut() = Watch::of(batch);
        Ok(())
    }

    fn arrival(&self) -> &dyn Event {
        Arrival::wrap_ref(self)
    }

    fn release(&mut self) -> Result<(), DeviceError> {
        // The device's own notes first: what it has queued on the batch is what `last_use` waits for.
        self.inner.release()?;
        if let Some(number) = self.batch {
            self.shared
                .call(Place::Release, number)
                .map_err(|message| self.shared.error("release", message))?;
        }
        if self.last_use.is_any() {
            self.watch.get_mut().begin();
        }
        Ok(())
    }

    fn last_use(&self) -> &dyn Event {
        LastUse::wrap_ref(self)
    }

    fn inner(&self) -> Option<&dyn Transfer> {
        Some(&*self.inner)
    }
}

impl Drop for ChaosTransfer {
    /// Waits until the device no longer uses the batch, as that of every transfer must.
    fn drop(&mut self) {
        self.last_use.wait(&self.shared.state);
        self.end_watch();
        self.shared.state.note_living(|living| living.transfers -= 1);
    }
}

/// The event of a transfer's arrival.
#[derive(Debug, TransparentWrapper)]
#[repr(transparent)]
struct Arrival(ChaosTransfer);

impl Arrival {
    fn check(&self) -> Result<(), DeviceError> {
        let failed = |message: &String| Err(self.0.shared.error("arrival", message.clone()));
        self.0.arrival.fails.as_ref().map_or(Ok(()), failed)
    }
}

impl Event for Arrival {
    fn is_complete(&self) -> Result<bool, DeviceError> {
        self.check()?;
        Ok(self.0.arrival.is_over(&self.0.shared.state) && self.0.inner.arrival().is_complete()?)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        self.check()?;
        self.0.arrival.wait(&self.0.shared.state);
        self.0.inner.arrival().wait()
    }
}

/// The event of a transfer's last use.
#[derive(Debug, TransparentWrapper)]
#[repr(transparent)]
struct LastUse(ChaosTransfer);

impl Event for LastUse {
    fn is_complete(&self) -> Result<bool, DeviceError> {
        Ok(self.0.is_over()? && self.0.inner.last_use().is_complete()?)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        // Its own error, if it has one.
        self.0.is_over()?;
        self.0.last_use.wait(&self.0.shared.state);
        self.0.inner.last_use().wait()
    }
}
