//! What a program does to images between their decoding and their transform.

use std::fmt;

use super::Decoded;
use crate::base::shape::ImageShape;
use crate::batch::fault::RecordCause;
use crate::record::random::RecordRandom;
use percolator_image::{DecodeError, Planes};

/// Separates the random numbers of a program's function from those of operations and decoders.
const OF_STEPS: u64 = 0x6f77_6e73_7465_7073;

type ShapeAfter = dyn Fn(ImageShape) -> ImageShape + Send + Sync;
type Change = dyn Fn(Planes<'_>, &mut RecordRandom, &mut [u8]) -> Decoded + Send + Sync;

/// A function of images, and the shapes that it makes.
pub(crate) struct ImageStep {
    pub(crate) shape: Box<ShapeAfter>,
    pub(crate) change: Box<Change>,
}

impl ImageStep {
    /// The bytes of the image that it makes of one of this shape.
    pub(crate) fn bytes(&self, image: ImageShape) -> usize {
        (self.shape)(image).checked_elements().unwrap_or(usize::MAX)
    }

    /// Makes an image, in a buffer that a worker keeps.
    pub(crate) fn made<'a>(
        &self,
        image: Planes<'_>,
        random: &RecordRandom,
        made: &'a mut Vec<u8>,
    ) -> Result<Planes<'a>, RecordCause> {
        let (shape, bytes) = ((self.shape)(image.shape), self.bytes(image.shape));
        if bytes > made.len() {
            let more = bytes - made.len();
            made.try_reserve_exact(more).map_err(|_| DecodeError::Memory { bytes })?;
            made.resize(bytes, 0);
        }
        let made = &mut made[..bytes];
        (self.change)(image, &mut random.fork(OF_STEPS), made).map_err(|failure| failure.into_cause())?;
        Ok(Planes { shape, bytes: made })
    }
}

impl fmt::Debug for ImageStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageStep").finish_non_exhaustive()
    }
}
