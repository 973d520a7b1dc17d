//! The threads that decode records into their places in a batch.
//!
//! A task is a run with the places of its records, or a task that the reader offloads. Tasks of all lanes go
//! through one bounded queue, in the order in which the lanes' batches are filled, and any worker takes any
//! task. A batch has no barrier, so no worker idles at its end while the next is being filled. What a record
//! becomes depends only on the record and its id, never on the worker that handles it.
//!
//! Why not a fork-join pool: it boxes each task (the record path allocates nothing), and a join at the end of
//! each batch costs small batches more than their records do.

mod governor;
pub(crate) mod processor;
mod roster;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub(crate) use self::governor::Governor;
pub(crate) use self::roster::Roster;

use crate::base::cache_lines;
use crate::base::meter::{Count, WaitMeter};
use crate::base::numa::Cpus;
use crate::base::offload::{Helpers, OFFLOADED_MAX, OffloadedTask};
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::thread;
use crate::base::sync::{Mutex, Receiver, Sender, bounded, panic_message};
use crate::base::trace::TARGET;
use crate::batch::Places;
use crate::batch::fault::{BatchFault, RecordCause};
use crate::decoder::ErasedScratch;
use crate::reader::Lease;
use crate::workers::processor::Processor;

/// How much of a record is prefetched while the previous one is handled: each starts on its own page, which
/// the processor's prefetcher does not predict.
const AHEAD_BYTES: usize = 4096;

/// What a worker does next.
#[expect(clippy::large_enum_variant, reason = "nearly all are runs, and the record path allocates nothing")]
pub(crate) enum Task {
    Fill(Fill),
    OffloadedTask(Arc<dyn OffloadedTask>),
}

/// A run, and the places of its records.
pub(crate) struct Fill {
    pub(crate) run: Lease,
    pub(crate) places: Places,
    /// How many of the first records are known to be bad, and marked.
    pub(crate) settled: usize,
    /// How many of the first records the prefetcher has verified.
    pub(crate) verified: usize,
    /// The batch of the places, for traces.
    pub(crate) lane: usize,
    pub(crate) batch: u64,
    /// Set once the lane's consumer has left: the batch will not be used.
    pub(crate) is_left: Arc<AtomicBool>,
}

impl Fill {
    /// Writes the records, as long as there is a consumer; returns whether that completed their batch.
    fn handle(mut self, processor: &Processor, scratch: &mut ErasedScratch) -> bool {
        let mut at = 0;
        let handled = catch_unwind(AssertUnwindSafe(|| {
            let mut checksums = self.run.deferred_checksums().after(self.verified);
            for (position, record) in self.run.iter().enumerate().skip(self.settled) {
                if self.is_left.load(Ordering::Relaxed) {
                    return self.places.fail(position, BatchFault::Unwritten);
                }
                at = position;
                if let Some(next) = self.run.get(position + 1) {
                    cache_lines::ask_for(next.value.get(..AHEAD_BYTES).unwrap_or(next.value));
                }
                // Verified right before its use, so that what this reads is in this processor's cache.
                let used = checksums.before(position).map_err(BatchFault::from).and_then(|()| {
                    let mut row = self.places.get(position, processor.seed);
                    Ok(processor.write(&record, &mut row, scratch)?)
                });
                let Err(fault) = used else { continue };
                // Bytes that were overwritten in the meantime look wrong too.
                if let Err(changed) = self.run.check_used() {
                    return self.places.fail(position, changed);
                }
                let number = self.run.number(position);
                match processor.bad(&record, number, fault) {
                    Ok(bad) => self.places.mark_bad(position, bad),
                    Err(fault) => return self.places.fail(position, fault),
                }
            }
            if let Err(changed) = self.run.check_used() {
                self.places.fail(0, changed);
            }
        }));
        let rested = catch_unwind(AssertUnwindSafe(|| processor.decoder.rest(scratch)));
        if let Some(record) = self.run.get(at) {
            if let Err(panic) = handled {
                let cause = RecordCause::Panicked { message: panic_message(&*panic) };
                self.places.fail(at, processor.error(&record, cause));
            } else if let Err(panic) = rested {
                let (after, message) = (record.id, panic_message(&*panic));
                self.places.fail(at, BatchFault::Rest { after, message });
            }
        }
        // The run first: its reader may be waiting for it, and the next line may complete the batch.
        drop(self.run);
        self.places.finish()
    }
}

