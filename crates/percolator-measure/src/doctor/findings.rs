//! What looks wrong in the data, judged by a sample of them.

use std::collections::BTreeSet;
use std::fmt;

use percolator::batch::ImageShape;
use serde::Serialize;

use super::sample::{Moments, Sample, Samples};

/// Fewer records than this prove nothing of labels.
const LABELS_MIN: usize = 16;
/// A mean that is further from the pixels' own than this, in standard deviations, does not fit.
const DEVIATIONS_MAX: f64 = 0.5;
/// Images whose shorter side is so many times the crop's are much larger.
const MUCH_LARGER: f64 = 2.0;

/// What the feed does with the records, as far as it matters here.
#[derive(Clone, Debug, Default)]
pub(super) struct Use {
    pub(super) is_shuffled: bool,
    pub(super) is_training: bool,
    pub(super) batch_size: u64,
    pub(super) crop: u32,
    pub(super) resize: Option<[usize; 2]>,
    /// What is subtracted: nothing, one value, or one for each channel.
    pub(super) mean: Vec<f32>,
}

/// Something that looks wrong in the data, or in how they are used.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub enum Finding {
    /// Records cannot be decoded.
    Undecodable {
        /// How many of those that were looked at.
        records: usize,
        /// The position of the first one.
        first: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// All labels are the same.
    OneLabel {
        /// The label.
        label: i32,
    },
    /// Each label's records lie together, and the feed does not shuffle.
    LabelsTogether {
        /// The number of labels.
        labels: usize,
    },
    /// The shapes differ, and nothing makes them one.
    ShapesDiffer {
        /// One shape.
        one: String,
        /// Another.
        other: String,
    },
    /// The mean fits the channels in the opposite order.
    ChannelsReversed {
        /// What is subtracted from each channel.
        mean: Vec<f64>,
        /// The mean of each channel's pixels.
        found: Vec<f64>,
    },
    /// The mean is another one than the pixels'.
    MeanDoesNotFit {
        /// What is subtracted from each channel.
        mean: Vec<f64>,
        /// The mean of each channel's pixels.
        found: Vec<f64>,
        /// Whether the mean would fit if pixels were from 0 to 1.
        is_of_unit_pixels: bool,
    },
    /// Images are much larger than what is used of them.
    MuchLarger {
        /// The median of the images' shorter sides, in pixels.
        side: usize,
        /// The shorter side of what is used.
        used: usize,
        /// Whether they are resized, so that they need not be cropped from.
        is_resized: bool,
    },
}

/// Judges a sample.
pub(super) fn findings(samples: &Samples, used: &Use) -> Vec<Finding> {
    let good = &samples.good;
    let bad = samples.bad.first().map(|(first, reason)| Finding::Undecodable {
        records: samples.bad.len(),
        first: *first,
        reason: reason.clone(),
    });
    let found = [bad, labels(good, used), shapes(good, used), mean(good, used), larger(good, used)];
    found.into_iter().flatten().collect()
}

fn labels(samples: &[Sample], used: &Use) -> Option<Finding> {
    let labels: BTreeSet<i32> = samples.iter().map(|sample| sample.label).collect();
    let first = *labels.first()?;
    if samples.len() < LABELS_MIN {
        return None;
    }
    if labels.len() == 1 {
        return Some(Finding::OneLabel { label: first });
    }
    let changes = samples.windows(2).filter(|pair| pair[0].label != pair[1].label).count();
    let are_together = changes + 1 == labels.len() && labels.len() <= samples.len() / 2;
    let matters = used.is_training && !used.is_shuffled;
    (are_together && matters).then_some(Finding::LabelsTogether { labels: labels.len() })
}

fn shapes(samples: &[Sample], used: &Use) -> Option<Finding> {
    let first = samples.first()?.shape;
    let is_fixed = used.resize.is_some() || used.crop > 0 || used.batch_size <= 1;
    let differs = |shape: ImageShape| match is_fixed {
        true => shape.channels != first.channels,
        false => shape != first,
    };
    let other = samples.iter().map(|sample| sample.shape).find(|&shape| differs(shape))?;
    (used.batch_size > 1).then(|| Finding::ShapesDiffer { one: first.to_string(), other: other.to_string() })
}

/// The moments of each channel, if all images have the same channels.
pub(super) fn channels(samples: &[Sample]) -> Option<Vec<Moments>> {
    let count = samples.first()?.channels.len();
    samples.iter().all(|sample| sample.channels.len() == count).then(|| {
        let channel = |number: usize| {
            let of_it = samples.iter().map(|sample| sample.channels[number]);
            of_it.reduce(Moments::and).unwrap_or_default()
        };
        (0..count).map(channel).collect()
    })
}

