//! Misuses of a driver that the stand-in finds: buffers changed or freed in flight, unordered streams, dead
//! handles and addresses.

use std::os::unix::process::ExitStatusExt as _;

use super::*;
use crate::common::process::{child_command, role};
use crate::standin;

/// The soundness holes of cudarc's safe layer, by the letters that the notes on it use.
#[test]
fn the_races_of_cudarcs_safe_layer_are_found() {
    let Some(standin) = alone(this_test!(), "") else { return };
    for case in ["A", "B", "C", "D", "E"] {
        standin.reset();
        let context = CudaContext::new(0).unwrap();
        let (stream, place) = match case {
            "A" => (context.default_stream(), -1),
            _ => (context.new_stream().unwrap(), 0),
        };
        if matches!(case, "D" | "E") {
            // SAFETY: not sound: the test breaks the promise to order by itself, which is what is to be
            // found.
            unsafe { context.disable_event_tracking() };
        }
        // SAFETY: written below, before it is read.
        let mut pinned = unsafe { context.alloc_pinned_with_flags::<u8>(64, 0) }.unwrap();
        pinned.as_mut_slice().unwrap().fill(1);
        let mut on_device = stream.alloc_zeros::<u8>(64).unwrap();
        stream.synchronize().unwrap();
        standin.take_report().must_be_clean();

        standin.hold(0, place);
        match case {
            "C" => stream.memcpy_htod(&pinned.as_slice().unwrap()[8..24], &mut on_device).unwrap(),
            _ => stream.memcpy_htod(&pinned, &mut on_device).unwrap(),
        }
        if case == "B" {
            // Sound: `as_mut_slice` waits, so another thread must release the stream meanwhile.
            std::thread::scope(|scope| {
                scope.spawn(|| standin.release(0, place));
                pinned.as_mut_slice().unwrap().fill(2);
            });
            stream.synchronize().unwrap();
            standin.take_report().must_be_clean();
            continue;
        }
        if case == "E" {
            drop(pinned);
            standin.take_report().must_only_have("freed in flight: cuMemFreeHost");
            standin.release(0, place);
            stream.synchronize().unwrap();
            standin.take_report().must_be_clean();
            continue;
        }
        pinned.as_mut_slice().unwrap().fill(2);
        standin.release(0, place);
        stream.synchronize().unwrap();
        standin.take_report().must_only_have("changed in flight: ");
    }
}

/// Not in the notes: a buffer of cudarc's `alloc` has no event for its allocation.
#[test]
fn memory_is_not_there_before_its_allocation() {
    let Some(standin) = alone(this_test!(), "") else { return };
    let (context, first, second) = two_streams();
    let pinned = Pinned::new(&context, &[1; 64]);
    // SAFETY: written before it is read.
    let mut on_device = unsafe { first.alloc::<u8>(64) }.unwrap();
    {
        let (start, _guard) = on_device.device_ptr_mut(&second);
        pinned.copy_to(start, &second).unwrap();
    }
    second.synchronize().unwrap();
    standin.take_report().must_only_have("race: cuMemcpyHtoDAsync_v2 on stream 1");
}

#[test]
fn unordered_streams_are_found_whether_or_not_they_meet() {
    let Some(standin) = alone(this_test!(), "") else {
        return;
    };
    let (context, first, second) = two_streams();
    let mut on_device = first.alloc_zeros::<u8>(64).unwrap();
    let start = raw(&mut on_device);
    let pinned = Pinned::new(&context, &[1; 64]);
    let back = Pinned::new(&context, &[0; 64]);
    let settle = || {
        while standin.queued(0, 0) + standin.queued(0, 1) > 0 {
            std::thread::yield_now();
        }
    };
    // By the second copy the first has ended, but nothing guarantees it.
    pinned.copy_to(start, &first).unwrap();
    settle();
    back.copy_from(start, &second).unwrap();
    standin.take_report().must_only_have("race: cuMemcpyDtoHAsync_v2 on stream 1 of device 0 reads");
    settle();
    pinned.copy_to(start, &first).unwrap();
    standin.take_report().must_only_have("race: cuMemcpyHtoDAsync_v2 on stream 0 of device 0 writes");
    context.synchronize().unwrap();

    // Ordered by an event; by the host's wait for a stream or an event; by a query that says it is done.
    pinned.copy_to(start, &first).unwrap();
    let event = first.record_event(None).unwrap();
    second.wait(&event).unwrap();
    back.copy_from(start, &second).unwrap();
    second.synchronize().unwrap();
    pinned.copy_to(start, &first).unwrap();
    let event = first.record_event(None).unwrap();
    while !event.try_is_complete().unwrap() {
        std::thread::yield_now();
    }
    back.copy_from(start, &second).unwrap();
    second.synchronize().unwrap();
    standin.take_report().must_be_clean();

    // An event that was recorded too early orders nothing after it.
    let event = first.record_event(None).unwrap();
    pinned.copy_to(start, &first).unwrap();
    second.wait(&event).unwrap();
    back.copy_from(start, &second).unwrap();
    standin.take_report().must_only_have("race: ");
    context.synchronize().unwrap();
    // Two reads, or uses of disjoint halves, are no race.
    first.clone_dtoh(&on_device).unwrap();
    back.copy_from(start, &second).unwrap();
    context.synchronize().unwrap();
    for (stream, offset) in [(&first, 0), (&second, 32)] {
        // SAFETY: inside the buffer.
        unsafe { result::memset_d8_async(start + offset, 1, 32, stream.cu_stream()) }.unwrap();
    }
    context.synchronize().unwrap();
    standin.take_report().must_be_clean();
}

