//! CUDA lanes when calls fail: every call, at any time, in feeds of every kind. They run on the stand-in
//! driver (`tests/standin`), whose ledger reports what a GPU would suffer in silence.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use percolator::device::cudarc::driver::{CudaContext, result};
use percolator::feed::TryNext;
use percolator::transform::TransformPlace;
use percolator::{Batch, Device, Lane};
use rand_mt::Mt;

use crate::common::process::{must_end, settles, this_test, threads};
use crate::common::sample::some_with;
use crate::feeds::{consume, feed};
use crate::standin::{Standin, alone};

/// Calls whose failure a feed must notice.
const MUST_BE_SEEN: [&str; 11] = [
    "cuStreamCreate",
    "cuStreamCreateWithPriority",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuEventCreate",
    "cuMemcpyHtoDAsync_v2",
    "cuEventRecord",
    "cuStreamWaitEvent",
    "cuEventQuery",
];

/// Those of them that only a transform on the device makes.
const ONLY_TO_TRANSFORM: [&str; 4] =
    ["cuStreamCreateWithPriority", "cuModuleLoadData", "cuModuleGetFunction", "cuLaunchKernel"];

/// Every call that a lane makes, from opening its device to its end.
const CALLS: [&str; 31] = [
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxPopCurrent_v2",
    "cuCtxSynchronize",
    "cuThreadExchangeStreamCaptureMode",
    "cuStreamIsCapturing",
    "cuStreamDestroy_v2",
    "cuModuleUnload",
    "cuStreamCreateWithPriority",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuLaunchKernel",
    "cuEventDestroy_v2",
    "cuMemFree_v2",
    "cuMemFreeHost",
    "cuStreamSynchronize",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuCtxGetCurrent",
    "cuCtxPushCurrent_v2",
    "cuStreamCreate",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemAlloc_v2",
    "cuEventCreate",
    "cuMemcpyHtoDAsync_v2",
    "cuEventRecord",
    "cuStreamWaitEvent",
    "cuEventQuery",
    "cuEventSynchronize",
    "async:cuMemcpyHtoDAsync_v2",
];

/// Resets the stand-in as if the process had just begun; but the library initialises the driver only once.
fn restart(standin: &Standin) {
    standin.reset();
    result::init().unwrap();
}

/// Feeds until it has seen enough, or an error of the device or the lane.
fn run(batches: usize, waits: bool, place: TransformPlace) -> Result<(), String> {
    let device = Device::cuda(0).map_err(|error| error.to_string())?;
    let feed = feed().transform_on(place).devices([device]);
    let mut feed = feed.build().map_err(|error| error.to_string())?;
    let lane = feed.take_lanes().unwrap().remove(0);
    let stream = CudaContext::new(0).and_then(|context| context.new_stream());
    for batch in lane.take(batches) {
        let batch = batch.map_err(|error| error.to_string())?;
        let there = batch.cuda().unwrap();
        match &stream {
            Ok(stream) if waits => there.wait_on(stream),
            _ => batch.wait(),
        }
        .map_err(|error| error.to_string())?;
    }
    Ok(())
}

#[test]
fn every_call_may_fail() {
    let Some(standin) = alone(this_test!(), "devices=1") else { return };
    // The driver is initialised once in a process.
    run(1, true, TransformPlace::Host).unwrap();
    // Its prefetch thread must be gone before the driver forgets its context.
    drop(standin.last_report());
    let ways = [(true, TransformPlace::Host), (false, TransformPlace::Host), (true, TransformPlace::Device)];
    for (call, (waits, place)) in CALLS.into_iter().flat_map(|call| ways.map(|way| (call, way))) {
        let mut failed = 0;
        for nth in some_with(1..=40, 7, |nth| *nth <= 3) {
            restart(&standin);
            standin.fail(call, nth, None, 999);
            let result = must_end(call, move || run(12, waits, place));
            if let Err(error) = result {
                assert!(error.contains("(999)") || error.contains("999"), "{call} {nth}: {error}");
                failed += 1;
            }
            let report = standin.last_report();
            report.must_be_clean();
        }
        println!("{call}: {failed} ended a feed");
        let is_made = waits || call != "cuStreamWaitEvent";
        let is_made = is_made && (place == TransformPlace::Device || !ONLY_TO_TRANSFORM.contains(&call));
        assert!(failed > 0 || !is_made || !MUST_BE_SEEN.contains(&call), "{call}, {place:?}: nobody noticed");
    }
}

