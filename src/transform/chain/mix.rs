//! Mixtures of an image and of what has been made of it, in f32.

use percolator_image::{DecodeError, room};

/// What a mixture is made in.
#[derive(Debug, Default)]
pub(super) struct MixScratch {
    /// The image as it was.
    original: Vec<u8>,
    sums: Vec<f32>,
}

/// The most bytes that it keeps for images of so many.
pub(super) fn held_bytes(bytes: usize) -> usize {
    bytes.saturating_mul(1 + size_of::<f32>())
}

impl MixScratch {
    /// Begins with a share of an image.
    pub(super) fn begin(&mut self, image: &[u8], share: f32) -> Result<(), DecodeError> {
        room(&mut self.original, image.len())?.copy_from_slice(image);
        for (sum, level) in room(&mut self.sums, image.len())?.iter_mut().zip(image) {
            *sum = share * f32::from(*level);
        }
        Ok(())
    }

    /// Fills a buffer with the image as it was.
    pub(super) fn restore(&self, image: &mut [u8]) {
        image.copy_from_slice(&self.original[..image.len()]);
    }

    /// Adds a share of another image, which is as large.
    pub(super) fn add(&mut self, image: &[u8], share: f32) {
        for (sum, level) in self.sums.iter_mut().zip(image) {
            *sum += share * f32::from(*level);
        }
    }

    /// Fills a buffer with the mixture, truncated.
    pub(super) fn end(&self, image: &mut [u8]) {
        for (level, sum) in image.iter_mut().zip(&self.sums) {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "truncated, as there"
            )]
            let mixed = *sum as u8;
            *level = mixed;
        }
    }
}
