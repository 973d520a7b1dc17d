//! A chain on the pixels of one image, from buffer to buffer.

use percolator_image::colour::{Picture, Scratch as ColourScratch};
use percolator_image::resample::{Resampler, Resampling};
use percolator_image::warp::Warp;
use percolator_image::{DecodeError, ImageShape, Planes, Window};

use super::augment::{self, Change};
use super::{Chain, Operation, draws};
use crate::record::random::RecordRandom;

/// What a worker keeps to run a chain.
#[derive(Debug, Default)]
pub(crate) struct ChainScratch {
    resampler: Resampler,
    colour: ColourScratch,
    /// The image, and what an operation makes of it; then the two are swapped.
    image: Vec<u8>,
    made: Vec<u8>,
}

/// What a chain made: a window of some planes, perhaps still to be mirrored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made<'a> {
    pub(crate) planes: Planes<'a>,
    pub(crate) window: Window,
    pub(crate) is_mirrored: bool,
    /// The part of the output that becomes 0.
    pub(crate) erased: Option<Window>,
}

/// Where the image is. A crop only narrows the window, and a flip at the end is left to whoever writes the
/// batch.
#[derive(Clone, Copy)]
struct View {
    /// Whether it is still where it came from.
    is_given: bool,
    /// Of the planes that the window is in.
    shape: ImageShape,
    window: Window,
    is_mirrored: bool,
    erased: Option<Window>,
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
        &self,
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

impl View {
    fn apply(
        &mut self,
        operation: &Operation,
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
                let [rows, columns] = [0, 1].map(|at| after[at].saturating_sub(size[at]));
                if rows == 0 && columns == 0 {
                    return Ok(());
                }
                // What is padded is padded on both sides, the odd pixel at the end.
                let sides = [rows / 2, columns / 2, rows.div_ceil(2), columns.div_ceil(2)];
                self.pad(sides, given, scratch)
            }
            Operation::RandomCrop { padding: 0, .. } => Ok(()),
            Operation::RandomCrop { padding, .. } => {
                self.pad([*padding as usize; 4], given, scratch)?;
                self.narrow(draws::place([self.window.height, self.window.width], after, random));
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
            Operation::RandAugment { operations, magnitude } => {
                for _ in 0..*operations {
                    self.change(Change::random(*magnitude, size, random), given, scratch)?;
                }
                Ok(())
            }
            Operation::TrivialAugmentWide => self.change(Change::wide(size, random), given, scratch),
            Operation::AutoAugment { policy } => {
                let changes = Change::of_policy(*policy, size, random).into_iter().flatten();
                changes.into_iter().try_for_each(|change| self.change(change, given, scratch))
            }
            Operation::RandomErasing { probability, scale, ratio } => {
                if draws::happens(*probability, random) {
                    self.erased = draws::erased(size, *scale, *ratio, random);
                }
                Ok(())
            }
            Operation::ColorJitter { probability, .. }
            | Operation::Grayscale { probability }
            | Operation::GaussianBlur { probability, .. }
            | Operation::Solarize { probability, .. }
            | Operation::Sharpness { probability, .. }
            | Operation::AutoContrast { probability }
            | Operation::Equalize { probability } => {
                if draws::happens(*probability, random) {
                    let (mut picture, colour) = self.picture(given, scratch)?;
                    recolour(operation, &mut picture, random, colour)?;
                }
                Ok(())
            }
        }
    }

    /// Does what a policy chose.
    fn change(
        &mut self,
        change: Change,
        given: Planes<'_>,
        scratch: &mut ChainScratch,
    ) -> Result<(), DecodeError> {
        if change.is_identity() {
            return Ok(());
        }
        if let Some(warp) = change.warp([self.window.height, self.window.width]) {
            return self.warp(warp, given, scratch);
        }
        let (mut picture, colour) = self.picture(given, scratch)?;
        change.recolour(&mut picture, colour)
    }

