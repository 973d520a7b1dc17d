//! The class `Stats`.

use percolator::feed::{LaneStats, Waits};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// What a feed has done so far, and who waited for whom.
#[pyclass(frozen, module = "percolator")]
pub(crate) struct Stats {
    inner: percolator::Stats,
}

impl Stats {
    pub(crate) fn new(inner: percolator::Stats) -> Self {
        Stats { inner }
    }
}

/// How many waits there were, and their time in seconds.
fn waits(waits: Waits) -> (u64, f64) {
    (waits.count, waits.time.as_secs_f64())
}

/// A dict of these numbers, and of these waits.
macro_rules! dict {
    ($py:expr, $stats:expr, $($number:ident)*; $($wait:ident)*) => {{
        let found = PyDict::new($py);
        $(found.set_item(stringify!($number), &$stats.$number)?;)*
        $(found.set_item(stringify!($wait), waits($stats.$wait))?;)*
        Ok(found)
    }};
}

#[pymethods]
impl Stats {
    /// Seconds since the feed was built, until its last lane ended.
    #[getter]
    fn elapsed(&self) -> f64 {
        self.inner.elapsed.as_secs_f64()
    }

    /// Records delivered.
    #[getter]
    fn records(&self) -> u64 {
        self.inner.records()
    }

    /// Records delivered a second.
    #[getter]
    fn records_per_second(&self) -> f64 {
        self.inner.records_per_second()
    }

    /// The stage that limits the feed, in words.
    #[getter]
    fn bottleneck(&self) -> String {
        self.inner.bottleneck().to_string()
    }

    /// How busy each stage is, from 0 to 1.
    #[getter]
    fn busy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stages = PyDict::new(py);
        for (stage, busy) in self.inner.busy() {
            stages.set_item(stage.to_string(), busy)?;
        }
        Ok(stages)
    }

    /// What the reader did, by name; waits are their number and their seconds.
    #[getter]
    fn reader<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let reader = &self.inner.reader;
        dict!(py, reader, records value_bytes passes undelivered; waits_for_free waits_for_resume)
    }

    /// What the threads that decode did, by name.
    #[getter]
    fn workers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        dict!(py, self.inner.workers, threads active queued runs; waits_for_records)
    }

    /// What each device's lane did, by name.
    #[getter]
    fn lanes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        let lane = |lane: &LaneStats| -> PyResult<Bound<'py, PyDict>> {
            dict!(py, lane, device batches records ring filling ready held bad_records growths;
                waits_for_records waits_for_free waits_for_device waits_for_workers waits_for_lanes
                waits_for_batch)
        };
        self.inner.lanes.iter().map(lane).collect()
    }

    fn __str__(&self) -> String {
        self.inner.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Stats({} records, {:.0} a second)", self.records(), self.records_per_second())
    }
}
