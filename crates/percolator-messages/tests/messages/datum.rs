//! The view of a `Datum` compared with prost's own decoding of the same bytes.
//!
//! If only one of the two accepts a record, or they decode it differently, a net trains on other data than
//! the tools show. So both read valid messages with everything that the format allows, and then the same
//! messages damaged: with edited bytes, and cut at every length. They must accept and refuse alike, and agree
//! on every value they accept.

use percolator_messages::Datum;
use percolator_net::proto;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use prost::Message;

/// A field as a writer might encode it.
#[derive(Clone, Debug)]
struct Field {
    number: u32,
    value: Value,
    /// Bytes of the key beyond those it needs.
    key_padding: usize,
}

#[derive(Clone, Debug)]
enum Value {
    Varint(u64),
    Fixed64([u8; 8]),
    Chunk(Vec<u8>),
    Group(Vec<Field>),
    Fixed32([u8; 4]),
}

impl Field {
    fn new(number: u32, value: Value) -> Field {
        Field { number, value, key_padding: 0 }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let wire_type = match &self.value {
            Value::Varint(_) => 0,
            Value::Fixed64(_) => 1,
            Value::Chunk(_) => 2,
            Value::Group(_) => 3,
            Value::Fixed32(_) => 5,
        };
        encode_key(self.number << 3 | wire_type, self.key_padding, out);
        match &self.value {
            Value::Varint(value) => prost::encoding::encode_varint(*value, out),
            Value::Fixed64(bytes) => out.extend(bytes),
            Value::Chunk(bytes) => {
                prost::encoding::encode_varint(bytes.len() as u64, out);
                out.extend(bytes);
            }
            Value::Group(fields) => {
                fields.iter().for_each(|field| field.encode(out));
                encode_key(self.number << 3 | 4, self.key_padding, out);
            }
            Value::Fixed32(bytes) => out.extend(bytes),
        }
    }
}

fn encode_key(key: u32, padding: usize, out: &mut Vec<u8>) {
    prost::encoding::encode_varint(u64::from(key), out);
    for _ in 0..padding {
        *out.last_mut().expect("a key has a byte") |= 0x80;
        out.push(0);
    }
}

fn encode(fields: &[Field]) -> Vec<u8> {
    let mut out = Vec::new();
    fields.iter().for_each(|field| field.encode(&mut out));
    out
}

fn any_varint() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..300_u64,
        any::<u64>(),
        any::<i32>().prop_map(|value| i64::from(value) as u64),
        any::<u32>().prop_map(|high| u64::from(high) << 32),
    ]
}

/// Fields that form one part of a message: more than one only for a run of floats.
fn known_fields() -> impl Strategy<Value = Vec<Field>> {
    let scalar = (select(vec![1, 2, 3, 5, 7]), any_varint())
        .prop_map(|(number, value)| vec![Field::new(number, Value::Varint(value))]);
    let data = vec(any::<u8>(), 0..200).prop_map(|bytes| vec![Field::new(4, Value::Chunk(bytes))]);
    let unpacked = vec((any::<[u8; 4]>(), padding()), 1..20).prop_map(|values| {
        let field = |(bytes, key_padding)| Field { number: 6, value: Value::Fixed32(bytes), key_padding };
        values.into_iter().map(field).collect()
    });
    let packed = vec(any::<[u8; 4]>(), 0..20)
        .prop_map(|values| vec![Field::new(6, Value::Chunk(values.into_flattened()))]);
    prop_oneof![4 => scalar, 1 => data, 2 => unpacked, 1 => packed]
}

fn padding() -> impl Strategy<Value = usize> {
    prop_oneof![20 => Just(0_usize), 1 => 1..4_usize]
}

/// A field that a `Datum` does not have. Inside a group it may have any number.
fn unknown_field() -> impl Strategy<Value = Field> {
    let leaf = prop_oneof![
        any_varint().prop_map(Value::Varint),
        any::<[u8; 8]>().prop_map(Value::Fixed64),
        vec(any::<u8>(), 0..20).prop_map(Value::Chunk),
        any::<[u8; 4]>().prop_map(Value::Fixed32),
    ];
    let value = leaf.prop_recursive(4, 16, 4, |inner| {
        let field = (1..20_u32, inner).prop_map(|(number, value)| Field::new(number, value));
        vec(field, 0..4).prop_map(Value::Group)
    });
    let number = prop_oneof![8..20_u32, 8..1_u32 << 29];
    (number, value, padding()).prop_map(|(number, value, key_padding)| Field { number, value, key_padding })
}

fn valid_message() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![4 => known_fields(), 1 => unknown_field().prop_map(|field| vec![field])];
    vec(part, 0..12).prop_map(|parts| encode(&parts.concat()))
}

/// A change to the bytes of a message.
#[derive(Clone, Debug)]
enum Edit {
    Flip(Index, u8),
    Insert(Index, u8),
    Delete(Index),
    /// Copies up to this many bytes from one place to another.
    Splice(Index, Index, usize),
}

