//! What is drawn for a whole batch: how its images and their labels are mixed.

use crate::record::RecordId;
use crate::record::random::RecordRandom;

/// The least alpha, below which weights would be 0 or 1 to the last bit, and the greatest, above which all of
/// them would be a half.
const ALPHA_MIN: f64 = 0.001;
const ALPHA_MAX: f64 = 1000.0;

/// Separates a batch's numbers from those of its first record.
const OF_MIXING: u64 = 0x6d69_7869_6e67_2121;

/// How the images of a batch are mixed, each with the one before it (the first with the last), as
/// torchvision's `MixUp` and `CutMix` do. Labels are mixed alike:
/// [`FeedBuilder::mixing`](crate::FeedBuilder::mixing) says where they go.
///
/// If both are set, each batch gets either, with equal chances. What is drawn depends on the feed's seed and
/// on the epoch and position of the batch's first record.
///
/// ```
/// use percolator::transform::Mixing;
///
/// let mixing = Mixing::new().mixup(0.2).cutmix(1.0);
/// # assert_ne!(mixing, Mixing::new());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct Mixing {
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    mixup: Option<f64>,
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    cutmix: Option<f64>,
    probability: f64,
}

/// A mixing that cannot be done.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum MixingError {
    /// There is nothing to do.
    #[error("mixing: neither mixup nor cutmix is set: give the alpha of one")]
    Nothing,
    /// A number outside its range.
    #[error("mixing: {what} is {found}; it must be {allowed}")]
    Number {
        /// Which number.
        what: &'static str,
        /// Its value.
        found: f64,
        /// Its range.
        allowed: &'static str,
    },
    /// A feed whose batches cannot be mixed.
    #[error("mixing: batches {of} cannot be mixed: {instead}")]
    Of {
        /// Which batches.
        of: String,
        /// What to do.
        instead: &'static str,
    },
}

/// What is done to a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Mixed {
    /// The share of each image's own label.
    pub(crate) weight: f64,
    pub(crate) part: MixedPart,
}

/// What each image gets of the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MixedPart {
    /// Its share of every element.
    Share,
    /// These rows and columns.
    Box { rows: [usize; 2], columns: [usize; 2] },
}

impl Default for Mixing {
    fn default() -> Self {
        Self::new()
    }
}

impl Mixing {
    /// Of every batch; set what is done.
    #[must_use]
    pub fn new() -> Self {
        Mixing { mixup: None, cutmix: None, probability: 1.0 }
    }

    /// `MixUp`: an image is `weight` of itself, and the rest of the other. The weight is of the distribution
    /// Beta(alpha, alpha).
    #[must_use]
    pub fn mixup(self, alpha: f64) -> Self {
        Self { mixup: Some(alpha), ..self }
    }

    /// `CutMix`: an image gets a box of the other. Its place is uniform, and its area that of a weight of
    /// the distribution Beta(alpha, alpha); labels are weighed by the box as it is cut off at the edges.
    #[must_use]
    pub fn cutmix(self, alpha: f64) -> Self {
        Self { cutmix: Some(alpha), ..self }
    }

    /// How often a batch is mixed (default: 1).
    #[must_use]
    pub fn probability(self, probability: f64) -> Self {
        Self { probability, ..self }
    }

    /// Whether this is possible.
    pub(crate) fn check(&self) -> Result<(), MixingError> {
        if self.mixup.or(self.cutmix).is_none() {
            return Err(MixingError::Nothing);
        }
        for (what, alpha) in [("the alpha of mixup", self.mixup), ("the alpha of cutmix", self.cutmix)] {
            if let Some(found) = alpha.filter(|alpha| !(ALPHA_MIN..=ALPHA_MAX).contains(alpha)) {
                return Err(MixingError::Number { what, found, allowed: "from 0.001 to 1000" });
            }
        }
        let found = self.probability;
        if !(0.0..=1.0).contains(&found) {
            return Err(MixingError::Number { what: "the probability", found, allowed: "from 0 to 1" });
        }
        Ok(())
    }

    /// What is done to the batch that begins with this record, if anything. Its images have this height and
    /// width.
    pub(crate) fn draw(&self, seed: u64, first: RecordId, size: [usize; 2]) -> Option<Mixed> {
        let mut random = RecordRandom::new(seed, first).fork(OF_MIXING);
        if random.unit() >= self.probability {
            return None;
        }
        match (self.mixup, self.cutmix) {
            (Some(alpha), None) => Some(share(alpha, &mut random)),
            (None, Some(alpha)) => Some(cut(alpha, size, &mut random)),
            (Some(of_share), Some(of_box)) => Some(match random.below(2) {
                0 => share(of_share, &mut random),
                _ => cut(of_box, size, &mut random),
            }),
            (None, None) => None,
        }
    }
}

