//! The records below `live/`, as they were at one moment.

use std::collections::BTreeMap;

use super::error::LeaseError;
use super::keys::{BlockId, Keys};
use super::records::{JobRecord, OpenRecord, WhoRecord, WorkerRecord, read};
use crate::metadata::{LeaseId, Record, Records, Revision};

/// A job under way.
#[derive(Debug)]
pub(super) struct Live<'r> {
    pub(super) revision: Revision,
    /// The first block that was never opened, and when that was last changed. None while the job is
    /// being removed.
    pub(super) next: Option<(BlockId, Revision)>,
    pub(super) is_drained: bool,
    pub(super) was_set_back: bool,
    pub(super) open: BTreeMap<BlockId, Open<'r>>,
    pub(super) workers: BTreeMap<&'r str, Living>,
}

/// A block that workers may have or take, and that is not done.
#[derive(Debug)]
pub(super) struct Open<'r> {
    pub(super) record: OpenRecord,
    pub(super) revision: Revision,
    /// Who has it: no worker, one, or a second one as well.
    pub(super) holders: Vec<Held<'r>>,
}

/// Who has a block.
#[derive(Debug)]
pub(super) struct Held<'r> {
    pub(super) worker: &'r str,
    pub(super) lease: Option<LeaseId>,
    pub(super) who: WhoRecord,
}

/// A worker whose lease lasts.
#[derive(Debug)]
pub(super) struct Living {
    pub(super) record: WorkerRecord,
    pub(super) revision: Revision,
}

impl<'r> Live<'r> {
    /// Reads them all.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Record`] if one is damaged, or cannot be of this job.
    pub(super) fn read(keys: &Keys, job: &JobRecord, records: &'r Records) -> Result<Self, LeaseError> {
        let mut live = Live {
            revision: records.revision,
            next: None,
            is_drained: records.get(&keys.drain()).is_some(),
            was_set_back: records.get(&keys.set_back()).is_some(),
            open: BTreeMap::new(),
            workers: BTreeMap::new(),
        };
        if let Some(record) = records.get(&keys.next()) {
            live.next = Some((next_of(record, job)?, record.modified));
        }
        for record in &records.records {
            if let Some(worker) = keys.of_worker(&record.key) {
                let living = Living { record: read(record)?, revision: record.modified };
                live.workers.insert(worker, living);
            } else if let Some(block) = keys.of_open(&record.key) {
                let open: OpenRecord = read(record)?;
                check_open(record.key.clone(), job, block, open)?;
                let open = Open { record: open, revision: record.modified, holders: Vec::new() };
                live.open.insert(block, open);
            }
        }
        // Their keys come before those of the open blocks. One that is left of a block that is done is
        // nothing: the other of its two workers has finished it.
        for record in &records.records {
            let Some((block, worker)) = keys.of_held(&record.key) else { continue };
            if let Some(open) = live.open.get_mut(&block) {
                open.holders.push(Held { worker, lease: record.lease, who: read(record)? });
            }
        }
        Ok(live)
    }
}

/// The first block that was never opened, by the record that says so.
pub(super) fn next_of(record: &Record, job: &JobRecord) -> Result<BlockId, LeaseError> {
    let next: BlockId = read(record)?;
    // A number that cannot be there would end the job early, or hand out blocks that it has not.
    let is_end = next.number == 0 && (next.epoch == job.epochs || job.blocks() == 0);
    if is_end && next.epoch <= job.epochs || job.has(next) {
        return Ok(next);
    }
    let epochs = if job.epochs == 0 { "no end of".to_owned() } else { job.epochs.to_string() };
    let message = format!("{next} is next, and the job has {epochs} epochs of {} blocks", job.blocks());
    Err(LeaseError::Record { key: record.key.clone(), message })
}

fn check_open(key: String, job: &JobRecord, block: BlockId, open: OpenRecord) -> Result<(), LeaseError> {
    let (steps, acknowledged) = (job.steps_of(block), open.acknowledged);
    let message = match job.has(block) {
        false => format!("the job has no {block}: its epochs have {} blocks", job.blocks()),
        true if acknowledged >= steps => {
            format!("{acknowledged} steps of it are acknowledged, and it has {steps}: there is no rest")
        }
        true => return Ok(()),
    };
    Err(LeaseError::Record { key, message })
}
