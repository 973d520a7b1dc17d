//! The class `Plan`.

use percolator::order::{self, OrderError};
use pyo3::prelude::*;

use crate::errors;

/// Which record comes when, for every replica of a job.
#[pyclass(frozen, module = "percolator")]
pub(crate) struct Plan {
    inner: order::Plan,
}

impl Plan {
    pub(crate) fn new(inner: order::Plan) -> Self {
        Plan { inner }
    }
}

fn config(py: Python<'_>, error: &OrderError) -> PyErr {
    errors::config(py, &error.to_string())
}

#[pymethods]
impl Plan {
    /// The number of steps in an epoch.
    #[pyo3(signature = (epoch=0))]
    fn steps(&self, py: Python<'_>, epoch: u64) -> PyResult<u64> {
        self.inner.steps(epoch).map_err(|error| config(py, &error))
    }

    /// The epoch and the position of each record that a replica gets at a step, in the order of the rows.
    #[pyo3(signature = (epoch, step, replica=0))]
    fn share(&self, py: Python<'_>, epoch: u64, step: u64, replica: usize) -> PyResult<Vec<(u64, u64)>> {
        let share = self.inner.share(epoch, step, replica).map_err(|error| config(py, &error))?;
        Ok(share.map(|id| (id.epoch, id.index)).collect())
    }

    /// The number of records of the data set.
    #[getter]
    fn records(&self) -> u64 {
        self.inner.job().records()
    }

    /// The number of replicas of the job.
    #[getter]
    fn replicas(&self) -> usize {
        self.inner.world().replicas()
    }

    /// The number of processes of the job.
    #[getter]
    fn workers(&self) -> usize {
        self.inner.world().workers()
    }

    /// The most records that a replica gets at a step.
    #[getter]
    fn batch_size_max(&self) -> u64 {
        self.inner.batch_size_max()
    }

    fn __repr__(&self) -> String {
        let (records, replicas) = (self.records(), self.replicas());
        format!("Plan({records} records, {replicas} replicas)")
    }
}
