//! Jobs dealt to workers, whose results come back in the jobs' order.
//!
//! The reader's thread makes the jobs. It sends each to the workers with a channel for its result, and the
//! other end of that channel to the taker. The taker receives those ends in order, so it receives the results
//! in order, whichever worker finishes first. Their number is bounded, and with it the memory.

use std::io;
use std::panic::resume_unwind;
use std::thread;

use crossbeam_channel::{Receiver, Sender, bounded};

/// A job, and where its result goes. The taker may have left.
pub(crate) type Job<J, R> = (J, Sender<R>);

/// The most threads that may work, as many as a feed's.
pub const THREADS_MAX: usize = 1024;

/// Why there are no threads.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ThreadsError {
    /// More are wanted than [`THREADS_MAX`].
    #[error("{found} threads are too many; at most {THREADS_MAX} are allowed")]
    TooMany {
        /// How many are wanted.
        found: usize,
    },
    /// One cannot be started.
    #[error("cannot start {threads} threads; use fewer")]
    Start {
        /// How many are wanted.
        threads: usize,
        /// The system's error.
        #[source]
        error: io::Error,
    },
}

/// Threads that work.
pub(crate) struct Workers {
    /// What their names begin with.
    name: &'static str,
    count: usize,
    /// How many jobs each has under way: those in its hands, those that wait for it, and those whose results
    /// wait for their turn.
    jobs_each: usize,
}

impl Workers {
    /// So many, or else one for each processor.
    pub(crate) fn new(
        name: &'static str,
        wanted: Option<usize>,
        jobs_each: usize,
    ) -> Result<Self, ThreadsError> {
        let usual = || thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        match wanted.unwrap_or_else(usual) {
            found if found > THREADS_MAX => Err(ThreadsError::TooMany { found }),
            count => Ok(Workers { name, count, jobs_each }),
        }
    }

    /// Calls `read` on a thread of its own and `worker` on each worker's, and gives each result to `take`, in
    /// order, on this thread. `read` hands jobs to its argument, which says whether more are wanted. Ends
    /// with the first error of `take`. Returns what the workers do.
    ///
    /// # Errors
    ///
    /// [`ThreadsError::Start`]. The other result has the error of `take`.
    ///
    /// # Panics
    ///
    /// If a worker does, or `read` or `take`.
    pub(crate) fn run<J: Send, R: Send, S: Send, E>(
        &self,
        read: impl FnOnce(&dyn Fn(J) -> bool) + Send,
        worker: impl Fn(Receiver<Job<J, R>>) -> S + Sync,
        mut take: impl FnMut(R) -> Result<(), E>,
    ) -> Result<Result<Vec<S>, E>, ThreadsError> {
        let (jobs, dealt) = bounded::<Job<J, R>>(self.count);
        let (in_order, results) = bounded::<Receiver<R>>(self.count * self.jobs_each);
        let worker = &worker;
        let failed = |error| ThreadsError::Start { threads: self.count, error };
        // The closure owns the channels' ends. When it leaves, also without a thread, the threads end.
        thread::scope(move |scope| {
            let spawn = |name: String| thread::Builder::new().name(format!("{}:{name}", self.name));
            let start = |number: usize| {
                let dealt = dealt.clone();
                spawn(number.to_string()).spawn_scoped(scope, move || worker(dealt)).map_err(failed)
            };
            let workers = (0..self.count).map(start).collect::<Result<Vec<_>, _>>()?;
            drop(dealt);
            let deal = move |job| {
                let (result, received) = bounded(1);
                in_order.send(received).is_ok() && jobs.send((job, result)).is_ok()
            };
            spawn("reader".to_owned()).spawn_scoped(scope, move || read(&deal)).map_err(failed)?;
            // A worker that ended before its job's result has panicked, which its end passes on.
            let taken = results.iter().map_while(|result| result.recv().ok()).try_for_each(&mut take);
            drop(results);
            let end = |worker: thread::ScopedJoinHandle<'_, S>| {
                worker.join().unwrap_or_else(|panic| resume_unwind(panic))
            };
            let states = workers.into_iter().map(end).collect();
            Ok(taken.map(|()| states))
        })
    }
}
