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
    /// that of the image. It runs on the workers, on many records at a time. What it fails with is the
    /// record's error. Records of floats are refused.
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
        self.spec.own_steps = true;
        self
    }

    /// Lets a function change each row once its decoder and transform have written it:
    /// [`Row::values_mut`](crate::Row::values_mut) has what they wrote. It runs on the workers, on many
    /// records at a time. What it fails with is the record's error.
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
        self.spec.own_steps = true;
        self
    }

    /// Checks that the functions that the spec speaks of are there.
    pub(super) fn check_own_steps(&self) -> Result<(), ConfigError> {
        let OwnSteps { of_images, of_rows } = &self.attached.own_steps;
        if self.spec.own_steps && of_images.is_none() && of_rows.is_none() {
            return Err(ConfigError::NotAttached {
                what: "function",
                name: None,
                method: words(
                    ".after_decode(...) or .after_transform(...)",
                    "a program",
                    "a program in Rust",
                ),
            });
        }
        Ok(())
    }
}
