//! Tensors on GPUs, on the stand-in driver (`tests/standin` of the repository) and stand-ins of cuBLAS and
//! cuRAND (`tests/standin` of this package, whose `make` says how to build and run this). The driver's ledger
//! reports what a GPU would suffer in silence: memory that is read before it is written, or written while it
//! is read.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use candle_core::{DType, Device, Tensor};
use percolator::transform::TransformPlace;
use percolator::{Batch, DeviceError, Feed, FeedBuilder, FeedError, Lane, Transform};
use percolator_candle::{CandleBatch as _, CandleError, CandleFeed as _, Tensors};

use crate::common::process::{must_end, this_test};
use crate::made::{RECORDS, elements, feed, fields, write_images};
use crate::standin::{Standin, alone};

/// The tensors of a batch: a field each, and the offsets and the lengths.
fn tensors_of_a_batch() -> u64 {
    fields().len() as u64 + 2
}

/// Both kinds of devices that candle makes: on CUDA's per-thread default stream, and on a stream of their
/// own.
fn gpus(ordinal: usize) -> [Device; 2] {
    [Device::new_cuda(ordinal).unwrap(), Device::new_cuda_with_stream(ordinal).unwrap()]
}

fn on_gpu(ordinal: usize) -> FeedBuilder {
    feed().devices([percolator::Device::cuda(ordinal).unwrap()])
}

/// Names, types, shapes and elements; floats and integers alike as floats, which hold them exactly here.
type Seen = Vec<(String, DType, Vec<usize>, Vec<f64>)>;

fn seen(tensors: &Tensors) -> Seen {
    let one = |(name, tensor): (&str, &Tensor)| {
        let here = tensor.to_device(&Device::Cpu).unwrap();
        let numbers = elements(&here.to_dtype(DType::F64).unwrap());
        (name.to_owned(), tensor.dtype(), tensor.dims().to_vec(), numbers)
    };
    tensors.iter().map(one).collect()
}

fn all_seen(feed: FeedBuilder, device: &Device) -> Vec<Seen> {
    let mut feed = feed.build().unwrap();
    // All are kept to the end, so that none may share memory with another or with the ring.
    let kept: Vec<_> = feed.tensors(device).unwrap().collect::<Result<_, _>>().unwrap();
    drop(feed);
    kept.iter().map(seen).collect()
}

fn only_lane(feed: FeedBuilder) -> (Feed, Lane) {
    let mut feed = feed.build().unwrap();
    let lane = feed.take_lanes().unwrap().remove(0);
    (feed, lane)
}

#[test]
fn tensors_on_a_gpu_hold_what_the_host_sees() {
    let Some(standin) = alone(this_test!(), "devices=2") else { return };
    must_end("feeds to a GPU", move || {
        let wanted = all_seen(feed(), &Device::Cpu);
        assert_eq!(wanted.len(), 5);
        for device in gpus(1) {
            // From the GPU's memory, with a ring of one batch and of several; and from the host's.
            assert_eq!(all_seen(on_gpu(1).prefetch(1), &device), wanted);
            assert_eq!(all_seen(on_gpu(1), &device), wanted);
            assert_eq!(all_seen(feed(), &device), wanted);
        }
        // The lane's host memory is good for the CPU, too.
        assert_eq!(all_seen(on_gpu(1), &Device::Cpu), wanted);
        standin.last_report().must_be_clean();
    });
}

#[test]
fn an_array_is_copied_once_and_the_host_waits_for_nothing() {
    let Some(standin) = alone(this_test!(), "devices=1") else { return };
    for device in gpus(0) {
        let mut feed = on_gpu(0).epochs(40).build().unwrap();
        let mut steps = feed.tensors(&device).unwrap();
        steps.by_ref().take(20).for_each(|step| drop(step.unwrap()));
        drop(standin.take_report());
        steps.by_ref().take(100).for_each(|step| drop(step.unwrap()));
        let report = standin.take_report();
        report.must_be_clean();
        assert_eq!(report.calls("cuMemcpyDtoDAsync_v2"), 100 * tensors_of_a_batch(), "{}", report.text);
        assert_eq!(report.calls("cuMemAllocAsync"), 100 * tensors_of_a_batch(), "{}", report.text);
        // One copy a batch to the GPU, except for those that were, or are, in flight.
        assert!((92..=108).contains(&report.calls("cuMemcpyHtoDAsync_v2")), "{}", report.text);
        for call in ["cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize", "cuStreamCreate"] {
            assert_eq!(report.calls(call), 0, "{}", report.text);
        }
        drop(steps);
        drop(feed);
    }
    standin.last_report().must_be_clean();
}