fn mean(samples: &[Sample], used: &Use) -> Option<Finding> {
    let channels = channels(samples)?;
    let means: Vec<f64> = used.mean.iter().copied().map(f64::from).collect();
    let mean = match &*means {
        [] => return None,
        [one] => vec![*one; channels.len()],
        _ if means.len() == channels.len() => means,
        // The feed itself refuses it.
        _ => return None,
    };
    let found: Vec<f64> = channels.iter().map(|channel| channel.mean()).collect();
    // In standard deviations, which a flat image has none of.
    let apart = |mean: &[f64]| {
        let pairs = mean.iter().zip(&channels);
        let apart =
            pairs.map(|(mean, channel)| (mean - channel.mean()).abs() / channel.deviation().max(1e-3));
        apart.fold(0.0, f64::max)
    };
    let reversed: Vec<f64> = mean.iter().rev().copied().collect();
    let (straight, backwards) = (apart(&mean), apart(&reversed));
    // A mean from elsewhere, as ImageNet's, is off by some tenths of a deviation, whichever way it lies.
    if backwards < straight / 3.0 && straight > 0.05 {
        return Some(Finding::ChannelsReversed { mean, found });
    }
    if straight <= DEVIATIONS_MAX {
        return None;
    }
    let unit: Vec<f64> = mean.iter().map(|mean| mean * 255.0).collect();
    Some(Finding::MeanDoesNotFit { is_of_unit_pixels: apart(&unit) <= DEVIATIONS_MAX, mean, found })
}

