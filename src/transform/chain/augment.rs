//! What RandAugment, TrivialAugmentWide, AutoAugment and AugMix choose from, how strong each is, and how it
//! is done to an image.

use percolator_image::DecodeError;
use percolator_image::colour::{self, Picture, Scratch};
use percolator_image::warp::{Rotation, Warp};

use super::policies::{self, Step};
use super::{AutoAugmentPolicy, draws};
use crate::record::random::RecordRandom;

/// What may be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Identity,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    Invert,
}

/// What RandAugment and TrivialAugmentWide choose from.
const CHOICES: [Kind; 14] = [
    Kind::Identity,
    Kind::ShearX,
    Kind::ShearY,
    Kind::TranslateX,
    Kind::TranslateY,
    Kind::Rotate,
    Kind::Brightness,
    Kind::Color,
    Kind::Contrast,
    Kind::Sharpness,
    Kind::Posterize,
    Kind::Solarize,
    Kind::AutoContrast,
    Kind::Equalize,
];

/// What AugMix chooses from: all of them, or all but the last four.
const MIXED: [Kind; 13] = [
    Kind::ShearX,
    Kind::ShearY,
    Kind::TranslateX,
    Kind::TranslateY,
    Kind::Rotate,
    Kind::Posterize,
    Kind::Solarize,
    Kind::AutoContrast,
    Kind::Equalize,
    Kind::Brightness,
    Kind::Color,
    Kind::Contrast,
    Kind::Sharpness,
];
const OF_COLOURS: usize = 4;

/// The most chains that AugMix mixes.
pub(super) const MIXED_MAX: u32 = 64;

/// How many magnitudes there are.
pub(super) const RAND_BINS: u32 = 31;
pub(super) const MIX_BINS: u32 = 10;
const WIDE_BINS: u32 = 31;
const AUTO_BINS: u32 = 10;

/// How far magnitudes reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// AutoAugment's and RandAugment's.
    Usual,
    /// TrivialAugmentWide's.
    Wide,
    /// AugMix's.
    Mix,
}

/// What is done to one image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Effect {
    Nothing,
    Moves(Warp),
    Recolours(Recolour),
}

/// A change of colours.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Recolour {
    Brightness(f64),
    Saturation(f64),
    Contrast(f64),
    Sharpness(f64),
    Posterize(u32),
    Solarize(f64),
    SolarizeAdd(u8),
    AutoContrast,
    Equalize,
    Invert,
}

impl Recolour {
    pub(super) fn apply(self, picture: &mut Picture<'_>, scratch: &mut Scratch) -> Result<(), DecodeError> {
        match self {
            Recolour::Brightness(factor) => picture.brightness(factor),
            Recolour::Saturation(factor) => picture.saturation(factor),
            Recolour::Contrast(factor) => picture.contrast(factor),
            Recolour::Sharpness(factor) => picture.sharpness(factor, scratch)?,
            Recolour::Posterize(bits) => picture.posterize(bits),
            Recolour::Solarize(threshold) => picture.solarize(threshold),
            Recolour::SolarizeAdd(add) => picture.solarize_add(add, 128.0),
            Recolour::AutoContrast => picture.autocontrast(),
            Recolour::Equalize => picture.equalize(),
            Recolour::Invert => picture.invert(),
        }
        Ok(())
    }
}

/// What a policy chose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Change {
    kind: Kind,
    magnitude: f64,
}

impl Kind {
    /// One of `bins` magnitudes, for an image of this size.
    #[expect(clippy::cast_precision_loss, reason = "sides are far below 2^24")]
    fn magnitude(self, reach: Reach, bin: u32, bins: u32, [rows, columns]: [usize; 2]) -> f64 {
        let up_to = |usual: f64, wide: f64, mix: f64| {
            let end = match reach {
                Reach::Usual => usual,
                Reach::Wide => wide,
                Reach::Mix => mix,
            };
            linspace(0.0, end, bin, bins)
        };
        let moved = |side: usize| up_to(150.0 / 331.0 * side as f64, 32.0, side as f64 / 3.0);
        match self {
            Kind::Identity | Kind::AutoContrast | Kind::Equalize | Kind::Invert => 0.0,
            Kind::ShearX | Kind::ShearY => up_to(0.3, 0.99, 0.3),
            Kind::TranslateX => moved(columns),
            Kind::TranslateY => moved(rows),
            Kind::Rotate => up_to(30.0, 135.0, 30.0),
            Kind::Brightness | Kind::Color | Kind::Contrast | Kind::Sharpness => up_to(0.9, 0.99, 0.9),
            Kind::Posterize => {
                let (most, lost) = match reach {
                    Reach::Usual => (8.0, 4.0),
                    Reach::Wide => (8.0, 6.0),
                    Reach::Mix => (4.0, 4.0),
                };
                most - (f64::from(bin) / (f64::from(bins - 1) / lost)).round_ties_even()
            }
            Kind::Solarize => linspace(1.0, 0.0, bin, bins),
        }
    }

