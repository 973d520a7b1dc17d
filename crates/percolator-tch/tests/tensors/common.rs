//! Feeds whose records a function makes.

use percolator::source::FnSource;
use percolator::{DecodeFailure, Dtype, Feed, FeedBuilder, Field, Lane};
use percolator_tch::{TchBatch as _, Tensors};
use tch::{Device, Tensor};

/// The elements of a record of [`numbers`].
pub(crate) const WIDTH: usize = 3;

/// A source of `records` records: each is its position, as a byte. The record at `bad` is empty.
pub(crate) fn positions(records: u64, bad: Option<u64>) -> FnSource {
    FnSource::new("folder/made.bin", records, move |position, value| {
        if bad != Some(position) {
            value.push(u8::try_from(position).expect("there are few records"));
        }
        Ok(())
    })
}

/// A feed in order, of batches of 4, with a field `x` of three floats: `p`, `p + 0.25` and `p + 0.5` for the
/// record at position `p`. `y` is `p`.
pub(crate) fn numbers(source: FnSource) -> FeedBuilder {
    Feed::builder()
        .source(source)
        .decode([Field::new("x", Dtype::F32, [WIDTH]), Field::scalar("y", Dtype::I64)], |record, row| {
            let &[position] = record.value else {
                return Err(DecodeFailure::new("it has no position"));
            };
            row.write("x", &row_of(position))?;
            row.set("y", i64::from(position))?;
            Ok(())
        })
        .batch_size(4)
        .threads(1)
}

pub(crate) fn row_of(position: u8) -> [f32; WIDTH] {
    let position = f32::from(position);
    [position, position + 0.25, position + 0.5]
}

/// The elements of `x` for successive records.
pub(crate) fn rows_of(positions: impl IntoIterator<Item = u8>) -> Vec<f32> {
    positions.into_iter().flat_map(row_of).collect()
}

/// The elements of a tensor, one after the other.
pub(crate) fn elements<T: tch::kind::Element + Copy>(tensor: &Tensor) -> Vec<T> {
    Vec::try_from(tensor.reshape([-1])).unwrap()
}

/// The next batch of a lane, on the CPU.
pub(crate) fn next(lane: &mut Lane) -> Tensors {
    lane.next().unwrap().unwrap().into_tensors(Device::Cpu).unwrap()
}
