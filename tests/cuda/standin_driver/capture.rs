//! Capturing streams, and per-thread streams: what works beside them, and what ends a capture.

use sys::CUstreamCaptureMode as Mode;
use sys::CUstreamCaptureStatus as Status;

use super::*;

const UNSUPPORTED: u32 = 900;
const INVALIDATED: u32 = 901;
const ISOLATION: u32 = 905;
const IMPLICIT: u32 = 906;
const CAPTURED_EVENT: u32 = 907;
const WRONG_THREAD: u32 = 908;
const ILLEGAL_STATE: u32 = 401;

const GLOBAL: Mode = Mode::CU_STREAM_CAPTURE_MODE_GLOBAL;
const THREAD_LOCAL: Mode = Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: Mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;

fn begin(stream: &CudaStream, mode: Mode) -> Result<(), DriverError> {
    // SAFETY: the stream is alive.
    unsafe { result::stream::begin_capture(stream.cu_stream(), mode) }
}

fn end(stream: &CudaStream) -> Result<sys::CUgraph, DriverError> {
    // SAFETY: the stream is alive.
    unsafe { result::stream::end_capture(stream.cu_stream()) }
}

fn status(stream: &CudaStream) -> Status {
    // SAFETY: the stream is alive.
    unsafe { result::stream::is_capturing(stream.cu_stream()) }.unwrap()
}

fn destroy(graph: sys::CUgraph) -> Result<(), DriverError> {
    // SAFETY: the stand-in looks the handle up.
    unsafe { sys::cuGraphDestroy(graph).result() }
}

/// Changes this thread's mode, and returns the previous one.
fn exchange(mut mode: Mode) -> Mode {
    // SAFETY: the driver reads and writes a mode.
    unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut mode).result() }.unwrap();
    mode
}

#[test]
fn what_is_captured_is_not_run() {
    let Some(standin) = alone(this_test!(), "") else { return };
    let (context, stream, second) = two_streams();
    let mut on_device = stream.alloc_zeros::<u8>(64).unwrap();
    let (start, pinned) = (raw(&mut on_device), Pinned::new(&context, &[7; 64]));
    let event = context.new_event(None).unwrap();
    // SAFETY: a context is current.
    let legacy = || unsafe { result::stream::is_capturing(std::ptr::null_mut()) };
    assert_eq!(legacy().unwrap(), Status::CU_STREAM_CAPTURE_STATUS_NONE);
    assert_eq!(code(begin(&context.default_stream(), GLOBAL)), UNSUPPORTED);

    begin(&stream, GLOBAL).unwrap();
    assert_eq!(code(begin(&stream, GLOBAL)), ILLEGAL_STATE);
    assert_eq!(status(&stream), Status::CU_STREAM_CAPTURE_STATUS_ACTIVE);
    pinned.copy_to(start, &stream).unwrap();
    event.record(&stream).unwrap();
    stream.wait(&event).unwrap();
    assert_eq!((standin.queued(0, 0), status(&second)), (0, Status::CU_STREAM_CAPTURE_STATUS_NONE));
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            context.bind_to_thread().unwrap();
            code(end(&stream))
        });
        assert_eq!(other.join().unwrap(), WRONG_THREAD);
    });
    let graph = end(&stream).unwrap();
    assert_eq!(status(&stream), Status::CU_STREAM_CAPTURE_STATUS_NONE);
    assert_eq!(code(end(&stream)), ILLEGAL_STATE);
    assert_eq!(stream.clone_dtoh(&on_device).unwrap(), [0; 64], "nothing was copied");
    assert_eq!(standin.take_report().live("graphs"), 1);
    destroy(graph).unwrap();
    let report = standin.take_report();
    report.must_be_clean();
    assert_eq!(report.live("graphs"), 0);
    assert_eq!(code(destroy(graph)), INVALID_HANDLE);
    standin.take_report().must_only_have("use after destroy: cuGraphDestroy");

    // The legacy stream waits for blocking streams, and cannot while one of them captures.
    let per_thread = context.per_thread_stream();
    begin(&per_thread, RELAXED).unwrap();
    assert_eq!(code(legacy()), IMPLICIT);
    destroy(end(&per_thread).unwrap()).unwrap();
    assert_eq!(legacy().unwrap(), Status::CU_STREAM_CAPTURE_STATUS_NONE);
    standin.take_report().must_be_clean();
}

