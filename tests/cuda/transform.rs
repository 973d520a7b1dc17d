//! Batches that their device transforms equal those of the host, bit for bit. The tests run on the stand-in
//! driver (`tests/standin`), which interprets the same PTX that a GPU gets. The first also runs on a GPU, if
//! there is one, and prints its name.
#![expect(unsafe_code, reason = "arrays are read back through the driver")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::time::Duration;

use percolator::batch::BatchShape;
use percolator::batch::{FieldError, ImageShape};
use percolator::decoder::RecordCause;
use percolator::device::cudarc::driver::{CudaContext, result};
use percolator::device::{
    Backend, Capacity, CudaDevice, DeviceArray, Event, HostBatch, HostMemory, PageMemory, SyntheticStep,
    Transfer,
};
use percolator::order::BatchSize;
use percolator::source::Matching;
use percolator::transform::DeviceTransform;
use percolator::transform::{MeanImage, TransformPlace};
use percolator::{
    Batch, Device, DeviceError, Dtype, Epochs, Feed, FeedBuilder, FeedError, Lane, LastBatch, Layout, Phase,
    Target, Transform,
};

use crate::common;
use crate::common::process::{must_end, role, this_test};
use crate::common::source::MemorySource;
use crate::standin::alone;

const RECORDS: usize = 11;
const IMAGE: ImageShape = ImageShape { channels: 3, height: 9, width: 7 };
pub(crate) const DTYPES: [Dtype; 4] = [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::U8];

const MEANS: [f32; 5] = [104.1, 117.2, 123.3, 98.6, 110.7];

#[derive(Clone, Copy, Debug)]
pub(crate) enum Stored {
    Bytes,
    Floats,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Mean {
    None,
    One,
    PerChannel,
    Image,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) image: ImageShape,
    pub(crate) stored: Stored,
    pub(crate) mean: Mean,
    pub(crate) dtype: Dtype,
    pub(crate) layout: Layout,
    pub(crate) phase: Phase,
    pub(crate) crop: u32,
}

impl Case {
    /// All cases that differ in what the device does.
    fn all() -> impl Iterator<Item = Case> {
        let stored = [Stored::Bytes, Stored::Floats];
        let means = [Mean::None, Mean::One, Mean::PerChannel, Mean::Image];
        let layouts = [Layout::Nchw, Layout::Nhwc];
        let cuts = [(Phase::Train, 5), (Phase::Test, 4), (Phase::Train, 0)];
        let kinds = stored.into_iter().flat_map(move |stored| means.map(|mean| (stored, mean)));
        let outputs = kinds.flat_map(|kind| DTYPES.map(|dtype| (kind, dtype)));
        let all = outputs.flat_map(move |output| layouts.map(|layout| (output, layout)));
        let all = all.flat_map(move |rest| cuts.map(|cut| (rest, cut)));
        all.map(|((((stored, mean), dtype), layout), (phase, crop))| Case {
            image: IMAGE,
            stored,
            mean,
            dtype,
            layout,
            phase,
            crop,
        })
        .filter(Case::is_allowed)
    }

    /// Bytes come from bytes only.
    pub(crate) fn is_allowed(&self) -> bool {
        self.dtype != Dtype::U8 || matches!((self.stored, self.mean), (Stored::Bytes, Mean::None))
    }

    fn source(&self) -> MemorySource {
        let ImageShape { channels, height, width } = self.image;
        match self.stored {
            Stored::Bytes => MemorySource::images("bytes", RECORDS, channels, height, width),
            Stored::Floats => {
                MemorySource::new("floats", (0..RECORDS).map(|index| float_image(index, self.image)))
            }
        }
    }

