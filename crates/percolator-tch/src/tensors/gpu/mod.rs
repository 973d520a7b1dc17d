//! Batches on GPUs as tensors, on the stand-in driver. Torch sees no GPU there, and does not have to: it
//! holds the memory, and releases it. What it would compute is played by the null stream, which a test can
//! stop.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;
#[path = "../../../../../tests/common/standin.rs"]
mod standin;

use percolator::source::FnSource;
use percolator::{Dtype, Feed, FeedBuilder, Field, Lane};

use super::*;
use common::process::{must_end, this_test};
use standin::alone;

/// The place of the null stream, in the stand-in.
const NULL: i32 = -1;

/// Batches of two records; each is its position, as a float.
fn feed() -> FeedBuilder {
    let source = FnSource::new("made", 8, |position, value| {
        value.push(u8::try_from(position).expect("there are eight"));
        Ok(())
    });
    Feed::builder()
        .source(source)
        .decode([Field::scalar("x", Dtype::F32)], |record, row| Ok(row.set("x", f32::from(record.value[0]))?))
        .batch_size(2)
        .epochs(1)
        .prefetch(1)
        .devices([percolator::Device::cuda(1).unwrap()])
}

fn next(lane: &mut Lane) -> Batch {
    lane.next().unwrap().unwrap()
}

#[test]
fn torchs_stream_waits_for_a_batch_and_ends_its_use() {
    let Some(standin) = alone(this_test!(), "devices=2") else { return };
    let mut feed = feed().build().unwrap();
    let mut lane = feed.take_lanes().unwrap().remove(0);
    // Nothing that is put on torch's stream from here on is done.
    standin.hold(1, NULL);
    let batch = next(&mut lane);
    let pointer = batch.cuda().unwrap().array("x").unwrap().pointer;
    let mut tensors = must_end("the host does not wait for torch's stream", move || {
        tensors_of(batch, Device::Cuda(1), |_| Ok(true)).unwrap()
    });
    let x = tensors.take("x").unwrap();
    assert_eq!((x.device(), x.kind(), x.size()), (Device::Cuda(1), Kind::Float, vec![2]));
    assert_eq!(x.data_ptr().addr() as u64, pointer, "it was copied");
    assert_eq!(standin.queued(1, NULL), 1, "torch's stream waits for the batch");

    let clone = x.shallow_clone();
    drop((tensors, x));
    assert_eq!(feed.stats().lanes[0].held, 1);
    drop(clone);
    assert_eq!(feed.stats().lanes[0].held, 0);
    assert_eq!(standin.queued(1, NULL), 2, "an event ends the use");
    assert!(lane.try_next().unwrap().batch().is_none(), "the ring's only batch is still in use");
    standin.release(1, NULL);
    let batch = next(&mut lane);
    assert_eq!(batch.cuda().unwrap().array("x").unwrap().pointer, pointer, "it is filled again");
    assert_eq!(*batch.get::<f32>("x").unwrap(), [2.0, 3.0]);
    drop((batch, feed, lane));
    standin.last_report().must_be_empty();
}

#[test]
fn a_batch_that_torch_cannot_use_returns() {
    let Some(standin) = alone(this_test!(), "devices=2") else { return };
    let mut feed = feed().build().unwrap();
    let mut lane = feed.take_lanes().unwrap().remove(0);
    for device in [Device::Cpu, Device::Cuda(0)] {
        let error = tensors_of(next(&mut lane), device, |_| Ok(true)).unwrap_err();
        let wanted = TchError::OtherGpu { found: "cuda:1".to_owned(), ordinal: 1, wanted: device };
        assert_eq!(error, wanted);
        assert!(error.to_string().contains("ask for them on Cuda(1)"), "{error}");
    }
    let error = tensors_of(next(&mut lane), Device::Cuda(1), |_| Ok(false)).unwrap_err();
    assert_eq!(error, TchError::Stream { ordinal: 1 });
    let error = tensors_of(next(&mut lane), Device::Cuda(1), |_| Err("no".to_owned())).unwrap_err();
    assert_eq!(error, TchError::NoStream { ordinal: 1, message: "no".to_owned() });
    assert!(lane.next().is_none());
    drop((feed, lane));
    standin.last_report().must_be_empty();
}
