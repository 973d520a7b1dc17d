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

    /// Writes another image, row by row, mirrored if that is due. Of a row, `from` says which one of the window
    /// it has from the column `left` on, if any; `around` fills the rest of it, by its channel and whether it
    /// has one.
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
#[allow(clippy::cast_possible_truncation, reason = "a test of small numbers")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::RecordId;
    use crate::transform::{AutoAugmentPolicy, Filter};

    /// An image, with each operation carried out at once.
    #[derive(Clone)]
    struct Plain {
        shape: ImageShape,
        bytes: Vec<u8>,
    }

    impl Plain {
        fn new(shape: ImageShape, pixel: impl Fn(usize, usize, usize) -> u8) -> Self {
            let ImageShape { channels, height, width } = shape;
            let places =
                (0..channels).flat_map(|c| (0..height).flat_map(move |y| (0..width).map(move |x| (c, y, x))));
            Plain { shape, bytes: places.map(|(c, y, x)| pixel(c, y, x)).collect() }
        }

        /// A pixel, or 0 outside.
        fn at(&self, c: usize, y: isize, x: isize) -> u8 {
            let ImageShape { height, width, .. } = self.shape;
            match (usize::try_from(y), usize::try_from(x)) {
                (Ok(y), Ok(x)) if y < height && x < width => self.bytes[(c * height + y) * width + x],
                _ => 0,
            }
        }

        fn cut(&self, top: isize, left: isize, [height, width]: [usize; 2]) -> Self {
            let shape = ImageShape { height, width, ..self.shape };
            Plain::new(shape, |c, y, x| self.at(c, top + y as isize, left + x as isize))
        }

        fn window(&self, Window { top, left, height, width }: Window) -> Self {
            self.cut(top as isize, left as isize, [height, width])
        }

        fn resized(&self, how: Resampling, [height, width]: [usize; 2]) -> Self {
            let shape = ImageShape { height, width, ..self.shape };
            let mut bytes = vec![0; shape.checked_elements().unwrap()];
            let planes = Planes { shape: self.shape, bytes: &self.bytes };
            let whole = Window { top: 0, left: 0, height: self.shape.height, width: self.shape.width };
            Resampler::default().resize(planes, whole, how, [height, width], &mut bytes).unwrap();
            Plain { shape, bytes }
        }

        fn apply(&self, operation: &Operation, random: &mut RecordRandom) -> Self {
            let size = [self.shape.height, self.shape.width];
            let to = operation.size_after(size);
            let [last_row, last_column] = size.map(|side| side as isize - 1);
            let flipped = |rows: bool, columns: bool| {
                Plain::new(self.shape, |c, y, x| {
                    let (y, x) = (y as isize, x as isize);
                    self.at(c, if rows { last_row - y } else { y }, if columns { last_column - x } else { x })
                })
            };
            match operation {
                Operation::Resize { resampling, .. } | Operation::ResizeShorter { resampling, .. } => {
                    self.resized(*resampling, to)
                }
                Operation::RandomResizedCrop { resampling, .. } => {
                    self.window(draws::cut(operation, size, random).unwrap()).resized(*resampling, to)
                }
                Operation::CenterCrop { .. } => {
                    let room = [0, 1].map(|at| size[at].max(to[at]));
                    let padded = self.cut(
                        -(((room[0] - size[0]) / 2) as isize),
                        -(((room[1] - size[1]) / 2) as isize),
                        room,
                    );
                    let [top, left] = [0, 1].map(|at| ((room[at] - to[at]) as f64 / 2.0).round_ties_even());
                    padded.cut(top as isize, left as isize, to)
                }
                Operation::Pad { mode, fill, .. } => self.padded(operation.padding(size), *mode, fill),
                Operation::RandomCrop { mode, fill, .. } => {
                    let padded = self.padded(operation.padding(size), *mode, fill);
                    let room = [padded.shape.height, padded.shape.width];
                    padded.window(draws::place(room, to, random))
                }
                Operation::RandomRotation { .. }
                | Operation::RandomAffine { .. }
                | Operation::RandomPerspective { .. } => match moves::moved(operation, size, random) {
                    Some(moved) => self.moved(moved),
                    None => self.clone(),
                },
                Operation::TimmRandAugment { .. } => {
                    let levels =
                        TimmLevels { magnitude: 9.0, magnitude_std: 0.5, probability: 0.5, increasing: true };
                    let mut image = self.clone();
                    for _ in 0..2 {
                        let (effect, filter) = levels.draw(None, size, random);
                        image = image.changed(effect, filter, &[124, 116, 104]);
                    }
                    image
                }
                Operation::AugMix { .. } => self.mixed(random),
                Operation::HorizontalFlip { probability } => {
                    flipped(false, draws::happens(*probability, random))
                }
                Operation::VerticalFlip { probability } => {
                    flipped(draws::happens(*probability, random), false)
                }
                Operation::RandAugment { operations, magnitude } => {
                    let mut image = self.clone();
                    for _ in 0..*operations {
                        let effect = Change::random(*magnitude, size, random).effect(size);
                        image = image.changed(effect, WarpFilter::Nearest, &[0]);
                    }
                    image
                }
                Operation::TrivialAugmentWide => {
                    self.changed(Change::wide(size, random).effect(size), WarpFilter::Nearest, &[0])
                }
                Operation::AutoAugment { policy } => {
                    let changes = Change::of_policy(*policy, size, random).into_iter().flatten();
                    changes.fold(self.clone(), |image, change| {
                        image.changed(change.effect(size), WarpFilter::Nearest, &[0])
                    })
                }
                Operation::ColorJitter { probability, .. }
                | Operation::Grayscale { probability }
                | Operation::PillowBlur { probability, .. } => {
                    let mut image = self.clone();
                    if draws::happens(*probability, random) {
                        let mut picture = Picture::new(image.shape, &mut image.bytes);
                        recolour(operation, &mut picture, random, &mut ColourScratch::default()).unwrap();
                    }
                    image
                }
                other => unreachable!("{other:?} is not drawn"),
            }
        }

        fn padded(&self, [top, left, bottom, right]: [usize; 4], mode: PadMode, fill: &[u8]) -> Self {
            let ImageShape { height, width, .. } = self.shape;
            let shape =
                ImageShape { height: top + height + bottom, width: left + width + right, ..self.shape };
            // Steps back from outside until within, one side at a time.
            let within = |place: isize, side: usize| {
                let (mut place, last) = (place, side as isize - 1);
                while !(0..=last).contains(&place) {
                    place = match mode {
                        PadMode::Constant => return None,
                        PadMode::Edge => place.clamp(0, last),
                        PadMode::Reflect if last == 0 => 0,
                        PadMode::Reflect if place < 0 => -place,
                        PadMode::Reflect => 2 * last - place,
                        PadMode::Symmetric if place < 0 => -1 - place,
                        PadMode::Symmetric => 2 * last + 1 - place,
                    };
                }
                Some(place)
            };
            Plain::new(shape, |c, y, x| {
                let (y, x) = (y as isize - top as isize, x as isize - left as isize);
                match (within(y, height), within(x, width)) {
                    (Some(y), Some(x)) => self.at(c, y, x),
                    _ => {
                        if fill.is_empty() {
                            0
                        } else {
                            fill[c % fill.len()]
                        }
                    }
                }
            })
        }

        fn moved(&self, (warp, filter, fill): Moved<'_>) -> Self {
            let mut image = self.clone();
            let fill = if fill.is_empty() { &[0] } else { fill };
            warp.apply(Planes { shape: self.shape, bytes: &self.bytes }, filter, fill, &mut image.bytes);
            image
        }

        fn changed(&self, effect: Effect, filter: WarpFilter, fill: &[u8]) -> Self {
            let mut image = self.clone();
            match effect {
                Effect::Nothing => {}
                Effect::Moves(warp) => return self.moved((warp, filter, fill)),
                Effect::Recolours(recolour) => {
                    let mut picture = Picture::new(image.shape, &mut image.bytes);
                    recolour.apply(&mut picture, &mut ColourScratch::default()).unwrap();
                }
            }
            image
        }

        /// AugMix with torchvision's own numbers.
        fn mixed(&self, random: &mut RecordRandom) -> Self {
            let size = [self.shape.height, self.shape.width];
            let (weight, mut shares) = (random.beta(1.0, 1.0), [0.0; 3]);
            random.dirichlet(1.0, &mut shares);
            let mut sums: Vec<f32> =
                self.bytes.iter().map(|level| weight as f32 * f32::from(*level)).collect();
            for share in shares {
                let mut image = self.clone();
                for _ in 0..1 + draws::up_to(2, random) {
                    let effect = Change::mixed(3, true, size, random).effect(size);
                    image = image.changed(effect, WarpFilter::Bilinear, &[0]);
                }
                let share = share as f32 * (1.0 - weight) as f32;
                sums.iter_mut().zip(&image.bytes).for_each(|(sum, level)| *sum += share * f32::from(*level));
            }
            Plain { shape: self.shape, bytes: sums.iter().map(|sum| *sum as u8).collect() }
        }
    }

    fn operation() -> impl Strategy<Value = Operation> {
        let how = prop::sample::select(vec![Filter::Nearest, Filter::Bilinear, Filter::Lanczos]);
        let how = how.prop_map(|filter| Resampling { filter, ..Resampling::default() });
        let side = 1..60_u32;
        let mode = [PadMode::Constant, PadMode::Edge, PadMode::Reflect, PadMode::Symmetric];
        let mode = prop::sample::select(mode.to_vec());
        let fill = prop::sample::select(vec![vec![], vec![7], vec![1, 2, 3]]);
        let filter = [WarpFilter::Nearest, WarpFilter::Bilinear, WarpFilter::Bicubic];
        let filter = prop::sample::select(filter.to_vec());
        prop_oneof![
            (side.clone(), side.clone(), how.clone())
                .prop_map(|(height, width, resampling)| { Operation::Resize { height, width, resampling } }),
            (1..12_u32, how.clone()).prop_map(|(side, how)| Operation::resize_shorter(side).resampled(how)),
            (1..12_u32, 1..9_u32, how.clone()).prop_map(|(side, more, resampling)| {
                Operation::ResizeShorter { side, max_size: Some(side + more), resampling }
            }),
            (side.clone(), side.clone()).prop_map(|(height, width)| Operation::CenterCrop { height, width }),
            (1..9_u32, 1..9_u32, 0..5_u32, mode.clone(), fill.clone()).prop_map(
                |(height, width, padding, mode, fill)| {
                    Operation::RandomCrop { height, width, padding, pad_if_needed: true, mode, fill }
                }
            ),
            (prop::array::uniform4(0..30_u32), mode, fill.clone())
                .prop_map(|(padding, mode, fill)| Operation::Pad { padding, mode, fill }),
            (filter.clone(), fill.clone()).prop_map(|(filter, fill)| Operation::RandomRotation {
                degrees: [-40.0, 90.0],
                filter,
                fill
            }),
            (filter.clone(), fill.clone()).prop_map(|(filter, fill)| Operation::RandomAffine {
                degrees: [-5.0, 5.0],
                translate: [0.2, 0.4],
                scale: [0.5, 1.5],
                shear: [-10.0, 10.0, 0.0, 20.0],
                filter,
                fill
            }),
            (filter, fill).prop_map(|(filter, fill)| Operation::RandomPerspective {
                distortion: 0.9,
                probability: 0.8,
                filter,
                fill
            }),
            Just(Operation::PillowBlur { radius: [0.0, 3.0], probability: 0.5 }),
            Just(Operation::timm_rand_augment()),
            Just(Operation::aug_mix()),
            (side.clone(), how).prop_map(|(side, how)| Operation::random_resized_crop(side).resampled(how)),
            Just(Operation::random_crop(1, 0)),
            Just(Operation::horizontal_flip()),
            Just(Operation::HorizontalFlip { probability: 1.0 }),
            Just(Operation::VerticalFlip { probability: 0.7 }),
            Just(Operation::color_jitter(0.4, 0.4, 0.4, 0.1)),
            Just(Operation::Grayscale { probability: 0.5 }),
            Just(Operation::rand_augment()),
            Just(Operation::TrivialAugmentWide),
            Just(Operation::AutoAugment { policy: AutoAugmentPolicy::Svhn }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
        #[test]
        fn a_chain_matches_naive(
            operations in prop::collection::vec(operation(), 0..6),
            height in 1..70_usize,
            width in 1..70_usize,
            index: u64,
        ) {
            let shape = ImageShape { channels: 3, height, width };
            let given = Plain::new(shape, |c, y, x| (c * 91 + y * 37 + x * 11 + y * x) as u8);
            let record = RecordRandom::new(3, RecordId { epoch: 0, index });
            let mut plain = given.clone();
            for (place, operation) in operations.iter().enumerate() {
                plain = plain.apply(operation, &mut Chain::random(&record, place));
            }
            let Some(chain) = Chain::new(&operations).unwrap() else { return Ok(()) };
            prop_assert_eq!(chain.output(shape).unwrap(), plain.shape);
            // Only what the chain asks for is there.
            let mut part = given.clone();
            if let Some(Window { top, left, height, width }) = chain.part(shape, &record) {
                part = Plain::new(shape, |c, y, x| {
                    let is_within = (top..top + height).contains(&y) && (left..left + width).contains(&x);
                    if is_within { given.at(c, y as isize, x as isize) } else { 201 }
                });
            }
            // Buffers of an earlier image do not show.
            let mut scratch =
                ChainScratch { image: vec![99; 9000], made: vec![88; 20_000], ..ChainScratch::default() };
            let planes = Planes { shape, bytes: &part.bytes };
            let Made { planes, window, is_mirrored, .. } = chain.run(planes, &record, &mut scratch).unwrap();
            let made = Plain { shape: planes.shape, bytes: planes.bytes.to_vec() };
            let made = made.window(window);
            let made = Plain::new(made.shape, |c, y, x| {
                let x = if is_mirrored { made.shape.width - 1 - x } else { x };
                made.at(c, y as isize, x as isize)
            });
            prop_assert!(made.shape == plain.shape && made.bytes == plain.bytes);
        }
    }
}
