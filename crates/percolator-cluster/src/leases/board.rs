//! The records of a job, and how a worker gets in and takes blocks: each race is decided by a transaction.
//!
//! # Invariants
//!
//! 1. A block below `next` is open or done; one from `next` on was never opened.
//! 2. A worker takes a block by a transaction that changes the block's open record as it has read it, or
//!    opens it by changing `next`. Before that, no worker holds the block, or, in a job that duplicates slow
//!    blocks, one other worker.
//! 3. Only the holder of a block changes its open record or removes it, and what it delivered goes into its
//!    receipt in the same transaction. So the receipts have each acknowledged or finished step once, and no
//!    other, even if steps were delivered twice.
//! 4. No step of a block is acknowledged while two workers have it: both deliver the same steps, and those of
//!    the worker that finishes the block first count.
//! 5. A worker that dies loses its lease, which takes its held records with it. Its blocks are then open but
//!    not held: the next worker that asks takes them first.
//! 6. Every transaction has the job's own record among its conditions, as it was when the worker joined. So
//!    nothing that a worker does reaches a later job of the same name.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use tracing::warn;
use uuid::Uuid;

use super::error::LeaseError;
use super::keys::{BlockId, Keys};
use super::live::{Live, Open, next_of};
use super::pace::Sight;
use super::records::{JobRecord, OpenRecord, Pace, VERSION, WhoRecord, WorkerRecord, read, write};
use crate::metadata::{LeaseId, Metadata, MetadataError, Outcome, Records, Revision, Transaction};

/// The most blocks that are opened at once.
const OPENED_MAX: usize = 64;
/// How long a worker pauses that was refused, at most: so long for each refusal, and for no more than these.
const PAUSE_MICROS: u32 = 500;
const PAUSES_MAX: u32 = 64;

/// The records of a job.
#[derive(Clone, Debug)]
pub(super) struct Board {
    pub(super) metadata: Arc<dyn Metadata>,
    pub(super) keys: Keys,
    pub(super) job: JobRecord,
    /// The revision of the job's own record.
    begun: Revision,
    seen: Arc<Seen>,
}

/// What was seen of the metadata. Their revisions only grow, unless they are set back to a copy.
#[derive(Debug, Default)]
struct Seen {
    newest: AtomicI64,
    /// They were set back, and the job's records do not say so yet.
    is_set_back: AtomicBool,
}

impl Seen {
    /// Asks, and checks the revision of the answer: every answer before the question is older.
    fn ask<T>(
        &self,
        ask: impl FnOnce() -> Result<T, MetadataError>,
        revision: impl FnOnce(&T) -> Revision,
    ) -> Result<T, MetadataError> {
        let before = self.newest.load(Ordering::SeqCst);
        let answer = ask()?;
        let Revision(found) = revision(&answer);
        if found < before {
            warn!(found, before, "the metadata were set back to a copy: what was done since is done again");
            self.newest.store(found, Ordering::SeqCst);
            self.is_set_back.store(true, Ordering::SeqCst);
        } else {
            self.newest.fetch_max(found, Ordering::SeqCst);
        }
        Ok(answer)
    }
}

/// A worker that asks for a block.
#[derive(Debug)]
pub(super) struct Asker<'a> {
    pub(super) worker: &'a str,
    pub(super) lease: LeaseId,
    /// Who it is, now.
    pub(super) who: WhoRecord,
    /// Its own record as of now, if others are to see how fast it is.
    pub(super) record: Option<WorkerRecord>,
    /// The blocks that it has. If an answer was lost, it has one more without knowing.
    pub(super) known: &'a BTreeSet<BlockId>,
}

/// What a worker that asks for a block gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Block(TakenBlock),
    /// Other workers have all that is left. It is worth asking again once something has changed since then.
    Wait(Revision),
    /// All blocks are done, or the job is drained.
    Over,
}

/// A block that a worker has got, from the step on that is not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TakenBlock {
    pub(super) block: BlockId,
    pub(super) open: OpenRecord,
    /// When its open record was last changed.
    pub(super) revision: Revision,
    /// Another worker has it as well.
    pub(super) is_shared: bool,
}

