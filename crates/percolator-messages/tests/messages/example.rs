//! The views of `Example` and `SequenceExample` compared with prost's own decoding of the same bytes.
//!
//! Both read valid messages with everything that the format allows, and then the same messages damaged: with
//! edited bytes, and cut. They must accept and refuse alike, and agree on every value they accept.

use percolator_messages::example::{Example, ExampleWriter, SequenceExample};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::twin::{Map, Value, lists_of_view, of_prosts_example, of_prosts_sequence, of_view};

/// Both accept these bytes, with the same values, or both refuse them.
#[track_caller]
fn check(bytes: &[u8]) {
    match (of_prosts_example(bytes), Example::parse(bytes)) {
        (Some(theirs), Ok(ours)) => {
            assert_eq!(theirs, of_view(ours.features()));
            assert!(ours.features().get("no feature has this name").is_none());
            assert!(!format!("{ours:?}").is_empty());
        }
        (None, Err(_)) => {}
        (theirs, ours) => panic!("prost: {theirs:?}\nview: {ours:?}\nbytes: {bytes:?}"),
    }
    match (of_prosts_sequence(bytes), SequenceExample::parse(bytes)) {
        (Some(theirs), Ok(ours)) => {
            let lists = ours.feature_lists();
            assert_eq!(theirs, (of_view(ours.context()), lists_of_view(lists)));
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
        prop_assert_eq!(of_prosts_example(&record), Some(wanted));
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
