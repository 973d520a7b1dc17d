//! The threads that turn records into their places in a batch.
//!
//! A task is a run and the places of its records, or an errand of the reader's. Tasks of all lanes go through one
//! bounded queue, in the order in which the lanes' batches are filled, and any worker takes any task: a batch has no barrier of
//! its own, so nobody idles at its end while the next is being filled. What a record becomes depends on
//! the record and its name alone, never on who handles it.
//!
//! Why not a fork-join pool: its tasks are boxed one by one (the record path allocates nothing), and a join
//! at the end of each batch costs small batches more than their records do.

mod crew;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

pub(crate) use self::crew::Crew;

use crate::batch::Places;
use crate::decoder::Scratch;
use crate::errand::{ERRANDS_MAX, Errand, Helpers};
use crate::fault::RecordCause;
use crate::lines;
use crate::meter::{Count, WaitMeter};
use crate::numa::Cpus;
use crate::processor::Processor;
use crate::reader::Lease;
use crate::sync::panic_message;

/// How much of a record is asked for while the one before it is handled: each begins on a page of its own, which the
/// processor does not foresee.
const AHEAD_BYTES: usize = 4096;

/// What a worker does next.
#[expect(clippy::large_enum_variant, reason = "nearly all are runs, and the record path allocates nothing")]
pub(crate) enum Task {
    Fill(Fill),
    Errand(Arc<dyn Errand>),
}

/// A run, and the places that its records go to.
pub(crate) struct Fill {
    pub(crate) run: Lease,
    pub(crate) places: Places,
}

impl Fill {
    /// Writes the records; whether that completed their batch.
    fn handle(mut self, processor: &Processor, scratch: &mut Scratch) -> bool {
        let mut at = 0;
        let handled = catch_unwind(AssertUnwindSafe(|| {
            let mut seals = self.run.seal_checks();
            for (position, record) in self.run.iter().enumerate() {
                at = position;
                if let Some(next) = self.run.get(position + 1) {
                    lines::ask_for(next.value.get(..AHEAD_BYTES).unwrap_or(next.value));
                }
                // Right before, so that what is read for it is in this processor's cache.
                if let Err(damage) = seals.before(position) {
                    self.places.fail(position, damage);
                    return;
                }
                let mut row = self.places.get(position, processor.seed);
                if let Err(error) = processor.write(&record, &mut row, scratch) {
                    // What somebody wrote to meanwhile looks wrong.
                    match self.run.check_used() {
                        Ok(()) => self.places.fail(position, error),
                        Err(changed) => self.places.fail(position, changed),
                    }
                    return;
                }
            }
            if let Err(changed) = self.run.check_used() {
                self.places.fail(0, changed);
            }
        }));
        if let Err(panic) = handled
            && let Some(record) = self.run.get(at)
        {
            let cause = RecordCause::Panicked { message: panic_message(&*panic) };
            self.places.fail(at, processor.error(&record, cause));
        }
        // The run first: its reader may be waiting for it, and what follows may complete the batch.
        drop(self.run);
        self.places.leave()
    }
}

/// Counters of a feed's workers.
#[derive(Debug, Default)]
pub(crate) struct WorkerMeters {
    /// Waits of workers that had nothing to do, or were too many.
    pub(crate) idle: WaitMeter,
    pub(crate) runs: Count,
    /// Errands that a worker did, because nobody had before.
    pub(crate) errands: Count,
}

/// The queue to workers that have still to be started: readers, which send errands, are there before them. It has room
/// for every run there is, and every errand, so that a send never waits.
///
/// Runs and errands go through it in their order. Where the workers are behind, an errand waits, and the reader, which
/// has time, does it itself; where the reader is behind, hardly anything is queued.
#[derive(Debug)]
pub(crate) struct TaskQueue {
    tasks: Sender<Task>,
    queue: Receiver<Task>,
    errands: Arc<Errands>,
}

impl TaskQueue {
    /// For so many workers, with room for so many runs.
    pub(crate) fn with_room(threads: usize, runs_max: usize) -> Self {
        let (tasks, queue) = bounded(runs_max + ERRANDS_MAX);
        let errands = Arc::new(Errands { threads, tasks: Mutex::new(Some(tasks.clone())) });
        TaskQueue { tasks, queue, errands }
    }

    /// The workers, as a reader sees them.
    pub(crate) fn helpers(&self) -> Arc<dyn Helpers> {
        self.errands.clone()
    }
}

/// The workers' end for errands.
#[derive(Debug)]
struct Errands {
    threads: usize,
    /// `None` once the workers end. A reader that lives longer does not keep them waiting for more.
    tasks: Mutex<Option<Sender<Task>>>,
}

impl Helpers for Errands {
    fn threads(&self) -> usize {
        self.threads
    }

    fn errands_max(&self) -> usize {
        ERRANDS_MAX
    }

    fn send(&self, errand: Arc<dyn Errand>) -> bool {
        // There is room: who sends keeps to `errands_max`. To try costs no more.
        self.tasks.lock().as_ref().is_some_and(|tasks| tasks.try_send(Task::Errand(errand)).is_ok())
    }
}

