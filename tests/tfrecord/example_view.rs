//! The views of `Example` and `SequenceExample` compared with prost's own decoding of the same bytes.
//!
//! Both read valid messages with everything that the format allows, and then the same messages damaged: with
//! edited bytes, and cut. They must accept and refuse alike, and agree on every value they accept.
//!
//! Maps are lists of entries here, because prost does not look at the wire type of a map's entry.

use std::collections::BTreeMap;

use percolator::example::{self, Example, ExampleWriter, SequenceExample};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
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
struct ProstExample {
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
struct ProstSequence {
    #[prost(message, optional, tag = "1")]
    context: Option<Features>,
    #[prost(message, optional, tag = "2")]
    feature_lists: Option<FeatureLists>,
}

/// A feature's value, comparable: floats by their bits.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
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

impl From<example::Feature<'_>> for Value {
    fn from(feature: example::Feature<'_>) -> Self {
        match feature {
            example::Feature::Unset => Value::Unset,
            example::Feature::Bytes(list) => {
                let values: Vec<_> = list.iter().map(<[u8]>::to_vec).collect();
                assert_eq!((list.len(), list.is_empty()), (values.len(), values.is_empty()));
                Value::Bytes(values)
            }
            example::Feature::Floats(list) => {
                let values: Vec<_> = list.iter().map(f32::to_bits).collect();
                assert_eq!((list.len(), list.is_empty()), (values.len(), values.is_empty()));
                Value::Floats(values)
            }
            example::Feature::Ints(list) => {
                let values: Vec<_> = list.iter().collect();
                assert_eq!((list.len(), list.is_empty()), (values.len(), values.is_empty()));
                Value::Ints(values)
            }
        }
    }
}

pub(crate) type Map<T> = BTreeMap<String, T>;

fn of_prost(features: Option<&Features>) -> Map<Value> {
    let entries = features.iter().flat_map(|features| &features.entries);
    entries
        .map(|entry| (entry.name.clone(), entry.feature.as_ref().map_or(Value::Unset, Value::from)))
        .collect()
}

pub(crate) fn of_view(features: example::Features<'_>) -> Map<Value> {
    let map: Map<Value> =
        features.entries().map(|(name, feature)| (name.to_owned(), feature.into())).collect();
    for (name, value) in &map {
        assert_eq!(features.get(name).map(Value::from).as_ref(), Some(value));
    }
    assert!(features.get("no feature has this name").is_none());
    map
}

/// What prost reads of an Example.
pub(crate) fn of_prosts_example(bytes: &[u8]) -> Option<Map<Value>> {
    Some(of_prost(ProstExample::decode(bytes).ok()?.features.as_ref()))
}

/// What prost reads of a sequence: its context, and its lists.
pub(crate) fn of_prosts_sequence(bytes: &[u8]) -> Option<(Map<Value>, Map<Vec<Value>>)> {
    let sequence = ProstSequence::decode(bytes).ok()?;
    let entries = sequence.feature_lists.iter().flat_map(|lists| &lists.entries);
    let lists = entries.map(|entry| {
        let features = entry.list.iter().flat_map(|list| &list.features);
        (entry.name.clone(), features.map(Value::from).collect())
    });
    Some((of_prost(sequence.context.as_ref()), lists.collect()))
}

/// Both accept these bytes, with the same values, or both refuse them.
#[track_caller]
fn check(bytes: &[u8]) {
    match (of_prosts_example(bytes), Example::parse(bytes)) {
        (Some(theirs), Ok(ours)) => {
            assert_eq!(theirs, of_view(ours.features()));
            assert!(!format!("{ours:?}").is_empty());
        }
        (None, Err(_)) => {}
        (theirs, ours) => panic!("prost: {theirs:?}\nview: {ours:?}\nbytes: {bytes:?}"),
    }
    match (of_prosts_sequence(bytes), SequenceExample::parse(bytes)) {
        (Some(theirs), Ok(ours)) => {
            let lists = ours.feature_lists();
            let lists_of_ours: Map<Vec<Value>> = lists
                .entries()
                .map(|(name, list)| (name.to_owned(), list.iter().map(Value::from).collect()))
                .collect();
            assert_eq!(theirs, (of_view(ours.context()), lists_of_ours));
            for (name, features) in &theirs.1 {
                assert_eq!(lists.get(name).map(|list| list.len()), Some(features.len()));
            }
        }
        (None, Err(_)) => {}
        (theirs, ours) => panic!("prost: {theirs:?}\nview: {ours:?}\nbytes: {bytes:?}"),
    }
}

