//! What the programs in `benches/` reach of the inside. It is no part of the interface and may change at any time.

use crate::datum::{Image, Pixels};
use crate::record::RecordId;
use crate::shape::{Dtype, ImageShape, Layout, Phase};
use crate::transform::{Randomness, Scratch, Transform, TransformError, Transformer};

/// A transform as a worker runs it.
#[derive(Debug)]
pub struct TransformBench {
    transformer: Transformer,
    randomness: Randomness,
    scratch: Scratch,
}

impl TransformBench {
    /// A worker's transform for TRAIN.
    ///
    /// # Errors
    ///
    /// Fails where the transform cannot be made.
    pub fn new(transform: &Transform, dtype: Dtype, layout: Layout) -> Result<Self, TransformError> {
        Ok(Self {
            transformer: Transformer::new(transform, Phase::Train, dtype, layout)?,
            randomness: Randomness::Indexed { seed: 1701 },
            scratch: Scratch::default(),
        })
    }

    /// Transforms the record `index` of bytes into `out`.
    ///
    /// # Errors
    ///
    /// Fails where the record does not suit the transform.
    pub fn apply(
        &mut self,
        shape: ImageShape,
        pixels: &[u8],
        index: u64,
        out: &mut [u8],
    ) -> Result<(), TransformError> {
        let draw = self.randomness.draw(RecordId { epoch: 0, index });
        self.transformer.apply(&Image { shape, pixels: Pixels::U8(pixels) }, draw, out, &mut self.scratch)
    }
}
