//! Checkpoints of a state, while it is trained.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use parking_lot::{Condvar, Mutex, RwLock};
use percolator_files::shown;
use tracing::warn;

use super::Checkpoint;
use super::checkpointer::Options;
use super::entry::Entry;
use super::error::CheckpointError;
use super::protocol::Protocol;
use super::restore::Restored;
use super::stats::CheckpointStats;
use super::thread::Thread;

/// Checkpoints of a state, written by a thread until this is dropped.
///
/// Dropping it gives the id back, so that a successor need not wait. It does not write a last checkpoint:
/// [`save_now`](Self::save_now) does. A file that is being written is given up; what is waited for is the one
/// call of the store, or of the metadata, that is running.
pub struct Checkpoints<S> {
    state: Arc<RwLock<S>>,
    restored: Restored,
    shared: Arc<Shared>,
    options: Options,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and its users share.
pub(super) struct Shared {
    pub(super) control: Mutex<Control>,
    /// Signalled when there is something to do for the thread.
    pub(super) due: Condvar,
    /// Signalled when a checkpoint is done, or there will be no more.
    pub(super) done: Condvar,
    /// Set when no more is to be written.
    pub(super) stop: AtomicBool,
}

pub(super) struct Control {
    /// How many steps were counted, those of earlier processes included.
    pub(super) steps: u64,
    /// At which step the next checkpoint is due.
    pub(super) due_at_step: Option<u64>,
    /// One is due because of its step.
    pub(super) is_due: bool,
    /// One is being written, or its record put.
    pub(super) is_busy: bool,
    /// How many have asked for one, and how many of these have their answer.
    pub(super) asked: u64,
    pub(super) answered: u64,
    pub(super) answer: Result<Entry, CheckpointError>,
    /// Why there will be no more.
    pub(super) ended: Option<CheckpointError>,
    pub(super) stats: CheckpointStats,
    /// When the last checkpoint was recorded.
    pub(super) last_good: Instant,
}

impl<S: Checkpoint + Send + Sync + 'static> Checkpoints<S> {
    pub(super) fn begin(
        protocol: Protocol,
        state: S,
        restored: Restored,
        options: Options,
        cleaned: Result<u64, CheckpointError>,
    ) -> Result<Self, CheckpointError> {
        let mut stats = CheckpointStats::default();
        match cleaned {
            Ok(removed) => stats.files_removed = removed,
            Err(error) => {
                warn!(
                    id = %protocol.id, error = %shown::with_sources(&error),
                    "what an earlier process left could not be removed"
                );
                stats.last_error = Some(error);
            }
        }
        let steps = restored.entry().and_then(|entry| entry.step).unwrap_or(0);
        let control = Control {
            steps,
            due_at_step: options.every_steps.map(|every| steps.saturating_add(every)),
            is_due: false,
            is_busy: false,
            asked: 0,
            answered: 0,
            answer: Err(CheckpointError::Ended),
            ended: None,
            stats,
            last_good: Instant::now(),
        };
        let shared = Arc::new(Shared {
            control: Mutex::new(control),
            due: Condvar::new(),
            done: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let state = Arc::new(RwLock::new(state));
        let name = format!("checkpoint:{}", protocol.id.as_str().escape_debug());
        let work = Thread::new(protocol, state.clone(), shared.clone(), options.clone());
        let thread = thread::Builder::new().name(name).spawn(move || work.run());
        let thread = Some(thread.map_err(CheckpointError::thread)?);
        Ok(Checkpoints { state, restored, shared, options, thread })
    }

    /// Returns the state. The training locks it to write while it changes it, and has it whole whenever it
    /// releases the lock: what is written then is one step's state.
    ///
    /// A panic releases the lock as well, with the state half changed, and the lock does not remember it: a
    /// thread that may panic in between must change a copy, or end the process.
    #[must_use]
    pub fn state(&self) -> &Arc<RwLock<S>> {
        &self.state
    }

    /// Returns where the state came from.
    #[must_use]
    pub fn restored(&self) -> &Restored {
        &self.restored
    }

    /// Counts a step. It does not wait for a checkpoint.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Superseded`] once another process has taken the place of this one, which should
    /// end; [`CheckpointError::RecordLost`] once its record is gone, or an older one is there;
    /// [`CheckpointError::Ended`] if the thread has ended for another reason.
    pub fn step(&self) -> Result<(), CheckpointError> {
        let mut control = self.shared.control.lock();
        if let Some(error) = &control.ended {
            return Err(error.clone());
        }
        control.steps = control.steps.saturating_add(1);
        if control.due_at_step.is_some_and(|due| control.steps >= due) {
            let every = self.options.every_steps.unwrap_or(u64::MAX);
            control.due_at_step = Some(control.steps.saturating_add(every));
            if control.is_busy || control.is_due {
                control.stats.left_out += 1;
            } else {
                control.is_due = true;
                self.shared.due.notify_all();
            }
        }
        Ok(())
    }

    /// Returns how many steps were counted, those before the restored checkpoint included.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.shared.control.lock().steps
    }

    /// Writes a checkpoint of the state as it is now, or a little later, and waits until it counts. The state
    /// must not be locked by the caller.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::NotRecorded`] if it is written, but its record could not be put yet;
    /// [`CheckpointError::TooLong`] if nothing was known in the time that was
    /// [allowed](super::Checkpointer::save_within); any other [`CheckpointError`] if there is no checkpoint.
    pub fn save_now(&self) -> Result<Entry, CheckpointError> {
        let start = Instant::now();
        let mut control = self.shared.control.lock();
        control.asked += 1;
        let ticket = control.asked;
        self.shared.due.notify_all();
        while control.answered < ticket {
            if let Some(error) = &control.ended {
                return Err(error.clone());
            }
            let waited = start.elapsed();
            let left = self.options.save_within.saturating_sub(waited);
            if left.is_zero() {
                return Err(CheckpointError::TooLong { waited });
            }
            self.shared.done.wait_for(&mut control, left);
        }
        control.answer.clone()
    }

    /// Returns what became of the checkpoints so far.
    #[must_use]
    pub fn stats(&self) -> CheckpointStats {
        let control = self.shared.control.lock();
        CheckpointStats { age: control.last_good.elapsed(), ..control.stats.clone() }
    }
}

impl<S> Drop for Checkpoints<S> {
    fn drop(&mut self) {
        {
            let _control = self.shared.control.lock();
            self.shared.stop.store(true, Ordering::Relaxed);
            self.shared.due.notify_all();
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<S> fmt::Debug for Checkpoints<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoints").field("restored", &self.restored).finish_non_exhaustive()
    }
}
