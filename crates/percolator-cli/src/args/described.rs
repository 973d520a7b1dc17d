//! A feed of databases or of a net, before its pipeline's options are set.

use std::path::PathBuf;

use anyhow::ensure;
use percolator::FeedBuilder;
use percolator::feed::{FeedSpec, SourceSpec};
use percolator_files::shown;
use percolator_formats::feed::Formats;

/// A feed, and what its arguments determine.
pub(crate) struct Described {
    pub(crate) feed: FeedBuilder,
    /// The source of its records, as given.
    pub(crate) origin: PathBuf,
    /// Whether the layer outputs labels: one without a second top does not.
    pub(crate) has_labels: bool,
}

impl Described {
    /// The records of databases as they are, one database after the other.
    pub(crate) fn of_sources(sources: impl IntoIterator<Item = SourceSpec>) -> anyhow::Result<Self> {
        let mut spec = FeedSpec::default();
        spec.sources = sources.into_iter().collect();
        ensure!(!spec.sources.is_empty(), "there is nothing to read");
        let paths = spec.sources.iter().filter_map(|source| match source {
            SourceSpec::Lmdb { path, .. }
            | SourceSpec::LevelDb { path }
            | SourceSpec::TfRecord { path, .. }
            | SourceSpec::Files { path, .. } => Some(path),
            _ => None,
        });
        let origin = match paths.collect::<Vec<_>>()[..] {
            [only] => only.clone(),
            ref paths => {
                paths.iter().map(|path| shown::path(path).to_string()).collect::<Vec<_>>().join(", ").into()
            }
        };
        Ok(Described { origin, feed: FeedBuilder::from(spec).opener(Formats), has_labels: true })
    }
}
