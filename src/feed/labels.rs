//! The labels of images, and batches that are mixed.

use super::builder::FeedBuilder;
use super::config::ConfigError;
use crate::base::shape::Dtype;
use crate::decoder::labels::Labels;
use crate::transform::{Mixing, MixingError, TransformPlace};

impl FeedBuilder {
    /// Adds a field `label_i64` to each batch of images: labels as i64, the type that loss functions of most
    /// frameworks take (default: off).
    pub fn labels_i64(mut self, has: bool) -> Self {
        self.spec.labels_i64 = has;
        self
    }

    /// Adds a field `label_soft` to each batch of images: `classes` numbers a record, f32, each the share of
    /// a class. That of the record's label is 1, and the others are 0; if batches are [mixed](Self::mixing),
    /// two labels have a share. A record whose label is not below `classes` is an error.
    pub fn soft_labels(mut self, classes: usize) -> Self {
        self.spec.soft_labels = Some(classes);
        self
    }

    /// Mixes each image of a batch with the one before it, and the first with the last, as torchvision's
    /// `MixUp` and `CutMix` do. Batches of images then have two more fields: `label_mixed`, the other image's
    /// label (i64), and `label_weight`, the share of the own one (f32). The loss is `label_weight` times that
    /// of `label`, and the rest times that of `label_mixed`. With [`soft_labels`](Self::soft_labels) there
    /// are shares of the classes, too, which a loss may take instead.
    ///
    /// Images are mixed after their transform, in f32, f16 or bf16. A sum is rounded as torch rounds it in
    /// f32, and once more to 16 bits. Rows that pad a batch are not mixed, and neither are the fields that an
    /// [`Example`](Self::example) has beside its image: they stay with the image's own record.
    ///
    /// ```
    /// use percolator::transform::Mixing;
    /// use percolator::{Feed, Transform};
    ///
    /// let feed = Feed::builder()
    ///     .lmdb("imagenet_train_lmdb")
    ///     .transform(Transform::imagenet_train(176))
    ///     .mixing(Mixing::new().mixup(0.2).cutmix(1.0))
    ///     .soft_labels(1000);
    /// ```
    pub fn mixing(mut self, mixing: Mixing) -> Self {
        self.spec.mixing = Some(mixing);
        self
    }

    /// The fields for labels, or why there are none of this kind.
    pub(super) fn labels(&self) -> Result<Labels, ConfigError> {
        let spec = &self.spec;
        if spec.soft_labels == Some(0) {
            return Err(ConfigError::Zero { option: "soft_labels" });
        }
        if let Some(mixing) = &spec.mixing {
            mixing.check()?;
            let beside = [
                ("with targets".to_owned(), spec.target.is_some(), "leave out the mixing, or the targets"),
                (
                    "that a device transforms".to_owned(),
                    spec.transform_on == TransformPlace::Device,
                    "transform them on the host",
                ),
                (
                    format!("of {}", spec.dtype),
                    !matches!(spec.dtype, Dtype::F32 | Dtype::F16 | Dtype::Bf16),
                    "make their dtype f32, f16 or bf16",
                ),
            ];
            if let Some((of, _, instead)) = beside.into_iter().find(|(_, is_set, _)| *is_set) {
                return Err(MixingError::Of { of, instead }.into());
            }
        }
        Ok(Labels { wide: spec.labels_i64, classes: spec.soft_labels, mixed: spec.mixing.is_some() })
    }
}
