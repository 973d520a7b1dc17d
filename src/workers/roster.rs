//! The threads of a feed's workers, to which more can be added while it runs.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::Governor;
use crate::base::sync::Mutex;
use crate::base::sync::thread::JoinHandle;

/// The threads of a feed's workers.
pub(crate) struct Roster {
    governor: Arc<Governor>,
    /// `None` once the workers end. Holding the roster then keeps neither the queue nor the source alive.
    open: Mutex<Option<Open>>,
}

struct Open {
    /// Starts the worker of this number.
    spawn: Box<dyn Fn(usize) -> io::Result<JoinHandle<()>> + Send>,
    threads: Vec<JoinHandle<()>>,
}

impl Roster {
    pub(super) fn new(
        governor: Arc<Governor>,
        spawn: impl Fn(usize) -> io::Result<JoinHandle<()>> + Send + 'static,
    ) -> Self {
        let threads = Vec::with_capacity(governor.threads());
        Roster { governor, open: Mutex::new(Some(Open { spawn: Box::new(spawn), threads })) }
    }

    pub(crate) fn governor(&self) -> &Governor {
        &self.governor
    }

    /// Starts workers until there are this many, unless the work has ended. Those that were started before an
    /// error stay.
    pub(crate) fn grow(&self, count: usize) -> io::Result<()> {
        if let Some(Open { spawn, threads }) = &mut *self.open.lock() {
            while threads.len() < count {
                threads.push(spawn(threads.len())?);
                self.governor.has_grown(threads.len());
            }
        }
        Ok(())
    }

    /// Joins the threads, whose queue has been closed.
    pub(super) fn join(&self) {
        let open = self.open.lock().take();
        for thread in open.into_iter().flat_map(|open| open.threads) {
            // A panic was caught there and reported.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Roster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roster").field("governor", &self.governor).finish_non_exhaustive()
    }
}
