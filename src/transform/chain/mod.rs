//! Operations on whole images, one after the other, as torchvision has them: what comes between decoding and
//! the elements of a batch.
//!
//! ```text
//! Operation   what a user asks for, and what it is if nothing is said              operation, defaults
//!             its name, the sizes that it leaves, what is impossible about it       properties, possible
//! Chain       the operations of a transform, and the shape that they leave          here
//! draws       the random choices of a record, by torchvision's laws                 draws, moves
//! policies    what they choose from, how strong each is; AutoAugment's; timm's      augment, policies, timm
//! run         the pixels, from buffer to buffer; mixtures of images                 run, mix
//! usual       recipes, and the usual operations as options                          usual
//! ```
//!
//! An operation is a function of the image and of its own random numbers, which depend on the feed's seed,
//! on the record's epoch and position, and on the operation's place in the chain. So one that is added at the
//! end leaves what the others draw as it is.

mod augment;
mod defaults;
mod draws;
mod mix;
mod moves;
mod operation;
mod policies;
mod possible;
mod properties;
mod run;
mod timm;
mod usual;

use percolator_image::colour::Scratch as ColourScratch;
use percolator_image::resample::Resampler;
use percolator_image::{ImageShape, Window};

use super::TransformError;
use crate::record::random::RecordRandom;

pub use operation::{AutoAugmentPolicy, ErasedValue, Operation, PadMode};
pub(in crate::transform) use run::Erased;
pub(crate) use run::{ChainScratch, Made};
pub use usual::UsualOperations;

/// Separates a chain's random numbers from those of decoders.
const OF_CHAINS: u64 = 0x6f70_6572_6174_696f;

/// The most pixels of an image that an operation makes: those of 8192 x 8192. A thin image whose shorter side
/// grows would take any memory otherwise.
const PIXELS_MAX: usize = 1 << 26;

/// The operations of a transform, none of them impossible.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chain(Vec<Operation>);

impl Chain {
    /// Checks the operations of a transform; `None` if it has none.
    pub(super) fn new(operations: &[Operation]) -> Result<Option<Self>, TransformError> {
        for (place, operation) in operations.iter().enumerate() {
            let is_early =
                matches!(operation, Operation::RandomErasing { .. }) && place + 1 < operations.len();
            let fault =
                operation.fault().or_else(|| is_early.then(|| "others after it: it comes last".to_owned()));
            if let Some(fault) = fault {
                return Err(TransformError::Operation { place: place + 1, name: operation.name(), fault });
            }
        }
        Ok((!operations.is_empty()).then(|| Chain(operations.to_vec())))
    }

    /// The shape that it leaves, of an image of this shape.
    ///
    /// # Errors
    ///
    /// [`TransformError`] if a crop is larger than the image is then, or an image would become too large.
    pub(super) fn output(&self, mut shape: ImageShape) -> Result<ImageShape, TransformError> {
        for (place, operation) in self.0.iter().enumerate() {
            if let Some(fault) = operation.fault_of(shape.channels) {
                return Err(TransformError::Operation { place: place + 1, name: operation.name(), fault });
            }
            let padded = operation.padded([shape.height, shape.width]);
            if padded != [shape.height, shape.width] {
                Self::check_size(place, operation, padded, shape)?;
            }
            if let &Operation::RandomCrop { height, width, padding, .. } = operation
                && (height as usize > padded[0] || width as usize > padded[1])
            {
                return Err(TransformError::RandomCropTooLarge {
                    place: place + 1,
                    crop: [height, width],
                    image: shape,
                    padding,
                });
            }
            let [height, width] = operation.size_after([shape.height, shape.width]);
            if [height, width] != [shape.height, shape.width] {
                Self::check_size(place, operation, [height, width], shape)?;
            }
            shape = ImageShape { height, width, ..shape };
        }
        Ok(shape)
    }

    /// Fails if an operation would make an image larger than may be.
    fn check_size(
        place: usize,
        operation: &Operation,
        [height, width]: [usize; 2],
        image: ImageShape,
    ) -> Result<(), TransformError> {
        if height.checked_mul(width).is_some_and(|pixels| pixels <= PIXELS_MAX) {
            return Ok(());
        }
        let fault = format!(
            "{height}x{width} pixels would be made of an image of {image}: allowed are {PIXELS_MAX} pixels"
        );
        Err(TransformError::Operation { place: place + 1, name: operation.name(), fault })
    }

    /// The first operation that takes the first channel for red.
    pub(super) fn takes_colours(&self) -> Option<&'static str> {
        self.0.iter().find(|operation| operation.takes_colours()).map(Operation::name)
    }

    /// What an image of bytes is erased to, unless that is 0.
    pub(super) fn erases_to(&self) -> Option<&ErasedValue> {
        let Some(Operation::RandomErasing { value, .. }) = self.0.last() else { return None };
        let is_zero =
            matches!(value, ErasedValue::Constant(values) if values.iter().all(|value| *value == 0.0));
        (!is_zero).then_some(value)
    }

    /// Whether all images have one size afterwards.
    pub(super) fn fixes_size(&self) -> bool {
        self.0.iter().any(Operation::fixes_size)
    }

    /// The part of an image that its first operation reads, if that is not all of it.
    pub(crate) fn part(&self, shape: ImageShape, random: &RecordRandom) -> Option<Window> {
        draws::cut(self.0.first()?, [shape.height, shape.width], &mut Self::random(random, 0))
    }

    /// The random numbers of an operation.
    fn random(record: &RecordRandom, place: usize) -> RecordRandom {
        record.fork(OF_CHAINS).fork(place as u64)
    }

    /// The most bytes that a worker keeps to run it on images of this shape.
    pub(crate) fn scratch_bytes(&self, mut shape: ImageShape) -> usize {
        // Each of these buffers stays as large as its largest use.
        let (mut image, mut between, mut taps, mut colour, mut mixed) = (0, 0, 0, 0, 0);
        let mut is_ours = false;
        for operation in &self.0 {
            let before = [shape.height, shape.width];
            let [height, width] = operation.size_after(before);
            let bytes =
                |rows: usize, columns: usize| rows.saturating_mul(columns).saturating_mul(shape.channels);
            let made = match operation.padding(before) {
                [0, 0, 0, 0] => bytes(height, width),
                _ => {
                    let [rows, columns] = operation.padded(before);
                    bytes(rows, columns)
                }
            };
            if operation.resizes() {
                // What the first pass makes, columns first or rows first.
                between = bytes(before[0], width).max(bytes(height, before[1])).max(between);
                taps = Resampler::held_bytes(before, [height, width]).max(taps);
            }
            if let Operation::AugMix { .. } = operation {
                mixed = mix::held_bytes(bytes(height, width)).max(mixed);
            }
            if operation.takes_planes() {
                let held = match operation {
                    Operation::GaussianBlur { kernel, .. } => {
                        ColourScratch::held_bytes(before, *kernel as usize)
                    }
                    Operation::PillowBlur { radius, .. } => ColourScratch::held_by_boxes(before, radius[1]),
                    _ => ColourScratch::held_bytes(before, 3),
                };
                colour = held.max(colour);
            }
            // What is read lies in the other buffer, once an operation has made an image.
            let read = if is_ours { bytes(before[0], before[1]) } else { 0 };
            image = made.max(read).max(image);
            is_ours = true;
            shape = ImageShape { height, width, ..shape };
        }
        let kinds = [image.saturating_mul(2), between, taps, colour, mixed];
        kinds.into_iter().fold(0, usize::saturating_add)
    }
}
