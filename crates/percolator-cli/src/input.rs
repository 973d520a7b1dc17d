//! A feed: its source, and how its pipeline runs. Options of `feed`, `doctor` and `bench`.

use clap::Args;
use percolator::FeedBuilder;

use crate::args::{SourceArgs, StateArgs, TransformArgs};
use crate::described::Described;
use crate::fields::ExampleArgs;
use crate::pipeline::{DtypeArg, PipelineArgs};

/// The batch size of a feed that neither an option nor a net sets.
const BATCH_SIZE: usize = 64;

/// A feed. Each subcommand that uses it requires a source, in an argument group.
#[derive(Debug, Args)]
pub(super) struct InputArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,
    #[command(flatten)]
    pub(super) state: StateArgs,
    #[command(flatten)]
    pub(super) transform: TransformArgs,
    #[command(flatten)]
    pub(super) example: ExampleArgs,
    #[command(flatten)]
    pub(super) pipeline: PipelineArgs,
}

impl InputArgs {
    /// The feed that the arguments describe, with all of them but the batch size.
    pub(super) fn describe(&self) -> anyhow::Result<Described> {
        let described = self.source.describe(&self.state, &self.transform)?;
        let feed = self.example.with_options(described.feed);
        Ok(Described { feed: self.pipeline.with_options(feed, DtypeArg::F32)?, ..described })
    }

    /// A feed with its batch size: as set, or the net's, or a default.
    pub(super) fn with_batch_size(&self, feed: FeedBuilder) -> FeedBuilder {
        match self.pipeline.batch_size {
            Some(records) => feed.batch_size(records),
            None if self.source.is_net() => feed,
            None => feed.batch_size(BATCH_SIZE),
        }
    }
}
