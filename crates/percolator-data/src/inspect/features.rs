//! Which features TensorFlow's records have.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use percolator::example::{Example, Feature};
use serde::Serialize;

use crate::content::kind_name;

/// The most names of features that are kept: a generator's mistake may give each record its own.
const NAMES_MAX: usize = 1000;

/// A feature, over all records that were looked at.
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
pub(super) struct FeatureTally(BTreeMap<String, FeatureReport>);

impl FeatureTally {
    pub(super) fn add(&mut self, example: &Example<'_>) {
        for (name, feature) in example.features().entries() {
            let values = values(feature);
            if !self.0.contains_key(name) {
                if self.0.len() >= NAMES_MAX {
                    continue;
                }
                let report = FeatureReport {
                    name: name.to_owned(),
                    kinds: Vec::new(),
                    records: 0,
                    values_min: values,
                    values_max: values,
                };
                self.0.insert(name.to_owned(), report);
            }
            if let Some(report) = self.0.get_mut(name) {
                report.add(1, &[kind_name(feature)], values, values);
            }
        }
    }

    pub(super) fn merge(mut self, other: FeatureTally) -> Self {
        for (name, more) in other.0 {
            let has_room = self.0.len() < NAMES_MAX;
            match self.0.entry(name) {
                Entry::Occupied(mut report) => {
                    report.get_mut().add(more.records, &more.kinds, more.values_min, more.values_max);
                }
                Entry::Vacant(place) if has_room => {
                    place.insert(more);
                }
                Entry::Vacant(_) => {}
            }
        }
        self
    }

    pub(super) fn finish(self) -> Vec<FeatureReport> {
        self.0.into_values().collect()
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
