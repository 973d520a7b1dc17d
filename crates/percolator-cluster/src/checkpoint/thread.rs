//! The thread that writes checkpoints.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use percolator_files::shown::{self, panic_message};
use tracing::{error, info, warn};
use uuid::Uuid;

use super::Checkpoint;
use super::checkpointer::{Mode, Options};
use super::copy_buffer::CopyBuffer;
use super::entry::{Entry, Writer, nanoseconds};
use super::error::CheckpointError;
use super::files::{Target, Written, copy};
use super::protocol::{Protocol, Put};
use super::running::Shared;
use crate::metadata::MetadataError;
use crate::patience::Pauses;

/// How often a checkpoint is rewritten because the lease ended while it was being written.
const RETAKES_MAX: usize = 3;
/// The longest pause before the next try to record a checkpoint. No clock reaches the end of
/// [`Duration::MAX`].
const RETRY_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

pub(super) struct Thread<S> {
    protocol: Protocol,
    state: Arc<RwLock<S>>,
    shared: Arc<Shared>,
    options: Options,
    buffer: CopyBuffer,
    /// A file whose record could not be put.
    pending: Option<Pending>,
    /// When the next checkpoint is due by time.
    due: Option<Instant>,
}

struct Pending {
    entry: Entry,
    /// When it was begun.
    begun: Instant,
    retry_at: Instant,
    pauses: Pauses,
}

/// What is to be done.
enum Work {
    Stop,
    /// Write a checkpoint. Callers that had asked by then get its outcome.
    Save(u64),
    /// Try again to put the record.
    Retry,
}

/// Says that there will be no more checkpoints, however the thread ends.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.control.lock().ended.get_or_insert(CheckpointError::Ended);
        self.0.done.notify_all();
    }
}

impl<S: Checkpoint> Thread<S> {
    pub(super) fn new(
        protocol: Protocol,
        state: Arc<RwLock<S>>,
        shared: Arc<Shared>,
        options: Options,
    ) -> Self {
        let due = options.every.and_then(|every| Instant::now().checked_add(every));
        Thread { protocol, state, shared, options, buffer: CopyBuffer::default(), pending: None, due }
    }

    pub(super) fn run(mut self) {
        let _ended = Ended(self.shared.clone());
        loop {
            let done = match self.next_work() {
                Work::Stop => break,
                Work::Save(asked) => {
                    let outcome = self.save();
                    self.answer(asked, outcome)
                }
                Work::Retry => self.retry(),
            };
            if let Err(error) = done {
                error!(
                    id = %self.protocol.id, error = %shown::with_sources(&error),
                    "no more checkpoints are written"
                );
                self.shared.control.lock().ended = Some(error);
                break;
            }
        }
        let is_lost = matches!(self.shared.control.lock().ended, Some(CheckpointError::RecordLost { .. }));
        if let Some(pending) = self.pending.take().filter(|_| !is_lost) {
            // If it was sent, it may count yet.
            self.protocol.discard(pending.entry.uuid);
        }
    }

    fn next_work(&mut self) -> Work {
        let mut control = self.shared.control.lock();
        control.is_busy = false;
        loop {
            if self.shared.stop.load(Ordering::Relaxed) {
                return Work::Stop;
            }
            let now = Instant::now();
            let is_due = control.is_due || self.due.is_some_and(|due| now >= due);
            if control.asked > control.answered || (is_due && self.protocol.has_room()) {
                (control.is_due, control.is_busy) = (false, true);
                self.due = self.options.every.and_then(|every| now.checked_add(every));
                return Work::Save(control.asked);
            }
            if is_due {
                // So many files wait for an answer already that no more are written.
                control.is_due = false;
                control.stats.left_out += 1;
                self.due = self.options.every.and_then(|every| now.checked_add(every));
            }
            let retry_at = self.pending.as_ref().map(|pending| pending.retry_at);
            if retry_at.is_some_and(|retry_at| now >= retry_at) {
                control.is_busy = true;
                return Work::Retry;
            }
            match self.due.into_iter().chain(retry_at).min() {
                Some(next) => _ = self.shared.due.wait_until(&mut control, next),
                None => self.shared.due.wait(&mut control),
            }
        }
    }

