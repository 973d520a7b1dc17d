//! A job as others see it: how far it is, what it has delivered, and its end.

use std::sync::Arc;

use percolator::Receipt;
use percolator::receipt::{DataDigest, Verdict};

use super::board::{Board, receipt_of};
use super::error::LeaseError;
use super::keys::BlockId;
use super::records::{NextRecord, OpenRecord, ReceiptRecord, WhoRecord, read};
use crate::metadata::{Metadata, OPERATIONS_MAX, Record, Records, Transaction};

/// A job that workers have begun.
#[derive(Clone, Debug)]
pub struct Job {
    name: String,
    board: Board,
}

/// How far a job is.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobStatus {
    /// The path of the data, as the first worker had it.
    pub source: String,
    /// The number of epochs; `None` for no end.
    pub epochs: Option<u64>,
    /// The number of steps of an epoch.
    pub steps_per_epoch: u64,
    /// The number of steps of a block.
    pub steps_per_block: u64,
    /// The number of blocks of an epoch.
    pub blocks_per_epoch: u64,
    /// The blocks that are done, of all epochs.
    pub done: u64,
    /// The first block that was never handed out; none of an epoch past the last.
    pub next: BlockId,
    /// The blocks that were handed out and are not done.
    pub open: Vec<OpenBlock>,
    /// The workers that live, by their names.
    pub workers: Vec<Holder>,
    /// Whether no more blocks are handed out.
    pub is_drained: bool,
}

/// A block that was handed out and is not done.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBlock {
    /// The block.
    pub block: BlockId,
    /// How often it was handed out.
    pub times: u64,
    /// How many of its steps are done for good.
    pub acknowledged: u64,
    /// Who has it; `None` if its worker has died and no other has asked yet.
    pub holder: Option<Holder>,
}

/// A worker.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its name.
    pub worker: String,
    /// Its host.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// When it joined, in seconds since 1970 by its own clock.
    pub since: u64,
}

impl JobStatus {
    /// The number of blocks of all epochs; `None` for no end.
    #[must_use]
    pub fn blocks(&self) -> Option<u64> {
        Some(self.epochs?.saturating_mul(self.blocks_per_epoch))
    }

    /// Whether all blocks are done.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.blocks() == Some(self.done)
    }
}

impl Job {
    /// Finds the job of this name.
    ///
    /// # Errors
    ///
    /// [`LeaseError::NoJob`] if there is none; [`LeaseError`] if the records cannot be read.
    pub fn open(metadata: Arc<dyn Metadata>, name: &str) -> Result<Self, LeaseError> {
        Ok(Job { name: name.to_owned(), board: Board::find(metadata, name)? })
    }

    /// Returns how far it is, at one moment.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] if the records cannot be read.
    pub fn status(&self) -> Result<JobStatus, LeaseError> {
        let Board { metadata, keys, job } = &self.board;
        let live = metadata.read(&keys.live())?;
        let next = live.get(&keys.next()).map_or(Ok(NextRecord::default()), read)?;
        let mut open = Vec::new();
        let mut workers = Vec::new();
        for record in &live.records {
            if let Some(block) = keys.of_open(&record.key) {
                let OpenRecord { times, acknowledged } = read(record)?;
                open.push(OpenBlock { block, times, acknowledged, holder: self.holder(&live, block)? });
            } else if let Some(worker) = keys.of_worker(&record.key) {
                workers.push(holder(worker, record)?);
            }
        }
        let blocks_per_epoch = job.blocks();
        let handed_out = next.epoch.saturating_mul(blocks_per_epoch).saturating_add(next.number);
        Ok(JobStatus {
            source: job.source.clone(),
            epochs: (job.epochs > 0).then_some(job.epochs),
            steps_per_epoch: job.steps,
            steps_per_block: job.steps_per_block,
            blocks_per_epoch,
            done: handed_out.saturating_sub(open.len() as u64),
            next: next.into(),
            open,
            workers,
            is_drained: live.get(&keys.drain()).is_some(),
        })
    }

