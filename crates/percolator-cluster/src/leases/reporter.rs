//! The thread that reports to the records what a worker's consumer has confirmed, so that the consumer never
//! waits for their answer. If slow blocks are duplicated, it also makes the worker's progress known, and
//! checks whether others have finished its blocks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use percolator_files::shown::{self, panic_message};
use tracing::warn;

use super::account::Account;
use super::error::LeaseError;
use super::worker::{Asks, Due, Worker};
use crate::patience::Pauses;

/// Says and reports until it is dropped. What is confirmed then is said as long as the records answer; if
/// they did not when they were asked last, they are not asked again.
#[derive(Debug)]
pub(super) struct Reporter {
    worker: Arc<Worker>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    /// Starts it. It reports this often, if at all.
    pub(super) fn start(worker: Arc<Worker>, period: Option<Duration>) -> std::io::Result<Self> {
        let name = format!("reports:{}", worker.name());
        let works = worker.clone();
        let thread = thread::Builder::new().name(name).spawn(move || {
            // The metadata may be a user's own. A wait for this thread must not last for ever.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(&works, period))) {
                works.fail(LeaseError::Panicked { message: panic_message(&*panic) });
            }
        })?;
        Ok(Reporter { worker, thread: Some(thread) })
    }
}

fn run(worker: &Worker, period: Option<Duration>) {
    let mut account = Account::default();
    let (mut pauses, mut settles_at) = (Pauses::default(), Instant::now());
    let mut reported = None;
    let after = |period: Option<Duration>| period.and_then(|period| Instant::now().checked_add(period));
    let mut reports_at = after(period);
    loop {
        match worker.wait_for_due(settles_at, reports_at) {
            Due::End => break,
            Due::Report => {
                // It is checked again the next time, and by the transactions that decide.
                if let Err(error) = worker.report(&mut reported) {
                    warn!(
                        worker = worker.name(), error = %shown::with_sources(&error),
                        "the worker's progress could not be made known"
                    );
                }
                reports_at = after(period);
            }
            Due::Settlement => match account.settle_next(worker) {
                Ok(_) => {
                    worker.has_answer(Asks::Settlement);
                    (pauses, settles_at) = (Pauses::default(), Instant::now());
                }
                Err(error) if error.may_pass() => {
                    warn!(
                        worker = worker.name(), error = %shown::with_sources(&error),
                        "it did not succeed: trying again"
                    );
                    worker.has_no_answer(Asks::Settlement, error);
                    settles_at = Instant::now() + pauses.next();
                }
                Err(error) => worker.fail(error),
            },
        }
    }
    while worker.has_more_to_say() {
        if worker.is_unheard() {
            warn!(worker = worker.name(), "it leaves, and the records do not answer: steps may not count");
            break;
        }
        if let Err(error) = account.settle_next(worker) {
            warn!(
                worker = worker.name(), error = %shown::with_sources(&error),
                "it leaves, and steps that were confirmed may not count"
            );
            worker.has_no_answer(Asks::Settlement, error);
            break;
        }
    }
    // It may have been seen after the last thing was said.
    if !worker.is_unheard()
        && let Err(error) = worker.board.admit()
    {
        warn!(
            worker = worker.name(), error = %shown::with_sources(&error),
            "the job's records do not say that the metadata were set back"
        );
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.worker.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
