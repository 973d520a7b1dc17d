//! A job to measure: a source and its transform.

use percolator::{Dtype, Transform};
use percolator_measure::Job;

use super::Bench;
use super::data::{Data, default_cache};
use super::synthetic::Kind;
use crate::args::{Described, SourceArgs};
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
            let source = SourceArgs {
                net: self.net.clone(),
                lmdb: self.lmdb.iter().cloned().collect(),
                leveldb: self.leveldb.iter().cloned().collect(),
                tfrecord: self.tfrecord.iter().cloned().collect(),
            };
            let mut described = source.describe(&self.state, &self.transform)?;
            described.feed = self.example.with_options(described.feed);
            let name = described.origin.display().to_string();
            let batch_size = self.pipeline.batch_size.or((!source.is_net()).then_some(64));
            let is_of_datums = !self.example.is_given();
            return Ok(vec![self.job(name, described, batch_size, DtypeArg::F32, is_of_datums)?]);
        }
        self.state.check_database(false)?;
        self.synthetic.iter().map(|&kind| self.synthetic_job(kind)).collect()
    }

    fn synthetic_job(&self, kind: Kind) -> anyhow::Result<NamedJob> {
        let format = self.format.unwrap_or_default();
        let data =
            Data { kind, format, records: self.records.map_or(kind.records(), |records| records as usize) };
        let path = data.prepare(&self.cache.clone().unwrap_or_else(default_cache))?;
        let mut described = Described::of_database(format.database(path));
        let dtype = kind.dtype();
        // Bytes that stay bytes have neither mean nor scale.
        let is_float = !matches!(self.pipeline.dtype.unwrap_or(dtype), DtypeArg::U8);
        let transform = if self.transform.has_mean() {
            self.transform.mean(Transform::new())
        } else if is_float {
            kind.with_mean(Transform::new())?
        } else {
            Transform::new()
        };
        let transform = self.transform.or(kind.transform(transform, is_float));
        described.feed =
            described.feed.phase(self.state.phase()).access(self.state.access()).transform(transform);
        described.color = self.transform.color();
        let batch_size = self.pipeline.batch_size.unwrap_or(kind.batch_size());
        let fields = kind.fields();
        let is_of_datums = fields.is_none();
        if let Some(fields) = fields {
            described.feed = described.feed.example(fields);
        }
        self.job(format.job_name(kind), described, Some(batch_size), dtype, is_of_datums)
    }

    fn job(
        &self,
        name: String,
        described: Described,
        batch_size: Option<usize>,
        dtype: DtypeArg,
        is_of_datums: bool,
    ) -> anyhow::Result<NamedJob> {
        let mut feed = self.pipeline.with_options(described.feed.clone(), dtype)?;
        if let Some(records) = batch_size {
            feed = feed.batch_size(records);
        }
        let database = self.state.database().map(str::to_owned);
        let job = measured::job(described, feed, &self.pipeline, database, is_of_datums)?;
        let job = Job { is_cold: self.cold, ..job };
        Ok(NamedJob { name, dtype: self.pipeline.dtype.unwrap_or(dtype).dtype(), job })
    }
}
