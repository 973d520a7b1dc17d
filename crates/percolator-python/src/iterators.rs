//! Iterators over a feed's batches.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use percolator::FeedError;
use pyo3::exceptions::{PyException, PyKeyboardInterrupt};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::batch::{Batch, Taken};
use crate::decoder::Failures;
use crate::feed::Feed;
use crate::process::OfProcess;
use crate::receipt::Receipt;
use crate::running::{
    Close, IteratorTurn, TURN, closed_at_exit, next, start, taken, told_if_alone, without_interpreter,
};
use crate::server_feed::ServerFeed;
use crate::snapshot::Snapshot;

/// Where an iterator ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// When the feed does.
    End,
    /// After the last step of the present epoch.
    EndOfEpoch,
}

/// Where batches come from.
enum Origin {
    Feed(Py<Feed>),
    /// A server, and the epoch whose batches are wanted: if it is not set, that of the first one.
    Server(Py<ServerFeed>, OnceLock<u64>),
}

/// The batches of a feed with one device.
#[pyclass(frozen, module = "percolator")]
pub(crate) struct Batches {
    origin: Origin,
    until: Until,
    is_over: AtomicBool,
    /// A function of a batch: what it returns is handed over in the batch's place.
    convert: Option<Py<PyAny>>,
    /// A batch that was taken, and not handed over.
    left: Mutex<Option<Py<Batch>>>,
}

impl Batches {
    pub(crate) fn new(feed: Py<Feed>, until: Until) -> Self {
        Self::of(Origin::Feed(feed), until)
    }

    fn of(origin: Origin, until: Until) -> Self {
        Batches { origin, until, is_over: AtomicBool::new(false), convert: None, left: Mutex::new(None) }
    }

    /// One epoch, or the rest of it. It may be without a batch.
    pub(crate) fn of_epoch(feed: Py<Feed>, is_over: bool) -> Self {
        Batches { is_over: AtomicBool::new(is_over), ..Batches::new(feed, Until::EndOfEpoch) }
    }

    /// The rest of an epoch, converted.
    pub(crate) fn converted(feed: Py<Feed>, convert: Py<PyAny>) -> Self {
        Batches { convert: Some(convert), ..Batches::new(feed, Until::EndOfEpoch) }
    }

    /// An epoch of a server's, or the rest of it, converted; the one that comes if none is given.
    pub(crate) fn of_server(feed: Py<ServerFeed>, epoch: Option<u64>, convert: Py<PyAny>) -> Self {
        let epoch = epoch.map_or_else(OnceLock::new, OnceLock::from);
        Batches { convert: Some(convert), ..Batches::of(Origin::Server(feed, epoch), Until::EndOfEpoch) }
    }

    fn next(&self, py: Python<'_>) -> PyResult<Option<Taken>> {
        match &self.origin {
            Origin::Feed(feed) => Ok(feed.get().running().next_step(py)?.and_then(|mut step| step.pop())),
            Origin::Server(feed, epoch) => {
                let batch = feed.get().next_of(py, epoch.get().copied())?;
                if let Some(step) = batch.as_ref().and_then(Taken::step) {
                    let _ = epoch.set(step.epoch);
                }
                Ok(batch)
            }
        }
    }

    fn take(&self, py: Python<'_>) -> PyResult<Option<Py<Batch>>> {
        if self.is_over.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let batch = self.next(py)?;
        let is_last = |batch: &Taken| batch.step().is_some_and(|step| step.is_last);
        if batch.as_ref().is_none_or(|batch| self.until == Until::EndOfEpoch && is_last(batch)) {
            self.is_over.store(true, Ordering::Relaxed);
        }
        batch.map(|batch| Py::new(py, Batch::new(py, batch)?)).transpose()
    }

    /// Hands a batch over as its consumer wants it.
    ///
    /// The conversion is Python, where Ctrl-C may raise, and the feed counts the batch already. So the batch
    /// is handed over all the same, and Ctrl-C comes again: the interpreter handles it where the consumer has
    /// the batch. If something else breaks the conversion off, as a program that exits does, the next call
    /// hands the batch over. It also does if the conversion is made again after Ctrl-C, and fails: Ctrl-C is
    /// raised then, and not that error. What merely fails, as for a type that a framework lacks, is not tried
    /// again.
    fn hand_over(&self, py: Python<'_>, convert: &Py<PyAny>, batch: Py<Batch>) -> PyResult<Py<PyAny>> {
        let again = |interrupt: PyErr| {
            let is_interrupt = interrupt.is_instance_of::<PyKeyboardInterrupt>(py);
            if !is_interrupt || !can_interrupt_again(py).unwrap_or(false) {
                return Err(interrupt);
            }
            // It only notes the signal.
            let interrupt_again = || py.import("_thread")?.call_method0("interrupt_main");
            let converted = convert.call1(py, (&batch,));
            match converted.and_then(|converted| interrupt_again().map(|_noted| converted)) {
                Err(error) if error.is_instance_of::<PyException>(py) => Err(interrupt),
                converted => converted,
            }
        };
        let converted = convert.call1(py, (&batch,)).or_else(again);
        if converted.as_ref().is_err_and(|error| !error.is_instance_of::<PyException>(py)) {
            *self.left.lock() = Some(batch);
        }
        converted
    }
}