impl Board {
    /// Finds the job, or begins it.
    pub(super) fn join(metadata: Arc<dyn Metadata>, name: &str, job: JobRecord) -> Result<Self, LeaseError> {
        let keys = Keys::new(name)?;
        let job = JobRecord { id: Some(Uuid::new_v4()), ..job };
        let begin = Transaction::new()
            .when_missing(keys.job())
            .put(keys.job(), write(&job))
            .put(keys.next(), write(&BlockId::default()));
        // Made twice, it changes nothing.
        let (job, begun) = match metadata.transact(&begin)? {
            Outcome::Committed(revision) => (job, revision),
            Outcome::Refused(found) => {
                let missing = || LeaseError::NoJob { job: name.to_owned() };
                let record = found.get(&keys.job()).ok_or_else(missing)?;
                let stated: JobRecord = read(record)?;
                if stated.is_removed {
                    return Err(LeaseError::Reset { job: name.to_owned() });
                }
                check_same(name, &job, &stated)?;
                (stated, record.modified)
            }
        };
        Ok(Board { metadata, keys, job, begun, seen: Arc::default() })
    }

    /// Finds the job of this name.
    pub(super) fn find(metadata: Arc<dyn Metadata>, name: &str) -> Result<Self, LeaseError> {
        let keys = Keys::new(name)?;
        let found = metadata.read(&keys.job())?;
        let record = found.get(&keys.job()).ok_or_else(|| LeaseError::NoJob { job: name.to_owned() })?;
        let (job, begun): (JobRecord, _) = (read(record)?, record.modified);
        check_facts(record.key.clone(), &job)?;
        Ok(Board { metadata, keys, job, begun, seen: Arc::default() })
    }

    /// Reads records.
    pub(super) fn read(&self, prefix: &str) -> Result<Records, MetadataError> {
        self.seen.ask(|| self.metadata.read(prefix), |found| found.revision)
    }

    /// Makes a transaction.
    pub(super) fn transact(&self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
        self.seen.ask(
            || self.metadata.transact(transaction),
            |outcome| match outcome {
                Outcome::Committed(revision) => *revision,
                Outcome::Refused(found) => found.revision,
            },
        )
    }

