//! CUDA lanes: what arrives on a device, in what order, and when its memory is reused. (Failing calls are in
//! `faults`.) The tests run on the stand-in driver (`tests/standin`), whose ledger reports what a GPU would
//! suffer in silence. The first also runs on a GPU, if there is one, and prints its name.
#![expect(unsafe_code, reason = "streams are read back through the driver")]
#![allow(clippy::unwrap_used, clippy::multiple_unsafe_ops_per_block, reason = "tests")]

use std::sync::Arc;

use percolator::device::cudarc::driver::{CudaContext, CudaStream, result, sys};
use percolator::device::{CudaDevice, DeviceArray};
use percolator::{Batch, Device, DeviceError, Epochs, Feed, FeedBuilder, FeedError};

use crate::common;
use crate::common::log::Log;
use crate::common::process::{must_end, prefetchers, role, settles, this_test};
use crate::common::source::MemorySource;
use crate::feeds::{consume, feed};
use crate::standin::{Standin, alone};

pub(crate) fn on(devices: usize) -> FeedBuilder {
    feed().devices((0..devices).map(|ordinal| Device::cuda(ordinal).unwrap()))
}

pub(crate) fn stream(ordinal: usize) -> Arc<CudaStream> {
    CudaContext::new(ordinal).unwrap().new_stream().unwrap()
}

/// A batch as the host sees it: pixels, targets, labels, and labels as floats.
#[derive(Debug, PartialEq)]
pub(crate) struct Seen([Vec<u8>; 4]);

impl Seen {
    fn on_host(batch: &Batch) -> Self {
        Seen([
            batch.bytes().to_vec(),
            batch.target_pixels::<u8>().unwrap().to_vec(),
            bytemuck::cast_slice(batch.labels().unwrap()).to_vec(),
            bytemuck::cast_slice(batch.labels_f32().unwrap()).to_vec(),
        ])
    }

    /// Reads the batch back from its device, on a stream that waits for it. The reads may still be in flight
    /// when the batch is dropped; `Reading::finish` waits for them.
    pub(crate) fn on_device(batch: &Batch, stream: &Arc<CudaStream>) -> Result<Reading, DeviceError> {
        let batch_there = batch.cuda().expect("the lane ends at a CUDA device");
        batch_there.wait_on(stream)?;
        let read = |array: &DeviceArray, element: usize| {
            let mut bytes = Pinned::new(stream, array.shape.iter().product::<usize>() * element);
            // SAFETY: the array lives until the stream has finished all work that is on it now, and the bytes
            // live until the stream was waited for.
            let _ = unsafe { result::memcpy_dtoh_async(bytes.bytes(), array.pointer, stream.cu_stream()) };
            bytes
        };
        Ok(Reading {
            stream: stream.clone(),
            bytes: [
                read(&batch_there.pixels(), 1),
                read(&batch_there.target().unwrap(), 1),
                read(&batch_there.labels().unwrap(), 4),
                read(&batch_there.labels_f32().unwrap(), 4),
            ],
        })
    }
}

/// Page-locked memory: the driver copies to any other memory synchronously.
struct Pinned {
    stream: Arc<CudaStream>,
    first: *mut u8,
    len: usize,
}

