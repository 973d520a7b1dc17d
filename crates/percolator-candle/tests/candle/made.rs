//! Records and feeds of the tests.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::Path;

use candle_core::{Tensor, WithDType};
use lmdb::{Environment, Transaction as _, WriteFlags};
use percolator::batch::Element;
use percolator::decoder::Decoded;
use percolator::half::{bf16, f16};
use percolator::proto::Datum;
use percolator::source::{FnSource, Record};
use percolator::{Dtype, Feed, FeedBuilder, Field, Row};
use prost::Message as _;

/// The number of records of the feeds below.
pub(crate) const RECORDS: u64 = 23;

/// A field of each type that candle has, one of booleans, a ragged and a padded one.
pub(crate) fn fields() -> Vec<Field> {
    let mut fields: Vec<Field> = [
        ("u8", Dtype::U8),
        ("u32", Dtype::U32),
        ("i16", Dtype::I16),
        ("i32", Dtype::I32),
        ("i64", Dtype::I64),
        ("f16", Dtype::F16),
        ("bf16", Dtype::Bf16),
        ("f32", Dtype::F32),
        ("f64", Dtype::F64),
    ]
    .into_iter()
    .map(|(name, dtype)| Field::new(name, dtype, [2, 3]))
    .collect();
    fields.push(Field::scalar("bool", Dtype::Bool));
    fields.push(Field::ragged("tokens", Dtype::I64, 4));
    fields.push(Field::padded("words", Dtype::F32, 4, -1.0));
    fields
}

/// Six different numbers of a record, of every type.
fn numbers<T>(position: u8, convert: impl Fn(u8) -> T) -> Vec<T> {
    (0..6).map(|at| convert(position + 10 * at)).collect()
}

fn decode(record: &Record<'_>, row: &mut Row<'_>) -> Decoded {
    let position = record.value[0];
    row.write("u8", &numbers(position, |number| number))?;
    row.write("u32", &numbers(position, |number| 1_000_000_007 * u32::from(number % 4)))?;
    row.write("i16", &numbers(position, |number| -300 * i16::from(number)))?;
    row.write("i32", &numbers(position, |number| -70_001 * i32::from(number)))?;
    row.write("i64", &numbers(position, |number| i64::from(number) << 40))?;
    row.write("f16", &numbers(position, |number| f16::from_f32(f32::from(number) / 4.0)))?;
    row.write("bf16", &numbers(position, |number| bf16::from_f32(f32::from(number) / 2.0)))?;
    row.write("f32", &numbers(position, |number| f32::from(number) / 3.0))?;
    row.write("f64", &numbers(position, |number| f64::from(number) / 7.0))?;
    row.set("bool", position.is_multiple_of(3))?;
    let few = usize::from(position % 5);
    row.write("tokens", &numbers(position, i64::from)[..few])?;
    row.write("words", &numbers(position, f32::from)[..few])?;
    Ok(())
}

/// A feed with all of these fields.
pub(crate) fn feed() -> FeedBuilder {
    let source = FnSource::new("made", RECORDS, |position, to| {
        to.push(u8::try_from(position).unwrap());
        Ok(())
    });
    Feed::builder().source(source).decode(fields(), decode).batch_size(5).epochs(1)
}

/// A tensor's elements.
pub(crate) fn elements<T: WithDType>(tensor: &Tensor) -> Vec<T> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// A tensor's elements and shape must be those of an array.
pub(crate) fn must_equal<T: WithDType + Element + PartialEq>(tensor: &Tensor, values: &[T], shape: &[usize]) {
    assert_eq!((tensor.dims(), tensor.dtype()), (shape, <T as WithDType>::DTYPE));
    assert!(elements::<T>(tensor) == values, "the elements of {tensor} are others");
}

/// Writes an LMDB of [`RECORDS`] images of 1x2x2 with their numbers as labels. The one at `damaged` is half a
/// record.
pub(crate) fn write_images(folder: &Path, damaged: Option<u64>) {
    std::fs::create_dir(folder).unwrap();
    let environment = Environment::new().set_map_size(1 << 24).open(folder).unwrap();
    let database = environment.open_db(None).unwrap();
    let mut transaction = environment.begin_rw_txn().unwrap();
    for index in 0..RECORDS {
        let first = u8::try_from(index).unwrap();
        let datum = Datum {
            channels: Some(1),
            height: Some(2),
            width: Some(2),
            data: Some((first..first + 4).collect()),
            label: Some(first.into()),
            ..Datum::default()
        };
        let mut value = datum.encode_to_vec();
        if damaged == Some(index) {
            value.truncate(value.len() / 2);
        }
        transaction.put(database, &format!("{index:08}"), &value, WriteFlags::empty()).unwrap();
    }
    transaction.commit().unwrap();
}