/// A stream that is held; it is released when this is dropped, even by a failing test.
struct Held<'a>(&'a Standin, i32);

impl<'a> Held<'a> {
    fn new(standin: &'a Standin, stream: i32) -> Self {
        standin.hold(0, stream);
        Held(standin, stream)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.release(0, self.1);
    }
}

/// While `stream` is held, on which the copies wait, the ring's only batch does not come again.
fn check_that_the_batch_stays(standin: &Standin, device: &Device, stream: i32) {
    let wanted = all_seen(feed(), &Device::Cpu);
    let (feed, mut lane) = only_lane(on_gpu(0).prefetch(1));
    drop(lane.next().unwrap().unwrap().to_tensors(device).unwrap());
    let batch = lane.next().unwrap().unwrap();
    // Not before: the lane notes on the stream itself when the batch before is free.
    let held = Held::new(standin, stream);
    let tensors = batch.to_tensors(device).unwrap();
    drop((batch, standin.take_report()));
    let mut asked = 0;
    while asked < 100 {
        asked += standin.take_report().calls("cuEventQuery");
        assert!(lane.try_next().unwrap().batch().is_none(), "the copies have not begun");
        std::thread::yield_now();
    }
    drop(held);
    assert_eq!(seen(&tensors), wanted[1]);
    assert_eq!(seen(&lane.next().unwrap().unwrap().to_tensors(device).unwrap()), wanted[2]);
    drop((lane, feed));
}

#[test]
fn a_batch_is_filled_again_only_after_its_copies() {
    let Some(standin) = alone(this_test!(), "devices=1") else { return };
    let [per_thread, own] = gpus(0);
    // candle's own stream was the first to be created; -2 is that of every thread.
    check_that_the_batch_stays(&standin, &own, 0);
    check_that_the_batch_stays(&standin, &per_thread, -2);
    standin.last_report().must_be_clean();
}

#[test]
fn each_lane_has_a_gpu_of_its_own() {
    let Some(standin) = alone(this_test!(), "devices=2") else { return };
    must_end("a feed to two GPUs", move || {
        let lanes = (0..2).map(|ordinal| percolator::Device::cuda(ordinal).unwrap());
        let mut feed = feed().devices(lanes).build().unwrap();
        let devices = [Device::new_cuda(0).unwrap(), Device::new_cuda(1).unwrap()];
        let mut seen = Vec::new();
        for step in feed.tensors_on(&devices).unwrap() {
            for tensors in step.unwrap() {
                let bytes = tensors.get("u8").unwrap();
                assert!(bytes.device().same_device(&devices[tensors.lane()]));
                seen.extend(bytes.to_device(&Device::Cpu).unwrap().to_vec3::<u8>().unwrap());
            }
        }
        let mut first: Vec<u8> = seen.iter().map(|record| record[0][0]).collect();
        first.sort_unstable();
        assert!(first.into_iter().map(u64::from).eq(0..RECORDS));
        drop(feed);
        standin.last_report().must_be_clean();
    });
}

#[test]
fn arrays_without_elements_become_tensors_without_elements() {
    let Some(standin) = alone(this_test!(), "devices=1") else { return };
    // Two lanes share one record: the second gets an empty batch.
    let lanes = |lane: fn(usize) -> percolator::Device| {
        feed().batch_size(usize::try_from(RECORDS).unwrap()).devices((0..2).map(lane))
    };
    let on_gpu = |_| percolator::Device::cuda(0).unwrap();
    for device in gpus(0) {
        for mut feed in [lanes(on_gpu).build().unwrap(), lanes(percolator::Device::host).build().unwrap()] {
            let step = feed.steps().next().unwrap().unwrap();
            let tensors = step[1].to_tensors(&device).unwrap();
            assert_eq!(
                (tensors.len(), seen(&tensors)),
                (0, seen(&step[1].to_tensors(&Device::Cpu).unwrap()))
            );
            assert_eq!(tensors.get("f32").unwrap().dims(), [0, 2, 3]);
            assert_eq!(tensors.get("tokens.offsets").unwrap().to_vec1::<i64>().unwrap(), [0]);
        }
    }
    standin.last_report().must_be_clean();
}