#[test]
fn an_unsafe_call_ends_the_captures_that_mind_it() {
    let Some(standin) = alone(this_test!(), "") else { return };
    let (context, stream, _) = two_streams();
    let event = context.new_event(None).unwrap();
    for (capture, thread, is_own, ends) in [
        (GLOBAL, GLOBAL, true, true),
        (GLOBAL, THREAD_LOCAL, true, true),
        (GLOBAL, RELAXED, true, false),
        (THREAD_LOCAL, GLOBAL, true, true),
        (THREAD_LOCAL, RELAXED, true, false),
        (RELAXED, GLOBAL, true, false),
        (GLOBAL, GLOBAL, false, true),
        (GLOBAL, THREAD_LOCAL, false, false),
        (GLOBAL, RELAXED, false, false),
        (THREAD_LOCAL, GLOBAL, false, false),
        (RELAXED, GLOBAL, false, false),
    ] {
        begin(&stream, capture).unwrap();
        let ask = || {
            context.bind_to_thread().unwrap();
            assert_eq!(exchange(thread), GLOBAL, "what each thread begins with");
            let said = event.try_is_complete();
            assert_eq!(exchange(GLOBAL), thread);
            said
        };
        let said = if is_own { ask() } else { std::thread::scope(|scope| scope.spawn(ask).join().unwrap()) };
        let case = (capture, thread, is_own);
        if ends {
            assert_eq!(code(said), UNSUPPORTED, "{case:?}");
            assert_eq!(status(&stream), Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED, "{case:?}");
            assert_eq!(code(event.record(&stream)), INVALIDATED, "{case:?}");
            assert_eq!(code(end(&stream)), INVALIDATED, "{case:?}");
            assert_eq!(status(&stream), Status::CU_STREAM_CAPTURE_STATUS_NONE, "{case:?}");
        } else {
            assert!(said.unwrap(), "{case:?}");
            destroy(end(&stream).unwrap()).unwrap();
        }
    }
    standin.take_report().must_be_clean();
}

#[test]
fn what_conflicts_with_a_capture_ends_it_in_every_mode() {
    let Some(standin) = alone(this_test!(), "") else {
        return;
    };
    let (context, stream, second) = two_streams();
    let (event, outside) = (context.new_event(None).unwrap(), second.record_event(None).unwrap());
    exchange(RELAXED);
    type Call<'a> = &'a dyn Fn() -> Result<(), DriverError>;
    let conflicts: [(u32, Call<'_>); 6] = [
        (UNSUPPORTED, &|| stream.synchronize()),
        (UNSUPPORTED, &|| context.synchronize()),
        (CAPTURED_EVENT, &|| event.synchronize()),
        (CAPTURED_EVENT, &|| event.try_is_complete().map(drop)),
        (ISOLATION, &|| stream.wait(&outside)),
        (UNSUPPORTED, &|| second.wait(&event)),
    ];
    for (index, (wanted, conflict)) in conflicts.into_iter().enumerate() {
        begin(&stream, RELAXED).unwrap();
        event.record(&stream).unwrap();
        assert_eq!(code(conflict()), wanted, "{index}");
        assert_eq!(status(&stream), Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED, "{index}");
        assert_eq!(code(end(&stream)), INVALIDATED, "{index}");
        event.record(&second).unwrap();
        context.synchronize().unwrap();
    }
    standin.take_report().must_be_clean();
}

#[test]
fn each_thread_has_a_stream_of_its_own() {
    let Some(standin) = alone(this_test!(), "") else { return };
    let context = CudaContext::new(0).unwrap();
    let stream = context.per_thread_stream();
    let mut on_device = stream.alloc_zeros::<u8>(64).unwrap();
    let start = raw(&mut on_device);
    let pinned = Pinned::new(&context, &[1; 64]);
    pinned.copy_to(start, &stream).unwrap();
    // The handle is the same, but there is no order: a thread waits for its own stream.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = Pinned::new(&context, &[2; 64]);
            other.copy_to(start, &stream).unwrap();
            stream.synchronize().unwrap();
        });
    });
    stream.synchronize().unwrap();
    standin
        .take_report()
        .must_only_have("race: cuMemcpyHtoDAsync_v2 on the per-thread stream of device 0 writes");
}
