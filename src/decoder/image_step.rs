//! What a program does to images between their decoding and their transform.

use std::fmt;

use super::Decoded;
use crate::base::shape::ImageShape;
use crate::batch::fault::RecordCause;
use crate::record::random::RecordRandom;
use percolator_image::{DecodeError, Planes};

/// Separates the random numbers of a program's function from those of operations and decoders.
const OF_STEPS: u64 = 0x6f77_6e73_7465_7073;

/// The largest image that a function makes.
const CHANNELS_MAX: usize = 1 << 10;
const SIDE_MAX: usize = 1 << 20;
const PIXELS_MAX: usize = 1 << 26;

type ShapeAfter = dyn Fn(ImageShape) -> ImageShape + Send + Sync;
type Change = dyn Fn(Planes<'_>, &mut RecordRandom, &mut [u8]) -> Decoded + Send + Sync;

/// A function of images, and the shapes that it makes.
pub(crate) struct ImageStep {
    pub(crate) shape: Box<ShapeAfter>,
    pub(crate) change: Box<Change>,
}

impl ImageStep {
    /// The shape of what it makes of an image of this shape.
    pub(crate) fn shape_after(&self, image: ImageShape) -> Result<ImageShape, RecordCause> {
        let made = (self.shape)(image);
        let ImageShape { channels, height, width } = made;
        if channels > CHANNELS_MAX || height > SIDE_MAX || width > SIDE_MAX || height * width > PIXELS_MAX {
            let message = format!(
                "of an image of {image}, the program's function makes one of {made}: allowed are \
                 {CHANNELS_MAX} channels, sides of {SIDE_MAX} and {PIXELS_MAX} pixels"
            );
            return Err(RecordCause::Other { message });
        }
        Ok(made)
    }

    /// Makes an image, in a buffer that a worker keeps.
    pub(crate) fn made<'a>(
        &self,
        image: Planes<'_>,
        random: &RecordRandom,
        made: &'a mut Vec<u8>,
    ) -> Result<Planes<'a>, RecordCause> {
        let shape = self.shape_after(image.shape)?;
        let bytes = shape.channels * shape.height * shape.width;
        if bytes > made.len() {
            let more = bytes - made.len();
            made.try_reserve_exact(more).map_err(|_| DecodeError::Memory { bytes })?;
            made.resize(bytes, 0);
        }
        let made = &mut made[..bytes];
        // What it leaves out must not depend on the record before.
        made.fill(0);
        (self.change)(image, &mut random.fork(OF_STEPS), made).map_err(|failure| failure.into_cause())?;
        Ok(Planes { shape, bytes: made })
    }
}

impl fmt::Debug for ImageStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImageStep").finish_non_exhaustive()
    }
}
