//! Pixels that are not numbers or are in another order, and means that are not those of the pixels.

use super::{Finding, Use};
use crate::doctor::sample::{Moments, Sample, Samples};

/// A mean that is further from the pixels' own than this, in standard deviations, does not fit.
const DEVIATIONS_MAX: f64 = 0.5;
/// Records with more channels than this hold no pictures.
const CHANNELS_MAX: usize = 4;

pub(super) fn not_finite(samples: &[&Sample]) -> Option<Finding> {
    let is_finite = |sample: &Sample| sample.channels.iter().all(|channel| channel.mean().is_finite());
    let records = samples.iter().filter(|sample| !is_finite(sample)).count();
    (records > 0).then_some(Finding::NotFinite { records })
}

/// Judges the order in which the pixels of raw images lie.
pub(super) fn order(samples: &Samples, used: &Use) -> Option<Finding> {
    let is_wrong = match used.is_interleaved {
        true => samples.order.is_planar(),
        false => samples.order.is_interleaved(),
    };
    let (is_interleaved, can_be_said) = (!used.is_interleaved, used.has_examples);
    is_wrong.then_some(Finding::PixelOrder { is_interleaved, can_be_said })
}

/// The moments of each channel, if all images have the same channels.
pub(in crate::doctor) fn channels<'a>(samples: impl Iterator<Item = &'a Sample>) -> Option<Vec<Moments>> {
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
pub(super) fn mean(samples: &[&Sample], used: &Use) -> Option<Finding> {
    if !samples.iter().all(|sample| sample.is_bytes) {
        return None;
    }
    let channels = channels(samples.iter().copied()).filter(|channels| channels.len() <= CHANNELS_MAX)?;
    let means: Vec<f64> = used.mean.iter().copied().map(f64::from).collect();
    // The middle of all byte values centres pixels, but is not their mean.
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

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::super::made::{mixed, photos, training, with_mean};
    use super::*;
    use crate::doctor::sample::Samples;

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
}
