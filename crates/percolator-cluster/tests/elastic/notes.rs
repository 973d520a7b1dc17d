//! What a worker process writes down: what it asked for, what it got, what was handed over to it. Each entry
//! is a line that is written at once, so a process that is killed leaves all but the last, perhaps.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use percolator_cluster::metadata::{
    Change, Condition, LeaseId, Metadata, MetadataError, Outcome, Records, Revision, Transaction,
};
use serde::{Deserialize, Serialize};

/// A block, as it is in keys.
pub(crate) type BlockKey = String;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// It has a lease.
    Granted { lease: i64 },
    /// It asks for a block.
    Asks { block: BlockKey, lease: i64 },
    /// It has got it.
    Took { block: BlockKey, lease: i64, revision: i64 },
    /// Another worker was faster.
    Refused { block: BlockKey },
    /// It has said that a block is done.
    Done { block: BlockKey },
    /// It does not know what became of what it asked for.
    Unsure { block: BlockKey },
    /// A step was handed over to it: the records of all lanes.
    Step { epoch: u64, step: u64, block: u64, records: Vec<u64> },
    /// From here on, all steps before may count.
    Confirms,
    /// From here on, all steps before count, except those of lost blocks.
    Confirmed { finished: u64, lost: u64 },
    /// There is nothing more for it.
    Over,
    /// It has left of its own accord.
    Left,
}

#[derive(Debug)]
pub(crate) struct Notes(Mutex<File>);

impl Notes {
    pub(crate) fn new(file: &Path) -> Self {
        Notes(Mutex::new(File::options().append(true).create_new(true).open(file).unwrap()))
    }

    pub(crate) fn write(&self, entry: &Entry) {
        let line = serde_json::to_string(entry).unwrap() + "\n";
        self.0.lock().write_all(line.as_bytes()).unwrap();
    }

    /// The entries of a process, which may have been killed while it wrote the last one.
    pub(crate) fn read(file: &Path) -> Vec<Entry> {
        // A process may be killed before it has one.
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Records whose changes are written down, as far as they say who has which block.
#[derive(Debug)]
pub(crate) struct Noted {
    pub(crate) records: Arc<dyn Metadata>,
    pub(crate) notes: Arc<Notes>,
}

/// The block of the record that says who has it.
fn block_of(key: &str) -> Option<BlockKey> {
    let (_, held) = key.split_once("/held/")?;
    let (block, _worker) = held.split_once('/')?;
    Some(block.to_owned())
}

/// What a transaction says of who has which block.
#[derive(Default)]
struct Holds {
    taken: Vec<(BlockKey, i64)>,
    done: Vec<BlockKey>,
    /// All that it is about.
    blocks: Vec<BlockKey>,
}

impl Holds {
    fn of(transaction: &Transaction) -> Self {
        let mut holds = Holds::default();
        for change in transaction.changes() {
            if let Change::Remove { key } = change
                && let Some((_, block)) = key.split_once("/open/")
            {
                holds.done.push(block.to_owned());
            }
            let Some(block) = block_of(change.key()) else { continue };
            if let Change::Put { lease, .. } = change {
                holds.taken.push((block.clone(), lease.unwrap().0));
            }
            holds.blocks.push(block);
        }
        holds.blocks.extend(transaction.conditions().iter().map(Condition::key).filter_map(block_of));
        holds.blocks.sort();
        holds.blocks.dedup();
        holds
    }
}

impl Metadata for Noted {
    passes_on!(records: keep_alive revoke wait place);

    fn read(&self, prefix: &str) -> Result<Records, MetadataError> {
        self.records.read(prefix)
    }

    fn transact(&self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
        let Holds { taken, done, blocks } = Holds::of(transaction);
        for (block, lease) in taken.iter().cloned() {
            self.notes.write(&Entry::Asks { block, lease });
        }
        let outcome = self.records.transact(transaction);
        match &outcome {
            Ok(Outcome::Committed(Revision(revision))) => {
                for (block, lease) in taken {
                    self.notes.write(&Entry::Took { block, lease, revision: *revision });
                }
                done.into_iter().for_each(|block| self.notes.write(&Entry::Done { block }));
            }
            // A lease that has ended is an answer as well.
            Ok(Outcome::Refused(_)) | Err(MetadataError::LeaseExpired { .. }) => {
                taken.into_iter().for_each(|(block, _)| self.notes.write(&Entry::Refused { block }));
            }
            Err(_) => blocks.into_iter().for_each(|block| self.notes.write(&Entry::Unsure { block })),
        }
        outcome
    }

    fn grant(&self, ttl: Duration) -> Result<LeaseId, MetadataError> {
        let granted = self.records.grant(ttl);
        if let Ok(LeaseId(lease)) = granted {
            self.notes.write(&Entry::Granted { lease });
        }
        granted
    }
}