/// The counters of a feed's workers.
#[derive(Debug, Default)]
pub(crate) struct WorkerMeters {
    /// Waits of workers that had nothing to do, or were surplus.
    pub(crate) idle: WaitMeter,
    pub(crate) runs: Count,
    /// Offloaded tasks that a worker did because they had not been done yet.
    pub(crate) offloaded: Count,
}

/// The workers' queue, which exists before the workers: the reader, which offloads tasks to it, starts first.
/// It has room for all runs and all offloaded tasks, so that a send never waits.
///
/// Runs and offloaded tasks go through it in order. If the workers are behind, a task waits, and the reader,
/// which has time, does it itself; if the reader is behind, hardly anything is queued.
#[derive(Debug)]
pub(crate) struct TaskQueue {
    tasks: Sender<Task>,
    queue: Receiver<Task>,
    offloaded: Arc<Offload>,
}

impl TaskQueue {
    /// A queue to `threads` workers, with room for `runs_max` runs.
    pub(crate) fn with_room(threads: usize, runs_max: usize) -> Self {
        let (tasks, queue) = bounded(runs_max + OFFLOADED_MAX);
        let room = runs_max + OFFLOADED_MAX;
        let offloaded = Arc::new(Offload { threads, room, tasks: Mutex::new(Some(tasks.clone())) });
        TaskQueue { tasks, queue, offloaded }
    }

    /// The workers, as helpers of a reader.
    pub(crate) fn helpers(&self) -> Arc<dyn Helpers> {
        self.offloaded.clone()
    }
}

/// The workers' queue for offloaded tasks.
#[derive(Debug)]
struct Offload {
    threads: usize,
    /// The room of the queue, in tasks.
    room: usize,
    /// `None` once the workers end. A reader that lives longer does not make them wait for more.
    tasks: Mutex<Option<Sender<Task>>>,
}

impl Offload {
    /// The number of tasks that no worker has taken yet.
    fn queued(&self) -> usize {
        self.tasks.lock().as_ref().map_or(0, Sender::len)
    }
}

impl Helpers for Offload {
    fn threads(&self) -> usize {
        self.threads
    }

    fn offloaded_max(&self) -> usize {
        OFFLOADED_MAX
    }

    fn send(&self, task: Arc<dyn OffloadedTask>) -> bool {
        // There is room, because senders keep to `offloaded_max`; trying costs no more.
        self.tasks.lock().as_ref().is_some_and(|tasks| tasks.try_send(Task::OffloadedTask(task)).is_ok())
    }
}

/// The worker threads of a feed. Dropping this joins them: each finishes its record, and drops queued tasks
/// of lanes that were left.
#[derive(Debug)]
pub(crate) struct Workers {
    /// `Some` until the drop, which ends the queue.
    tasks: Option<Sender<Task>>,
    governor: Arc<Governor>,
    offloaded: Arc<Offload>,
    roster: Arc<Roster>,
}