#[test]
fn what_is_freed_or_destroyed_too_early_is_found() {
    let Some(standin) = alone(this_test!(), "") else { return };
    let (context, stream, second) = two_streams();
    let mut on_device = stream.alloc_zeros::<u8>(64).unwrap();
    let start = raw(&mut on_device);
    let allocate = || result_alloc(64);

    let pinned = Pinned::new(&context, &[1; 64]);
    standin.hold(0, 0);
    pinned.copy_to(start, &stream).unwrap();
    drop(pinned);
    let report = standin.take_report();
    report.must_only_have("freed in flight: cuMemFreeHost");
    assert!(report.text.contains("which is queued or running"));
    standin.release(0, 0);
    stream.synchronize().unwrap();

    // It has ended, but only by luck.
    let pinned = Pinned::new(&context, &[1; 64]);
    pinned.copy_to(start, &stream).unwrap();
    while standin.queued(0, 0) > 0 {
        std::thread::yield_now();
    }
    drop(pinned);
    assert!(standin.take_report().text.contains("had ended, but nobody had waited"));

    // SAFETY: the stand-in keeps what is in flight, and dead addresses are only looked up.
    unsafe {
        let other = allocate();
        result::memset_d8_async(other, 0, 64, stream.cu_stream()).unwrap();
        result::free_sync(other).unwrap();
        standin.take_report().must_only_have("freed in flight: cuMemFree_v2");
        assert_eq!(code(result::free_sync(other)), INVALID_VALUE);
        standin.take_report().must_only_have("freed twice: cuMemFree_v2");
        assert_eq!(code(result::memset_d8_async(other, 0, 64, stream.cu_stream())), INVALID_VALUE);
        standin.take_report().must_only_have("use after free: cuMemsetD8Async");

        let other = allocate();
        assert_eq!(code(result::memset_d8_async(other + 1, 0, 64, stream.cu_stream())), INVALID_VALUE);
        standin.take_report().must_only_have("out of range: cuMemsetD8Async");
        assert_eq!(code(result::memset_d8_async(other + 64, 0, 1, stream.cu_stream())), INVALID_VALUE);
        standin.take_report().must_only_have("not memory of device 0");
        result::memset_d8_async(other, 0, 64, stream.cu_stream()).unwrap();
        result::free_async(other, second.cu_stream()).unwrap();
        standin.take_report().must_only_have("race: cuMemFreeAsync on stream 1");

        let event = result::event::create(CUevent_flags::CU_EVENT_DEFAULT).unwrap();
        result::event::destroy(event).unwrap();
        assert_eq!(code(result::event::query(event)), INVALID_HANDLE);
        standin.take_report().must_only_have("use after destroy: cuEventQuery");

        // Pending work is done when its stream is destroyed; the handle is invalid at once.
        let other = result::stream::create(result::stream::StreamKind::NonBlocking).unwrap();
        standin.hold(0, 2);
        result::memset_d8_async(allocate(), 0, 64, other).unwrap();
        let done = context.new_event(None).unwrap();
        result::event::record(done.cu_event(), other).unwrap();
        result::stream::destroy(other).unwrap();
        standin.take_report().must_be_clean();
        standin.release(0, 2);
        done.synchronize().unwrap();
        assert_eq!(code(result::stream::synchronize(other)), INVALID_HANDLE);
        standin.take_report().must_only_have("use after destroy: cuStreamSynchronize");
    }
    drop((on_device, stream, second));
    let report = standin.take_report();
    assert_eq!((report.live("device_buffers"), report.live("streams")), (1, 0), "{}", report.text);
    drop(context);
    let report = standin.take_report();
    assert_eq!((report.live("device_buffers"), report.abandoned("device_buffers")), (0, 1));
    assert_eq!(report.live("contexts"), 0);
}

fn result_alloc(len: usize) -> u64 {
    // SAFETY: a context is current in each test that calls this.
    unsafe { result::malloc_sync(len) }.unwrap()
}

#[test]
fn pinned_memory_faults_once_it_is_freed() {
    let test = this_test!();
    if role().is_none() {
        let mut child = child_command(test, "stand-in");
        standin::load_in(&mut child, "");
        let status = child.output().unwrap().status;
        assert_eq!(status.signal(), Some(11), "{status}");
        return;
    }
    let pinned = Pinned::new(&CudaContext::new(0).unwrap(), &[1; 64]);
    let start = pinned.start;
    drop(pinned);
    // SAFETY: not sound: the test is that it faults.
    println!("read {}", unsafe { start.read_volatile() });
}

#[test]
fn a_device_pointer_is_no_address() {
    let test = this_test!();
    if role().is_none() {
        let mut child = child_command(test, "stand-in");
        standin::load_in(&mut child, "");
        let status = child.output().unwrap().status;
        assert_eq!(status.signal(), Some(11), "reading device memory as the host's must fault: {status}");
        return;
    }
    let context = CudaContext::new(0).unwrap();
    let on_device = context.default_stream().clone_htod(&[1_u8; 64]).unwrap();
    let (start, _guard) = on_device.device_ptr(on_device.stream());
    // SAFETY: not sound: the test is that it faults.
    let byte = unsafe { (start as *const u8).read_volatile() };
    println!("read {byte}");
}
