//! A second array of each batch: for example, the mask of each image, or its many labels.

use std::sync::Arc;

use super::builder::FeedBuilder;
use super::config::ConfigError;
use super::sources;
use super::spec::{SourceSpec, TargetFrom, TargetSpec};
use crate::base::shape::{Dtype, Phase};
use crate::source::{Matching, Source};
use crate::transform::Transform;

/// What the second array of each batch is made of, record by record.
///
/// A record's target is transformed with the record's own random numbers: if the image is mirrored, so is its
/// mask, and if both are cropped, the crop is at the same place in both.
///
/// ```no_run
/// use percolator::{Dtype, Feed, Target, Transform};
/// use percolator::source::{Lmdb, Matching};
///
/// let masks = Target::paired(Lmdb::open("voc_masks_lmdb")?, Matching::Keys)
///     .transform(Transform::new().crop(321).mirror(true))
///     .dtype(Dtype::U8);
/// let mut feed = Feed::builder()
///     .lmdb("voc_images_lmdb")
///     .transform(Transform::new().crop(321).mirror(true).mean_values([104.0, 117.0, 123.0]))
///     .target(masks)
///     .build()?;
/// for batch in feed.take_lanes()?.remove(0).take(10) {
///     let batch = batch?;
///     let (images, masks) = (batch.pixels::<f32>()?, batch.target_pixels::<u8>()?);
///     # let _ = (images, masks);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Target {
    pub(super) spec: TargetSpec,
    /// One for each [`SourceSpec::Attached`] of its sources, in order.
    pub(super) attached: Vec<Arc<dyn Source>>,
}

impl Target {
    /// Takes targets from a second source, which has one record for each record of the first.
    pub fn paired(source: impl Source + 'static, matching: Matching) -> Self {
        let sources = vec![SourceSpec::Attached { path: source.path().to_owned() }];
        let target = Target::new(TargetFrom::Paired { sources, matching });
        Target { attached: vec![Arc::new(source)], ..target }
    }

    /// Takes targets from another feed's source, transformed as in that feed: another data layer of the same
    /// net. Random numbers, batches and devices are those of the feed that gets the target.
    #[must_use]
    pub fn from_feed(feed: FeedBuilder, matching: Matching) -> Self {
        let FeedBuilder { spec, attached } = feed;
        let transform = spec.whole_transform();
        let from = TargetFrom::Paired { sources: spec.sources, matching };
        let root = Some(spec.root).filter(|root| !root.as_os_str().is_empty());
        let spec = TargetSpec { from, root, transform, dtype: spec.dtype };
        Target { spec, attached: attached.sources }
    }

    /// Takes targets from the `float_data` that a record has beside its pixels in `data`: a vector of labels,
    /// which must have the same length in all records of a batch. (If a record has both, Caffe does not read
    /// its `float_data`.)
    #[must_use]
    pub fn float_data() -> Self {
        Target::new(TargetFrom::FloatData)
    }

    fn new(from: TargetFrom) -> Self {
        Target::from(TargetSpec { from, root: None, transform: Transform::new(), dtype: Dtype::F32 })
    }

    /// Attaches the first source that a paired target only names ([`SourceSpec::Attached`]), and the next one
    /// with each call. It is for targets that are made from a [`TargetSpec`]. A source that the target does
    /// not name is an error of the feed's [build](crate::FeedBuilder::build).
    ///
    /// ```no_run
    /// use percolator::source::Lmdb;
    /// use percolator::{FeedBuilder, Target};
    ///
    /// # fn f(spec: percolator::feed::FeedSpec) -> Result<(), percolator::FeedError> {
    /// let target = spec.target.clone().map(Target::from);
    /// let mut builder = FeedBuilder::from(spec).source(Lmdb::open("voc_images_lmdb")?);
    /// if let Some(target) = target {
    ///     builder = builder.target(target.source(Lmdb::open("voc_masks_lmdb")?));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn source(mut self, source: impl Source + 'static) -> Self {
        self.attached.push(Arc::new(source));
        self
    }

    /// Sets what is done to every target (default: nothing). A target is mirrored and cropped only if this
    /// transform says so, and then its image must be as well. In TRAIN, crops of both must have the same
    /// size.
    #[must_use]
    pub fn transform(mut self, transform: Transform) -> Self {
        self.spec.transform = transform;
        self
    }

    /// Sets the element type of the targets (default: f32).
    #[must_use]
    pub fn dtype(mut self, dtype: Dtype) -> Self {
        self.spec.dtype = dtype;
        self
    }
}

/// Starts a target from plain data. A source that the spec only names, because a program attached it, must be
/// [attached](Target::source) again.
impl From<TargetSpec> for Target {
    fn from(spec: TargetSpec) -> Self {
        Target { spec, attached: Vec::new() }
    }
}

impl TargetSpec {
    /// Refuses a source that the target does not name.
    pub(super) fn check_attached(&self, attached: &[Arc<dyn Source>]) -> Result<(), ConfigError> {
        let named = match &self.from {
            TargetFrom::FloatData => 0,
            TargetFrom::Paired { sources, .. } => sources::only_named(sources),
        };
        match attached.get(named) {
            Some(left) => Err(ConfigError::AttachedTooMany { path: left.path().to_owned() }),
            None => Ok(()),
        }
    }

    /// Refuses what cannot be combined with images of this transform and these sources: the targets use the
    /// images' random numbers and order.
    pub(super) fn check(
        &self,
        images: &Transform,
        sources: &[SourceSpec],
        phase: Phase,
    ) -> Result<(), ConfigError> {
        let (target, image) = (self.transform.takes(phase), images.takes(phase));
        if target.mirror && !image.mirror {
            return Err(ConfigError::TargetMirrored);
        }
        let sides = (self.transform.crop_side(), images.crop_side());
        if target.crop && sides.0 != sides.1 {
            return Err(ConfigError::TargetCropped { target: sides.0, image: sides.1 });
        }
        if let TargetFrom::Paired { sources: targets, .. } = &self.from
            && let (Some(targets), Some(images)) = (sources::order(targets), sources::order(sources))
        {
            let differs = |field, target: String, image: String| {
                if target == image { Ok(()) } else { Err(ConfigError::TargetOrder { field, target, image }) }
            };
            differs("shuffle", targets.shuffle.to_string(), images.shuffle.to_string())?;
            differs("rand_skip", targets.rand_skip.to_string(), images.rand_skip.to_string())?;
        }
        Ok(())
    }
}
