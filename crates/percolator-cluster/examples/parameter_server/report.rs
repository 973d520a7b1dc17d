//! How a job stands: how well its model reads, and what is proven of what was trained on.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use percolator_cluster::leases::{Job, JobStatus, JobVerdict};
use percolator_cluster::metadata::Metadata;

use crate::client::Servers;
use crate::data;
use crate::options::JobOptions;

/// How long it waits for a server.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) job: String,
    pub(crate) accuracy: f64,
    pub(crate) status: JobStatus,
    pub(crate) verdict: JobVerdict,
}

impl Report {
    /// It is an error if the receipts do not prove each epoch of the job that is done.
    pub(crate) fn of(metadata: &Arc<dyn Metadata>, job: &JobOptions) -> anyhow::Result<Self> {
        let found = Job::open(metadata.clone(), &job.name)?;
        let (status, verdict) = (found.status()?, found.verdict(None)?);
        let is_sound = verdict.done == 0 || verdict.is_sound();
        ensure!(is_sound, "the receipts do not prove that each epoch had every record once: {verdict:?}");
        Ok(Report { job: job.name.clone(), accuracy: accuracy(metadata, job)?, status, verdict })
    }
}

/// Returns the share of the test digits that the weights of a job read right.
pub(crate) fn accuracy(metadata: &Arc<dyn Metadata>, job: &JobOptions) -> anyhow::Result<f64> {
    data::accuracy(Servers::new("report", metadata, job, PATIENCE, &Arc::default()).pull()?)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let JobStatus { done, workers, epochs, .. } = &self.status;
        let (blocks, epochs) = (self.status.blocks().unwrap_or(0), epochs.unwrap_or(0));
        writeln!(f, "{}: {done} of {blocks} blocks are done, {} workers are there", self.job, workers.len())?;
        writeln!(f, "accuracy {:.1} % on the test digits", 100.0 * self.accuracy)?;
        let JobVerdict { done, verdict, .. } = &self.verdict;
        let records = verdict.epochs.first().map_or(0, |epoch| epoch.due);
        write!(f, "verdict: {done} of {epochs} epochs are proven: each had all {records} digits once")
    }
}
