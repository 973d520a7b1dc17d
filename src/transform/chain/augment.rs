//! What RandAugment, TrivialAugmentWide and AutoAugment choose from, how strong each is, and how it is done
//! to an image. As in torchvision, warps take the nearest pixel, and zeros from outside.

use percolator_image::colour::{self, Picture, Scratch};
use percolator_image::warp::{Rotation, Warp, WarpFilter};
use percolator_image::{DecodeError, Planes};

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

/// How many magnitudes there are.
pub(super) const RAND_BINS: u32 = 31;
const WIDE_BINS: u32 = 31;
const AUTO_BINS: u32 = 10;

/// How far magnitudes reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// AutoAugment's and RandAugment's.
    Usual,
    /// TrivialAugmentWide's.
    Wide,
}

/// What is done to one image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Change {
    kind: Kind,
    magnitude: f64,
}

impl Kind {
    /// One of `bins` magnitudes, for an image of this size.
    #[expect(clippy::cast_precision_loss, reason = "sides are far below 2^24")]
    fn magnitude(self, reach: Reach, bin: u32, bins: u32, [rows, columns]: [usize; 2]) -> f64 {
        let usual = reach == Reach::Usual;
        let up_to = |usual_end: f64, wide_end: f64| {
            linspace(0.0, if usual { usual_end } else { wide_end }, bin, bins)
        };
        match self {
            Kind::Identity | Kind::AutoContrast | Kind::Equalize | Kind::Invert => 0.0,
            Kind::ShearX | Kind::ShearY => up_to(0.3, 0.99),
            Kind::TranslateX => up_to(150.0 / 331.0 * columns as f64, 32.0),
            Kind::TranslateY => up_to(150.0 / 331.0 * rows as f64, 32.0),
            Kind::Rotate => up_to(30.0, 135.0),
            Kind::Brightness | Kind::Color | Kind::Contrast | Kind::Sharpness => up_to(0.9, 0.99),
            Kind::Posterize => {
                let lost = if usual { 4.0 } else { 6.0 };
                8.0 - (f64::from(bin) / (f64::from(bins - 1) / lost)).round_ties_even()
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

    /// Whether it does nothing.
    pub(super) fn is_identity(self) -> bool {
        self.kind == Kind::Identity
    }

    /// What moves the pixels of an image of this size, if that is what it does.
    pub(super) fn warp(self, size: [usize; 2]) -> Option<Warp> {
        let Change { kind, magnitude } = self;
        match kind {
            Kind::ShearX => Some(Warp::shear_x(magnitude, size)),
            Kind::ShearY => Some(Warp::shear_y(magnitude, size)),
            Kind::TranslateX => Some(Warp::translate_x(magnitude, size)),
            Kind::TranslateY => Some(Warp::translate_y(magnitude, size)),
            Kind::Rotate => Some(Warp::rotation(Rotation { angle: magnitude, ..Rotation::default() }, size)),
            _ => None,
        }
    }

    /// Changes the colours of an image, if that is what it does.
    pub(super) fn recolour(
        self,
        picture: &mut Picture<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), DecodeError> {
        let Change { kind, magnitude } = self;
        let factor = 1.0 + magnitude;
        match kind {
            Kind::Brightness => picture.brightness(factor),
            Kind::Color => picture.saturation(factor),
            Kind::Contrast => picture.contrast(factor),
            Kind::Sharpness => picture.sharpness(factor, scratch)?,
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "2 to 8")]
            Kind::Posterize => picture.posterize(magnitude as u32),
            Kind::Solarize => picture.solarize(255.0 * magnitude),
            Kind::AutoContrast => picture.autocontrast(),
            Kind::Equalize => picture.equalize(),
            Kind::Invert => picture.invert(),
            Kind::Identity
            | Kind::ShearX
            | Kind::ShearY
            | Kind::TranslateX
            | Kind::TranslateY
            | Kind::Rotate => {}
        }
        Ok(())
    }
}

/// Moves the pixels of an image.
pub(super) fn moved(warp: Warp, image: Planes<'_>, out: &mut [u8]) {
    warp.apply(image, WarpFilter::Nearest, &[0], out);
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
        assert!(checked > 700, "{checked}");
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