fn chunk(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = key(number, 2);
    prost::encoding::encode_varint(bytes.len() as u64, &mut out);
    [&out, bytes].concat()
}

fn key(number: u32, wire_type: u32) -> Vec<u8> {
    varint(u64::from(number << 3 | wire_type))
}

fn varint(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    prost::encoding::encode_varint(value, &mut out);
    out
}

/// Parts of a message, one after the other.
fn several(part: impl Strategy<Value = Vec<u8>>, most: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(part, 0..most).prop_map(|parts| parts.concat())
}

/// A field that no message has, or has with another type.
fn unknown() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![8 => 4..20_u32, 1 => 1..4_u32];
    let leaf = number.clone().prop_flat_map(|number| {
        prop_oneof![
            any::<u64>().prop_map(move |value| [key(number, 0), varint(value)].concat()),
            any::<[u8; 8]>().prop_map(move |value| [&key(number, 1)[..], &value].concat()),
            vec(any::<u8>(), 0..9).prop_map(move |value| chunk(number, &value)),
            any::<[u8; 4]>().prop_map(move |value| [&key(number, 5)[..], &value].concat()),
        ]
    });
    leaf.prop_recursive(3, 8, 3, |inner| {
        (4..20_u32, vec(inner, 0..3))
            .prop_map(|(number, inner)| [key(number, 3), inner.concat(), key(number, 4)].concat())
    })
}

/// A known field, or, rarely, an unknown one.
fn or_unknown(field: impl Strategy<Value = Vec<u8>> + 'static) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![12 => field, 1 => unknown()]
}

fn feature() -> impl Strategy<Value = Vec<u8>> {
    let number =
        || prop_oneof![(any::<u64>(), 0..64_u32).prop_map(|(value, shift)| value >> shift), 0..200_u64];
    let ints = prop_oneof![
        2 => vec(number(), 0..20).prop_map(|each| {
            chunk(1, &each.into_iter().flat_map(varint).collect::<Vec<_>>())
        }),
        1 => number().prop_map(|value| [key(1, 0), varint(value)].concat()),
    ];
    let floats = prop_oneof![
        1 => vec(any::<[u8; 4]>(), 0..9).prop_map(|each| chunk(1, &each.concat())),
        2 => any::<[u8; 4]>().prop_map(|value| [&key(1, 5)[..], &value].concat()),
    ];
    let strings = vec(any::<u8>(), 0..9).prop_map(|value| chunk(1, &value));
    let list = prop_oneof![
        several(or_unknown(strings), 4).prop_map(|list| chunk(1, &list)),
        several(or_unknown(floats), 5).prop_map(|list| chunk(2, &list)),
        several(or_unknown(ints), 4).prop_map(|list| chunk(3, &list)),
    ];
    prop_oneof![3 => list.clone().boxed(), 1 => several(or_unknown(list), 4).boxed()]
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        9 => "[abc]{0,2}".prop_map(|name| chunk(1, name.as_bytes())),
        1 => vec(any::<u8>(), 0..3).prop_map(|name| chunk(1, &name)),
    ]
}

/// An entry of a map to these values.
fn entry(value: impl Strategy<Value = Vec<u8>> + Clone + 'static) -> impl Strategy<Value = Vec<u8>> {
    let value = value.prop_map(|value| chunk(2, &value));
    let usual = (name(), value.clone()).prop_map(|(name, value)| [name, value].concat());
    let odd = several(or_unknown(prop_oneof![name(), value]), 5);
    prop_oneof![3 => usual, 1 => odd].prop_map(|entry| chunk(1, &entry))
}

