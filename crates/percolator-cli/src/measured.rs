//! Measurements beside a progress bar: those of `bench` and `doctor`.

use std::time::Duration;

use percolator_measure::{MeasureError, Progress};

use crate::watch::{Ended, Watched, watched};

impl Watched for Progress {
    fn total(&self) -> u64 {
        self.total() as u64
    }

    fn done(&self) -> u64 {
        self.done() as u64
    }

    fn stop(&self) {
        self.stop();
    }

    fn is_end(&self, error: &anyhow::Error) -> bool {
        matches!(error.downcast_ref(), Some(MeasureError::Stopped))
    }
}

/// Measures something, of this name, beside a progress bar. On SIGINT or SIGTERM, it is told to stop.
pub(super) fn measured<T: Send>(
    is_quiet: bool,
    name: &str,
    measure: impl FnOnce(&Progress) -> anyhow::Result<T> + Send,
) -> anyhow::Result<Ended<T>> {
    let progress = Progress::new();
    let message =
        |progress: &Progress, _: Duration| format!("{name}: run {} of {}", progress.done(), progress.total());
    watched(is_quiet, &progress, message, || measure(&progress))
}
