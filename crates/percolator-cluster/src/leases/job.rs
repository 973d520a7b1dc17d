//! A job as others see it: how far it is.

use std::sync::Arc;

use percolator::Receipt;

use super::board::Board;
use super::error::LeaseError;
use super::keys::BlockId;
use super::live::{Live, Living, Open};
use super::records::{OpenRecord, Progress, WhoRecord};
use super::settle::receipt_of;
use crate::metadata::Metadata;

/// A job that workers have begun.
#[derive(Clone, Debug)]
pub struct Job {
    board: Board,
}

/// How far a job is.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
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
    /// The share of the median rate below which a second worker gets a block as well, if it does.
    pub duplicates_below: Option<f64>,
    /// The blocks that are done, of all epochs.
    pub done: u64,
    /// The first block that was never opened; none of an epoch past the last.
    pub next: BlockId,
    /// The blocks that workers may have or take, and that are not done, in order.
    pub open: Vec<OpenBlock>,
    /// The workers that live, by their names.
    pub workers: Vec<LiveWorker>,
    /// Whether no more blocks are handed out.
    pub is_drained: bool,
    /// Whether a worker has seen that the metadata were set back to a copy: they have forgotten what was done
    /// since, so it is done again.
    pub was_set_back: bool,
    /// Whether the job is being removed, or its removal was cut short.
    pub is_removed: bool,
}

/// A block that workers may have or take, and that is not done.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBlock {
    /// The block.
    pub block: BlockId,
    /// How often it was handed out: not at all if it is ready for the next worker that asks.
    pub times: u64,
    /// How many of its steps are done for good.
    pub acknowledged: u64,
    /// Who has it: no worker if none has asked for it yet, or again since its worker died; or a second worker
    /// as well.
    pub holders: Vec<Holder>,
}

/// Who has a block.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The worker's name.
    pub worker: String,
    /// Its host.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// When it took the block, in seconds since 1970 by its own clock.
    pub since: u64,
}

/// A worker whose lease lasts.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub struct LiveWorker {
    /// Its name.
    pub worker: String,
    /// Its host.
    pub host: String,
    /// Its process.
    pub pid: u32,
    /// When it joined, in seconds since 1970 by its own clock.
    pub since: u64,
    /// The steps a second of the last block that it has finished, if it has.
    pub steps_per_second: Option<f64>,
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
        Ok(Job { board: Board::find(metadata, name)? })
    }

    /// Returns how far it is, at one moment.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Reset`] if the job was removed since; [`LeaseError`] if the records cannot be read.
    pub fn status(&self) -> Result<JobStatus, LeaseError> {
        let Board { metadata, keys, job, .. } = &self.board;
        let records = metadata.read(&keys.live())?;
        self.board.check_job(&records)?;
        let live = Live::read(keys, job, &records)?;
        let next = live.next.map_or_else(BlockId::default, |(next, _)| next);
        let blocks_per_epoch = job.blocks();
        let opened = next.epoch.saturating_mul(blocks_per_epoch).saturating_add(next.number);
        let open: Vec<_> = live.open.iter().map(|(&block, open)| open_block(block, open)).collect();
        Ok(JobStatus {
            source: job.source.clone(),
            epochs: (job.epochs > 0).then_some(job.epochs),
            steps_per_epoch: job.steps,
            steps_per_block: job.steps_per_block,
            blocks_per_epoch,
            duplicates_below: job.duplicates_below,
            done: opened.saturating_sub(open.len() as u64),
            next,
            open,
            workers: live.workers.iter().map(|(worker, living)| live_worker(worker, living)).collect(),
            is_drained: live.is_drained,
            was_set_back: live.was_set_back,
            is_removed: job.is_removed,
        })
    }

    /// Returns what the workers have delivered so far, of blocks and steps that count, with a name for each
    /// receipt.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] if the records cannot be read.
    pub fn receipts(&self) -> Result<Vec<(String, Receipt)>, LeaseError> {
        self.receipts_of(|_| true)
    }

    /// Returns the receipts of some epochs.
    pub(super) fn receipts_of(
        &self,
        is_wanted: impl Fn(u64) -> bool,
    ) -> Result<Vec<(String, Receipt)>, LeaseError> {
        let Board { metadata, keys, .. } = &self.board;
        let mut receipts = Vec::new();
        for record in &metadata.read(&keys.receipts())?.records {
            let Some((epoch, name)) = keys.of_receipt(&record.key) else {
                let message = "it is no key of a receipt: EPOCH/WORKER/LEASE-NUMBER".to_owned();
                return Err(LeaseError::Record { key: record.key.clone(), message });
            };
            if is_wanted(epoch) {
                receipts.push((name.to_owned(), receipt_of(record)?));
            }
        }
        Ok(receipts)
    }

    /// Hands out no more blocks: the workers finish what they have, and end.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] if the records cannot be changed.
    pub fn drain(&self) -> Result<(), LeaseError> {
        let board = &self.board;
        board.change(&board.transaction().put(board.keys.drain(), "{}"))
    }

    /// Hands out blocks again.
    ///
    /// # Errors
    ///
    /// [`LeaseError`] if the records cannot be changed.
    pub fn undrain(&self) -> Result<(), LeaseError> {
        let board = &self.board;
        board.change(&board.transaction().remove(board.keys.drain()))
    }

    /// Checks that the job is still there.
    pub(super) fn check(&self) -> Result<(), LeaseError> {
        self.board.check_job(&self.board.metadata.read(&self.board.keys.job())?)
    }
}

fn open_block(block: BlockId, open: &Open<'_>) -> OpenBlock {
    let holders = open.holders.iter().map(|held| {
        let WhoRecord { host, pid, since } = held.who.clone();
        Holder { worker: held.worker.to_owned(), host, pid, since }
    });
    let OpenRecord { times, acknowledged } = open.record;
    OpenBlock { block, times, acknowledged, holders: holders.collect() }
}

fn live_worker(worker: &str, living: &Living) -> LiveWorker {
    let WhoRecord { host, pid, since } = living.record.who.clone();
    let steps_per_second = living.record.pace.before.and_then(Progress::rate);
    LiveWorker { worker: worker.to_owned(), host, pid, since, steps_per_second }
}
