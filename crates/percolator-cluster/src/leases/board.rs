//! Who has which block: every change is one transaction, and each race is decided by it.
//!
//! # Invariants
//!
//! 1. A block below `next` is open or done; one from `next` on was never handed out.
//! 2. A block is held by at most one worker: a worker takes one by a transaction that changes `next` or the
//!    block's open record, both as it has read them, while nobody held the block.
//! 3. Only who holds a block changes its open record or removes it, and what it delivered goes into its
//!    receipt in the same transaction. So the receipts have each step once that is acknowledged or done, and
//!    no other, whatever was delivered twice.
//! 4. A worker that dies loses its lease, which takes its held records with it. Its blocks are then open and
//!    held by nobody: the next worker that asks takes them first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use percolator::Receipt;

use super::error::LeaseError;
use super::keys::{BlockId, Keys};
use super::records::{JobRecord, NextRecord, OpenRecord, ReceiptRecord, WhoRecord, read, write};
use crate::metadata::{LeaseId, Metadata, Outcome, Record, Records, Revision, Transaction};

/// The records of a job.
#[derive(Clone, Debug)]
pub(super) struct Board {
    pub(super) metadata: Arc<dyn Metadata>,
    pub(super) keys: Keys,
    pub(super) job: JobRecord,
}

/// What a worker that asks for a block gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// A block, from the step on that is not acknowledged.
    Block { block: BlockId, acknowledged: u64 },
    /// Other workers have all that is left. It is worth asking again once something has changed since then.
    Wait(Revision),
    /// All blocks are done, or the job is drained.
    Over,
}

/// What becomes of a block that a worker says something of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// All of its steps up to this number are done, counted from its first.
    Acknowledge(u64),
    /// All of its steps are done.
    Finish,
}

/// Whether a change was made. If not, the block is no longer this worker's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    Yes,
    No,
}

impl Board {
    /// Finds the job, or begins it.
    pub(super) fn join(metadata: Arc<dyn Metadata>, name: &str, job: JobRecord) -> Result<Self, LeaseError> {
        let keys = Keys::new(name)?;
        let first = NextRecord::default();
        let begin = Transaction::new()
            .when_missing(keys.job())
            .put(keys.job(), write(&job))
            .put(keys.next(), write(&first));
        // Made twice, it changes nothing.
        if let Outcome::Refused(found) = metadata.transact(&begin)? {
            let missing = || LeaseError::NoJob { job: name.to_owned() };
            let stated: JobRecord = read(found.get(&keys.job()).ok_or_else(missing)?)?;
            check_same(name, &job, &stated)?;
        }
        Ok(Board { metadata, keys, job })
    }

    /// Finds the job of this name.
    pub(super) fn find(metadata: Arc<dyn Metadata>, name: &str) -> Result<Self, LeaseError> {
        let keys = Keys::new(name)?;
        let found = metadata.read(&keys.job())?;
        let record = found.get(&keys.job()).ok_or_else(|| LeaseError::NoJob { job: name.to_owned() })?;
        let job: JobRecord = read(record)?;
        check_version(record.key.clone(), &job)?;
        Ok(Board { metadata, keys, job })
    }

    /// Makes a worker known, under its lease. No two of a job have one name.
    pub(super) fn register(&self, worker: &str, lease: LeaseId, who: &WhoRecord) -> Result<(), LeaseError> {
        let key = self.keys.worker(worker);
        let register = Transaction::new().when_missing(&*key).put_under(lease, &*key, write(who));
        let Outcome::Refused(found) = self.metadata.transact(&register)? else { return Ok(()) };
        match found.get(&key) {
            // It was made, and the answer was lost.
            Some(record) if record.lease == Some(lease) => Ok(()),
            Some(record) => {
                let WhoRecord { host, pid, .. } = read(record)?;
                Err(LeaseError::SameName { worker: worker.to_owned(), host, pid })
            }
            None => self.register(worker, lease, who),
        }
    }

