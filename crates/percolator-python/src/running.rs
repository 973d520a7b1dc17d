//! A running feed, shared by the objects that Python has of it.
//!
//! A consumer waits in short turns, without the interpreter's lock. After each turn it takes that lock and
//! lets the interpreter handle signals, so Ctrl-C ends a wait; nothing has been taken then, and the next call
//! goes on. A batch is taken only after that, so a signal during a wait never loses one. The feed's own lock
//! is also free between turns: meanwhile, other threads can ask for statistics or snapshots, or close the
//! feed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use percolator::feed::{FeedHandle, FeedSpec, LaneStats};
use percolator::{DeviceError, FeedBuilder, FeedError};
use pyo3::prelude::*;
use pyo3::types::PyCFunction;

use crate::batch::Taken;
use crate::decoder::Failures;
use crate::process::OfProcess;
use crate::{errors, log};

/// How long one turn of a wait lasts: the longest time until a signal is handled.
pub(crate) const TURN: Duration = Duration::from_millis(50);

/// The turns after which a consumer that holds everything, and that no other thread can help, is told so.
const TURNS_ALONE: u32 = 20;

/// Everything that has threads of its own, to be closed before the interpreter ends: a thread that needs the
/// interpreter afterwards, for a decoder written in Python, would be killed in the middle of its work.
static LIVE: Mutex<Vec<Weak<dyn Close>>> = Mutex::new(Vec::new());

/// What has threads of its own.
pub(crate) trait Close: Send + Sync {
    /// Ends the threads. Called without the interpreter's lock, by the process that made it.
    fn close(&self);
}

/// Closes a value at the latest when the interpreter ends.
pub(crate) fn closed_at_exit(value: &Arc<impl Close + 'static>) {
    let value: Weak<dyn Close> = Arc::downgrade(value) as Weak<dyn Close>;
    let mut live = LIVE.lock();
    live.retain(|other| other.strong_count() > 0);
    live.push(value);
}

/// Registers what closes everything when the interpreter ends.
pub(crate) fn close_at_exit(py: Python<'_>) -> PyResult<()> {
    let close = PyCFunction::new_closure(py, None, None, |arguments, _| -> PyResult<()> {
        let py = arguments.py();
        // The lock is only ever taken by a thread that has the interpreter, so no fork finds it locked.
        let live: Vec<_> = std::mem::take(&mut *LIVE.lock()).iter().filter_map(Weak::upgrade).collect();
        if live.is_empty() {
            return Ok(());
        }
        let live = Arc::new(live);
        let of_thread = live.clone();
        // A decoder that never returns would be waited for for ever: Ctrl-C ends that.
        match start("close", move || close_all(&of_thread)) {
            Ok(closed) => closed.wait(py).map(drop),
            // No thread can start. Ctrl-C does not end this wait, but nothing stays open.
            Err(_) => {
                py.detach(|| close_all(&live));
                Ok(())
            }
        }
    })?;
    py.import("atexit")?.call_method1("register", (close,))?;
    Ok(())
}

fn close_all(live: &[Arc<dyn Close>]) {
    live.iter().for_each(|value| value.close());
}

/// Runs something that may wait for threads that need the interpreter.
pub(crate) fn without_interpreter(run: impl FnOnce() + Send) {
    let mut run = Some(run);
    let ran = Python::try_attach(|py| py.detach(|| run.take().map(|run| run())));
    if ran.is_none()
        && let Some(run) = run
    {
        run();
    }
}

/// One thread's turn to use an iterator.
pub(crate) struct IteratorTurn<'a>(&'a AtomicBool);

impl<'a> IteratorTurn<'a> {
    pub(crate) fn take(py: Python<'_>, in_use: &'a AtomicBool) -> PyResult<Self> {
        match in_use.swap(true, Ordering::Acquire) {
            false => Ok(IteratorTurn(in_use)),
            true => Err(errors::in_use(py)),
        }
    }
}

