//! What only a GPU shows: that the kernel's machine code computes the host's bits at any size, that NVIDIA's
//! driver refuses and reports what the stand-in does, and that memory goes round only after real work. Each
//! test is a process of its own. Where there is no GPU, it says that it did not run, which is a failure with
//! `PERCOLATOR_NEED_GPU=1`.
#![expect(unsafe_code, reason = "work is put on streams through the driver")]
#![allow(clippy::unwrap_used, clippy::multiple_unsafe_ops_per_block, reason = "tests")]

use std::ffi::c_void;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use percolator::batch::ImageShape;
use percolator::device::cudarc::driver::{CudaContext, result, sys};
use percolator::device::{CudaDevice, SyntheticStep};
use percolator::transform::TransformPlace;
use percolator::{Device, DeviceError, Dtype, Layout, Phase};
use rand_mt::Mt;

use crate::common::log::Log;
use crate::common::process::{check, child_command, must_end, need, role, this_test};
use crate::feeds::{consume, feed};
use crate::lanes::{Reading, Seen, begin_capture, end_capture, on, stream, wanted};
use crate::transform::{Case, DTYPES, Mean, Stored, on_device, on_host};

/// Whether this is the child that runs `test` alone, on the GPUs of this machine. If not, runs that child.
fn alone_on_a_gpu(test: &str) -> bool {
    if role().is_some() {
        return true;
    }
    match CudaDevice::all() {
        Err(DeviceError::NoDriver) => need::missing("GPU", "there is no driver here"),
        devices => match &*devices.unwrap() {
            [] => need::missing("GPU", "there is no GPU here"),
            [first, ..] => {
                println!("on {}", first.name);
                check(test, &child_command(test, "gpu").output().unwrap());
            }
        },
    }
    false
}

/// One of the values.
fn pick<T: Copy>(generator: &mut Mt, values: &[T]) -> T {
    values[generator.next_u32() as usize % values.len()]
}

/// From 1 to `most`.
fn up_to(generator: &mut Mt, most: u32) -> u32 {
    generator.next_u32() % most + 1
}

fn random_case(generator: &mut Mt) -> Case {
    loop {
        let image = ImageShape {
            channels: up_to(generator, 5) as usize,
            height: up_to(generator, 300) as usize,
            width: up_to(generator, 300) as usize,
        };
        let least = u32::try_from(image.height.min(image.width)).unwrap();
        let crop = if generator.next_u32().is_multiple_of(3) { 0 } else { up_to(generator, least) };
        let case = Case {
            image,
            stored: pick(generator, &[Stored::Bytes, Stored::Floats]),
            mean: pick(generator, &[Mean::None, Mean::One, Mean::PerChannel, Mean::Image]),
            dtype: pick(generator, &DTYPES),
            layout: pick(generator, &[Layout::Nchw, Layout::Nhwc]),
            phase: pick(generator, &[Phase::Train, Phase::Test]),
            crop,
        };
        if case.is_allowed() {
            return case;
        }
    }
}

#[test]
fn random_images_are_transformed_to_the_bits_of_the_host() {
    if !alone_on_a_gpu(this_test!()) {
        return;
    }
    let mut generator = Mt::new(2026);
    for number in 0..200 {
        let case = random_case(&mut generator);
        let batch = up_to(&mut generator, 12) as usize;
        let host = on_host(case.feed(TransformPlace::Host).batch_size(batch));
        let device =
            must_end("a feed", move || on_device(case.feed(TransformPlace::Device).batch_size(batch)));
        assert!(host == device, "case {number}, in batches of {batch}: {case:?}");
    }
}

#[test]
fn four_lanes_of_one_gpu_get_what_four_lanes_of_the_host_get() {
    if !alone_on_a_gpu(this_test!()) {
        return;
    }
    const BATCHES: usize = 200;
    let mut feed = feed().devices(vec![Device::cuda(0).unwrap(); 4]).build().unwrap();
    let arrived = consume(feed.take_lanes().unwrap(), |lane| {
        let stream = stream(0);
        // Each batch is dropped before it was read, or the reads have even begun.
        let readings = lane.take(BATCHES).map(|batch| Seen::on_device(&batch.unwrap(), &stream).unwrap());
        readings.map(Reading::finish).collect::<Vec<_>>()
    });
    assert!(arrived == wanted(4, BATCHES));
}

#[test]
fn the_smallest_batches_have_page_locked_memory() {
    if !alone_on_a_gpu(this_test!()) {
        return;
    }
    let log = Log::default();
    // The thread that builds the feed allocates the memory.
    drop(log.listen(|| on(1).build().unwrap()));
    assert!(!log.text().contains("page-locked"), "{}", log.text());
}

/// What a stream waits for: the other end of the channel that its argument owns is dropped.
unsafe extern "C" fn wait_for_the_test(receiver: *mut c_void) {
    // SAFETY: it is the box that the test has leaked, once, for this call.
    let receiver = unsafe { Box::from_raw(receiver.cast::<Receiver<()>>()) };
    let _ = receiver.recv();
}