    pub(crate) fn feed(&self, place: TransformPlace) -> FeedBuilder {
        let transform = Transform::new().crop(self.crop).mirror(true);
        let transform = if self.dtype == Dtype::U8 { transform } else { transform.scale(0.017) };
        let transform = match self.mean {
            Mean::None => transform,
            Mean::One => transform.mean_value(117.3),
            Mean::PerChannel => transform.mean_values(&MEANS[..self.image.channels]),
            Mean::Image => transform.mean_image(mean_image(self.image)),
        };
        Feed::builder()
            .source(self.source())
            .transform(transform)
            .transform_on(place)
            .phase(self.phase)
            .dtype(self.dtype)
            .layout(self.layout)
            .batch_size(4)
            .prefetch(2)
            .threads(2)
            .epochs(Epochs::OnePass)
    }
}

/// Floats of many sizes, including infinities, but no NaN, whose bits depend on the machine.
fn float_image(index: usize, image: ImageShape) -> (Vec<u8>, Vec<u8>) {
    let float = |at: usize| match common::pixel(index, at) {
        7 => f32::INFINITY,
        8 => f32::NEG_INFINITY,
        9 => f32::MIN_POSITIVE / 3.0,
        10 => -0.0,
        byte => (f32::from(byte) - 100.5) * f32::powi(1.7, i32::from(byte % 31) - 15),
    };
    let [c, h, w] = [image.channels, image.height, image.width].map(|extent| i32::try_from(extent).unwrap());
    let floats = (0..image.checked_elements().unwrap()).map(float).collect();
    (common::key(index), common::float_datum(c, h, w, i32::try_from(index).unwrap(), floats))
}

fn mean_image(image: ImageShape) -> MeanImage {
    let pixels: Vec<f32> =
        (0..image.checked_elements().unwrap()).map(|at| f32::from(common::pixel(99, at)) / 3.0).collect();
    MeanImage::new(image, pixels).unwrap()
}

/// Reads an array back from its device.
fn read(batch: &Batch, array: &DeviceArray, element: usize) -> Vec<u8> {
    batch.wait().unwrap();
    CudaContext::new(batch.cuda().unwrap().ordinal()).unwrap().bind_to_thread().unwrap();
    let mut bytes = vec![0; array.shape.iter().product::<usize>() * element];
    // SAFETY: the array has arrived, is as large, and lives until the batch is dropped.
    unsafe { result::memcpy_dtoh_sync(&mut bytes, array.pointer) }.unwrap();
    bytes
}

fn pixels(batch: &Batch) -> Vec<u8> {
    let array = batch.cuda().unwrap().pixels();
    assert_eq!(*array.shape, batch.shape().dims());
    read(batch, &array, batch.shape().dtype.size())
}

/// A batch's shape, pixels and labels.
type Seen = (BatchShape, Vec<u8>, Vec<u8>);

pub(crate) fn on_host(feed: FeedBuilder) -> Vec<Seen> {
    let mut feed = feed.build().unwrap();
    let seen = |batch: Batch| {
        (batch.shape(), batch.bytes().to_vec(), bytemuck::cast_slice(batch.labels().unwrap()).to_vec())
    };
    feed.take_lanes().unwrap().remove(0).map(|batch| seen(batch.unwrap())).collect()
}

pub(crate) fn on_device(feed: FeedBuilder) -> Vec<Seen> {
    let mut feed = feed.devices([Device::cuda(0).unwrap()]).build().unwrap();
    let seen = |batch: Batch| {
        let labels = batch.cuda().unwrap().labels().unwrap();
        (batch.shape(), pixels(&batch), read(&batch, &labels, 4))
    };
    feed.take_lanes().unwrap().remove(0).map(|batch| seen(batch.unwrap())).collect()
}

fn check_every_case() {
    for case in Case::all() {
        let (host, device) =
            (on_host(case.feed(TransformPlace::Host)), on_device(case.feed(TransformPlace::Device)));
        assert_eq!(host.len(), RECORDS.div_ceil(4));
        assert!(host == device, "{case:?}");
    }
}

#[test]
fn a_device_transforms_as_the_host_does() {
    if role().is_none() {
        match CudaDevice::all() {
            Ok(devices) if !devices.is_empty() => {
                println!("on {}", devices[0].name);
                return check_every_case();
            }
            _ => println!("on the stand-in driver: there is no GPU here"),
        }
    }
    let Some(standin) = alone(this_test!(), "devices=1") else { return };
    must_end("the feeds", check_every_case);
    standin.last_report().must_be_empty();
}

