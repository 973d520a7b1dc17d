//! What the records of a job hold, as JSON.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::LeaseError;
use super::keys::BlockId;
use crate::metadata::Record;

/// The version of these records.
pub(super) const VERSION: u32 = 1;

/// What all workers of a job must have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
}

/// The first block that was never handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NextRecord {
    pub(super) epoch: u64,
    pub(super) number: u64,
}

/// A block that was handed out and is not done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OpenRecord {
    /// How often it was handed out.
    pub(super) times: u64,
    /// How many of its steps are done, and come no more.
    pub(super) acknowledged: u64,
}

/// A worker, and who has a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WhoRecord {
    pub(super) host: String,
    pub(super) pid: u32,
    /// Seconds since 1970, for people: nothing is decided by it.
    pub(super) since: u64,
}

/// What a worker has delivered of an epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReceiptRecord {
    /// What was added last, so that nothing is added twice.
    pub(super) last: String,
    /// A receipt of the core, as text.
    pub(super) receipt: String,
}

impl From<NextRecord> for BlockId {
    fn from(NextRecord { epoch, number }: NextRecord) -> Self {
        BlockId { epoch, number }
    }
}

impl JobRecord {
    /// How many blocks an epoch has.
    pub(super) fn blocks(&self) -> u64 {
        self.steps.div_ceil(self.steps_per_block.max(1))
    }

    /// The block after this one, or `None` if the job has no more.
    pub(super) fn after(&self, BlockId { epoch, number }: BlockId) -> NextRecord {
        match number + 1 < self.blocks() {
            true => NextRecord { epoch, number: number + 1 },
            false => NextRecord { epoch: epoch + 1, number: 0 },
        }
    }

    /// Whether the job has this block.
    pub(super) fn has(&self, block: BlockId) -> bool {
        block.number < self.blocks() && (self.epochs == 0 || block.epoch < self.epochs)
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
