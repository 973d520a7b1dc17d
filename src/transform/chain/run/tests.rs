//! A chain beside a twin that carries out each operation at once, on all pixels.

#![allow(clippy::cast_possible_truncation, reason = "a test of small numbers")]

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
            Operation::HorizontalFlip { probability } => flipped(false, draws::happens(*probability, random)),
            Operation::VerticalFlip { probability } => flipped(draws::happens(*probability, random), false),
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
            other => self.augmented(other, random),
        }
    }

    /// What a policy makes of it.
    fn augmented(&self, operation: &Operation, random: &mut RecordRandom) -> Self {
        let size = [self.shape.height, self.shape.width];
        match operation {
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
            other => unreachable!("{other:?} is not drawn"),
        }
    }

    fn padded(&self, [top, left, bottom, right]: [usize; 4], mode: PadMode, fill: &[u8]) -> Self {
        let ImageShape { height, width, .. } = self.shape;
        let shape = ImageShape { height: top + height + bottom, width: left + width + right, ..self.shape };
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
        let mut sums: Vec<f32> = self.bytes.iter().map(|level| weight as f32 * f32::from(*level)).collect();
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