    fn holder(&self, live: &Records, block: BlockId) -> Result<Option<Holder>, LeaseError> {
        let held = live.records.iter().find_map(|record| {
            let (held, worker) = self.board.keys.of_held(&record.key)?;
            (held == block).then(|| holder(worker, record))
        });
        held.transpose()
    }

    /// Returns what the workers have delivered, of blocks and steps that count, with a name for each receipt.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] if the records cannot be read.
    pub fn receipts(&self) -> Result<Vec<(String, Receipt)>, LeaseError> {
        let front = self.board.keys.receipts();
        let found = self.board.metadata.read(&front)?;
        let receipt = |record: &Record| {
            let name = record.key.strip_prefix(&front).unwrap_or(&record.key).to_owned();
            Ok((name, receipt_of(record, &read::<ReceiptRecord>(record)?)?))
        };
        found.records.iter().map(receipt).collect()
    }

    /// Judges what the workers have delivered: whether each epoch that is done had every record once. With
    /// the digest of a data set (its name and itself), also whether the bytes were the right ones.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] if the records cannot be read, or the receipts are not of one run.
    pub fn verdict(&self, digest: Option<(&str, &DataDigest)>) -> Result<Verdict, LeaseError> {
        let receipts = self.receipts()?;
        let named = receipts.iter().map(|(name, receipt)| (name.as_str(), receipt));
        Ok(match digest {
            None => Verdict::of(named)?,
            Some(digest) => Verdict::with_digest(digest, named)?,
        })
    }

    /// Hands out no more blocks: the workers finish what they have, and end.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] if the records cannot be changed.
    pub fn drain(&self) -> Result<(), LeaseError> {
        let Board { metadata, keys, .. } = &self.board;
        metadata.transact(&Transaction::new().put(keys.drain(), "{}"))?;
        Ok(())
    }

    /// Hands out blocks again.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] if the records cannot be changed.
    pub fn undrain(&self) -> Result<(), LeaseError> {
        let Board { metadata, keys, .. } = &self.board;
        metadata.transact(&Transaction::new().remove(keys.drain()))?;
        Ok(())
    }

    /// Removes all records of the job, its receipts too. The next worker begins it anew. Blocks that workers
    /// still have are lost to them if `is_forced`.
    ///
    /// # Errors
    ///
    /// [`LeaseError::InUse`] if workers live and it is not forced; [`LeaseError`] if the records cannot be
    /// changed.
    pub fn reset(self, is_forced: bool) -> Result<(), LeaseError> {
        let Board { metadata, keys, .. } = &self.board;
        let workers = self.status()?.workers.len();
        if workers > 0 && !is_forced {
            return Err(LeaseError::InUse { job: self.name.clone(), workers });
        }
        // From here on nobody takes a block.
        metadata.transact(&Transaction::new().put(keys.drain(), "{}").remove(keys.next()))?;
        // The job's own record goes last: a reset that was cut short can be made again, and nobody begins the
        // job anew over records that are left.
        let drain = keys.drain();
        self.remove(&keys.live(), |key| key != drain)?;
        self.remove(&keys.receipts(), |_| true)?;
        metadata.transact(&Transaction::new().remove(drain).remove(keys.job()))?;
        Ok(())
    }

    /// Removes the records whose keys begin so, and are wanted.
    fn remove(&self, front: &str, is_wanted: impl Fn(&str) -> bool) -> Result<(), LeaseError> {
        let metadata = &self.board.metadata;
        loop {
            let found = metadata.read(front)?;
            let some: Vec<_> =
                found.records.iter().filter(|record| is_wanted(&record.key)).take(OPERATIONS_MAX).collect();
            if some.is_empty() {
                return Ok(());
            }
            metadata
                .transact(&some.iter().fold(Transaction::new(), |all, record| all.remove(&*record.key)))?;
        }
    }
}

fn holder(worker: &str, record: &Record) -> Result<Holder, LeaseError> {
    let WhoRecord { host, pid, since } = read(record)?;
    Ok(Holder { worker: worker.to_owned(), host, pid, since })
}