impl Drop for IteratorTurn<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Takes the next of what a lock guards, or `None` at its end. Waits for it, turn by turn: `is_ready` waits
/// no longer than [`TURN`] and takes nothing, and after it said yes, `take` does not wait. `after_turn` may
/// end the wait with an error.
pub(crate) fn next<P: Send, T: Send, E: Send>(
    py: Python<'_>,
    shared: &Mutex<Option<P>>,
    is_ready: impl Fn(&mut P) -> bool + Sync,
    mut after_turn: impl FnMut(Python<'_>) -> PyResult<()>,
    take: impl Fn(&mut P) -> Option<Result<T, E>> + Sync,
) -> PyResult<Option<Result<T, E>>> {
    loop {
        log::hand_on(py)?;
        let is_ready = py.detach(|| {
            let mut guard = shared.lock();
            let is_ready = guard.as_mut().map(&is_ready);
            if is_ready == Some(false) {
                // A thread that waits for the lock gets it before the next turn.
                MutexGuard::unlock_fair(guard);
            }
            is_ready
        });
        // What is taken counts as delivered. So a signal that came during the wait is handled first.
        py.check_signals()?;
        match is_ready {
            Some(true) => break,
            Some(false) => after_turn(py)?,
            None => return Err(errors::closed(py, CLOSED)),
        }
    }
    // The interpreter stays: while it is gone, a signal may come that makes the caller lose what was taken. A
    // thread that has the lock may need the interpreter, though, so this one does not wait for it here.
    let taken = match shared.try_lock() {
        Some(mut shared) => shared.as_mut().map(&take),
        None => py.detach(|| shared.lock().as_mut().map(&take)),
    };
    taken.ok_or_else(|| errors::closed(py, CLOSED))
}

/// Tells a consumer that holds everything, and that no other thread can help.
pub(crate) fn told_if_alone(all_held: impl Fn() -> Option<usize>) -> impl FnMut(Python<'_>) -> PyResult<()> {
    let mut turns = 0;
    move |py| {
        let held = all_held();
        turns = if held.is_some() { turns + 1 } else { 0 };
        if turns == 1 {
            collect_cycles(py)?;
        }
        match held {
            Some(held) if turns == TURNS_ALONE && is_alone(py)? => Err(errors::all_held(py, held, "")),
            _ => Ok(()),
        }
    }
}

/// Lets go of batches that only cycles of objects refer to.
pub(crate) fn collect_cycles(py: Python<'_>) -> PyResult<()> {
    py.import("gc")?.call_method0("collect").map(drop)
}

/// Whether no other thread could give a batch back. JAX and TensorFlow have threads of their own, which hold
/// what they have still to compute with.
fn is_alone(py: Python<'_>) -> PyResult<bool> {
    let modules = py.import("sys")?.getattr("modules")?;
    for name in ["jax", "tensorflow"] {
        if modules.contains(name)? {
            return Ok(false);
        }
    }
    let threads: usize = py.import("threading")?.call_method0("active_count")?.extract()?;
    Ok(threads == 1)
}

pub(crate) const CLOSED: &str = "the feed is closed: build another one";

/// Batches that can be shared. Waits, without the interpreter, for those that are still on their way to their
/// device.
pub(crate) fn taken(py: Python<'_>, step: Vec<percolator::Batch>) -> Result<Vec<Taken>, DeviceError> {
    let have_arrived = step.iter().all(|batch| matches!(batch.arrival().is_complete(), Ok(true)));
    let share = || step.into_iter().map(Taken::of).collect();
    if have_arrived { share() } else { py.detach(share) }
}

/// Does something on a thread of its own. Ctrl-C ends the wait for it, and not the thread. `None` if it
/// panicked.
pub(crate) fn elsewhere<T: Send + 'static>(
    py: Python<'_>,
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> PyResult<Option<T>> {
    start(name, run).map_err(|error| errors::feed(py, &error))?.wait(py)
}

/// What a thread of its own is making.
pub(crate) struct Made<T>(Receiver<T>);

/// Starts something on a thread of its own, which is waited for at exit at the latest.
pub(crate) fn start<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<Made<T>, FeedError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let work = Arc::new(Work(OfProcess::new(Mutex::new(None))));
    closed_at_exit(&work);
    let of_thread = work.clone();
    let run = move || {
        // The waiting thread may be gone. What was made is then dropped here.
        let _ = sender.send(run());
        drop(of_thread);
    };
    let thread = thread::Builder::new().name(name.to_owned()).spawn(run);
    let thread = thread.map_err(|error| FeedError::Thread { name: name.to_owned(), source: error.into() })?;
    *work.0.get_anywhere().lock() = Some(thread);
    Ok(Made(receiver))
}

