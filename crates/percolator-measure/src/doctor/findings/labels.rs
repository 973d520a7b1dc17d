//! Labels from which a net learns nothing, or too little.

use std::collections::BTreeMap;

use super::{Finding, Mixing, Use};
use crate::doctor::sample::Samples;

/// Labels lie together if this share of neighbours have the same one.
const NEIGHBOURS_ALIKE: f64 = 0.9;
/// And if so much more of the neighbours than of all pairs of records do.
const MORE_ALIKE: f64 = 0.1;

pub(super) fn labels(samples: &Samples, used: &Use) -> Option<Finding> {
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

#[cfg(test)]
mod tests {
    use super::super::findings;
    use super::super::made::{class, photos, training};
    use super::*;

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
}
