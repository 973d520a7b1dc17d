//! The thread that makes a worker's progress known, and looks whether others have finished its blocks. Only
//! jobs that duplicate slow blocks need it.

use std::convert::Infallible;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use tracing::warn;

use super::worker::Worker;

/// Reports until it is dropped.
#[derive(Debug)]
pub(super) struct Reporter {
    /// None once the thread is to end.
    stop: Option<Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    pub(super) fn start(worker: Arc<Worker>, period: Duration) -> std::io::Result<Self> {
        let (stop, stopped) = bounded(0);
        let name = format!("reports:{}", worker.name());
        let thread = thread::Builder::new().name(name).spawn(move || report(&worker, period, &stopped))?;
        Ok(Reporter { stop: Some(stop), thread: Some(thread) })
    }
}

fn report(worker: &Worker, period: Duration, stopped: &Receiver<Infallible>) {
    let mut reported = None;
    while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
        // It is looked at again the next time, and by the transactions that decide.
        if let Err(error) = worker.report(&mut reported) {
            warn!(worker = worker.name(), %error, "the worker's progress could not be made known");
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