impl<T: Send> Made<T> {
    /// Waits for it. `None` if the thread panicked.
    fn wait(self, py: Python<'_>) -> PyResult<Option<T>> {
        let Made(mut receiver) = self;
        loop {
            let received;
            (receiver, received) = py.detach(move || {
                let received = receiver.recv_timeout(TURN);
                (receiver, received)
            });
            if let Err(interrupt) = log::hand_on(py).and_then(|()| py.check_signals()) {
                // It may have been made meanwhile, and have threads that need the interpreter.
                py.detach(move || drop((received, receiver)));
                return Err(interrupt);
            }
            match received {
                Ok(made) => return Ok(Some(made)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
    }
}

/// A thread that may still need the interpreter, although its results are not waited for. The thread holds
/// this as long as it runs.
struct Work(OfProcess<Mutex<Option<JoinHandle<()>>>>);

impl Close for Work {
    fn close(&self) {
        if self.0.is_here() {
            let thread = self.0.get_anywhere().lock().take();
            // It holds nothing that a panic could have left half done.
            let _ = thread.map(JoinHandle::join);
        }
    }
}

/// A running feed.
pub(crate) struct Running(OfProcess<Parts>);

struct Parts {
    /// `None` once it was closed.
    feed: Mutex<Option<percolator::Feed>>,
    handle: FeedHandle,
    is_iterated: AtomicBool,
    failures: Arc<Failures>,
    /// Whether a consumer that no other thread can help is told so at once: no waiting time was set.
    gives_up_alone: bool,
}

impl Drop for Parts {
    fn drop(&mut self) {
        self.failures.close();
        let feed = self.feed.get_mut().take();
        without_interpreter(|| drop(feed));
    }
}

impl Close for Running {
    fn close(&self) {
        if self.0.is_here() {
            let parts = self.0.get_anywhere();
            parts.handle.cancel();
            parts.failures.close();
            let feed = parts.feed.lock().take();
            drop(feed);
        }
    }
}

impl Running {
    /// Builds a feed. Ctrl-C ends the wait for it; what is built nevertheless is dropped. A feed that it
    /// `replaces` is closed once all was checked, and before the new one has threads and memory.
    pub(crate) fn build(
        py: Python<'_>,
        builder: FeedBuilder,
        failures: Arc<Failures>,
        replaces: Option<Arc<Running>>,
    ) -> PyResult<Arc<Self>> {
        failures.check_turn(py)?;
        let gives_up_alone = builder.spec().give_up_after == FeedSpec::default().give_up_after;
        let build = move || {
            let resolved = builder.resolve()?;
            if let Some(replaced) = replaces {
                replaced.close();
            }
            resolved.launch()
        };
        // Making an index of a database may take long.
        let built = elsewhere(py, "build", build)?.unwrap_or_else(|| {
            let (name, message) = ("build".to_owned(), "see the standard error".to_owned());
            Err(FeedError::Panicked { name, message })
        });
        let feed = built.map_err(|error| failures.exception(py, &error))?;
        let parts = Parts {
            handle: feed.handle(),
            feed: Mutex::new(Some(feed)),
            is_iterated: AtomicBool::new(false),
            failures,
            gives_up_alone,
        };
        let running = Arc::new(Running(OfProcess::new(parts)));
        closed_at_exit(&running);
        Ok(running)
    }

    /// The exception of an error.
    pub(crate) fn exception(&self, py: Python<'_>, error: &FeedError) -> PyErr {
        self.0.get_anywhere().failures.exception(py, error)
    }

    /// What the feed's decoder raised, and the turn of its calls.
    pub(crate) fn failures(&self) -> &Arc<Failures> {
        &self.0.get_anywhere().failures
    }

    /// Checks that this thread may wait for the feed's decoder.
    pub(crate) fn check_turn(&self, py: Python<'_>) -> PyResult<()> {
        self.0.get_anywhere().failures.check_turn(py)
    }

    /// Does something with the feed, without the interpreter's lock.
    pub(crate) fn with<T: Send>(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut percolator::Feed) -> Result<T, FeedError> + Send,
    ) -> PyResult<T> {
        let parts = self.0.get(py)?;
        log::hand_on(py)?;
        let done = py.detach(|| parts.feed.lock().as_mut().map(run));
        match done {
            Some(done) => done.map_err(|error| self.exception(py, &error)),
            None => Err(errors::closed(py, CLOSED)),
        }
    }

    /// Does something after which the feed may have other threads.
    pub(crate) fn replace(
        &self,
        py: Python<'_>,
        run: impl FnOnce(&mut percolator::Feed) -> Result<(), FeedError> + Send,
    ) -> PyResult<()> {
        let parts = self.0.get(py)?;
        let _turn = IteratorTurn::take(py, &parts.is_iterated)?;
        self.check_turn(py)?;
        self.with(py, run)
    }

    /// The feed's handle, whether the feed is closed or not.
    pub(crate) fn handle(&self, py: Python<'_>) -> PyResult<FeedHandle> {
        let parts = self.0.get(py)?;
        log::hand_on(py)?;
        Ok(parts.handle.clone())
    }

    /// Waits for the next batch of every lane, or the end, and takes nothing. Ctrl-C ends the wait.
    pub(crate) fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let parts = self.0.get(py)?;
        let _turn = IteratorTurn::take(py, &parts.is_iterated)?;
        self.check_turn(py)?;
        let is_ready = |feed: &mut percolator::Feed| feed.steps().wait_timeout(TURN);
        let after_turn = told_if_alone(|| self.all_held(None));
        next(py, &parts.feed, is_ready, after_turn, |_| Some(Ok::<_, FeedError>(()))).map(drop)
    }

    /// The next batch of every lane, or `None` at the end.
    pub(crate) fn next_step(&self, py: Python<'_>) -> PyResult<Option<Vec<Taken>>> {
        let parts = self.0.get(py)?;
        let _turn = IteratorTurn::take(py, &parts.is_iterated)?;
        self.check_turn(py)?;
        let is_ready = |feed: &mut percolator::Feed| feed.steps().wait_timeout(TURN);
        let after_turn = told_if_alone(|| self.all_held(None));
        let step = next(py, &parts.feed, is_ready, after_turn, |feed| feed.steps().next())?;
        let step: Result<Option<Vec<Taken>>, FeedError> = step.map(|step| Ok(taken(py, step?)?)).transpose();
        step.map_err(|error| self.exception(py, &error))
    }

    /// The number of batches of a lane, or of any, if its consumer holds all of them and is to be told.
    pub(crate) fn all_held(&self, lane: Option<usize>) -> Option<usize> {
        let parts = self.0.get_anywhere();
        if !parts.gives_up_alone {
            return None;
        }
        let lanes = parts.handle.stats().lanes;
        let of_lane = |(number, _): &(usize, LaneStats)| lane.is_none_or(|lane| lane == *number);
        let mut lanes = lanes.into_iter().enumerate().filter(of_lane);
        lanes.find_map(|(_, lane)| (lane.held >= lane.ring && lane.ready == 0).then_some(lane.held))
    }

    pub(crate) fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        self.0.get(py)?.handle.cancel();
        Ok(())
    }

    pub(crate) fn is_closed(&self, py: Python<'_>) -> PyResult<bool> {
        let parts = self.0.get(py)?;
        Ok(py.detach(|| parts.feed.lock().is_none()))
    }

    /// Checks that this process built it.
    pub(crate) fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        self.0.get(py).map(drop)
    }

    /// Ends its threads. In a forked child there are none.
    pub(crate) fn close_here(&self, py: Python<'_>) {
        py.detach(|| self.close());
    }
}