fn features() -> impl Strategy<Value = Vec<u8>> {
    several(or_unknown(entry(feature().boxed())), 5)
}

fn message() -> impl Strategy<Value = Vec<u8>> {
    let features = features().prop_map(|features| chunk(1, &features));
    let list = several(or_unknown(feature().prop_map(|feature| chunk(1, &feature))), 4).boxed();
    let lists = several(or_unknown(entry(list)), 4).prop_map(|lists| chunk(2, &lists));
    several(or_unknown(prop_oneof![2 => features, 1 => lists]), 3)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn both_read_the_same(bytes in message()) {
        check(&bytes);
    }

    #[test]
    fn both_judge_damage_alike(bytes in message(), edits in vec((any::<Index>(), any::<u8>()), 1..4)) {
        let mut damaged = bytes.clone();
        for (at, byte) in edits {
            if !damaged.is_empty() {
                let at = at.index(damaged.len());
                damaged[at] = byte;
            }
        }
        check(&damaged);
        for len in (0..bytes.len()).step_by(1 + bytes.len() / 20) {
            check(&bytes[..len]);
        }
    }

    #[test]
    fn what_is_written_is_read(
        ints in vec(any::<i64>(), 0..20),
        floats in vec(any::<f32>(), 0..9),
        strings in vec(vec(any::<u8>(), 0..300), 0..4),
        name in "\\PC{0,5}",
    ) {
        let mut writer = ExampleWriter::new();
        writer.ints("ints", ints.iter().copied()).floats("floats", floats.iter().copied());
        writer.bytes("strings", &strings).unset(&name);
        let record = writer.to_bytes();
        prop_assert_eq!(record.len(), writer.record_len());
        let bits = floats.iter().map(|value| value.to_bits()).collect();
        let mut wanted: Map<Value> = [
            ("ints", Value::Ints(ints)), ("floats", Value::Floats(bits)), ("strings", Value::Bytes(strings)),
        ].map(|(name, value)| (name.to_owned(), value)).into();
        wanted.insert(name, Value::Unset);
        prop_assert_eq!(of_prost(ProstExample::decode(&*record).unwrap().features.as_ref()), wanted);
        check(&record);
        writer.clear();
        prop_assert_eq!(writer.to_bytes(), b"\n\0");
    }
}

#[test]
fn groups_nest_as_deep_as_in_prost() {
    let nested = |groups: usize| [key(9, 3).repeat(groups), key(9, 4).repeat(groups)].concat();
    for groups in 90..=102 {
        check(&nested(groups));
        check(&chunk(1, &nested(groups)));
        check(&chunk(1, &chunk(1, &nested(groups))));
        check(&chunk(1, &chunk(1, &chunk(2, &nested(groups)))));
        check(&chunk(1, &chunk(1, &chunk(2, &chunk(3, &nested(groups))))));
        check(&chunk(2, &chunk(1, &chunk(2, &chunk(1, &chunk(2, &nested(groups)))))));
    }
}

#[test]
fn errors_say_where() {
    let refused = |bytes: &[u8]| Example::parse(bytes).unwrap_err().to_string();
    let name = [&chunk(1, b"a\xff")[..], &chunk(2, b"")].concat();
    assert_eq!(
        refused(&chunk(1, &chunk(1, &name))),
        "not a tf.train.Example: the name \"a\\xff\" at byte 6 is not UTF-8"
    );
    let list = chunk(2, &chunk(3, &chunk(1, &[1, 0x80])));
    assert_eq!(
        refused(&chunk(1, &chunk(1, &list))),
        "not a tf.train.Example: the varint at byte 11 does not end within its message and within 64 bits"
    );
    assert_eq!(
        refused(&[8, 1]),
        "not a tf.train.Example: field 1 at byte 0 has wire type 0, but must have 2"
    );
    assert!(refused(&[10, 5, 1]).contains("takes 5 bytes, but 1 are left"));
}
