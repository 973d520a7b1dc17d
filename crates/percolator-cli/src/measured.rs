//! Measurements beside a progress bar: those of `bench` and `doctor`.

use std::time::Duration;

use percolator::Progress;

use crate::watch::watched;

/// Measures something, of this name, beside a progress bar. On SIGINT or SIGTERM, it is told to stop.
pub(super) fn measured<T: Send>(
    is_quiet: bool,
    name: &str,
    measure: impl FnOnce(&Progress) -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    let progress = Progress::new();
    let message =
        |progress: &Progress, _: Duration| format!("{name}: run {} of {}", progress.done(), progress.total());
    watched(is_quiet, &progress, message, || measure(&progress))
}
