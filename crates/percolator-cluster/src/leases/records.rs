//! What the records of a job hold, as JSON.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::error::LeaseError;
use super::keys::BlockId;
use crate::metadata::Record;

/// The version of these records.
pub(super) const VERSION: u32 = 1;

/// What all workers of a job must have in common.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct JobRecord {
    pub(super) version: u32,
    /// The SHA-256 of the feed's schedule: of all that decides which record comes when.
    pub(super) schedule: String,
    pub(super) source: String,
    /// 0 for no end.
    pub(super) epochs: u64,
    pub(super) steps_per_block: u64,
    /// The steps of each epoch; all epochs have as many.
    pub(super) steps: u64,
    /// Blocks whose rate is below this share of the median go to a second worker as well.
    #[serde(default)]
    pub(super) duplicates_below: Option<f64>,
    /// The job is being removed. Its workers must end, and none may join it.
    #[serde(default)]
    pub(super) is_removed: bool,
    /// Drawn by the worker that began the job. In other metadata, or in metadata that were set up again, a
    /// job of this name may have the revision of this one.
    #[serde(default)]
    pub(super) id: Option<Uuid>,
}

/// A block that workers may have or take, and that is not done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OpenRecord {
    /// How often it was handed out.
    pub(super) times: u64,
    /// How many of its steps are done, and come no more.
    pub(super) acknowledged: u64,
}

/// Who has a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WhoRecord {
    pub(super) host: String,
    pub(super) pid: u32,
    /// Since when, in seconds since 1970, for people: nothing is decided by it.
    pub(super) since: u64,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WorkerRecord {
    pub(super) who: WhoRecord,
    #[serde(default)]
    pub(super) pace: Pace,
}

/// How fast a worker is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pace {
    /// Of the block under way: the steps that are over, and the time since the block's turn came.
    pub(super) under_way: Progress,
    /// The steps that came of the block before it, and the time that they took.
    pub(super) before: Option<Progress>,
}

/// Steps, and the time that they took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Progress {
    pub(super) steps: u64,
    pub(super) micros: u64,
}

impl Progress {
    pub(super) fn new(steps: u64, time: Duration) -> Self {
        Progress { steps, micros: u64::try_from(time.as_micros()).unwrap_or(u64::MAX) }
    }

    /// Steps a second; none if no time has passed.
    #[expect(clippy::cast_precision_loss, reason = "a rate is compared, and shown")]
    pub(super) fn rate(self) -> Option<f64> {
        (self.micros > 0).then(|| self.steps as f64 * 1e6 / self.micros as f64)
    }
}

/// What a worker has delivered of an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReceiptRecord {
    /// What was added last, so that nothing is added twice.
    pub(super) last: String,
    /// A receipt of the core, as text.
    pub(super) receipt: String,
}

impl JobRecord {
    /// How many blocks an epoch has.
    pub(super) fn blocks(&self) -> u64 {
        self.steps.div_ceil(self.steps_per_block.max(1))
    }

    /// The block after this one.
    pub(super) fn after(&self, BlockId { epoch, number }: BlockId) -> BlockId {
        match number + 1 < self.blocks() {
            true => BlockId { epoch, number: number + 1 },
            false => BlockId { epoch: epoch + 1, number: 0 },
        }
    }

    /// Whether the job has this block. An endless job ends before epoch `u64::MAX`, so that each of its
    /// blocks has one after it.
    pub(super) fn has(&self, block: BlockId) -> bool {
        let epochs = if self.epochs == 0 { u64::MAX } else { self.epochs };
        block.number < self.blocks() && block.epoch < epochs
    }

    /// The number of steps of a block that the job has.
    pub(super) fn steps_of(&self, block: BlockId) -> u64 {
        let first = block.number.saturating_mul(self.steps_per_block);
        self.steps_per_block.min(self.steps.saturating_sub(first))
    }
}

/// Returns a record's bytes.
pub(super) fn write(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).expect("these records have nothing that JSON has not")
}

/// Reads a record.
pub(super) fn read<T: DeserializeOwned>(record: &Record) -> Result<T, LeaseError> {
    serde_json::from_slice(&record.value)
        .map_err(|error| LeaseError::Record { key: record.key.clone(), message: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_those_of_the_job() {
        let job = JobRecord {
            version: VERSION,
            schedule: String::new(),
            source: String::new(),
            epochs: 2,
            steps_per_block: 4,
            steps: 10,
            duplicates_below: None,
            is_removed: false,
            id: None,
        };
        let block = |epoch, number| BlockId { epoch, number };
        assert_eq!(job.blocks(), 3);
        assert_eq!([0, 2, 3].map(|number| job.steps_of(block(0, number))), [4, 2, 0]);
        assert_eq!([block(1, 2), block(1, 3), block(2, 0)].map(|block| job.has(block)), [true, false, false]);
        assert_eq!(job.after(block(0, 1)), block(0, 2));
        assert_eq!(job.after(block(0, 2)), block(1, 0));
        let endless = JobRecord { epochs: 0, ..job };
        let last = block(u64::MAX - 1, 2);
        assert_eq!([last, endless.after(last)].map(|block| endless.has(block)), [true, false]);
        assert_eq!(Progress::new(3, Duration::from_millis(1500)).rate(), Some(2.0));
        assert_eq!(Progress::default().rate(), None);
    }
}
