//! Batches that their device transforms: the same, bit for bit, as those of the host. The tests run on the stand-in
//! driver (tests/standin), which interprets the very PTX that a GPU is given; the first also on a GPU, where there is
//! one, and prints on which.
#![cfg(feature = "cuda")]
#![expect(unsafe_code, reason = "arrays are read back through the driver")]
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;
#[path = "common/standin.rs"]
mod standin;

use std::time::Duration;

use common::process::{must_end, role};
use common::source::MemorySource;
use percolator::cudarc::driver::{CudaContext, result};
use percolator::{
    Batch, BatchShape, CudaDevice, Device, DeviceArray, DeviceError, Dtype, Feed, FeedBuilder, FeedError,
    ImageShape, Layout, Matching, MeanImage, Phase, Place, RecordCause, Registry, SyntheticStep, Target,
    Transform,
};
use standin::alone;

const RECORDS: usize = 11;
const IMAGE: ImageShape = ImageShape { channels: 3, height: 9, width: 7 };
const DTYPES: [Dtype; 4] = [Dtype::F32, Dtype::F16, Dtype::Bf16, Dtype::U8];

#[derive(Clone, Copy, Debug)]
enum Stored {
    Bytes,
    Floats,
}

#[derive(Clone, Copy, Debug)]
enum Mean {
    None,
    One,
    PerChannel,
    Image,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    stored: Stored,
    mean: Mean,
    dtype: Dtype,
    layout: Layout,
    phase: Phase,
    crop: u32,
}

impl Case {
    /// All that differ in what the device does.
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
            stored,
            mean,
            dtype,
            layout,
            phase,
            crop,
        })
        .filter(Case::is_allowed)
    }

    /// Bytes are made of bytes alone.
    fn is_allowed(&self) -> bool {
        self.dtype != Dtype::U8 || matches!((self.stored, self.mean), (Stored::Bytes, Mean::None))
    }

    fn source(&self) -> MemorySource {
        match self.stored {
            Stored::Bytes => {
                MemorySource::images("bytes", RECORDS, IMAGE.channels, IMAGE.height, IMAGE.width)
            }
            Stored::Floats => MemorySource::new("floats", (0..RECORDS).map(float_image)),
        }
    }

    fn feed(&self, place: Place) -> FeedBuilder {
        let transform = Transform::new().crop(self.crop).mirror(true);
        let transform = if self.dtype == Dtype::U8 { transform } else { transform.scale(0.017) };
        let transform = match self.mean {
            Mean::None => transform,
            Mean::One => transform.mean_value(117.3),
            Mean::PerChannel => transform.mean_values([104.1, 117.2, 123.3]),
            Mean::Image => transform.mean_image(mean_image()),
        };
        Feed::builder()
            .source(self.source())
            .registry(&Registry::new())
            .transform(transform)
            .transform_on(place)
            .phase(self.phase)
            .dtype(self.dtype)
            .layout(self.layout)
            .batch_size(4)
            .prefetch(2)
            .threads(2)
            .once()
    }
}

/// Floats of many sizes, infinities among them, and no NaN, whose bits are each machine's own.
fn float_image(index: usize) -> (Vec<u8>, Vec<u8>) {
    let float = |at: usize| match common::pixel(index, at) {
        7 => f32::INFINITY,
        8 => f32::NEG_INFINITY,
        9 => f32::MIN_POSITIVE / 3.0,
        10 => -0.0,
        byte => (f32::from(byte) - 100.5) * f32::powi(1.7, i32::from(byte % 31) - 15),
    };
    let [c, h, w] = [IMAGE.channels, IMAGE.height, IMAGE.width].map(|extent| i32::try_from(extent).unwrap());
    let floats = (0..IMAGE.checked_elements().unwrap()).map(float).collect();
    (common::key(index), common::float_datum(c, h, w, i32::try_from(index).unwrap(), floats))
}

fn mean_image() -> MeanImage {
    let pixels: Vec<f32> =
        (0..IMAGE.checked_elements().unwrap()).map(|at| f32::from(common::pixel(99, at)) / 3.0).collect();
    MeanImage::new(IMAGE, pixels).unwrap()
}