const CASE: Case = Case {
    image: IMAGE,
    stored: Stored::Bytes,
    mean: Mean::Image,
    dtype: Dtype::F32,
    layout: Layout::Nchw,
    phase: Phase::Train,
    crop: 5,
};

#[test]
fn what_is_sent_is_the_windows_as_they_are_stored() {
    let Some(standin) = alone(this_test!(), "devices=1") else { return };
    let mut feed = CASE.feed(TransformPlace::Device).devices([Device::cuda(0).unwrap()]).build().unwrap();
    // The same windows, without any transform.
    let cuts = CASE.feed(TransformPlace::Host).transform(Transform::new().crop(5)).dtype(Dtype::U8);
    let windows = on_host(cuts);
    assert_eq!(feed.batch_shape().dtype, Dtype::F32);
    for (batch, (shape, window, _)) in feed.take_lanes().unwrap().remove(0).zip(&windows) {
        let batch = batch.unwrap();
        assert_eq!((batch.host_shape(), batch.pixels::<u8>().unwrap()), (*shape, &**window));
        assert_eq!(batch.shape(), BatchShape { dtype: Dtype::F32, ..*shape });
        let mismatch = batch.pixels::<f32>().unwrap_err();
        assert!(matches!(mismatch, FieldError::OnDevice { found: Dtype::U8, .. }), "{mismatch}");
        assert!(mismatch.to_string().contains(".transform_on(TransformPlace::Host)"), "{mismatch}");
    }
    drop(feed);
    let report = standin.last_report();
    report.must_be_empty();
    assert_eq!(report.calls("cuLaunchKernel"), windows.len() as u64);
}

#[test]
fn the_steady_state_copies_once_and_launches_once() {
    let Some(standin) = alone(this_test!(), "devices=1") else { return };
    let feed = Feed::builder().source(CASE.source()).batch_size(4).prefetch(2);
    let feed =
        feed.transform(Transform::new().mirror(true).mean_value(3.0)).transform_on(TransformPlace::Device);
    let mut feed = feed.devices([Device::cuda(0).unwrap()]).build().unwrap();
    let mut lane = feed.take_lanes().unwrap().remove(0);
    let stream = CudaContext::new(0).unwrap().new_stream().unwrap();
    let mut step = |batches: usize| {
        for batch in lane.by_ref().take(batches) {
            batch.unwrap().cuda().unwrap().wait_on(&stream).unwrap();
        }
    };
    step(10);
    standin.take_report().must_be_clean();
    step(100);
    let report = standin.take_report();
    report.must_be_clean();
    // Not counting those that were, or are, in flight.
    for call in ["cuMemcpyHtoDAsync_v2", "cuLaunchKernel"] {
        assert!((98..=102).contains(&report.calls(call)), "{call}: {}", report.text);
    }
    assert_eq!(report.calls_of("cuMem"), report.calls("cuMemcpyHtoDAsync_v2"), "{}", report.text);
    for call in ["cuCtxSynchronize", "cuStreamSynchronize", "cuEventCreate", "cuModuleLoadData"] {
        assert_eq!(report.calls(call), 0, "{call}: {}", report.text);
    }
}

