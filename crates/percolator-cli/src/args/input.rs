//! A feed: its source, and how its pipeline runs. Options of `feed`, `doctor` and `bench`.

use clap::Args;
use percolator::FeedBuilder;

use crate::args::described::Described;
use crate::args::fields::ExampleArgs;
use crate::args::pipeline::{DtypeArg, PipelineArgs};
use crate::args::source::{Source, SourceArgs};
use crate::args::{StateArgs, TransformArgs};

/// The batch size of a feed that neither an option nor a net sets.
const BATCH_SIZE: usize = 64;

/// A feed.
#[derive(Debug, Args)]
pub(crate) struct InputArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    pub(crate) state: StateArgs,
    #[command(flatten)]
    pub(crate) transform: TransformArgs,
    #[command(flatten)]
    pub(crate) example: ExampleArgs,
    #[command(flatten)]
    pub(crate) pipeline: PipelineArgs,
}

impl InputArgs {
    /// What is read. Unless this is to be quiet, options that are no longer needed are named.
    pub(crate) fn found(&self, is_quiet: bool) -> anyhow::Result<Source> {
        self.source.found(self.state.root(), is_quiet)
    }

    /// The feed that the arguments describe, with all of them but the batch size.
    pub(crate) fn describe(&self, source: &Source) -> anyhow::Result<Described> {
        self.example.check_use(source)?;
        let described = source.describe(&self.state, &self.transform)?;
        let feed = self.example.with_options(described.feed);
        Ok(Described { feed: self.pipeline.with_options(feed, DtypeArg::F32)?, ..described })
    }

    /// A feed with its batch size: as set, or the net's, or a default.
    pub(crate) fn with_batch_size(&self, source: &Source, feed: FeedBuilder) -> FeedBuilder {
        match self.pipeline.batch_size {
            Some(records) => feed.batch_size(records),
            None if source.is_net() => feed,
            None => feed.batch_size(BATCH_SIZE),
        }
    }
}
