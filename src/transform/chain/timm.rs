//! timm's `RandAugment`: what it chooses from, how strong each is, and how it is done to an image.

use percolator_image::warp::{Rotation, Warp, WarpFilter};

use super::augment::{Effect, Recolour};
use super::draws;
use crate::record::random::RecordRandom;

/// What it chooses from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimmKind {
    AutoContrast,
    Equalize,
    Invert,
    Rotate,
    Posterize,
    Solarize,
    SolarizeAdd,
    Color,
    Contrast,
    Brightness,
    Sharpness,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
}

use TimmKind::*;

const KINDS: [TimmKind; 15] = [
    AutoContrast,
    Equalize,
    Invert,
    Rotate,
    Posterize,
    Solarize,
    SolarizeAdd,
    Color,
    Contrast,
    Brightness,
    Sharpness,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
];

/// The greatest magnitude.
const MOST: f64 = 10.0;

/// From this deviation on, magnitudes are uniform.
const UNIFORM: f64 = 100.0;

/// How strong its changes are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct TimmLevels {
    pub(super) magnitude: f64,
    pub(super) magnitude_std: f64,
    pub(super) probability: f64,
    pub(super) increasing: bool,
}

impl TimmLevels {
    /// What is done to an image of this size next, and how pixels are found if they move.
    pub(super) fn draw(
        self,
        filter: Option<WarpFilter>,
        size: [usize; 2],
        random: &mut RecordRandom,
    ) -> (Effect, WarpFilter) {
        let kind = KINDS[draws::up_to(KINDS.len() - 1, random)];
        let is_bilinear = draws::happens(0.5, random);
        let filter = filter.unwrap_or(if is_bilinear { WarpFilter::Bilinear } else { WarpFilter::Bicubic });
        if !draws::happens(self.probability, random) {
            return (Effect::Nothing, filter);
        }
        let level = self.level(random);
        let sign = if draws::happens(0.5, random) { -1.0 } else { 1.0 };
        (kind.effect(level, sign, self.increasing, size), filter)
    }

    fn level(self, random: &mut RecordRandom) -> f64 {
        let level = if self.magnitude_std > UNIFORM {
            draws::uniform([0.0, self.magnitude], random)
        } else {
            self.magnitude + self.magnitude_std * random.normal()
        };
        level.clamp(0.0, MOST)
    }
}