    /// Takes a block: one that nobody holds any more, or the next one. `known` are those that the worker has.
    /// If an answer was lost, it has one more without knowing, which is returned first.
    pub(super) fn take(
        &self,
        worker: &str,
        lease: LeaseId,
        who: &WhoRecord,
        known: &BTreeSet<BlockId>,
    ) -> Result<Taken, LeaseError> {
        loop {
            let live = self.metadata.read(&self.keys.live())?;
            let (transaction, taken) = match self.choose(&live, lease, known)? {
                Choice::Own { block, open } => {
                    return Ok(Taken::Block { block, acknowledged: open.acknowledged });
                }
                Choice::Again { block, revision, open } => {
                    let open_key = self.keys.open(block);
                    let again = OpenRecord { times: open.times.saturating_add(1), ..open };
                    let transaction =
                        Transaction::new().when_modified(&*open_key, revision).put(open_key, write(&again));
                    (transaction, (block, open.acknowledged))
                }
                Choice::Next { block, revision } => {
                    let first = OpenRecord { times: 1, acknowledged: 0 };
                    let transaction = Transaction::new()
                        .when_modified(self.keys.next(), revision)
                        .put(self.keys.next(), write(&self.job.after(block)))
                        .put(self.keys.open(block), write(&first));
                    (transaction, (block, 0))
                }
                Choice::Wait => return Ok(Taken::Wait(live.revision)),
                Choice::Over => return Ok(Taken::Over),
            };
            let (block, acknowledged) = taken;
            let transaction = transaction.put_under(lease, self.keys.held(block, worker), write(who));
            if let Outcome::Committed(_) = self.metadata.transact(&transaction)? {
                return Ok(Taken::Block { block, acknowledged });
            }
            // Another worker was faster.
        }
    }

    fn choose(
        &self,
        live: &Records,
        lease: LeaseId,
        known: &BTreeSet<BlockId>,
    ) -> Result<Choice, LeaseError> {
        let held: BTreeMap<BlockId, &Record> = live
            .records
            .iter()
            .filter_map(|record| self.keys.of_held(&record.key).map(|(block, _)| (block, record)))
            .collect();
        let open = || {
            let open =
                live.records.iter().filter_map(|record| Some((self.keys.of_open(&record.key)?, record)));
            open.map(|(block, record)| (block, record, held.get(&block)))
        };
        let is_own = |held: &Record| held.lease == Some(lease);
        let unknown =
            open().find(|(block, _, held)| held.is_some_and(|held| is_own(held)) && !known.contains(block));
        if let Some((block, record, _)) = unknown {
            return Ok(Choice::Own { block, open: read(record)? });
        }
        if live.get(&self.keys.drain()).is_some() {
            return Ok(Choice::Over);
        }
        if let Some((block, record, _)) = open().find(|(_, _, held)| held.is_none()) {
            return Ok(Choice::Again { block, revision: record.modified, open: read(record)? });
        }
        let key = self.keys.next();
        let next = live.get(&key).ok_or_else(|| LeaseError::Record {
            key: key.clone(),
            message: "it is missing: the job was reset while it ran".to_owned(),
        })?;
        let block = BlockId::from(read::<NextRecord>(next)?);
        if block.epoch == u64::MAX {
            return Err(LeaseError::Record { key, message: "its epoch is past all numbers".to_owned() });
        }
        if self.job.has(block) {
            return Ok(Choice::Next { block, revision: next.modified });
        }
        // A worker stays until all blocks are done: it may be the only one that is left when another dies.
        Ok(if open().next().is_some() { Choice::Wait } else { Choice::Over })
    }

    /// Waits until something has changed, but not long.
    pub(super) fn wait(&self, revision: Revision, at_most: Duration) -> Result<(), LeaseError> {
        self.metadata.wait(&self.keys.live(), revision, at_most)?;
        Ok(())
    }