#[test]
fn where_nobody_can_tell_memory_is_kept() {
    let Some(standin) = alone(this_test!(), "devices=1") else { return };
    let events = [("cuEventSynchronize", 1), ("cuEventRecord", 3)];
    let at = |place| events.map(|(event, nth)| (event, nth, place));
    let launched = [("cuLaunchKernel", 2, TransformPlace::Device)];
    for (event, nth, place) in
        at(TransformPlace::Host).into_iter().chain(at(TransformPlace::Device)).chain(launched)
    {
        restart(&standin);
        // Neither an event nor the whole device can be waited for.
        standin.fail_for_ever(event, nth, None, 999);
        standin.fail_for_ever("cuCtxSynchronize", 1, None, 999);
        let _ = must_end(event, move || run(12, true, place));
        let report = standin.last_report();
        report.must_be_clean();
        for call in ["cuMemFree_v2", "cuMemFreeHost", "cuModuleUnload"] {
            assert_eq!(report.calls(call), 0, "{call}: {}", report.text);
        }
    }
}

/// True in one of `one_in` cases.
fn toss(generator: &mut Mt, one_in: u32) -> bool {
    generator.next_u32().is_multiple_of(one_in)
}

/// One random feed: some devices, batches dropped in any order on any thread, at any moment, with a fault or
/// without.
fn random_run(standin: &Standin, seed: u32) {
    let mut generator = Mt::new(seed);
    let devices = [1, 2, 8][(generator.next_u32() % 3) as usize];
    let fault = toss(&mut generator, 2).then(|| {
        let call = CALLS[generator.next_u32() as usize % CALLS.len()];
        standin.fail(call, 1 + u64::from(generator.next_u32() % 60), None, 700);
    });
    let made: Result<Vec<_>, _> = (0..devices).map(Device::cuda).collect();
    let Ok(devices) = made else { return assert!(fault.is_some()) };
    let prefetch = 1 + generator.next_u32() as usize % 4;
    let place = if toss(&mut generator, 3) { TransformPlace::Device } else { TransformPlace::Host };
    let Ok(mut feed) = feed().transform_on(place).prefetch(prefetch).devices(devices).build() else {
        return assert!(fault.is_some());
    };
    let seeds: Vec<u32> = (0..8).map(|_| generator.next_u32()).collect();
    let failed: Vec<bool> = consume(feed.take_lanes().unwrap(), |lane| random_lane(lane, &seeds));
    assert!(fault.is_some() || failed.iter().all(|failed| !failed));
}

/// Consumes a lane at random; returns whether something failed.
fn random_lane(mut lane: Lane, seeds: &[u32]) -> bool {
    let mut generator = Mt::new(seeds[lane.number()]);
    let streams = CudaContext::new(lane.number())
        .and_then(|context| Ok([context.new_stream()?, context.new_stream()?]));
    let mut held = Vec::new();
    for _step in 0..generator.next_u32() % 40 {
        if held.len() >= 3 || toss(&mut generator, 3) {
            let batch =
                (!held.is_empty()).then(|| held.swap_remove(generator.next_u32() as usize % held.len()));
            if toss(&mut generator, 2) {
                std::thread::scope(|scope| drop(scope.spawn(move || drop(batch))));
            }
            continue;
        }
        let batch: Batch = match lane.try_next() {
            Ok(TryNext::Batch(batch)) => batch,
            Ok(TryNext::NotYet) => continue,
            Ok(TryNext::Ended) | Err(_) => return true,
        };
        if let Ok(streams) = &streams {
            for stream in streams.iter().filter(|_| toss(&mut generator, 2)) {
                if batch.cuda().unwrap().wait_on(stream).is_err() {
                    return true;
                }
            }
        }
        held.push(batch);
    }
    if toss(&mut generator, 2) {
        drop(lane);
    }
    false
}

#[test]
fn random_feeds_with_faults_leave_nothing_behind() {
    let runs = std::env::var("PERCOLATOR_CUDA_RUNS").map_or(150, |runs| runs.parse().unwrap());
    let Some(standin) = alone(this_test!(), "devices=8\nop_us=20\nns_per_kib=100") else {
        return;
    };
    let standin = Arc::new(standin);
    let before = threads();
    for seed in 0..runs {
        restart(&standin);
        let standin_too = standin.clone();
        must_end(&format!("the feed of seed {seed}"), move || random_run(&standin_too, seed));
        let report = standin.last_report();
        assert!(report.violations.is_empty(), "seed {seed}: {}", report.text);
    }
    standin.reset();
    settles(|| threads() <= before, &true, "no more threads than before");
}
