//! What looks wrong in the data, judged by a sample of them.

use std::collections::BTreeMap;
use std::fmt;

use percolator::batch::ImageShape;
use serde::Serialize;

use super::sample::{Moments, Sample, Samples};

/// Fewer records than this prove nothing.
const RECORDS_MIN: usize = 32;
/// Labels lie together if this share of neighbours have the same one.
const NEIGHBOURS_ALIKE: f64 = 0.9;
/// And if so much more of the neighbours than of all pairs of records do.
const MORE_ALIKE: f64 = 0.1;
/// A mean that is further from the pixels' own than this, in standard deviations, does not fit.
const DEVIATIONS_MAX: f64 = 0.5;
/// Images whose shorter side is so many times that of what is used are much larger.
const MUCH_LARGER: f64 = 2.0;
/// Records with more channels than this hold no pictures.
const CHANNELS_MAX: usize = 4;

/// What the feed does with the records, as far as it matters here.
#[derive(Clone, Debug, Default)]
pub(super) struct Use {
    pub(super) shuffle: Mixing,
    /// A net is trained on the labels, as far as is known.
    pub(super) has_labels: bool,
    pub(super) batch_size: u64,
    pub(super) crop: Option<usize>,
    pub(super) resize: Option<[usize; 2]>,
    /// What is subtracted: nothing, one value, or one for each channel.
    pub(super) mean: Vec<f32>,
}

/// How well neighbours are parted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mixing {
    /// They stay together.
    #[default]
    None,
    /// They are parted within windows of so many records.
    Within(u64),
    /// They are parted.
    Whole,
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
    /// Each label's records lie together, and the feed does not part them.
    LabelsTogether {
        /// The share of neighbours that have the same label.
        neighbours_alike: f64,
    },
    /// An image is smaller than the crop.
    SmallerThanCrop {
        /// Its shape.
        shape: String,
        /// The side of the crop.
        crop: usize,
    },
    /// Pixels are infinite or no numbers.
    NotFinite {
        /// How many of the records that were looked at have such pixels.
        records: usize,
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

impl Finding {
    /// Whether a training run would fail, or learn worse. Otherwise, it only wastes time.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        !matches!(self, Finding::MuchLarger { .. })
    }
}

/// Judges a sample.
pub(super) fn findings(samples: &Samples, used: &Use) -> Vec<Finding> {
    let good: Vec<&Sample> = samples.good().collect();
    let bad = samples.bad.first().map(|(first, reason)| Finding::Undecodable {
        records: samples.bad.len(),
        first: *first,
        reason: reason.clone(),
    });
    // The first records of a source need not be like the others.
    let (labels, mean) = match samples.is_spread && good.len() >= RECORDS_MIN {
        true => (labels(samples, used), mean(&good, used)),
        false => (None, None),
    };
    let found = [bad, labels, shapes(&good, used), not_finite(&good), mean, larger(&good, used)];
    found.into_iter().flatten().collect()
}

fn labels(samples: &Samples, used: &Use) -> Option<Finding> {
    let first = samples.good().next()?.label;
    if !used.has_labels {
        return None;
    }
    if samples.good().all(|sample| sample.label == first) {
        return Some(Finding::OneLabel { label: first });
    }
    let pairs = samples.runs.iter().flat_map(|run| run.windows(2));
    let (alike, neighbours) = pairs.fold((0_u32, 0_u32), |(alike, all), pair| {
        (alike + u32::from(pair[0].label == pair[1].label), all + 1)
    });
    let neighbours_alike = f64::from(alike) / f64::from(neighbours.max(1));
    let together =
        neighbours_alike >= NEIGHBOURS_ALIKE && neighbours_alike - alike_between_runs(samples)? >= MORE_ALIKE;
    // A label's stretch is at least as long as the sample can tell.
    let stretch = u64::from(neighbours / (neighbours - alike).max(1));
    let are_parted = match used.shuffle {
        Mixing::None => false,
        Mixing::Within(records) => records >= stretch,
        Mixing::Whole => true,
    };
    (together && !are_parted).then_some(Finding::LabelsTogether { neighbours_alike })
}

