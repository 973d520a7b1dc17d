//! Work on many tensors, with a progress bar, ended by a signal.

use percolator::Progress;

use crate::watch::{self, megabytes_per_second};

/// Does work beside a progress bar. On SIGINT or SIGTERM, its progress is told to stop.
pub(super) fn watched<T: Send>(
    is_quiet: bool,
    work: impl FnOnce(&Progress) -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    let progress = Progress::new();
    let message =
        |progress: &Progress, took| format!("{:.1} MB/s", megabytes_per_second(progress.done(), took));
    watch::watched(is_quiet, &progress, message, || work(&progress))
}
