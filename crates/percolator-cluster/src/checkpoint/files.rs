//! Writes a state to a new file.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use uuid::Uuid;

use super::Checkpoint;
use super::copy_buffer::{CopyBuffer, Counted};
use super::error::CheckpointError;
use super::hash::{Summing, Sums, sums_beside};
use crate::store::{Id, NewFile, Store, StoreError};

/// So many bytes are written before it is asked whether to stop.
const WRITE_BYTES: usize = 8 << 20;

/// A file that is whole, and that no record names yet.
pub(super) struct Written {
    pub(super) uuid: Uuid,
    pub(super) sums: Sums,
    /// How long the state was locked.
    pub(super) lock_held: Duration,
}

/// Where a file goes, and whether to go on.
pub(super) struct Target<'a> {
    pub(super) store: &'a dyn Store,
    pub(super) id: &'a Id,
    /// The name of the file.
    pub(super) uuid: Uuid,
    pub(super) stop: &'a AtomicBool,
    /// Set once the file is to appear under its name. If that fails, it may appear all the same.
    pub(super) may_appear: AtomicBool,
}

fn state_error(error: io::Error) -> CheckpointError {
    CheckpointError::State { source: error.into() }
}

/// Copies the state under its lock. Returns how long that was held.
pub(super) fn copy<S: Checkpoint>(
    state: &RwLock<S>,
    buffer: &mut CopyBuffer,
    expected: usize,
) -> Result<Duration, CheckpointError> {
    let mut lock_held = Duration::ZERO;
    let mut bytes = expected.max(buffer.bytes().len());
    if bytes == 0 {
        // Only the state knows. Memory is allocated while training does not wait.
        let mut counted = Counted::default();
        lock_held += under_lock(state, |state| state.write(&mut counted)).map_err(state_error)?;
        bytes = counted.bytes;
    }
    buffer.prepare(bytes).map_err(state_error)?;
    lock_held += under_lock(state, |state| state.write(buffer)).map_err(state_error)?;
    Ok(lock_held)
}

fn under_lock<S>(state: &RwLock<S>, work: impl FnOnce(&S) -> io::Result<()>) -> io::Result<Duration> {
    let locked = state.read();
    let start = Instant::now();
    let done = work(&locked);
    drop(locked);
    let held = start.elapsed();
    done.map(|()| held)
}

impl Target<'_> {
    fn error(&self, error: io::Error) -> CheckpointError {
        StoreError::new("write a checkpoint to", &self.store.place(), error).into()
    }

    /// Writes what was copied.
    pub(super) fn write_copy(&self, bytes: &[u8], lock_held: Duration) -> Result<Written, CheckpointError> {
        let mut file = self.store.create(self.id, self.uuid)?;
        let write = || {
            for bytes in bytes.chunks(WRITE_BYTES) {
                if self.stop.load(Ordering::Relaxed) {
                    return Err(CheckpointError::Ended);
                }
                file.write_all(bytes).map_err(|error| self.error(error))?;
            }
            self.may_appear.store(true, Ordering::Relaxed);
            file.finish().map_err(CheckpointError::from)
        };
        let (sums, written) = sums_beside(bytes, write).map_err(CheckpointError::thread)?;
        written?;
        Ok(Written { uuid: self.uuid, sums, lock_held })
    }

    /// Writes the state under its lock.
    pub(super) fn write_held<S: Checkpoint>(&self, state: &RwLock<S>) -> Result<Written, CheckpointError> {
        let mut file = self.store.create(self.id, self.uuid)?;
        let summing = Summing::start().map_err(CheckpointError::thread)?;
        let mut summed = Summed { file: &mut *file, summing, stop: self.stop, is_store: false };
        let done = under_lock(state, |state| state.write(&mut summed));
        let lock_held = match done {
            Ok(held) => held,
            Err(_) if self.stop.load(Ordering::Relaxed) => return Err(CheckpointError::Ended),
            Err(error) if summed.is_store => return Err(self.error(error)),
            Err(error) => return Err(state_error(error)),
        };
        let sums = summed.summing.finish();
        self.may_appear.store(true, Ordering::Relaxed);
        file.finish()?;
        Ok(Written { uuid: self.uuid, sums, lock_held })
    }
}

/// A file whose bytes are summed while they are written.
struct Summed<'a> {
    file: &'a mut dyn NewFile,
    summing: Summing,
    stop: &'a AtomicBool,
    /// The store failed, and not the state.
    is_store: bool,
}

impl Write for Summed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("no more checkpoints are written"));
        }
        let bytes = &bytes[..bytes.len().min(WRITE_BYTES)];
        let written = self.file.write(bytes).inspect_err(|_| self.is_store = true)?;
        self.summing.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