/// The share of the pairs of records of different runs that have the same label.
fn alike_between_runs(samples: &Samples) -> Option<f64> {
    let mut all: BTreeMap<i32, f64> = BTreeMap::new();
    let (mut within, mut pairs_within, mut records) = (0.0, 0.0, 0.0);
    for run in &samples.runs {
        let mut of_run: BTreeMap<i32, f64> = BTreeMap::new();
        for sample in run {
            *of_run.entry(sample.label).or_default() += 1.0;
            *all.entry(sample.label).or_default() += 1.0;
        }
        within += of_run.values().map(|count| count * count).sum::<f64>();
        pairs_within += (run.len() * run.len()) as f64;
        records += run.len() as f64;
    }
    let alike = all.values().map(|count| count * count).sum::<f64>() - within;
    let pairs = records * records - pairs_within;
    (pairs > 0.0).then(|| alike / pairs)
}

fn shapes(samples: &[&Sample], used: &Use) -> Option<Finding> {
    let first = samples.first()?.shape;
    if let (Some(crop), None) = (used.crop, used.resize) {
        let is_smaller = |shape: &ImageShape| shape.height.min(shape.width) < crop;
        if let Some(shape) = samples.iter().map(|sample| sample.shape).find(is_smaller) {
            return Some(Finding::SmallerThanCrop { shape: shape.to_string(), crop });
        }
    }
    let is_fixed = used.resize.is_some() || used.crop.is_some();
    let differs = |shape: &ImageShape| match is_fixed {
        true => shape.channels != first.channels,
        false => *shape != first,
    };
    let other = samples.iter().map(|sample| sample.shape).find(differs)?;
    (used.batch_size > 1).then(|| Finding::ShapesDiffer { one: first.to_string(), other: other.to_string() })
}

fn not_finite(samples: &[&Sample]) -> Option<Finding> {
    let is_finite = |sample: &Sample| sample.channels.iter().all(|channel| channel.mean().is_finite());
    let records = samples.iter().filter(|sample| !is_finite(sample)).count();
    (records > 0).then_some(Finding::NotFinite { records })
}

/// The moments of each channel, if all images have the same channels.
pub(super) fn channels<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Vec<Moments>> {
    let mut sums: Option<Vec<Moments>> = None;
    for Sample { channels, .. } in samples {
        let sums = sums.get_or_insert_with(|| vec![Moments::default(); channels.len()]);
        if sums.len() != channels.len() {
            return None;
        }
        sums.iter_mut().zip(channels).for_each(|(sum, channel)| *sum = sum.and(*channel));
    }
    sums
}

/// Judges the mean of pictures whose pixels are bytes.
fn mean(samples: &[&Sample], used: &Use) -> Option<Finding> {
    if !samples.iter().all(|sample| sample.is_bytes) {
        return None;
    }
    let channels = channels(samples.iter().copied()).filter(|channels| channels.len() <= CHANNELS_MAX)?;
    let means: Vec<f64> = used.mean.iter().copied().map(f64::from).collect();
    // The middle of all bytes centres pixels, and is no mean of theirs.
    let is_middle = |mean: f64| (mean - 127.75).abs() <= 0.25;
    let mean = match &*means {
        [] => return None,
        all if all.iter().copied().all(is_middle) => return None,
        [one] => vec![*one; channels.len()],
        _ if means.len() == channels.len() => means,
        // The feed itself refuses it.
        _ => return None,
    };
    let found: Vec<f64> = channels.iter().map(|channel| channel.mean()).collect();
    // In standard deviations, which a flat image has none of.
    let apart = |mean: &[f64]| {
        let pairs = mean.iter().zip(&channels);
        let apart = pairs.map(|(mean, channel)| (mean - channel.mean()).abs() / channel.deviation().max(1.0));
        apart.fold(0.0, f64::max)
    };
    let straight = apart(&mean);
    let unit: Vec<f64> = mean.iter().map(|mean| mean * 255.0).collect();
    let is_of_unit_pixels = mean.iter().all(|&mean| mean <= 1.0) && apart(&unit) < straight / 3.0;
    if is_of_unit_pixels {
        return Some(Finding::MeanDoesNotFit { mean, found, is_of_unit_pixels });
    }
    let reversed: Vec<f64> = mean.iter().rev().copied().collect();
    // A mean from elsewhere, as ImageNet's, is off by some tenths of a deviation, whichever way it lies.
    if mean.len() == 3 && apart(&reversed) < straight / 3.0 && straight > 0.05 {
        return Some(Finding::ChannelsReversed { mean, found });
    }
    (straight > DEVIATIONS_MAX).then_some(Finding::MeanDoesNotFit { mean, found, is_of_unit_pixels })
}