fn share(alpha: f64, random: &mut RecordRandom) -> Mixed {
    Mixed { weight: weight(alpha, random), part: MixedPart::Share }
}

/// A box about a random place.
fn cut(alpha: f64, size: [usize; 2], random: &mut RecordRandom) -> Mixed {
    let weight = weight(alpha, random);
    let mut place = |side: usize| usize::try_from(random.below(side as u64)).expect("it is below a side");
    let column = place(size[1]);
    about([place(size[0]), column], weight, size)
}

/// The box about a place, cut off at the edges.
fn about([row, column]: [usize; 2], weight: f64, [height, width]: [usize; 2]) -> Mixed {
    let half = 0.5 * (1.0 - weight).sqrt();
    let along = |middle: usize, side: usize| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            clippy::cast_sign_loss,
            reason = "half a side, which is far below 2^53"
        )]
        let half = (half * side as f64) as usize;
        [middle.saturating_sub(half), (middle + half).min(side)]
    };
    let (rows, columns) = (along(row, height), along(column, width));
    let area = |[top, bottom]: [usize; 2], [left, right]: [usize; 2]| (bottom - top) * (right - left);
    #[expect(clippy::cast_precision_loss, reason = "an image has far fewer than 2^53 pixels")]
    let covered = area(rows, columns) as f64 / (height * width) as f64;
    Mixed { weight: 1.0 - covered, part: MixedPart::Box { rows, columns } }
}

/// A number of the distribution Beta(alpha, alpha), in f32 as torch draws it.
fn weight(alpha: f64, random: &mut RecordRandom) -> f64 {
    #[expect(clippy::cast_possible_truncation, reason = "rounded, to the nearest f32")]
    let weight = random.beta(alpha, alpha) as f32;
    weight.into()
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    fn drawn(mixing: Mixing, size: [usize; 2], count: u64) -> Vec<Option<Mixed>> {
        (0..count).map(|index| mixing.draw(7, RecordId { epoch: 2, index }, size)).collect()
    }

    #[test]
    fn a_batch_is_mixed_as_often_as_it_is_said() {
        let mixing = Mixing::new().mixup(0.2).cutmix(1.0).probability(0.75);
        let drawn = drawn(mixing, [40, 60], 4_000);
        let of = |is: fn(&MixedPart) -> bool| drawn.iter().flatten().filter(|mixed| is(&mixed.part)).count();
        let (shares, boxes) =
            (of(|part| *part == MixedPart::Share), of(|part| matches!(part, MixedPart::Box { .. })));
        assert!((1_400..1_600).contains(&shares) && (1_400..1_600).contains(&boxes), "{shares}, {boxes}");
    }

    #[test]
    fn a_box_is_weighed_as_it_is_cut_off() {
        for mixed in drawn(Mixing::new().cutmix(1.0), [10, 12], 500).into_iter().flatten() {
            let MixedPart::Box { rows, columns } = mixed.part else { panic!("a share") };
            assert!(rows[0] <= rows[1] && rows[1] <= 10 && columns[0] <= columns[1] && columns[1] <= 12);
            let area = (rows[1] - rows[0]) * (columns[1] - columns[0]);
            assert!((mixed.weight - (1.0 - area as f64 / 120.0)).abs() < 1e-12);
        }
    }

    /// Places and weights that torchvision drew, and the boxes that it made of them.
    #[test]
    fn boxes_are_torchvisions() {
        for (weight, [x, y], [left, top, right, bottom], adjusted) in [
            (0.579, [5, 0], [2, 0, 8, 3], 0.85),
            (0.771, [4, 1], [2, 0, 6, 3], 0.9),
            (0.193, [9, 1], [4, 0, 12, 5], 0.666_666_666_666_666_7),
        ] {
            let part = MixedPart::Box { rows: [top, bottom], columns: [left, right] };
            assert_eq!(about([y, x], weight, [10, 12]), Mixed { weight: adjusted, part });
        }
    }

    #[test]
    fn what_cannot_be_mixed_is_refused() {
        let alpha =
            |found| MixingError::Number { what: "the alpha of mixup", found, allowed: "from 0.001 to 1000" };
        assert_eq!(Mixing::new().check(), Err(MixingError::Nothing));
        assert_eq!(Mixing::new().mixup(0.0).check(), Err(alpha(0.0)));
        assert_eq!(Mixing::new().mixup(f64::INFINITY).check(), Err(alpha(f64::INFINITY)));
        assert!(Mixing::new().cutmix(f64::NAN).check().is_err());
        assert!(Mixing::new().cutmix(1.0).probability(1.5).check().is_err());
        assert_eq!(Mixing::new().cutmix(1.0).mixup(0.2).check(), Ok(()));
    }
}