    fn warp(&mut self, warp: Warp, given: Planes<'_>, scratch: &mut ChainScratch) -> Result<(), DecodeError> {
        self.own(given, scratch)?;
        let (shape, made) = (self.shape, room(&mut scratch.made, self.shape)?);
        augment::moved(warp, Planes { shape, bytes: &scratch.image[..elements(shape)] }, made);
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
        self.rewrite(self.looks(), given, scratch, |row, _| Some((row, 0)))
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

    /// Adds zeros at the top, left, bottom and right.
    fn pad(
        &mut self,
        [top, left, bottom, right]: [usize; 4],
        given: Planes<'_>,
        scratch: &mut ChainScratch,
    ) -> Result<(), DecodeError> {
        let Window { height, width, .. } = self.window;
        let shape = ImageShape { height: top + height + bottom, width: left + width + right, ..self.shape };
        self.rewrite(shape, given, scratch, |row, out| match row.checked_sub(top) {
            Some(row) if row < height => {
                out[..left].fill(0);
                out[left + width..].fill(0);
                Some((row, left))
            }
            _ => {
                out.fill(0);
                None
            }
        })
    }

    /// Mirrors top to bottom.
    fn turn_over(&mut self, given: Planes<'_>, scratch: &mut ChainScratch) -> Result<(), DecodeError> {
        let last = self.window.height - 1;
        self.rewrite(self.looks(), given, scratch, |row, _| Some((last - row, 0)))
    }

    /// Writes another image, row by row, mirrored if that is due: `from` fills what is around a row of the
    /// window, and says which row that is and where it begins.
    fn rewrite(
        &mut self,
        shape: ImageShape,
        given: Planes<'_>,
        scratch: &mut ChainScratch,
        from: impl Fn(usize, &mut [u8]) -> Option<(usize, usize)>,
    ) -> Result<(), DecodeError> {
        let ChainScratch { image, made, .. } = scratch;
        let bytes = if self.is_given { given.bytes } else { &image[..elements(self.shape)] };
        let Window { top, left, width, .. } = self.window;
        let planes = bytes.chunks_exact(self.shape.height * self.shape.width);
        let outs = room(made, shape)?.chunks_exact_mut(shape.height * shape.width);
        for (plane, out) in planes.zip(outs) {
            for (row, out) in out.chunks_exact_mut(shape.width).enumerate() {
                let Some((row, start)) = from(row, out) else { continue };
                let out = &mut out[start..start + width];
                out.copy_from_slice(&plane[(top + row) * self.shape.width + left..][..width]);
                if self.is_mirrored {
                    out.reverse();
                }
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

/// Changes the colours of an image.
fn recolour(
    operation: &Operation,
    picture: &mut Picture<'_>,
    random: &mut RecordRandom,
    scratch: &mut ColourScratch,
) -> Result<(), DecodeError> {
    match operation {
        &Operation::ColorJitter { brightness, contrast, saturation, hue, .. } => {
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
        }
        Operation::Grayscale { .. } => picture.grey(),
        Operation::GaussianBlur { kernel, sigma, .. } => {
            let sigma = draws::uniform(*sigma, random);
            picture.gaussian_blur([*kernel as usize; 2], [sigma; 2], scratch)?;
        }
        Operation::Solarize { threshold, .. } => picture.solarize(*threshold),
        Operation::Sharpness { factor, .. } => picture.sharpness(*factor, scratch)?,
        Operation::AutoContrast { .. } => picture.autocontrast(),
        Operation::Equalize { .. } => picture.equalize(),
        _ => unreachable!("the others move pixels"),
    }
    Ok(())
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
                Operation::RandomCrop { padding, .. } => {
                    let (by, room) = (*padding as isize, size.map(|side| side + 2 * *padding as usize));
                    self.cut(-by, -by, room).window(draws::place(room, to, random))
                }
                Operation::HorizontalFlip { probability } => {
                    flipped(false, draws::happens(*probability, random))
                }
                Operation::VerticalFlip { probability } => {
                    flipped(draws::happens(*probability, random), false)
                }
                Operation::RandAugment { operations, magnitude } => {
                    let mut image = self.clone();
                    for _ in 0..*operations {
                        image = image.changed(Change::random(*magnitude, size, random));
                    }
                    image
                }
                Operation::TrivialAugmentWide => self.changed(Change::wide(size, random)),
                Operation::AutoAugment { policy } => {
                    let changes = Change::of_policy(*policy, size, random).into_iter().flatten();
                    changes.fold(self.clone(), |image, change| image.changed(change))
                }
                Operation::ColorJitter { probability, .. } | Operation::Grayscale { probability } => {
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

        fn changed(&self, change: Change) -> Self {
            let mut image = self.clone();
            if let Some(warp) = change.warp([self.shape.height, self.shape.width]) {
                augment::moved(warp, Planes { shape: self.shape, bytes: &self.bytes }, &mut image.bytes);
                return image;
            }
            let mut picture = Picture::new(image.shape, &mut image.bytes);
            change.recolour(&mut picture, &mut ColourScratch::default()).unwrap();
            image
        }
    }

    fn operation() -> impl Strategy<Value = Operation> {
        let how = prop::sample::select(vec![Filter::Nearest, Filter::Bilinear, Filter::Lanczos]);
        let how = how.prop_map(|filter| Resampling { filter, ..Resampling::default() });
        let side = 1..60_u32;
        prop_oneof![
            (side.clone(), side.clone(), how.clone())
                .prop_map(|(height, width, resampling)| { Operation::Resize { height, width, resampling } }),
            (1..12_u32, how.clone())
                .prop_map(|(side, resampling)| { Operation::ResizeShorter { side, resampling } }),
            (side.clone(), side.clone()).prop_map(|(height, width)| Operation::CenterCrop { height, width }),
            (1..4_u32, 1..4_u32, 2..9_u32)
                .prop_map(|(height, width, padding)| { Operation::RandomCrop { height, width, padding } }),
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