/// The worker threads of a feed. Dropping the value lets them finish what is queued, and joins them.
#[derive(Debug)]
pub(crate) struct Workers {
    /// `Some` until the drop, which ends the queue.
    tasks: Option<Sender<Task>>,
    crew: Arc<Crew>,
    errands: Arc<Errands>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts a crew's workers on a queue. `near` are the processors that they keep to, if any. `lost` is
    /// told of a worker that panicked where no panic is foreseen, with its name and what the panic said,
    /// before the task that it was given is let go of.
    pub(crate) fn start(
        queue: TaskQueue,
        crew: Arc<Crew>,
        processor: &Arc<Processor>,
        meters: &Arc<WorkerMeters>,
        near: Option<&Cpus>,
        lost: impl Fn(String, String) + Clone + Send + 'static,
    ) -> io::Result<Workers> {
        let TaskQueue { tasks, queue, errands } = queue;
        let count = crew.threads();
        let mut workers = Workers { tasks: Some(tasks), crew, errands, threads: Vec::with_capacity(count) };
        for number in 0..count {
            let (queue, processor, meters) = (queue.clone(), processor.clone(), meters.clone());
            let (crew, near, lost) = (workers.crew.clone(), near.cloned(), lost.clone());
            let (name, mut task) = (format!("worker:{number}"), None);
            let run = move || {
                let worked = catch_unwind(AssertUnwindSafe(|| {
                    work(number, &crew, &queue, &processor, &meters, near.as_ref(), &mut task);
                }));
                if let Err(panic) = worked {
                    lost(format!("worker:{number}"), panic_message(&*panic));
                    let_go(&crew, task, &queue);
                }
            };
            let thread = std::thread::Builder::new().name(name).spawn(run)?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// The queue to the workers.
    pub(crate) fn tasks(&self) -> Sender<Task> {
        self.tasks.clone().expect("the queue is taken only by the drop")
    }
}

impl Drop for Workers {
    /// The join ends because the lanes, which hold the other senders, are joined before they let go of the
    /// workers, and errands are not taken any more; a worker then finds its queue empty and closed.
    fn drop(&mut self) {
        self.tasks = None;
        drop(self.errands.tasks.lock().take());
        self.crew.end();
        for thread in self.threads.drain(..) {
            // A panic was caught there, and told.
            let _ = thread.join();
        }
    }
}

/// `task` is what it is at, or `None`.
fn work(
    number: usize,
    crew: &Crew,
    queue: &Receiver<Task>,
    processor: &Processor,
    meters: &WorkerMeters,
    near: Option<&Cpus>,
    task: &mut Option<Task>,
) {
    let _entered = tracing::info_span!("worker", number).entered();
    let _bound = near.and_then(Cpus::bind);
    let mut scratch = processor.scratch();
    let mut has_completed = false;
    loop {
        crew.stand_by(number, &meters.idle);
        let ready = || if has_completed { None } else { queue.try_recv().ok().map(Ok) };
        let wait = || {
            // Who waits for the batch may have the processor first. Where all are at work, a system may let a thread that
            // was woken wait for the end of a time slice (of 4 ms, in Linux's lazy preemption), and there are two to be
            // woken, one by the other.
            if has_completed {
                std::thread::yield_now();
            }
            queue.recv()
        };
        let Ok(next) = meters.idle.take(ready, wait) else { break };
        *task = Some(next);
        crew.took(queue.len());
        if let Some(Task::Fill(fill)) = task {
            meters.runs.add(1);
            let (records, bytes) = (fill.run.len(), fill.run.value_bytes());
            tracing::trace!(records, bytes, "a run is transformed");
        }
        has_completed = match task.take() {
            Some(Task::Fill(fill)) => fill.handle(processor, &mut scratch),
            Some(Task::Errand(errand)) => {
                meters.errands.add(u64::from(run(&*errand)));
                false
            }
            None => false,
        };
    }
}

/// What a worker does that is lost to a panic, which is caught wherever one is foreseen: it lets go of its
/// task and, for as long as there are any, of all that it comes by. Batches that those are of fail, and
/// nobody waits for them, though no worker be left.
fn let_go(crew: &Crew, mut task: Option<Task>, queue: &Receiver<Task>) {
    // Those who stand by may be all that is left. What panics here did so before, and was told.
    let _ = catch_unwind(AssertUnwindSafe(|| crew.lose_one()));
    loop {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(task.take())));
        let Ok(next) = queue.recv() else { break };
        task = Some(next);
    }
}

/// Whether it did the errand. One that panics is its reader's again, with all that it takes; the reader then meets the panic
/// itself.
fn run(errand: &dyn Errand) -> bool {
    catch_unwind(AssertUnwindSafe(|| errand.run())).unwrap_or_else(|panic| {
        tracing::warn!(message = panic_message(&*panic), "an errand of the reader's panicked on a worker");
        false
    })
}
