//! A lease that a thread keeps alive.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use percolator_files::shown;
use tracing::warn;

use super::Metadata;
use super::error::MetadataError;
use super::records::LeaseId;
use crate::clock::{BootClock, Clock as _};

/// How often a lease is renewed in its time.
const RENEWALS: u32 = 3;

/// And how often after a try that failed, while the lease may still last.
const RENEWALS_AFTER_ERROR: u32 = 20;

/// A lease, kept alive until it is dropped: its end is then made known, and its records go. If the process
/// dies, or cannot reach the place of the records for too long, the lease ends by itself.
///
/// Whether it lasts is decided where the records are: what must not be done without it belongs in a
/// transaction whose condition is a record that it holds.
#[derive(Debug)]
pub struct Lease {
    kept: Arc<Kept>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and its users share.
#[derive(Debug)]
struct Kept {
    id: LeaseId,
    ttl: Duration,
    metadata: Arc<dyn Metadata>,
    state: Mutex<State>,
    /// Signalled when the lease is to be given up.
    given_up: Condvar,
}

#[derive(Debug)]
struct State {
    /// Until when it lasts for certain, by the machine's own clock.
    lasts_until: Duration,
    /// It is known to have ended.
    has_ended: bool,
    is_given_up: bool,
    /// It is given up without notice.
    is_left: bool,
}

impl Lease {
    /// Grants a lease that lasts for `ttl` after this process was last heard of, and keeps it alive on a
    /// thread of its own.
    ///
    /// # Errors
    ///
    /// [`MetadataError`] if it cannot be granted, or there is no thread to be had.
    pub fn keep(metadata: Arc<dyn Metadata>, ttl: Duration) -> Result<Self, MetadataError> {
        // It may have begun as soon as it was asked for.
        let asked = BootClock.now();
        let id = metadata.grant(ttl)?;
        let lasts_until = asked.saturating_add(ttl);
        let state = State { lasts_until, has_ended: false, is_given_up: false, is_left: false };
        let (state, given_up) = (Mutex::new(state), Condvar::new());
        let kept = Arc::new(Kept { id, ttl, metadata, state, given_up });
        let works = kept.clone();
        let spawned = thread::Builder::new().name(format!("lease:{id}")).spawn(move || works.run());
        let thread = match spawned {
            Ok(thread) => Some(thread),
            Err(error) => {
                let _ = kept.metadata.revoke(id);
                let (place, what) = (kept.metadata.place(), "start the thread that keeps a lease alive");
                return Err(MetadataError::Failed { place, what, source: Arc::new(error) });
            }
        };
        Ok(Lease { kept, thread })
    }

    /// Returns its number.
    #[must_use]
    pub fn id(&self) -> LeaseId {
        self.kept.id
    }

    /// Returns whether it lasts for certain. If not, its end may not have been seen where the records are.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let state = self.kept.state.lock();
        !state.has_ended && BootClock.now() < state.lasts_until
    }

    /// Returns whether it is known to have ended, and will not come back.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.kept.state.lock().has_ended
    }

    /// A caller was told that it has ended.
    pub(crate) fn note_end(&self) {
        let state = &mut *self.kept.state.lock();
        (state.has_ended, state.is_given_up) = (true, true);
        self.kept.given_up.notify_all();
    }

    /// It is not kept alive any more. When it is dropped, its end is not made known: it ends by itself.
    pub(crate) fn leave(&self) {
        let state = &mut *self.kept.state.lock();
        (state.is_left, state.is_given_up) = (true, true);
        self.kept.given_up.notify_all();
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.kept.state.lock().is_given_up = true;
        self.kept.given_up.notify_all();
        // The thread waits for no more than one answer, and that wait has an end.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let state = self.kept.state.lock();
        if state.has_ended || state.is_left {
            return;
        }
        drop(state);
        if let Err(error) = self.kept.metadata.revoke(self.kept.id) {
            warn!(
                lease = %self.kept.id, error = %shown::with_sources(&error),
                "a lease could not be given back, and ends by itself"
            );
        }
    }
}

impl Kept {
    /// Keeps it alive until it is given up, or has ended.
    fn run(&self) {
        // The time that was granted may be longer than the one that was asked for.
        let mut pause = self.ttl / RENEWALS;
        loop {
            let mut state = self.state.lock();
            if !state.is_given_up {
                self.given_up.wait_for(&mut state, pause);
            }
            if state.is_given_up {
                return;
            }
            drop(state);
            let asked = BootClock.now();
            let renewed = self.metadata.keep_alive(self.id);
            let mut state = self.state.lock();
            match renewed {
                Ok(ttl) => {
                    state.lasts_until = asked.saturating_add(ttl);
                    pause = ttl / RENEWALS;
                }
                Err(MetadataError::LeaseExpired { .. }) => {
                    state.has_ended = true;
                    warn!(lease = %self.id, "a lease has ended: it was not kept alive in time");
                    return;
                }
                Err(error) => {
                    warn!(
                        lease = %self.id, error = %shown::with_sources(&error),
                        "a lease could not be kept alive"
                    );
                    // The answer may have been waited for until little of the lease is left.
                    let may_last = BootClock.now() < state.lasts_until;
                    pause = self.ttl / if may_last { RENEWALS_AFTER_ERROR } else { RENEWALS };
                }
            }
        }
    }
}