#[test]
fn memory_goes_round_only_after_the_work_that_reads_it() {
    if !alone_on_a_gpu(this_test!()) {
        return;
    }
    let mut feed = on(1).build().unwrap();
    let mut lane = feed.take_lanes().unwrap().remove(0);
    let stream = stream(0);
    let mut readings = Vec::new();
    // Dropped before the readings, which wait for the stream, also if this test fails.
    let (release, released) = channel::<()>();
    let released = Box::into_raw(Box::new(released)).cast();
    // SAFETY: the stream is alive, and the function takes the box.
    unsafe { result::stream::launch_host_function(stream.cu_stream(), wait_for_the_test, released) }.unwrap();
    // The ring's three batches are dropped while the reads of them wait.
    for _ in 0..3 {
        readings.push(Seen::on_device(&lane.next().unwrap().unwrap(), &stream).unwrap());
    }
    // A lane that fills memory too early has the time to: a batch takes it less than a millisecond.
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(200) {
        assert!(lane.try_next().unwrap().batch().is_none(), "the stream still reads every batch");
        thread::yield_now();
    }
    drop(release);
    let found: Vec<_> = readings.into_iter().map(Reading::finish).collect();
    assert!(found == wanted(1, 3).remove(0));
    assert_eq!(must_end("the lane", move || lane.take(50).filter(Result::is_ok).count()), 50);
}

#[test]
fn streams_whose_work_cannot_be_awaited_are_refused() {
    if !alone_on_a_gpu(this_test!()) {
        return;
    }
    let mut feed = on(1).build().unwrap();
    let batch = feed.take_lanes().unwrap().remove(0).next().unwrap().unwrap();
    let there = batch.cuda().unwrap();
    let per_thread = CudaContext::new(0).unwrap().per_thread_stream();
    let error = there.wait_on(&per_thread).unwrap_err().to_string();
    assert!(error.contains("it is the per-thread"), "{error}");
    let capturing = stream(0);
    begin_capture(&capturing);
    let error = there.wait_on(&capturing).unwrap_err().to_string();
    assert!(error.contains("it is capturing a graph"), "{error}");
    end_capture(&capturing);
    there.wait_on(&capturing).unwrap();
}

#[test]
fn a_whole_feed_beside_a_capture_does_not_end_it() {
    if !alone_on_a_gpu(this_test!()) {
        return;
    }
    let (capturing, used) = (stream(0), stream(0));
    begin_capture(&capturing);
    let mut feed = on(1).build().unwrap();
    for batch in feed.take_lanes().unwrap().remove(0).take(20) {
        batch.unwrap().cuda().unwrap().wait_on(&used).unwrap();
    }
    drop(feed);
    end_capture(&capturing);
}

/// A kernel that ends its context.
const TRAP: &core::ffi::CStr =
    c".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry end_all() {\n    trap;\n}\n";

#[test]
fn a_kernel_that_fails_ends_the_lanes_of_its_device_with_an_error() {
    if !alone_on_a_gpu(this_test!()) {
        return;
    }
    must_end("the lanes", || {
        let zero = Device::cuda(0).unwrap();
        let mut feed = feed().devices([zero.clone(), zero, Device::host(0)]).build().unwrap();
        let mut lanes = feed.take_lanes().unwrap();
        let on_host = lanes.pop().unwrap();
        assert!(lanes.iter_mut().all(|lane| lane.next().unwrap().is_ok()));
        let stream = stream(0);
        // SAFETY: the PTX ends with a zero; its function takes nothing, and the stream is alive.
        unsafe {
            let module = result::module::load_data(TRAP.as_ptr().cast()).unwrap();
            let trap = result::module::get_function(module, c"end_all".to_owned()).unwrap();
            result::launch_kernel(trap, (1, 1, 1), (1, 1, 1), 0, stream.cu_stream(), &mut []).unwrap();
            assert!(sys::cuStreamSynchronize(stream.cu_stream()).result().is_err());
        }
        for lane in lanes {
            let error = lane.take(100).find_map(Result::err).expect("the device is lost");
            assert!(error.to_string().contains("cuda:0"), "{error}");
            println!("{error}");
        }
        assert_eq!(on_host.take(20).filter(Result::is_ok).count(), 20);
        drop(feed);
    });
}

#[test]
fn a_synthetic_step_is_as_long_as_it_was_told() {
    if !alone_on_a_gpu(this_test!()) {
        return;
    }
    const STEPS: usize = 50;
    let mut feed = on(1).dtype(Dtype::F32).build().unwrap();
    let mut step = SyntheticStep::new(0, Duration::from_millis(2)).unwrap();
    for batch in feed.take_lanes().unwrap().remove(0).take(STEPS) {
        step.run(batch.unwrap().cuda().unwrap()).unwrap();
    }
    let times = step.finish().unwrap();
    println!("{times:?}: waited for {:.4} of the time", times.waited_share());
    // A GPU may take longer than it was told to. Its clock ticks coarsely.
    assert!(times.worked >= Duration::from_micros(1_980) * u32::try_from(STEPS).unwrap());
}
