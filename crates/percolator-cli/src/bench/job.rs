//! A job to measure: a source and its transform.

use percolator::{Dtype, FeedBuilder, Transform};
use percolator_measure::Job;

use super::Bench;
use super::data::{Data, default_cache};
use super::synthetic::Kind;
use crate::args::Described;
use crate::input::InputArgs;
use crate::measured;
use crate::pipeline::DtypeArg;

/// A feed to measure, by its name.
#[derive(Debug)]
pub(super) struct NamedJob {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) job: Job,
}

impl Bench {
    /// The jobs, in the order of the arguments. Missing synthetic data are made.
    pub(super) fn jobs(&self) -> anyhow::Result<Vec<NamedJob>> {
        if self.synthetic.is_empty() {
            let described = self.input.describe()?;
            let name = described.origin.display().to_string();
            let feed = self.input.with_batch_size(described.feed.clone());
            let is_of_datums = !self.input.example.is_given();
            return Ok(vec![self.job(name, described, feed, DtypeArg::F32, is_of_datums)?]);
        }
        self.input.state.check_database(false)?;
        self.synthetic.iter().map(|&kind| self.synthetic_job(kind)).collect()
    }

    fn synthetic_job(&self, kind: Kind) -> anyhow::Result<NamedJob> {
        let InputArgs { state, transform: set, pipeline, .. } = &self.input;
        let format = self.format.unwrap_or_default();
        let data =
            Data { kind, format, records: self.records.map_or(kind.records(), |records| records as usize) };
        let path = data.prepare(&self.cache.clone().unwrap_or_else(default_cache))?;
        let mut described = Described::of_database(format.database(path));
        let dtype = kind.dtype();
        // Bytes that stay bytes have neither mean nor scale.
        let is_float = !matches!(pipeline.dtype.unwrap_or(dtype), DtypeArg::U8);
        let transform = if set.has_mean() {
            set.mean(Transform::new())
        } else if is_float {
            kind.with_mean(Transform::new())?
        } else {
            Transform::new()
        };
        let transform = set.or(kind.transform(transform, is_float));
        described.feed = described.feed.phase(state.phase()).access(state.access()).transform(transform);
        described.color = set.color();
        let fields = kind.fields();
        let is_of_datums = fields.is_none();
        if let Some(fields) = fields {
            described.feed = described.feed.example(fields);
        }
        let batch_size = pipeline.batch_size.unwrap_or(kind.batch_size());
        let feed = pipeline.with_options(described.feed.clone(), dtype)?.batch_size(batch_size);
        self.job(format.job_name(kind), described, feed, dtype, is_of_datums)
    }

    fn job(
        &self,
        name: String,
        described: Described,
        feed: FeedBuilder,
        dtype: DtypeArg,
        is_of_datums: bool,
    ) -> anyhow::Result<NamedJob> {
        let InputArgs { state, pipeline, .. } = &self.input;
        let database = state.database().map(str::to_owned);
        let job = measured::job(described, feed, pipeline, database, is_of_datums)?;
        let job = Job { is_cold: self.cold, ..job };
        Ok(NamedJob { name, dtype: pipeline.dtype.unwrap_or(dtype).dtype(), job })
    }
}