impl TimmKind {
    /// What it does at a level from 0 to 10, to either side by `sign`.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "truncated, as in timm: none is negative or above 256; sides are far below 2^53"
    )]
    fn effect(self, level: f64, sign: f64, increasing: bool, size @ [rows, columns]: [usize; 2]) -> Effect {
        let part = level / MOST;
        let factor = || if increasing { (1.0 + sign * (part * 0.9)).max(0.1) } else { part * 1.8 + 0.1 };
        let (shear, moved) = (sign * (part * 0.3), sign * (part * 0.45));
        let affine = |matrix| Effect::Moves(Warp::matrix(matrix, size));
        Effect::Recolours(match self {
            Rotate => {
                let rotation = Rotation { angle: sign * (part * 30.0), ..Rotation::default() };
                return Effect::Moves(Warp::rotation(rotation, size));
            }
            ShearX => return affine([1.0, shear, 0.0, 0.0, 1.0, 0.0]),
            ShearY => return affine([1.0, 0.0, 0.0, shear, 1.0, 0.0]),
            TranslateX => return affine([1.0, 0.0, moved * columns as f64, 0.0, 1.0, 0.0]),
            TranslateY => return affine([1.0, 0.0, 0.0, 0.0, 1.0, moved * rows as f64]),
            AutoContrast => Recolour::AutoContrast,
            Equalize => Recolour::Equalize,
            Invert => Recolour::Invert,
            Posterize => {
                let bits = (part * 4.0) as u32;
                Recolour::Posterize(if increasing { 4 - bits } else { bits })
            }
            Solarize => {
                let threshold = (part * 256.0).trunc();
                Recolour::Solarize(if increasing { 256.0 - threshold } else { threshold })
            }
            SolarizeAdd => Recolour::SolarizeAdd((part * 110.0) as u8),
            Color => Recolour::Saturation(factor()),
            Contrast => Recolour::Contrast(factor()),
            Brightness => Recolour::Brightness(factor()),
            Sharpness => Recolour::Sharpness(factor()),
        })
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::record::RecordId;

    const SIZE: [usize; 2] = [24, 32];

    fn random(index: u64) -> RecordRandom {
        RecordRandom::new(77, RecordId { epoch: 0, index })
    }

    /// By timm 1.0.31's formulas; that pixels are those of its cases is checked of these matrices, angles
    /// and levels in percolator-image.
    #[test]
    fn effects_have_timms_numbers() {
        let recolours =
            |kind: TimmKind, level, sign, increasing| match kind.effect(level, sign, increasing, SIZE) {
                Effect::Recolours(recolour) => recolour,
                other => panic!("{other:?}"),
            };
        for (kind, level, wanted, wanted_plain) in [
            (Posterize, 9.0, Recolour::Posterize(1), Recolour::Posterize(3)),
            (Posterize, 10.0, Recolour::Posterize(0), Recolour::Posterize(4)),
            (Posterize, 0.0, Recolour::Posterize(4), Recolour::Posterize(0)),
            (Solarize, 9.0, Recolour::Solarize(26.0), Recolour::Solarize(230.0)),
            (Solarize, 10.0, Recolour::Solarize(0.0), Recolour::Solarize(256.0)),
            (SolarizeAdd, 9.0, Recolour::SolarizeAdd(99), Recolour::SolarizeAdd(99)),
            (Contrast, 5.0, Recolour::Contrast(1.45), Recolour::Contrast(1.0)),
            (Brightness, 0.0, Recolour::Brightness(1.0), Recolour::Brightness(0.1)),
        ] {
            assert_eq!(recolours(kind, level, 1.0, true), wanted);
            assert_eq!(recolours(kind, level, 1.0, false), wanted_plain);
        }
        assert_eq!(recolours(Color, 10.0, -1.0, true), Recolour::Saturation(0.1), "not below a tenth");
        assert_eq!(recolours(Sharpness, 5.0, -1.0, true), Recolour::Sharpness(0.55));
        // The case timm_translate_x_rel_bilinear moves by -0.131 of 32 columns: by -4.192, to the right.
        let moves = |kind: TimmKind, part: f64, of: f64| kind.effect(part / of * 10.0, -1.0, true, SIZE);
        let matrix = |matrix| Effect::Moves(Warp::matrix(matrix, SIZE));
        assert_eq!(moves(TranslateX, 0.225, 0.45), matrix([1.0, 0.0, -7.2, 0.0, 1.0, 0.0]));
        assert_eq!(moves(TranslateY, 0.225, 0.45), matrix([1.0, 0.0, 0.0, 0.0, 1.0, -5.4]));
        assert_eq!(moves(ShearX, 0.15, 0.3), matrix([1.0, -0.15, 0.0, 0.0, 1.0, 0.0]));
        assert_eq!(moves(ShearY, 0.15, 0.3), matrix([1.0, 0.0, 0.0, -0.15, 1.0, 0.0]));
        let turned = Warp::rotation(Rotation { angle: -15.0, ..Rotation::default() }, SIZE);
        assert_eq!(moves(Rotate, 15.0, 30.0), Effect::Moves(turned));
    }

    #[test]
    fn each_change_comes_as_often_in_its_turn() {
        let levels = TimmLevels { magnitude: 9.0, magnitude_std: 0.5, probability: 0.5, increasing: true };
        let (mut done, mut bilinear) = (BTreeMap::<String, u32>::new(), 0);
        for index in 0..60_000 {
            let (effect, filter) = levels.draw(None, SIZE, &mut random(index));
            bilinear += u32::from(filter == WarpFilter::Bilinear);
            let name = format!("{effect:?}");
            *done.entry(name.split('(').take(2).collect::<Vec<_>>().concat()).or_default() += 1;
        }
        assert!((29_500..30_500).contains(&bilinear), "{bilinear}");
        let nothing = done.remove("Nothing").unwrap();
        assert!((29_500..30_500).contains(&nothing), "{nothing}");
        let moves: u32 =
            done.iter().filter(|(name, _)| name.starts_with("Moves")).map(|(_, count)| count).sum();
        assert!((9_650..10_350).contains(&moves), "five of fifteen: {moves}");
        done.retain(|name, _| !name.starts_with("Moves"));
        assert!(done.len() == 10 && done.values().all(|count| (1_800..2_200).contains(count)), "{done:?}");
    }

    #[test]
    fn magnitudes_are_normal_and_cut_off() {
        const DRAWS: u64 = 50_000;
        let levels = TimmLevels { magnitude: 9.0, magnitude_std: 0.5, probability: 1.0, increasing: true };
        let share = |levels: TimmLevels, up_to: f64| {
            let below = (0..DRAWS).filter(|index| levels.level(&mut random(*index)) <= up_to).count();
            below as f64 / DRAWS as f64
        };
        let allowed = 1.95 / (DRAWS as f64).sqrt();
        // At -2, -1, 0, 1 and almost 2 deviations; what is beyond the last is 10.
        let normal = [0.022_750, 0.158_655, 0.5, 0.841_345, 0.977_250];
        for (place, wanted) in [8.0, 8.5, 9.0, 9.5, 9.999_999].into_iter().zip(normal) {
            let found = share(levels, place);
            assert!((found - wanted).abs() < allowed, "{place}: {found} and {wanted}");
        }
        assert_eq!(share(levels, 10.0), 1.0);
        let uniform = TimmLevels { magnitude_std: 101.0, ..levels };
        for place in [1.0, 4.5, 8.0] {
            assert!((share(uniform, place) - place / 9.0).abs() < allowed, "{place}");
        }
    }
}
