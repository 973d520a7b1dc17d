//! Fields of Examples with features of every kind, in any order: what `tf.io.parse_single_example` would make
//! of them.

use std::fmt::Debug;

use percolator::batch::Element;
use percolator::decoder::RecordCause;
use percolator::example::ExampleFields;
use percolator::{Batch, Feed, FeedError};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::common::log::Log;
use crate::examples::{batch_of, source, written};

/// A feature as it might come.
#[derive(Clone, Debug)]
enum Some3 {
    Unset,
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Strings(Vec<Vec<u8>>),
}

fn feature() -> impl Strategy<Value = Some3> {
    let small = prop_oneof![3 => -3..300_i64, 1 => any::<i64>()];
    prop_oneof![
        1 => Just(Some3::Unset),
        6 => vec(small, 0..5).prop_map(Some3::Ints),
        2 => vec(any::<f32>(), 0..5).prop_map(Some3::Floats),
        2 => vec(vec(any::<u8>(), 0..5), 0..3).prop_map(Some3::Strings),
    ]
}

/// The last feature of this name; one without a kind is missing, as in TensorFlow.
fn last<'a>(record: &'a [(String, Some3)], name: &str) -> Option<&'a Some3> {
    let found = record.iter().rev().find(|(found, _)| found == name).map(|(_, feature)| feature);
    found.filter(|feature| !matches!(feature, Some3::Unset))
}

/// The elements that a field has of a record, or `None` if it is an error. `fixed`: exactly as many.
fn naive<T, U: Clone>(
    list: Option<Option<&[T]>>,
    count: usize,
    is_fixed: bool,
    default: Option<U>,
    convert: impl Fn(&T) -> Option<U>,
) -> Option<Vec<U>> {
    match list {
        None if is_fixed => default.map(|value| vec![value; count]),
        None => Some(Vec::new()),
        Some(None) => None,
        Some(Some(list)) if list.len() > count || is_fixed && list.len() != count => None,
        Some(Some(list)) => list.iter().map(convert).collect(),
    }
}

#[track_caller]
fn agrees<T: Element + PartialEq + Debug>(
    batch: &Result<Batch, FeedError>,
    expected: Option<Vec<T>>,
) -> Result<(), TestCaseError> {
    match (batch, expected) {
        (Ok(batch), Some(expected)) => match batch.field("x").unwrap().lengths() {
            Ok(&[length]) => {
                let row = batch.get::<T>("x").unwrap().into_slice();
                prop_assert_eq!(&row[..usize::try_from(length).unwrap()], &*expected);
            }
            _ => match batch.ragged::<T>("x") {
                Ok(ragged) => prop_assert_eq!(ragged.values(), &*expected),
                Err(_) => prop_assert_eq!(batch.get::<T>("x").unwrap().into_slice(), &*expected),
            },
        },
        (Err(FeedError::Record(error)), None) => {
            let is_of_feature = matches!(&error.cause, RecordCause::Feature(_));
            prop_assert!(is_of_feature, "{:?}", error.cause);
        }
        (batch, expected) => prop_assert!(false, "{batch:?}, but {expected:?}"),
    }
    Ok(())
}

/// The strings of one record: each in its row of 3 bytes, of which there are `rows`, with its length beside.
#[track_caller]
fn agrees_on_strings(
    batch: &Result<Batch, FeedError>,
    rows: usize,
    expected: Option<Vec<Vec<u8>>>,
) -> Result<(), TestCaseError> {
    let (Ok(batch), Some(strings)) = (batch, &expected) else {
        let is_of_feature = matches!(
            batch, Err(FeedError::Record(error)) if matches!(error.cause, RecordCause::Feature(_))
        );
        prop_assert!(is_of_feature && expected.is_none(), "{batch:?}, but {expected:?}");
        return Ok(());
    };
    let mut bytes: Vec<u8> = Vec::new();
    let mut lengths: Vec<i64> = Vec::new();
    for row in 0..rows {
        let string = strings.get(row).map_or(&b""[..], |string| string);
        bytes.extend(string);
        bytes.resize(3 * (row + 1), 0);
        lengths.push(i64::try_from(string.len()).unwrap());
    }
    prop_assert_eq!(batch.get::<u8>("x").unwrap().into_slice(), &*bytes);
    prop_assert_eq!(batch.get::<i64>("x/lengths").unwrap().into_slice(), &*lengths);
    if let Ok(counted) = batch.field("x/lengths").unwrap().lengths() {
        prop_assert_eq!(counted, [i64::try_from(strings.len()).unwrap()]);
    }
    Ok(())
}

