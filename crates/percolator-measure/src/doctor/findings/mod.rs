//! What looks wrong in the data, judged by a sample of them.

mod finding;
mod labels;
#[cfg(test)]
mod made;
mod pixels;
mod shapes;

pub use self::finding::Finding;
pub(super) use self::pixels::channels;

use super::sample::{Sample, Samples};

/// Fewer records than this prove nothing.
const RECORDS_MIN: usize = 32;

/// What the feed does with the records, as far as it matters here.
#[derive(Clone, Debug, Default)]
pub(in crate::doctor) struct Use {
    pub(in crate::doctor) shuffle: Mixing,
    /// A net is trained on the labels, as far as is known.
    pub(in crate::doctor) has_labels: bool,
    pub(in crate::doctor) batch_size: u64,
    pub(in crate::doctor) crop: Option<usize>,
    /// Whether operations give all images one size.
    pub(in crate::doctor) is_sized: bool,
    pub(in crate::doctor) resize: Option<[usize; 2]>,
    /// Records are Examples, and not Datums.
    pub(in crate::doctor) has_examples: bool,
    /// Raw images are read as if each pixel's channels lay side by side.
    pub(in crate::doctor) is_interleaved: bool,
    /// What is subtracted: nothing, one value, or one for each channel.
    pub(in crate::doctor) mean: Vec<f32>,
}

/// How well neighbours are parted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::doctor) enum Mixing {
    /// They stay together.
    #[default]
    None,
    /// They are parted within windows of so many records.
    Within(u64),
    /// They are parted.
    Whole,
}

/// Judges a sample.
pub(in crate::doctor) fn findings(samples: &Samples, used: &Use) -> Vec<Finding> {
    let good: Vec<&Sample> = samples.good().collect();
    let bad = samples.bad.first().map(|(first, reason)| Finding::Undecodable {
        records: samples.bad.len(),
        first: *first,
        reason: reason.clone(),
    });
    // The first records of a source need not be like the others.
    let (labels, mean) = match samples.is_spread && good.len() >= RECORDS_MIN {
        true => (labels::labels(samples, used), pixels::mean(&good, used)),
        false => (None, None),
    };
    let found = [
        bad,
        labels,
        shapes::shapes(&good, used),
        pixels::order(samples, used),
        pixels::not_finite(&good),
        mean,
        shapes::larger(&good, used),
    ];
    found.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::made::{class, mixed, photos, training, with_mean};
    use super::*;

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
    fn each_finding_says_what_to_do() {
        let mut samples = photos(10_000, |at| class(at, 1000));
        samples.bad.push((9, "no JPEG".to_owned()));
        let said: Vec<_> = findings(&samples, &with_mean(&[2.0])).iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].starts_with("1 record(s) cannot be decoded, the first at position 9: no JPEG"));
        assert!(said[1].contains("lie together") && said[1].contains("shuffle all of them"), "{said:?}");
        assert!(said[2].contains("(2.0, 2.0, 2.0) does not fit"), "{said:?}");
    }
}