impl Pinned {
    fn new(stream: &Arc<CudaStream>, len: usize) -> Self {
        stream.context().bind_to_thread().unwrap();
        // SAFETY: a context is current.
        let first = unsafe { result::malloc_host(len, 0) }.unwrap().cast::<u8>();
        // SAFETY: `len` bytes were allocated.
        unsafe { first.write_bytes(0, len) };
        Pinned { stream: stream.clone(), first, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes were allocated, and zeroed.
        unsafe { std::slice::from_raw_parts_mut(self.first, self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = self.stream.context().bind_to_thread();
        // SAFETY: the memory was allocated once, and nothing on the stream uses it any more.
        let _ = unsafe { result::free_host(self.first.cast()) };
    }
}

/// Bytes that are being read.
pub(crate) struct Reading {
    stream: Arc<CudaStream>,
    bytes: [Pinned; 4],
}

impl Reading {
    pub(crate) fn finish(mut self) -> Seen {
        self.stream.synchronize().unwrap();
        Seen(self.bytes.each_mut().map(|bytes| bytes.bytes().to_vec()))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
    }
}

/// The first batches of each lane, on the host.
pub(crate) fn wanted(lanes: usize, batches: usize) -> Vec<Vec<Seen>> {
    let mut feed = feed().devices((0..lanes).map(Device::host)).build().unwrap();
    consume(feed.take_lanes().unwrap(), |lane| {
        lane.take(batches).map(|batch| Seen::on_host(&batch.unwrap())).collect::<Vec<_>>()
    })
}

/// Streams of device 0 that are held. They are released when this is dropped, even by a failing test:
/// otherwise whatever waits for them would wait for ever.
struct Held<'a> {
    standin: &'a Standin,
    streams: &'a [i32],
}

impl<'a> Held<'a> {
    fn new(standin: &'a Standin, streams: &'a [i32]) -> Self {
        streams.iter().for_each(|&stream| standin.hold(0, stream));
        Held { standin, streams }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.streams.iter().for_each(|&stream| self.standin.release(0, stream));
    }
}

/// Checks that what arrives on this many devices is what the host sees, in order.
fn check_what_arrives(devices: usize) {
    const BATCHES: usize = 30;

    let mut feed = on(devices).build().unwrap();
    let arrived = consume(feed.take_lanes().unwrap(), |lane| {
        let stream = stream(lane.number());
        let read = |batch: Result<Batch, FeedError>| {
            let batch = batch.unwrap();
            let reading = Seen::on_device(&batch, &stream).unwrap();
            // Before the reads have finished, or even begun.
            drop(batch);
            reading.finish()
        };
        lane.take(BATCHES).map(read).collect::<Vec<_>>()
    });
    assert!(arrived == wanted(devices, BATCHES), "{devices} device(s)");
}

#[test]
fn what_arrives_is_what_the_host_sees() {
    if role().is_none() {
        match CudaDevice::all() {
            Ok(devices) if !devices.is_empty() => {
                println!("on {} and {} more", devices[0].name, devices.len() - 1);
                return check_what_arrives(devices.len());
            }
            _ => println!("on the stand-in driver: there is no GPU here"),
        }
    }
    let Some(standin) = alone(this_test!(), "devices=8") else { return };
    for devices in [1, 2, 8] {
        must_end("a feed", move || check_what_arrives(devices));
        standin.last_report().must_be_empty();
    }
}

#[test]
fn the_steady_state_only_copies() {
    let Some(standin) = alone(this_test!(), "devices=2") else { return };
    let mut feed = on(2).build().unwrap();
    let mut lanes: Vec<_> =
        feed.take_lanes().unwrap().into_iter().map(|lane| (stream(lane.number()), lane)).collect();
    let mut step = |batches: usize| {
        for _batch in 0..batches {
            for (stream, lane) in &mut lanes {
                lane.next().unwrap().unwrap().cuda().unwrap().wait_on(stream).unwrap();
            }
        }
    };
    step(10);
    standin.take_report().must_be_clean();
    step(100);
    let report = standin.take_report();
    report.must_be_clean();
    // One copy a batch, except for those that were, or are, in flight.
    assert!((2 * 97..=2 * 103).contains(&report.calls("cuMemcpyHtoDAsync_v2")), "{}", report.text);
    let others = report.calls_of("cuMem") - report.calls("cuMemcpyHtoDAsync_v2");
    assert_eq!(others, 0, "no memory is asked for or given back: {}", report.text);
    for call in ["cuCtxSynchronize", "cuStreamSynchronize", "cuEventCreate", "cuStreamCreate"] {
        assert_eq!(report.calls(call), 0, "{}", report.text);
    }
}

#[test]
fn a_batch_is_delivered_before_it_has_arrived() {
    let Some(standin) = alone(this_test!(), "devices=1") else { return };
    let device = Device::cuda(0).unwrap();
    // The copy stream is the first one created.
    let _held = Held::new(&standin, &[0]);
    let mut feed = feed().devices([device]).build().unwrap();
    let mut lane = feed.take_lanes().unwrap().remove(0);
    let batches: Vec<_> = lane.by_ref().take(3).map(Result::unwrap).collect();
    assert!(batches.iter().all(|batch| !batch.arrival().is_complete().unwrap()));
    // Every batch of the ring is held, so no further one comes.
    assert!(lane.try_next().unwrap().batch().is_none());
    standin.release(0, 0);
    batches[2].wait().unwrap();
    assert!(batches.iter().all(|batch| batch.arrival().is_complete().unwrap()));
    drop(batches);
    assert_eq!(lane.take(10).filter(Result::is_ok).count(), 10);
    drop(feed);
    standin.last_report().must_be_empty();
}

#[test]
fn memory_goes_round_only_after_the_streams_that_used_it() {
    let Some(standin) = alone(this_test!(), "devices=1") else {
        return;
    };
    let mut feed = on(1).build().unwrap();
    let mut lane = feed.take_lanes().unwrap().remove(0);
    let streams = [stream(0), stream(0)];
    let mut readings = Vec::new();
    // The second and third stream of the device.
    let _held = Held::new(&standin, &[1, 2]);
    for number in 0..3 {
        let batch = lane.next().unwrap().unwrap();
        let on_one = Seen::on_device(&batch, &streams[number % 2]).unwrap();
        // Two waits on one stream count as one use.
        batch.cuda().unwrap().wait_on(&streams[number % 2]).unwrap();
        readings.push((on_one, Seen::on_device(&batch, &streams[(number + 1) % 2]).unwrap()));
    }
    assert!(lane.try_next().unwrap().batch().is_none(), "every batch is still being read");
    standin.release(0, 2);
    assert!(lane.try_next().unwrap().batch().is_none(), "by the other stream, too");
    standin.release(0, 1);
    let wanted = wanted(1, 3).remove(0);
    for ((one, other), wanted) in readings.into_iter().zip(&wanted) {
        assert!(one.finish() == *wanted && other.finish() == *wanted);
    }
    assert_eq!(lane.take(10).filter(Result::is_ok).count(), 10);
    drop((feed, streams));
    standin.last_report().must_be_empty();
}

#[test]
fn a_look_at_all_that_is_in_use_enters_the_context_once() {
    const BATCHES: u64 = 4;

    let Some(standin) = alone(this_test!(), "devices=1") else {
        return;
    };
    let mut feed = on(1).prefetch(usize::try_from(BATCHES).unwrap()).build().unwrap();
    let mut lane = feed.take_lanes().unwrap().remove(0);
    let used = stream(0);
    // The stream created after the copy stream.
    let held = Held::new(&standin, &[1]);
    let batches: Vec<_> = (0..BATCHES).map(|_| lane.next().unwrap().unwrap()).collect();
    batches.iter().for_each(|batch| batch.cuda().unwrap().wait_on(&used).unwrap());
    drop(batches);
    drop(standin.take_report());
    // Not counting the polls before the last of them was returned, which are few.
    let (mut entered, mut asked) = (0, 0);
    while asked < 100 * BATCHES {
        let report = standin.take_report();
        entered += report.calls("cuCtxPushCurrent_v2");
        asked += report.calls("cuEventQuery");
        std::thread::yield_now();
    }
    assert!(entered <= asked / BATCHES + 2 * BATCHES, "{entered} times for {asked} questions");
    drop(held);
    drop((feed, lane, used));
    standin.last_report().must_be_empty();
}

#[test]
fn tensors_lie_where_the_batch_does_and_keep_it() {
    let Some(standin) = alone(this_test!(), "devices=2") else { return };
    let mut feed = feed().prefetch(1).devices([Device::cuda(1).unwrap()]).build().unwrap();
    let mut lane = feed.take_lanes().unwrap().remove(0);
    let stream = stream(1);
    for waits in [true, false] {
        let batch = lane.next().unwrap().unwrap();
        let there = batch.cuda().unwrap();
        let pointers =
            [there.pixels(), there.target().unwrap(), there.labels().unwrap()].map(|array| array.pointer);
        if waits {
            there.wait_on(&stream).unwrap();
        }
        let tensors = batch.into_dlpack().unwrap();
        let found = ["data", "target", "label"].map(|name| tensors.get(name).unwrap());
        assert_eq!(found.map(|tensor| tensor.tensor().data.addr() as u64), pointers);
        assert!(found.iter().all(|tensor| {
            let device = tensor.tensor().device;
            (device.device_type, device.device_id) == (2, 1)
        }));
        assert!(lane.try_next().unwrap().batch().is_none(), "the ring's only batch is still held");
    }
    drop((feed, lane, stream));
    standin.last_report().must_be_empty();
}

#[test]
fn a_stream_of_another_device_is_refused() {
    let Some(standin) = alone(this_test!(), "devices=2") else { return };
    let mut feed = on(1).build().unwrap();
    let batch = feed.take_lanes().unwrap().remove(0).next().unwrap().unwrap();
    let error = batch.cuda().unwrap().wait_on(&stream(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the batch is on cuda:0, but the stream is on cuda:1: let a stream of cuda:0 wait for it"
    );
    drop((batch, feed));
    standin.last_report().must_be_empty();
}

#[test]
fn what_is_not_there_is_an_error_that_says_so() {
    let Some(standin) = alone(this_test!(), "devices=2\nmemory=1000") else {
        return;
    };
    let error = Device::cuda(2).unwrap_err().to_string();
    assert_eq!(error, "there is no cuda:2: the driver lists 2 device(s), counted from 0");
    assert!("cuda:7".parse::<Device>().is_err() && "cuda:1".parse::<Device>().is_ok());
    let error = on(2).build().unwrap_err().to_string();
    assert!(error.starts_with("cuda:0: cannot reserve "), "{error}");
    assert!(error.contains("1000 bytes are free, for 3 batches of "), "{error}");
    standin.last_report().must_be_empty();
}

#[test]
fn a_driver_that_is_too_old_is_an_error() {
    let Some(_standin) = alone(this_test!(), "driver_version=10020") else {
        return;
    };
    let error = Device::cuda(0).unwrap_err().to_string();
    assert!(error.starts_with("the CUDA driver is for CUDA 10.2, but at least 11.0 is needed"), "{error}");
}

#[test]
fn without_page_locked_memory_the_feed_goes_on() {
    let Some(standin) = alone(this_test!(), "devices=1") else { return };
    // Of the ring's three batches, only the last one has page-locked memory.
    standin.fail("cuMemHostAlloc", 1, None, 2);
    standin.fail("cuMemHostAlloc", 2, None, 2);
    must_end("a feed of ordinary memory", || check_what_arrives(1));
    standin.last_report().must_be_empty();
}

#[test]
fn ordinary_memory_is_warned_of_once_a_device() {
    let Some(standin) = alone(this_test!(), "devices=2") else { return };
    standin.fail_for_ever("cuMemHostAlloc", 1, None, 2);
    let log = Log::default();
    // The thread that builds the feed allocates the memory.
    drop(log.listen(|| on(2).build().unwrap()));
    let said = log.text();
    let lines = |level: &str, text: &str| {
        said.lines().filter(|line| line.contains(level) && line.contains(text)).count()
    };
    assert_eq!(lines("WARN", "no page-locked memory: using ordinary memory"), 2, "{said}");
    assert_eq!(lines("DEBUG", "no page-locked memory again"), 4, "of the three of each ring: {said}");
    standin.last_report().must_be_empty();
}

#[test]
fn a_device_is_asked_once_for_the_room_of_all_its_lanes() {
    let lines = "devices=2\nmemory=100000";
    let Some(standin) = alone(this_test!(), lines) else { return };
    let [zero, one] = [0, 1].map(|ordinal| Device::cuda(ordinal).unwrap());
    let source = MemorySource::images("own memory", 8, 3, 8, 8);
    let chosen = Feed::builder().source(source).devices([zero.clone()]).build().unwrap();
    let sizing = chosen.sizing();
    assert_eq!(
        (sizing.prefetch, sizing.prefetch_max),
        (4, 4),
        "a ring takes no more of a GPU's memory by itself"
    );
    chosen.close();
    drop(standin.take_report());
    let lanes = [zero.clone(), one, zero.clone()];
    feed().devices(lanes).build().unwrap().close();
    assert_eq!(standin.take_report().calls("cuMemGetInfo_v2"), 2, "there are three lanes");
    // More lanes than one device has memory for.
    let error = feed().devices(vec![zero; 100]).build().unwrap_err().to_string();
    assert!(error.contains("for 300 batches of "), "{error}");
    standin.last_report().must_be_empty();
}

#[test]
fn devices_are_listed() {
    let Some(standin) = alone(this_test!(), "devices=2") else { return };
    let devices = CudaDevice::all().unwrap();
    assert_eq!(devices.len(), 2);
    assert!(devices[1].name.contains("stand-in"), "{}", devices[1].name);
    assert_eq!((devices[1].ordinal, devices[1].compute_capability), (1, (9, 0)));
    assert_eq!((devices[0].memory_bytes, devices[0].driver.to_string()), (256 << 20, "12.8".to_owned()));
    assert!(devices[0].copy_rate(1 << 20, 3).unwrap() > 0.0);
    standin.last_report().must_be_empty();
}

#[test]
fn a_lost_device_ends_its_own_lane_and_no_other() {
    let Some(standin) = alone(this_test!(), "devices=2") else { return };
    must_end("the lane beside a lost device", move || {
        let mut feed = on(2).build().unwrap();
        let mut lanes = feed.take_lanes().unwrap();
        let (mut other, mut lost) = (lanes.remove(1), lanes.remove(0));
        for lane in [&mut lost, &mut other] {
            drop(lane.next().unwrap().unwrap());
        }
        standin.lose(0, 719);
        let error = std::thread::scope(|scope| {
            let ends = scope.spawn(|| lost.find_map(Result::err));
            assert_eq!(other.by_ref().take(50).filter(Result::is_ok).count(), 50);
            ends.join().unwrap().expect("the lane ends with an error")
        });
        let error = error.to_string();
        assert!(error.starts_with("cuda:0: cu") && error.contains("(719)"), "{error}");
        drop((feed, lost, other));
        standin.last_report().must_be_clean();
    });
}

#[test]
fn a_stream_whose_end_cannot_be_seen_is_refused() {
    let Some(standin) = alone(this_test!(), "devices=1") else { return };
    let mut feed = on(1).build().unwrap();
    let batch = feed.take_lanes().unwrap().remove(0).next().unwrap().unwrap();
    let per_thread = CudaContext::new(0).unwrap().per_thread_stream();
    let there = batch.cuda().unwrap();
    let error = there.wait_on(&per_thread).unwrap_err().to_string();
    assert!(
        error.starts_with("cuda:0: a batch cannot be used on this stream: it is the per-thread"),
        "{error}"
    );
    // SAFETY: it is a stream of the device, and lives longer than the batch.
    assert!(unsafe { there.wait_on_raw(per_thread.cu_stream().cast()) }.is_err());
    let other = stream(0);
    // SAFETY: as above.
    unsafe { there.wait_on_raw(other.cu_stream().cast()) }.unwrap();
    drop((batch, other));
    drop((feed, per_thread));
    standin.last_report().must_be_empty();
}

/// Begins a capture that any unsafe call ends, on any thread.
pub(crate) fn begin_capture(stream: &CudaStream) {
    stream.context().bind_to_thread().unwrap();
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: the stream is alive.
    unsafe { result::stream::begin_capture(stream.cu_stream(), mode) }.unwrap();
}

/// Ends a capture, which nothing must have ended before, and destroys its graph.
pub(crate) fn end_capture(stream: &CudaStream) {
    // SAFETY: the stream is alive, and the graph is destroyed once.
    unsafe {
        let graph = result::stream::end_capture(stream.cu_stream()).expect("nobody has ended the capture");
        sys::cuGraphDestroy(graph).result().unwrap();
    }
}

#[test]
fn a_stream_that_captures_is_refused_and_goes_on_capturing() {
    let Some(standin) = alone(this_test!(), "devices=1") else {
        return;
    };
    let mut feed = on(1).build().unwrap();
    let batch = feed.take_lanes().unwrap().remove(0).next().unwrap().unwrap();
    let (capturing, other) = (stream(0), stream(0));
    let there = batch.cuda().unwrap();
    begin_capture(&capturing);
    let error = there.wait_on(&capturing).unwrap_err().to_string();
    assert!(
        error.starts_with("cuda:0: a batch cannot be used on this stream: it is capturing a graph"),
        "{error}"
    );
    // SAFETY: it is a stream of the device, and lives longer than the batch.
    assert!(unsafe { there.wait_on_raw(capturing.cu_stream().cast()) }.is_err());
    there.wait_on(&other).unwrap();
    end_capture(&capturing);
    there.wait_on(&capturing).unwrap();
    drop((batch, feed));
    drop((capturing, other));
    standin.last_report().must_be_empty();
}

#[test]
fn a_feed_beside_a_capture_does_not_end_it() {
    let Some(standin) = alone(this_test!(), "devices=1") else { return };
    let (capturing, used) = (stream(0), stream(0));
    begin_capture(&capturing);
    // The feed runs from its first call to its last, on the capturing thread and on its own threads.
    let mut feed = on(1).build().unwrap();
    for batch in feed.take_lanes().unwrap().remove(0).take(20) {
        let batch = batch.unwrap();
        batch.cuda().unwrap().wait_on(&used).unwrap();
    }
    drop(feed);
    end_capture(&capturing);
    drop((capturing, used));
    standin.last_report().must_be_empty();
}

#[test]
fn a_process_may_end_while_a_lane_releases_its_device() {
    let Some(standin) = alone(this_test!(), "devices=1\nrelease_ms=1000") else { return };
    let mut feed = on(1).build().unwrap();
    let batch = feed.take_lanes().unwrap().remove(0).next().unwrap().unwrap();
    drop(feed);
    drop(batch);
    let releases = || standin.take_report().calls("cuDevicePrimaryCtxRelease_v2") > 0;
    settles(releases, &true, "the context is released");
    assert_eq!(prefetchers(), 1, "the lane's thread releases it");
    // The process ends with this test, while the driver is at it.
}

#[test]
fn a_process_may_end_while_a_batch_drops_the_consumers_stream() {
    let Some(standin) = alone(this_test!(), "devices=1\nrelease_ms=1000") else { return };
    let mut feed = on(1).build().unwrap();
    let batch = feed.take_lanes().unwrap().remove(0).next().unwrap().unwrap();
    let used = stream(0);
    batch.cuda().unwrap().wait_on(&used).unwrap();
    // The batch holds it to its end, which is on a thread that nobody joins.
    drop(used);
    std::thread::spawn(|| drop(batch));
    let releases = || standin.take_report().calls("cuDevicePrimaryCtxRelease_v2") > 0;
    settles(releases, &true, "the stream's context is released");
    // The process ends with this test, while the driver is at it, and the feed is still there.
    std::mem::forget(feed);
}

#[test]
fn batches_grow_and_leave_nothing_behind() {
    let Some(standin) = alone(this_test!(), "devices=1") else { return };
    let records = (0..20).map(|index| common::image(index, 3, 4 + index / 4, 5));
    let source = MemorySource::new("growing", records);
    let feed = Feed::builder().source(source).prefetch(2).batch_size(4);
    let mut feed = feed.devices([Device::cuda(0).unwrap()]).epochs(Epochs::OnePass).build().unwrap();
    let stream = stream(0);
    let mut rows = Vec::new();
    for batch in feed.take_lanes().unwrap().remove(0) {
        let batch = batch.unwrap();
        batch.cuda().unwrap().wait_on(&stream).unwrap();
        rows.push(batch.shape().image.height);
    }
    assert_eq!(rows, [4, 5, 6, 7, 8]);
    drop((feed, stream));
    standin.last_report().must_be_empty();
}
