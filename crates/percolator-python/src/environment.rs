//! What launchers tell a process about its job.

use percolator::order;
use pyo3::prelude::*;

use crate::errors;

/// A process of a job, and the number of processes.
#[pyclass(frozen, eq, module = "percolator")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    inner: order::Process,
}

#[pymethods]
impl Process {
    #[getter]
    fn rank(&self) -> usize {
        self.inner.rank
    }

    #[getter]
    fn world_size(&self) -> usize {
        self.inner.processes
    }

    #[getter]
    fn local_rank(&self) -> Option<usize> {
        self.inner.local_rank
    }

    #[getter]
    fn local_world_size(&self) -> Option<usize> {
        self.inner.local_processes
    }

    fn __repr__(&self) -> String {
        format!("Process(rank={}, world_size={})", self.inner.rank, self.inner.processes)
    }
}

/// The process that the launchers' variables describe, or `None`.
#[pyfunction]
#[pyo3(signature = (rank=None, world_size=None))]
pub(crate) fn environment(
    py: Python<'_>,
    rank: Option<usize>,
    world_size: Option<usize>,
) -> PyResult<Option<Process>> {
    let found = order::Process::from_environment(rank, world_size);
    Ok(found.map_err(|error| errors::config(py, &error.to_string()))?.map(|inner| Process { inner }))
}