impl Workers {
    /// Starts the workers of this feed on a queue. They are bound to the processors `near`, if any. If a
    /// worker panics where no panic is expected, `lost` receives its name and the panic's message, before the
    /// worker drops its task.
    pub(crate) fn start(
        queue: TaskQueue,
        governor: Arc<Governor>,
        processor: &Arc<Processor>,
        meters: &Arc<WorkerMeters>,
        near: Option<&Cpus>,
        feed: u64,
        lost: impl Fn(String, String) + Clone + Send + 'static,
    ) -> io::Result<Workers> {
        let TaskQueue { tasks, queue, offloaded } = queue;
        let count = governor.threads();
        let spawn = {
            let (governor, processor, meters) = (governor.clone(), processor.clone(), meters.clone());
            let near = near.cloned();
            move |number: usize| {
                let (queue, processor, meters) = (queue.clone(), processor.clone(), meters.clone());
                let (governor, near, lost) = (governor.clone(), near.clone(), lost.clone());
                let (name, mut task) = (format!("worker:{number}"), None);
                let run = move || {
                    let worked = catch_unwind(AssertUnwindSafe(|| {
                        let _entered = tracing::info_span!("worker", number, feed).entered();
                        work(number, &governor, &queue, &processor, &meters, near.as_ref(), &mut task);
                    }));
                    if let Err(panic) = worked {
                        survive(|| lost(format!("worker:{number}"), panic_message(&*panic)));
                        survive(move || drop(panic));
                        drop_tasks(&governor, task, &queue);
                    }
                };
                thread::Builder::new().name(name).spawn(run)
            }
        };
        let roster = Roster::new(governor.clone(), spawn);
        let workers = Workers { tasks: Some(tasks), governor, offloaded, roster: Arc::new(roster) };
        workers.roster.grow(count)?;
        Ok(workers)
    }

    /// The threads, to which more can be added.
    pub(crate) fn roster(&self) -> &Arc<Roster> {
        &self.roster
    }

    /// Observes the queue without keeping it open.
    pub(crate) fn queue_watch(&self) -> QueueWatch {
        QueueWatch(self.offloaded.clone())
    }

    /// The sender of the workers' queue.
    pub(crate) fn tasks(&self) -> Sender<Task> {
        self.tasks.clone().expect("the queue is taken only by the drop")
    }
}

impl Drop for Workers {
    /// The join ends: the lanes, which hold the other senders, are joined before they drop the workers, and
    /// offloaded tasks are no longer accepted. A worker then finds its queue empty and closed.
    fn drop(&mut self) {
        self.tasks = None;
        drop(self.offloaded.tasks.lock().take());
        self.governor.end();
        self.roster.join();
    }
}

/// Tells how many tasks no worker has taken yet.
#[derive(Debug)]
pub(crate) struct QueueWatch(Arc<Offload>);

impl QueueWatch {
    pub(crate) fn queued(&self) -> usize {
        self.0.queued()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.0.room
    }
}