impl Edit {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Edit::Insert(at, byte) => bytes.insert(at.index(bytes.len() + 1), *byte),
            _ if bytes.is_empty() => {}
            Edit::Flip(at, bit) => {
                let at = at.index(bytes.len());
                bytes[at] ^= 1 << bit;
            }
            Edit::Delete(at) => {
                bytes.remove(at.index(bytes.len()));
            }
            Edit::Splice(from, to, len) => {
                let from = from.index(bytes.len());
                let part: Vec<u8> = bytes[from..].iter().copied().take(*len).collect();
                let to = to.index(bytes.len());
                bytes.splice(to..to, part);
            }
        }
    }
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        (any::<Index>(), 0..8_u8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Edit::Insert(at, byte)),
        any::<Index>().prop_map(Edit::Delete),
        (any::<Index>(), any::<Index>(), 1..12_usize).prop_map(|(from, to, len)| Edit::Splice(from, to, len)),
    ]
}

/// Bytes that mean something almost anywhere: keys, small lengths, and the ends of varints.
fn telling_bytes() -> impl Strategy<Value = Vec<u8>> {
    let known = vec![0x08, 0x10, 0x18, 0x22, 0x28, 0x32, 0x35, 0x38];
    let unknown = vec![0x40, 0x41, 0x42, 0x43, 0x44, 0x45, 0x4b, 0x4c];
    let other = vec![0, 1, 2, 4, 5, 7, 0x0f, 0x7f, 0x80, 0xff];
    vec(prop_oneof![3 => select(known), 1 => select(unknown), 2 => select(other)], 0..24)
}

/// Asserts that the view and prost decode `bytes` alike, and returns whether they accept them.
fn assert_same(bytes: &[u8]) -> bool {
    let (view, message) = (Datum::parse(bytes), proto::Datum::decode(bytes));
    let (view, message) = match (view, message) {
        (Ok(view), Ok(message)) => (view, message),
        (Err(_), Err(_)) => return false,
        (view, message) => panic!("view: {view:?}\nprost: {message:?}\nbytes: {bytes:02x?}"),
    };
    assert_eq!(view.channels, message.channels());
    assert_eq!(view.height, message.height());
    assert_eq!(view.width, message.width());
    assert_eq!(view.label, message.label());
    assert_eq!(view.encoded, message.encoded());
    assert_eq!(view.data, message.data());

    // NaN does not equal itself, so floats are compared as bits.
    let bits = |floats: &[f32]| floats.iter().map(|float| float.to_bits()).collect::<Vec<_>>();
    let wanted = bits(&message.float_data);
    assert_eq!(view.floats.len(), wanted.len());
    let mut gathered = Vec::new();
    view.floats.gather(&mut gathered);
    assert_eq!(bits(&gathered), wanted);
    if let Some(run) = view.floats.strided() {
        let start = wanted.len() / 3;
        let mut copied = vec![0.0; wanted.len() - start];
        run.copy_to(start, &mut copied);
        assert_eq!(bits(&copied), wanted[start..]);
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn valid_messages(bytes in valid_message()) {
        prop_assert!(assert_same(&bytes), "a valid message is accepted");
    }

    #[test]
    fn edited_messages(mut bytes in valid_message(), edits in vec(edit(), 1..5)) {
        edits.iter().for_each(|edit| edit.apply(&mut bytes));
        assert_same(&bytes);
    }

    #[test]
    fn bytes_that_are_mostly_keys(bytes in telling_bytes()) {
        assert_same(&bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn truncated_messages(bytes in valid_message()) {
        for len in 0..bytes.len() {
            assert_same(&bytes[..len]);
        }
    }
}

/// The number of groups is near the limit of prost.
#[test]
fn deep_groups() {
    let inner = Field::new(9, Value::Varint(1));
    let nested = |groups, innermost: Vec<Field>| {
        (0..groups).fold(innermost, |fields, _| vec![Field::new(8, Value::Group(fields))])
    };
    let accepted = |innermost: &[Field]| {
        (95..105).filter(|&groups| assert_same(&encode(&nested(groups, innermost.to_vec())))).max()
    };
    assert_eq!(accepted(&[]), Some(100));
    assert_eq!(accepted(&[inner]), Some(99));
}

/// What prost itself writes, which no strategy above produces.
#[test]
fn prosts_own_messages() {
    let message = proto::Datum {
        channels: Some(3),
        height: Some(2),
        width: Some(1),
        data: Some(vec![1, 2, 3, 4, 5, 6]),
        label: Some(-7),
        float_data: vec![f32::NAN, -0.0, f32::MIN_POSITIVE],
        encoded: Some(true),
    };
    assert!(assert_same(&message.encode_to_vec()));
    assert!(assert_same(&proto::Datum::default().encode_to_vec()));
}