fn larger(samples: &[Sample], used: &Use) -> Option<Finding> {
    let mut sides: Vec<usize> =
        samples.iter().map(|sample| sample.shape.height.min(sample.shape.width)).collect();
    sides.sort_unstable();
    let side = *sides.get(sides.len() / 2)?;
    let crop = usize::try_from(used.crop).ok().filter(|&crop| crop > 0);
    let smallest = used.resize.map(|[height, width]| height.min(width)).or(crop)?;
    let is_much = side as f64 >= MUCH_LARGER * smallest as f64;
    is_much.then_some(Finding::MuchLarger { side, used: smallest, is_resized: used.resize.is_some() })
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list =
            |values: &[f64]| values.iter().map(|value| format!("{value:.1}")).collect::<Vec<_>>().join(", ");
        match self {
            Finding::Undecodable { records, first, reason } => write!(
                f,
                "{records} record(s) cannot be decoded, the first at position {first}: {reason}; percolator \
                 verify lists all, and --repair leaves them out"
            ),
            Finding::OneLabel { label } => {
                write!(f, "all labels are {label}: a net learns nothing from them")
            }
            Finding::LabelsTogether { labels } => write!(
                f,
                "the records of each of the {labels} labels lie together, and the feed does not shuffle: a \
                 batch has one class or two; shuffle the feed, or the records when they are converted"
            ),
            Finding::ShapesDiffer { one, other } => write!(
                f,
                "one image is {one} and another {other}: a batch needs one shape; crop or resize them, and \
                 choose colour or grey"
            ),
            Finding::ChannelsReversed { mean, found } => write!(
                f,
                "the mean ({}) fits the pixels ({}) in the opposite order: the records' channels, or the \
                 mean's, are in the wrong order; Caffe's is blue, green, red",
                list(mean),
                list(found)
            ),
            Finding::MeanDoesNotFit { mean, found, is_of_unit_pixels: true } => write!(
                f,
                "the mean ({}) is that of pixels from 0 to 1, and it is subtracted from pixels from 0 to \
                 255, whose mean is {}: multiply it by 255",
                list(mean),
                list(found)
            ),
            Finding::MeanDoesNotFit { mean, found, .. } => write!(
                f,
                "the mean ({}) does not fit the pixels, whose mean is {}: percolator mean computes theirs",
                list(mean),
                list(found)
            ),
            Finding::MuchLarger { side, used, is_resized: true } => write!(
                f,
                "images of {side} pixels are resized to {used} each time that they are fed: convert them \
                 with a resize once, or decode them smaller (--scaled-decode)"
            ),
            Finding::MuchLarger { side, used, .. } => write!(
                f,
                "images of {side} pixels are cropped to {used}: most of each image is decoded, or read, in \
                 vain; convert them with a resize to somewhat more than the crop"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(position: u64, label: i32, shape: [usize; 3], pixels: &[[f64; 2]]) -> Sample {
        let [channels, height, width] = shape;
        assert_eq!(channels, pixels.len());
        Sample {
            position,
            label,
            is_encoded: false,
            shape: ImageShape { channels, height, width },
            channels: pixels.iter().map(|pixels| Moments::of(pixels.iter().copied())).collect(),
        }
    }

    /// Pixels of about 104, 117 and 123, with deviations of 50.
    const PIXELS: [[f64; 2]; 3] = [[54.0, 154.0], [67.0, 167.0], [73.0, 173.0]];

    fn photos(labels: impl Iterator<Item = i32>) -> Samples {
        let samples = labels.enumerate().map(|(at, label)| sample(at as u64, label, [3, 60, 80], &PIXELS));
        Samples { good: samples.collect(), bad: Vec::new() }
    }

    fn training() -> Use {
        Use { is_training: true, batch_size: 8, ..Use::default() }
    }

    fn with_mean(mean: &[f32]) -> Use {
        Use { mean: mean.to_vec(), ..training() }
    }

    #[test]
    fn good_data_have_no_findings() {
        let samples = photos((0..100).map(|at| at * 7 % 10));
        for used in [
            training(),
            with_mean(&[104.0, 117.0, 123.0]),
            with_mean(&[110.0]),
            with_mean(&[100.0, 110.0, 120.0]),
        ] {
            assert_eq!(findings(&samples, &used), [], "{used:?}");
        }
        assert_eq!(findings(&Samples::default(), &with_mean(&[1.0])), []);
    }

    #[test]
    fn labels_that_cannot_be_learned_from_are_found() {
        assert_eq!(findings(&photos((0..50).map(|_| 3)), &training()), [Finding::OneLabel { label: 3 }]);
        let sorted = photos((0..50).map(|at| at / 10));
        assert_eq!(findings(&sorted, &training()), [Finding::LabelsTogether { labels: 5 }]);
        let other_order = photos((0..50).map(|at| (at / 10) ^ 1));
        assert_eq!(findings(&other_order, &training()).len(), 1);
        for used in [Use { is_shuffled: true, ..training() }, Use { is_training: false, ..training() }] {
            assert_eq!(findings(&sorted, &used), []);
        }
        // Numbers that are no classes ascend as well, and few records prove nothing.
        assert_eq!(findings(&photos(0..50), &training()), []);
        assert_eq!(findings(&photos((0..10).map(|_| 3)), &training()), []);
    }

    #[test]
    fn a_mean_is_compared_with_the_pixels() {
        let samples = photos((0..50).map(|at| at % 10));
        let found = |mean: &[f32]| findings(&samples, &with_mean(mean));
        let reversed = found(&[123.0, 117.0, 104.0]);
        assert!(matches!(&*reversed, [Finding::ChannelsReversed { .. }]), "{reversed:?}");
        let unit = found(&[0.407, 0.458, 0.482]);
        assert!(matches!(&*unit, [Finding::MeanDoesNotFit { is_of_unit_pixels: true, .. }]), "{unit:?}");
        let other = found(&[30.0]);
        assert!(matches!(&*other, [Finding::MeanDoesNotFit { is_of_unit_pixels: false, .. }]), "{other:?}");
    }

    #[test]
    fn shapes_must_agree_if_nothing_makes_them_agree() {
        let mut samples = photos((0..50).map(|at| at % 10));
        samples.good[7] = sample(7, 1, [3, 61, 80], &PIXELS);
        let differ = Finding::ShapesDiffer { one: "3x60x80".to_owned(), other: "3x61x80".to_owned() };
        assert_eq!(findings(&samples, &training()), [differ]);
        for used in [
            Use { crop: 40, ..training() },
            Use { resize: Some([40, 40]), ..training() },
            Use { batch_size: 1, ..training() },
        ] {
            assert_eq!(findings(&samples, &used), [], "{used:?}");
        }
        samples.good[8] = sample(8, 1, [1, 60, 80], &PIXELS[..1]);
        assert_eq!(
            findings(&samples, &Use { crop: 40, ..training() }).len(),
            1,
            "a grey image among coloured"
        );
    }

    #[test]
    fn images_that_are_much_larger_than_what_is_used_are_found() {
        let samples = photos((0..50).map(|at| at % 10));
        let with_crop = findings(&samples, &Use { crop: 30, ..training() });
        assert_eq!(with_crop, [Finding::MuchLarger { side: 60, used: 30, is_resized: false }]);
        let resized = findings(&samples, &Use { crop: 20, resize: Some([30, 30]), ..training() });
        assert_eq!(resized, [Finding::MuchLarger { side: 60, used: 30, is_resized: true }]);
        assert_eq!(findings(&samples, &Use { crop: 31, ..training() }), []);
    }

    #[test]
    fn each_finding_says_what_to_do() {
        let mut samples = photos((0..50).map(|at| at / 10));
        samples.bad.push((9, "no JPEG".to_owned()));
        let said: Vec<_> = findings(&samples, &with_mean(&[1.0])).iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].starts_with("1 record(s) cannot be decoded, the first at position 9: no JPEG"));
        assert!(said[1].contains("each of the 5 labels lie together"), "{said:?}");
        assert!(said[2].contains("(1.0, 1.0, 1.0) does not fit"), "{said:?}");
    }
}
