//! The class `Snapshot`.

use std::path::PathBuf;

use percolator::snapshot::{self, SnapshotError};
use pyo3::prelude::*;

use crate::errors;
use crate::order::Plan;

/// Where a training run is: a small text.
#[pyclass(frozen, eq, module = "percolator")]
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) inner: snapshot::Snapshot,
}

impl Snapshot {
    pub(crate) fn of(py: Python<'_>, taken: Result<snapshot::Snapshot, SnapshotError>) -> PyResult<Self> {
        taken.map(|inner| Snapshot { inner }).map_err(|error| errors::snapshot(py, &error))
    }
}

#[pymethods]
impl Snapshot {
    /// Reads the text of a snapshot.
    #[new]
    fn new(py: Python<'_>, text: &str) -> PyResult<Self> {
        Snapshot::of(py, text.parse())
    }

    /// Reads a file that `save` wrote.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        Snapshot::of(py, py.detach(|| snapshot::Snapshot::load(path)))
    }

    /// Writes a file that is whole or absent.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.inner.save(path)).map_err(|error| errors::snapshot(py, &error))
    }

    /// Joins the snapshots of a job's processes, if they are of different steps.
    #[staticmethod]
    fn join(py: Python<'_>, snapshots: Vec<PyRef<'_, Self>>) -> PyResult<Self> {
        let all = snapshots.iter().map(|snapshot| &snapshot.inner);
        Snapshot::of(py, snapshot::Snapshot::join(all))
    }

    /// The next epoch and step of a replica, if it is known.
    #[pyo3(signature = (replica=0))]
    fn next(&self, replica: usize) -> Option<(u64, u64)> {
        self.inner.next(replica).map(|id| (id.epoch, id.step))
    }

    /// The number of replicas of the job.
    #[getter]
    fn replicas(&self) -> usize {
        self.inner.replicas()
    }

    /// Which record comes when, if the run follows a plan.
    #[getter]
    fn plan(&self) -> Option<Plan> {
        self.inner.plan().cloned().map(Plan::new)
    }

    fn __str__(&self) -> String {
        self.inner.to_string()
    }

    fn __repr__(&self) -> String {
        match self.inner.next(0) {
            Some(next) => format!("Snapshot(next {next})"),
            None => "Snapshot(...)".to_owned(),
        }
    }

    fn __getnewargs__(&self) -> (String,) {
        (self.inner.to_string(),)
    }
}
