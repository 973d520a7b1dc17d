//! Several crops of each image.

use super::builder::FeedBuilder;
use super::config::ConfigError;
use super::spec::ViewSpec;
use crate::decoder::views::Views;
use crate::transform::{Transform, Transformer};

impl FeedBuilder {
    /// Adds a field with `count` more crops of each image, drawn by the operations of `transform`. A record
    /// has `count` images of that transform: `[records, count, channels, height, width]`, or `[records,
    /// count, height, width, channels]`. The image is decoded once, for all views and for the feed's own
    /// [`transform`](Self::transform), which has operations, too. Each crop has random numbers of its own.
    ///
    /// The crops of DINO, two large ones and eight small ones:
    ///
    /// ```
    /// use percolator::transform::Operation;
    /// use percolator::{ColorMode, Feed, Transform};
    ///
    /// let crop = |side, scale| {
    ///     let Operation::RandomResizedCrop { height, width, ratio, resampling, .. } =
    ///         Operation::random_resized_crop(side)
    ///     else {
    ///         unreachable!()
    ///     };
    ///     Transform::new()
    ///         .color(ColorMode::Rgb)
    ///         .operation(Operation::RandomResizedCrop { height, width, scale, ratio, resampling })
    ///         .operation(Operation::horizontal_flip())
    ///         .normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    /// };
    /// let feed = Feed::builder()
    ///     .lmdb("imagenet_train_lmdb")
    ///     .transform(crop(224, [0.4, 1.0]))
    ///     .views("second", 1, crop(224, [0.4, 1.0]))
    ///     .views("local", 8, crop(96, [0.05, 0.4]));
    /// ```
    pub fn views(mut self, name: impl Into<String>, count: usize, transform: Transform) -> Self {
        self.spec.views.push(ViewSpec { name: name.into(), count, transform });
        self
    }

    /// What makes the views.
    pub(super) fn made_views(&self) -> Result<Vec<Views>, ConfigError> {
        let spec = &self.spec;
        let fault = |view: &ViewSpec, fault| ConfigError::View { name: view.name.clone(), fault };
        let of_all = [
            (spec.transform.has_operations(), "the feed's own transform has no operations: give it some"),
            (spec.mixing.is_none(), "batches are mixed, and views would not be: leave out one of them"),
        ];
        let made = spec.views.iter().map(|view| {
            let ViewSpec { name, count, transform } = view;
            let of_this = [
                (*count > 0, "a count of 0: it must be at least 1"),
                (transform.has_operations(), "there are no operations: a view is drawn by some"),
                (
                    transform.decoded_to() == spec.transform.decoded_to(),
                    "its color is not that of the feed's own transform: an image is decoded once",
                ),
            ];
            if let Some((_, why)) = of_all.into_iter().chain(of_this).find(|(is_so, _)| !is_so) {
                return Err(fault(view, why));
            }
            let transformer = Transformer::new(transform, &spec.root, spec.phase, spec.dtype, spec.layout)?;
            Ok(Views { name: name.as_str().into(), count: *count, transformer })
        });
        made.collect()
    }
}