fn larger(samples: &[&Sample], used: &Use) -> Option<Finding> {
    let mut sides: Vec<usize> =
        samples.iter().map(|sample| sample.shape.height.min(sample.shape.width)).collect();
    sides.sort_unstable();
    let side = *sides.get(sides.len() / 2)?;
    let smallest = used.resize.map(|[height, width]| height.min(width)).or(used.crop)?;
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
                write!(f, "all labels are {label}: a net that learns from labels learns nothing from these")
            }
            Finding::LabelsTogether { neighbours_alike } => write!(
                f,
                "the records of each label lie together ({:.0} % of neighbours have the same one), and the \
                 feed does not part them: a batch has one class or two; use --shuffle global, or shuffle the \
                 records when they are converted",
                neighbours_alike * 100.0
            ),
            Finding::SmallerThanCrop { shape, crop } => write!(
                f,
                "an image is {shape}, and the crop {crop}x{crop}: a run fails when it gets there; resize the \
                 images, or crop less"
            ),
            Finding::NotFinite { records } => {
                write!(f, "{records} record(s) have pixels that are infinite or no numbers")
            }
            Finding::ShapesDiffer { one, other } => write!(
                f,
                "one image is {one} and another {other}: a batch needs one shape; crop or resize them, and \
                 choose colour or grey"
            ),
            Finding::ChannelsReversed { mean, found } => write!(
                f,
                "the mean ({}) fits the pixels ({}) better in the opposite order: perhaps the records' \
                 channels, or the mean's, are in the wrong order; Caffe's is blue, green, red",
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

    /// Pixels of about 104, 117 and 123, with deviations of 50.
    const PIXELS: [[f64; 2]; 3] = [[54.0, 154.0], [67.0, 167.0], [73.0, 173.0]];

    fn sample(label: i32, shape: [usize; 3]) -> Sample {
        let [channels, height, width] = shape;
        Sample {
            label,
            shape: ImageShape { channels, height, width },
            is_bytes: true,
            channels: PIXELS[..channels].iter().map(|pixels| Moments::of(pixels.iter().copied())).collect(),
        }
    }

    /// Runs of 16, evenly spread over `records` photographs that have these labels.
    fn photos(records: usize, label: impl Fn(usize) -> i32) -> Samples {
        let runs = 32.min(records / 16);
        let start = |run: usize| run * (records - 16) / (runs - 1).max(1);
        let run = |run| (start(run)..start(run) + 16).map(|at| sample(label(at), [3, 60, 80])).collect();
        Samples { runs: (0..runs).map(run).collect(), bad: Vec::new(), is_spread: true }
    }

    /// Looks random.
    fn mixed(at: usize) -> i32 {
        let number = at.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        i32::try_from((number >> 40) % 10).unwrap()
    }

    fn class(at: usize, records_each: usize) -> i32 {
        i32::try_from(at / records_each).unwrap()
    }

    fn training() -> Use {
        Use { has_labels: true, batch_size: 8, ..Use::default() }
    }

    fn with_mean(mean: &[f32]) -> Use {
        Use { mean: mean.to_vec(), ..training() }
    }

    #[test]
    fn good_data_have_no_findings() {
        let samples = photos(10_000, mixed);
        let means: [&[f32]; 6] =
            [&[], &[104.0, 117.0, 123.0], &[110.0], &[100.0, 110.0, 120.0], &[127.5], &[128.0; 3]];
        for mean in means {
            assert_eq!(findings(&samples, &with_mean(mean)), [], "{mean:?}");
        }
        assert_eq!(findings(&Samples::default(), &with_mean(&[1.0])), []);
        // Nine of ten records have one label, as clicks do.
        assert_eq!(findings(&photos(10_000, |at| i32::from(mixed(at) == 0)), &training()), []);
        // Numbers that are no classes ascend as well.
        assert_eq!(findings(&photos(10_000, |at| class(at, 1)), &training()), []);
    }

    #[test]
    fn labels_that_lie_together_are_found() {
        let sorted = [2, 10, 1000, 7000].map(|classes| photos(70_000, move |at| class(at, 70_000 / classes)));
        let two_parts = photos(40_000, |at| class(at % 20_000, 2000));
        let a_tenth = photos(40_000, |at| i32::from(at < 4000));
        let small = photos(64, |at| class(at, 8));
        for samples in sorted.iter().take(3).chain([&two_parts, &a_tenth, &small]) {
            let found = findings(samples, &training());
            assert!(matches!(*found, [Finding::LabelsTogether { .. }]), "{found:?}");
            let whole = Use { shuffle: Mixing::Whole, ..training() };
            assert_eq!(findings(samples, &whole), []);
            assert_eq!(findings(samples, &Use { has_labels: false, ..training() }), []);
        }
        let within = |records| Use { shuffle: Mixing::Within(records), ..training() };
        assert_eq!(findings(&sorted[1], &within(64)).len(), 1, "a window of a class mixes nothing");
        assert_eq!(findings(&sorted[2], &within(4096)), []);
    }

    #[test]
    fn one_label_is_found_if_the_sample_shows_all() {
        let one = photos(1000, |_| 3);
        assert_eq!(findings(&one, &training()), [Finding::OneLabel { label: 3 }]);
        assert_eq!(findings(&one, &Use { has_labels: false, ..training() }), []);
        assert_eq!(findings(&Samples { is_spread: false, ..one }, &training()), []);
        assert_eq!(findings(&photos(16, |_| 3), &training()), [], "few records prove nothing");
    }

    #[test]
    fn a_mean_is_compared_with_the_pixels() {
        let samples = photos(1000, mixed);
        let found = |mean: &[f32]| findings(&samples, &with_mean(mean));
        let reversed = found(&[123.0, 117.0, 104.0]);
        assert!(matches!(&*reversed, [Finding::ChannelsReversed { .. }]), "{reversed:?}");
        for unit in [&[0.407, 0.458, 0.482][..], &[0.44]] {
            let unit = found(unit);
            assert!(matches!(&*unit, [Finding::MeanDoesNotFit { is_of_unit_pixels: true, .. }]), "{unit:?}");
        }
        let other = found(&[30.0]);
        assert!(matches!(&*other, [Finding::MeanDoesNotFit { is_of_unit_pixels: false, .. }]), "{other:?}");
        let floats = samples
            .runs
            .iter()
            .map(|run| run.iter().map(|sample| Sample { is_bytes: false, ..sample.clone() }).collect());
        let floats = Samples { runs: floats.collect(), ..samples.clone() };
        assert_eq!(findings(&floats, &with_mean(&[0.4])), [], "whatever floats are");
    }

    #[test]
    fn pixels_that_are_no_numbers_are_found() {
        let mut samples = photos(1000, mixed);
        samples.runs[3][2].channels[1] = Moments::of([1.0, f64::NAN].into_iter());
        assert_eq!(findings(&samples, &training()), [Finding::NotFinite { records: 1 }]);
    }

    #[test]
    fn shapes_must_agree_if_nothing_makes_them_agree() {
        let mut samples = photos(1000, mixed);
        samples.runs[3][7] = sample(1, [3, 61, 80]);
        let differ = Finding::ShapesDiffer { one: "3x60x80".to_owned(), other: "3x61x80".to_owned() };
        assert_eq!(findings(&samples, &training()), [differ]);
        for used in [
            Use { crop: Some(40), ..training() },
            Use { resize: Some([40, 40]), ..training() },
            Use { batch_size: 1, ..training() },
        ] {
            assert_eq!(findings(&samples, &used), [], "{used:?}");
        }
        let smaller = findings(&samples, &Use { crop: Some(61), ..training() });
        assert_eq!(smaller, [Finding::SmallerThanCrop { shape: "3x60x80".to_owned(), crop: 61 }]);
        samples.runs[3][8] = sample(1, [1, 60, 80]);
        let used = Use { crop: Some(40), ..training() };
        assert_eq!(findings(&samples, &used).len(), 1, "a grey image among coloured");
    }

    #[test]
    fn images_that_are_much_larger_than_what_is_used_waste_time() {
        let samples = photos(1000, mixed);
        let with_crop = findings(&samples, &Use { crop: Some(30), ..training() });
        assert_eq!(with_crop, [Finding::MuchLarger { side: 60, used: 30, is_resized: false }]);
        assert!(!with_crop[0].is_wrong());
        let resized = findings(&samples, &Use { crop: Some(20), resize: Some([30, 30]), ..training() });
        assert_eq!(resized, [Finding::MuchLarger { side: 60, used: 30, is_resized: true }]);
        assert_eq!(findings(&samples, &Use { crop: Some(31), ..training() }), []);
    }

    #[test]
    fn each_finding_says_what_to_do() {
        let mut samples = photos(10_000, |at| class(at, 1000));
        samples.bad.push((9, "no JPEG".to_owned()));
        let said: Vec<_> = findings(&samples, &with_mean(&[2.0])).iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].starts_with("1 record(s) cannot be decoded, the first at position 9: no JPEG"));
        assert!(said[1].contains("lie together") && said[1].contains("--shuffle global"), "{said:?}");
        assert!(said[2].contains("(2.0, 2.0, 2.0) does not fit"), "{said:?}");
    }
}
