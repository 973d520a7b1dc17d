//! The threads that turn records into their places in a batch.
//!
//! A task is a run and the places of its records, or an errand of the reader's. Tasks of all lanes go through one
//! bounded queue, in the order in which the lanes' batches are filled, and any worker takes any task: a batch has no barrier of
//! its own, so nobody idles at its end while the next is being filled. What a record becomes depends on
//! the record and its name alone, never on who handles it.
//!
//! Why not a fork-join pool: its tasks are boxed one by one (the record path allocates nothing), and a join
//! at the end of each batch costs small batches more than their records do.

mod governor;
pub(crate) mod processor;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::Mutex;

pub(crate) use self::governor::Governor;

use crate::base::cache_lines;
use crate::base::meter::{Count, WaitMeter};
use crate::base::numa::Cpus;
use crate::base::offload::{Helpers, OFFLOADED_MAX, OffloadedTask};
use crate::base::sync::panic_message;
use crate::batch::Places;
use crate::batch::fault::RecordCause;
use crate::decoder::Scratch;
use crate::reader::Lease;
use crate::workers::processor::Processor;

/// How much of a record is asked for while the one before it is handled: each begins on a page of its own, which the
/// processor does not foresee.
const AHEAD_BYTES: usize = 4096;

/// What a worker does next.
#[expect(clippy::large_enum_variant, reason = "nearly all are runs, and the record path allocates nothing")]
pub(crate) enum Task {
    Fill(Fill),
    OffloadedTask(Arc<dyn OffloadedTask>),
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
            let mut checksums = self.run.seal_checks();
            for (position, record) in self.run.iter().enumerate() {
                at = position;
                if let Some(next) = self.run.get(position + 1) {
                    cache_lines::ask_for(next.value.get(..AHEAD_BYTES).unwrap_or(next.value));
                }
                // Right before, so that what is read for it is in this processor's cache.
                if let Err(damage) = checksums.before(position) {
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
    pub(crate) offloaded: Count,
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
    offloaded: Arc<Offload>,
}

impl TaskQueue {
    /// For so many workers, with room for so many runs.
    pub(crate) fn with_room(threads: usize, runs_max: usize) -> Self {
        let (tasks, queue) = bounded(runs_max + OFFLOADED_MAX);
        let offloaded = Arc::new(Offload { threads, tasks: Mutex::new(Some(tasks.clone())) });
        TaskQueue { tasks, queue, offloaded }
    }

    /// The workers, as a reader sees them.
    pub(crate) fn helpers(&self) -> Arc<dyn Helpers> {
        self.offloaded.clone()
    }
}

/// The workers' end for errands.
#[derive(Debug)]
struct Offload {
    threads: usize,
    /// `None` once the workers end. A reader that lives longer does not keep them waiting for more.
    tasks: Mutex<Option<Sender<Task>>>,
}

impl Helpers for Offload {
    fn threads(&self) -> usize {
        self.threads
    }

    fn offloaded_max(&self) -> usize {
        OFFLOADED_MAX
    }

    fn send(&self, task: Arc<dyn OffloadedTask>) -> bool {
        // There is room: who sends keeps to `offloaded_max`. To try costs no more.
        self.tasks.lock().as_ref().is_some_and(|tasks| tasks.try_send(Task::OffloadedTask(task)).is_ok())
    }
}

/// The worker threads of a feed. Dropping the value lets them finish what is queued, and joins them.
#[derive(Debug)]
pub(crate) struct Workers {
    /// `Some` until the drop, which ends the queue.
    tasks: Option<Sender<Task>>,
    governor: Arc<Governor>,
    offloaded: Arc<Offload>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts a crew's workers on a queue. `near` are the processors that they keep to, if any. `lost` is
    /// told of a worker that panicked where no panic is foreseen, with its name and what the panic said,
    /// before the task that it was given is let go of.
    pub(crate) fn start(
        queue: TaskQueue,
        governor: Arc<Governor>,
        processor: &Arc<Processor>,
        meters: &Arc<WorkerMeters>,
        near: Option<&Cpus>,
        lost: impl Fn(String, String) + Clone + Send + 'static,
    ) -> io::Result<Workers> {
        let TaskQueue { tasks, queue, offloaded } = queue;
        let count = governor.threads();
        let mut workers =
            Workers { tasks: Some(tasks), governor, offloaded, threads: Vec::with_capacity(count) };
        for number in 0..count {
            let (queue, processor, meters) = (queue.clone(), processor.clone(), meters.clone());
            let (governor, near, lost) = (workers.governor.clone(), near.cloned(), lost.clone());
            let (name, mut task) = (format!("worker:{number}"), None);
            let run = move || {
                let worked = catch_unwind(AssertUnwindSafe(|| {
                    work(number, &governor, &queue, &processor, &meters, near.as_ref(), &mut task);
                }));
                if let Err(panic) = worked {
                    lost(format!("worker:{number}"), panic_message(&*panic));
                    let_go(&governor, task, &queue);
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
        drop(self.offloaded.tasks.lock().take());
        self.governor.end();
        for thread in self.threads.drain(..) {
            // A panic was caught there, and told.
            let _ = thread.join();
        }
    }
}

/// `task` is what it is at, or `None`.
fn work(
    number: usize,
    governor: &Governor,
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
        governor.stand_by(number, &meters.idle);
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
        governor.took(queue.len());
        if let Some(Task::Fill(fill)) = task {
            meters.runs.add(1);
            let (records, bytes) = (fill.run.len(), fill.run.value_bytes());
            tracing::trace!(records, bytes, "a run is transformed");
        }
        has_completed = match task.take() {
            Some(Task::Fill(fill)) => fill.handle(processor, &mut scratch),
            Some(Task::OffloadedTask(task)) => {
                meters.offloaded.add(u64::from(run(&*task)));
                false
            }
            None => false,
        };
    }
}

/// What a worker does that is lost to a panic, which is caught wherever one is foreseen: it lets go of its
/// task and, for as long as there are any, of all that it comes by. Batches that those are of fail, and
/// nobody waits for them, though no worker be left.
fn let_go(governor: &Governor, mut task: Option<Task>, queue: &Receiver<Task>) {
    // Those who stand by may be all that is left. What panics here did so before, and was told.
    let _ = catch_unwind(AssertUnwindSafe(|| governor.lose_one()));
    loop {
        let _ = catch_unwind(AssertUnwindSafe(|| drop(task.take())));
        let Ok(next) = queue.recv() else { break };
        task = Some(next);
    }
}

/// Whether it did the errand. One that panics is its reader's again, with all that it takes; the reader then meets the panic
/// itself.
fn run(task: &dyn OffloadedTask) -> bool {
    catch_unwind(AssertUnwindSafe(|| task.run())).unwrap_or_else(|panic| {
        tracing::warn!(message = panic_message(&*panic), "an errand of the reader's panicked on a worker");
        false
    })
}
