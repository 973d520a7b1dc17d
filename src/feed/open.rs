//! From what was said of a data set to what is read of it: sources that are open, transforms that have their files.

use std::path::Path;
use std::sync::Arc;

use super::builder::FeedBuilder;
use super::origin::Origin;
use super::target::{Target, TargetOrigin};
use crate::config::ConfigError;
use crate::decoder::WorkerSetup;
use crate::decoder::image::{ImageDecoder, TargetDecoder, TargetFrom};
use crate::error::FeedError;
use crate::source::Source;
use crate::source::files::Files;
use crate::source::paired::Paired;
use crate::transform::{Cutter, LayerSeeds, TransformPlace, Transformer};
use crate::workers::processor::Processor;

impl FeedBuilder {
    /// Opens the source and, where the targets have one of their own, that with it; and reads what the transforms
    /// need.
    pub(super) fn open(&self, seeds: &LayerSeeds) -> Result<Opened, FeedError> {
        let decoder = self.decoding.decoder()?;
        let image = if decoder.is_none() { Some(self.transformers()?) } else { None };
        let Sources { source, files, companions } = self.open_source(seeds)?;
        let image = image.map(|mut image| {
            if let (Some(target), Some(files)) = (&mut image.target, companions) {
                target.from = TargetFrom::Companion { files };
            }
            Arc::new(image)
        });
        let decoder = match (decoder, &image) {
            (None, Some(image)) => Arc::new(image.clone()),
            (decoder, _) => decoder.expect("there is a decoder where records are no images"),
        };
        let processor = Processor {
            files,
            decoder,
            hashes_contents: self.receipts && self.receipt_contents,
            seed: self.order_seed(),
            setup: WorkerSetup { is_past_caches: false },
        };
        Ok(Opened { source, processor, image })
    }

    /// What decodes and transforms images, with the files that it takes. Where targets come from is not known yet.
    fn transformers(&self) -> Result<ImageDecoder, ConfigError> {
        let transformer = |transform, root, dtype| {
            Transformer::new(transform, root, self.phase, dtype, self.layout).map_err(ConfigError::Transform)
        };
        let pixels = transformer(&self.transform, &*self.root, self.dtype)?;
        let target = match &self.target {
            None => None,
            Some(target) => {
                let transformer = transformer(&target.transform, self.root_of(target), target.dtype)?;
                Some(TargetDecoder { from: TargetFrom::FloatData, transformer })
            }
        };
        let cutter = (self.place == TransformPlace::Device).then(|| Cutter::of(&pixels));
        Ok(ImageDecoder { transformer: pixels, cutter, target, has_wide_labels: self.has_wide_labels })
    }

    /// The same without the transforms: what is read, and nothing else.
    pub(super) fn open_source(&self, seeds: &LayerSeeds) -> Result<Sources, FeedError> {
        let open = |origin: Option<&Origin>, root: &Path| match origin {
            Some(origin) => Ok(origin.open(root, seeds, self.opening)?),
            None => Err(FeedError::from(ConfigError::NoSource)),
        };
        let source = open(self.source.as_ref(), &self.root)?;
        let files = source.files();
        let Some(target @ Target { origin: TargetOrigin::Paired(origin, matching), .. }) = &self.target
        else {
            return Ok(Sources { source, files, companions: None });
        };
        let second = open(origin.as_ref(), self.root_of(target))?;
        let companions = Some(second.files());
        let paired = Paired::new(source, second, *matching);
        paired.check_counts()?;
        Ok(Sources { source: Arc::new(paired), files, companions })
    }

    fn root_of<'a>(&'a self, target: &'a Target) -> &'a Path {
        target.root.as_deref().unwrap_or(&self.root)
    }
}

/// A source, and what its records are decoded by.
pub(super) struct Opened {
    pub(super) source: Arc<dyn Source>,
    pub(super) processor: Processor,
    /// Where records are images: what decodes them.
    pub(super) image: Option<Arc<ImageDecoder>>,
}

/// What a feed reads.
pub(super) struct Sources {
    pub(super) source: Arc<dyn Source>,
    /// Of the records, as messages name them.
    files: Files,
    /// Of the targets, where they have a source of their own.
    companions: Option<Files>,
}