    /// Answers the callers that asked for this checkpoint. Returns an error after which there are no more.
    fn answer(&mut self, asked: u64, outcome: Result<Entry, CheckpointError>) -> Result<(), CheckpointError> {
        let is_over = outcome.as_ref().is_err_and(CheckpointError::is_final);
        let mut control = self.shared.control.lock();
        if let Err(error) = &outcome {
            warn!(
                id = %self.protocol.id, error = %shown::with_sources(error),
                "a checkpoint failed, or must wait"
            );
            control.stats.failed += u64::from(!matches!(error, CheckpointError::NotRecorded { .. }));
            control.stats.last_error = Some(error.clone());
        }
        control.stats.is_waiting = self.pending.is_some();
        let late = self.due.and_then(|due| Instant::now().checked_duration_since(due));
        if let (Some(every), Some(late)) = (self.options.every, late) {
            // Those that were due meanwhile.
            let left_out = late.as_nanos() / every.as_nanos() + 1;
            control.stats.left_out += u64::try_from(left_out).unwrap_or(u64::MAX);
            self.due = Instant::now().checked_add(every);
        }
        control.answered = asked;
        control.answer.clone_from(&outcome);
        if is_over {
            control.ended = outcome.as_ref().err().cloned();
        }
        drop(control);
        self.shared.done.notify_all();
        if is_over { outcome.map(drop) } else { Ok(()) }
    }

    /// Writes a checkpoint and lets it count.
    fn save(&mut self) -> Result<Entry, CheckpointError> {
        if !self.protocol.has_room()
            && let Some(pending) = &self.pending
        {
            // No more files are begun before it is known which of those that wait count.
            let (entry, begun) = (pending.entry.clone(), pending.begun);
            self.put(entry, begun).map_err(|error| match error {
                CheckpointError::NotRecorded { source, .. } => {
                    CheckpointError::InDoubt { files: self.protocol.in_doubt(), source }
                }
                error => error,
            })?;
        }
        for _ in 0..RETAKES_MAX {
            let begun = Instant::now();
            let step = self.shared.control.lock().steps;
            let Some(name) = self.protocol.next_name()? else {
                self.retake()?;
                continue;
            };
            let written = self.write(name)?;
            // The newest file wins.
            if let Some(older) = self.pending.take() {
                self.protocol.discard_for_another(older.entry.uuid);
            }
            let entry = self.entry(written, step);
            if let Some(entry) = self.put(entry, begun)? {
                return Ok(entry);
            }
        }
        // The lease ends faster than a checkpoint is written.
        let (place, what) = (self.protocol.id.to_string(), "hold the id while a checkpoint was written");
        let source = Arc::new(std::io::Error::other("its lease ended each time: let it last longer (ttl)"));
        Err(MetadataError::Failed { place, what, source }.into())
    }

    /// Writes the state into a new file.
    fn write(&mut self, uuid: Uuid) -> Result<Written, CheckpointError> {
        let (state, buffer, options) = (&self.state, &mut self.buffer, &self.options);
        let (store, id) = (&*self.protocol.store, &self.protocol.id);
        let target = Target { store, id, uuid, stop: &self.shared.stop, may_appear: AtomicBool::new(false) };
        let write = || match options.mode {
            Mode::Hold => target.write_held(state),
            Mode::Copy => {
                let lock_held = copy(state, buffer, options.state_bytes)?;
                target.write_copy(buffer.bytes(), lock_held)
            }
        };
        let written = catch_unwind(AssertUnwindSafe(write))
            .unwrap_or_else(|payload| Err(CheckpointError::Panicked { message: panic_message(&*payload) }));
        let may_appear = target.may_appear.into_inner();
        let written = written.inspect_err(|_| self.protocol.give_up(uuid, may_appear))?;
        let mut control = self.shared.control.lock();
        let stats = &mut control.stats;
        stats.lock_held += written.lock_held;
        stats.lock_held_last = written.lock_held;
        stats.lock_held_max = stats.lock_held_max.max(written.lock_held);
        stats.growths = self.buffer.growths;
        Ok(written)
    }

