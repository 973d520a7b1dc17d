//! A second array of each batch: the mask of each image, or its many labels.

use std::path::PathBuf;
use std::sync::Arc;

use super::builder::FeedBuilder;
use super::origin::Origin;
use crate::base::shape::{Dtype, Phase};
use crate::config::ConfigError;
use crate::source::{Matching, Source};
use crate::transform::Transform;

/// What the second array of each batch is made of, record by record.
///
/// A record's target is transformed with the record's own random numbers: what mirrors the image mirrors its
/// mask, and a crop of both lies at the same place in both.
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
/// for batch in feed.lanes().remove(0).take(10) {
///     let batch = batch?;
///     let (images, masks) = (batch.pixels::<f32>()?, batch.target_pixels::<u8>()?);
///     # let _ = (images, masks);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Target {
    pub(super) origin: TargetOrigin,
    /// Where relative paths begin; `None` is where the images' do.
    pub(super) root: Option<PathBuf>,
    pub(super) transform: Transform,
    pub(super) dtype: Dtype,
}

/// Where targets lie.
#[derive(Clone, Debug)]
pub(super) enum TargetOrigin {
    /// In a source of their own.
    Paired(Option<Origin>, Matching),
    /// Beside the records' pixels.
    FloatData,
}

impl Target {
    /// The records of a second source, one for each record of the first.
    pub fn paired(source: impl Source + 'static, matching: Matching) -> Self {
        Target::new(TargetOrigin::Paired(Some(Origin::Opened(Arc::new(source))), matching))
    }

    /// The records of another feed's source, with what that feed does to them: another data layer of the
    /// same net. Its random numbers, batches and devices are the first feed's.
    #[must_use]
    pub fn from_feed(feed: FeedBuilder, matching: Matching) -> Self {
        let transform = feed.whole_transform();
        let origin = TargetOrigin::Paired(feed.source, matching);
        let root = Some(feed.root).filter(|root| !root.as_os_str().is_empty());
        Target { origin, root, transform, dtype: feed.dtype }
    }

    /// The `float_data` that a record has beside its pixels in `data`: a vector of labels, as long in every
    /// record of a batch. (Caffe does not read it from a record that has both.)
    #[must_use]
    pub fn float_data() -> Self {
        Target::new(TargetOrigin::FloatData)
    }

    fn new(origin: TargetOrigin) -> Self {
        Target { origin, root: None, transform: Transform::new(), dtype: Dtype::F32 }
    }

    /// What is done to every target; nothing if not said. It mirrors and crops only if it says so itself, and
    /// then its image must as well: in TRAIN a crop of both is of one size.
    #[must_use]
    pub fn transform(self, transform: Transform) -> Self {
        Target { transform, ..self }
    }

    /// The type of the targets' elements; f32 if not said.
    #[must_use]
    pub fn dtype(self, dtype: Dtype) -> Self {
        Target { dtype, ..self }
    }

    /// Refuses what cannot go with images of this transform and origin: their random numbers, and their order,
    /// are the targets' too.
    pub(super) fn check(
        &self,
        images: &Transform,
        origin: Option<&Origin>,
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
        if let (TargetOrigin::Paired(Some(targets), _), Some(images)) = (&self.origin, origin)
            && let (Some(targets), Some(images)) = (targets.order(), images.order())
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
