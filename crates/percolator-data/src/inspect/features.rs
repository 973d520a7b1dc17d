//! Which features TensorFlow's records have.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use percolator::example::{Example, Feature};
use serde::Serialize;

use crate::content::kind_name;

/// The most names of features that are kept: a generator's mistake may give each record its own.
const NAMES_MAX: usize = 1000;

/// A feature, over all records that were looked at.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FeatureReport {
    /// Its name.
    pub name: String,
    /// Its kinds, of which there is usually one: `bytes`, `float`, `int64`, `empty`.
    pub kinds: Vec<&'static str>,
    /// How many records have it.
    pub records: u64,
    /// The fewest values in a record that has it.
    pub values_min: usize,
    /// The most values.
    pub values_max: usize,
}

/// Features, by name.
#[derive(Debug, Default)]
pub(super) struct FeatureTally {
    known: BTreeMap<String, FeatureReport>,
    /// How often a record has a feature that is not among these.
    others: u64,
}

impl FeatureTally {
    pub(super) fn add(&mut self, example: &Example<'_>) {
        for (name, feature) in example.features().entries() {
            let values = values(feature);
            if !self.known.contains_key(name) {
                if self.known.len() >= NAMES_MAX {
                    self.others += 1;
                    continue;
                }
                let report = FeatureReport {
                    name: name.to_owned(),
                    kinds: Vec::new(),
                    records: 0,
                    values_min: values,
                    values_max: values,
                };
                self.known.insert(name.to_owned(), report);
            }
            if let Some(report) = self.known.get_mut(name) {
                report.add(1, &[kind_name(feature)], values, values);
            }
        }
    }

    pub(super) fn merge(mut self, other: FeatureTally) -> Self {
        self.others += other.others;
        for (name, more) in other.known {
            let has_room = self.known.len() < NAMES_MAX;
            match self.known.entry(name) {
                Entry::Occupied(mut report) => {
                    report.get_mut().add(more.records, &more.kinds, more.values_min, more.values_max);
                }
                Entry::Vacant(place) if has_room => {
                    place.insert(more);
                }
                Entry::Vacant(_) => self.others += more.records,
            }
        }
        self
    }

    /// The features, and how often a record has yet another one.
    pub(super) fn finish(self) -> (Vec<FeatureReport>, u64) {
        (self.known.into_values().collect(), self.others)
    }
}

impl FeatureReport {
    fn add(&mut self, records: u64, kinds: &[&'static str], min: usize, max: usize) {
        self.records += records;
        self.kinds
            .extend(kinds.iter().filter(|kind| !self.kinds.contains(kind)).copied().collect::<Vec<_>>());
        self.kinds.sort_unstable();
        self.values_min = self.values_min.min(min);
        self.values_max = self.values_max.max(max);
    }
}

/// The number of a feature's values.
pub(super) fn values(feature: Feature<'_>) -> usize {
    let bytes = feature.bytes().map(|list| list.len());
    let floats = || feature.floats().map(|list| list.len());
    let ints = || feature.ints().map(|list| list.len());
    bytes.or_else(floats).or_else(ints).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use percolator::example::ExampleWriter;

    use super::*;

    /// Nothing is left out silently, in one thread's tally or where two are put together.
    #[test]
    fn features_beyond_the_limit_are_counted() {
        let tally = |names: std::ops::Range<usize>| {
            let mut tally = FeatureTally::default();
            for name in names {
                let mut writer = ExampleWriter::new();
                writer.ints(&name.to_string(), [1]);
                tally.add(&Example::parse(&writer.to_bytes()).unwrap());
            }
            tally
        };
        let (listed, others) = tally(0..NAMES_MAX + 7).finish();
        assert_eq!((listed.len(), others), (NAMES_MAX, 7));
        let (listed, others) = tally(0..NAMES_MAX).merge(tally(NAMES_MAX - 1..NAMES_MAX + 4)).finish();
        assert_eq!((listed.len(), others), (NAMES_MAX, 4));
    }
}
