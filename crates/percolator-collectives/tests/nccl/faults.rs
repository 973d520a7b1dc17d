//! GPUs and libraries that are missing, processes that do not come, and calls that fail: errors, and no wait
//! without an end.

use percolator_distribute::CollectiveError;

use super::*;
use crate::collectives::run;
use crate::common::process::{need, this_test};

const SHORT: Duration = Duration::from_secs(2);

#[test]
fn a_process_that_does_not_come_ends_the_round() {
    let Some(_nccl) = alone(this_test!()) else { return };
    let found = run(joined(2, SHORT), |end| {
        end.all_gather(&[1]).unwrap();
        if end.rank() == 0 {
            let errors = [end.all_gather(&[1]).unwrap_err(), end.all_gather(&[1]).unwrap_err()];
            return errors.map(|error| error.to_string()).to_vec();
        }
        // Leaving waits for the other, which has given up.
        std::mem::forget(end);
        Vec::new()
    });
    let due = "some of the 2 processes did not come to the round within 2.0s";
    assert!(found[0].len() == 2 && found[0].iter().all(|error| error.starts_with(due)), "{found:?}");
}

#[test]
fn a_process_that_cannot_join_is_an_error_for_all() {
    let Some(nccl) = alone(this_test!()) else { return };
    // One that has no such GPU says so.
    let ends = run(LocalCollective::group(3), |end| {
        let device = if end.rank() == 1 { 9 } else { end.rank() };
        collective(device, &end, PATIENCE).unwrap_err()
    });
    assert!(matches!(ends[1], NcclError::NoDevice { device: 9, found: 4 }), "{ends:?}");
    assert!([&ends[0], &ends[2]].iter().all(|error| matches!(error, NcclError::Elsewhere { rank: 1 })));
    // One whose NCCL fails is not waited for for ever.
    nccl.fail("ncclCommInitRankConfig", 2);
    let ends = join_all(2, SHORT).into_iter().map(Result::unwrap_err).collect::<Vec<_>>();
    let is_late = |error: &NcclError| matches!(error, NcclError::Late { size: 2, .. });
    let is_call = |error: &NcclError| matches!(error, NcclError::Call { call: "ncclCommInitRankConfig", .. });
    assert!(ends.iter().any(is_late) && ends.iter().any(is_call), "{ends:?}");
    // One that has left the collective over which they meet.
    let found = run(LocalCollective::group(2), |end| match end.rank() {
        0 => None,
        _ => Some(collective(0, &end, SHORT).unwrap_err()),
    });
    assert!(matches!(found[1], Some(NcclError::Meeting(CollectiveError::Left { rank: 0, .. }))), "{found:?}");
    nccl.fail("ncclGetUniqueId", 2);
    let ends = join_all(2, SHORT).into_iter().map(Result::unwrap_err).collect::<Vec<_>>();
    assert!(ends[0].to_string().contains("ncclGetUniqueId failed: the stand-in was told to"), "{ends:?}");
    assert!(matches!(ends[1], NcclError::Elsewhere { rank: 0 }), "{ends:?}");
}

#[test]
fn calls_that_fail_and_connections_that_break_end_the_round() {
    let Some(nccl) = alone(this_test!()) else { return };
    let mut ends = joined(1, PATIENCE);
    nccl.fail("ncclAllGather", 1);
    let error = ends.remove(0).all_gather(&[1]).unwrap_err().to_string();
    assert!(error.contains("ncclAllGather failed: the stand-in was told to fail"), "{error}");
    // The other process has gone, and NCCL noticed while the round was waited for.
    let mut ends = joined(2, PATIENCE);
    let (other, end) = (ends.pop().unwrap(), ends.pop().unwrap());
    let waiting = std::thread::spawn(move || end.all_gather(&[1]).unwrap_err().to_string());
    nccl.break_all(6);
    let error = waiting.join().unwrap();
    assert!(error.contains("NCCL failed") && error.contains("ncclRemoteError"), "{error}");
    drop(other);
}

#[test]
fn an_old_nccl_is_refused() {
    let Some(nccl) = alone(this_test!()) else { return };
    nccl.version(21_303);
    let error = collective(0, &LocalCollective::group(1).remove(0), PATIENCE).unwrap_err();
    assert_eq!(error.to_string(), "NCCL 2.13 is too old: 2.14 or newer is needed");
}

#[test]
fn libraries_that_are_missing_are_named() {
    // This process loads no stand-in.
    match collective(0, &LocalCollective::group(1).remove(0), PATIENCE) {
        Err(NcclError::NoLibrary { library, .. }) => assert!(library.contains(".so"), "{library}"),
        // There is a GPU, or at least its libraries.
        other => need::missing("NO_NCCL", format_args!("the libraries are there: {other:?}")),
    }
}
