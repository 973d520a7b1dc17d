//! From what was said of a data set to what is read of it: sources that are open, transforms that have their files.

use std::path::Path;
use std::sync::Arc;

use super::builder::FeedBuilder;
use super::origin::Origin;
use super::target::{Target, TargetOrigin};
use crate::config::ConfigError;
use crate::error::FeedError;
use crate::recipe::{Recipe, TargetFrom, TargetRecipe};
use crate::source::Source;
use crate::source::files::Files;
use crate::source::paired::Paired;
use crate::transform::{Cutter, LayerSeeds, Place, Transformer};

impl FeedBuilder {
    /// Opens the source and, where the targets have one of their own, that with it; and reads what the transforms
    /// need.
    pub(super) fn open(&self, seeds: &LayerSeeds) -> Result<(Arc<dyn Source>, Recipe), FeedError> {
        let transformer = |transform, root, dtype| {
            Transformer::new(transform, root, self.phase, dtype, self.layout).map_err(ConfigError::Transform)
        };
        let pixels = transformer(&self.transform, &*self.root, self.dtype)?;
        let target = match &self.target {
            None => None,
            Some(target) => Some(transformer(&target.transform, self.root_of(target), target.dtype)?),
        };
        let Opened { source, files, companions } = self.open_source(seeds)?;
        let from = companions.map_or(TargetFrom::FloatData, |files| TargetFrom::Companion { files });
        let recipe = Recipe {
            files,
            cutter: (self.place == Place::Device).then(|| Cutter::of(&pixels)),
            transformer: pixels,
            target: target.map(|transformer| TargetRecipe { from, transformer }),
            hashes_contents: self.receipts && self.receipt_contents,
            is_past_caches: false,
        };
        Ok((source, recipe))
    }

    /// The same without the transforms: what is read, and nothing else.
    pub(super) fn open_source(&self, seeds: &LayerSeeds) -> Result<Opened, FeedError> {
        let open = |origin: Option<&Origin>, root: &Path| match origin {
            Some(origin) => Ok(origin.open(root, seeds, self.opening)?),
            None => Err(FeedError::from(ConfigError::NoSource)),
        };
        let source = open(self.source.as_ref(), &self.root)?;
        let files = source.files();
        let Some(target @ Target { origin: TargetOrigin::Paired(origin, matching), .. }) = &self.target
        else {
            return Ok(Opened { source, files, companions: None });
        };
        let second = open(origin.as_ref(), self.root_of(target))?;
        let companions = Some(second.files());
        let paired = Paired::new(source, second, *matching);
        paired.check_counts()?;
        Ok(Opened { source: Arc::new(paired), files, companions })
    }

    fn root_of<'a>(&'a self, target: &'a Target) -> &'a Path {
        target.root.as_deref().unwrap_or(&self.root)
    }
}

/// What a feed reads.
pub(super) struct Opened {
    pub(super) source: Arc<dyn Source>,
    /// Of the records, as messages name them.
    files: Files,
    /// Of the targets, where they have a source of their own.
    companions: Option<Files>,
}
