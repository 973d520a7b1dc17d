//! How checkpoints are written: the options, and the entry point.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::Checkpoint;
use super::error::CheckpointError;
use super::protocol::Protocol;
use super::record::KEPT_MAX;
use super::restore::restore;
use super::running::Checkpoints;
use crate::metadata::Metadata;
use crate::store::{Id, Store};

/// How the state is read while updates wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It is copied into memory that is kept, and written after the lock is released.
    #[default]
    Copy,
    /// It is written to the store under the lock.
    Hold,
}

/// Options of checkpoints, and where they are kept. [`restore`](Self::restore) begins.
#[derive(Clone, Debug)]
#[must_use]
pub struct Checkpointer {
    store: Arc<dyn Store>,
    metadata: Arc<dyn Metadata>,
    id: Id,
    keep: usize,
    ttl: Duration,
    wait: Option<Duration>,
    pub(super) options: Options,
}

/// What the thread needs to know.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) every: Option<Duration>,
    pub(super) every_steps: Option<u64>,
    pub(super) mode: Mode,
    pub(super) state_bytes: usize,
    pub(super) pause_min: Duration,
    pub(super) pause_max: Duration,
    pub(super) save_within: Duration,
    pub(super) now: Arc<dyn Fn() -> SystemTime + Send + Sync>,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("every", &self.every)
            .field("every_steps", &self.every_steps)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

/// How often a checkpoint is written, if nothing is said.
const EVERY: Duration = Duration::from_secs(600);
/// How long an id is held after its process was last heard of, if nothing is said.
const TTL: Duration = Duration::from_secs(10);
/// So much longer is a process waited for that may be dead.
const AFTER_TTL: Duration = Duration::from_secs(5);

impl Checkpointer {
    /// Keeps the files of checkpoints in `store`, and their record in `metadata`, under `id`. Each process
    /// that has a state has an id of its own, which stays the same when the process moves.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Id`] if the id cannot be one.
    pub fn new(
        store: Arc<dyn Store>,
        metadata: Arc<dyn Metadata>,
        id: &str,
    ) -> Result<Self, CheckpointError> {
        let options = Options {
            every: None,
            every_steps: None,
            mode: Mode::Copy,
            state_bytes: 0,
            pause_min: Duration::from_secs(1),
            pause_max: Duration::from_secs(60),
            save_within: Duration::from_secs(600),
            now: Arc::new(SystemTime::now),
        };
        Ok(Checkpointer { store, metadata, id: Id::new(id)?, keep: 1, ttl: TTL, wait: None, options })
    }

    /// Writes a checkpoint so often. Without this and [`every_steps`](Self::every_steps): every 10 minutes.
    pub fn every(mut self, every: Duration) -> Self {
        self.options.every = Some(every);
        self
    }

    /// Writes a checkpoint after so many [steps](Checkpoints::step); if [`every`](Self::every) is said as
    /// well, whenever one of both is due.
    pub fn every_steps(mut self, steps: u64) -> Self {
        self.options.every_steps = Some(steps);
        self
    }

    /// Keeps so many checkpoints, from 1, the default, to [`KEPT_MAX`]. A restore takes an older one if it
    /// cannot read the newest.
    pub fn keep(mut self, checkpoints: usize) -> Self {
        self.keep = checkpoints;
        self
    }

    /// Reads the state in this way. The default is [`Mode::Copy`].
    pub fn mode(mut self, mode: Mode) -> Self {
        self.options.mode = mode;
        self
    }

    /// Expects so many bytes of state. Without this, the state is asked to write itself once more for the
    /// first copy, to allocate memory for it while training does not wait.
    pub fn state_bytes(mut self, bytes: usize) -> Self {
        self.options.state_bytes = bytes;
        self
    }

