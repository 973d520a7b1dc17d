//! Where the records of a job are.
//!
//! ```text
//! /leases/JOB/live/job                what all workers must have in common
//! /leases/JOB/live/next               the first block that was never opened
//! /leases/JOB/live/open/BLOCK         a block that workers may have or take, and that is not done
//! /leases/JOB/live/held/BLOCK/WORKER  who has it, under the worker's lease
//! /leases/JOB/live/workers/WORKER     a worker and how fast it is, under its lease
//! /leases/JOB/live/drain              no more blocks are handed out
//! /leases/JOB/live/set-back           the metadata were set back to a copy under the job's workers
//! /leases/JOB/receipts/EPOCH/WORKER/LEASE-NUMBER
//!                                     what a worker has delivered of an epoch, of blocks that are its own
//! ```
//!
//! Everything that a worker must know to take a block is below `live/`, so one read gets it all, as it was at
//! one moment. A block below `next` that is not open is done.
//!
//! A worker puts its receipts under its lease's number, which no other worker ever has, so it knows what they
//! contain without reading them. When a receipt has grown large, the worker begins the next one.

use serde::{Deserialize, Serialize};

use super::error::LeaseError;
use crate::metadata::LeaseId;

/// The most bytes of the name of a job or a worker.
const NAME_BYTES_MAX: usize = 100;

/// The keys of a job.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    pub(super) name: String,
}

/// A block of a job: the epoch, and the number in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockId {
    /// The epoch.
    pub epoch: u64,
    /// Its number in the epoch, from 0.
    pub number: u64,
}

impl std::fmt::Display for BlockId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "block {} of epoch {}", self.number, self.epoch)
    }
}

impl BlockId {
    /// As it is in keys, so that keys are in the order of blocks.
    pub(super) fn key(self) -> String {
        format!("{:010}-{:012}", self.epoch, self.number)
    }

    pub(super) fn of_key(key: &str) -> Option<Self> {
        let (epoch, number) = key.split_once('-')?;
        let id = BlockId { epoch: epoch.parse().ok()?, number: number.parse().ok()? };
        (id.key() == key).then_some(id)
    }
}

impl Keys {
    pub(super) fn new(job: &str) -> Result<Self, LeaseError> {
        check_name("job", job)?;
        Ok(Keys { name: job.to_owned() })
    }

    pub(super) fn all(&self) -> String {
        format!("/leases/{}/", self.name)
    }

    pub(super) fn job(&self) -> String {
        self.live() + "job"
    }

    pub(super) fn live(&self) -> String {
        format!("/leases/{}/live/", self.name)
    }

    pub(super) fn next(&self) -> String {
        self.live() + "next"
    }

    pub(super) fn drain(&self) -> String {
        self.live() + "drain"
    }

    pub(super) fn set_back(&self) -> String {
        self.live() + "set-back"
    }

    pub(super) fn all_open(&self) -> String {
        self.live() + "open/"
    }

    pub(super) fn open(&self, block: BlockId) -> String {
        self.all_open() + &block.key()
    }

    pub(super) fn held(&self, block: BlockId, worker: &str) -> String {
        format!("{}held/{}/{worker}", self.live(), block.key())
    }

    pub(super) fn worker(&self, worker: &str) -> String {
        format!("{}workers/{worker}", self.live())
    }

    /// The worker of its key.
    pub(super) fn of_worker<'k>(&self, key: &'k str) -> Option<&'k str> {
        key.strip_prefix(&self.live())?.strip_prefix("workers/")
    }

    pub(super) fn receipts(&self) -> String {
        format!("/leases/{}/receipts/", self.name)
    }

    /// The receipt of this number that a worker puts of an epoch while it has this lease.
    pub(super) fn receipt(&self, epoch: u64, worker: &str, lease: LeaseId, number: u64) -> String {
        format!("{}{epoch:010}/{worker}/{lease}-{number:06}", self.receipts())
    }

    /// The epoch of a key of a receipt, and a name for the receipt.
    pub(super) fn of_receipt<'k>(&self, key: &'k str) -> Option<(u64, &'k str)> {
        let name = key.strip_prefix(&self.receipts())?;
        let (epoch, _) = name.split_once('/')?;
        Some((epoch.parse().ok()?, name))
    }

    /// The block of a key of an open one.
    pub(super) fn of_open(&self, key: &str) -> Option<BlockId> {
        BlockId::of_key(key.strip_prefix(&self.live())?.strip_prefix("open/")?)
    }

    /// The block of a key of one that is held, and the worker.
    pub(super) fn of_held<'k>(&self, key: &'k str) -> Option<(BlockId, &'k str)> {
        let (block, worker) = key.strip_prefix(&self.live())?.strip_prefix("held/")?.split_once('/')?;
        Some((BlockId::of_key(block)?, worker))
    }
}

/// Refuses a name that cannot be a part of a key.
pub(super) fn check_name(what: &'static str, name: &str) -> Result<(), LeaseError> {
    let is_good = |character: char| !character.is_control() && character != '/';
    if !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_good) {
        return Ok(());
    }
    Err(LeaseError::Name { what, name: name.to_owned(), allowed: NAME_BYTES_MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_order_of_blocks_and_read_back() {
        let keys = Keys::new("digits").unwrap();
        let blocks = [(0, 9), (0, 10), (2, 0), (10, 3)].map(|(epoch, number)| BlockId { epoch, number });
        let open = blocks.map(|block| keys.open(block));
        assert!(open.is_sorted());
        assert_eq!(open.each_ref().map(|key| keys.of_open(key)), blocks.map(Some));
        let held = keys.held(blocks[1], "host:1");
        assert_eq!(keys.of_held(&held), Some((blocks[1], "host:1")));
        assert_eq!(keys.of_open(&held), None);
        assert_eq!(keys.of_held("/leases/other/live/held/0000000000-000000000000/a"), None);
        assert_eq!(BlockId::of_key("0-0"), None, "keys have one spelling");
        let receipt = keys.receipt(10, "host:1", LeaseId(255), 3);
        assert_eq!(keys.of_receipt(&receipt), Some((10, "0000000010/host:1/ff-000003")));
        assert_eq!(keys.of_receipt(&held), None);
    }

    #[test]
    fn a_name_is_part_of_a_key() {
        assert!(Keys::new("a job, 1").is_ok());
        for bad in ["", "a/b", "a\n", &"x".repeat(101)] {
            let error = Keys::new(bad).unwrap_err().to_string();
            assert!(error.contains("the name of a job"), "{error}");
        }
    }
}
