//! What `benches/`, `tests/` and `percolator bench` reach of the inside. It is no part of the interface and may change at any time.

use std::path::Path;

use crate::datum::{Image, Pixels};
use crate::decode::{ColorMode, Decode, DecodeError, Decoder, Window, shape};
use crate::record::RecordId;
use crate::shape::{Dtype, ImageShape, Layout, Phase};
use crate::transform::{Draws, Scratch, Transform, TransformError, Transformer};

/// A transform as a worker runs it.
#[derive(Debug)]
pub struct TransformBench {
    transformer: Transformer,
    draws: Draws,
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
            transformer: Transformer::new(transform, Path::new(""), Phase::Train, dtype, layout)?,
            draws: Draws::Indexed { seed: 1701 },
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
        let draw = self.draws.next(RecordId { epoch: 0, index });
        self.transformer.apply(&Image { shape, pixels: Pixels::U8(pixels) }, draw, out, &mut self.scratch)
    }
}

/// An image decoder as a worker has it.
#[derive(Debug, Default)]
pub struct DecodeBench {
    wanted: Decode,
    decoder: Decoder,
}

impl DecodeBench {
    /// A decoder to these channels, and to this height and width if any.
    #[must_use]
    pub fn new(color: ColorMode, resize: Option<(usize, usize)>) -> Self {
        Self { wanted: Decode { color, resize }, decoder: Decoder::default() }
    }

    /// The shape that a file comes to.
    ///
    /// # Errors
    ///
    /// Fails where the file's head cannot be read.
    pub fn shape(&self, file: &[u8]) -> Result<ImageShape, DecodeError> {
        shape(file, &self.wanted)
    }

    /// The shape and the pixels of a file.
    ///
    /// # Errors
    ///
    /// Fails where the file cannot be read.
    pub fn decode(&mut self, file: &[u8]) -> Result<(ImageShape, &[u8]), DecodeError> {
        let image = self.decoder.decode(file, &self.wanted, |_| None)?;
        let Pixels::U8(pixels) = image.pixels else { unreachable!("decoded pixels are bytes") };
        Ok((image.shape, pixels))
    }

    /// The same where a part of the image is enough, whose top, left, height and width these are. Beside it the
    /// pixels are anything.
    ///
    /// # Errors
    ///
    /// Fails where the file cannot be read.
    ///
    /// # Panics
    ///
    /// Panics if the part is not within the image.
    pub fn decode_window(
        &mut self,
        file: &[u8],
        [top, left, height, width]: [usize; 4],
    ) -> Result<(ImageShape, &[u8]), DecodeError> {
        let window = Window { top, left, height, width };
        let image = self.decoder.decode(file, &self.wanted, |_| Some(window))?;
        let Pixels::U8(pixels) = image.pixels else { unreachable!("decoded pixels are bytes") };
        Ok((image.shape, pixels))
    }
}
