//! Opens what the options name: sources, and the files that transforms need.

use std::path::Path;
use std::sync::Arc;

use super::builder::FeedBuilder;
use super::config::ConfigError;
use super::error::FeedError;
use super::resolve::of_source;
use super::sources::Opening;
use super::spec::{DecoderSpec, FeedSpec, Receipts, TargetFrom, TargetSpec};
use crate::bad::{BadAction, BadRecords, Quarantine};
use crate::decoder::example::{ExampleFields, ExampleFront, ExampleImage};
use crate::decoder::front::Front;
use crate::decoder::image::ImageDecoder;
use crate::decoder::parts::{PartFields, PartsDecoder, PartsFront};
use crate::decoder::target::{TargetDecoder, TargetValue};
use crate::decoder::{ErasedDecoder, WorkerSetup};
use crate::source::paired::Paired;
use crate::source::{Files, RecordParts, Source};
use crate::transform::{Cutter, LayerSeeds, TransformError, TransformPlace, Transformer};
use crate::workers::processor::{OnBad, Processor};
use percolator_files::caller::words;

impl FeedBuilder {
    /// Opens the source, and that of the targets if they have their own, and reads what the transforms need.
    pub(super) fn open(&self, seeds: &LayerSeeds) -> Result<Opened, FeedError> {
        self.check_own_steps()?;
        let mut decoder = self.attached_decoder()?;
        let mut image = if decoder.is_none() { Some(self.transformers()?) } else { None };
        let Sources { source, files, companions } = self.open_sources(seeds)?;
        if let Some(parts) = parts_of(&*source)? {
            self.decode_parts(parts, &mut decoder, &mut image)?;
        }
        let image = image.map(|mut image| {
            if let (Some(target), Some(files)) = (&mut image.target, companions) {
                target.from = TargetValue::Companion { files };
            }
            Arc::new(image)
        });
        let decoder = match (decoder, &image) {
            (None, Some(image)) => Arc::new(image.clone()),
            (decoder, _) => decoder.expect("there is a decoder if records are not images"),
        };
        let processor = Processor {
            files,
            decoder,
            change_row: self.attached.own_steps.of_rows.clone(),
            hashes_contents: self.spec.receipts == Receipts::Contents,
            on_bad: self.on_bad()?,
            seed: self.spec.seed.of_order(),
            setup: WorkerSetup { is_past_caches: false },
        };
        Ok(Opened { source, processor, image })
    }

    /// Decodes named parts in place of an Example's features, or of a Datum. A decoder that the program
    /// attached gets the records as they are.
    fn decode_parts(
        &self,
        parts: Arc<dyn RecordParts>,
        decoder: &mut Option<Arc<dyn ErasedDecoder>>,
        image: &mut Option<ImageDecoder>,
    ) -> Result<(), ConfigError> {
        let no_fields = ExampleFields::default();
        let (named, fields) = match &self.spec.decoder {
            DecoderSpec::Attached => return Ok(()),
            DecoderSpec::Example { fields, image } => (image.clone(), fields),
            DecoderSpec::Image => {
                let (name, label) =
                    parts.image().ok_or_else(|| ConfigError::NoPartNamed { parts: parts.description() })?;
                let image = ExampleImage::encoded(name);
                (Some(label.into_iter().fold(image, ExampleImage::label)), &no_fields)
            }
        };
        match (named, image) {
            (Some(named), Some(image)) => {
                image.front = Some(Front::Parts(PartsFront::new(parts, named, fields)));
            }
            _ => *decoder = Some(Arc::new(PartsDecoder(PartFields::new(parts, fields)))),
        }
        Ok(())
    }

    /// What becomes of bad records, with the file that names them.
    fn on_bad(&self) -> Result<OnBad, FeedError> {
        let BadRecords { action, quarantine, .. } = &self.spec.bad_records;
        let quarantine = match quarantine {
            Some(file) if *action != BadAction::Fail => {
                Some(Arc::new(Quarantine::at(&self.spec.root.join(file))?))
            }
            _ => None,
        };
        Ok(OnBad::new(*action, quarantine))
    }

