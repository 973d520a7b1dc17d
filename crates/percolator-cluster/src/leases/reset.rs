//! The end of a job.

use std::sync::Arc;

use super::error::LeaseError;
use super::job::Job;
use super::keys::Keys;
use super::records::{JobRecord, VERSION, read, write};
use crate::metadata::{Metadata, OPERATIONS_MAX, Outcome, Record, Revision, Transaction};

impl Job {
    /// Removes all records of the job of this name, including its receipts, even if they are damaged. The
    /// next worker begins a new one. An interrupted reset must be repeated: no worker joins the job until
    /// then.
    ///
    /// # Errors
    ///
    /// [`LeaseError::InUse`] if workers live; one that joins after it was looked gets [`LeaseError::Reset`].
    /// [`LeaseError::NoJob`] if there is none; [`LeaseError::Reset`] if another reset was faster;
    /// [`LeaseError`] if the records cannot be changed.
    pub fn reset(metadata: &Arc<dyn Metadata>, name: &str) -> Result<(), LeaseError> {
        let keys = Keys::new(name)?;
        let live = metadata.read(&keys.live())?;
        let workers = live.records.iter().filter(|record| keys.of_worker(&record.key).is_some()).count();
        match workers {
            0 => Self::force_reset(metadata, name),
            _ => Err(LeaseError::InUse { job: name.to_owned(), workers }),
        }
    }

    /// As [`reset`](Self::reset), also while workers live: they get [`LeaseError::Reset`], and what they have
    /// is lost to them.
    ///
    /// # Errors
    ///
    /// As [`reset`](Self::reset), but for [`LeaseError::InUse`].
    pub fn force_reset(metadata: &Arc<dyn Metadata>, name: &str) -> Result<(), LeaseError> {
        let keys = Keys::new(name)?;
        let own = keys.job();
        let found = metadata.read(&keys.all())?;
        if found.records.is_empty() {
            return Err(LeaseError::NoJob { job: name.to_owned() });
        }
        // From here on no worker's transaction is made, because this record has changed. It is removed last,
        // so that no worker begins a new job over remaining records. Each removal asks for it, too: one that
        // comes late, or a second reset, finds another and removes nothing of the next job.
        let record = found.get(&own);
        let mark = Transaction::new().when_seen(&*own, record.map(|record| record.modified));
        let marked = commit(metadata, name, &mark.put(&*own, write(&removed(record))))?;
        let transaction = || Transaction::new().when_modified(&*own, marked);
        for front in [keys.receipts(), keys.live()] {
            loop {
                let found = metadata.read(&front)?;
                let others = found.records.iter().map(|record| &*record.key).filter(|key| *key != own);
                let some: Vec<_> = others.take(OPERATIONS_MAX).collect();
                if some.is_empty() {
                    break;
                }
                commit(metadata, name, &some.into_iter().fold(transaction(), Transaction::remove))?;
            }
        }
        commit(metadata, name, &transaction().remove(&*own))?;
        Ok(())
    }
}

/// The job's own record while it is being removed.
fn removed(record: Option<&Record>) -> JobRecord {
    let known = record.and_then(|record| read::<JobRecord>(record).ok());
    let known = known.filter(|job| job.version == VERSION && job.steps_per_block > 0).unwrap_or(JobRecord {
        version: VERSION,
        source: "unknown: the job's record was damaged".to_owned(),
        steps_per_block: 1,
        ..JobRecord::default()
    });
    JobRecord { is_removed: true, ..known }
}

/// Makes a change that only another reset can refuse.
fn commit(
    metadata: &Arc<dyn Metadata>,
    name: &str,
    transaction: &Transaction,
) -> Result<Revision, LeaseError> {
    match metadata.transact(transaction)? {
        Outcome::Committed(revision) => Ok(revision),
        Outcome::Refused(_) => Err(LeaseError::Reset { job: name.to_owned() }),
    }
}