    /// Says what is done of a block, and adds what was delivered to the worker's receipt: the steps of the
    /// block from `from` on. If the answer is lost, the same may be said once more: the receipt has it once.
    ///
    /// If something else was said meanwhile of the block, by this worker and unknown to it because the answer
    /// was lost, the block is not kept: its receipt has those steps, and must not get them again.
    pub(super) fn change(
        &self,
        worker: &str,
        lease: LeaseId,
        block: BlockId,
        from: u64,
        change: Change,
        delivered: &Receipt,
    ) -> Result<Kept, LeaseError> {
        let (held, open) = (self.keys.held(block, worker), self.keys.open(block));
        let key = self.keys.receipt(block.epoch, worker);
        let last = match change {
            Change::Acknowledge(steps) => format!("{}, lease {lease}, {steps} steps", block.key()),
            Change::Finish => format!("{}, lease {lease}, all steps", block.key()),
        };
        let mut receipt = delivered.clone();
        let found = self.metadata.read(&key)?;
        let mut transaction = match found.get(&key) {
            None => Transaction::new().when_missing(&*key),
            Some(record) => {
                let before: ReceiptRecord = read(record)?;
                if before.last == last {
                    return Ok(Kept::Yes);
                }
                receipt = receipt_of(record, &before)?;
                receipt.merge(delivered)?;
                Transaction::new().when_modified(&*key, record.modified)
            }
        };
        let found = self.metadata.read(&open)?;
        let Some(record) = found.get(&open) else { return Ok(Kept::No) };
        let before: OpenRecord = read(record)?;
        if before.acknowledged != from {
            return Ok(Kept::No);
        }
        let value = write(&ReceiptRecord { last: last.clone(), receipt: receipt.to_string() });
        transaction =
            transaction.when_held_by(&*held, lease).when_modified(&*open, record.modified).put(&*key, value);
        transaction = match change {
            Change::Finish => transaction.remove(open).remove(held),
            Change::Acknowledge(steps) => {
                transaction.put(open, write(&OpenRecord { acknowledged: steps, ..before }))
            }
        };
        match self.metadata.transact(&transaction)? {
            Outcome::Committed(_) => Ok(Kept::Yes),
            // An earlier try may have happened late: then it is what was said last.
            Outcome::Refused(found) => match found.get(&key).map(read::<ReceiptRecord>).transpose()? {
                Some(after) if after.last == last => Ok(Kept::Yes),
                _ => Ok(Kept::No),
            },
        }
    }
}

/// Returns the receipt in a record.
pub(super) fn receipt_of(record: &Record, read: &ReceiptRecord) -> Result<Receipt, LeaseError> {
    read.receipt.parse().map_err(|error| LeaseError::Record {
        key: record.key.clone(),
        message: format!("its receipt: {error}"),
    })
}

/// Which block a worker may take.
enum Choice {
    /// One that this worker holds without knowing.
    Own {
        block: BlockId,
        open: OpenRecord,
    },
    /// One that was handed out, and is held by nobody.
    Again {
        block: BlockId,
        revision: Revision,
        open: OpenRecord,
    },
    /// One that was never handed out.
    Next {
        block: BlockId,
        revision: Revision,
    },
    Wait,
    Over,
}

fn check_version(key: String, job: &JobRecord) -> Result<(), LeaseError> {
    let allowed = super::records::VERSION;
    if job.version == allowed {
        return Ok(());
    }
    let found = job.version;
    Err(LeaseError::Record { key, message: format!("its version is {found}, and {allowed} is known") })
}

fn check_same(name: &str, here: &JobRecord, there: &JobRecord) -> Result<(), LeaseError> {
    let facts = [
        ("version of its records", here.version.to_string(), there.version.to_string()),
        ("number of epochs", here.epochs.to_string(), there.epochs.to_string()),
        ("size of a block in steps", here.steps_per_block.to_string(), there.steps_per_block.to_string()),
        ("number of steps of an epoch", here.steps.to_string(), there.steps.to_string()),
        ("data set, or order of it", here.schedule.clone(), there.schedule.clone()),
    ];
    match facts.into_iter().find(|(_, found, stated)| found != stated) {
        None => Ok(()),
        Some((what, found, stated)) => {
            Err(LeaseError::OtherJob { job: name.to_owned(), what, found, stated })
        }
    }
}
