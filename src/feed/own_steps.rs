//! Functions of a program's own, on images before their transform, and on rows after it.

use std::fmt;
use std::sync::Arc;

use super::builder::FeedBuilder;
use super::config::ConfigError;
use crate::base::shape::ImageShape;
use crate::batch::Row;
use crate::decoder::Decoded;
use crate::decoder::image_step::ImageStep;
use crate::record::random::RecordRandom;
use crate::source::Record;
use crate::transform::TransformPlace;
use crate::workers::processor::ChangeRow;
use percolator_files::caller::words;
use percolator_image::Planes;

/// The functions that a program has attached.
#[derive(Clone, Default)]
pub(super) struct OwnSteps {
    pub(super) of_images: Option<Arc<ImageStep>>,
    pub(super) of_rows: Option<ChangeRow>,
}

impl fmt::Debug for OwnSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnSteps")
            .field("of_images", &self.of_images.is_some())
            .field("of_rows", &self.of_rows.is_some())
            .finish()
    }
}

impl FeedBuilder {
    /// Lets a function make another image of each decoded one, before the transform. It gets the image's
    /// planes (bytes, in the order of [`color`](crate::Transform::color)), random numbers that depend on the
    /// seed and the record alone, and room for the planes of what it makes, whose shape `shape` tells from
    /// that of the image; that room is zeroed. It runs on the workers, on many records at a time, and where a
    /// feed is built or a batch begins, so it may see a record twice. What it fails with is the record's
    /// error. Records of floats are refused.
    ///
    /// ```
    /// use percolator::{ColorMode, Feed, Transform};
    ///
    /// // Negatives, of the same shape.
    /// let feed = Feed::builder()
    ///     .lmdb("films")
    ///     .transform(Transform::new().color(ColorMode::Gray).crop(224))
    ///     .after_decode(
    ///         |shape| shape,
    ///         |image, _random, made| {
    ///             made.iter_mut().zip(image.bytes).for_each(|(made, level)| *made = 255 - level);
    ///             Ok(())
    ///         },
    ///     );
    /// ```
    pub fn after_decode(
        mut self,
        shape: impl Fn(ImageShape) -> ImageShape + Send + Sync + 'static,
        change: impl Fn(Planes<'_>, &mut RecordRandom, &mut [u8]) -> Decoded + Send + Sync + 'static,
    ) -> Self {
        let step = ImageStep { shape: Box::new(shape), change: Box::new(change) };
        self.attached.own_steps.of_images = Some(Arc::new(step));
        self.spec.after_decode = true;
        self
    }

    /// Lets a function change each row once its decoder and transform have written it, and before its batch
    /// is [mixed](Self::mixing): [`Row::values_mut`](crate::Row::values_mut) has what they wrote. It runs on
    /// the workers, on many records at a time, and where a feed is built, so it may see a record twice. What
    /// it fails with is the record's error. Of a padded or ragged field nothing is known but its room: write
    /// all of it, and set its length. A device that transforms images does so later, and is refused.
    ///
    /// ```
    /// use percolator::Feed;
    ///
    /// let feed = Feed::builder().lmdb("digits").after_transform(|_record, row| {
    ///     let mut random = row.random();
    ///     for element in row.values_mut::<f32>("data")? {
    ///         *element += 0.01 * random.unit() as f32;
    ///     }
    ///     Ok(())
    /// });
    /// ```
    pub fn after_transform(
        mut self,
        change: impl Fn(&Record<'_>, &mut Row<'_>) -> Decoded + Send + Sync + 'static,
    ) -> Self {
        self.attached.own_steps.of_rows = Some(Arc::new(change));
        self.spec.after_transform = true;
        self
    }

    /// Checks that the functions that the spec speaks of are there.
    pub(super) fn check_own_steps(&self) -> Result<(), ConfigError> {
        let OwnSteps { of_images, of_rows } = &self.attached.own_steps;
        let missing = |method| {
            Err(ConfigError::NotAttached {
                what: "function",
                name: None,
                method: words(method, "a program", "a program in Rust"),
            })
        };
        if self.spec.after_decode && of_images.is_none() {
            return missing(".after_decode(...)");
        }
        if self.spec.after_transform && of_rows.is_none() {
            return missing(".after_transform(...)");
        }
        if of_rows.is_some() && self.spec.transform_on == TransformPlace::Device {
            return Err(ConfigError::RowsOfDevice);
        }
        Ok(())
    }
}
