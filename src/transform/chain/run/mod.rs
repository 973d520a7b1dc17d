//! A chain on the pixels of one image, from buffer to buffer.

use percolator_image::colour::{Picture, Scratch as ColourScratch};
use percolator_image::resample::{Resampler, Resampling};
use percolator_image::warp::WarpFilter;
use percolator_image::{DecodeError, ImageShape, Planes, Window};

use super::augment::{Change, Effect, MIXED_MAX, Recolour};
use super::mix::MixScratch;
use super::moves::{self, Moved};
use super::timm::TimmLevels;
use super::{Chain, ErasedValue, Operation, PadMode, draws};
use crate::record::random::RecordRandom;

/// What a worker keeps to run a chain.
#[derive(Debug, Default)]
pub(crate) struct ChainScratch {
    resampler: Resampler,
    colour: ColourScratch,
    /// The image, and what an operation makes of it; then the two are swapped.
    image: Vec<u8>,
    made: Vec<u8>,
    mix: MixScratch,
}

/// A part of the output that is erased.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Erased<'a> {
    pub(crate) window: Window,
    /// What it becomes, and the seed of what is random about that.
    pub(crate) value: &'a ErasedValue,
    pub(crate) seed: u64,
}

/// What a chain made: a window of some planes, perhaps still to be mirrored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made<'a> {
    pub(crate) planes: Planes<'a>,
    pub(crate) window: Window,
    pub(crate) is_mirrored: bool,
    pub(crate) erased: Option<Erased<'a>>,
}

/// Where the image is. A crop only narrows the window, and a flip at the end is left to whoever writes the
/// batch.
#[derive(Clone, Copy)]
struct View<'a> {
    /// Whether it is still where it came from.
    is_given: bool,
    /// Of the planes that the window is in.
    shape: ImageShape,
    window: Window,
    is_mirrored: bool,
    erased: Option<Erased<'a>>,
}

impl Chain {
    /// Runs all operations on an image, of which the [part](Self::part) that the first one reads is enough.
    ///
    /// # Errors
    ///
    /// [`DecodeError::Memory`] if there is no memory for it.
    ///
    /// # Panics
    ///
    /// If the image has no [output](Self::output).
    pub(crate) fn run<'a>(
        &'a self,
        given: Planes<'a>,
        random: &RecordRandom,
        scratch: &'a mut ChainScratch,
    ) -> Result<Made<'a>, DecodeError> {
        let ImageShape { height, width, .. } = given.shape;
        let window = Window { top: 0, left: 0, height, width };
        let mut view = View { is_given: true, shape: given.shape, window, is_mirrored: false, erased: None };
        for (place, operation) in self.0.iter().enumerate() {
            let mut random = Chain::random(random, place);
            view.apply(operation, given, &mut random, scratch)?;
        }
        let View { is_given, shape, window, is_mirrored, erased } = view;
        let bytes = if is_given { given.bytes } else { &scratch.image[..elements(shape)] };
        Ok(Made { planes: Planes { shape, bytes }, window, is_mirrored, erased })
    }
}

impl<'a> View<'a> {
    fn apply(
        &mut self,
        operation: &'a Operation,
        given: Planes<'_>,
        random: &mut RecordRandom,
        scratch: &mut ChainScratch,
    ) -> Result<(), DecodeError> {
        let size = [self.window.height, self.window.width];
        let after = operation.size_after(size);
        if let Some(part) = draws::cut(operation, size, random) {
            self.narrow(part);
        }
        match operation {
            Operation::Resize { resampling, .. }
            | Operation::ResizeShorter { resampling, .. }
            | Operation::RandomResizedCrop { resampling, .. } => {
                self.resize(*resampling, after, given, scratch)
            }
            Operation::CenterCrop { .. } => {
                // What is wider than the crop is cut already.
                self.pad(operation.padding(size), PadMode::Constant, &[], given, scratch)
            }
            Operation::Pad { mode, fill, .. } => {
                self.pad(operation.padding(size), *mode, fill, given, scratch)
            }
            Operation::RandomCrop { mode, fill, .. } => {
                let sides = operation.padding(size);
                if sides != [0; 4] {
                    self.pad(sides, *mode, fill, given, scratch)?;
                    self.narrow(draws::place([self.window.height, self.window.width], after, random));
                }
                Ok(())
            }
            Operation::HorizontalFlip { probability } => {
                self.is_mirrored ^= draws::happens(*probability, random);
                Ok(())
            }
            Operation::VerticalFlip { probability } => {
                if draws::happens(*probability, random) {
                    self.turn_over(given, scratch)?;
                }
                Ok(())
            }
            Operation::RandomErasing { probability, scale, ratio, value } => {
                if draws::happens(*probability, random) {
                    let window = draws::erased(size, *scale, *ratio, random);
                    let seed = random.next_u64();
                    self.erased = window.map(|window| Erased { window, value, seed });
                }
                Ok(())
            }
            Operation::RandomRotation { .. }
            | Operation::RandomAffine { .. }
            | Operation::RandomPerspective { .. } => match moves::moved(operation, size, random) {
                Some(moved) => self.warp(moved, given, scratch),
                None => Ok(()),
            },
            Operation::AugMix { .. } => self.mix(operation, given, random, scratch),
            Operation::RandAugment { .. }
            | Operation::TrivialAugmentWide
            | Operation::AutoAugment { .. }
            | Operation::TimmRandAugment { .. } => self.augment(operation, given, random, scratch),
            _ => {
                if draws::happens(chance(operation), random) {
                    let (mut picture, colour) = self.picture(given, scratch)?;
                    recolour(operation, &mut picture, random, colour)?;
                }
                Ok(())
            }
        }
    }

