//! Trying again while the records cannot be reached.

use std::thread;
use std::time::{Duration, Instant};

use tracing::warn;

use super::error::LeaseError;
use crate::metadata::MetadataError;

/// Does what asks another process, again and again while nobody answers. It must be such that doing it twice
/// is as good as once: what was asked for may have happened.
pub(super) fn patiently<T>(
    worker: &str,
    patience: Duration,
    is_stopping: &dyn Fn() -> bool,
    work: impl Fn() -> Result<T, LeaseError>,
) -> Result<T, LeaseError> {
    patiently_while(|_| false, worker, patience, is_stopping, work)
}

/// As [`patiently`]; also while there is an error that may pass.
pub(super) fn patiently_while<T>(
    may_pass: impl Fn(&LeaseError) -> bool,
    worker: &str,
    patience: Duration,
    is_stopping: &dyn Fn() -> bool,
    work: impl Fn() -> Result<T, LeaseError>,
) -> Result<T, LeaseError> {
    const PAUSE_MIN: Duration = Duration::from_millis(20);
    const PAUSE_MAX: Duration = Duration::from_secs(1);
    let may_pass = |error: &LeaseError| {
        matches!(error, LeaseError::Metadata(MetadataError::Unreachable { .. })) || may_pass(error)
    };
    let (start, mut pause) = (Instant::now(), PAUSE_MIN);
    loop {
        match work() {
            Err(error) if may_pass(&error) && start.elapsed() + pause < patience && !is_stopping() => {
                warn!(worker, %error, "it did not succeed: trying again");
                thread::sleep(pause);
                pause = (pause * 2).min(PAUSE_MAX);
            }
            done => return done,
        }
    }
}

pub(super) fn is_same_name(error: &LeaseError) -> bool {
    matches!(error, LeaseError::SameName { .. })
}