#[test]
fn a_batch_on_another_gpu_is_refused() {
    let Some(standin) = alone(this_test!(), "devices=2") else { return };
    let (feed, mut lane) = only_lane(on_gpu(1));
    let batch = lane.next().unwrap().unwrap();
    for device in gpus(0) {
        let error = batch.to_tensors(&device).unwrap_err();
        assert!(matches!(error, CandleError::OtherGpu { found: 1, wanted: 0 }));
        assert_eq!(
            error.to_string(),
            "the batch is on cuda:1, but its tensors were requested on cuda:0: feed Device::cuda(0), or \
             request them on cuda:1"
        );
        assert_eq!(batch.to_tensor("u8", &device).unwrap_err().to_string(), error.to_string());
    }
    let error = batch.to_tensor("label", &gpus(1)[0]).unwrap_err();
    assert!(error.to_string().starts_with("there is no tensor \"label\"; there are \"u8\""), "{error}");
    drop((batch, lane, feed));
    standin.last_report().must_be_clean();
}

#[test]
fn a_gpu_that_fails_is_an_error_that_names_the_array_and_nothing_is_freed_in_use() {
    const OUT_OF_MEMORY: u32 = 2;

    let Some(standin) = alone(this_test!(), "devices=1") else { return };
    for device in gpus(0) {
        for (call, nth) in [("cuMemcpyDtoDAsync_v2", 3), ("cuMemAllocAsync", 3), ("cuStreamWaitEvent", 1)] {
            let (feed, mut lane) = only_lane(on_gpu(0).epochs(10));
            drop(lane.next().unwrap().unwrap().to_tensors(&device).unwrap());
            let batch: Batch = lane.next().unwrap().unwrap();
            // So that the copy to the GPU, which calls the driver as well, is over.
            batch.wait().unwrap();
            standin.fail(call, nth, None, OUT_OF_MEMORY);
            let error = batch.to_tensors(&device).unwrap_err();
            match (&error, call) {
                (CandleError::Device(DeviceError::Call { .. }), "cuStreamWaitEvent") => {}
                (CandleError::Copy { array, .. }, _) => assert_eq!(array, "i16", "the third field"),
                _ => panic!("{call}: {error}"),
            }
            assert!(error.to_string().to_lowercase().contains("memory"), "{error}");
            // The batch is as good as before.
            assert_eq!(
                seen(&batch.to_tensors(&device).unwrap()),
                all_seen(crate::made::feed(), &Device::Cpu)[1]
            );
            drop((batch, lane, feed));
        }
    }
    standin.last_report().must_be_clean();
}

#[test]
fn what_the_gpu_makes_of_images_is_had_there_and_not_from_the_host() {
    let Some(standin) = alone(this_test!(), "devices=1") else { return };
    let folder = tempfile::tempdir().unwrap();
    let lmdb = folder.path().join("lmdb");
    write_images(&lmdb, None);
    let images = |place| {
        let transform = Transform::new().mean_value(3.0).scale(0.5);
        let gpu = percolator::Device::cuda(0).unwrap();
        Feed::builder()
            .lmdb(&lmdb)
            .batch_size(4)
            .transform(transform)
            .transform_on(place)
            .devices([gpu])
            .epochs(1)
    };
    for device in gpus(0) {
        let there = all_seen(images(TransformPlace::Device), &device);
        assert_eq!(there, all_seen(images(TransformPlace::Host), &device));
        assert_eq!(there[0][0].1, DType::F32);
    }
    let mut feed = images(TransformPlace::Device).build().unwrap();
    let error = feed.tensors(&Device::Cpu).unwrap().next().unwrap().unwrap_err().to_string();
    assert!(
        error.starts_with("field \"data\" is transformed on the lane's device, and only there"),
        "{error}"
    );
    let labels = feed.tensors(&Device::Cpu).unwrap().only(["label"]).unwrap().next().unwrap();
    assert_eq!(labels.unwrap().get("label").unwrap().to_vec1::<i32>().unwrap().len(), 4);
    drop(feed);
    standin.last_report().must_be_clean();
}

#[test]
fn a_lost_gpu_ends_the_steps_once() {
    const LAUNCH_FAILED: u32 = 719;

    let Some(standin) = alone(this_test!(), "devices=1") else { return };
    must_end("a feed to a GPU that is lost", move || {
        let device = Device::new_cuda(0).unwrap();
        let mut feed = on_gpu(0).epochs(100).build().unwrap();
        let mut steps = feed.tensors(&device).unwrap();
        drop(steps.next().unwrap().unwrap());
        standin.lose(0, LAUNCH_FAILED);
        let error = steps.find_map(Result::err).expect("an error comes");
        let of_the_gpu = matches!(
            error,
            CandleError::Feed(FeedError::Device(_)) | CandleError::Device(_) | CandleError::Copy { .. }
        );
        assert!(of_the_gpu, "{error}");
        assert!(steps.next().is_none());
    });
}