    /// Whether its magnitude may be negative.
    fn is_signed(self) -> bool {
        matches!(
            self,
            Kind::ShearX
                | Kind::ShearY
                | Kind::TranslateX
                | Kind::TranslateY
                | Kind::Rotate
                | Kind::Brightness
                | Kind::Color
                | Kind::Contrast
                | Kind::Sharpness
        )
    }
}

/// PyTorch's `linspace`, in f32.
#[expect(clippy::cast_possible_truncation, reason = "as in PyTorch, in f32")]
fn linspace(start: f64, end: f64, bin: u32, bins: u32) -> f64 {
    colour::linspace(start as f32, end as f32, bins as usize, bin as usize).into()
}

impl Change {
    /// Draws the sign of a magnitude.
    fn new(
        kind: Kind,
        reach: Reach,
        bin: u32,
        bins: u32,
        size: [usize; 2],
        random: &mut RecordRandom,
    ) -> Self {
        let magnitude = kind.magnitude(reach, bin, bins, size);
        let is_negative = kind.is_signed() && draws::happens(0.5, random);
        Change { kind, magnitude: if is_negative { -magnitude } else { magnitude } }
    }

    /// One of `RandAugment`'s choices.
    pub(super) fn random(magnitude: u32, size: [usize; 2], random: &mut RecordRandom) -> Self {
        let kind = CHOICES[draws::up_to(CHOICES.len() - 1, random)];
        Self::new(kind, Reach::Usual, magnitude, RAND_BINS, size, random)
    }

    /// `TrivialAugmentWide`'s choice.
    pub(super) fn wide(size: [usize; 2], random: &mut RecordRandom) -> Self {
        let kind = CHOICES[draws::up_to(CHOICES.len() - 1, random)];
        let bin = u32::try_from(random.below(WIDE_BINS.into())).unwrap_or_default();
        Self::new(kind, Reach::Wide, bin, WIDE_BINS, size, random)
    }

    /// What `AutoAugment` does: two changes, each of which may be left out.
    pub(super) fn of_policy(
        policy: AutoAugmentPolicy,
        size: [usize; 2],
        random: &mut RecordRandom,
    ) -> [Option<Self>; 2] {
        let pairs = policies::pairs(policy);
        let pair = pairs[draws::up_to(pairs.len() - 1, random)];
        pair.map(|Step { kind, probability, magnitude }| {
            let bin = u32::try_from(magnitude).unwrap_or_default();
            draws::happens(probability, random)
                .then(|| Self::new(kind, Reach::Usual, bin, AUTO_BINS, size, random))
        })
    }

    /// One of `AugMix`'s choices.
    pub(super) fn mixed(severity: u32, all: bool, size: [usize; 2], random: &mut RecordRandom) -> Self {
        let choices = if all { &MIXED[..] } else { &MIXED[..MIXED.len() - OF_COLOURS] };
        let kind = choices[draws::up_to(choices.len() - 1, random)];
        let bin = u32::try_from(random.below(severity.into())).unwrap_or_default();
        Self::new(kind, Reach::Mix, bin, MIX_BINS, size, random)
    }

