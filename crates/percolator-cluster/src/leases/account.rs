//! What counts for a worker: its receipts, and what it has reported without an answer.

use std::collections::BTreeMap;

use percolator::Receipt;

use super::error::LeaseError;
use super::settle::{Change, Draft, Settled, Settlement};
use super::worker::Worker;
use crate::metadata::{LeaseId, Revision};

/// The bytes from which a receipt is left, and the next one begins: each block that is done puts it whole. An
/// empty one has about 6 KiB.
const RECEIPT_BYTES: usize = 16 << 10;

/// A worker's receipts. Only the thread that says what is done has them.
#[derive(Debug, Default)]
pub(super) struct Account {
    receipts: Receipts,
    /// What was said, and has had no answer.
    unanswered: Option<Settlement>,
}

impl Account {
    /// Says what has had no answer, or else the first thing that is confirmed and was not said: that a block
    /// is done, or, if it goes on, its steps up to here. Asks the records for nothing twice. Returns whether
    /// there was anything to say.
    pub(super) fn settle_next(&mut self, worker: &Worker) -> Result<bool, LeaseError> {
        let settlement = match self.unanswered.take() {
            Some(settlement) => Some(settlement),
            None => self.next(worker)?,
        };
        let Some(mut settlement) = settlement else { return Ok(false) };
        let settled = match worker.board.settle(worker.name(), &worker.record(), &mut settlement) {
            Ok(settled) => settled,
            Err(error) => {
                self.unanswered = Some(settlement);
                return Err(error);
            }
        };
        worker.has_settled(&settlement, settled)?;
        if let Settled::Kept(revision) = settled {
            self.receipts.keep(settlement.block.epoch, settlement.lease, settlement.receipt, revision);
        }
        Ok(true)
    }

    fn next(&self, worker: &Worker) -> Result<Option<Settlement>, LeaseError> {
        let mut state = worker.state.lock();
        let Some(block) = state.blocks.iter_mut().find(|block| block.is_to_be_said()) else {
            return Ok(None);
        };
        let Some(delivered) = &block.due else { return Ok(None) };
        let receipt = self.receipts.draft(worker, block.id.epoch, block.lease, delivered)?;
        let Some(delivered) = block.due.take() else { return Ok(None) };
        block.is_in_doubt = true;
        Ok(Some(Settlement {
            block: block.id,
            lease: block.lease,
            change: match block.is_confirmed() {
                true => Change::Finish,
                false => Change::Acknowledge(block.before + block.confirmed),
            },
            from: block.before + block.acknowledged,
            times: block.times,
            open: block.open,
            steps: block.confirmed - block.acknowledged,
            delivered,
            receipt,
        }))
    }
}

/// The receipts that a worker has put and goes on with: one of each epoch.
#[derive(Debug, Default)]
struct Receipts {
    /// The lease that they are put under the name of.
    lease: Option<LeaseId>,
    /// By epoch.
    growing: BTreeMap<u64, Draft>,
    /// The number of the next one that begins: all of a worker have different ones.
    next: u64,
}

impl Receipts {
    /// Returns the receipt that is to be put, with what was delivered of a block under this lease.
    fn draft(
        &self,
        worker: &Worker,
        epoch: u64,
        lease: LeaseId,
        delivered: &Receipt,
    ) -> Result<Draft, LeaseError> {
        let Some(growing) = self.growing.get(&epoch).filter(|_| self.lease == Some(lease)) else {
            let key = worker.board.keys.receipt(epoch, worker.name(), lease, self.next);
            return Ok(Draft::of(key, None, delivered.clone()));
        };
        let mut receipt = growing.receipt.clone();
        receipt.merge(delivered)?;
        Ok(Draft::of(growing.key.clone(), growing.after, receipt))
    }

    /// A receipt was put.
    fn keep(&mut self, epoch: u64, lease: LeaseId, draft: Draft, put: Revision) {
        if self.lease != Some(lease) {
            self.growing.clear();
            self.lease = Some(lease);
        }
        if draft.after.is_none() {
            self.next += 1;
        }
        // Blocks come in order, but for those of workers that have died: of older epochs there are few.
        while self.growing.len() > 2 {
            self.growing.pop_first();
        }
        match draft.text.len() < RECEIPT_BYTES {
            true => {
                drop(self.growing.insert(epoch, Draft { after: Some(put), text: String::new(), ..draft }))
            }
            false => drop(self.growing.remove(&epoch)),
        }
    }
}
