//! A job to measure: a source and its transform.

use std::path::PathBuf;

use percolator::feed::SourceSpec;
use percolator::{Dtype, FeedBuilder, Transform};
use percolator_data::store::Backend;
use percolator_files::shown;
use percolator_measure::Job;

use super::Bench;
use super::data::{Data, default_cache};
use super::synthetic::Kind;
use crate::args::described::Described;
use crate::args::input::InputArgs;
use crate::args::pipeline::DtypeArg;
use crate::args::with;
use crate::commands::convert::BackendArg;
use crate::commands::missing;
use crate::terminal::progress::{counted, watched};

/// A feed to measure, by its name.
#[derive(Debug)]
pub(super) struct NamedJob {
    pub(super) name: String,
    pub(super) dtype: Dtype,
    pub(super) job: Job,
}

impl Bench {
    /// The jobs, in the order of the arguments. Missing synthetic data are made, unless a signal ends that.
    pub(super) fn jobs(&self) -> anyhow::Result<Vec<NamedJob>> {
        if self.synthetic.is_empty() {
            if !self.input.source.is_given() {
                let ways = "give PATH, --synthetic KIND or --compare OLD NEW";
                missing("bench", &format!("there is nothing to measure: {ways}"));
            }
            let source = self.input.found(self.quiet || self.json)?;
            let described = self.input.describe(&source)?;
            let name = shown::path(&described.origin).to_string();
            let feed = self.input.with_batch_size(&source, described.feed);
            return Ok(vec![self.job(name, feed, DtypeArg::F32)?]);
        }
        let job = |&kind| self.synthetic_job(kind, self.prepare(kind)?);
        self.synthetic.iter().map(job).collect()
    }

    /// The database of synthetic data of this kind.
    fn prepare(&self, kind: Kind) -> anyhow::Result<PathBuf> {
        let records = self.records.map_or(kind.records(), |records| records as usize);
        let data = Data { kind, backend: self.backend(), records };
        let cache = self.cache.clone().unwrap_or_else(default_cache);
        let message = counted(format!("making {}: record", self.job_name(kind)));
        watched(self.quiet, message, |progress, _| data.prepare(&cache, progress))
    }

    fn synthetic_job(&self, kind: Kind, path: PathBuf) -> anyhow::Result<NamedJob> {
        let InputArgs { state, transform: set, pipeline, .. } = &self.input;
        let described = Described::of_sources([match self.format.unwrap_or_default() {
            BackendArg::Lmdb => SourceSpec::lmdb(path),
            BackendArg::LevelDb => SourceSpec::leveldb(path),
            BackendArg::TfRecord => SourceSpec::tfrecord(path),
        }])?;
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
        let transform = set.or(kind.transform(transform, is_float))?;
        let feed = described.feed.phase(state.phase()).access(state.open.access()).transform(transform);
        let feed = with(feed, kind.fields(), FeedBuilder::example);
        let batch_size = pipeline.batch_size.unwrap_or(kind.batch_size());
        let feed = pipeline.with_options(feed, dtype)?.batch_size(batch_size);
        self.job(self.job_name(kind), feed, dtype)
    }

    fn backend(&self) -> Backend {
        self.format.unwrap_or_default().into()
    }

    /// The name of the job that measures such data.
    fn job_name(&self, kind: Kind) -> String {
        match self.backend() {
            Backend::Lmdb => kind.name(),
            other => format!("{}-{}", kind.name(), other.name()),
        }
    }

    fn job(&self, name: String, feed: FeedBuilder, dtype: DtypeArg) -> anyhow::Result<NamedJob> {
        let job = Job::new(feed)?.cold(self.cold);
        Ok(NamedJob { name, dtype: self.input.pipeline.dtype.unwrap_or(dtype).into(), job })
    }
}