/// Whether this thread is the one that Python's signals interrupt, and Ctrl-C is among them.
fn can_interrupt_again(py: Python<'_>) -> PyResult<bool> {
    let (threading, signal) = (py.import("threading")?, py.import("signal")?);
    let is_main = threading.call_method0("current_thread")?.is(&threading.call_method0("main_thread")?);
    Ok(is_main && signal.call_method1("getsignal", (signal.getattr("SIGINT")?,))?.is_callable())
}

#[pymethods]
impl Batches {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let left = self.left.lock().take();
        let batch = if left.is_some() { left } else { self.take(py)? };
        let Some(batch) = batch else { return Ok(None) };
        match &self.convert {
            Some(convert) => self.hand_over(py, convert, batch).map(Some),
            None => Ok(Some(batch.into_any())),
        }
    }

    /// Whether nothing more comes, as far as that is known.
    #[getter]
    fn _is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed) && self.left.lock().is_none()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.convert.iter().try_for_each(|convert| visit.call(convert))?;
        match &self.origin {
            Origin::Feed(feed) => visit.call(feed),
            Origin::Server(feed, _) => visit.call(feed),
        }
    }
}

/// The steps of a feed: each is a list with the next batch of every device.
#[pyclass(frozen, module = "percolator")]
pub(crate) struct Steps {
    feed: Py<Feed>,
}

impl Steps {
    pub(crate) fn new(feed: Py<Feed>) -> Self {
        Steps { feed }
    }
}

#[pymethods]
impl Steps {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Vec<Batch>>> {
        let Some(step) = self.feed.get().running().next_step(py)? else { return Ok(None) };
        Ok(Some(step.into_iter().map(|batch| Batch::new(py, batch)).collect::<PyResult<_>>()?))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.feed)
    }
}

/// One device's batches, for a thread of their own.
#[pyclass(frozen, module = "percolator")]
pub(crate) struct Lane {
    shared: Arc<SharedLane>,
    /// Its number in the feed, which is that of its device.
    #[pyo3(get)]
    number: usize,
    /// The name of its device.
    #[pyo3(get)]
    device: String,
    feed: Py<Feed>,
}

struct SharedLane(OfProcess<LaneParts>);

struct LaneParts {
    /// `None` once it was closed.
    lane: Mutex<Option<percolator::Lane>>,
    is_iterated: AtomicBool,
    failures: Arc<Failures>,
}

/// Ends a lane, which waits for its workers: on another thread if they wait for the turn that this one has.
fn end(failures: &Failures, run: impl FnOnce() + Send + 'static) {
    if failures.has_turn() {
        let _ = start("close", run);
    } else {
        without_interpreter(run);
    }
}

impl Drop for LaneParts {
    fn drop(&mut self) {
        let lane = self.lane.get_mut().take();
        end(&self.failures, move || drop(lane));
    }
}

impl Close for SharedLane {
    fn close(&self) {
        if self.0.is_here() {
            let lane = self.0.get_anywhere().lane.lock().take();
            drop(lane);
        }
    }
}

impl Lane {
    pub(crate) fn new(lane: percolator::Lane, feed: Py<Feed>) -> Self {
        let (number, device) = (lane.number(), lane.device().to_owned());
        let failures = feed.get().running().failures().clone();
        let parts = LaneParts { lane: Mutex::new(Some(lane)), is_iterated: AtomicBool::new(false), failures };
        let shared = Arc::new(SharedLane(OfProcess::new(parts)));
        closed_at_exit(&shared);
        Lane { shared, number, device, feed }
    }

    fn next(&self, py: Python<'_>) -> PyResult<Option<Taken>> {
        let parts = self.shared.0.get(py)?;
        let _turn = IteratorTurn::take(py, &parts.is_iterated)?;
        self.feed.get().running().check_turn(py)?;
        let is_ready = |lane: &mut percolator::Lane| lane.wait_timeout(TURN);
        let after_turn = told_if_alone(|| self.feed.get().running().all_held(Some(self.number)));
        let batch = next(py, &parts.lane, is_ready, after_turn, percolator::Lane::next)?;
        let one: Result<Option<Vec<Taken>>, FeedError> =
            batch.map(|batch| Ok(taken(py, vec![batch?])?)).transpose();
        let one = one.map_err(|error| self.feed.get().running().exception(py, &error))?;
        Ok(one.and_then(|mut one| one.pop()))
    }
}

#[pymethods]
impl Lane {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        self.next(py)?.map(|batch| Batch::new(py, batch)).transpose()
    }

    /// Where the training run is, after the batch that was taken last.
    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        let parts = self.shared.0.get(py)?;
        let snapshot = py.detach(|| parts.lane.lock().as_ref().map(percolator::Lane::snapshot));
        Snapshot::of(py, snapshot.ok_or_else(|| crate::errors::closed(py, "the lane is closed"))?)
    }

    /// What was delivered, if receipts are kept.
    fn receipt(&self, py: Python<'_>) -> PyResult<Option<Receipt>> {
        let parts = self.shared.0.get(py)?;
        let receipt = py.detach(|| parts.lane.lock().as_ref().and_then(percolator::Lane::receipt));
        Ok(receipt.map(Receipt::new))
    }

    /// Ends its threads.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.feed.get().running().check_turn(py)?;
        py.detach(|| self.shared.close());
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.feed)
    }

    fn __clear__(&self) {
        let shared = self.shared.clone();
        end(self.feed.get().running().failures(), move || shared.close());
    }

    fn __repr__(&self) -> String {
        format!("Lane({}, {})", self.number, self.device)
    }
}