    /// What it does to an image of this size.
    pub(super) fn effect(self, size: [usize; 2]) -> Effect {
        let Change { kind, magnitude } = self;
        let factor = 1.0 + magnitude;
        Effect::Recolours(match kind {
            Kind::Identity => return Effect::Nothing,
            Kind::ShearX => return Effect::Moves(Warp::shear_x(magnitude, size)),
            Kind::ShearY => return Effect::Moves(Warp::shear_y(magnitude, size)),
            Kind::TranslateX => return Effect::Moves(Warp::translate_x(magnitude, size)),
            Kind::TranslateY => return Effect::Moves(Warp::translate_y(magnitude, size)),
            Kind::Rotate => {
                let rotation = Rotation { angle: magnitude, ..Rotation::default() };
                return Effect::Moves(Warp::rotation(rotation, size));
            }
            Kind::Brightness => Recolour::Brightness(factor),
            Kind::Color => Recolour::Saturation(factor),
            Kind::Contrast => Recolour::Contrast(factor),
            Kind::Sharpness => Recolour::Sharpness(factor),
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 8")]
            Kind::Posterize => Recolour::Posterize(magnitude as u32),
            Kind::Solarize => Recolour::Solarize(255.0 * magnitude),
            Kind::AutoContrast => Recolour::AutoContrast,
            Kind::Equalize => Recolour::Equalize,
            Kind::Invert => Recolour::Invert,
        })
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
#[allow(clippy::cast_possible_truncation, reason = "a test of small numbers")]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::record::RecordId;

    /// All kinds, by their names in torchvision.
    fn kinds() -> BTreeMap<String, Kind> {
        CHOICES.into_iter().chain([Kind::Invert]).map(|kind| (format!("{kind:?}"), kind)).collect()
    }

    #[test]
    fn magnitudes_are_torchvisions() {
        let path = "crates/percolator-image/tests/data/pillow/magnitudes.txt";
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
        let mut checked = 0;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            let (space, kind) = (words.next().unwrap(), kinds()[words.next().unwrap()]);
            let (reach, bins) = match space {
                "AutoAugment" => (Reach::Usual, AUTO_BINS),
                "RandAugment" => (Reach::Usual, RAND_BINS),
                "AugMix" => (Reach::Mix, MIX_BINS),
                _ => (Reach::Wide, WIDE_BINS),
            };
            for (bin, value) in (0..).zip(words) {
                let found = kind.magnitude(reach, bin, bins, [224, 160]);
                assert!(
                    found == value.parse::<f64>().unwrap(),
                    "{space} {kind:?} {bin}: {found} and {value}"
                );
                checked += 1;
            }
        }
        assert!(checked > 790, "{checked}");
    }

    fn random(index: u64) -> RecordRandom {
        RecordRandom::new(5, RecordId { epoch: 0, index })
    }

    #[test]
    fn each_choice_comes_as_often_and_with_either_sign() {
        let mut counts = BTreeMap::<(String, bool), u32>::new();
        for index in 0..14_000 {
            let Change { kind, magnitude } = Change::random(9, [100, 100], &mut random(index));
            *counts.entry((format!("{kind:?}"), magnitude < 0.0)).or_default() += 1;
        }
        assert_eq!(counts.len(), 14 + 9, "nine have both signs: {counts:?}");
        for kind in CHOICES {
            let [plus, minus] =
                [false, true].map(|sign| counts.get(&(format!("{kind:?}"), sign)).copied().unwrap_or(0));
            assert!((880..1120).contains(&(plus + minus)), "{kind:?}: {plus} and {minus}");
            assert!(!kind.is_signed() || (400..600).contains(&minus), "{kind:?}: {plus} and {minus}");
        }
        let mut bins = BTreeMap::<u64, u32>::new();
        for index in 0..100_000 {
            let change = Change::wide([100, 100], &mut random(index));
            if change.kind == Kind::Rotate {
                *bins.entry(change.magnitude.abs().round() as u64).or_default() += 1;
            }
        }
        assert_eq!(bins.len(), 31, "{bins:?}");
    }

    #[test]
    fn policies_leave_out_what_does_not_happen() {
        let pairs = (0..50_000)
            .map(|index| Change::of_policy(AutoAugmentPolicy::Imagenet, [64, 64], &mut random(index)));
        let done: usize = pairs.map(|pair| pair.iter().flatten().count()).sum();
        let steps = policies::pairs(AutoAugmentPolicy::Imagenet).as_flattened();
        let wanted: f64 = steps.iter().map(|step| step.probability).sum::<f64>() / 25.0;
        assert!((done as f64 / 50_000.0 - wanted).abs() < 0.02, "{done} of {wanted}");
    }
}