/// Reads an array back from its device.
fn read(batch: &Batch, array: &DeviceArray, element: usize) -> Vec<u8> {
    batch.wait().unwrap();
    CudaContext::new(batch.cuda().unwrap().ordinal()).unwrap().bind_to_thread().unwrap();
    let mut bytes = vec![0; array.shape.iter().product::<usize>() * element];
    // SAFETY: the array has arrived, is as large, and stays until the batch is dropped.
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

fn on_host(feed: FeedBuilder) -> Vec<Seen> {
    let mut feed = feed.build().unwrap();
    let seen =
        |batch: Batch| (batch.shape(), batch.bytes().to_vec(), bytemuck::cast_slice(batch.labels()).to_vec());
    feed.lanes().remove(0).map(|batch| seen(batch.unwrap())).collect()
}

fn on_device(feed: FeedBuilder) -> Vec<Seen> {
    let mut feed = feed.devices([Device::cuda(0).unwrap()]).build().unwrap();
    let seen = |batch: Batch| {
        let labels = batch.cuda().unwrap().labels();
        (batch.shape(), pixels(&batch), read(&batch, &labels, 4))
    };
    feed.lanes().remove(0).map(|batch| seen(batch.unwrap())).collect()
}

fn check_every_case() {
    for case in Case::all() {
        let (host, device) = (on_host(case.feed(Place::Host)), on_device(case.feed(Place::Device)));
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
    let Some(standin) = alone("a_device_transforms_as_the_host_does", "devices=1") else { return };
    must_end("the feeds", check_every_case);
    standin.take_report().must_be_empty();
}

const CASE: Case = Case {
    stored: Stored::Bytes,
    mean: Mean::Image,
    dtype: Dtype::F32,
    layout: Layout::Nchw,
    phase: Phase::Train,
    crop: 5,
};

#[test]
fn what_is_sent_is_the_windows_as_they_are_stored() {
    let Some(standin) = alone("what_is_sent_is_the_windows_as_they_are_stored", "devices=1") else { return };
    let mut feed = CASE.feed(Place::Device).devices([Device::cuda(0).unwrap()]).build().unwrap();
    // The same windows, with nothing done to them.
    let cuts = CASE.feed(Place::Host).transform(Transform::new().crop(5)).dtype(Dtype::U8);
    let windows = on_host(cuts);
    assert_eq!(feed.batch_shape().dtype, Dtype::F32);
    for (batch, (shape, window, _)) in feed.lanes().remove(0).zip(&windows) {
        let batch = batch.unwrap();
        assert_eq!((batch.host_shape(), batch.pixels::<u8>().unwrap()), (*shape, &**window));
        assert_eq!(batch.shape(), BatchShape { dtype: Dtype::F32, ..*shape });
        let mismatch = batch.pixels::<f32>().unwrap_err();
        assert_eq!((mismatch.found, mismatch.place), (Dtype::U8, Place::Device));
        assert!(mismatch.to_string().contains(".transform_on(Place::Host)"), "{mismatch}");
    }
    drop(feed);
    let report = standin.take_report();
    report.must_be_empty();
    assert_eq!(report.calls("cuLaunchKernel"), windows.len() as u64);
}

#[test]
fn the_steady_state_copies_once_and_launches_once() {
    let Some(standin) = alone("the_steady_state_copies_once_and_launches_once", "devices=1") else { return };
    let feed = Feed::builder().source(CASE.source()).registry(&Registry::new()).batch_size(4).prefetch(2);
    let feed = feed.transform(Transform::new().mirror(true).mean_value(3.0)).transform_on(Place::Device);
    let mut feed = feed.devices([Device::cuda(0).unwrap()]).build().unwrap();
    let mut lane = feed.lanes().remove(0);
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
    // But for what was, or is, under way.
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
    let Some(standin) = alone("targets_and_tensors_go_with_what_the_device_makes", "devices=1") else {
        return;
    };
    let masks = || {
        let masks = MemorySource::images("masks", RECORDS, 1, IMAGE.height, IMAGE.width);
        let transform = Transform::new().crop(5).mirror(true).scale(0.5);
        Target::paired(masks, Matching::Keys).transform(transform)
    };
    let case = Case { dtype: Dtype::Bf16, layout: Layout::Nhwc, ..CASE };
    let mut host = case.feed(Place::Host).target(masks()).build().unwrap();
    let feed = case.feed(Place::Device).target(masks()).devices([Device::cuda(0).unwrap()]);
    let mut feed = feed.build().unwrap();
    for (host, batch) in host.lanes().remove(0).zip(feed.lanes().remove(0)) {
        let (host, batch) = (host.unwrap(), batch.unwrap());
        let target = batch.cuda().unwrap().target().unwrap();
        assert_eq!(read(&batch, &target, 4), bytemuck::cast_slice::<f32, u8>(host.target_pixels().unwrap()));
        let pointer = batch.cuda().unwrap().pixels().pointer;
        let tensors = batch.into_dlpack().unwrap();
        let tensor = tensors.pixels.tensor();
        assert_eq!((tensor.data.addr() as u64, tensor.dtype.code, tensor.dtype.bits), (pointer, 4, 16));
    }
    drop((host, feed));
    standin.take_report().must_be_empty();
}

#[test]
fn batches_of_either_kind_grow() {
    let Some(standin) = alone("batches_of_either_kind_grow", "devices=1") else { return };
    let bytes = |index: usize, side: usize| common::image(index, 1, side, side);
    let floats = |index: usize| (common::key(index), common::float_datum(1, 3, 3, 0, vec![1.5; 9]));
    // Floats where bytes were, larger bytes, floats again.
    let records = [bytes(0, 3), floats(1), bytes(2, 6), floats(3), bytes(4, 9)];
    let feed = |place| {
        let source = MemorySource::new("either", records.clone());
        let feed = Feed::builder().source(source).registry(&Registry::new());
        feed.transform(Transform::new().mean_value(2.0)).transform_on(place).prefetch(1).once()
    };
    assert_eq!(on_device(feed(Place::Device)), on_host(feed(Place::Host)));
    standin.take_report().must_be_empty();
}

#[test]
fn bytes_go_with_floats_and_floats_not_with_bytes() {
    let Some(standin) = alone("bytes_go_with_floats_and_floats_not_with_bytes", "devices=1") else { return };
    let feed = |floats_at: usize, place| {
        let record =
            |index| if index == floats_at { float_image(index) } else { common::image(index, 3, 9, 7) };
        let source = MemorySource::new("both", (0..4).map(record));
        Feed::builder().source(source).registry(&Registry::new()).batch_size(4).transform_on(place).once()
    };
    assert_eq!(on_device(feed(0, Place::Device)), on_host(feed(0, Place::Host)));
    let mut feed = feed(2, Place::Device).devices([Device::cuda(0).unwrap()]).build().unwrap();
    match feed.lanes().remove(0).next().unwrap().unwrap_err() {
        FeedError::Record(error) => {
            assert_eq!((error.id.index, &error.cause), (2, &RecordCause::FloatsAmongBytes));
        }
        other => panic!("{other}"),
    }
    drop(feed);
    standin.take_report().must_be_empty();
}

#[test]
fn what_does_not_transform_says_so_before_anything_is_started() {
    let feed = CASE.feed(Place::Device).devices([Device::host(1)]);
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

    let Some(standin) = alone("a_synthetic_step_counts_what_it_waited", "devices=1") else { return };
    let feed = Feed::builder().source(CASE.source()).registry(&Registry::new()).batch_size(4);
    let mut feed = feed.devices([Device::cuda(0).unwrap()]).build().unwrap();
    let mut step = SyntheticStep::new(0, Duration::from_micros(200)).unwrap();
    for batch in feed.lanes().remove(0).take(STEPS) {
        step.run(batch.unwrap().cuda().unwrap()).unwrap();
    }
    let times = step.finish().unwrap();
    assert_eq!(times.steps, STEPS);
    // By the kernel's own clock it cannot have been less.
    assert!(times.worked >= Duration::from_micros(200) * 40, "{times:?}");
    assert!((0.0..1.0).contains(&times.waited_share()), "{times:?}");
    drop(feed);
    let report = standin.take_report();
    report.must_be_empty();
    assert_eq!(report.calls("cuLaunchKernel"), STEPS as u64);
}

#[test]
#[cfg(feature = "cli")]
fn the_command_says_how_long_a_gpu_waited() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_percolator"));
    let options = "feed --lmdb tests/data/golden/raw_lmdb --crop 20 --mirror --mean-value 3 --dtype bf16 --layout nhwc \
                   --transform-on device --devices cuda:0,cuda:1 --step-ms 0.5 --batches 12 --batch-size 3";
    command.args(options.split_whitespace()).current_dir(env!("CARGO_MANIFEST_DIR"));
    standin::load_in(&mut command, "devices=2");
    let output = command.output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("batches of 3x20x20x3 NHWC bf16"), "{said}");
    for device in ["cuda:0", "cuda:1"] {
        assert!(said.contains(&format!("{device} took 12 steps of ")), "{said}");
        assert!(said.contains(&format!("{device} was copied to at ")), "{said}");
    }
}
