//! Examples as prost reads them, and their features as values that compare: the twin of the views.
//!
//! Maps are lists of entries here, because prost does not look at the wire type of a map's entry.

#![allow(unreachable_pub, missing_docs, reason = "tests and fuzz targets share this file")]

use std::collections::BTreeMap;

use percolator_messages::example as view;
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
struct Features {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, Message)]
struct Example {
    #[prost(message, optional, tag = "1")]
    features: Option<Features>,
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
struct FeatureLists {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<ListEntry>,
}

#[derive(Clone, PartialEq, Message)]
struct SequenceExample {
    #[prost(message, optional, tag = "1")]
    context: Option<Features>,
    #[prost(message, optional, tag = "2")]
    feature_lists: Option<FeatureLists>,
}

/// A feature's value, comparable: floats by their bits.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Unset,
    Bytes(Vec<Vec<u8>>),
    Floats(Vec<u32>),
    Ints(Vec<i64>),
}

impl From<&Feature> for Value {
    fn from(feature: &Feature) -> Self {
        match &feature.kind {
            None => Value::Unset,
            Some(Kind::Bytes(list)) => Value::Bytes(list.value.clone()),
            Some(Kind::Float(list)) => {
                Value::Floats(list.value.iter().map(|value| value.to_bits()).collect())
            }
            Some(Kind::Int64(list)) => Value::Ints(list.value.clone()),
        }
    }
}

impl From<view::Feature<'_>> for Value {
    fn from(feature: view::Feature<'_>) -> Self {
        match feature {
            view::Feature::Unset => Value::Unset,
            view::Feature::Bytes(list) => {
                let values: Vec<_> = list.iter().map(<[u8]>::to_vec).collect();
                assert_eq!((list.len(), list.is_empty()), (values.len(), values.is_empty()));
                Value::Bytes(values)
            }
            view::Feature::Floats(list) => {
                let values: Vec<_> = list.iter().map(f32::to_bits).collect();
                assert_eq!((list.len(), list.is_empty()), (values.len(), values.is_empty()));
                Value::Floats(values)
            }
            view::Feature::Ints(list) => {
                let values: Vec<_> = list.iter().collect();
                assert_eq!((list.len(), list.is_empty()), (values.len(), values.is_empty()));
                Value::Ints(values)
            }
        }
    }
}

/// Of several entries with one name, the last counts.
pub type Map<T> = BTreeMap<String, T>;

fn of_prost(features: Option<&Features>) -> Map<Value> {
    let entries = features.iter().flat_map(|features| &features.entries);
    entries
        .map(|entry| (entry.name.clone(), entry.feature.as_ref().map_or(Value::Unset, Value::from)))
        .collect()
}

pub fn of_view(features: view::Features<'_>) -> Map<Value> {
    let map: Map<Value> =
        features.entries().map(|(name, feature)| (name.to_owned(), feature.into())).collect();
    for (name, value) in &map {
        assert_eq!(features.get(name).map(Value::from).as_ref(), Some(value));
    }
    map
}

/// What prost reads of an Example.
pub fn of_prosts_example(bytes: &[u8]) -> Option<Map<Value>> {
    Some(of_prost(Example::decode(bytes).ok()?.features.as_ref()))
}

/// What prost reads of a sequence: its context, and its lists.
pub fn of_prosts_sequence(bytes: &[u8]) -> Option<(Map<Value>, Map<Vec<Value>>)> {
    let sequence = SequenceExample::decode(bytes).ok()?;
    let entries = sequence.feature_lists.iter().flat_map(|lists| &lists.entries);
    let lists = entries.map(|entry| {
        let features = entry.list.iter().flat_map(|list| &list.features);
        (entry.name.clone(), features.map(Value::from).collect())
    });
    Some((of_prost(sequence.context.as_ref()), lists.collect()))
}

pub fn lists_of_view(lists: view::FeatureLists<'_>) -> Map<Vec<Value>> {
    lists.entries().map(|(name, list)| (name.to_owned(), list.iter().map(Value::from).collect())).collect()
}
