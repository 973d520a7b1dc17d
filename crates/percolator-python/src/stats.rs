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
        let (reader, found) = (&self.inner.reader, PyDict::new(py));
        found.set_item("records", reader.records)?;
        found.set_item("value_bytes", reader.value_bytes)?;
        found.set_item("passes", reader.passes)?;
        found.set_item("undelivered", reader.undelivered)?;
        found.set_item("waits_for_free", waits(reader.waits_for_free))?;
        found.set_item("waits_for_resume", waits(reader.waits_for_resume))?;
        Ok(found)
    }

    /// What the threads that decode did, by name.
    #[getter]
    fn workers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (workers, found) = (&self.inner.workers, PyDict::new(py));
        found.set_item("threads", workers.threads)?;
        found.set_item("active", workers.active)?;
        found.set_item("queued", workers.queued)?;
        found.set_item("runs", workers.runs)?;
        found.set_item("waits_for_records", waits(workers.waits_for_records))?;
        Ok(found)
    }

    /// What each device's lane did, by name.
    #[getter]
    fn lanes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.inner.lanes.iter().map(|lane| lane_to(py, lane)).collect()
    }

    fn __str__(&self) -> String {
        self.inner.to_string()
    }

    fn __repr__(&self) -> String {
        format!("Stats({} records, {:.0} a second)", self.records(), self.records_per_second())
    }
}

fn lane_to<'py>(py: Python<'py>, lane: &LaneStats) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    found.set_item("device", &lane.device)?;
    found.set_item("batches", lane.batches)?;
    found.set_item("records", lane.records)?;
    found.set_item("ring", lane.ring)?;
    found.set_item("filling", lane.filling)?;
    found.set_item("ready", lane.ready)?;
    found.set_item("held", lane.held)?;
    found.set_item("bad_records", lane.bad_records)?;
    found.set_item("growths", lane.growths)?;
    found.set_item("waits_for_records", waits(lane.waits_for_records))?;
    found.set_item("waits_for_free", waits(lane.waits_for_free))?;
    found.set_item("waits_for_device", waits(lane.waits_for_device))?;
    found.set_item("waits_for_workers", waits(lane.waits_for_workers))?;
    found.set_item("waits_for_lanes", waits(lane.waits_for_lanes))?;
    found.set_item("waits_for_batch", waits(lane.waits_for_batch))?;
    Ok(found)
}
