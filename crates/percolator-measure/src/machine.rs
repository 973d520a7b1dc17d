//! This machine's limits, as one round measures them.

use std::time::Duration;

use percolator::Stats;
#[cfg(feature = "cuda-driver")]
use percolator::device::CudaDevice;

use crate::error::MeasureError;
use crate::job::{Job, Records};
use crate::limits::{self, PageCache};

/// The best that this machine can do, in bytes per second unless noted.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct Limits {
    /// By number of threads: 1, 2, 4 and so on, and the pipeline's.
    pub copy: Vec<(usize, f64)>,
    /// Stores past the caches, by all threads.
    pub store_n: f64,
    /// The first touch of as much new memory as a batch takes.
    pub fresh_n: f64,
    /// Reading the files; `None` if there are no bytes to read.
    pub read_n: Option<f64>,
    /// Records per second of one thread, if records are encoded.
    pub decode_1: Option<f64>,
    /// All GPUs of the job together, if it has any.
    pub pinned_copy: Option<f64>,
}

impl Limits {
    /// Measures the limits that need no batch, each for about `time`. All memory is freed afterwards.
    pub(crate) fn measure(job: &Job, time: Duration) -> Result<Self, MeasureError> {
        let threads = job.threads();
        let copy_at = |threads| (threads, limits::copy_bytes_per_second(threads, time));
        let copy: Vec<_> = thread_counts(threads).into_iter().map(copy_at).collect();
        let store_n = limits::store_bytes_per_second(threads, time);
        let fresh_n = limits::fresh_bytes_per_second(threads, job.batch_bytes());
        let is_measured = |rate: f64| rate > 0.0;
        if !copy.iter().map(|&(_threads, rate)| rate).chain([store_n, fresh_n]).all(is_measured) {
            return Err(MeasureError::Machine(format!(
                "this machine's limits cannot be measured: {threads} threads, or the memory for them, are \
                 not available; allow more, or feed with fewer worker threads"
            )));
        }
        let read_n = read(job, time)?;
        let decode_1 = match job.records {
            Records::Datums => {
                limits::decodes_per_second(job.feed().clone().resolve()?.source(), job.color, time)?
            }
            _ => None,
        };
        Ok(Limits { copy, store_n, fresh_n, read_n, decode_1, pinned_copy: None })
    }

    /// What one thread copies.
    #[must_use]
    pub fn copy_1(&self) -> f64 {
        self.copy.first().map_or(0.0, |&(_threads, rate)| rate)
    }

    /// What all threads copy.
    #[must_use]
    pub fn copy_n(&self) -> f64 {
        self.copy.last().map_or(0.0, |&(_threads, rate)| rate)
    }

    /// Measures how fast page-locked memory is copied to the lanes' GPUs, one after the other, in pieces of
    /// the size of their batches.
    #[cfg(feature = "cuda-driver")]
    pub(crate) fn measure_pinned_copy(&mut self, stats: &Stats) -> Result<(), MeasureError> {
        const ROUNDS: usize = 10;

        for lane in stats.lanes.iter().filter(|lane| lane.device.starts_with("cuda:")) {
            let Some(batch_bytes) = lane.host_bytes.checked_div(lane.batches) else { continue };
            let gpu = CudaDevice::all()?.into_iter().find(|gpu| gpu.device() == lane.device);
            let gone = || MeasureError::Machine(format!("{}: the GPU was fed, and is gone", lane.device));
            let gpu = gpu.ok_or_else(gone)?;
            let rate = gpu.copy_rate(usize::try_from(batch_bytes).unwrap_or(usize::MAX), ROUNDS)?;
            self.pinned_copy = Some(self.pinned_copy.unwrap_or(0.0) + rate);
        }
        Ok(())
    }

    /// This build has no GPU support.
    #[cfg(not(feature = "cuda-driver"))]
    pub(crate) fn measure_pinned_copy(&mut self, _stats: &Stats) -> Result<(), MeasureError> {
        Ok(())
    }
}

/// The rate at which the job's threads read its files.
fn read(job: &Job, time: Duration) -> Result<Option<f64>, MeasureError> {
    let cache = PageCache::open(&job.files).map_err(MeasureError::Map)?;
    let rate = if job.is_cold() {
        cache.bytes_per_second_once(job.threads(), time)
    } else {
        cache.bytes_per_second(job.threads(), time)
    };
    Ok(Some(rate).filter(|&rate| rate > 0.0))
}

/// 1, 2, 4 and so on, and `threads` last.
fn thread_counts(threads: usize) -> Vec<usize> {
    let doubled = std::iter::successors(Some(1_usize), |count| count.checked_mul(2));
    doubled.take_while(|&count| count < threads).chain([threads]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_measured_from_one_thread_to_all() {
        assert_eq!(thread_counts(1), [1]);
        assert_eq!(thread_counts(2), [1, 2]);
        assert_eq!(thread_counts(12), [1, 2, 4, 8, 12]);
    }
}
