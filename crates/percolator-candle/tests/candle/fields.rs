//! The tensors of a batch hold what its arrays hold, bit for bit, whatever their type.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use candle_core::{DType, Device};
use percolator::half::{bf16, f16};
use percolator::{Batch, Dtype, Feed, Field, LastBatch, RawBytes};
use percolator_candle::{CandleBatch as _, Tensors};

use crate::made::{elements, feed, fields, must_equal};

/// Compares every tensor with its array.
fn compare(batch: &Batch, tensors: &Tensors) {
    let rows = batch.rows();
    macro_rules! compare {
        ($($element:ty => $name:literal),*) => {$(
            let values = batch.get::<$element>($name).unwrap();
            must_equal(tensors.get($name).unwrap(), &values, &[rows, 2, 3]);
        )*};
    }
    compare!(u8 => "u8", u32 => "u32", i16 => "i16", i32 => "i32", i64 => "i64");
    compare!(f16 => "f16", bf16 => "bf16", f32 => "f32", f64 => "f64");

    let are_thirds = batch.get::<bool>("bool").unwrap();
    let bytes: Vec<u8> = are_thirds.iter().map(|&is_third| is_third.into()).collect();
    must_equal(tensors.get("bool").unwrap(), &bytes, &[rows]);

    let tokens = batch.ragged::<i64>("tokens").unwrap();
    must_equal(tensors.get("tokens").unwrap(), tokens.values(), &[tokens.values().len()]);
    must_equal(tensors.get("tokens.offsets").unwrap(), tokens.offsets(), &[rows + 1]);
    let words = batch.field("words").unwrap();
    must_equal(tensors.get("words").unwrap(), &words.get::<f32>().unwrap(), &[rows, 4]);
    must_equal(tensors.get("words.lengths").unwrap(), words.lengths().unwrap(), &[rows]);
}

#[test]
fn every_array_becomes_a_tensor_of_its_type_shape_and_elements() {
    let mut batches = 0;
    for batch in feed().build().unwrap() {
        let batch = batch.unwrap();
        let tensors = batch.to_tensors(&Device::Cpu).unwrap();
        assert_eq!(tensors.names().len(), fields().len() + 2);
        assert_eq!(
            tensors.names().collect::<Vec<_>>(),
            tensors.iter().map(|(name, _)| name).collect::<Vec<_>>()
        );
        compare(&batch, &tensors);
        // One at a time they are the same.
        for (name, tensor) in tensors.iter() {
            let alone = batch.to_tensor(name, &Device::Cpu).unwrap();
            let bytes = |tensor: &candle_core::Tensor| elements::<f64>(&tensor.to_dtype(DType::F64).unwrap());
            assert_eq!((alone.dims(), alone.dtype()), (tensor.dims(), tensor.dtype()));
            assert_eq!(bytes(&alone), bytes(tensor), "{name}");
        }
        batches += 1;
    }
    assert_eq!(batches, 5, "the last one has three records");
}

#[test]
fn what_a_batch_says_of_its_rows_goes_with_its_tensors() {
    for last_batch in [LastBatch::Keep, LastBatch::Pad] {
        for batch in feed().last_batch(last_batch).build().unwrap() {
            let batch = batch.unwrap();
            let tensors = batch.to_tensors(&Device::Cpu).unwrap();
            assert_eq!((tensors.len(), tensors.rows()), (batch.len(), batch.rows()));
            assert_eq!((tensors.step(), tensors.lane()), (batch.step(), 0));
            assert_eq!(tensors.records(), batch.records());
            assert!(tensors.mask().eq(batch.mask()) && !tensors.is_empty());
            compare(&batch, &tensors);
        }
    }
    let last = feed().last_batch(LastBatch::Pad).build().unwrap().into_iter().last().unwrap().unwrap();
    let tensors = last.to_tensors(&Device::Cpu).unwrap();
    assert_eq!((tensors.len(), tensors.rows()), (3, 5));
    assert_eq!(elements::<i64>(tensors.get("words.lengths").unwrap())[3..], [0, 0], "rows of padding");
}

#[test]
fn a_tensor_that_is_taken_is_gone_and_the_others_stay() {
    let batch = feed().build().unwrap().into_iter().next().unwrap().unwrap();
    let mut tensors = batch.to_tensors(&Device::Cpu).unwrap();
    let all = tensors.names().len();
    let taken = tensors.take("f64").unwrap();
    assert_eq!((taken.dims(), taken.dtype()), (&[5, 2, 3][..], DType::F64));
    assert_eq!(tensors.names().len(), all - 1);
    assert!(tensors.get("f64").is_err() && tensors.take("f64").is_err());
    let left: Vec<_> = tensors.into_iter().map(|(name, _)| name).collect();
    assert_eq!((left.len(), &*left[0]), (all - 1, "u8"));
}

#[test]
fn a_batch_may_be_empty_and_a_row_may_be_empty() {
    let source = || {
        percolator::source::FnSource::new("made", 1, |_, to| {
            to.extend([7, 8]);
            Ok(())
        })
    };
    // Two replicas share one record: the second gets none, in a batch without rows.
    let devices = [percolator::Device::host(0), percolator::Device::host(1)];
    let builder = Feed::builder().source(source()).decoder(RawBytes::fixed());
    let mut feed = builder.batch_size(1).epochs(1).devices(devices).build().unwrap();
    let batches = feed.steps().next().unwrap().unwrap();
    let rows: Vec<_> = batches
        .iter()
        .map(|batch| {
            let tensors = batch.to_tensors(&Device::Cpu).unwrap();
            (tensors.is_empty(), tensors.get("data").unwrap().dims().to_vec())
        })
        .collect();
    assert_eq!(rows, [(false, vec![1, 2]), (true, vec![0, 2])]);

    let nothing = Field::new("nothing", Dtype::F32, [3, 0]);
    let feed = Feed::builder()
        .source(source())
        .decode([nothing], |_, row| row.write::<f32>("nothing", &[]).map_err(Into::into));
    let batch = feed.batch_size(1).epochs(1).build().unwrap().into_iter().next().unwrap().unwrap();
    assert_eq!(batch.to_tensor("nothing", &Device::Cpu).unwrap().dims(), [1, 3, 0]);
}
