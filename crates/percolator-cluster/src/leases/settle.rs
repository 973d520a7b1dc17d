//! What a worker reports about a block that it has: one transaction decides whether it counts.

use std::collections::BTreeSet;

use percolator::Receipt;

use super::board::Board;
use super::error::LeaseError;
use super::keys::BlockId;
use super::records::{OpenRecord, ReceiptRecord, WorkerRecord, read, write};
use crate::metadata::{LeaseId, MetadataError, Outcome, Record, Records, Revision};

/// What becomes of a block that a worker says something of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// All of its steps up to this number are done, counted from its first.
    Acknowledge(u64),
    /// All of its steps are done.
    Finish,
}

/// What a worker says of a block. It is kept until the answer is known: it may have happened without one.
#[derive(Clone, Debug)]
pub(super) struct Settlement {
    pub(super) block: BlockId,
    /// The lease that the block was taken under.
    pub(super) lease: LeaseId,
    pub(super) change: Change,
    /// The steps of the block that were acknowledged before.
    pub(super) from: u64,
    /// How often the block was handed out, as far as the worker knows.
    pub(super) times: u64,
    /// When the block's open record was last changed, as far as the worker knows.
    pub(super) open: Revision,
    /// What was delivered of the steps that it makes count, and the receipt that takes it in.
    pub(super) delivered: Receipt,
    pub(super) receipt: Draft,
    pub(super) steps: u64,
}

/// A receipt that is to be put, or was.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) key: String,
    /// When it was last put; none if it is the first.
    pub(super) after: Option<Revision>,
    /// All of it, with what is new.
    pub(super) receipt: Receipt,
    /// The same as a text: it is made once, however often the receipt is put, and not kept once it was.
    pub(super) text: String,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// It counts. When that was.
    Kept(Revision),
    /// The steps do not count yet: a second worker has the block as well. They may when it is finished.
    Shared,
    /// The block is no longer this worker's.
    Lost,
}

impl Draft {
    pub(super) fn of(key: String, after: Option<Revision>, receipt: Receipt) -> Self {
        let text = receipt.to_string();
        Draft { key, after, receipt, text }
    }
}

impl Settlement {
    /// What is put last in the receipt, by which it is known again.
    fn last(&self) -> String {
        let Settlement { block, lease, change, .. } = self;
        match change {
            Change::Acknowledge(steps) => format!("{}, lease {lease}, {steps} steps", block.key()),
            Change::Finish => format!("{}, lease {lease}, all steps", block.key()),
        }
    }
}

impl Board {
    /// Says what is done of a block, and puts what was delivered. If the answer is lost, the same may be said
    /// once more: it counts once.
    pub(super) fn settle(
        &self,
        worker: &str,
        record: &WorkerRecord,
        settlement: &mut Settlement,
    ) -> Result<Settled, LeaseError> {
        let Settlement { block, lease, change, .. } = *settlement;
        let (held, open) = (self.keys.held(block, worker), self.keys.open(block));
        let Draft { key, after, text, .. } = &settlement.receipt;
        let value = write(&ReceiptRecord { last: settlement.last(), receipt: text.clone() });
        loop {
            self.admit()?;
            let transaction =
                self.transaction().when_held_by(&*held, lease).when_modified(&*open, settlement.open);
            let transaction = transaction.when_seen(&**key, *after);
            let transaction = match change {
                Change::Finish => transaction.remove(&*open).remove(&*held),
                Change::Acknowledge(steps) => {
                    let acknowledged = OpenRecord { times: settlement.times, acknowledged: steps };
                    transaction.put(&*open, write(&acknowledged))
                }
            };
            let worker = self.keys.worker(worker);
            let transaction = transaction.put(&**key, &*value).put_under(lease, worker, write(record));
            let found = match self.transact(&transaction) {
                Ok(Outcome::Committed(revision)) => {
                    // It may be the last thing that this worker says. If this fails, it is said again.
                    self.admit()?;
                    return Ok(Settled::Kept(revision));
                }
                Ok(Outcome::Refused(found)) => {
                    self.check_job(&found)?;
                    found
                }
                // The held record went with the lease; an earlier try may have happened before.
                Err(MetadataError::LeaseExpired { .. }) => self.read(key)?,
                Err(error) => return Err(error.into()),
            };
            self.admit()?;
            if let Some(settled) = self.was_settled(settlement, &held, &found)? {
                return Ok(settled);
            }
            let Some(record) = found.get(&open) else { return Ok(Settled::Lost) };
            let now: OpenRecord = read(record)?;
            if now.acknowledged != settlement.from {
                return Ok(Settled::Lost);
            }
            if now.times != settlement.times && change != Change::Finish {
                return Ok(Settled::Shared);
            }
            (settlement.times, settlement.open) = (now.times, record.modified);
        }
    }

    /// Whether it is over with what is said, by the records as they were found.
    fn was_settled(
        &self,
        settlement: &Settlement,
        held: &str,
        found: &Records,
    ) -> Result<Option<Settled>, LeaseError> {
        let Draft { key, after, .. } = &settlement.receipt;
        let put = found.get(key);
        // An earlier try may have happened, and its answer was lost: then it is what was put last.
        if let Some(record) = put
            && read::<ReceiptRecord>(record)?.last == settlement.last()
        {
            return Ok(Some(Settled::Kept(record.modified)));
        }
        if put.map(|record| record.modified) != *after {
            let message =
                "it is not what its worker put last: somebody else has changed it, or the metadata \
                           were set back to a copy"
                    .to_owned();
            return Err(LeaseError::Record { key: key.clone(), message });
        }
        let is_held = |record: &Record| record.lease == Some(settlement.lease);
        Ok(if found.get(held).is_some_and(is_held) { None } else { Some(Settled::Lost) })
    }

    /// Makes a worker's progress known.
    pub(super) fn report(
        &self,
        worker: &str,
        lease: LeaseId,
        record: &WorkerRecord,
    ) -> Result<(), LeaseError> {
        let key = self.keys.worker(worker);
        let report = self.transaction().when_held_by(&*key, lease).put_under(lease, &*key, write(record));
        // If its lease has ended, it finds out where it matters.
        self.transact(&report)?;
        Ok(())
    }

    /// Returns those of the blocks, which a worker holds, that are done.
    pub(super) fn finished(&self, held: &BTreeSet<BlockId>) -> Result<Vec<BlockId>, LeaseError> {
        if held.is_empty() {
            return Ok(Vec::new());
        }
        let open = self.read(&self.keys.all_open())?;
        let is_done = |block: &BlockId| open.get(&self.keys.open(*block)).is_none();
        Ok(held.iter().copied().filter(is_done).collect())
    }

    /// Gives a block back that another worker has finished.
    pub(super) fn give_back(&self, worker: &str, lease: LeaseId, block: BlockId) -> Result<(), LeaseError> {
        let held = self.keys.held(block, worker);
        // If it is not held any more, nothing is to be done.
        self.transact(&self.transaction().when_held_by(&*held, lease).remove(held))?;
        Ok(())
    }
}

/// Returns the receipt in a record.
pub(super) fn receipt_of(record: &Record) -> Result<Receipt, LeaseError> {
    read::<ReceiptRecord>(record)?.receipt.parse().map_err(|error| LeaseError::Record {
        key: record.key.clone(),
        message: format!("its receipt: {error}"),
    })
}