    fn entry(&self, written: Written, step: u64) -> Entry {
        Entry {
            uuid: written.uuid,
            md5: written.sums.md5,
            timestamp: nanoseconds((self.options.now)()),
            sha256: Some(written.sums.sha256),
            bytes: Some(written.sums.bytes),
            step: Some(step),
            writer: Some(Writer::this()),
        }
    }

    /// Lets a written file count, or keeps it to try again. Returns nothing if the id was lost, and taken
    /// again: then the file cannot be used, and is gone.
    fn put(&mut self, entry: Entry, begun: Instant) -> Result<Option<Entry>, CheckpointError> {
        self.shared.control.lock().stats.puts_tried += 1;
        let is_put = self.protocol.put(&entry).and_then(|put| match put {
            Put::Done => Ok(true),
            Put::HoldLost => self.retake().map(|()| false),
        });
        match is_put {
            Ok(true) => {
                self.recorded(&entry, begun);
                Ok(Some(entry))
            }
            Ok(false) => {
                self.protocol.discard(entry.uuid);
                Ok(None)
            }
            Err(CheckpointError::Metadata(source)) => {
                self.keep_pending(entry.clone(), begun);
                Err(CheckpointError::NotRecorded { uuid: entry.uuid, source })
            }
            Err(error) => {
                self.pending = None;
                // Unless an earlier put of it may have happened, no record names it, or ever will. If the
                // record is lost, it is the newest state that there is.
                if !matches!(error, CheckpointError::RecordLost { .. }) {
                    self.protocol.discard(entry.uuid);
                }
                Err(error)
            }
        }
    }

    /// Takes the id again. Files that were begun before cannot be put any more.
    fn retake(&mut self) -> Result<(), CheckpointError> {
        self.protocol.retake()?;
        self.shared.control.lock().stats.holds_lost += 1;
        if let Some(pending) = self.pending.take() {
            self.protocol.discard(pending.entry.uuid);
        }
        Ok(())
    }

    /// Tries to record a checkpoint again later.
    fn keep_pending(&mut self, entry: Entry, begun: Instant) {
        let Options { pause_min, pause_max, .. } = self.options;
        let before = self.pending.take().map(|pending| pending.pauses);
        let mut pauses = before.unwrap_or_else(|| Pauses::between(pause_min, pause_max));
        let retry_at = Instant::now() + pauses.next().min(RETRY_MAX);
        self.pending = Some(Pending { entry, begun, retry_at, pauses });
        self.shared.control.lock().stats.puts_failed += 1;
    }

    /// A checkpoint counts: what was before it may go.
    fn recorded(&mut self, entry: &Entry, begun: Instant) {
        self.pending = None;
        {
            let mut control = self.shared.control.lock();
            control.last_good = Instant::now();
            let stats = &mut control.stats;
            stats.written += 1;
            stats.last_duration = begun.elapsed();
            stats.last_bytes = entry.bytes.unwrap_or(0);
            stats.is_waiting = false;
        }
        info!(id = %self.protocol.id, uuid = %entry.uuid, bytes = entry.bytes, "a checkpoint counts");
        match self.protocol.clean() {
            Ok(removed) => self.shared.control.lock().stats.files_removed += removed,
            Err(error) => {
                warn!(
                    id = %self.protocol.id, error = %shown::with_sources(&error),
                    "older checkpoints could not be removed yet"
                );
                self.shared.control.lock().stats.last_error = Some(error);
            }
        }
    }

    /// Tries again to put the record of a file. Returns an error after which there are no more checkpoints.
    fn retry(&mut self) -> Result<(), CheckpointError> {
        let Some(pending) = &self.pending else { return Ok(()) };
        let (entry, begun) = (pending.entry.clone(), pending.begun);
        let outcome = match self.put(entry, begun) {
            Ok(Some(entry)) => Ok(entry),
            Ok(None) => self.save(),
            Err(error) => Err(error),
        };
        let answered = self.shared.control.lock().answered;
        self.answer(answered, outcome)
    }
}