    /// If the metadata were set back, says so among the job's records: they have forgotten what was done
    /// since the copy was made, so what counts once may have been trained on more often.
    pub(super) fn admit(&self) -> Result<(), LeaseError> {
        if self.seen.is_set_back.load(Ordering::SeqCst) {
            // They may have another job of this name, of the same revision.
            self.check_identity()?;
            self.change(&self.transaction().put(self.keys.set_back(), ""))?;
            self.seen.is_set_back.store(false, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Returns a transaction that changes nothing if the job is no longer this one.
    pub(super) fn transaction(&self) -> Transaction {
        Transaction::new().when_modified(self.keys.job(), self.begun)
    }

    /// Checks that the job is still this one, by records among which its own must be.
    pub(super) fn check_job(&self, found: &Records) -> Result<(), LeaseError> {
        match found.get(&self.keys.job()) {
            Some(record) if record.modified == self.begun => Ok(()),
            _ => Err(LeaseError::Reset { job: self.keys.name.clone() }),
        }
    }

    /// Checks that the job is still this one, after a time in which the metadata may have lost their data.
    pub(super) fn check_identity(&self) -> Result<(), LeaseError> {
        let found = self.read(&self.keys.job())?;
        self.check_job(&found)?;
        let stated: Option<JobRecord> = found.get(&self.keys.job()).map(read).transpose()?;
        match stated.is_some_and(|stated| stated.id == self.job.id) {
            true => Ok(()),
            false => Err(LeaseError::Reset { job: self.keys.name.clone() }),
        }
    }

    /// Makes a change that nothing but the end of the job can refuse.
    pub(super) fn change(&self, transaction: &Transaction) -> Result<(), LeaseError> {
        match self.transact(transaction)? {
            Outcome::Committed(_) => Ok(()),
            Outcome::Refused(_) => Err(LeaseError::Reset { job: self.keys.name.clone() }),
        }
    }

    /// Makes a worker known, under its lease. No two of a job have one name.
    pub(super) fn register(&self, worker: &str, lease: LeaseId, who: &WhoRecord) -> Result<(), LeaseError> {
        let key = self.keys.worker(worker);
        let record = WorkerRecord { who: who.clone(), pace: Pace::default() };
        let register = self.transaction().when_missing(&*key).put_under(lease, &*key, write(&record));
        let mut refusals = 0;
        loop {
            let Outcome::Refused(found) = self.transact(&register)? else { return Ok(()) };
            self.check_job(&found)?;
            match found.get(&key) {
                // It was made, and the answer was lost.
                Some(record) if record.lease == Some(lease) => return Ok(()),
                Some(record) => {
                    let WhoRecord { host, pid, .. } = read::<WorkerRecord>(record)?.who;
                    return Err(LeaseError::SameName { worker: worker.to_owned(), host, pid });
                }
                // The other one's lease has ended just now.
                None => pause(&mut refusals),
            }
        }
    }

    /// Takes a block: one that is no longer held, one that a slow worker holds, or the next one.
    pub(super) fn take(&self, asker: &Asker<'_>, sight: &mut Sight) -> Result<Taken, LeaseError> {
        let mut refusals = 0;
        loop {
            self.admit()?;
            let (transaction, taken) = match self.choice(asker, sight)? {
                Choice::Known(taken) => return Ok(taken),
                Choice::Open(taken) => {
                    let open = self.keys.open(taken.block);
                    let again = OpenRecord { times: taken.open.times.saturating_add(1), ..taken.open };
                    let transaction = self.transaction().when_modified(&*open, taken.revision);
                    (transaction.put(open, write(&again)), TakenBlock { open: again, ..taken })
                }
                Choice::Next { block, revision, workers } => self.open(block, revision, workers),
            };
            let held = self.keys.held(taken.block, asker.worker);
            let mut transaction = transaction.put_under(asker.lease, held, write(&asker.who));
            if let Some(record) = &asker.record {
                transaction =
                    transaction.put_under(asker.lease, self.keys.worker(asker.worker), write(record));
            }
            match self.transact(&transaction) {
                Ok(Outcome::Committed(revision)) => {
                    return Ok(Taken::Block(TakenBlock { revision, ..taken }));
                }
                Ok(Outcome::Refused(found)) => self.check_job(&found)?,
                Err(error) => {
                    // It may hold the block without knowing.
                    sight.look_next();
                    return Err(error.into());
                }
            }
            // Others were faster.
            sight.look_next();
            pause(&mut refusals);
        }
    }

    /// Chooses a block: of all blocks if it is time to read them, otherwise the next one.
    fn choice(&self, asker: &Asker<'_>, sight: &mut Sight) -> Result<Choice, LeaseError> {
        if self.job.duplicates_below.is_none() && !sight.is_look_due() {
            let found = self.read(&self.keys.next())?;
            if let Some(record) = found.get(&self.keys.next()) {
                let block = next_of(record, &self.job)?;
                if self.job.has(block) {
                    return Ok(Choice::Next { block, revision: record.modified, workers: 1 });
                }
            }
        }
        self.look(asker, sight)
    }

    /// Opens the next block, for the worker that asks, and as many as there are other workers, for those: if
    /// each opened its own, each that did would refuse all others.
    fn open(&self, block: BlockId, revision: Revision, workers: usize) -> (Transaction, TakenBlock) {
        let open = OpenRecord { times: 1, acknowledged: 0 };
        let mut transaction = self
            .transaction()
            .when_missing(self.keys.drain())
            .when_modified(self.keys.next(), revision)
            .put(self.keys.open(block), write(&open));
        let mut next = self.job.after(block);
        for _ in 1..workers.min(OPENED_MAX) {
            if !self.job.has(next) {
                break;
            }
            transaction = transaction.put(self.keys.open(next), write(&OpenRecord::default()));
            next = self.job.after(next);
        }
        let transaction = transaction.put(self.keys.next(), write(&next));
        (transaction, TakenBlock { block, open, revision, is_shared: false })
    }

    /// Looks which block a worker may take.
    fn look(&self, asker: &Asker<'_>, sight: &mut Sight) -> Result<Choice, LeaseError> {
        let records = self.read(&self.keys.live())?;
        self.check_job(&records)?;
        self.admit()?;
        let live = Live::read(&self.keys, &self.job, &records)?;
        sight.has_looked(live.workers.len());
        self.choose(&live, asker, sight)
    }

    fn choose(&self, live: &Live<'_>, asker: &Asker<'_>, sight: &mut Sight) -> Result<Choice, LeaseError> {
        let taken = |block, open: &Open<'_>, is_shared| TakenBlock {
            block,
            open: open.record,
            revision: open.revision,
            is_shared,
        };
        let unknown = live.open.iter().find(|(block, open)| {
            !asker.known.contains(block) && open.holders.iter().any(|held| held.lease == Some(asker.lease))
        });
        if let Some((&block, open)) = unknown {
            return Ok(Choice::Known(Taken::Block(taken(block, open, open.holders.len() > 1))));
        }
        if live.is_drained {
            return Ok(Choice::Known(Taken::Over));
        }
        // First what a worker has left that has died; of the others any, so that not all take the same.
        let free: Vec<_> = live.open.iter().filter(|(_, open)| open.holders.is_empty()).collect();
        let mut all_left = free.iter().filter(|(_, open)| open.record.times > 0);
        let left = all_left.next();
        if all_left.next().is_some() {
            // The next one that is left comes next.
            sight.look_next();
        }
        let any = || free.get(super::random() as usize % free.len().max(1));
        if let Some(&(&block, open)) = left.or_else(any) {
            return Ok(Choice::Open(taken(block, open, false)));
        }
        let Some((next, revision)) = live.next else {
            return Err(LeaseError::Record { key: self.keys.next(), message: "it is missing".to_owned() });
        };
        if let Some(share) = self.job.duplicates_below
            && let Some((block, open)) = sight.slow_block(live, next, asker, share)
        {
            return Ok(Choice::Open(taken(block, open, true)));
        }
        if self.job.has(next) {
            return Ok(Choice::Next { block: next, revision, workers: live.workers.len() });
        }
        // A worker stays until all blocks are done: it may be the only one that is left when another dies.
        Ok(Choice::Known(if live.open.is_empty() { Taken::Over } else { Taken::Wait(live.revision) }))
    }

    /// Waits until something has changed, but not long. Returns whether it has.
    pub(super) fn wait(&self, revision: Revision, at_most: Duration) -> Result<bool, LeaseError> {
        Ok(self.metadata.wait(&self.keys.live(), revision, at_most)?)
    }
}

/// Lets others be first, who were faster: not all of those who were too slow try again at once.
fn pause(refusals: &mut u32) {
    *refusals = PAUSES_MAX.min(*refusals + 1);
    thread::sleep(Duration::from_micros(u64::from(super::random() % (*refusals * PAUSE_MICROS))));
}

/// Which block a worker may take.
enum Choice {
    /// No transaction is needed: it holds one without knowing, or there is none to take.
    Known(Taken),
    /// One that is open, and is not held, or is held by a slow worker.
    Open(TakenBlock),
    /// The next one, the revision that says so, and how many workers there are.
    Next { block: BlockId, revision: Revision, workers: usize },
}

fn check_facts(key: String, job: &JobRecord) -> Result<(), LeaseError> {
    let message = match job {
        JobRecord { version, .. } if *version != VERSION => {
            format!("its version is {version}, and {VERSION} is known")
        }
        JobRecord { steps_per_block: 0, .. } => "its blocks have no steps".to_owned(),
        _ => return Ok(()),
    };
    Err(LeaseError::Record { key, message })
}

fn check_same(name: &str, here: &JobRecord, there: &JobRecord) -> Result<(), LeaseError> {
    let share = |job: &JobRecord| job.duplicates_below.map_or("none".to_owned(), |share| share.to_string());
    let facts = [
        ("version of its records", here.version.to_string(), there.version.to_string()),
        ("number of epochs", here.epochs.to_string(), there.epochs.to_string()),
        ("size of a block in steps", here.steps_per_block.to_string(), there.steps_per_block.to_string()),
        ("number of steps of an epoch", here.steps.to_string(), there.steps.to_string()),
        ("share below which slow blocks are duplicated", share(here), share(there)),
        ("data set, or order of it", here.schedule.clone(), there.schedule.clone()),
    ];
    match facts.into_iter().find(|(_, found, stated)| found != stated) {
        None => Ok(()),
        Some((what, found, stated)) => {
            Err(LeaseError::OtherJob { job: name.to_owned(), what, found, stated })
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::metadata::MemoryMetadata;

    /// Records that note what was read.
    #[derive(Debug, Default)]
    struct Noted {
        records: MemoryMetadata,
        read: Mutex<Vec<String>>,
    }

    impl Metadata for Noted {
        fn read(&self, prefix: &str) -> Result<Records, MetadataError> {
            self.read.lock().push(prefix.to_owned());
            self.records.read(prefix)
        }

        fn transact(&self, transaction: &Transaction) -> Result<Outcome, MetadataError> {
            self.records.transact(transaction)
        }

        fn grant(&self, ttl: Duration) -> Result<LeaseId, MetadataError> {
            self.records.grant(ttl)
        }

        fn keep_alive(&self, lease: LeaseId) -> Result<Duration, MetadataError> {
            self.records.keep_alive(lease)
        }

        fn revoke(&self, lease: LeaseId) -> Result<(), MetadataError> {
            self.records.revoke(lease)
        }

        fn wait(&self, prefix: &str, revision: Revision, at_most: Duration) -> Result<bool, MetadataError> {
            self.records.wait(prefix, revision, at_most)
        }

        fn place(&self) -> String {
            self.records.place()
        }
    }

    fn job() -> JobRecord {
        JobRecord {
            version: VERSION,
            schedule: String::new(),
            source: String::new(),
            epochs: 1,
            steps_per_block: 1,
            steps: 20,
            duplicates_below: None,
            is_removed: false,
            id: None,
        }
    }

    /// A worker that asks again at once reads one record for a block, however many workers there are; what
    /// the others leave or say is found all the same.
    #[test]
    fn a_block_costs_one_record_until_it_is_time_to_look_at_all() {
        let metadata = Arc::new(Noted::default());
        let board = Board::join(metadata.clone(), "job", job()).unwrap();
        let lease = metadata.grant(Duration::from_secs(60)).unwrap();
        let who = WhoRecord { host: String::new(), pid: 1, since: 0 };
        board.register("me", lease, &who).unwrap();
        let known = BTreeSet::new();
        let take = |sight: &mut Sight, known: &BTreeSet<BlockId>| {
            let asker = Asker { worker: "me", lease, who: who.clone(), record: None, known };
            board.take(&asker, sight).unwrap()
        };
        let block = |taken| match taken {
            Taken::Block(taken) => taken.block.number,
            other => panic!("{other:?}"),
        };
        let mut sight = Sight::new(Duration::from_secs(1));
        let all: Vec<_> = (0..5).map(|_| block(take(sight.at(Duration::from_secs(1)), &known))).collect();
        assert_eq!(all, [0, 1, 2, 3, 4]);
        let due: Vec<_> = [vec![board.keys.live()], vec![board.keys.next(); 4]].concat();
        assert_eq!(*metadata.read.lock(), due);
        // Somebody has died with block 2. It is found when it is time to look.
        let known: BTreeSet<_> = all.iter().map(|&number| BlockId { epoch: 0, number }).collect();
        let left = BlockId { epoch: 0, number: 2 };
        board.change(&board.transaction().remove(board.keys.held(left, "me"))).unwrap();
        assert_eq!(block(take(sight.at(Duration::from_secs(2)), &known)), 2);
        // Nobody gets a block once the job is drained.
        board.change(&board.transaction().put(board.keys.drain(), "")).unwrap();
        assert_eq!(take(sight.at(Duration::from_secs(2)), &known), Taken::Over);
    }
}
