//! Which features TensorFlow's records have, and which parts those of other libraries.

use std::collections::BTreeMap;

use percolator::Dtype;
use percolator::example::{Example, Feature};
use percolator::source::{Part, RecordParts};
use serde::Serialize;

use crate::content::kind_name;

/// The most features that are kept: a generator's mistake may give each record its own.
const NAMES_MAX: usize = 1000;

/// The kind of a part that has members, or another value that no field takes.
pub(super) const MEMBERS: &str = "members";

/// A feature, or a part, over all records that were read.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FeatureReport {
    /// Its name.
    pub name: String,
    /// Its kinds, of which there is usually one: `bytes`, `float`, `int64`, `empty`; `members` of a part that
    /// no field takes as it is.
    pub kinds: Vec<&'static str>,
    /// How many records have it.
    pub records: u64,
    /// The fewest values in a record that has it.
    pub values_min: usize,
    /// The most values.
    pub values_max: usize,
    /// The bytes of the longest string; 0 if it has none.
    pub bytes_max: usize,
}

/// Features, by name. Beyond [`NAMES_MAX`], those whose names come first in the order of bytes are kept, so
/// that the same are kept however records are dealt to threads.
#[derive(Debug, Default)]
pub(super) struct FeatureTally {
    known: BTreeMap<String, FeatureReport>,
    /// How often a record has a feature that is not among these.
    others: u64,
}

impl FeatureTally {
    pub(super) fn add(&mut self, example: &Example<'_>) {
        for (name, feature) in example.features().entries() {
            let strings = feature.bytes().into_iter().flat_map(|list| list.iter());
            let longest = strings.map(<[u8]>::len).max().unwrap_or(0);
            self.add_one(name, kind_name(feature), values(feature), longest);
        }
    }

    /// Adds the parts of a record.
    pub(super) fn add_parts(&mut self, parts: &dyn RecordParts, record: &[u8]) {
        for name in parts.names(record) {
            let (kind, values, longest) = match parts.part(record, &name) {
                Ok(None) => ("empty", 0, 0),
                Ok(Some(Part::Bytes(bytes))) => ("bytes", 1, bytes.len()),
                Ok(Some(Part::Strings(strings))) => {
                    let longest = strings.iter().map(|string| string.len()).max();
                    ("bytes", strings.len(), longest.unwrap_or(0))
                }
                Ok(Some(Part::Int(_))) => ("int64", 1, 0),
                Ok(Some(Part::Float(_))) => ("float", 1, 0),
                Ok(Some(Part::Numbers { dtype, values })) => {
                    let is_float = matches!(dtype, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::Bf16);
                    (if is_float { "float" } else { "int64" }, values.len() / dtype.size(), 0)
                }
                Ok(Some(_)) | Err(_) => (MEMBERS, 0, 0),
            };
            self.add_one(&name, kind, values, longest);
        }
    }

    fn add_one(&mut self, name: &str, kind: &'static str, values: usize, bytes_max: usize) {
        let one = || FeatureReport {
            name: name.to_owned(),
            kinds: vec![kind],
            records: 1,
            values_min: values,
            values_max: values,
            bytes_max,
        };
        match self.known.get_mut(name) {
            Some(report) => report.add(&one()),
            None => self.keep(name, one),
        }
    }

    pub(super) fn merge(mut self, other: FeatureTally) -> Self {
        self.others += other.others;
        for (name, more) in other.known {
            match self.known.get_mut(&name) {
                Some(report) => report.add(&more),
                None => self.keep(&name, || more),
            }
        }
        self
    }

    /// Keeps a feature that is not known yet, if it is among the first.
    fn keep(&mut self, name: &str, report: impl FnOnce() -> FeatureReport) {
        if self.known.len() < NAMES_MAX {
            self.known.insert(name.to_owned(), report());
            return;
        }
        let is_first = self.known.last_key_value().is_some_and(|(last, _)| name < last.as_str());
        if is_first && let Some((_, last)) = self.known.pop_last() {
            self.others += last.records;
            self.known.insert(name.to_owned(), report());
        } else {
            self.others += report().records;
        }
    }

    /// The features, and how often a record has yet another one.
    pub(super) fn finish(self) -> (Vec<FeatureReport>, u64) {
        (self.known.into_values().collect(), self.others)
    }
}

impl FeatureReport {
    fn add(&mut self, more: &FeatureReport) {
        self.records += more.records;
        self.kinds.extend_from_slice(&more.kinds);
        self.kinds.sort_unstable();
        self.kinds.dedup();
        self.values_min = self.values_min.min(more.values_min);
        self.values_max = self.values_max.max(more.values_max);
        self.bytes_max = self.bytes_max.max(more.bytes_max);
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
    use proptest::prelude::*;

    use super::*;

    fn tally(names: impl IntoIterator<Item = usize>) -> FeatureTally {
        let mut tally = FeatureTally::default();
        for name in names {
            let mut writer = ExampleWriter::new();
            writer.ints(&format!("{name:05}"), [1]);
            tally.add(&Example::parse(&writer.to_bytes()).unwrap());
        }
        tally
    }

    /// Nothing is left out silently, in one thread's tally or where two are put together.
    #[test]
    fn features_beyond_the_limit_are_counted() {
        let (listed, others) = tally(0..NAMES_MAX + 7).finish();
        assert_eq!((listed.len(), others), (NAMES_MAX, 7));
        let (listed, others) = tally(0..NAMES_MAX).merge(tally(NAMES_MAX - 1..NAMES_MAX + 4)).finish();
        assert_eq!((listed.len(), others), (NAMES_MAX, 4));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(30))]

        /// However records are dealt to threads, the same is reported.
        #[test]
        fn threads_change_nothing(
            names in proptest::collection::vec(0..2 * NAMES_MAX, 2 * NAMES_MAX..4 * NAMES_MAX),
            dealt in proptest::collection::vec(0usize..3, 4 * NAMES_MAX),
        ) {
            let alone = tally(names.iter().copied()).finish();
            let of = |thread: usize| {
                let dealt = names.iter().zip(&dealt).filter(move |(_, to)| **to == thread);
                tally(dealt.map(|(name, _)| *name))
            };
            prop_assert_eq!(of(2).merge(of(0)).merge(of(1)).finish(), alone);
        }
    }
}