/// Strings of a record before, in the same buffer, leave nothing behind.
#[test]
fn several_strings_follow_longer_ones() {
    let record = |strings: &[&str]| written(|to| to.bytes("x", strings));
    let records = vec![record(&["abc", "de"]), record(&["f"]), written(|to| to.ints("y", [1]))];
    let feed = Feed::builder().source(source(records)).batch_size(1).prefetch(1).epochs(2);
    let feed = feed.example("x:strings[<=2](3),y:i64=7".parse::<ExampleFields>().unwrap()).build().unwrap();
    let mut seen = Vec::new();
    for batch in feed {
        let batch = batch.unwrap();
        let text = String::from_utf8(batch.get::<u8>("x").unwrap().into_slice().to_vec()).unwrap();
        seen.push((
            text,
            batch.field("x/lengths").unwrap().lengths().unwrap()[0],
            batch.get::<i64>("y").unwrap().into_slice()[0],
        ));
    }
    let row = |text: &str, count, y| (text.to_owned(), count, y);
    let epoch = [row("abcde\0", 2, 7), row("f\0\0\0\0\0", 1, 7), row("\0\0\0\0\0\0", 0, 1)];
    assert_eq!(seen, [epoch.clone(), epoch].concat());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Features are found, take their defaults and are refused as the naive way does it.
    #[test]
    fn features_become_fields_as_in_tensorflow(
        record in vec(("[xyz]", feature()), 0..5),
    ) {
        let bytes = |record: &[(String, Some3)]| written(|to| {
            for (name, feature) in record {
                match feature {
                    Some3::Unset => to.unset(name),
                    Some3::Ints(list) => to.ints(name, list.iter().copied()),
                    Some3::Floats(list) => to.floats(name, list.iter().copied()),
                    Some3::Strings(list) => to.bytes(name, list),
                };
            }
            to
        });
        let record_bytes = bytes(&record);
        let batch = |fields: &str| batch_of(vec![record_bytes.clone()], fields);
        let found = last(&record, "x");
        let ints = found.map(|found| match found { Some3::Ints(list) => Some(&**list), _ => None });
        let floats = found.map(|found| match found { Some3::Floats(list) => Some(&**list), _ => None });
        let strings = found.map(|found| match found { Some3::Strings(list) => Some(&**list), _ => None });
        let same = |value: &i64| Some(*value);
        agrees(&batch("x:i64[3]=-7"), naive(ints, 3, true, Some(-7), same))?;
        agrees(&batch("x:i64[2]"), naive(ints, 2, true, None, same))?;
        agrees(&batch("x:i64"), naive(ints, 1, true, None, same))?;
        agrees(&batch("x:u8[<=3]"), naive(ints, 3, false, None, |value| u8::try_from(*value).ok()))?;
        agrees(&batch("x:i32[<=4]=-1"), naive(ints, 4, false, None, |value| i32::try_from(*value).ok()))?;
        let wide = |value: &f32| Some(f64::from(*value).to_bits());
        let expected = naive(floats, 2, true, Some(0.5_f64.to_bits()), wide);
        agrees(&batch("x:f64[2]=0.5"), expected.map(|list| list.into_iter().map(f64::from_bits).collect()))?;
        let string = match strings {
            Some(Some([one])) if one.len() <= 3 => Some(one.clone()),
            None => Some(b"no".to_vec()),
            _ => None,
        };
        agrees(&batch("x:bytes(3)=\"no\""), string.clone())?;
        let loose = match strings {
            None | Some(Some([])) => Some(Vec::new()),
            _ => string,
        };
        agrees(&batch("x:bytes[<=3]"), loose)?;
        let fits = |list: &&[Vec<u8>]| list.iter().all(|one| one.len() <= 3);
        let strings = strings.map(|found| found.filter(fits));
        let same = |one: &Vec<u8>| Some(one.clone());
        let expected = naive(strings, 2, true, Some(b"no".to_vec()), same);
        agrees_on_strings(&batch("x:strings[2](3)=\"no\""), 2, expected)?;
        agrees_on_strings(&batch("x:strings[1x2](3)"), 2, naive(strings, 2, true, None, same))?;
        agrees_on_strings(&batch("x:strings[<=2](3)"), 2, naive(strings, 2, false, None, same))?;
    }

    /// The order of features in the records before has no influence.
    #[test]
    fn any_order_of_features_is_read(orders in vec(Just((0..9).collect::<Vec<i64>>()).prop_shuffle(), 1..6)) {
        let name = |number: i64| char::from(b'a' + number as u8).to_string();
        let of = |order: &Vec<i64>| written(|to| {
            order.iter().fold(to, |to, &number| to.ints(&name(number), [number]))
        });
        let records: Vec<_> = orders.iter().map(of).collect();
        let batch = batch_of(records, "b:i64,i:i64,a:i64,f:i64").unwrap();
        for (field, value) in [("a", 0), ("b", 1), ("f", 5), ("i", 8)] {
            prop_assert_eq!(batch.get::<i64>(field).unwrap().into_slice(), &*vec![value; orders.len()]);
        }
    }
}

#[test]
fn a_field_of_a_feature_that_the_first_record_lacks_may_be_empty_but_that_is_said() {
    let record = || written(|writer| writer.ints("tokens", [1, 2]).ints("label", [3]));
    for (fields, is_said) in [
        ("tokens:i32[<=4]", false),
        ("token as tokens:i32[<=4]", true),
        ("token as tokens:i32[<=4]=0", true),
        ("token as tokens:bytes[<=4]", true),
        ("label:i64,absent:i64=7", false),
    ] {
        let log = Log::default();
        log.listen(|| batch_of(vec![record()], fields).unwrap());
        let said = log.text();
        let is_warned = said.lines().any(|line| {
            line.contains("WARN") && line.contains("token") && line.contains("[\"label\", \"tokens\"]")
        });
        assert_eq!(is_warned, is_said, "{fields}: {said}");
    }
}