#[test]
fn targets_and_tensors_go_with_what_the_device_makes() {
    let Some(standin) = alone(this_test!(), "devices=1") else {
        return;
    };
    let masks = || {
        let masks = MemorySource::images("masks", RECORDS, 1, IMAGE.height, IMAGE.width);
        let transform = Transform::new().crop(5).mirror(true).scale(0.5);
        Target::paired(masks, Matching::Keys).transform(transform)
    };
    let case = Case { dtype: Dtype::Bf16, layout: Layout::Nhwc, ..CASE };
    let mut host = case.feed(TransformPlace::Host).target(masks()).build().unwrap();
    let feed = case.feed(TransformPlace::Device).target(masks()).devices([Device::cuda(0).unwrap()]);
    let mut feed = feed.build().unwrap();
    for (host, batch) in host.take_lanes().unwrap().remove(0).zip(feed.take_lanes().unwrap().remove(0)) {
        let (host, batch) = (host.unwrap(), batch.unwrap());
        let target = batch.cuda().unwrap().target().unwrap();
        assert_eq!(read(&batch, &target, 4), bytemuck::cast_slice::<f32, u8>(host.target_pixels().unwrap()));
        let pointer = batch.cuda().unwrap().pixels().pointer;
        let tensors = batch.into_dlpack().unwrap();
        let tensor = tensors.get("data").unwrap().tensor();
        assert_eq!((tensor.data.addr() as u64, tensor.dtype.code, tensor.dtype.bits), (pointer, 4, 16));
    }
    drop((host, feed));
    standin.last_report().must_be_empty();
}

#[test]
fn batches_of_either_kind_grow() {
    let Some(standin) = alone(this_test!(), "devices=1") else { return };
    let bytes = |index: usize, side: usize| common::image(index, 1, side, side);
    let floats = |index: usize, side: u8| {
        let floats = vec![1.5; usize::from(side) * usize::from(side)];
        (common::key(index), common::float_datum(1, side.into(), side.into(), 0, floats))
    };
    // Floats after bytes, larger bytes, and floats that take more memory than the bytes that more is made
    // from.
    let records =
        [bytes(0, 3), floats(1, 3), bytes(2, 6), floats(3, 3), bytes(4, 20), floats(5, 12), bytes(6, 20)];
    let feed = |place| {
        let source = MemorySource::new("either", records.clone());
        let feed = Feed::builder().source(source);
        feed.transform(Transform::new().mean_value(2.0))
            .transform_on(place)
            .prefetch(1)
            .epochs(Epochs::OnePass)
    };
    assert_eq!(on_device(feed(TransformPlace::Device)), on_host(feed(TransformPlace::Host)));
    let mut feed = feed(TransformPlace::Device).devices([Device::cuda(0).unwrap()]).build().unwrap();
    assert_eq!(feed.take_lanes().unwrap().remove(0).filter(Result::is_ok).count(), records.len());
    assert_eq!(
        feed.stats().lanes[0].growths,
        3,
        "for the third, the fifth and the sixth: what has grown stays so"
    );
    drop(feed);
    standin.last_report().must_be_empty();
}

#[test]
fn bytes_go_with_floats_and_floats_not_with_bytes() {
    let Some(standin) = alone(this_test!(), "devices=1") else { return };
    let feed = |floats_at: usize, place| {
        let record = |index| {
            if index == floats_at { float_image(index, IMAGE) } else { common::image(index, 3, 9, 7) }
        };
        let source = MemorySource::new("both", (0..4).map(record));
        Feed::builder().source(source).batch_size(4).transform_on(place).epochs(Epochs::OnePass)
    };
    assert_eq!(on_device(feed(0, TransformPlace::Device)), on_host(feed(0, TransformPlace::Host)));
    let mut feed = feed(2, TransformPlace::Device).devices([Device::cuda(0).unwrap()]).build().unwrap();
    match feed.take_lanes().unwrap().remove(0).next().unwrap().unwrap_err() {
        FeedError::Record(error) => {
            assert_eq!((error.id.index, &error.cause), (2, &RecordCause::FloatsAmongBytes));
        }
        other => panic!("{other}"),
    }
    drop(feed);
    standin.last_report().must_be_empty();
}

