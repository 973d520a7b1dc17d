//! Examples as prost reads them, and their features as values that compare.
//!
//! Maps are lists of entries here, because prost does not look at the wire type of a map's entry.

use std::collections::BTreeMap;

use percolator::example;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
struct BytesList {
    #[prost(bytes = "vec", repeated, tag = "1")]
    value: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct FloatList {
    #[prost(float, repeated, tag = "1")]
    value: Vec<f32>,
}

#[derive(Clone, PartialEq, Message)]
struct Int64List {
    #[prost(int64, repeated, tag = "1")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum Kind {
    #[prost(message, tag = "1")]
    Bytes(BytesList),
    #[prost(message, tag = "2")]
    Float(FloatList),
    #[prost(message, tag = "3")]
    Int64(Int64List),
}

#[derive(Clone, PartialEq, Message)]
struct Feature {
    #[prost(oneof = "Kind", tags = "1, 2, 3")]
    kind: Option<Kind>,
}

#[derive(Clone, PartialEq, Message)]
struct Entry {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    feature: Option<Feature>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Features {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Example {
    #[prost(message, optional, tag = "1")]
    pub(crate) features: Option<Features>,
}

#[derive(Clone, PartialEq, Message)]
struct FeatureList {
    #[prost(message, repeated, tag = "1")]
    features: Vec<Feature>,
}

#[derive(Clone, PartialEq, Message)]
struct ListEntry {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, optional, tag = "2")]
    list: Option<FeatureList>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct FeatureLists {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<ListEntry>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SequenceExample {
    #[prost(message, optional, tag = "1")]
    pub(crate) context: Option<Features>,
    #[prost(message, optional, tag = "2")]
    pub(crate) feature_lists: Option<FeatureLists>,
}

/// A feature's value: floats by their bits, for NaN does not equal itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Unset,
    Bytes(Vec<Vec<u8>>),
    Floats(Vec<u32>),
    Ints(Vec<i64>),
}

impl From<Feature> for Value {
    fn from(feature: Feature) -> Self {
        match feature.kind {
            None => Value::Unset,
            Some(Kind::Bytes(list)) => Value::Bytes(list.value),
            Some(Kind::Float(list)) => Value::Floats(list.value.into_iter().map(f32::to_bits).collect()),
            Some(Kind::Int64(list)) => Value::Ints(list.value),
        }
    }
}

impl From<example::Feature<'_>> for Value {
    fn from(feature: example::Feature<'_>) -> Self {
        let (value, len) = match feature {
            example::Feature::Unset => return Value::Unset,
            example::Feature::Bytes(list) => {
                (Value::Bytes(list.iter().map(<[u8]>::to_vec).collect()), list.len())
            }
            example::Feature::Floats(list) => {
                (Value::Floats(list.iter().map(f32::to_bits).collect()), list.len())
            }
            example::Feature::Ints(list) => (Value::Ints(list.iter().collect()), list.len()),
        };
        let found = match &value {
            Value::Unset => 0,
            Value::Bytes(list) => list.len(),
            Value::Floats(list) => list.len(),
            Value::Ints(list) => list.len(),
        };
        assert_eq!(len, found, "the length of a list");
        value
    }
}

/// Of several entries with one name, the last counts.
type Map<T> = BTreeMap<String, T>;

pub(crate) fn of_message(features: Option<&Features>) -> Map<Value> {
    let entries = features.iter().flat_map(|features| &features.entries);
    entries
        .map(|entry| (entry.name.clone(), entry.feature.clone().map_or(Value::Unset, Value::from)))
        .collect()
}

pub(crate) fn of_view(features: example::Features<'_>) -> Map<Value> {
    let map: Map<Value> =
        features.entries().map(|(name, feature)| (name.to_owned(), feature.into())).collect();
    for (name, value) in &map {
        assert_eq!(features.get(name).map(Value::from).as_ref(), Some(value));
    }
    map
}

pub(crate) fn lists_of_message(lists: Option<FeatureLists>) -> Map<Vec<Value>> {
    let entries = lists.into_iter().flat_map(|lists| lists.entries);
    entries
        .map(|entry| {
            let features = entry.list.into_iter().flat_map(|list| list.features);
            (entry.name, features.map(Value::from).collect())
        })
        .collect()
}

pub(crate) fn lists_of_view(lists: example::FeatureLists<'_>) -> Map<Vec<Value>> {
    lists.entries().map(|(name, list)| (name.to_owned(), list.iter().map(Value::from).collect())).collect()
}
