//! Calls and operations that fail, and what a correct program does then.

use super::*;
use crate::common::process::must_end;

#[test]
fn each_fault_can_be_made() {
    let Some(standin) = alone(this_test!(), "devices=2\nmemory=1000") else { return };
    let (context, stream, _) = two_streams();
    let other = CudaContext::new(1).unwrap();
    let there = other.new_stream().unwrap();

    // The second call from now, on device 1 only, once; then every call.
    standin.fail("cuEventCreate", 2, Some(1), UNKNOWN);
    for device in [&context, &context, &context, &other] {
        device.new_event(None).unwrap();
    }
    assert_eq!(code(other.new_event(None)), UNKNOWN);
    other.new_event(None).unwrap();
    standin.fail_for_ever("cuStreamSynchronize", 1, None, UNKNOWN);
    assert_eq!((code(stream.synchronize()), code(there.synchronize())), (UNKNOWN, UNKNOWN));

    // Memory runs out, and becomes available again.
    let most = stream.alloc_zeros::<u8>(900).unwrap();
    assert_eq!(context.mem_get_info().unwrap(), (100, 1000));
    assert_eq!(code(stream.alloc_zeros::<u8>(101)), OUT_OF_MEMORY);
    drop(most);
    let mut on_device = stream.alloc_zeros::<u8>(1000).unwrap();
    standin.configure("pinned=10");
    // SAFETY: it is not read.
    assert_eq!(code(unsafe { context.alloc_pinned_with_flags::<u8>(11, 0) }), OUT_OF_MEMORY);

    // An operation fails: its context is unusable from then on, and no other.
    context.synchronize().unwrap();
    standin.fail("async:cuMemsetD8Async", 1, Some(0), ILLEGAL_ADDRESS);
    stream.memset_zeros(&mut on_device).unwrap();
    assert_eq!(code(context.synchronize()), ILLEGAL_ADDRESS);
    assert_eq!(code(context.synchronize()), ILLEGAL_ADDRESS, "for good");
    assert_eq!(code(stream.clone_dtoh(&on_device)), ILLEGAL_ADDRESS);
    other.synchronize().unwrap();
    drop((on_device, stream));
    drop(context);
    // Nothing holds the primary context any more; the second stream of `two_streams` is gone too.
    let report = standin.take_report();
    report.must_be_clean();
    assert_eq!((report.live("contexts"), report.live("device_buffers")), (1, 0), "{}", report.text);
    let again = CudaContext::new(0).unwrap();
    again.synchronize().unwrap();

    // A device is lost, even for threads that are waiting for it.
    let held = again.new_stream().unwrap();
    standin.hold(0, 2);
    let _buffer = held.alloc_zeros::<u8>(16).unwrap();
    let event = held.record_event(None).unwrap();
    must_end("a wait for a device that is lost", move || {
        std::thread::scope(|scope| {
            scope.spawn(|| standin.lose(0, 46));
            assert_eq!(code(event.synchronize()), 46);
        });
        assert_eq!(code(CudaContext::new(0)), 46);
        other.synchronize().unwrap();
    });
}

#[test]
fn a_call_that_frees_does_so_even_where_it_fails() {
    let Some(standin) = alone(this_test!(), "") else { return };
    let frees = [
        "cuEventDestroy_v2",
        "cuStreamDestroy_v2",
        "cuMemFreeHost",
        "cuMemFreeAsync",
        "cuDevicePrimaryCtxRelease_v2",
    ];
    for symbol in frees {
        standin.fail_for_ever(symbol, 1, Some(0), UNKNOWN);
    }
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let pinned = Pinned::new(&context, &[1; 64]);
    let buffer = stream.alloc_zeros::<u8>(64).unwrap();
    drop((pinned, buffer, stream));
    assert_eq!(code(context.check_err()), UNKNOWN);
    drop(context);
    let report = standin.take_report();
    report.must_be_empty();
    assert!(frees.iter().all(|symbol| report.calls(symbol) > 0), "{}", report.text);
}

/// cudarc's `alloc` leaks the memory if it cannot create the events that go with it.
#[test]
fn what_cudarc_leaks_is_counted() {
    let Some(standin) = alone(this_test!(), "") else { return };
    let (_context, stream, _) = two_streams();
    standin.fail("cuEventCreate", 1, None, UNKNOWN);
    // SAFETY: it fails.
    assert_eq!(code(unsafe { stream.alloc::<u8>(64) }), UNKNOWN);
    assert_eq!(standin.take_report().live("device_buffers"), 1);
}