    /// Holds the id for so long after this process was last heard of. The default is 10 s. A process that
    /// takes the place of one that died waits for that time.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Waits so long for a process that holds the id. The default is 5 s longer than [`ttl`](Self::ttl): a
    /// process that died does not hold it for longer than that.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// Waits between `min` and `max` before it tries again to put a record: twice as long each time, and up
    /// to half as long again by chance. The default is from 1 s to 60 s.
    pub fn pauses(mut self, min: Duration, max: Duration) -> Self {
        (self.options.pause_min, self.options.pause_max) = (min, max);
        self
    }

    /// Lets [`Checkpoints::save_now`] wait so long. The default is 10 minutes.
    pub fn save_within(mut self, limit: Duration) -> Self {
        self.options.save_within = limit;
        self
    }

    /// Takes timestamps from this clock. They are for people: nothing is decided by them.
    pub fn timestamps(mut self, now: impl Fn() -> SystemTime + Send + Sync + 'static) -> Self {
        self.options.now = Arc::new(now);
        self
    }

    fn check(&self) -> Result<(), CheckpointError> {
        let refused = |option, value: &dyn fmt::Debug, allowed| {
            Err(CheckpointError::Options { option, value: format!("{value:?}"), allowed })
        };
        let Options { every, every_steps, pause_min, pause_max, .. } = &self.options;
        if self.keep == 0 || self.keep > KEPT_MAX {
            return refused("keep", &self.keep, "from 1 to 64 checkpoints are kept");
        }
        if let Some(every) = every.filter(|every| every.is_zero()) {
            return refused("every", &every, "it must be longer than nothing");
        }
        if *every_steps == Some(0) {
            return refused("every_steps", &0, "it must be 1 or more");
        }
        if self.ttl.is_zero() {
            return refused("ttl", &self.ttl, "it must be longer than nothing");
        }
        if pause_min.is_zero() || pause_min > pause_max {
            return refused(
                "pauses",
                &(pause_min, pause_max),
                "the first is not nothing, and not the longer one",
            );
        }
        Ok(())
    }

    /// Takes the id, restores the state, and begins to write checkpoints of it on a thread of its own. It is
    /// the same for a first start, a restart, and a start on another machine.
    ///
    /// The newest checkpoint is tried first, then those before it that are kept. Each is verified while a
    /// state reads it, which `initial` has just made. If none can be read, the state is what `initial` makes.
    /// [`Checkpoints::restored`] says which it was, and why; it is logged as well.
    ///
    /// If the program must not start over when checkpoints exist that it cannot read, it should check
    /// [`Restored::rejected`](super::Restored::rejected) and end. Nothing is lost then, nor if it goes on: a
    /// record that is not understood is kept under another key, and files that are not damaged stay.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Held`] if another process holds the id for longer than [`wait`](Self::wait);
    /// [`CheckpointError::Options`]; [`CheckpointError::Metadata`] if the record cannot be read, so that it
    /// is unknown whether there is a checkpoint, or if the names of files cannot be put;
    /// [`CheckpointError::Store`] if there is no record, and the files cannot be listed;
    /// [`CheckpointError::Superseded`] if another process has taken the id meanwhile, and
    /// [`CheckpointError::RecordLost`] if the record has gone meanwhile; [`CheckpointError::Thread`].
    pub fn restore<S>(mut self, mut initial: impl FnMut() -> S) -> Result<Checkpoints<S>, CheckpointError>
    where
        S: Checkpoint + Send + Sync + 'static,
    {
        if self.options.every.is_none() && self.options.every_steps.is_none() {
            self.options.every = Some(EVERY);
        }
        self.check()?;
        let wait = self.wait.unwrap_or(self.ttl.saturating_add(AFTER_TTL));
        let (mut protocol, found) =
            Protocol::begin(self.store, self.metadata, self.id, self.keep, self.ttl, wait)?;
        // If the lease has ended already, the thread takes the id again.
        protocol.announce()?;
        let (state, restored) = restore(&mut protocol, found, &mut initial)?;
        if !restored.rejected.is_empty() {
            protocol.confirm()?;
        }
        // Here, not on the thread: the store is examined before the training begins.
        let cleaned = protocol.clean_up_after_others();
        Checkpoints::begin(protocol, state, restored, self.options, cleaned)
    }
}