#[test]
fn what_does_not_transform_says_so_before_anything_is_started() {
    let feed = CASE.feed(TransformPlace::Device).devices([Device::host(1)]);
    match feed.build().unwrap_err() {
        FeedError::Device(error @ DeviceError::NoTransform { .. }) => {
            assert!(error.to_string().starts_with("host:1 does not transform batches"), "{error}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_synthetic_step_counts_what_it_waited() {
    const STEPS: usize = 40;

    let Some(standin) = alone(this_test!(), "devices=1") else { return };
    let feed = Feed::builder().source(CASE.source()).batch_size(4);
    let mut feed = feed.devices([Device::cuda(0).unwrap()]).build().unwrap();
    let mut step = SyntheticStep::new(0, Duration::from_micros(200)).unwrap();
    for batch in feed.take_lanes().unwrap().remove(0).take(STEPS) {
        step.run(batch.unwrap().cuda().unwrap()).unwrap();
    }
    let times = step.finish().unwrap();
    assert_eq!(times.steps, STEPS);
    // The kernel's own clock guarantees at least this much.
    assert!(times.worked >= Duration::from_micros(200) * 40, "{times:?}");
    assert!((0.0..1.0).contains(&times.waited_share()), "{times:?}");
    drop(feed);
    let report = standin.last_report();
    report.must_be_empty();
    assert_eq!(report.calls("cuLaunchKernel"), STEPS as u64);
}

/// A caller-implemented device that claims to transform.
#[derive(Debug)]
struct Own;

impl Backend for Own {
    fn name(&self) -> String {
        "own:0".to_owned()
    }

    fn host_memory(&self, bytes: usize) -> Result<Box<dyn HostMemory>, DeviceError> {
        Ok(Box::new(PageMemory::new(bytes).unwrap()))
    }

    fn transfer(&self, _room: Capacity) -> Result<Box<dyn Transfer>, DeviceError> {
        Ok(Box::new(Own))
    }

    fn transforming(&self, transform: &DeviceTransform) -> Result<Arc<dyn Backend>, DeviceError> {
        assert_eq!(
            (transform.scale(), transform.dtype(), transform.layout()),
            (0.5, Dtype::F32, Layout::Nhwc)
        );
        assert_eq!((transform.mean_values(), transform.mean_image()), (&[3.0][..], None));
        Ok(Arc::new(Own))
    }
}

impl Event for Own {
    fn is_complete(&self) -> Result<bool, DeviceError> {
        Ok(true)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        Ok(())
    }
}

impl Transfer for Own {
    fn submit(&mut self, batch: HostBatch<'_>) -> Result<(), DeviceError> {
        let staged = batch.staged().expect("there is something left to do");
        assert_eq!((staged.cuts.len(), staged.transformed.dtype), (batch.rows(), Dtype::F32));
        assert!(staged.cuts.iter().any(|cut| cut.mirrored == 1) && staged.cuts.iter().any(|cut| cut.top > 0));
        let cuts = &batch.memory()[staged.cuts_offset..];
        assert_eq!(cuts.as_ptr(), staged.cuts.as_ptr().cast(), "what is cut crosses with the batch");
        Ok(())
    }

    fn arrival(&self) -> &dyn Event {
        self
    }

    fn release(&mut self) -> Result<(), DeviceError> {
        Ok(())
    }

    fn last_use(&self) -> &dyn Event {
        self
    }
}

#[test]
fn tensors_of_another_device_are_what_lies_on_the_host() {
    let case = Case { mean: Mean::None, layout: Layout::Nhwc, ..CASE };
    let transform = Transform::new().crop(5).mirror(true).mean_value(3.0).scale(0.5);
    let feed = case.feed(TransformPlace::Device).transform(transform).batch_size(11);
    let mut feed = feed.devices([Device::from_backend(Arc::new(Own))]).build().unwrap();
    let batch = feed.take_lanes().unwrap().remove(0).next().unwrap().unwrap();
    let (shape, bytes) = (batch.host_shape(), batch.bytes().len());
    let tensors = batch.into_dlpack().unwrap();
    let tensor = tensors.get("data").unwrap().tensor();
    assert_eq!((tensor.device.device_type, tensor.dtype.code, tensor.dtype.bits), (1, 1, 8));
    // SAFETY: a tensor has `ndim` extents, here 4.
    let dims = unsafe { std::slice::from_raw_parts(tensor.shape, 4) };
    assert!(dims.iter().copied().eq(shape.dims().map(|extent| i64::try_from(extent).unwrap())));
    assert_eq!(bytes, shape.bytes());
}

#[test]
fn what_the_device_has_still_to_do_is_not_taken_for_done() {
    let Some(_standin) = alone(this_test!(), "devices=1") else {
        return;
    };
    let case = Case { mean: Mean::None, dtype: Dtype::U8, layout: Layout::Nhwc, ..CASE };
    let mut feed = case.feed(TransformPlace::Device).devices([Device::cuda(0).unwrap()]).build().unwrap();
    let batch = feed.take_lanes().unwrap().remove(0).next().unwrap().unwrap();
    let mismatch = batch.pixels::<u8>().unwrap_err();
    let (found, wanted) = (Dtype::U8, Dtype::U8);
    assert_eq!(mismatch, FieldError::OnDevice { field: "data".to_owned(), found, wanted });
    let nobodys = FieldError::Dtype { field: "data".to_owned(), found, wanted: Dtype::F32 };
    assert_eq!(batch.pixels::<f32>().unwrap_err(), nobodys, "nobody makes floats");
    assert_eq!(batch.host_shape().layout, Layout::Nchw);
}

#[test]
fn a_launch_that_fails_ends_its_own_lane() {
    let Some(standin) = alone(this_test!(), "devices=2") else { return };
    let feed = Feed::builder().source(CASE.source()).batch_size(4).prefetch(2);
    let devices = [0, 1].map(|ordinal| Device::cuda(ordinal).unwrap());
    let mut feed = feed.transform_on(TransformPlace::Device).devices(devices).build().unwrap();
    standin.fail("cuLaunchKernel", 3, Some(1), 999);
    let lanes = feed.take_lanes().unwrap();
    let ends: Vec<Vec<FeedError>> = std::thread::scope(|scope| {
        let end = |lane: Lane| lane.take(20).filter_map(Result::err).collect();
        let ends: Vec<_> = lanes.into_iter().map(|lane| scope.spawn(move || end(lane))).collect();
        ends.into_iter().map(|end| end.join().unwrap()).collect()
    });
    assert!(ends[0].is_empty(), "{ends:?}");
    match &*ends[1] {
        [FeedError::Device(DeviceError::Call { device, call, .. })] => {
            assert_eq!((&**device, *call), ("cuda:1", "cuLaunchKernel"));
        }
        other => panic!("{other:?}"),
    }
    drop(feed);
    standin.last_report().must_be_empty();
}

#[test]
fn what_the_device_makes_is_counted_before_the_feed_starts() {
    // Four batches with 64 KB of windows each, and 128 KB that is made of them: the device has memory for the
    // former only.
    let lines = "devices=1\nmemory=700000";
    let Some(standin) = alone(this_test!(), lines) else {
        return;
    };
    let feed = |place| {
        let source = MemorySource::images("large", 3, 2, 64, 64);
        let feed = Feed::builder().source(source).batch_size(8).prefetch(4);
        feed.dtype(Dtype::F16).transform_on(place).devices([Device::cuda(0).unwrap()])
    };
    let error = feed(TransformPlace::Device).build().unwrap_err();
    assert!(error.to_string().contains("bytes are free, for 4 batches of "), "{error}");
    let staged = feed(TransformPlace::Host).dtype(Dtype::U8).build().unwrap();
    drop(staged);
    standin.last_report().must_be_empty();
}

#[test]
fn means_that_may_still_be_on_their_way_are_kept() {
    let lines = "devices=1\npageable=staged\nop_us=50000";
    let Some(standin) = alone(this_test!(), lines) else { return };
    standin.fail_for_ever("cuStreamSynchronize", 1, None, 999);
    standin.fail_for_ever("cuCtxSynchronize", 1, None, 999);
    let error = CASE.feed(TransformPlace::Device).devices([Device::cuda(0).unwrap()]).build().unwrap_err();
    assert!(error.to_string().contains("cuStreamSynchronize"), "{error}");
    let report = standin.take_report();
    report.must_be_clean();
    assert_eq!(report.calls("cuMemFree_v2"), 0, "{}", report.text);
}

/// At the end of an epoch a replica may get nothing: its batch goes to its device like any other, and nothing
/// is launched.
#[test]
fn an_empty_batch_and_a_padded_one_go_to_their_device() {
    let Some(standin) = alone(this_test!(), "devices=2") else { return };
    must_end("epochs to devices", || {
        for (place, last) in [TransformPlace::Host, TransformPlace::Device]
            .into_iter()
            .flat_map(|place| [LastBatch::Keep, LastBatch::Pad].map(|last| (place, last)))
        {
            let source = MemorySource::images("epochs", 5, 3, 9, 7);
            let mut feed = Feed::builder()
                .source(source)
                .transform(Transform::new().crop(5).mirror(true).scale(0.017))
                .transform_on(place)
                .devices([0, 1].map(|ordinal| Device::cuda(ordinal).unwrap()))
                .batch_size(BatchSize::Global(4))
                .last_batch(last)
                .epochs(2)
                .build()
                .unwrap();
            let mut lens = Vec::new();
            for step in feed.steps() {
                for batch in step.unwrap() {
                    batch.wait().unwrap();
                    assert!(batch.cuda().is_some());
                    lens.push((batch.len(), batch.shape().records));
                }
            }
            let due = match last {
                LastBatch::Pad => [(2, 2), (2, 2), (1, 2), (0, 2)],
                _ => [(2, 2), (2, 2), (1, 1), (0, 0)],
            };
            assert_eq!(lens, [due, due].concat(), "{place:?}, {last:?}");
        }
    });
    standin.last_report().must_be_empty();
}

/// In a job whose lanes end at different steps, empty batches stand in for those that have ended, on their
/// device like any other.
#[test]
fn a_batch_that_stands_in_for_one_is_at_its_device() {
    let Some(standin) = alone(this_test!(), "devices=2") else { return };
    must_end("feeds of several lengths to devices", || {
        for (place, last) in [TransformPlace::Host, TransformPlace::Device]
            .into_iter()
            .flat_map(|place| [LastBatch::Keep, LastBatch::Pad].map(|last| (place, last)))
        {
            let lane = |ordinal: usize| {
                let source = MemorySource::images("lengths", [2, 7][ordinal], 3, 9, 7);
                let feed = Feed::builder().source(source).transform_on(place);
                let transform = Transform::new().crop(5).mirror(true).scale(0.017);
                let feed = feed.transform(transform).batch_size(2).last_batch(last).epochs(1);
                let mut feed = feed.devices([Device::cuda(ordinal).unwrap()]).build().unwrap();
                feed.take_lanes().unwrap().remove(0)
            };
            let mut lanes = [lane(0), lane(1)];
            let mut rows = Vec::new();
            for _ in 0..4 {
                for (ordinal, lane) in lanes.iter_mut().enumerate() {
                    let batch = lane.next().unwrap_or_else(|| lane.empty_batch()).unwrap();
                    batch.wait().unwrap();
                    let on_device = batch.cuda().expect("the lane ends at a GPU");
                    assert_eq!(on_device.ordinal(), ordinal);
                    assert_eq!(on_device.pixels().shape[0], batch.shape().records);
                    rows.push((batch.len(), batch.shape().records));
                    let pixels = batch.into_dlpack().unwrap().take("data").unwrap();
                    assert_eq!(pixels.tensor().device.device_type, 2);
                }
            }
            let due = match last {
                LastBatch::Pad => [(2, 2), (2, 2), (0, 2), (2, 2), (0, 2), (2, 2), (0, 2), (1, 2)],
                _ => [(2, 2), (2, 2), (0, 0), (2, 2), (0, 0), (2, 2), (0, 0), (1, 1)],
            };
            assert_eq!(rows, due, "{place:?}, {last:?}");
        }
    });
    standin.last_report().must_be_empty();
}