/// A ring of pinned and device buffers on a stream of its own, read by a second stream: a small model of a
/// feed's lane, with only events between host, copy and use. Returns what the last steps read.
fn ring(device: usize, slots: usize, steps: usize, len: usize) -> Result<Vec<Vec<u8>>, DriverError> {
    let context = CudaContext::new(device)?;
    let (copies, uses) = (context.new_stream()?, context.new_stream()?);
    let mut ring = Vec::new();
    for _ in 0..slots {
        context.bind_to_thread()?;
        // SAFETY: a context is current.
        let start = unsafe { result::malloc_host(2 * len, 0) }?.cast::<u8>();
        let pinned = Pinned { context: Arc::clone(&context), start, len };
        let (copied, used) = (context.new_event(None)?, context.new_event(None)?);
        ring.push((pinned, copies.alloc_zeros::<u8>(len)?, copied, used));
    }
    let mut read = vec![Vec::new(); slots];
    let result = (|| {
        for step in 0..steps + slots {
            let (pinned, on_device, copied, used) = &mut ring[step % slots];
            used.synchronize()?;
            if step >= slots {
                // SAFETY: the second half of the pinned memory.
                read[step % slots] =
                    unsafe { std::slice::from_raw_parts(pinned.start.add(len), len) }.to_vec();
            }
            if step < steps {
                pinned.write(&pattern(len, step));
                let start = {
                    let (start, _guard) = on_device.device_ptr_mut(&copies);
                    start
                };
                pinned.copy_to(start, &copies)?;
                copied.record(&copies)?;
                uses.wait(copied)?;
                // SAFETY: the second half.
                let back = unsafe { std::slice::from_raw_parts_mut(pinned.start.add(len), len) };
                // SAFETY: the memory stays until the event below, or the end.
                unsafe { result::memcpy_dtoh_async(back, start, uses.cu_stream()) }?;
                used.record(&uses)?;
            }
        }
        context.check_err()
    })();
    // Nothing in flight may be freed, whatever failed; a call that waits may fail too, and is repeated.
    for _ in 0..2 {
        let _ = (copies.synchronize(), uses.synchronize());
    }
    result.map(|()| read)
}

#[test]
fn a_sound_program_is_found_sound() {
    let Some(standin) = alone(this_test!(), "devices=3\njitter_us=50") else {
        return;
    };
    for round in 0..30 {
        standin.configure(&format!("seed={round}"));
        let slots = 1 + round % 4;
        let threads = (0..3).map(|device| std::thread::spawn(move || ring(device, slots, 40, 5000 + round)));
        for thread in threads.collect::<Vec<_>>() {
            let read = thread.join().unwrap().unwrap();
            for (slot, bytes) in read.iter().enumerate() {
                let last = (0..40).rev().find(|step| step % slots == slot).unwrap();
                assert!(*bytes == pattern(5000 + round, last), "round {round}, slot {slot}");
            }
        }
        standin.take_report().must_be_empty();
    }
}

/// Every call, and every operation, of a correct program fails in turn: the program ends with an error.
#[test]
fn a_fault_at_every_call_ends_in_an_error() {
    let Some(standin) = alone(this_test!(), "") else { return };
    let run = || must_end("a ring with a fault", || ring(0, 2, 3, 64).map(|_| ()));
    for (name, errors) in [("*", [INVALID_VALUE, UNKNOWN]), ("async", [ILLEGAL_ADDRESS, 719])] {
        let mut failed = 0;
        for nth in 1.. {
            standin.reset();
            standin.fail(name, nth, None, errors[usize::try_from(nth % 2).unwrap()]);
            let result = run();
            let report = standin.take_report();
            report.must_be_clean();
            failed += u64::from(result.is_err());
            let calls = report.calls_of("cu") - report.calls_of("cuGetError");
            if (name == "*" && nth > calls) || (name == "async" && result.is_ok()) {
                assert!(result.is_ok());
                break;
            }
        }
        println!("{name}: {failed} faults ended the program");
        assert!(failed >= 8, "{name}: {failed}");
    }
}
