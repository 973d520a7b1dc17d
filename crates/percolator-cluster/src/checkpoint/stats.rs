//! What became of checkpoints.

use std::time::Duration;

use super::error::CheckpointError;

/// What became of checkpoints so far.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CheckpointStats {
    /// How many were written and recorded.
    pub written: u64,
    /// How many were due while another was being written, or while the one before could not be recorded.
    pub left_out: u64,
    /// How many could not be written. One that is written, and cannot be recorded yet, is not among them.
    pub failed: u64,
    /// How long the state was locked for all of them: updates waited no longer.
    pub lock_held: Duration,
    /// How long it was locked for the last one.
    pub lock_held_last: Duration,
    /// The longest of these times.
    pub lock_held_max: Duration,
    /// How long the last one took, from the lock to its record.
    pub last_duration: Duration,
    /// The bytes of the last one.
    pub last_bytes: u64,
    /// How long ago the last one was recorded that this process wrote; without one, how long ago it began.
    pub age: Duration,
    /// How often it was tried to put a record.
    pub puts_tried: u64,
    /// How often there was no answer, or the record was refused for a reason that may pass.
    pub puts_failed: u64,
    /// Whether a file is written whose record could not be put yet.
    pub is_waiting: bool,
    /// How many files were removed after a newer one was recorded. Those that could not be removed then go
    /// after the next one.
    pub files_removed: u64,
    /// How often a state was larger than expected, and updates waited for memory.
    pub growths: u64,
    /// How often the lease of the id ended and the id was taken again, because no other process had taken it.
    pub holds_lost: u64,
    /// What failed last.
    pub last_error: Option<CheckpointError>,
}