    /// Does what a policy chooses.
    fn augment(
        &mut self,
        operation: &Operation,
        given: Planes<'_>,
        random: &mut RecordRandom,
        scratch: &mut ChainScratch,
    ) -> Result<(), DecodeError> {
        let size = [self.window.height, self.window.width];
        // As in torchvision, the nearest pixel, and zeros from outside.
        let (filter, fill) = (WarpFilter::Nearest, &[][..]);
        match *operation {
            Operation::RandAugment { operations, magnitude } => {
                for _ in 0..operations {
                    let change = Change::random(magnitude, size, random);
                    self.take(change.effect(size), filter, fill, given, scratch)?;
                }
            }
            Operation::AutoAugment { policy } => {
                for change in Change::of_policy(policy, size, random).into_iter().flatten() {
                    self.take(change.effect(size), filter, fill, given, scratch)?;
                }
            }
            Operation::TimmRandAugment {
                magnitude,
                magnitude_std,
                operations,
                probability,
                increasing,
                filter,
                ref fill,
            } => {
                let levels = TimmLevels { magnitude, magnitude_std, probability, increasing };
                for _ in 0..operations {
                    let (effect, filter) = levels.draw(filter, size, random);
                    self.take(effect, filter, fill, given, scratch)?;
                }
            }
            _ => self.take(Change::wide(size, random).effect(size), filter, fill, given, scratch)?,
        }
        Ok(())
    }

    /// `AugMix`.
    #[expect(clippy::cast_possible_truncation, reason = "torchvision mixes in f32")]
    fn mix(
        &mut self,
        operation: &Operation,
        given: Planes<'_>,
        random: &mut RecordRandom,
        scratch: &mut ChainScratch,
    ) -> Result<(), DecodeError> {
        let &Operation::AugMix { severity, mixture_width, chain_depth, alpha, all_ops, filter, ref fill } =
            operation
        else {
            return Ok(());
        };
        // The first share of a Dirichlet distribution of two is a beta's.
        let weight = random.beta(alpha, alpha);
        let [unchanged, changed] = [weight as f32, (1.0 - weight) as f32];
        let mut shares = [0.0; MIXED_MAX as usize];
        let shares = &mut shares[..mixture_width as usize];
        random.dirichlet(alpha, shares);
        self.own(given, scratch)?;
        let (size, len) = ([self.window.height, self.window.width], elements(self.shape));
        scratch.mix.begin(&scratch.image[..len], unchanged)?;
        for share in shares {
            scratch.mix.restore(&mut scratch.image[..len]);
            let depth = chain_depth.map_or_else(|| 1 + draws::up_to(2, random), |depth| depth as usize);
            for _ in 0..depth {
                let effect = Change::mixed(severity, all_ops, size, random).effect(size);
                self.take(effect, filter, fill, given, scratch)?;
            }
            scratch.mix.add(&scratch.image[..len], *share as f32 * changed);
        }
        scratch.mix.end(&mut scratch.image[..len]);
        Ok(())
    }

    /// Does one change.
    fn take(
        &mut self,
        effect: Effect,
        filter: WarpFilter,
        fill: &[u8],
        given: Planes<'_>,
        scratch: &mut ChainScratch,
    ) -> Result<(), DecodeError> {
        match effect {
            Effect::Nothing => Ok(()),
            Effect::Moves(warp) => self.warp((warp, filter, fill), given, scratch),
            Effect::Recolours(recolour) => {
                let (mut picture, colour) = self.picture(given, scratch)?;
                recolour.apply(&mut picture, colour)
            }
        }
    }