    /// What decodes and transforms images, with the files that it needs. Where targets come from is not known
    /// yet.
    fn transformers(&self) -> Result<ImageDecoder, ConfigError> {
        let transformer = |transform, root, dtype| {
            Transformer::new(transform, root, self.spec.phase, dtype, self.spec.layout)
                .map_err(ConfigError::Transform)
        };
        let whole = self.spec.whole_transform();
        if let Some(what) = whole.on_host_alone() {
            let elsewhere = [
                ("on a device", self.spec.transform_on == TransformPlace::Device),
                ("beside a target", self.spec.target.is_some() && what == "operations"),
            ];
            if let Some((where_else, _)) = elsewhere.into_iter().find(|(_, is_set)| *is_set) {
                return Err(ConfigError::Transform(TransformError::OnlyOfImages { what, where_else }));
            }
        }
        let of_target = self.spec.target.as_ref().and_then(|target| target.transform.on_host_alone());
        if let Some(what @ "operations") = of_target {
            let where_else = "of a target";
            return Err(ConfigError::Transform(TransformError::OnlyOfImages { what, where_else }));
        }
        let pixels = transformer(&whole, &self.spec.root, self.spec.dtype)?;
        let target = match &self.spec.target {
            None => None,
            Some(target) => {
                let transformer = transformer(&target.transform, self.spec.root_of(target), target.dtype)?;
                Some(TargetDecoder { from: TargetValue::FloatData, transformer })
            }
        };
        let cutter = (self.spec.transform_on == TransformPlace::Device).then(|| Cutter::of(&pixels));
        let front = match &self.spec.decoder {
            DecoderSpec::Example { fields, image: Some(image) } => {
                Some(Front::Example(ExampleFront::new(image, fields)))
            }
            _ => None,
        };
        Ok(ImageDecoder {
            front,
            transformer: pixels,
            cutter,
            target,
            step: self.attached.own_steps.of_images.clone(),
            labels: self.labels()?,
            views: self.made_views()?,
        })
    }

    /// Opens what the feed would read, its targets' companions included, and nothing else: no feed is built,
    /// and only its source and its targets matter.
    ///
    /// # Errors
    ///
    /// [`FeedError`] if the source cannot be opened.
    pub fn open_source(&self) -> Result<Arc<dyn Source>, FeedError> {
        of_source(|| Ok(self.open_sources(&self.layer_seeds())?.source))
    }

    /// Opens only the sources, without the transforms.
    fn open_sources(&self, seeds: &LayerSeeds) -> Result<Sources, FeedError> {
        let spec = &self.spec;
        if let Some(target) = &spec.target {
            target.check_attached(&self.attached.target_sources)?;
        }
        let method = words(".source(...)", "a program", "lmdb=, leveldb=, tfrecord= or image_list=");
        let opener = self.attached.opener.as_deref();
        let opening = Opening { spec, method, root: &spec.root, seeds, opener };
        let source = opening.open(&spec.sources, &self.attached.sources)?;
        let files = source.files();
        let Some(target @ TargetSpec { from: TargetFrom::Paired { sources, matching }, .. }) = &spec.target
        else {
            return Ok(Sources { source, files, companions: None });
        };
        let method = words("Target::source(...)", "a program", "target=");
        let opening = Opening { method, root: spec.root_of(target), ..opening };
        let second = opening.open(sources, &self.attached.target_sources)?;
        let companions = Some(second.files());
        let paired = Paired::new(source, second, *matching);
        paired.check_counts()?;
        Ok(Sources { source: Arc::new(paired), files, companions })
    }
}

impl FeedSpec {
    fn root_of<'a>(&'a self, target: &'a TargetSpec) -> &'a Path {
        target.root.as_deref().unwrap_or(&self.root)
    }
}

/// What finds the parts of a source's records, if they have parts. Sources that are joined have the same.
fn parts_of(source: &dyn Source) -> Result<Option<Arc<dyn RecordParts>>, ConfigError> {
    let Some(parts) = source.record_parts() else { return Ok(None) };
    let wanted = parts.description();
    for other in source.parts() {
        let found = other.record_parts().map_or_else(|| "none".to_owned(), |parts| parts.description());
        if found != wanted {
            let (first, path) = (source.parts()[0].path().to_owned(), other.path().to_owned());
            return Err(ConfigError::PartsDiffer { first, wanted, path, found });
        }
    }
    Ok(Some(parts))
}

/// A source, and what decodes its records.
pub(super) struct Opened {
    pub(super) source: Arc<dyn Source>,
    pub(super) processor: Processor,
    /// If records are images: what decodes them.
    pub(super) image: Option<Arc<ImageDecoder>>,
}

/// What a feed reads.
struct Sources {
    source: Arc<dyn Source>,
    /// The files of the records, as messages name them.
    files: Files,
    /// The files of the targets, if they have a source of their own.
    companions: Option<Files>,
}
