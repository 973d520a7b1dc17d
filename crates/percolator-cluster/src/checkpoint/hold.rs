//! Holding an id: a record under a lease, which one process at a time can have.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use percolator_files::shown;
use tracing::{info, warn};

use super::entry::{Held, Writer, nanoseconds};
use super::error::CheckpointError;
use crate::metadata::{Lease, LeaseId, Metadata, MetadataError, Outcome, Records, Revision, Transaction};
use crate::store::Id;

/// Keys of the records of an id.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// Which checkpoint counts.
    pub(super) record: String,
    /// Who holds the id.
    pub(super) held: String,
    /// The files that were begun, or may be, and that the record does not name.
    pub(super) begun: String,
    /// Records that could not be read, which others took the place of, and why files stay that no record
    /// names.
    pub(super) unreadable: String,
}

impl Keys {
    /// What the keys of all records begin with.
    pub(super) const OF_RECORDS: &'static str = "/checkpoints/";

    pub(super) fn new(id: &Id) -> Self {
        let id = id.as_str();
        Keys {
            record: format!("{}{id}", Self::OF_RECORDS),
            held: format!("/checkpoints-held/{id}"),
            begun: format!("/checkpoints-begun/{id}"),
            unreadable: format!("/checkpoints-unreadable/{id}/"),
        }
    }
}

/// Reads exactly these records, as they were at one moment. (A read by prefix would return those of other ids
/// as well.)
pub(super) fn read_exactly(metadata: &dyn Metadata, keys: &[&str]) -> Result<Records, MetadataError> {
    let asked = keys.iter().fold(Transaction::new(), |all, &key| all.when_missing(key));
    match metadata.transact(&asked)? {
        Outcome::Refused(found) => Ok(found),
        Outcome::Committed(revision) => Ok(Records { revision, records: Vec::new() }),
    }
}

/// What an attempt to take an id found.
pub(super) enum Taken {
    /// It is held under this lease, since this revision.
    Ours(Lease, Revision),
    /// A condition did not hold.
    Refused(Records),
    /// There was no answer: the id may be held under this lease, until the lease is given back or ends.
    Unanswered(LeaseId, MetadataError),
}

/// Takes the id if no process has it, and if the conditions of `also` hold.
pub(super) fn take_id(
    metadata: &Arc<dyn Metadata>,
    keys: &Keys,
    ttl: Duration,
    also: Transaction,
) -> Result<Taken, MetadataError> {
    let lease = Lease::keep(metadata.clone(), ttl)?;
    let Writer { host, pid } = Writer::this();
    let held = Held { host, pid, since: nanoseconds(SystemTime::now()) };
    let held = serde_json::to_vec(&held).expect("texts and numbers have a JSON");
    let take = also.when_missing(&keys.held).put_under(lease.id(), &keys.held, held);
    Ok(match metadata.transact(&take) {
        Ok(Outcome::Committed(revision)) => Taken::Ours(lease, revision),
        Ok(Outcome::Refused(found)) => Taken::Refused(found),
        // Dropping the lease lets go of what may have been taken, if that is heard.
        Err(error) => Taken::Unanswered(lease.id(), error),
    })
}

/// Takes the id, once no other process has it.
pub(super) fn wait_for_id(
    metadata: &Arc<dyn Metadata>,
    id: &Id,
    keys: &Keys,
    ttl: Duration,
    at_most: Duration,
) -> Result<Lease, CheckpointError> {
    /// How often it is asked again while there is no answer.
    const PAUSE: Duration = Duration::from_millis(200);

    let start = Instant::now();
    loop {
        let failed = match take_id(metadata, keys, ttl, Transaction::new()) {
            Ok(Taken::Ours(lease, _)) => return Ok(lease),
            Ok(Taken::Refused(found)) => {
                let Some(record) = found.get(&keys.held) else { continue };
                let (by, since) = holder(&record.value);
                let waited = start.elapsed();
                let Some(left) = at_most.checked_sub(waited).filter(|left| !left.is_zero()) else {
                    let (id, by) = (id.clone(), Box::new(by));
                    return Err(CheckpointError::Held { id, by, since, waited });
                };
                info!(%id, %by, "the id is held by another process, and is waited for");
                // A short look again makes up for a wait that others' changes would end.
                metadata.wait(&keys.held, found.revision, left.min(ttl)).err()
            }
            Ok(Taken::Unanswered(_, error)) | Err(error) => Some(error),
        };
        if let Some(error) = failed {
            let is_passing =
                matches!(error, MetadataError::Unreachable { .. } | MetadataError::LeaseExpired { .. });
            let left = at_most.saturating_sub(start.elapsed());
            if !is_passing || left.is_zero() {
                return Err(error.into());
            }
            warn!(%id, error = %shown::with_sources(&error), "the id cannot be taken yet");
            std::thread::sleep(PAUSE.min(left));
        }
    }
}

/// Who has an id, and since when. What is not understood is not known.
pub(super) fn holder(value: &[u8]) -> (Writer, SystemTime) {
    match serde_json::from_slice::<Held>(value) {
        Ok(Held { host, pid, since }) => {
            // A clock before 1970 counts as one at its beginning.
            let since = Duration::from_nanos(u64::try_from(since).unwrap_or(0));
            (Writer { host, pid }, UNIX_EPOCH + since)
        }
        Err(_) => (Writer { host: "a machine that is not known".to_owned(), pid: 0 }, UNIX_EPOCH),
    }
}