    fn warp(
        &mut self,
        (warp, filter, fill): Moved<'_>,
        given: Planes<'_>,
        scratch: &mut ChainScratch,
    ) -> Result<(), DecodeError> {
        self.own(given, scratch)?;
        let (shape, made) = (self.shape, room(&mut scratch.made, self.shape)?);
        let fill = if fill.is_empty() { &[0] } else { fill };
        warp.apply(Planes { shape, bytes: &scratch.image[..elements(shape)] }, filter, fill, made);
        self.made(shape, scratch);
        Ok(())
    }

    /// The image, to be changed in place.
    fn picture<'s>(
        &mut self,
        given: Planes<'_>,
        scratch: &'s mut ChainScratch,
    ) -> Result<(Picture<'s>, &'s mut ColourScratch), DecodeError> {
        self.own(given, scratch)?;
        let ChainScratch { colour, image, .. } = scratch;
        Ok((Picture::new(self.shape, &mut image[..elements(self.shape)]), colour))
    }

    /// Brings the image into a buffer of ours, whole and as it looks.
    fn own(&mut self, given: Planes<'_>, scratch: &mut ChainScratch) -> Result<(), DecodeError> {
        if !self.is_given && !self.is_mirrored && self.looks() == self.shape {
            return Ok(());
        }
        self.rewrite(self.looks(), 0, given, scratch, Some, |_, _, _| {})
    }

    /// The shape of what the image looks like.
    fn looks(&self) -> ImageShape {
        ImageShape { height: self.window.height, width: self.window.width, ..self.shape }
    }

    /// Takes a part of what the image looks like.
    fn narrow(&mut self, part: Window) {
        let Window { top, left, height, width } = self.window;
        // What is still to be mirrored is counted from the right.
        let from = if self.is_mirrored { width - part.left - part.width } else { part.left };
        debug_assert!(part.top + part.height <= height, "a part of the window");
        self.window = Window { top: top + part.top, left: left + from, ..part };
    }

    fn resize(
        &mut self,
        how: Resampling,
        to: [usize; 2],
        given: Planes<'_>,
        scratch: &mut ChainScratch,
    ) -> Result<(), DecodeError> {
        if to == [self.window.height, self.window.width] {
            return Ok(());
        }
        // A resize of a mirrored image rounds in other places than the mirrored resize of an image.
        if self.is_mirrored {
            self.own(given, scratch)?;
        }
        let ChainScratch { resampler, image, made, .. } = scratch;
        let shape = ImageShape { height: to[0], width: to[1], ..self.shape };
        let bytes = if self.is_given { given.bytes } else { &image[..elements(self.shape)] };
        let planes = Planes { shape: self.shape, bytes };
        resampler.resize(planes, self.window, how, to, room(made, shape)?)?;
        self.made(shape, scratch);
        Ok(())
    }

    /// Adds pixels at the top, left, bottom and right.
    fn pad(
        &mut self,
        sides: [usize; 4],
        mode: PadMode,
        fill: &[u8],
        given: Planes<'_>,
        scratch: &mut ChainScratch,
    ) -> Result<(), DecodeError> {
        if sides == [0; 4] {
            return Ok(());
        }
        let [top, left, bottom, right] = sides;
        let Window { height, width, .. } = self.window;
        let shape = ImageShape { height: top + height + bottom, width: left + width + right, ..self.shape };
        let from = |row| mode.within(row, top, height);
        self.rewrite(shape, left, given, scratch, from, |channel, out, is_row| {
            let level = fill.get(channel).or(fill.first()).copied().unwrap_or_default();
            if !is_row {
                return out.fill(level);
            }
            for column in (0..left).chain(left + width..out.len()) {
                out[column] = mode.within(column, left, width).map_or(level, |within| out[left + within]);
            }
        })
    }

    /// Mirrors top to bottom.
    fn turn_over(&mut self, given: Planes<'_>, scratch: &mut ChainScratch) -> Result<(), DecodeError> {
        let last = self.window.height - 1;
        self.rewrite(self.looks(), 0, given, scratch, |row| Some(last - row), |_, _, _| {})
    }

    /// Writes another image, row by row, mirrored if that is due. Of a row, `from` says which one of the
    /// window it has from the column `left` on, if any; `around` fills the rest of it, by its channel and
    /// whether it has one.
    fn rewrite(
        &mut self,
        shape: ImageShape,
        left: usize,
        given: Planes<'_>,
        scratch: &mut ChainScratch,
        from: impl Fn(usize) -> Option<usize>,
        around: impl Fn(usize, &mut [u8], bool),
    ) -> Result<(), DecodeError> {
        let ChainScratch { image, made, .. } = scratch;
        let bytes = if self.is_given { given.bytes } else { &image[..elements(self.shape)] };
        let window = self.window;
        let planes = bytes.chunks_exact(self.shape.height * self.shape.width);
        let outs = room(made, shape)?.chunks_exact_mut(shape.height * shape.width);
        for (channel, (plane, out)) in planes.zip(outs).enumerate() {
            for (row, out) in out.chunks_exact_mut(shape.width).enumerate() {
                let found = from(row);
                if let Some(row) = found {
                    let out = &mut out[left..left + window.width];
                    let start = (window.top + row) * self.shape.width + window.left;
                    out.copy_from_slice(&plane[start..][..window.width]);
                    if self.is_mirrored {
                        out.reverse();
                    }
                }
                around(channel, out, found.is_some());
            }
        }
        self.made(shape, scratch);
        Ok(())
    }

    /// The image is now what was made.
    fn made(&mut self, shape: ImageShape, scratch: &mut ChainScratch) {
        std::mem::swap(&mut scratch.image, &mut scratch.made);
        let window = Window { top: 0, left: 0, height: shape.height, width: shape.width };
        *self = View { is_given: false, shape, window, is_mirrored: false, erased: None };
    }
}