/// Runs a worker's loop. `task` is the task that it is working on, or `None`.
fn work(
    number: usize,
    governor: &Governor,
    queue: &Receiver<Task>,
    processor: &Processor,
    meters: &WorkerMeters,
    near: Option<&Cpus>,
    task: &mut Option<Task>,
) {
    let _bound = near.and_then(Cpus::bind);
    let mut scratch = processor.scratch();
    let mut has_completed = false;
    loop {
        governor.stand_by(number, &meters.idle);
        let ready = || if has_completed { None } else { queue.try_recv().ok().map(Ok) };
        let wait = || {
            // The thread that waits for the batch may have the processor first. If all processors are busy, a
            // system may make a woken thread wait until the end of a time slice (4 ms with Linux's lazy
            // preemption), and two threads must be woken, one by the other.
            if has_completed {
                thread::yield_now();
            }
            queue.recv()
        };
        let Ok(next) = meters.idle.take(ready, wait) else { break };
        *task = Some(next);
        governor.took(queue.len());
        // A listener may panic: the task is still where `drop_tasks` finds it.
        let _run = match &task {
            Some(Task::Fill(fill)) => {
                meters.runs.add(1);
                let Fill { lane, batch, .. } = *fill;
                let (records, bytes) = (fill.run.len(), fill.run.value_bytes());
                Some(tracing::trace_span!(target: TARGET, "run", lane, batch, records, bytes).entered())
            }
            _ => None,
        };
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

/// What a worker does after a panic that was not caught where panics are expected: it drops its task, and
/// then every task it receives. Their batches fail, so nothing waits for them, even if no other worker is
/// left. Nothing ends this thread before its queue has ended.
fn drop_tasks(governor: &Governor, mut task: Option<Task>, queue: &Receiver<Task>) {
    // Perhaps only workers on standby are left. If this panics, the worker panicked for the same reason, and
    // that was reported.
    survive(|| governor.lose_one());
    loop {
        survive(|| drop(task.take()));
        let Ok(next) = queue.recv() else { break };
        task = Some(next);
    }
}

/// Does something that may panic, and continues. The panic's payload may panic in turn when it is dropped, so
/// it is not dropped.
fn survive(run: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(run)) {
        std::mem::forget(payload);
    }
}

/// Runs an offloaded task; returns whether it ran. If it panics, the task goes back to the reader with
/// everything that it has taken, and the reader then meets the panic itself.
fn run(task: &dyn OffloadedTask) -> bool {
    catch_unwind(AssertUnwindSafe(|| task.run())).unwrap_or_else(|panic| {
        tracing::warn!(
            message = panic_message(&*panic),
            "an offloaded task of the reader panicked on a worker"
        );
        false
    })
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use std::panic::panic_any;
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::batch::Row;
    use crate::batch::field::Field;
    use crate::decoder::{Decoded, RecordDecoder, WorkerSetup};
    use crate::source::Files;
    use crate::source::Record;
    use crate::workers::processor::OnBad;

    /// A call that takes longer has hung.
    const HUNG_AFTER: Duration = Duration::from_secs(60);

    /// A decoder that no worker can begin with.
    struct Panics;

    impl RecordDecoder for Panics {
        type Scratch = ();

        fn fields(&self, _first: &Record<'_>) -> Decoded<Vec<Field>> {
            Ok(Vec::new())
        }

        fn scratch(&self, _setup: WorkerSetup) {
            panic!("a panic of the test");
        }

        fn decode(&self, _record: &Record<'_>, _row: &mut Row<'_>, _scratch: &mut ()) -> Decoded {
            Ok(())
        }
    }

    /// A panic's payload that panics in turn.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a panic of a payload");
        }
    }

    /// A task that can only be dropped, with a panic of that kind.
    struct Dropped(Arc<AtomicUsize>);

    impl OffloadedTask for Dropped {
        fn run(&self) -> bool {
            unreachable!("no worker begins")
        }
    }

    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
            panic_any(Bomb);
        }
    }

    #[test]
    fn lost_workers_drop_every_task_whatever_panics() {
        let processor = Arc::new(Processor {
            files: Files::of([Path::new("none")]),
            change_row: None,
            decoder: Arc::new(Panics),
            hashes_contents: false,
            on_bad: OnBad::default(),
            seed: 0,
            setup: WorkerSetup { is_past_caches: false },
        });
        let (governor, meters) = (Arc::new(Governor::of(2)), Arc::new(WorkerMeters::default()));
        let queue = TaskQueue::with_room(2, 100);
        let lost = |_, _| panic_any(Bomb);
        let workers = Workers::start(queue, governor, &processor, &meters, None, 1, lost).unwrap();
        let (dropped, start) = (Arc::new(AtomicUsize::new(0)), Instant::now());
        // Miri takes minutes for many panics.
        let tasks = if cfg!(miri) { 4 } else { 100 };
        for _ in 0..tasks {
            workers.tasks().send(Task::OffloadedTask(Arc::new(Dropped(dropped.clone())))).ok().unwrap();
        }
        while dropped.load(Ordering::Relaxed) < tasks {
            assert!(start.elapsed() < HUNG_AFTER, "tasks that no worker takes are kept");
            thread::yield_now();
        }
        // The join ends.
        drop(workers);
    }
}
