//! Iterators over a feed's batches.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, MutexGuard};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::batch::{Batch, Taken};
use crate::feed::Feed;
use crate::process::OfProcess;
use crate::receipt::Receipt;
use crate::running::{Close, Found, TURN, Turn, closed_at_exit, wait, without_interpreter};
use crate::snapshot::Snapshot;

/// Where an iterator ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// When the feed does.
    End,
    /// After the last step of the present epoch.
    EndOfEpoch,
}

/// The batches of a feed with one device.
#[pyclass(frozen, module = "percolator")]
pub(crate) struct Batches {
    feed: Py<Feed>,
    until: Until,
    is_over: AtomicBool,
}

impl Batches {
    pub(crate) fn new(feed: Py<Feed>, until: Until) -> Self {
        Batches { feed, until, is_over: AtomicBool::new(false) }
    }
}

#[pymethods]
impl Batches {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        if self.is_over.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let batch = self.feed.get().running().next_step(py)?.and_then(|mut step| step.pop());
        let is_last = |batch: &Taken| batch.step().is_some_and(|step| step.is_last);
        if batch.as_ref().is_none_or(|batch| self.until == Until::EndOfEpoch && is_last(batch)) {
            self.is_over.store(true, Ordering::Relaxed);
        }
        batch.map(|batch| Batch::new(py, batch)).transpose()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.feed)
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
    number: usize,
    device: String,
    feed: Py<Feed>,
}

struct SharedLane(OfProcess<LaneParts>);

struct LaneParts {
    /// `None` once it was closed.
    lane: Mutex<Option<percolator::Lane>>,
    is_iterated: AtomicBool,
}

impl Drop for LaneParts {
    fn drop(&mut self) {
        let lane = self.lane.get_mut().take();
        without_interpreter(|| drop(lane));
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
        let parts = LaneParts { lane: Mutex::new(Some(lane)), is_iterated: AtomicBool::new(false) };
        let shared = Arc::new(SharedLane(OfProcess::new(parts)));
        closed_at_exit(&shared);
        Lane { shared, number, device, feed }
    }

    fn next(&self, py: Python<'_>) -> PyResult<Option<Taken>> {
        let parts = self.shared.0.get(py)?;
        let _turn = Turn::take(py, &parts.is_iterated)?;
        let next = wait(py, || {
            let mut guard = parts.lane.lock();
            let Some(lane) = &mut *guard else { return Ok(Found::Closed) };
            if !lane.wait_timeout(TURN) {
                MutexGuard::unlock_fair(guard);
                return Ok(Found::NotYet);
            }
            Ok(Found::Next(lane.next().transpose()?.map(Taken::of).transpose()?))
        })?;
        next.map_err(|error| self.feed.get().running().exception(py, &error))
    }
}

#[pymethods]
impl Lane {
    #[getter]
    fn number(&self) -> usize {
        self.number
    }

    #[getter]
    fn device(&self) -> &str {
        &self.device
    }

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
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.shared.close());
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.feed)
    }

    fn __clear__(&self) {
        without_interpreter(|| self.shared.close());
    }

    fn __repr__(&self) -> String {
        format!("Lane({}, {})", self.number, self.device)
    }
}