impl PadMode {
    /// The pixel of a side that is at this place after a padding of `before` pixels; none if it is constant.
    fn within(self, place: usize, before: usize, side: usize) -> Option<usize> {
        if (before..before + side).contains(&place) {
            return Some(place - before);
        }
        // Mirrored, a side comes again after twice its length, or one edge less at each end.
        let period = match self {
            PadMode::Constant => return None,
            PadMode::Edge => return Some(place.clamp(before, before + side - 1) - before),
            PadMode::Reflect => (2 * (side - 1)).max(1),
            PadMode::Symmetric => 2 * side,
        };
        let phase = (place + period * before.div_ceil(period) - before) % period;
        let turned = if self == PadMode::Reflect { period - phase } else { period - 1 - phase };
        Some(if phase < side { phase } else { turned })
    }
}

/// How often an operation changes colours.
fn chance(operation: &Operation) -> f64 {
    match *operation {
        Operation::ColorJitter { probability, .. }
        | Operation::Grayscale { probability }
        | Operation::GaussianBlur { probability, .. }
        | Operation::PillowBlur { probability, .. }
        | Operation::Invert { probability }
        | Operation::Posterize { probability, .. }
        | Operation::Solarize { probability, .. }
        | Operation::Sharpness { probability, .. }
        | Operation::AutoContrast { probability }
        | Operation::Equalize { probability } => probability,
        _ => unreachable!("the others move pixels"),
    }
}

/// Changes the colours of an image.
fn recolour(
    operation: &Operation,
    picture: &mut Picture<'_>,
    random: &mut RecordRandom,
    scratch: &mut ColourScratch,
) -> Result<(), DecodeError> {
    match *operation {
        Operation::ColorJitter { brightness, contrast, saturation, hue, .. } => {
            let factor = |most: f64, random: &mut RecordRandom| {
                draws::uniform([(1.0 - most).max(0.0), 1.0 + most], random)
            };
            let factors = [brightness, contrast, saturation].map(|most| factor(most, random));
            let turn = draws::uniform([-hue, hue], random);
            for which in draws::order::<4>(random) {
                match which {
                    0 if brightness > 0.0 => picture.brightness(factors[0]),
                    1 if contrast > 0.0 => picture.contrast(factors[1]),
                    2 if saturation > 0.0 => picture.saturation(factors[2]),
                    3 if hue > 0.0 => picture.hue(turn),
                    _ => {}
                }
            }
            Ok(())
        }
        Operation::Grayscale { .. } => {
            picture.grey();
            Ok(())
        }
        Operation::GaussianBlur { kernel, sigma, .. } => {
            let sigma = draws::uniform(sigma, random);
            picture.gaussian_blur([kernel as usize; 2], [sigma; 2], scratch)
        }
        Operation::PillowBlur { radius, .. } => picture.pillow_blur(draws::uniform(radius, random), scratch),
        Operation::Invert { .. } => Recolour::Invert.apply(picture, scratch),
        Operation::Posterize { bits, .. } => Recolour::Posterize(bits).apply(picture, scratch),
        Operation::Solarize { threshold, .. } => Recolour::Solarize(threshold).apply(picture, scratch),
        Operation::Sharpness { factor, .. } => Recolour::Sharpness(factor).apply(picture, scratch),
        Operation::AutoContrast { .. } => Recolour::AutoContrast.apply(picture, scratch),
        Operation::Equalize { .. } => Recolour::Equalize.apply(picture, scratch),
        _ => unreachable!("the others move pixels"),
    }
}

/// The number of elements of a shape that has been checked.
fn elements(shape: ImageShape) -> usize {
    shape.channels * shape.height * shape.width
}

/// Room for an image in a buffer that only grows.
fn room(buffer: &mut Vec<u8>, shape: ImageShape) -> Result<&mut [u8], DecodeError> {
    percolator_image::room(buffer, elements(shape))
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;
